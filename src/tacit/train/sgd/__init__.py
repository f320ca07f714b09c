"""Stochastic gradient descent, private or not.

descent       READ FIRST: the step: sample, read, clip, add up, add noise, move
sampling      Poisson samples and shuffled epochs
optimizers    `Sgd`, `Adam`, `Yogi`, `RmsProp` and rate schedules as values
updates       how optimizers change large tables
noise         Gaussian noise, at once or owed to rows that are not read
self_checks   sequential tests of draws; records and rows computed a second time
monitor       holds a private run to the release that was paid for
"""
