"""Labels under randomized response, read again in every epoch: fresh flips average out, kept ones do not."""

from __future__ import annotations

import numpy as np

from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Target
from tacit.cleanroom.attacks.unit_vectors import read, said
from tacit.cleanroom.attacks.worlds import Records
from tacit.privacy.randomness import Source

EPOCHS = 5


def scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """What most epochs said."""
    told = np.stack([np.sign(said(read(target, records, run=f"epoch-{epoch}"))) for epoch in range(EPOCHS)])
    most: Scores = told.sum(axis=0)
    return most
