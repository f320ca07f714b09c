"""The evaluation of label DP by privacy units (Ghazi, Google Research), run again; one module a figure.

setting         what they share: the log, the models, how they learn
arms            one way to train as a value, all seeds of many of them, and their loss against no privacy
users           how many examples users have
epsilons        the loss over epsilon, by unit and cap: L1, L2, L3
units           the order of the units at epsilon 3: L4
split           epsilon/K against epsilon/K_i, first against random rows: L5
corrections     three ways to learn from flipped labels, and what they do to calibration
network         the paper's network in place of the factorization machine
methods         randomized response beside one noisy statistic: where each wins
"""
