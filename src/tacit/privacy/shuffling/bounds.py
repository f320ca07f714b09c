"""Upper bounds on delta for shuffled reports: clones for any local mechanism, the blanket for a known one.

Clones: every other member's report is, with some probability, a draw that might as well be the victim's
own. The victim then hides among the clones: of two kinds of report, one more is of the one kind or of the
other. Nothing but epsilon need be known.

The privacy blanket: whatever its input, a member makes choice y with at least its floor m_y. So a share
sum(m) of the reports comes from one and the same law, and those hide the victim. The blanket needs E(X_1 +
... + X_n)+ for independent X with one finite law, computed by FFT on a tilted grid. Three steps, and each
can only raise it:
1. Each value is split between its two neighbours on a grid so that its mean stays: (.)+ is convex.
2. The law is tilted by e^(lambda x), which moves the sum's mass to where it is positive, so that the FFT errs
   relative to the answer and not to one. E(S)+ = M(lambda)^n E_tilted[e^(-lambda S) S+].
3. The transform is cyclic. What wraps around from below only adds; what wraps from above is bounded by Chernoff
   and added, and so is an allowance for the rounding of the transform.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from tacit import expect
from tacit.arrays import Floats
from tacit.privacy.budget import rounded_up
from tacit.privacy.shuffling.mechanism import PairLaws, Rows, pair_laws

CloneProbability = Callable[[float], float]
"""From e^-epsilon0 to the chance that another member's report is a clone."""

LARGEST_COHORT = 10**9
"""A larger cohort is read as this one: more members never reveal more, so that is an upper bound."""

_LOG_TAIL = 140.0  # e^-140 < 1e-60: clone counts that are rarer are charged as if nobody hid the victim
_MOST_COUNTS = 2_000  # neighbouring clone counts share one evaluation, at the smallest of them
_ROUNDING = 1e-9  # relative, on every term; the binomial laws are right to about 1e-12 (held by a test)
_LOCAL_SLACK = 2.0**-40  # e^epsilon0 is read this much larger, which covers every rounding of it


def variation_ratio(decay: float) -> float:
    """2 / (e^epsilon0 + 1), from decay = e^-epsilon0."""
    return 2 * decay / (1 + decay)


def standard_clones(decay: float) -> float:
    """e^-epsilon0: the older, more cautious count of clones."""
    return decay


def clone_delta(
    local_epsilon: expect.Number,
    cohort: int,
    epsilon: expect.Number,
    clone_probability: CloneProbability = variation_ratio,
) -> float:
    """An upper bound on delta(epsilon) of the shuffled reports of `cohort` members.

    Guarantee:  the multiset of reports is (epsilon, delta)-DP with the delta returned.
    Neighbours: replace one member's private input; the others' inputs are arbitrary and fixed.
    Assumes:    every member uses one mechanism that is local_epsilon-LDP; the order of the reports tells
                nothing; `cohort` counts only members who really randomise and do not reveal their report.
    Source:     `standard_clones`: Feldman, McMillan, Talwar 2021 (arXiv 2012.12803). `variation_ratio`: Wang
                et al. 2023 (arXiv 2304.05007); proved for every mechanism in docs/shuffling.md, in another way.
    """
    local = rounded_up(expect.positive("local_epsilon", local_epsilon)) + _LOCAL_SLACK
    members = min(expect.whole("cohort", cohort, at_least=1), LARGEST_COHORT)
    asked = -rounded_up(-expect.at_least_zero("epsilon", epsilon))  # rounded down
    if asked >= local - _LOCAL_SLACK:
        return 0.0
    decay = math.exp(-local)
    # (e^epsilon0 - e^epsilon) / (e^epsilon0 + 1): the whole delta when nobody else is there.
    alone = -math.expm1(asked - local) / (1 + decay)
    rate = clone_probability(decay) * (1 - 2.0**-50)
    if members == 1 or rate * members < 1e-12 or asked > 300:
        return min(1.0, alone * (1 + _ROUNDING))
    weights, fewest = _clone_counts(members - 1, rate)
    hidden = float(weights @ _delta_among(fewest, local, asked, alone))
    return min(1.0, hidden + alone * 2 * math.exp(-_LOG_TAIL))


