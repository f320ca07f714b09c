"""Label DP by one noisy statistic: how many positives fall into each cell of public tables, told once.

tables        which cells there are: a field's values, and pairs of values that really occur together
cells         the cells that some rows fall into, and the two sums that everything here is made of
design        which tables are worth their noise, decided by public counts alone
weights       how much a unit's rows may count, and the exact sensitivity that follows
plan          all of that for one log and one budget: public, and known before anything is released
release       the noisy statistic, and what it promises
posterior     labels as the statistic lets one expect them
fit           a factorisation machine, or a linear model, learned from those
model         what was learned: probabilities for public ids
field_machine the same as a model like any other, to be saved and exported
statistic     `NoisyStatistic`, the way in
"""

from tacit.train.statistic.statistic import NoisyStatistic

__all__ = ["NoisyStatistic"]
