"""Adding up privacy losses: the law of a sum of independent losses on one grid, by FFT.

A plain FFT is right to about 1e-16 of the largest probability, and the delta that we look for may be smaller
than that times the number of compositions: dp_accounting 0.6's own composition then lands beside the truth,
on one machine below it (100,000 Gaussians at delta = 1e-12: .2% too low), on another above. So the losses are
tilted first, p(l) e^(λl), with the λ that puts the bulk of the tilted law where the answer is. The tilt is
undone exactly afterwards, rounding errors shrink along with the tail, and what remains of them is bounded and
added to delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats
from tacit.errors import NoFiniteGuarantee
from tacit.privacy.accounting.loss_distributions import LossPmf

_GATHERED_BINS = 1024
_LONGEST = 2**26
_NEGLIGIBLE = 1e-7  # of delta: what a cut tail may add to it
_ALIASED = 1e-13  # of the tilted law: what may wrap around the FFT


@dataclass(frozen=True)
class Term:
    """One mechanism, published `count` times, seen from one side of the pair of neighbours."""

    pmf: LossPmf
    count: int


def epsilon_at(terms: Sequence[Term], delta: float) -> float:
    """The least epsilon on which the composed loss keeps delta; infinity where none does."""
    infinite = _infinite_mass(terms)
    target = delta - infinite
    if target <= 0:
        return math.inf
    cumulants = _Cumulants(terms)
    quantile, tilt = cumulants.quantile(math.log(target))
    if quantile > 0:
        # A loss with a maximum would like to be tilted without end; but the answer may lie well below it.
        tilt = min(tilt, 10 * max(1.0, -math.log(target)) / quantile)
    losses, curve, weight = _delta_curve(terms, cumulants, tilt, target, infinite)
    # curve(l_j) = upper_j - e^(l_j) weight_j, and between two grid points delta is linear in e^epsilon.
    inside = np.flatnonzero(curve <= delta)
    if not len(inside):
        return math.inf
    first = int(inside[0])
    if losses[first] <= 0:
        return 0.0
    if first == 0 or weight[first] <= 0:
        return float(losses[first])
    excess = (delta - curve[first]) / weight[first] * math.exp(-losses[first])
    exact = losses[first] + math.log1p(-min(excess, 0.5))
    return max(0.0, float(max(exact, losses[first - 1])) * (1 + 1e-12))


def delta_at(terms: Sequence[Term], epsilon: float) -> float:
    """The delta that the composed loss needs at epsilon, rounded up."""
    infinite = _infinite_mass(terms)
    cumulants = _Cumulants(terms)
    log_bound, tilt = cumulants.log_tail(epsilon)
    target = math.exp(max(min(log_bound, 0.0), -650.0)) * 1e-3
    losses, curve, weight = _delta_curve(terms, cumulants, tilt, target, infinite, include=epsilon)
    above = int(np.searchsorted(losses, epsilon))
    if above >= len(losses):
        return min(1.0, infinite + target)
    step = -math.expm1(epsilon - losses[above]) * weight[above] * math.exp(losses[above])
    return min(1.0, float(curve[above] + step))


def _infinite_mass(terms: Sequence[Term]) -> float:
    log_finite = sum(term.count * math.log1p(-min(term.pmf.infinite, 1.0 - 1e-16)) for term in terms)
    return -math.expm1(log_finite)


class _Cumulants:
    """log E e^(λ loss) of the sum, bounded from both sides on losses gathered into few bins."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self.parts = [(_bin_losses(term.pmf), term.count) for term in terms]
        variance = sum(count * part.variance for part, count in self.parts)
        # Tilts are looked for around one over the deviation of the sum. A loss that has a maximum would like
        # ever larger ones; beyond one over the grid they tell nothing more.
        self.unit = 1.0 / max(math.sqrt(variance), terms[0].pmf.grid)
        self.highest_log = min(11, max(-7, math.floor(-math.log(self.unit * terms[0].pmf.grid))))

    def above(self, tilt: float) -> float:
        return sum(n * _log_sum_exp(p.spread_logs + tilt * p.spread_losses) for p, n in self.parts)

    def below(self, tilt: float) -> float:
        return sum(n * _log_sum_exp(p.mean_logs + tilt * p.mean_losses) for p, n in self.parts)

    def quantile(self, log_mass: float) -> tuple[float, float]:
        """The least loss that Chernoff's bound gives for a tail of this mass, and the λ that gives it."""
        return self._least(lambda tilt: (self.above(tilt) - log_mass) / tilt)

    def log_tail(self, threshold: float) -> tuple[float, float]:
        """The log of Chernoff's bound on P(loss > threshold), and its λ."""
        return self._least(lambda tilt: self.above(tilt) - tilt * threshold)

    def tilted_range(self, tilt: float, log_mass: float) -> tuple[float, float]:
        """Between which losses the law tilted by λ has all but e^log_mass of its mass, on each side."""
        base = self.below(tilt) + log_mass
        high, _ = self._least(lambda more: (self.above(tilt + more) - base) / more)
        low, _ = self._least(lambda less: (self.above(tilt - less) - base) / less)
        return -low, high

    def _least(self, objective: Callable[[float], float]) -> tuple[float, float]:
        """The least value of a quasi-convex function of λ > 0, and where: a coarse look, then Brent."""
        from scipy.optimize import (
            minimize_scalar,  # here: heavy, and services that compose nothing start sooner
        )

        start = min(range(-8, self.highest_log + 1), key=lambda log: objective(self.unit * math.exp(log)))
        found = minimize_scalar(
            lambda log: objective(self.unit * math.exp(log)),
            bounds=(start - 1, start + 1),
            method="bounded",
            options={"xatol": 0.01},
        )
        return float(found.fun), float(self.unit * math.exp(found.x))


