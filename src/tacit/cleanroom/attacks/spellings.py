"""The same records under other runs, codecs and losses: does another way to ask get another flip?"""

from __future__ import annotations

from itertools import product

import numpy as np

from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Target
from tacit.cleanroom.attacks.unit_vectors import read
from tacit.cleanroom.attacks.worlds import Records
from tacit.cleanroom.wire.losses import Loss
from tacit.privacy.randomness import Source

CODECS = ("fp32", "bf16", "int8")


def scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """What most ways said. At a logit of 0 a slope has its label's sign, whatever the loss: below 0 for a 1."""
    told = np.zeros(len(records))
    for codec, loss in product(CODECS, Loss):
        slopes = read(target, records, logit=0.0, codec=codec, loss=loss, run=f"{codec}-{loss.value}")
        told -= np.sign(np.nan_to_num(slopes))
    return told
