"""The slow truth for private choices: a linear program over all epsilon-LDP mechanisms on given inputs."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_array

Floats = NDArray[np.float64]


def best_mechanism(scores: Floats, epsilon: float) -> tuple[float, Floats]:
    """The best value of any mechanism on these inputs (inputs, candidates), equally likely, and its rows.

    Variables are all probabilities p(i|x); constraints are p(i|x) <= e^epsilon p(i|x') for all x, x', i. Other
    inputs that a real mechanism must also serve would only add constraints.
    """
    inputs, candidates = scores.shape
    one, other = np.nonzero(~np.eye(inputs, dtype=bool))
    place = np.arange(candidates)
    upper = (one[:, None] * candidates + place).ravel()
    lower = (other[:, None] * candidates + place).ravel()
    rows = np.arange(upper.size)
    ratios = coo_array(
        (
            np.r_[np.ones(upper.size), np.full(upper.size, -math.exp(epsilon))],
            (np.r_[rows, rows], np.r_[upper, lower]),
        ),
        shape=(upper.size, scores.size),
    )
    found = linprog(
        -scores.ravel() / inputs,
        A_ub=ratios.tocsr(),
        b_ub=np.zeros(upper.size),
        A_eq=np.kron(np.eye(inputs), np.ones(candidates)),
        b_eq=np.ones(inputs),
        bounds=(0, 1),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert found.status == 0, found.message
    return -float(found.fun), found.x.reshape(scores.shape)


def all_rankings(candidates: int) -> Floats:
    """Scores that make every ranking, (candidates!, candidates)."""
    return np.array(list(permutations(range(candidates))), np.float64)
