"""Stochastic gradient descent, private or not.

descent       READ FIRST: the step: sample, read, clip, add up, add noise, move
draws         Poisson samples, shuffled epochs; Gaussian noise, at once or owed to rows that are not read, and
              the tables that have such rows
optimizers    `Sgd`, `Adam`, `Yogi`, `RmsProp` and rate schedules as values; how they change a whole table
self_checks   sequential tests of draws; records and rows computed a second time
monitor       holds a private run to the release that was paid for
"""
