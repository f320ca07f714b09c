"""Privacy amplification by shuffling: what a local choice still reveals within a shuffled batch.

`amplification`  delta and epsilon of a `ShuffledChoice`, and `loss_atoms`, its composable PLD: start here
`bounds`         clones, for any epsilon-LDP mechanism; the blanket, where rows are known, is never worse
`mechanism`      those rows, checked, and what a pair of inputs shows through them
`central`        what all of a device's choices tell together, quickly, for its own book
`renyi`          the Rényi divergences that are added up for that
`cohort`         which reports hide each other, how many are needed, and what to say of each: its `Standing`
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.privacy.shuffling.amplification import delta, epsilon, loss_atoms
    from tacit.privacy.shuffling.central import central_epsilon
    from tacit.privacy.shuffling.cohort import ReportClass, Standing, cohort_needed, standings
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "amplification": "delta epsilon loss_atoms",
            "central": "central_epsilon",
            "cohort": "ReportClass Standing cohort_needed standings",
        },
    )

__all__ = [
    "ReportClass",
    "Standing",
    "central_epsilon",
    "cohort_needed",
    "delta",
    "epsilon",
    "loss_atoms",
    "standings",
]
