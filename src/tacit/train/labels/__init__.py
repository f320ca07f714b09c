"""How labels become noisy targets: once, for every privacy unit, and paid for by one release.

noisy_targets   READ FIRST: examples, a mechanism, a unit and epsilon -> what is released, and noisy targets
mechanism       what a label mechanism is: classes, corrections, public priors
randomizers     randomized response, response among the likeliest classes, Laplace noise
values          counts and amounts: the best bins, or one bit per label
config          [labels] of a training: which of these, and what it needs
windows         labels that are reported more than once, as conversions arrive
audit           each of these against its claim
"""