def _clone_counts(others: int, rate: float) -> tuple[Floats, NDArray[np.int64]]:
    """The binomial law of the number of clones, in blocks that are read at their smallest count.

    Fewer clones never hide better, so reading a block low is an upper bound. Bernstein's inequality puts at
    most 2 exp(-_LOG_TAIL) outside the range.
    """
    from scipy.stats import binom  # here and below: heavy, and few need it

    mean, variance = others * rate, others * rate * (1 - rate)
    reach = math.sqrt(2 * variance * _LOG_TAIL) + 2 * _LOG_TAIL / 3
    low, high = max(0, math.floor(mean - reach)), min(others, math.ceil(mean + reach))
    counts = np.arange(low, high + 1)
    starts = np.arange(0, len(counts), -(-len(counts) // _MOST_COUNTS))
    weights: Floats = np.add.reduceat(binom.pmf(counts, others, rate), starts)
    return weights * (1 + _ROUNDING), counts[starts]


def _delta_among(clones: NDArray[np.int64], local: float, epsilon: float, alone: float) -> Floats:
    """The hockey-stick divergence at e^epsilon, given how many clones there are.

    With `a` reports of the first kind and `b` of the second, a + b = clones + 1, the odds of the two hypotheses
    are (c a + b) / (a + c b), c = e^local. They grow with a, so those above e^epsilon are all a >= `first`.
    """
    from scipy.stats import binom

    threshold = math.expm1(-epsilon - local) / (math.expm1(-local) * (1 + math.exp(-epsilon)))
    first = np.floor((clones + 1) * threshold) + 1
    gained = binom.pmf(first - 1, clones, 0.5) * alone
    lost = binom.sf(first - 1, clones, 0.5) * math.expm1(epsilon)
    # Each term is pushed to its pessimistic side before they cancel.
    among: Floats = np.maximum(gained * (1 + _ROUNDING) - lost * (1 - _ROUNDING), 0.0)
    return among


_FEWEST_CELLS, _MOST_CELLS = 2**10, 2**17
_CELLS_PER_STDDEV = 24
_STDDEVS = 7.5
# The error of one Fourier coefficient of a pmf: a fast transform of 2^17 points errs by at most a few units in
# the last place (2^-53) for each of its 17 levels; 2^-45 leaves room for the exponentials of the tilt.
_COEFFICIENT_ERROR = 2.0**-45


def mean_positive_part(values: Floats, masses: Floats, count: int) -> float:
    """Never below E(X_1 + ... + X_count)+, where P(X = values[i]) = masses[i] and E X <= 0.

    The values must be at or above the true ones and the masses right to a few units in the last place.
    """
    highest, lowest = float(values.max()), float(values.min())
    if highest <= 0:
        return 0.0
    tilt = _centring_tilt(values, masses)
    stddev = _tilted_stddev(values, masses, tilt)
    step, cells = _grid(highest, lowest, stddev, count)
    places, split = _split_onto_grid(values, masses, step)
    on_grid = places.astype(np.float64) * step
    log_mgf = float(logsumexp(tilt * on_grid, b=split))
    tilted = split * np.exp(tilt * on_grid - log_mgf)

    pmf = np.bincount(places % cells, weights=tilted, minlength=cells)
    coefficients = np.fft.rfft(pmf)
    sizes, angles = np.abs(coefficients), np.angle(coefficients)
    summed = np.fft.irfft(sizes**count * np.exp(1j * ((count * angles) % (2 * math.pi))), cells)
    sums = np.arange(cells // 2) * step
    weights = sums * np.exp(-tilt * sums)
    found = float(weights @ np.maximum(summed[: cells // 2], 0.0))
    # |x^n - y^n| <= n |x - y| max(|x|, |y|)^(n-1) for each coefficient; a cell gets the mean over all of them.
    spread = 2 * float(np.sum((sizes + _COEFFICIENT_ERROR) ** (count - 1))) / cells
    error = (count + 2) * _COEFFICIENT_ERROR * spread
    inside = math.exp(count * (log_mgf + _COEFFICIENT_ERROR)) * (found + error * float(weights.sum()))
    if count * int(places.max()) < cells // 2:
        return inside
    return inside + _above(on_grid, split, count, tilt, stddev, top=cells // 2 * step)


def _centring_tilt(values: Floats, masses: Floats) -> float:
    """The lambda >= 0 at which the tilted mean is about zero: any lambda gives a bound, this one a good one."""
    highest = float(values.max())

    def mean(tilt: float) -> float:
        return float(np.sum(masses * values * np.exp(tilt * (values - highest))))

    low, high = 0.0, 1 / highest
    if mean(low) >= 0:
        return 0.0
    while mean(high) < 0 and high * highest < 500:
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) < 0 else (low, middle)
    return low


def _tilted_stddev(values: Floats, masses: Floats, tilt: float) -> float:
    weights = masses * np.exp(tilt * (values - values.max()))
    weights = weights / weights.sum()
    mean = float(weights @ values)
    return math.sqrt(max(float(weights @ (values - mean) ** 2), float(values.max()) ** 2 * 1e-12))


def _grid(highest: float, lowest: float, stddev: float, count: int) -> tuple[float, int]:
    """Step and number of cells: the whole range of the sum where that is small, else its bulk on both sides."""
    bulk = max(_STDDEVS * stddev * math.sqrt(count), 20 * (highest - lowest))
    half = 1.125 * min(bulk, count * max(highest, -lowest))
    wanted = 2 * half * _CELLS_PER_STDDEV / stddev
    cells = 2 ** math.ceil(math.log2(min(max(wanted, _FEWEST_CELLS), _MOST_CELLS)))
    return 2 * half / cells, cells


def _split_onto_grid(values: Floats, masses: Floats, step: float) -> tuple[NDArray[np.int64], Floats]:
    """The law on the grid with the same mean; the values are first raised by more than the split can round."""
    scaled = values / step
    scaled = scaled + (np.abs(scaled) + 1) * 2.0**-48
    below = np.floor(scaled)
    share = scaled - below
    places = np.concatenate([below, below + 1]).astype(np.int64)
    return places, np.concatenate([masses * (1 - share), masses * share])


def _above(values: Floats, masses: Floats, count: int, tilt: float, stddev: float, *, top: float) -> float:
    """Chernoff: E[S; S >= top] <= (top + 1/(e mu)) e^(-mu top) M(mu)^count, for any mu > 0."""
    bounds = []
    for further in (0.0, 1.0, 2.0, 4.0, 8.0):
        mu = tilt + further / (stddev * math.sqrt(count))
        if mu > 0:
            log_mgf = float(logsumexp(mu * values, b=masses)) + _COEFFICIENT_ERROR
            bounds.append((top + 1 / (math.e * mu)) * math.exp(min(count * log_mgf - mu * top, 700.0)))
    return min(bounds)


_MOST_POINTS = 257


@dataclass(frozen=True, eq=False)
class Blanket:
    """The blanket of a mechanism, for any number of members.

    Guarantee:  the multiset of `cohort` reports is (epsilon, delta(cohort, epsilon))-DP.
    Neighbours: replace one member's private input; the others' inputs are arbitrary and fixed.
    Assumes:    every member uses the mechanism with these rows; the order of the reports tells nothing;
                `cohort` counts only members who really randomise and do not reveal their report.
    Source:     Balle, Bell, Gascón, Nissim 2019 (arXiv 1903.02837); by FFT: Su, Cheng, Wang 2025
                (arXiv 2504.07414). The rounding and the envelope over pairs are ours: docs/shuffling.md.
    """

    laws: PairLaws

    @classmethod
    def of(cls, rows: Rows) -> Blanket | None:
        """The blanket of checked rows, or None where the pairs of rows are too many to look at."""
        laws = pair_laws(rows)
        return cls(laws) if laws else None

    def delta(self, cohort: int, epsilon: expect.Number) -> float:
        """An upper bound on delta(epsilon), over every ordered pair of inputs.

        (1/n) E(X_1 + ... + X_n)+ with X = (R_x(y) - e^epsilon R_x'(y)) / m_y with probability m_y, else 0.
        """
        members = min(expect.whole("cohort", cohort, at_least=1), LARGEST_COHORT)
        asked = -rounded_up(-expect.at_least_zero("epsilon", epsilon))  # rounded down
        if not len(self.laws.first):
            return 0.0  # one row: the reports do not depend on anything private
        odds = math.exp(min(asked, 600.0)) * (1 - 2.0**-50)
        values = self.laws.first - odds * self.laws.second
        # Raised by more than the rounding of the rows, the exponential and the difference.
        values += (self.laws.first + odds * self.laws.second) * 2.0**-48
        if values.max() <= 0:
            return 0.0
        points, masses, shortfall = _dominating(values, self.laws.mass, self.laws.rest)
        return min(1.0, mean_positive_part(points, masses, members) / members * (1 + 2.0**-50) + shortfall)


def _dominating(values: Floats, masses: Floats, rest: float) -> tuple[Floats, Floats, float]:
    """One law of X above all of the given ones in convex order, and by how much rounding may fall short.

    Laws of one mean are ordered by their stop-loss functions t -> E(X - t)+, and the largest of those is itself
    the stop-loss function of a law. Joined by straight lines between any points it only grows.
    """
    if len(values) == 1:
        return np.append(values[0], 0.0), np.append(masses[0], rest), 0.0
    points = _stop_loss_points(values)
    highest = np.array([_stop_loss(values, masses, rest, point) for point in points])
    slopes = np.diff(highest) / np.diff(points)
    law = np.maximum(np.diff(np.concatenate([[-1.0], slopes, [0.0]])), 0.0)
    law[0] += max(0.0, 1.0 - float(law.sum()))
    # Taking the members one by one, a law whose stop-loss falls short by s costs at most s in E(.)+ each.
    reached = np.array([float(law @ np.maximum(points - point, 0.0)) for point in points])
    scale = max(abs(float(points[0])), abs(float(points[-1])))
    return points, law, max(0.0, float(np.max(highest - reached))) + scale * 2.0**-48


def _stop_loss_points(values: Floats) -> Floats:
    """Where to look at the stop-loss: at all values if they are few, else evenly; never too close together."""
    points = np.unique(np.append(values, 0.0))
    if len(points) > _MOST_POINTS:
        points = np.unique(np.append(np.linspace(points[0], points[-1], _MOST_POINTS), 0.0))
    apart = (points[-1] - points[0]) * 2.0**-20
    kept = [float(points[0])]
    for point in points[1:-1]:
        if point - kept[-1] >= apart and points[-1] - point >= apart:
            kept.append(float(point))
    return np.array([*kept, float(points[-1])])


def _stop_loss(values: Floats, masses: Floats, rest: float, point: float) -> float:
    """The largest E(X - point)+ among the laws."""
    return float(np.max(np.sum(masses * np.maximum(values - point, 0.0), axis=1))) + rest * max(-point, 0.0)
