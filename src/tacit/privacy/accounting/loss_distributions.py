"""Privacy loss distributions of single mechanisms on a grid, which can only overstate the loss.

First the grid and how an exact delta curve becomes a pmf on it; then (subsampled) Gaussians from closed
forms, all grid points at once; then integer noise on counts, from the exact laws. For Gaussians everything
is in units of one record's norm bound, and `cut` is the log of the probability beyond which a loss counts
as infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tacit.arrays import Floats
from tacit.errors import BadInput, UnknownRelease
from tacit.privacy.releases import DiscreteGaussianCounts, DiscreteLaplaceCounts, NoisyCounts, SkellamCounts

LARGEST_LOSS = 600.0
"""A loss beyond this counts as infinite: e to that power is no promise."""

MOST_POINTS = 2**23


class GridTooFine(Exception):
    """The grid would take more points than one mechanism is worth; a coarser one is still a bound."""


def check_grid_size(span: float, grid: float) -> None:
    if span / grid > MOST_POINTS:
        raise GridTooFine(f"{span / grid:.0f} grid points")


@dataclass(frozen=True)
class LossPmf:
    """One mechanism's loss under the upper distribution: P(loss = (lowest + i) * grid) = probs[i].

    What the pmf lacks to one is the chance of an infinite loss, `infinite`.
    """

    grid: float
    lowest: int
    probs: Floats
    infinite: float = 0.0

    @property
    def losses(self) -> Floats:
        return (self.lowest + np.arange(len(self.probs), dtype=np.float64)) * self.grid


def connect_dots(grid: float, lowest: int, deltas: Floats) -> LossPmf:
    """The pmf on consecutive grid points whose delta curve passes through `deltas` and never below the truth.

    Between two points its delta is linear in e^epsilon, the true one convex in it.
    Source: Doroshenko et al. 2022 (arXiv 2207.04380), algorithm 1.
    """
    deltas = np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
    steps = np.diff(deltas)
    probs = np.zeros(len(deltas))
    probs[0] = 1.0 - deltas[0]
    probs[1:] -= steps / -math.expm1(-grid)
    probs[:-1] += steps / math.expm1(grid)
    return LossPmf(grid, lowest, np.maximum(probs, 0.0), float(deltas[-1]))


def pmf_from_atoms(grid: float, losses: Floats, mass: Floats, infinite: float = 0.0) -> LossPmf:
    """The pmf of a loss with finitely many values, each split between the grid points around it.

    The split keeps the mass under both distributions, p and p e^-loss, which is what connecting the dots does.
    """
    known = mass > 0
    losses, mass = np.maximum(losses[known], -LARGEST_LOSS), mass[known]
    far = losses > LARGEST_LOSS
    infinite += float(mass[far].sum())
    losses, mass = losses[~far], mass[~far]
    if not len(losses):
        return LossPmf(grid, 0, np.zeros(1), 1.0)
    check_grid_size(float(losses.max() - losses.min()), grid)
    cells = np.floor(losses / grid).astype(np.int64)
    lowest = int(cells.min())
    over = losses - cells * grid
    up = np.clip(np.expm1(-over) / math.expm1(-grid), 0.0, 1.0)
    places = cells - lowest
    probs = np.zeros(int(places.max()) + 2)
    np.add.at(probs, places, mass * (1 - up))
    np.add.at(probs, places + 1, mass * up)
    return LossPmf(grid, lowest, probs, infinite)


LARGEST_GROUP = 256


def gaussian_pmf(noise: float, grid: float, cut: float) -> LossPmf:
    """N(1, noise²) against N(0, noise²); the same from both sides.

    Source: Balle, Wang 2018 (arXiv 1805.06530), theorem 8.
    """
    from scipy.special import ndtr, ndtri  # here and below: heavy, and a service that starts needs none of it

    reach = -float(ndtri(math.exp(cut)))
    half = 1 / (2 * noise**2)
    lowest, epsilons = _grid_span(half - reach / noise, half + reach / noise, grid)
    deltas = ndtr(1 / (2 * noise) - epsilons * noise)
    deltas -= np.exp(epsilons) * ndtr(-1 / (2 * noise) - epsilons * noise)
    return connect_dots(grid, lowest, deltas)


def sampled_gaussian_add_remove(
    noise: float, sampling_probability: float, group: int, grid: float, cut: float
) -> tuple[LossPmf, LossPmf]:
    """`group` records that each join a Poisson sample, against none: removed, and added.

    Source: Ganesh 2024 (arXiv 2401.10294), theorem 3.1; one record: Zhu, Dong, Wang 2022 (arXiv 2106.08567).
    """
    if group > LARGEST_GROUP:
        raise BadInput(f"expected groups of at most {LARGEST_GROUP} records, got {group}: clip per unit")
    from scipy.special import ndtr, ndtri
    from scipy.stats import binom

    joined = np.arange(group + 1.0)
    log_weights = binom.logpmf(joined, group, sampling_probability)
    weights = np.exp(log_weights)
    reach = -float(ndtri(math.exp(cut)))

    def loss(x: Floats) -> Floats:
        return _mixture_loss(x, joined, log_weights, noise)[0]

    ends = loss(np.array([-reach * noise, group + reach * noise]))
    floor = float(log_weights[0])  # the loss never falls below: nobody joined

    lowest, epsilons = _grid_span(floor, float(ends[1]), grid)
    inside = epsilons > floor
    x = _solve_for_loss(epsilons[inside], joined, log_weights, noise)
    removed = -np.expm1(epsilons)
    # Nobody joined looks the same on both sides; taking it out first keeps small differences exact.
    gain = sum(w * ndtr((j - x) / noise) for j, w in zip(joined[1:], weights[1:], strict=True))
    removed[inside] = gain + (weights[0] - np.exp(epsilons[inside])) * ndtr(-x / noise)

    add_lowest, add_epsilons = _grid_span(-float(ends[1]), -floor, grid)
    inside = -add_epsilons > floor
    x = _solve_for_loss(-add_epsilons[inside], joined, log_weights, noise)
    added = np.zeros(len(add_epsilons))
    scale = np.exp(add_epsilons[inside])
    loss_of_joiners = sum(w * ndtr((x - j) / noise) for j, w in zip(joined[1:], weights[1:], strict=True))
    added[inside] = (1 - scale * weights[0]) * ndtr(x / noise) - scale * loss_of_joiners
    return connect_dots(grid, lowest, removed), connect_dots(grid, add_lowest, added)


def sampled_gaussian_replace(noise: float, sampling_probability: float, grid: float, cut: float) -> LossPmf:
    """One record that joins a Poisson sample with +1, against the same with -1; the same from both sides.

    Guarantee:  the pair dominates the step of any two neighbours: at every e^epsilon > 0 its delta is at least
                theirs.
    Neighbours: one record's contribution replaced, u by v, vectors of norm at most one of any dimension.
    Assumes:    the others' contributions and who of them joins are the same in law, and independent of whether
                this record does; noise is N(0, noise²) in every coordinate.
    Source:     the pair that dp_accounting calls REPLACE. Why it dominates, with N_w the law of noise around w,
                q the share and c = e^epsilon. For each set A of outputs,
                    P(A) - c Q(A) = (1 - q) (1 - c) N_0(A) + q (N_u(A) - c N_v(A)).
                Let a = N_0(A), and z the normal quantile of a. Among all sets with N_0 mass a, by Neyman and
                Pearson, half-spaces across u have the largest N_u, which is Phi(z + |u| / noise), and such
                across v the smallest N_v, Phi(z - |v| / noise). Norms are at most one, so
                    P(A) - c Q(A) <= (1 - q) (1 - c) a + q (Phi(z + 1 / noise) - c Phi(z - 1 / noise)).
                That is what the half-line from -noise z on gives for the pair +1, -1: its N_0 mass is a, and it
                is best for both at once. The sum of the others shifts both laws alike; whatever its law, the
                delta of mixtures is at most the largest of their parts (joint convexity).
    """
    from scipy.special import ndtr, ndtri

    share, rest = sampling_probability, 1 - sampling_probability
    reach = -float(ndtri(math.exp(cut)))
    log_joined = math.log(share) - 1 / (2 * noise**2)
    top = 1 + reach * noise
    bound = float(
        np.logaddexp(math.log(rest), log_joined + top / noise**2)
        - np.logaddexp(math.log(rest), log_joined - top / noise**2)
    )
    lowest, epsilons = _grid_span(-bound, bound, grid)
    # loss(x) = epsilon solved for x: u = e^(x / noise²) satisfies a quadratic equation whose root is an asinh.
    with np.errstate(divide="ignore"):
        log_argument = math.log(rest) - log_joined + np.log(np.abs(np.sinh(epsilons / 2)))
    x = noise**2 * (epsilons / 2 + np.sign(epsilons) * _asinh_exp(log_argument))
    deltas = share * ndtr((1 - x) / noise) - rest * np.expm1(epsilons) * ndtr(-x / noise)
    deltas -= np.exp(epsilons) * share * ndtr((-1 - x) / noise)
    return connect_dots(grid, lowest, deltas)


def _grid_span(low: float, high: float, grid: float) -> tuple[int, Floats]:
    """The grid points from below `low` to above `high`; losses that e cannot be raised to count as infinite."""
    low, high = (min(max(end, -LARGEST_LOSS), LARGEST_LOSS) for end in (low, high))
    check_grid_size(high - low, grid)
    lowest = math.floor(low / grid) - 1
    return lowest, np.arange(lowest, math.ceil(high / grid) + 2, dtype=np.float64) * grid


def _mixture_loss(x: Floats, joined: Floats, log_weights: Floats, noise: float) -> tuple[Floats, Floats]:
    """ln sum_j w_j N(x; j) / N(x; 0), and its derivative in x."""
    exponents = [w + j * (2 * x - j) / (2 * noise**2) for j, w in zip(joined, log_weights, strict=True)]
    peak = np.maximum.reduce(exponents)
    parts = [np.exp(exponent - peak) for exponent in exponents]
    total: Floats = np.add.reduce(parts)
    slope: Floats = np.add.reduce([j * part for j, part in zip(joined, parts, strict=True)])
    return peak + np.log(total), slope / total / noise**2


def _solve_for_loss(epsilons: Floats, joined: Floats, log_weights: Floats, noise: float) -> Floats:
    """The x at which the loss is epsilon: in closed form for one record, by Newton for a group."""
    if len(joined) == 2:
        with np.errstate(divide="ignore"):
            rest = np.log(-np.expm1(log_weights[0] - epsilons))
        closed: Floats = noise**2 * (epsilons + rest - log_weights[1]) + 0.5
        return closed
    # Every single term alone gives an x at which the sum is at least epsilon. The loss is convex, so Newton
    # goes down from there without overshooting; a table brings it close first.
    single = [noise**2 * (epsilons - w) / j + j / 2 for j, w in zip(joined[1:], log_weights[1:], strict=True)]
    x: Floats = np.minimum.reduce(single)
    table = np.linspace(float(x.min()) - 40 * noise, float(x.max()), 20_000)
    near = np.searchsorted(_mixture_loss(table, joined, log_weights, noise)[0], epsilons)
    x = np.minimum(x, table[np.minimum(near, len(table) - 1)])
    for _ in range(60):
        value, slope = _mixture_loss(x, joined, log_weights, noise)
        step = (value - epsilons) / np.maximum(slope, 1e-300)
        x = x - step
        if np.all(np.abs(step) <= 1e-12 * (1 + np.abs(x))):
            break
    return x


def _asinh_exp(exponent: Floats) -> Floats:
    """asinh(e^exponent) without overflow."""
    small = np.arcsinh(np.exp(np.minimum(exponent, 300.0)))
    result: Floats = np.where(exponent > 300.0, exponent + math.log(2), small)
    return result


BEYOND = math.exp(-60.0)
"""More than the chance of noise outside of the atoms: `_count_noise_reach` goes that far."""

MOST_VARIANCE = 1e9


def count_noise_pmf(release: NoisyCounts, change: int, grid: float) -> LossPmf:
    """The loss of one count that differs by `change`; the same from both sides, as the laws are symmetric."""
    losses, mass = count_noise_atoms(release, change)
    # What lies beyond the atoms counts as a broken promise; the sum itself is only right to rounding.
    return pmf_from_atoms(grid, losses, mass, 0.0 if isinstance(release, DiscreteLaplaceCounts) else BEYOND)


def count_noise_atoms(release: NoisyCounts, change: int) -> tuple[Floats, Floats]:
    """The loss ln P(x) / P(x + change) and its probability under P, tails gathered or sent to infinity."""
    if isinstance(release, DiscreteLaplaceCounts):
        decay = float(1 / release.scale)
        inside = np.arange(1, change)
        # P(x <= 0), then each x in 1..change-1, then P(x >= change), for x = minus the noise.
        base = math.tanh(decay / 2)
        edge = 1 / (1 + math.exp(-decay))
        mass = np.r_[edge, base * np.exp(-decay * inside), edge * math.exp(-decay * change)]
        return decay * (change - 2 * np.r_[0, inside, change]).astype(float), mass
    if isinstance(release, DiscreteGaussianCounts):
        variance = _check_variance(release.sigma_squared)
        values = np.arange(-(reach := _count_noise_reach(math.sqrt(variance), change)), reach + 1)
        mass = np.exp(-(values**2) / (2 * variance))
        losses = (2 * values * change + change**2) / (2 * variance)
        return losses.astype(float), mass / mass.sum()
    if isinstance(release, SkellamCounts):
        from scipy.special import ive

        variance = _check_variance(release.variance)
        values = np.arange(-(reach := _count_noise_reach(math.sqrt(variance), change)), reach + 1)
        mass = ive(np.abs(values), variance)
        values, mass = values[mass > 1e-290], mass[mass > 1e-290]
        # The neighbour's noise would have to be x + change; where its chance underflows the loss is infinite.
        shifted = ive(np.abs(values + change), variance)
        with np.errstate(divide="ignore"):
            losses = np.log(mass) - np.log(shifted)
        return np.where(shifted > 0, losses, math.inf), mass
    raise UnknownRelease(f"expected a known law of count noise, got {type(release).__name__}")


def _check_variance(variance: Fraction) -> float:
    if variance > MOST_VARIANCE:
        raise BadInput(f"expected count noise of variance at most {MOST_VARIANCE:g}, got {float(variance):g}")
    return float(variance)


def _count_noise_reach(stddev: float, change: int) -> int:
    """Far enough that what lies beyond weighs less than e^-60 even for laws with exponential tails."""
    return math.ceil(max(12 * stddev, 80.0)) + 2 * change
