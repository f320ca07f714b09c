"""Privacy amplification by shuffling: what a local choice still reveals within a shuffled batch.

`amplification`  delta, epsilon and a composable PLD of a `ShuffledChoice`: start here
`bounds`         clones, for any epsilon-LDP mechanism; the blanket, where rows are known, is never worse
`mechanism`      those rows, checked, and what a pair of inputs shows through them
`cohort`         which reports hide each other, how many are needed, and what to say when there are too few
"""

from __future__ import annotations

from tacit.privacy.shuffling.amplification import delta, epsilon, loss_atoms
from tacit.privacy.shuffling.cohort import ReportClass, Standing, cohort_needed, standings

__all__ = ["ReportClass", "Standing", "cohort_needed", "delta", "epsilon", "loss_atoms", "standings"]
