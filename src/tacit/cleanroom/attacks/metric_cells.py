"""A metric whose every cell holds one record is a list of labels; and a step beside it is a second look."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Target
from tacit.cleanroom.attacks.unit_vectors import read, said
from tacit.cleanroom.attacks.worlds import Records
from tacit.errors import RoomRefused
from tacit.privacy.randomness import Source


def scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """Positives by cell, plus whatever a step still adds."""
    told = np.zeros(len(records))
    with suppress(RoomRefused):  # then a step alone
        told += target.positives(target.tokens(records), np.arange(len(records)), "metric") - 0.5
    return told + said(read(target, records, run="beside"))
