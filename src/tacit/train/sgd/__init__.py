"""Stochastic gradient descent, private or not.

descent       READ FIRST: the step: sample, read, clip, add up, add noise, move
draws         Poisson samples, shuffled epochs; Gaussian noise, at once or owed to rows that are not read
optimizers    `Sgd`, `Adam`, `Yogi`, `RmsProp` and rate schedules as values
updates       how optimizers change large tables
self_checks   sequential tests of draws; records and rows computed a second time
monitor       holds a private run to the release that was paid for
"""
