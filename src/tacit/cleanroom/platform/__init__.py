"""The party with features and the model; it learns of labels only what the room lets out.

`link`             what the platform may ask of a room, wherever the room runs
`slab_encoding`    one call's examples as slabs, the same bytes however often they are asked for
`plans`            what a run is to do
`training`         an adapter trained through the room, step by step, with checkpoints
`optimizer`        Adam and plain descent on one flat vector; projection of noisy gradients
`released_labels`  release mode: the flipped labels once, then training at home
`statistic`        statistic mode: one noisy statistic, and a head fitted to it by `noisy_ridge`
`metrics`          AUC, calibration and log loss from positives by score bin
`cost_estimate`    bytes, seconds and releases, before a run
"""
