"""Training with semi-sensitive features, again: Chua et al., AdKDD 2024 (arXiv 2401.15246).

recipe              the logs, models and settings of all these studies
loss_over_epsilon   figures 1 and 2: by method, for a log and a model
frontier_verdicts   the rules for them
split               figure 3: how epsilon is split over the two phases
vocabulary          figures 4 and 5: a smaller sensitive vocabulary, and bins against one
clipping            appendix A: which clip norm AUC and log loss want, and what a norm for each is worth
accounting          ours: noise of the second phase, both phases accounted jointly or added up
"""
