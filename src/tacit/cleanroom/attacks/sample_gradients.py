"""Gradients by sample tell labels apart by their length, and by their direction.

Source: Li et al. 2021 (arXiv 2102.08504). A rare positive has a slope near -1 where the many negatives have one
near 0; and the slopes of the two labels have opposite signs.
"""

from __future__ import annotations

import numpy as np

from tacit.cleanroom.attacks import honest
from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Floats, Target
from tacit.cleanroom.attacks.worlds import Records
from tacit.errors import RoomRefused
from tacit.privacy.randomness import Source


def by_norm(target: Target, records: Records, source: Source) -> Scores:
    """Long gradients are positives: longer than the geometric mean of the shortest and the longest."""
    gradients = _gradients(target, records, source)
    lengths = np.maximum(np.linalg.norm(gradients, axis=1), 1e-30)
    known = np.isfinite(lengths)
    if not known.any():
        return np.zeros(len(records))
    middle = np.sqrt(lengths[known].min() * lengths[known].max())
    return np.where(known, np.log(lengths / middle), 0.0)


def by_cosine(target: Target, records: Records, source: Source) -> Scores:
    """Gradients that point where the longest one does are positives."""
    gradients = _gradients(target, records, source)
    lengths = np.linalg.norm(gradients, axis=1)
    if not np.isfinite(lengths).any():
        return np.zeros(len(records))
    longest = gradients[np.nanargmax(lengths)]
    cosines: Scores = gradients @ longest / np.maximum(lengths * np.linalg.norm(longest), 1e-30)
    return np.nan_to_num(cosines)


def _gradients(target: Target, records: Records, source: Source) -> Floats:
    """One gradient a record, of an honest network; not numbers where the target refuses."""
    sent = honest.sent(len(records), 1, source)
    try:
        return target.sample_gradients(target.tokens(records), sent.logits, sent.cut)
    except RoomRefused:
        return np.full(sent.cut.shape, np.nan)
