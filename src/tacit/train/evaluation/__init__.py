"""How good a model is, each figure with its interval: pure NumPy, no model needed, only predictions and labels.

report          start here: all figures of one model, beside a baseline's on the same rows
outcomes        how much a row counts as a positive: by its label, by a flipped label, by a known probability
auc             ranks to AUC, and how far each row pulls it (DeLong)
measures        AUC loss, log loss, calibration, relative change
reliability     predicted against observed, by quantiles of the prediction
estimates       a value with its rows' influence, and the interval that follows
seeds           two methods over the same seeds

Measured on private labels, any of these figures is a release with a price; measured on labels that a paid-for
release has flipped already (`report.from_flipped`), it is free.
"""
