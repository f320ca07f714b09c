"""The accountant against closed forms, exact sums, a second library, and the published figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as library
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from tacit.errors import BadInput, NoFiniteGuarantee, RelationMismatch, UnknownRelease
from tacit.privacy import releases
from tacit.privacy.accounting import delta, epsilon, loss_distributions, pure_epsilon, rdp_epsilon, renyi
from tacit.privacy.accounting.composition import Term, delta_at, epsilon_at
from tacit.privacy.accounting.rules import RULES
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.releases import (
    Composed,
    DiscreteGaussianCounts,
    DiscreteLaplaceCounts,
    FlippedLabels,
    GaussianStatistic,
    Grouped,
    LocalChoice,
    NoisyCounts,
    Release,
    SelectedPartitions,
    ShuffledChoice,
    SkellamCounts,
    SplitLabels,
    SubsampledGaussian,
)
from tacit.privacy.units import Relation

ADD, REPLACE, LABEL, ZERO = (
    Relation.ADD_REMOVE, Relation.REPLACE_ONE, Relation.REPLACE_LABEL, Relation.ZERO_OUT,
)  # fmt: skip
ROWS, BATCH = 32_000_000, 16_384
DISPLAY = {"sampling_probability": BATCH / ROWS, "steps": 50 * ROWS // BATCH}


def exact_gaussian_epsilon(noise: float, delta: float) -> float:
    def gap(e: float) -> float:
        far = math.exp(e + norm.logcdf(-1 / (2 * noise) - e * noise))
        return float(norm.cdf(1 / (2 * noise) - e * noise) - far - delta)

    return float(brentq(gap, 0, 400, xtol=1e-13))


SOME = pytest.mark.slow


@pytest.mark.parametrize(
    "target", [1e-3, *(pytest.param(target, marks=SOME) for target in (1e-6, 1e-9, 1e-12)), 1e-15]
)
@pytest.mark.parametrize(
    ("noise", "steps", "grid"),
    [(0.5, 1, 1e-4), (30.0, 1000, 1e-5), (3000.0, 100_000, 1e-5), (316.0, 100_000, 1e-5)],
)
def test_composed_gaussians_match_the_closed_form_from_above(
    noise: float, steps: int, grid: float, target: float
) -> None:
    """Composed step by step by FFT, not by the shortcut that the accountant would take."""
    term = (Term(loss_distributions.gaussian_pmf(noise, grid, cut=-80.0), steps),)
    exact = exact_gaussian_epsilon(noise / math.sqrt(steps), target)
    assert exact <= epsilon_at(term, target) <= exact * 1.001
    assert target <= delta_at(term, exact) <= target * 1.02


def test_the_librarys_own_composition_falls_below_the_truth() -> None:
    """Why there is a composition of our own: the twin that must be caught.

    Its error is the rounding of a Fourier transform, whose size and sign are the processor's: of these four,
    one machine puts the third below the truth, and another the other three.
    """

    def falls_below(noise: float, count: int, interval: float) -> bool:
        pld = library.from_gaussian_mechanism(noise, value_discretization_interval=interval).self_compose(count)
        exact = exact_gaussian_epsilon(noise / math.sqrt(count), 1e-12)
        return bool(pld.get_epsilon_for_delta(1e-12) < exact * 0.999)

    trials = [(100.0, 10_000, 1e-4), (200.0, 100_000, 1e-5), (316.0, 100_000, 1e-5), (400.0, 100_000, 1e-5)]
    assert any(falls_below(*trial) for trial in trials)


@pytest.mark.parametrize(
    ("relation", "target", "noise"),
    [
        (ADD, 1, 1.028), (ADD, 4, 0.621), (ADD, 8, 0.522), (ADD, 12, 0.475),
        (REPLACE, 1, 1.590), (REPLACE, 4, 0.658), (REPLACE, 8, 0.542), (REPLACE, 12, 0.490),
    ],
)  # fmt: skip
def test_the_table_of_noise_for_a_display_log(relation: Relation, target: float, noise: float) -> None:
    found = epsilon(SubsampledGaussian(noise, **DISPLAY), delta=1 / ROWS, relation=relation)  # type: ignore[arg-type]
    assert found == pytest.approx(target, rel=0.01)


@pytest.mark.parametrize(("target", "noise"), [(1, 1.169), (4, 0.656), (8, 0.539), (12, 0.488)])
def test_the_table_by_renyi_divergences(target: float, noise: float) -> None:
    release = SubsampledGaussian(noise, **DISPLAY)  # type: ignore[arg-type]
    assert rdp_epsilon(release, delta=1 / ROWS, relation=ADD) == pytest.approx(target, rel=0.01)
    assert epsilon(release, delta=1 / ROWS, relation=ADD) < target


@settings(max_examples=8, deadline=None)
@given(st.floats(0.4, 3), st.floats(1e-3, 0.5), st.integers(1, 200), st.sampled_from([ADD, REPLACE]))
def test_sampled_gaussians_agree_with_a_second_library(
    noise: float, share: float, steps: int, relation: Relation
) -> None:
    there = NeighboringRelation.ADD_OR_REMOVE_ONE if relation is ADD else NeighboringRelation.REPLACE_ONE
    pld = library.from_gaussian_mechanism(
        noise, sampling_prob=share, value_discretization_interval=1e-3, neighboring_relation=there
    ).self_compose(steps)
    theirs = pld.get_epsilon_for_delta(1e-6)
    ours = epsilon(SubsampledGaussian(noise, share, steps), delta=1e-6, relation=relation)
    assert ours <= theirs * 1.001 + 1e-6
    assert ours >= theirs * 0.95 - 2e-3 * steps**0.5


@pytest.mark.slow
@pytest.mark.parametrize("group", [3])
def test_groups_agree_with_a_second_library(group: int) -> None:
    """k records joining a Poisson sample: a mixture of Gaussians."""
    chances = [math.comb(group, j) * 0.01**j * 0.99 ** (group - j) for j in range(group + 1)]
    pld = library.from_mixture_gaussian_mechanism(
        1.0, list(range(group + 1)), chances, value_discretization_interval=1e-3
    ).self_compose(20)
    found = epsilon(Grouped(SubsampledGaussian(1.0, 0.01, 20), group), delta=1e-6, relation=ADD)
    assert found == pytest.approx(pld.get_epsilon_for_delta(1e-6), rel=0.01)


def test_losses_are_integrated_as_mpmath_does() -> None:
    """One sampled step at high precision: delta of both sides of add/remove, and of replace."""
    noise, share, threshold = 0.7, 0.05, 0.3
    q, grow = mpmath.mpf(share), mpmath.exp(threshold)

    def density(x: mpmath.mpf, shift: int) -> mpmath.mpf:
        return (1 - q) * mpmath.npdf(x, 0, noise) + q * mpmath.npdf(x, shift, noise)

    def gap(x: mpmath.mpf, upper: int, lower: int) -> mpmath.mpf:
        top = density(x, upper) if upper else mpmath.npdf(x, 0, noise)
        bottom = density(x, lower) if lower else mpmath.npdf(x, 0, noise)
        return top - grow * bottom

    def positive_part(upper: int, lower: int) -> float:
        """The likelihood ratio is monotone: one change of sign at most, and smooth on either side of it."""
        ends = [mpmath.mpf(x) for x in (-12, -3, -1, 0, 1, 3, 12)]
        signs = [gap(x, upper, lower) > 0 for x in ends]
        changes = [ends[at : at + 2] for at in range(len(ends) - 1) if signs[at] != signs[at + 1]]
        kinks = [mpmath.findroot(lambda x: gap(x, upper, lower), pair, solver="anderson") for pair in changes]
        spots = sorted([*ends, *kinks])
        return float(mpmath.quad(lambda x: max(mpmath.mpf(0), gap(x, upper, lower)), spots, maxdegree=6))

    both = [positive_part(1, 0), positive_part(0, 1)]
    found = delta(SubsampledGaussian(noise, share, 1), epsilon=threshold, relation=ADD)
    assert max(both) * (1 - 1e-6) <= found <= max(both) * 1.002
    replaced = positive_part(1, -1)
    found = delta(SubsampledGaussian(noise, share, 1), epsilon=threshold, relation=REPLACE)
    assert replaced * (1 - 1e-6) <= found <= replaced * 1.002


def planar_delta(one: complex, other: complex, noise: float, share: float, growth: float) -> float:
    """A record that joins with `one` against `other`, in the plane that these and the origin span."""
    line = np.linspace(-1 - 7 * noise, 1 + 7 * noise, 220)
    place = line[:, None] + 1j * line
    away, upper, lower = (np.exp(-(np.abs(place - w) ** 2) / (2 * noise**2)) for w in (0, one, other))
    gain = (1 - share) * (1 - growth) * away + share * (upper - growth * lower)
    return float(np.maximum(gain, 0).sum() * (line[1] - line[0]) ** 2 / (2 * np.pi * noise**2))


@pytest.mark.parametrize(("noise", "share"), [(0.7, 0.1), (1.3, 0.6), (2.5, 1.0)])
def test_of_all_replaced_records_opposite_ones_are_the_worst(noise: float, share: float) -> None:
    """Neyman and Pearson, on half-spaces of equal mass; a record that is 3% too long is caught."""
    draw = np.random.default_rng(7)
    records = np.sqrt(draw.random(16)) * np.exp(2j * np.pi * draw.random(16))
    pairs = [(1, -1j), (1, -0.9), (1, 0), (0.7 + 0.7j, -1), *zip(records[::2], records[1::2], strict=True)]
    for threshold in (-0.3, 0.0, 0.5, 1.5):
        growth = math.exp(threshold)
        worst = delta(SubsampledGaussian(noise, share, 1), epsilon=max(threshold, 0), relation=REPLACE)
        if threshold < 0:  # the accountant answers from 0 on; below, by the integral itself
            worst = planar_delta(1, -1, noise, share, growth)
        assert planar_delta(1, -1, noise, share, growth) == pytest.approx(worst, rel=2e-3, abs=1e-7)
        for one, other in pairs:
            assert planar_delta(one, other, noise, share, growth) <= worst * (1 + 1e-4) + 1e-9
        assert planar_delta(1.03, -1.03, noise, share, growth) > worst * (1 + 1e-3)


def composed_flips_delta(response: RandomizedResponse, count: int, threshold: float) -> float:
    """Exact: the loss of k binary flips is (2 j - k) epsilon with binomial chances."""
    t, e = mpmath.mpf(response.truth.numerator) / response.truth.denominator, mpmath.exp(threshold)
    total = mpmath.mpf(0)
    for j in range(count + 1):
        p = mpmath.binomial(count, j) * t**j * (1 - t) ** (count - j)
        q = mpmath.binomial(count, j) * t ** (count - j) * (1 - t) ** j
        total += max(mpmath.mpf(0), p - e * q)
    return float(total)


@pytest.mark.parametrize("count", [1, 2, 7, 60])
@pytest.mark.parametrize("each", [0.05, 0.7, 3.0])
def test_composed_flips_match_the_exact_sum(count: int, each: float) -> None:
    response = RandomizedResponse.for_epsilon(each)
    release = Composed((response.release,), count)
    threshold = each * count * 0.4
    exact = composed_flips_delta(response, count, threshold)
    assert exact * (1 - 1e-9) <= delta(release, epsilon=threshold, relation=LABEL) <= exact * 1.01 + 1e-9
    found = epsilon(release, delta=1e-5, relation=LABEL)
    assert composed_flips_delta(response, count, found * 1.000001) <= 1e-5 * 1.0001
    assert found <= pure_epsilon(release, relation=LABEL) * 1.0001


def test_hybrid_is_no_worse_than_adding_up() -> None:
    """Joint composition of flips and DP-SGD: 8.446 against 8.459 by addition in the trials; never worse."""
    labels = RandomizedResponse.for_epsilon(4).release
    training = SubsampledGaussian(0.66, **DISPLAY)  # type: ignore[arg-type]
    joint = epsilon(Composed((labels, training)), delta=1 / ROWS, relation=REPLACE)
    alone = epsilon(training, delta=1 / ROWS, relation=REPLACE)
    assert alone < joint <= alone + 4 + 1e-6
    assert joint > 4


def test_replace_one_by_renyi_is_right_where_the_library_is_wrong() -> None:
    """Noise 2 in units of the clip is noise 1 in units of the change: 4.38 exactly at delta 1e-5, not 2.2."""
    from dp_accounting import GaussianDpEvent
    from dp_accounting.rdp import RdpAccountant

    release = SubsampledGaussian(2.0, 1.0, 1)
    exact = exact_gaussian_epsilon(1.0, 1e-5)
    theirs = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE).compose(GaussianDpEvent(2.0))
    assert theirs.get_epsilon(1e-5) < exact / 1.5  # the library's answer is not an upper bound
    assert exact <= rdp_epsilon(release, delta=1e-5, relation=REPLACE) <= exact * 1.15
    assert exact <= epsilon(release, delta=1e-5, relation=REPLACE) <= exact * 1.001


@pytest.mark.parametrize(("noise", "share"), [(0.7, 0.01), (1.0, 0.001), (3.0, 0.2)])
def test_renyi_of_sampled_sums_agrees_with_a_second_library(noise: float, share: float) -> None:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.rdp import RdpAccountant

    event = SelfComposedDpEvent(PoissonSampledDpEvent(share, GaussianDpEvent(noise)), 500)
    theirs = RdpAccountant(list(renyi.ORDERS)).compose(event).get_epsilon(1e-6)
    ours = rdp_epsilon(SubsampledGaussian(noise, share, 500), delta=1e-6, relation=ADD)
    # Theirs does not converge at some orders and leaves them out, so it may be the larger one.
    assert theirs * 0.999 <= ours <= theirs * (1 + 1e-6)


@pytest.mark.parametrize("noise", [0.6, 2.0])
@pytest.mark.parametrize("share", [0.001, 0.2])
def test_renyi_of_sampled_replacement_lies_between(noise: float, share: float) -> None:
    """Above PLD, above add/remove, and below what a sum that is not sampled at all would spend."""
    release = SubsampledGaussian(noise, share, 50)
    found = rdp_epsilon(release, delta=1e-6, relation=REPLACE)
    assert found >= epsilon(release, delta=1e-6, relation=REPLACE)
    assert found >= rdp_epsilon(release, delta=1e-6, relation=ADD)
    assert found <= rdp_epsilon(SubsampledGaussian(noise, 1.0, 50), delta=1e-6, relation=REPLACE)


def test_renyi_of_sampled_replacement_as_mpmath_integrates_it() -> None:
    noise, share, order = 0.8, 0.1, 5
    q = mpmath.mpf(share)

    def density(x: mpmath.mpf, shift: int) -> mpmath.mpf:
        return (1 - q) * mpmath.npdf(x, 0, noise) + q * mpmath.npdf(x, shift, noise)

    spots = [-15, -5, -1, 0, 1, 3, 5, 7, 10, 20]
    moment = mpmath.quad(lambda x: density(x, 1) ** order * density(x, -1) ** (1 - order), spots)
    found = renyi._divergences(noise, share, (1, -1))[int(np.flatnonzero(order == renyi.ORDERS)[0])]
    assert found == pytest.approx(float(mpmath.log(moment) / (order - 1)), rel=1e-9)


COUNTS: list[tuple[Release, float]] = [
    (DiscreteLaplaceCounts((1,), ADD, Fraction(2)), 0.5),
    (DiscreteLaplaceCounts((3, 1), ADD, Fraction(2)), 2.0),
]


@pytest.mark.parametrize(("release", "pure"), COUNTS)
def test_discrete_laplace_is_pure(release: Release, pure: float) -> None:
    assert pure_epsilon(release, relation=ADD) == pytest.approx(pure, rel=1e-12)
    assert epsilon(release, delta=1e-9, relation=ADD) <= pure * 1.0001


def brute_delta(law: Callable[[int], float], change: int, threshold: float, reach: int) -> float:
    return sum(max(0.0, law(x) - math.exp(threshold) * law(x + change)) for x in range(-reach, reach))


@pytest.mark.parametrize("change", [1, 3])
@pytest.mark.parametrize("threshold", [0.1, 0.5])
def test_count_noise_matches_the_sum_over_its_law(change: int, threshold: float) -> None:
    variance = 9
    weights = {x: math.exp(-x * x / (2 * variance)) for x in range(-200, 200)}
    total = sum(weights.values())
    cases = {
        DiscreteGaussianCounts((change,), ADD, Fraction(variance)): lambda x: weights.get(x, 0.0) / total,
        SkellamCounts((change,), ADD, Fraction(variance)): lambda x: float(
            mpmath.exp(-variance) * mpmath.besseli(abs(x), variance)
        ),
        DiscreteLaplaceCounts((change,), ADD, Fraction(3)): lambda x: math.tanh(1 / 6) * math.exp(-abs(x) / 3),
    }
    for release, law in cases.items():
        exact = brute_delta(law, change, threshold, 120)
        assert exact * (1 - 1e-6) <= delta(release, epsilon=threshold, relation=ADD) <= exact * 1.002 + 1e-12


def test_zero_out_reads_like_add_remove_for_sampled_sums() -> None:
    release = SubsampledGaussian(1.0, 0.01, 100)
    assert epsilon(release, delta=1e-6, relation=ZERO) == epsilon(release, delta=1e-6, relation=ADD)


noises = st.floats(0.5, 5)


@settings(max_examples=6, deadline=None)
@given(noises, st.floats(0.001, 0.3), st.integers(1, 300))
def test_epsilon_is_monotone(noise: float, share: float, steps: int) -> None:
    def at(n: float, q: float, t: int) -> float:
        return epsilon(SubsampledGaussian(n, q, t), delta=1e-6, relation=ADD)

    here = at(noise, share, steps)
    slack = 1.003
    assert at(noise * 1.2, share, steps) <= here * slack
    assert at(noise, min(1.0, share * 1.2), steps) * slack >= here
    assert at(noise, share, steps * 2) * slack >= here


def test_order_of_composition_does_not_matter() -> None:
    parts = (
        RandomizedResponse.for_epsilon(1).release,
        SubsampledGaussian(1.0, 0.05, 50),
        LocalChoice(Fraction(1, 2)),
    )
    one = epsilon(Composed(parts), delta=1e-6, relation=REPLACE)
    other = epsilon(Composed((Composed(parts[1:]), parts[0])), delta=1e-6, relation=REPLACE)
    assert one == pytest.approx(other, rel=1e-6)


def test_limits() -> None:
    assert epsilon(GaussianStatistic(1e6, 1.0, ADD), delta=0.01, relation=ADD) == 0.0
    assert epsilon(SubsampledGaussian(1e4, 0.001, 1), delta=1e-3, relation=ADD) == 0.0
    with pytest.raises(NoFiniteGuarantee, match="expected a finite epsilon at delta=1e-09"):
        epsilon(SelectedPartitions(Fraction(1), Fraction(1, 10**6), 1, ADD), delta=1e-9, relation=ADD)


def test_extremes_are_answered_or_refused_in_words() -> None:
    """No warning, no memory that grows without end, no infinity passed off as an answer."""
    lying = ((Fraction(99, 100), Fraction(1, 100)), (Fraction(1, 100), Fraction(99, 100)))
    with pytest.raises(BadInput, match="ratio"):
        pure_epsilon(ShuffledChoice(Fraction(1), 10, lying), relation=REPLACE)
    for release, relation in (
        (SubsampledGaussian(0.03, 1.0, 1), ADD),
        (DiscreteGaussianCounts((1000,), ADD, Fraction(1)), ADD),
        (LocalChoice(Fraction(10**6)), REPLACE),
        (ShuffledChoice(Fraction(800), 100), REPLACE),
        (Composed((LocalChoice(Fraction(1, 10)),), 10**12), REPLACE),
    ):
        with pytest.raises(NoFiniteGuarantee, match="expected"):
            epsilon(release, delta=1e-6, relation=relation)
    assert epsilon(SkellamCounts((1,), ADD, Fraction(1, 100)), delta=1e-6, relation=ADD) > 6
    many = Composed((ShuffledChoice(Fraction(1), 10_000),), 2000)
    assert 3 < epsilon(many, delta=1e-12, relation=REPLACE) < 5
    assert delta(SubsampledGaussian(1.0, 0.1, 10), epsilon=1000, relation=ADD) < 1e-20


class Stranger(Release):
    """A release that nobody has a proof for."""

    words = "something else"


def test_every_kind_of_release_has_a_rule() -> None:
    made_of_others = {Release, NoisyCounts, Composed, Grouped}
    kinds = {kind for kind in vars(releases).values() if isinstance(kind, type) and issubclass(kind, Release)}
    assert kinds - made_of_others == RULES.keys()


@pytest.mark.parametrize("most", [1, 2, 5])
def test_labels_that_split_an_epsilon_are_never_above_it(most: int) -> None:
    """However many labels a unit has, their joint loss stays below what `SplitLabels` is read as."""
    split = SplitLabels(Fraction(2), most)
    assert pure_epsilon(split, relation=LABEL) == pytest.approx(2)
    for count in range(1, most + 1):
        flips = Composed((RandomizedResponse.for_epsilon(Fraction(2, count)).release,), count)
        for threshold in (0.0, 0.5, 1.5):
            told = delta(split, epsilon=threshold, relation=LABEL)
            assert delta(flips, epsilon=threshold, relation=LABEL) <= told * 1.002


@pytest.mark.parametrize("read", [epsilon, rdp_epsilon])
def test_unknown_releases_raise_wherever_they_hide(read: object) -> None:
    assert callable(read)
    flips = RandomizedResponse.for_epsilon(1).release
    for release in (Stranger(), Composed((flips, Stranger())), Grouped(Composed((Stranger(),)), 2)):
        with pytest.raises(UnknownRelease, match="got Stranger"):
            read(release, delta=1e-6, relation=REPLACE)


@pytest.mark.parametrize(
    ("release", "relation"),
    [
        (FlippedLabels(Fraction(3, 4)), ADD),
        (FlippedLabels(Fraction(3, 4)), ZERO),
        (LocalChoice(Fraction(1)), ADD),
        (ShuffledChoice(Fraction(1), 100), LABEL),
        (GaussianStatistic(1.0, 1.0, LABEL), REPLACE),
        (DiscreteGaussianCounts((1,), ZERO, Fraction(4)), ADD),
        (Composed((SubsampledGaussian(1.0, 0.1, 5), DiscreteLaplaceCounts((1,), ZERO, Fraction(1)))), REPLACE),
    ],
)
def test_mixed_relations_raise(release: Release, relation: Relation) -> None:
    with pytest.raises(RelationMismatch, match=f"{relation}"):
        epsilon(release, delta=1e-6, relation=relation)


@pytest.mark.parametrize(
    "release",
    [SubsampledGaussian(1.0, 0.1, 5), ShuffledChoice(Fraction(1), 100)],
)
def test_groups_without_a_proof_raise(release: Release) -> None:
    with pytest.raises(UnknownRelease, match="expected"):
        epsilon(Grouped(release, 3), delta=1e-6, relation=REPLACE)


@pytest.mark.parametrize("bad", [0, 1, -1e-9, math.nan, math.inf])
def test_bad_delta_raises(bad: float) -> None:
    with pytest.raises(BadInput, match="expected delta"):
        epsilon(SubsampledGaussian(1.0, 0.1, 5), delta=bad, relation=ADD)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SubsampledGaussian(0.0, 0.1, 5),
        lambda: SubsampledGaussian(math.nan, 0.1, 5),
        lambda: SubsampledGaussian(1.0, 0.0, 5),
        lambda: SubsampledGaussian(1.0, 1.1, 5),
        lambda: SubsampledGaussian(1.0, 0.1, 0),
        lambda: FlippedLabels(Fraction(0)),
        lambda: FlippedLabels(Fraction(1)),
        lambda: FlippedLabels(Fraction(1, 4), 3),
        lambda: LocalChoice(Fraction(0)),
        lambda: ShuffledChoice(Fraction(1), 0),
        lambda: Composed(()),
        lambda: Composed((LocalChoice(Fraction(1)),), 0),
        lambda: Grouped(LocalChoice(Fraction(1)), 0),
        lambda: DiscreteLaplaceCounts((), ADD, Fraction(1)),
        lambda: DiscreteLaplaceCounts((0,), ADD, Fraction(1)),
        lambda: DiscreteGaussianCounts((1,), ADD, Fraction(-1)),
        lambda: GaussianStatistic(math.inf, 1.0, ADD),
    ],
)
def test_bad_releases_are_refused_when_made(make: object) -> None:
    assert callable(make)
    with pytest.raises(BadInput, match="expected"):
        make()
