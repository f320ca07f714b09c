"""Label DP by one noisy statistic: how many positives fall into each cell of public tables, told once.

method    READ FIRST: `NoisyStatistic`: plan, release, fit
tables    which cells there are, which rows fall into them, and the exact sensitivity
release   which tables are worth their noise, by public counts and a prior; the noisy statistic and its promise
fit       a ridge that knows the noise, a linear model, then a factorization machine, learned from the statistic
offset    a model that is trained beside it: the fitted logit is added, and stays as it is
model     what was learned: probabilities for public ids; the same as a model to be saved
audit     the statistic as it is really released, against its claim
"""
