"""The winner of a contest with exponential noise: permute-and-flip, by an exact quadrature."""

from __future__ import annotations

import numpy as np

from tacit.privacy.choice.choice import Floats
from tacit.privacy.choice.nodes import unit_nodes


def log_pmf(signals: Floats) -> Floats:
    """ln of each candidate's chance when independent Exp(1) noise is added to signals (n, a).

    Source: McKenna, Sheldon 2020 (arXiv 2010.12603); as noise: Ding et al. 2021 (arXiv 2105.07260).
    """
    below = signals - signals.max(axis=1, keepdims=True)
    law: Floats = below + np.log(others_stay_below(np.exp(below)))
    return law


def others_stay_below(odds: Floats) -> Floats:
    """The integral over y in [0, 1] of prod_{j != i} (1 - odds_j y), for every i; odds (n, a) in [0, 1].

    With y the chance that one's own noise goes so high, it is the chance that nobody else's goes higher. The
    integrand is a polynomial of degree a - 1, so Gauss-Legendre with ceil(a / 2) nodes is exact, and since all
    its terms are positive nothing cancels. (Expanding the product would lose half the digits at a = 100.)
    """
    nodes, node_weights = unit_nodes((odds.shape[1] + 1) // 2)
    total = np.zeros_like(odds)
    for y, weight in zip(nodes.tolist(), node_weights.tolist(), strict=True):
        stays = 1.0 - odds * y  # (n, a), at least 1 - y > 0
        total += weight * (stays.prod(axis=1, keepdims=True) / stays)
    return total
