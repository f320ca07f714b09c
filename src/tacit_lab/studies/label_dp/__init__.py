"""The evaluation of label DP by privacy units (Ghazi, Google Research), run again.

setting             what they share: the log, the models, how they learn; one way to train as a value, all
                    seeds of many of them, their loss against no privacy
loss_over_epsilon   by unit and cap (L1, L2, L3), by model, by correction
units               how many examples users have; the order of the units (L4); how epsilon is split (L5)
methods             randomized response beside one noisy statistic: where each wins
"""
