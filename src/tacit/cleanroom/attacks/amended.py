"""Tighten the agreement, which needs no second signature, and ask again: are labels flipped anew, for free?

Or from what is left of the first budget, where the room has tightened by much before anything left: `SLACK`.
"""

from __future__ import annotations

import numpy as np

from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Target
from tacit.cleanroom.attacks.unit_vectors import read, said
from tacit.cleanroom.attacks.worlds import Records
from tacit.privacy.randomness import Source

TIMES = 5
SLACK = 6
"""So many times what is in force the first terms allowed: more than all the times together would cost, as long
as terms may have that much epsilon (up to 40 in all). Against sums with Gaussian noise the votes of five
readings say little more than one: there this would not notice the hole, and tests look at what is refused."""


def scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """What most of the agreements said."""
    told = np.zeros(len(records))
    for time in range(TIMES):
        told += np.sign(said(read(target, records, run=f"amended-{time}")))
        target.tighten()
    return told
