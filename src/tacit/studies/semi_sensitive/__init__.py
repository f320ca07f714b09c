"""Training with semi-sensitive features, again: Chua et al., AdKDD 2024 (arXiv 2401.15246).

recipe      the logs, models and settings of all these studies
frontier    loss over epsilon by method: figures 1 and 2, for one log and one model
display     figure 1 (FM)               search      figure 2 (FM)           network     figure 1 (MLP)
split       figure 3: how epsilon is split over the two phases
size        figure 4: a smaller sensitive vocabulary
hashing     figure 5: bins against a vocabulary
clipping    appendix A: which clip norm AUC and log loss want, and what a norm for each is worth
accounting  ours: noise of the second phase, both phases accounted jointly or added up
"""
