"""Label DP by one noisy statistic: how many positives fall into each cell of public tables, told once.

method    READ FIRST: `NoisyStatistic`: plan, release, fit
tables    which cells there are, which rows fall into them, and the exact sensitivity
design    which tables are worth their noise, decided by public counts and a prior
release   the plan, the noisy statistic, and what it promises
ridge     a logistic fit from noisy sums alone, with a ridge that knows the noise
fit       a linear model, then a factorization machine, learned from the statistic
model     what was learned: probabilities for public ids; the same as a model to be saved
audit     the statistic as it is really released, against its claim
"""