def _delta_curve(
    terms: Sequence[Term],
    cumulants: _Cumulants,
    tilt: float,
    target: float,
    infinite: float,
    include: float | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Grid losses l_j with delta(l_j), rounded up, and the weight sum_{l >= l_j} p(l) e^-l."""
    grid = terms[0].pmf.grid
    low, high = cumulants.tilted_range(tilt, math.log(_ALIASED))
    tail = _NEGLIGIBLE * target
    top = max(high, cumulants.quantile(math.log(tail))[0])
    if include is not None:
        low, top = min(low, include - grid), max(top, include + grid)
    first = math.floor(low / grid)
    wanted = max(math.ceil(top / grid) - first + 2, 16)
    if wanted > _LONGEST:
        raise NoFiniteGuarantee(
            f"expected a composition that fits on {_LONGEST} grid points, got {wanted}: too many steps, "
            "or losses that spread too far"
        )
    from scipy import fft  # here, as above

    length = fft.next_fast_len(wanted, real=True)

    spectrum: NDArray[np.complex128] | None = None
    log_scale, shift, sensitivity, count = 0.0, 0, np.zeros(0), 0
    for term in terms:
        weights = np.where(term.pmf.probs > 0, term.pmf.losses * tilt, -np.inf)
        peak = float(weights.max())
        tilted = term.pmf.probs * np.exp(weights - peak)
        total = float(tilted.sum())
        tilted /= total
        log_scale += term.count * (math.log(total) + peak)
        # Centred, the transform turns slowly where it is large, and its power stays accurate.
        centre = round(float(tilted @ np.arange(len(tilted))))
        folded = np.bincount((np.arange(len(tilted)) - centre) % length, weights=tilted, minlength=length)
        transform = fft.rfft(folded)
        size = np.abs(transform)
        power = transform**term.count
        error = term.count * size ** (term.count - 1)
        if spectrum is None:
            spectrum, sensitivity = power, error
        else:
            sensitivity = sensitivity * size**term.count + np.abs(spectrum) * error
            spectrum = spectrum * power
        shift += term.count * (term.pmf.lowest + centre)
        count += term.count
    assert spectrum is not None
    composed = fft.irfft(spectrum, length)
    composed = np.roll(composed, (shift - first) % length)
    np.maximum(composed, 0.0, out=composed)
    rounding = 4 * np.finfo(float).eps * math.log2(length) * float(sensitivity.mean())

    losses = (first + np.arange(length)) * grid
    steps = np.arange(length)
    # Everything is kept relative to e^(K - λ l_j), so nothing under- or overflows on the way.
    fall, gain = math.exp(-tilt * grid), math.exp(-(tilt + 1) * grid)
    mass = _decaying_sum(composed, fall)
    weight = _decaying_sum(composed, gain)
    slack = rounding * np.minimum(1 / -math.expm1(-tilt * grid), length - steps)
    with np.errstate(over="ignore", under="ignore"):
        scale = np.exp(np.minimum(log_scale - tilt * losses, 700.0))
        curve = scale * (np.maximum(mass - weight, 0.0) + slack) + tail + infinite
        absolute_weight = scale * weight * np.exp(-losses)
    return losses, np.minimum(curve, 1.0), absolute_weight


def _decaying_sum(values: Floats, decay: float) -> Floats:
    """sum_{i >= j} values[i] decay^(i-j), for every j."""
    from scipy.signal import lfilter  # here: heavy, and not every process adds up

    result: Floats = lfilter([1.0], [1.0, -decay], values[::-1])[::-1]
    return result


@dataclass(frozen=True)
class _BinnedLosses:
    """A loss pmf in few bins: fine around its mean, wider further out.

    A bin's mass on its two ends, with its mean kept, can only raise E e^(λ loss); all of it on the mean can
    only lower it (Jensen's inequality, both).
    """

    spread_losses: Floats
    spread_logs: Floats
    mean_losses: Floats
    mean_logs: Floats
    variance: float


def _bin_losses(pmf: LossPmf) -> _BinnedLosses:
    losses, probs = pmf.losses, np.maximum(pmf.probs, 0.0)
    total = float(probs.sum())
    centre = float(probs @ losses) / total
    variance = float(probs @ (losses - centre) ** 2) / total
    middle = round(centre / pmf.grid) - pmf.lowest
    reach = math.asinh(len(probs))
    offsets = np.sinh(np.linspace(-reach, reach, _GATHERED_BINS))
    starts = np.unique(np.clip(np.round(middle + offsets), 0, len(probs) - 1).astype(np.intp))
    starts[0] = 0
    mass = np.add.reduceat(probs, starts)
    low, high = losses[starts], losses[np.r_[starts[1:], len(probs)] - 1]
    seen = mass > 0
    mass, low, high = mass[seen], low[seen], high[seen]
    mean = np.clip(np.add.reduceat(probs * losses, starts)[seen] / mass, low, high)
    share = np.where(high > low, (mean - low) / np.maximum(high - low, pmf.grid), 0.0)
    spread = np.r_[mass * (1 - share), mass * share]
    kept = spread > 0
    return _BinnedLosses(np.r_[low, high][kept], np.log(spread[kept]), mean, np.log(mass), variance)


def _log_sum_exp(exponents: Floats) -> float:
    peak = float(exponents.max())
    return peak + math.log(float(np.exp(exponents - peak).sum()))
