"""Predictions put right after DP-SGD: a slope and a shift of the logit, from one noisy statistic.

Clipping holds positives back more than negatives, so a model that ranks well may predict half of what happens.
Log loss of slope * z + shift depends on labels only through the positives and the sum of their logits, and on
all else through how logits are spread. These are told once, with Gaussian noise that the training's own budget
pays for, and the two numbers are fitted to them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, least_squares
from scipy.special import expit
from scipy.stats import norm

from tacit.arrays import Floats
from tacit.errors import SelfCheckFailed
from tacit.privacy.randomness import Source
from tacit.privacy.releases import GaussianStatistic
from tacit.privacy.units import Relation
from tacit.train.examples import Examples, Places
from tacit.train.models.model import Model, Part
from tacit.train.sgd.self_checks import FALSE_ALARM, expect_normals

KNOTS: Floats = np.arange(-7.0, 4.0)
"""Logits that others are told as mixtures of; beyond the ends, as the ends."""
PLACES: Floats = (KNOTS - KNOTS[0]) / (KNOTS[-1] - KNOTS[0])
SENSITIVITY = 2.0
AT_ONCE = 1024  # records, so that it takes no more memory than the steps before it
GRID = 2.0**-20  # what is added up are multiples of it, so that no digits of a sum tell more than the sum
DRAWN = 2**14  # normals, of which a dozen are used
FINE = 2.0**-20  # what rounding to the grid may take from the noise
SHARE = 0.05
"""The most that it takes of the squared distance between neighbours that a budget allows: 2.6% more noise in
DP-SGD's steps."""
ENOUGH = 0.002  # noise in what is told, as a part of the positives that are expected: less would help nobody
USUAL_RATE = 0.05  # of positives, where no public rate is given: it only decides how much noise is enough
SLOPE_SPREAD, SHIFT_SPREAD = 0.3, 3.0  # how far off one expects a model to be
TOLD_APART = 4.0  # standard deviations of noise that positives must stand out by
APART = 0.1  # how far apart positives' places are, about: a logit
CLOSE = 0.1


@dataclass(frozen=True)
class Recalibration:
    """What will be told after the last step. `weights` are one over the size of each record's unit, where
    units have several records; None where each is its own."""

    release: GaussianStatistic
    weights: Floats | None = None


@dataclass(frozen=True)
class CalibrationResult:
    """What came of it, all of it from the noisy statistic. `predicted` is what the model predicted before, as a
    part of what was observed, with the standard deviation of the noise in it; None where too few were told."""

    slope: float = 1.0
    shift: float = 0.0
    predicted: float | None = None
    spread: float = math.inf

    @property
    def is_close(self) -> bool:
        """Whether predictions are now within 10% of what was observed, but for a chance of 5% by the noise."""
        return self.predicted is not None and 2 * self.spread <= CLOSE

    def as_json(self) -> dict[str, float | bool | str | None]:
        """What is saved with the model: no figure that was not told."""
        told = self.predicted is not None
        return {
            "predicted": self.predicted,
            "spread": self.spread if told else None,
            "slope": self.slope,
            "shift": self.shift,
            "is_close": self.is_close,
            "words": self.words,
        }

    @property
    def words(self) -> str:
        if self.predicted is None:
            return (
                "WARNING: predictions are not calibrated: noise hides how many positives there are; "
                "rank by them, do not bid by them"
            )
        if (self.slope, self.shift) == (1.0, 0.0):
            return (
                f"the model predicted {self.predicted:.2f} of what was observed (± {2 * self.spread:.2g}, "
                "noise): WARNING, noise hides whether that is too much or too little, so nothing was changed; "
                "rank by predictions, do not bid by them"
            )
        told = (
            f"the model predicted {self.predicted:.2f} of what was observed (± {2 * self.spread:.2g}, noise); "
            f"its logits are now x {self.slope:.3g} {self.shift:+.3g}, so that both agree"
        )
        if self.is_close:
            return told
        return f"{told} but for {2 * self.spread:.0%}: WARNING, more than 10%, so do not bid by them"


def plan_statistic(epsilon: float, delta: float, records: int, rate: float | None) -> GaussianStatistic:
    """The statistic for a training of `records` records under a budget that it may use a part of.

    The guarantee does not hang on this choice: the accountant composes what is chosen here with the steps.
    """
    distance = allowed_distance(epsilon, delta)
    least = SENSITIVITY / (distance * math.sqrt(SHARE))
    return GaussianStatistic(
        max(least, ENOUGH * records * (rate or USUAL_RATE)), SENSITIVITY, Relation.REPLACE_ONE
    )


def record_weights(groups: Places) -> Floats:
    """One over the number of records in each record's unit, which public keys tell."""
    sizes = np.bincount(groups)
    weights: Floats = 1 / sizes[groups]
    return weights


def recalibrate(
    plan: Recalibration, model: Model, examples: Examples, source: Source, *, alpha: float = FALSE_ALARM
) -> CalibrationResult:
    """Tell the statistic, fit to it, and change the model's scores.

    Guarantee:  one `GaussianStatistic` of the plan's noise; the fit and the changed model cost nothing more.
    Neighbours: the private part (sensitive features and label) of one record replaced, or of one unit's records
                where they have weights.
    Assumes:    the model is released by the same training, which composes the two; normals as `entropy` makes
                them. Sums are multiples of a grid and exact, and the noise is rounded to the same grid.
    Source:     a record's vector is (y, y t, h): y and t in [0, 1], h >= 0 with entries that add up to at most
                1. Two such vectors are within sqrt(1 + 1 + 2) = 2 of each other, and so are two weighted means
                of them. The Gaussian mechanism: Dwork, Roth 2014, appendix A.
    """
    told = noisy_sums(plan, calibration_statistic(model, examples, plan.weights), source, alpha=alpha)
    found = fit_calibration(told, plan.release.noise_stddev)
    model.rescale(found.slope, found.shift)
    return found


