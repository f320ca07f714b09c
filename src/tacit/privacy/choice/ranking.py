"""The private ranking: the larger score first, equal scores in public order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def private_ranking(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Candidates from the best private score down, (..., candidates)."""
    return np.argsort(-scores, axis=-1, kind="stable").astype(np.int64, copy=False)
