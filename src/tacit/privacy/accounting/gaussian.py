"""Loss distributions of (sampled) Gaussians from closed forms, all grid points at once.

Everything is in units of one record's norm bound. `cut` is the log of the probability beyond which a loss
counts as infinite instead of being followed.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri

from tacit.errors import BadInput
from tacit.privacy.accounting.grid import LARGEST_LOSS, Floats, LossPmf, check_size, connect_dots

LARGEST_GROUP = 256


def plain(noise: float, grid: float, cut: float) -> LossPmf:
    """N(1, noise²) against N(0, noise²); the same from both sides.

    Source: Balle, Wang 2018 (arXiv 1805.06530), theorem 8.
    """
    reach = -float(ndtri(math.exp(cut)))
    half = 1 / (2 * noise**2)
    lowest, epsilons = _span(half - reach / noise, half + reach / noise, grid)
    deltas = ndtr(1 / (2 * noise) - epsilons * noise)
    deltas -= np.exp(epsilons) * ndtr(-1 / (2 * noise) - epsilons * noise)
    return connect_dots(grid, lowest, deltas)


def added_or_removed(
    noise: float, sampling_probability: float, group: int, grid: float, cut: float
) -> tuple[LossPmf, LossPmf]:
    """`group` records that each join a Poisson sample, against none: removed, and added.

    Source: Ganesh 2024 (arXiv 2401.10294), theorem 3.1; one record: Zhu, Dong, Wang 2022 (arXiv 2106.08567).
    """
    if group > LARGEST_GROUP:
        raise BadInput(f"expected groups of at most {LARGEST_GROUP} records, got {group}: clip per unit")
    from scipy.stats import binom  # here: heavy, and few need it

    joined = np.arange(group + 1.0)
    log_weights = binom.logpmf(joined, group, sampling_probability)
    weights = np.exp(log_weights)
    reach = -float(ndtri(math.exp(cut)))

    def loss(x: Floats) -> Floats:
        return _mixture_loss(x, joined, log_weights, noise)[0]

    ends = loss(np.array([-reach * noise, group + reach * noise]))
    floor = float(log_weights[0])  # the loss never falls below: nobody joined

    lowest, epsilons = _span(floor, float(ends[1]), grid)
    inside = epsilons > floor
    x = _solve(epsilons[inside], joined, log_weights, noise)
    removed = -np.expm1(epsilons)
    # Nobody joined looks the same on both sides; taking it out first keeps small differences exact.
    gain = sum(w * ndtr((j - x) / noise) for j, w in zip(joined[1:], weights[1:], strict=True))
    removed[inside] = gain + (weights[0] - np.exp(epsilons[inside])) * ndtr(-x / noise)

    add_lowest, add_epsilons = _span(-float(ends[1]), -floor, grid)
    inside = -add_epsilons > floor
    x = _solve(-add_epsilons[inside], joined, log_weights, noise)
    added = np.zeros(len(add_epsilons))
    scale = np.exp(add_epsilons[inside])
    loss_of_joiners = sum(w * ndtr((x - j) / noise) for j, w in zip(joined[1:], weights[1:], strict=True))
    added[inside] = (1 - scale * weights[0]) * ndtr(x / noise) - scale * loss_of_joiners
    return connect_dots(grid, lowest, removed), connect_dots(grid, add_lowest, added)


def replaced(noise: float, sampling_probability: float, grid: float, cut: float) -> LossPmf:
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
    share, rest = sampling_probability, 1 - sampling_probability
    reach = -float(ndtri(math.exp(cut)))
    log_joined = math.log(share) - 1 / (2 * noise**2)
    top = 1 + reach * noise
    bound = float(
        np.logaddexp(math.log(rest), log_joined + top / noise**2)
        - np.logaddexp(math.log(rest), log_joined - top / noise**2)
    )
    lowest, epsilons = _span(-bound, bound, grid)
    # loss(x) = epsilon solved for x: u = e^(x / noise²) satisfies a quadratic equation whose root is an asinh.
    with np.errstate(divide="ignore"):
        log_argument = math.log(rest) - log_joined + np.log(np.abs(np.sinh(epsilons / 2)))
    x = noise**2 * (epsilons / 2 + np.sign(epsilons) * _asinh_exp(log_argument))
    deltas = share * ndtr((1 - x) / noise) - rest * np.expm1(epsilons) * ndtr(-x / noise)
    deltas -= np.exp(epsilons) * share * ndtr((-1 - x) / noise)
    return connect_dots(grid, lowest, deltas)


def _span(low: float, high: float, grid: float) -> tuple[int, Floats]:
    """The grid points from below `low` to above `high`; losses that e cannot be raised to count as infinite."""
    low, high = (min(max(end, -LARGEST_LOSS), LARGEST_LOSS) for end in (low, high))
    check_size(high - low, grid)
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


def _solve(epsilons: Floats, joined: Floats, log_weights: Floats, noise: float) -> Floats:
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
