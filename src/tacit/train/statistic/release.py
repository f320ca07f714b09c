"""The one release: weighted positives in every cell, plus Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import BadInput, EntropyMisuse
from tacit.privacy.randomness import Source
from tacit.train.statistic.cells import Reals
from tacit.train.statistic.plan import Plan
from tacit.train.statistic.weights import GRID


@dataclass(frozen=True, eq=False)
class Released:
    """The noisy statistic. `simulated` says that its noise came from a seed: for studies, never to leave."""

    plan: Plan
    sums: Reals  # (cells,): weighted positives, with noise
    simulated: bool


def release(plan: Plan, labels: ArrayLike, source: Source, *, simulated: bool = False) -> Released:
    """Read the labels, once, and release the statistic. Drawing again is another release, to be paid again.

    Guarantee:  (epsilon, delta)-DP for the labels of one unit: `plan.statement`. Whatever is computed from the
                statistic and public features alone, any number of models, costs nothing more.
    Neighbours: replace label, for one unit (and window): features, unit keys and times are the same in both.
    Assumes:    what `weights.unit_norms` shows of the sensitivity; normals as `entropy` makes them. Sums lie on
                a grid and are exact, and noise is rounded to the same grid: the result is that of adding ideal
                noise and rounding afterwards, so that no digits of it tell about the sums.
    Source:     the Gaussian mechanism: Dwork, Roth 2014, appendix A; its epsilon: Balle, Wang 2018 (arXiv
                1805.06530), theorem 8. Sufficient statistics with noise, for whole records instead of labels:
                Kulkarni et al., ICML 2021; Ferrando, Sheldon 2024 (arXiv 2405.15002).
    """
    if not simulated and not source.fit_for_release:
        raise EntropyMisuse(
            "expected the cryptographic stream for a release, got a simulation; say simulated=True for a study"
        )
    truth = np.asarray(labels)
    if truth.shape != (plan.cells.rows,):
        raise BadInput(f"expected one label for each of {plan.cells.rows} rows, got shape {truth.shape}")
    if not np.isin(truth, (0, 1)).all():
        raise BadInput("expected labels of 0 or 1, got another value")
    sums = plan.cells.gather(plan.weights * truth)  # multiples of GRID, and exact
    cells = plan.cells
    for start, size, noise in zip(cells.starts, cells.sizes, plan.noise_by_table, strict=False):
        drawn = source.normal(size, dtype=np.float64, scale=float(noise))
        sums[start : start + size] += np.round(drawn / GRID) * GRID
    return Released(plan, sums, simulated)
