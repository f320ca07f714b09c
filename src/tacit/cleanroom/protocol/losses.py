"""Losses of a logit and their derivatives (slopes), for labels that are true or were flipped.

`train.targets.Targets` has the first two in float32, for whole examples at a time. Here slopes are float64: the
room multiplies them with clipped derivatives, and the bound of a release is shown in float64.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit.expect import Choice

LEAST_CHANCE = 2.0**-60
"""A chance below it counts as 0, which changes nothing that can be measured: beside the slope -1 of the other
label it is lost to rounding anyway. But times a small derivative it could get so small (subnormal) that some
processors take longer over it, and the time would tell which rows have a label of 0."""


class Loss(Choice):
    """What a model is compared with, where a label is kept with probability q and flipped otherwise.

    RAW       the label as it is: -y log p - (1 - y) log(1 - p)
    FORWARD   the chance that the model gives to a flipped label, r = (1 - q) + (2q - 1) p, in place of p
              (Patrini et al. 2017, arXiv:1609.03683; Li et al., RecSys 2024)
    UNBIASED  (y - (1 - q)) / (2q - 1), whose mean over flips is the true label, in place of y
              (Natarajan et al., NeurIPS 2013)
    """

    RAW = "raw"
    FORWARD = "forward"
    UNBIASED = "unbiased"


def slopes(logits: ArrayLike, labels: ArrayLike, loss: Loss, keep: float | None) -> Floats:
    """d loss / d logit of each example. `keep` is the chance that a label was kept; RAW does not need it.

    A raw slope is within [-1, 1], and two labels' slopes differ by 1. A forward slope is within [-1, 1] too,
    an unbiased one within q / (2q - 1) of 0. A raw slope is 0 or at least 2^-60 in size, whatever the logit.
    """
    z, y = _check_columns(logits, labels)
    p = _chance(z)
    q = 1.0 if loss is Loss.RAW else _keep(keep)
    if q == 1:  # nothing was flipped: all three are the same
        return p - y
    if loss is Loss.UNBIASED:
        return p - (y - (1 - q)) / (2 * q - 1)
    # (r - y) (2q - 1) p (1 - p) / (r (1 - r)), where one factor of r (1 - r) cancels: y is 0 or 1.
    not_p = _chance(-z)
    reported = np.where(y > 0, (1 - q) + (2 * q - 1) * p, (1 - q) + (2 * q - 1) * not_p)  # chance of this label
    slope = (2 * q - 1) * p * not_p / reported
    return np.where(y > 0, -slope, slope)


def losses(logits: ArrayLike, labels: ArrayLike, loss: Loss, keep: float | None) -> Floats:
    """The loss of each example."""
    z, y = _check_columns(logits, labels)
    if loss is Loss.RAW:
        return np.logaddexp(0, z) - y * z
    q = _keep(keep)
    if loss is Loss.UNBIASED:
        return np.logaddexp(0, z) - (y - (1 - q)) / (2 * q - 1) * z
    signed = np.where(y > 0, z, -z)
    # -log((1 - q) + (2q - 1) p) with p = 1 / (1 + e^-z), as (q + (1 - q) e^-z) / (1 + e^-z): no 1 - p is lost.
    flipped = np.log1p(-q) if q < 1 else -np.inf
    chance: Floats = np.logaddexp(0, -signed) - np.logaddexp(np.log(q), flipped - signed)
    return chance


def _chance(z: Floats) -> Floats:
    """1 / (1 + e^-z), from which no label has been taken yet."""
    p: Floats = expit(z)
    return np.where(p < LEAST_CHANCE, 0.0, p)


def _check_columns(logits: ArrayLike, labels: ArrayLike) -> tuple[Floats, Floats]:
    z, y = np.asarray(logits, np.float64), np.asarray(labels, np.float64)
    if z.ndim != 1 or z.shape != y.shape:
        raise BadInput(f"expected as many labels as logits, got shapes {y.shape} and {z.shape}")
    if not np.isfinite(z).all():
        raise BadInput("expected finite logits, got one that is not")
    if not np.isin(y, (0.0, 1.0)).all():
        raise BadInput("expected labels of 0 or 1, got another")
    return z, y


def _keep(keep: float | None) -> float:
    if keep is None or not 0.5 < keep <= 1:
        raise BadInput(f"expected keep above 1/2 and at most 1 for a debiased loss, got {keep!r}")
    return float(keep)
