"""Hiding in a crowd: what a local choice still gives away once it stands in a shuffled batch.

`amplified`      delta, epsilon and a composable PLD of a `ShuffledChoice`: start here
`clones`         the bound for any epsilon-LDP mechanism
`blanket`        the bound for a mechanism whose rows are known; never worse, up to its grid
`mechanism`      those rows, checked, and what a pair of inputs shows through them
`positive_part`  the one sum that the blanket needs, by FFT, rounded against ourselves
`cohort`         who counts as crowd, how large it must be, and what to say when it is not
"""

from tacit.privacy.shuffling.amplified import delta, epsilon, loss_atoms
from tacit.privacy.shuffling.cohort import ReportClass, Standing, cohort_needed, standings

__all__ = ["ReportClass", "Standing", "cohort_needed", "delta", "epsilon", "loss_atoms", "standings"]
