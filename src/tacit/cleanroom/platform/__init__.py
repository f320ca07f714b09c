"""The platform's side: it has features and the model, and learns of labels only what the room lets out.

link         what the platform may ask of a room, wherever the room runs
sending      one step's examples as slabs, the same bytes however often they are asked for
descending   Adam and plain descent on one flat vector
projecting   a noisy gradient, brought back to what its own derivatives can explain
plans        what a run is to do
checkpoints  where a run stands, whole on the disk or not there
training     an adapter trained through the room, step by step
labels       release mode: the flipped labels once, then training at home
features     what one noisy statistic is asked about
fitting      a head from that statistic, with a ridge that knows the noise
head         that head, for predicting and for keeping
statistic    statistic mode: ask once, fit
measuring    asking the room how well scores do
metrics      AUC, calibration and log loss from positives by score bin
estimate     bytes, seconds and releases, before a run
"""
