"""The party with features and the model; it learns of labels only what the room lets out.

`steps`            a run's plan, the rows and slabs of each step, and what its answer does to the adapter
`gradients`        which rows of an embedding a step sends; projection of noisy sums
`training`         an adapter trained through the room, step by step
`checkpoints`      where such a run stands
`released_labels`  release mode: the flipped labels once, then training at home
`statistic`        statistic mode: one noisy statistic, and a head fitted to it by `noisy_ridge`
`metrics`          AUC, calibration and log loss from positives by score bin
`cost_estimate`    bytes, seconds and releases, before a run
"""