def noisy_sums(plan: Recalibration, sums: Floats, source: Source, *, alpha: float = FALSE_ALARM) -> Floats:
    """What is told of these sums, or of as many as there are rows.

    A dozen draws hardly show their variance, so they are the first of many of one kind, and all of them are
    held to the release before any is used; honest ones fail with a chance of at most `alpha`.
    """
    stddev = plan.release.noise_stddev
    drawn = source.normal(max(DRAWN, sums.size), dtype=np.float64, scale=stddev)
    noise = drawn[: sums.size].reshape(sums.shape)
    for some in (drawn, noise.ravel()):
        expect_normals("the noise of the recalibration", some / stddev, alpha / 2)
    told: Floats = sums + np.round(noise / GRID) * GRID
    off = np.abs(told - sums - noise) - FINE - 1e-15 * np.abs(told)
    if not off.max(initial=0.0) <= 0:  # what is not a number is no less
        raise SelfCheckFailed(
            "noise: expected the statistic to be told with its noise, got another; nothing leaves"
        )
    return told


def calibration_statistic(model: Model, examples: Examples, weights: Floats | None) -> Floats:
    """Positives, the sum of their places among the knots, and how logits are spread over the knots."""
    total = np.zeros(2 + len(KNOTS))
    labels = examples.labels
    for first in range(0, len(examples), AT_ONCE):
        places = np.arange(first, min(first + AT_ONCE, len(examples)), dtype=np.int64)
        ids = model.ids(examples, examples.rows(places), Part.WHOLE)
        weight = np.ones(len(places)) if weights is None else weights[places]
        total += _vectors(model.forward(ids, Part.WHOLE).scores, labels[places], weight)
    return total


def _vectors(scores: NDArray[np.float32], labels: NDArray[np.uint8], weight: Floats) -> Floats:
    """The sum of these records' vectors. Each entry is rounded down to the grid, so that no vector grows."""
    z = np.clip(np.nan_to_num(scores.astype(np.float64)), KNOTS[0], KNOTS[-1])
    below = np.minimum(np.searchsorted(KNOTS, z, side="right") - 1, len(KNOTS) - 2)
    # A mixture of two knots with the same probability: then predictions add up to what they are.
    low, high = expit(KNOTS[below]), expit(KNOTS[below + 1])
    upper = np.clip((expit(z) - low) / (high - low), 0.0, 1.0)
    knots = np.bincount(below, _down(weight * (1 - upper)), minlength=len(KNOTS))
    knots += np.bincount(below + 1, _down(weight * upper), minlength=len(KNOTS))
    # And positives a mixture of their places, so that a model without fault finds its own again.
    likely = upper * high / np.maximum((1 - upper) * low + upper * high, low)
    place = (1 - likely) * PLACES[below] + likely * PLACES[below + 1]
    positive = labels * weight
    return np.concatenate([[_down(positive).sum(), _down(positive * place).sum()], knots])


def fit_calibration(told: Floats, noise_stddev: float) -> CalibrationResult:
    """The slope and the shift that the noisy statistic makes most likely; nothing else is read."""
    observed, placed, spread = float(told[0]), float(told[1]), told[2:]
    rates = expit(KNOTS)
    predicted = float(spread @ rates)
    noise = noise_stddev * math.sqrt(float(rates @ rates))
    if observed < TOLD_APART * noise_stddev or predicted < noise:
        return CalibrationResult()
    ratio = predicted / observed
    uncertain = math.hypot(noise / predicted, noise_stddev / observed)
    if 2 * uncertain > max(CLOSE, abs(ratio - 1)):
        return CalibrationResult(predicted=ratio, spread=uncertain)  # a change would be mostly noise
    middle = float(np.clip(placed / observed, 0.0, 1.0))  # where positives are: apart from how many there are
    apart = PLACES - middle
    happen = max(observed, 1.0)  # the variance of how many do
    scales = np.sqrt(
        [
            noise_stddev**2 + noise**2 + happen,
            noise_stddev**2 * (1 + middle**2 + float(np.sum((apart * rates) ** 2))) + APART**2 * happen,
        ]
    )

    def off(at: Floats) -> Floats:
        slope, shift = at
        now = spread * expit(slope * KNOTS + shift)
        many, where = now.sum() - observed, now @ apart - (placed - middle * observed)
        return np.array([many / scales[0], where / scales[1], (slope - 1) / SLOPE_SPREAD, shift / SHIFT_SPREAD])

    slope, shift = least_squares(off, np.array([1.0, 0.0]), bounds=([0.2, -8.0], [4.0, 8.0])).x
    return CalibrationResult(float(slope), float(shift), ratio, uncertain)


def _down(values: Floats) -> Floats:
    rounded: Floats = np.floor(values / GRID) * GRID
    return rounded


def allowed_distance(epsilon: float, delta: float) -> float:
    """How far apart the means of two unit Gaussians may be under this budget: Balle, Wang 2018 (arXiv
    1805.06530), theorem 8. It only sizes statistics, which an accountant composes then."""

    def excess(log_distance: float) -> float:
        at = math.exp(log_distance)
        above = norm.cdf(at / 2 - epsilon / at) - math.exp(
            min(epsilon, 700.0) + norm.logcdf(-at / 2 - epsilon / at)
        )
        return float(above - delta)

    return math.exp(brentq(excess, math.log(1e-6), math.log(1e4), xtol=1e-3))
