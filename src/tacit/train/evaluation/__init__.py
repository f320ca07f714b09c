"""How good a model is, each figure with its interval: pure NumPy, from predictions and labels alone.

report      START HERE: all figures of one model, beside a baseline's; reliability by quantiles
measures    `auc` (DeLong), AUC loss, `log_loss`, `calibration_ratio`, relative change; `Outcomes`: how much a
            row counts as a positive, by its label, by a flipped label, by a known probability
intervals   a value with its rows' influence, and the interval that follows; means over seeds

Measured on private labels, any of these figures is a release with a price; measured on labels that a paid-for
release has flipped already (`Outcomes.of_flipped`), it is free.
"""
