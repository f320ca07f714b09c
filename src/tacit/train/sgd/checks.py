"""A private run looks at its own clipping: one record of every step is computed again, the slow and obvious
way."""

from __future__ import annotations

import math

import numpy as np

from tacit.errors import SelfCheckFailed
from tacit.train.models.model import Model, Part, TableIds
from tacit.train.sgd.sampling import Places
from tacit.train.targets import Floats

TOLERANCE = 1e-3
"""Both norms are float32 sums of different order; a forgotten term is off by percents."""


def check_clipping(
    model: Model,
    ids: TableIds,
    part: Part,
    residual: Floats,
    norms: Floats,
    clipped: Floats,
    clip_norm: np.float32,
    groups: Places | None,
) -> None:
    """Stop unless the first record's norm is what it says, and every clipped norm keeps within the bound."""
    members = 1 if groups is None else int(np.searchsorted(groups, groups[0], side="right"))
    slow = slow_norm(model, ids, part, residual[:members])
    if not math.isclose(slow, float(norms[0]), rel_tol=TOLERANCE, abs_tol=TOLERANCE * float(clip_norm)):
        raise SelfCheckFailed(
            "clipping: expected the fast gradient norm of a record to equal the slow one, got another; the run "
            "was stopped and nothing leaves"
        )
    if not float(clipped.max()) <= clip_norm:
        raise SelfCheckFailed(
            f"clipping: expected norms of at most {clip_norm:g}, got a larger one; nothing leaves"
        )


def slow_norm(model: Model, ids: TableIds, part: Part, residual: Floats) -> float:
    """The gradient norm of the first records together, from their gradients."""
    total: dict[str, Floats] = {}
    for index, slope in enumerate(residual):
        for name, gradient in model.example_gradient(ids, index, part).items():
            own = slope * gradient
            total[name] = total[name] + own if name in total else own
    whole = np.concatenate([gradient.ravel() for gradient in total.values()]).astype(np.float64)
    return math.sqrt(float(whole @ whole))
