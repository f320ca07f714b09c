"""The Rényi divergences of single releases, at a fixed list of orders.

dp_accounting 0.6 answers replace-one wrongly for Gaussians (it leaves out the factor two between neighbours),
refuses it for Poisson samples, and does not converge at some orders: sampled pairs are integrated here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from tacit.arrays import Floats
from tacit.errors import UnknownRelease
from tacit.privacy.accounting.loss_distributions import count_noise_atoms
from tacit.privacy.budget import rounded_up
from tacit.privacy.releases import (
    DiscreteGaussianCounts,
    DiscreteLaplaceCounts,
    FlippedLabels,
    GaussianStatistic,
    LocalChoice,
    NoisyLabels,
    SplitLabels,
    SubsampledGaussian,
)
from tacit.privacy.units import ADD_LIKE, Relation

ORDERS: Floats = np.array([1 + x / 10 for x in range(1, 100)] + [*range(11, 64), 64, 80, 96, 128, 192, 256])

_MOST_POINTS = 400_000


def subsampled_gaussian(release: SubsampledGaussian, relation: Relation, group: int) -> Floats:
    return release.steps * _gaussian_step(release, relation, group)


def gaussian_statistic(release: GaussianStatistic, _relation: Relation, group: int) -> Floats:
    return ORDERS * (release.sensitivity * group / release.noise_stddev) ** 2 / 2


def flipped_labels(release: FlippedLabels, _relation: Relation, group: int) -> Floats:
    lie = float((1 - release.truth) / (release.classes - 1))
    truth, loss = float(release.truth), release.epsilon
    rest = max(0.0, 1 - truth - lie)
    return group * _from_atoms(np.array([loss, 0.0, -loss]), np.array([truth, rest, lie]))


def pure_dp(release: LocalChoice | SplitLabels | NoisyLabels, _relation: Relation, group: int) -> Floats:
    """The worst of all epsilon-DP pairs."""
    loss = rounded_up(release.epsilon)
    truth = 1 / (1 + math.exp(-loss))
    return group * _from_atoms(np.array([loss, -loss]), np.array([truth, 1 - truth]))


def discrete_gaussian_counts(release: DiscreteGaussianCounts, _relation: Relation, _group: int) -> Floats:
    # Canonne, Kamath, Steinke 2020 (arXiv 2004.00010): no worse than the continuous one.
    return ORDERS * sum(change**2 for change in release.changes) / (2 * float(release.sigma_squared))


def discrete_laplace_counts(release: DiscreteLaplaceCounts, _relation: Relation, _group: int) -> Floats:
    return _add_curves(_from_atoms(*count_noise_atoms(release, change)) for change in release.changes)


def _gaussian_step(release: SubsampledGaussian, relation: Relation, group: int) -> Floats:
    noise, share = release.noise_multiplier, release.sampling_probability
    add_like = relation in ADD_LIKE
    if share == 1.0:
        difference = (1 if add_like else 2) * group
        return ORDERS * difference**2 / (2 * noise**2)
    if group > 1:
        raise UnknownRelease("expected single records for a sampled Rényi bound, got a group: use PLD")
    if add_like:
        return np.maximum(_divergences(noise, share, (1, None)), _divergences(noise, share, (None, 1)))
    return _divergences(noise, share, (1, -1))


def _divergences(noise: float, share: float, ends: tuple[int | None, int | None]) -> Floats:
    """D_order between (1-q) N(0) + q N(end) for both ends (None: N(0)), by the trapezoid rule on a wide line.

    The integrand is smooth and falls off like a Gaussian, where the rule converges faster than any power.
    """
    from scipy.special import logsumexp  # here and below: heavy, and a service that starts needs none of it

    widest = 1 + float(ORDERS[-1])  # the integrand of an order has its far hump around that order
    points = min(math.ceil(16 * (2 * widest + 80 * noise) / noise), _MOST_POINTS)
    x = np.linspace(-widest - 40 * noise, widest + 40 * noise, points)
    upper, lower = (_log_mixture(x, noise, share, end) for end in ends)
    log_step = math.log(x[1] - x[0]) - math.log(noise * math.sqrt(2 * math.pi))
    moments = np.array([logsumexp(a * upper + (1 - a) * lower) + log_step for a in ORDERS])
    # A moment is one plus something: what rounding may have taken off it is put back.
    found: Floats = (np.maximum(moments, 0.0) + 1e-15) / (ORDERS - 1)
    return found


def _log_mixture(x: Floats, noise: float, share: float, end: int | None) -> Floats:
    centre: Floats = -(x**2) / (2 * noise**2)
    if end is None:
        return centre
    joined = math.log(share) - (x - end) ** 2 / (2 * noise**2)
    mixture: Floats = np.logaddexp(math.log1p(-share) + centre, joined)
    return mixture


def _add_curves(curves: Iterable[Floats]) -> Floats:
    total: Floats = np.sum(list(curves), axis=0)
    return total


def _from_atoms(atom_losses: Floats, mass: Floats) -> Floats:
    from scipy.special import logsumexp

    seen = mass > 0
    logs = np.log(mass[seen])
    return np.array([logsumexp(logs + (a - 1) * atom_losses[seen]) / (a - 1) for a in ORDERS])
