"""A record's labels for several tasks are the same: does each task give its own chance?"""

from __future__ import annotations

import numpy as np

from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Target
from tacit.cleanroom.attacks.unit_vectors import read, said
from tacit.cleanroom.attacks.worlds import Records
from tacit.privacy.randomness import Source

TASKS = 3


def scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """What the tasks say together."""
    told = np.stack([said(read(target, records, task=task, run=f"task-{task}")) for task in range(TASKS)])
    together: Scores = told.sum(axis=0)
    return together
