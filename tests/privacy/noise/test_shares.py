"""Shares of noise: they add up to the whole law, top-up restores it, and epsilon counts unknown noise only."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from numpy.typing import NDArray
from scipy import stats

from tacit.errors import BadInput
from tacit.privacy.noise.distributions import DiscreteLaplace, Polya, Skellam
from tacit.privacy.noise.exact_sampler import SymmetricLaw
from tacit.privacy.noise.shares import PolyaShares, SkellamShares

Pmf = NDArray[np.float64]
"""P(-m), ..., P(m)."""


def pmf_of(law: SymmetricLaw) -> Pmf:
    half = law.masses
    return np.concatenate([half[:0:-1], half])


def centred(pmf: Pmf, size: int) -> Pmf:
    """The same law over -size..size; what falls outside must be next to nothing."""
    middle = len(pmf) // 2
    if middle <= size:
        return np.pad(pmf, size - middle)
    outside = pmf[: middle - size].sum() + pmf[middle + size + 1 :].sum()
    assert outside < 1e-12
    return pmf[middle - size : middle + size + 1]


def sum_of(pmfs: list[Pmf], size: int) -> Pmf:
    total = np.ones(1)
    for pmf in pmfs:
        total = np.convolve(total, pmf)
        if len(total) > 2 * size + 1:
            total = centred(total, size)
    return centred(total, size)


def delta_at(epsilon: float, pmf: Pmf, change: int) -> float:
    """The least delta for which one count with this noise is (epsilon, delta)-DP: a direct hockey-stick sum."""
    here, there = np.pad(pmf, (0, change)), np.pad(pmf, (change, 0))
    one_way = np.maximum(0, here - math.exp(epsilon) * there).sum()
    other_way = np.maximum(0, there - math.exp(epsilon) * here).sum()
    return float(max(one_way, other_way))


def distance(ours: Pmf, target: SymmetricLaw) -> float:
    """The total variation between two laws."""
    size = max(len(ours) // 2, len(target.masses) - 1)
    return 0.5 * float(np.abs(centred(ours, size) - centred(pmf_of(target), size)).sum())


@pytest.mark.parametrize("parties", [1, 2, 3, 10])
def test_skellam_shares_add_up_to_the_whole(parties: int) -> None:
    shares = SkellamShares(Fraction(90), parties)
    total = sum_of([pmf_of(shares.share)] * parties, 120)
    assert distance(total, Skellam(Fraction(90))) < 1e-12


@pytest.mark.parametrize("parties", [1, 2, 3, 10])
def test_polya_shares_add_up_to_the_discrete_laplace(parties: int) -> None:
    shares = PolyaShares(Fraction(6), parties)
    total = sum_of([pmf_of(shares.share)] * parties, 300)
    assert distance(total, DiscreteLaplace(Fraction(6))) < 1e-12


def characteristic(law: SymmetricLaw, frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
    k = np.arange(1, len(law.masses))
    # 1 - 2 sum p(k) (1 - cos kt): no cancellation where nearly all of the law is at zero.
    lost = 4 * np.sum(law.masses[1:, None] * np.sin(np.outer(k, frequencies) / 2) ** 2, axis=0)
    return np.asarray(1 - lost)


@pytest.mark.parametrize("parties", [1000, 116_432])
def test_a_crowd_of_shares_adds_up_too(parties: int) -> None:
    # The sum of n independent shares has the n-th power of the share's characteristic function.
    frequencies = np.linspace(0, np.pi, 50)
    for share, whole in (
        (SkellamShares(Fraction(90), parties).share, Skellam(Fraction(90))),
        (PolyaShares(Fraction(6), parties).share, DiscreteLaplace(Fraction(6))),
    ):
        powers = characteristic(share, frequencies) ** parties
        np.testing.assert_allclose(powers, characteristic(whole, frequencies), rtol=0, atol=1e-10)


def rounded_gaussian_share(variance: float, parties: int) -> Pmf:
    """Wrong on purpose: each party rounds a Gaussian share to the nearest whole number."""
    edges = np.arange(-61, 61) + 0.5
    pmf: Pmf = np.diff(stats.norm.cdf(edges / math.sqrt(variance / parties)))
    return pmf


def test_a_rounded_gaussian_share_is_fatal_and_is_caught() -> None:
    # A variance of 1150 over 116,432 parties: nearly always, every single rounded share is zero.
    share = rounded_gaussian_share(1150, 116_432)
    all_zero = float(share[len(share) // 2]) ** 116_432
    assert all_zero == pytest.approx(0.945, abs=5e-4)
    assert SkellamShares(Fraction(1150), 116_432).share.pmf(0) ** 116_432 < 1e-300
    # Then there is no noise: delta is as bad as it can be, where the honest law has next to none.
    assert delta_at(1.0, np.array([0.0, all_zero, 0.0]), 4) > 0.94
    assert delta_at(1.0, pmf_of(Skellam(Fraction(1150))), 4) < 1e-9
    # And in a small crowd the sum is simply another law.
    few = sum_of([rounded_gaussian_share(9, 10)] * 10, 120)
    assert distance(few, Skellam(Fraction(9))) > 0.01


@pytest.mark.parametrize("silent", [Fraction(0), Fraction(1, 4), Fraction(3, 4)])
@pytest.mark.parametrize("answered", [0, 1, 5, 9, 12])
def test_top_up_restores_the_whole_law_against_either_server(silent: Fraction, answered: int) -> None:
    for shares, whole, size in (
        (SkellamShares(Fraction(90), 12, silent), Skellam(Fraction(90)), 120),
        (PolyaShares(Fraction(6), 12, silent), DiscreteLaplace(Fraction(6)), 300),
    ):
        heard = max(0, answered - math.floor(silent * 12))
        parts = [pmf_of(shares.share)] * heard
        missing = shares.missing_law(answered)
        if missing is not None:
            parts.append(pmf_of(missing))  # the other server's; its own it can subtract
        assert distance(sum_of(parts, size), whole) < 1e-12


def test_splitting_the_missing_share_between_servers_would_not_do() -> None:
    # Wrong on purpose: half the missing noise from each server leaves too little unknown to either.
    shares = SkellamShares(Fraction(90), 10)
    parts = [pmf_of(shares.share)] * 4 + [pmf_of(Skellam(Fraction(90) * Fraction(3, 10)))]
    assert distance(sum_of(parts, 120), Skellam(Fraction(90))) > 0.05


def pld_epsilon(pmf: Pmf, change: int, delta: float) -> float:
    """By an accountant that is not ours, from the two laws that a change of one count leads to."""
    size = len(pmf) // 2
    masses = {x: float(p) for x, p in zip(range(-size, size + 1), pmf, strict=True) if p > 0}
    here = {x: math.log(p) for x, p in masses.items()}
    shifted = {x + change: log for x, log in here.items()}
    pld = privacy_loss_distribution.from_two_probability_mass_functions(
        here, shifted, value_discretization_interval=1e-4
    )
    return float(pld.get_epsilon_for_delta(delta))


@pytest.mark.parametrize("change", [1, 3])
def test_the_achieved_epsilon_is_that_of_the_whole_law(change: int) -> None:
    scale = Fraction(6)
    total = sum_of([pmf_of(PolyaShares(scale, 5).share)] * 5, 300)
    promised = change / float(scale)
    assert delta_at(promised * (1 + 1e-9), total, change) < 1e-12
    assert delta_at(promised * 0.99, total, change) > 1e-4
    assert pld_epsilon(total, change, 1e-9) == pytest.approx(promised, abs=3e-4)
    skellam = sum_of([pmf_of(SkellamShares(Fraction(90), 5).share)] * 5, 120)
    epsilon = pld_epsilon(skellam, change, 1e-6)
    assert epsilon == pytest.approx(pld_epsilon(pmf_of(Skellam(Fraction(90))), change, 1e-6), abs=2e-4)
    assert delta_at(epsilon, skellam, change) <= 1e-6
    assert delta_at(0.98 * epsilon, skellam, change) > 1e-6
    # Too little noise does not pass: 90% of the variance needs more epsilon.
    assert pld_epsilon(pmf_of(Skellam(Fraction(81))), change, 1e-6) > 1.02 * epsilon


def test_variances_tell_the_price_of_silence_and_of_missing_parties() -> None:
    full = SkellamShares(Fraction(90), 12)
    assert full.total_variance(12) == pytest.approx(90)
    assert full.total_variance(0) == pytest.approx(180)
    cautious = SkellamShares(Fraction(90), 12, Fraction(3, 4))
    assert cautious.total_variance(12) == pytest.approx(4 * 90)
    laplace = PolyaShares(Fraction(6), 12)
    assert laplace.total_variance(12) == pytest.approx(DiscreteLaplace(Fraction(6)).variance)
    assert isinstance(laplace.share, Polya)


def test_no_shares_are_missing_when_all_answered() -> None:
    assert SkellamShares(Fraction(2), 5).missing_law(5) is None
    assert PolyaShares(Fraction(2), 5).missing_law(4) == Polya(Fraction(2), Fraction(1, 5))


@pytest.mark.parametrize("make", [SkellamShares, PolyaShares])
def test_crews_that_cannot_be_meant_are_refused(make: type[SkellamShares] | type[PolyaShares]) -> None:
    for size in (0, -1, float("nan"), float("inf")):
        with pytest.raises(BadInput, match="expected"):
            make(size, 5)  # type: ignore[arg-type]
    for parties in (0, -3, 2.5, True):
        with pytest.raises(BadInput, match="expected parties"):
            make(Fraction(1), parties)  # type: ignore[arg-type]
    for silent in (-1, 1, 2, float("nan")):
        with pytest.raises(BadInput, match="expected silent"):
            make(Fraction(1), 5, silent)  # type: ignore[arg-type]
    for answered in (-1, 6, 1.5, True):
        with pytest.raises(BadInput, match="expected answered"):
            make(Fraction(1), 5).missing_law(answered)  # type: ignore[arg-type]
