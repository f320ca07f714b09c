"""Noise and cost of a run: what one device can change, by brute force; calibration against known figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.special import ive
from scipy.stats import norm

from tacit.errors import BadInput
from tacit.gather.estimate.plan import (
    CountNoiseLaw,
    NoiseBy,
    RunPlan,
    default_delta,
    noise_options,
    paper_variance,
    plan_run,
)
from tacit.gather.protocol import promises
from tacit.gather.protocol.noise import ServerNoise, UserNoise
from tacit.gather.protocol.promises import Contribution, two_count_hockey_stick, undominated_exchanges
from tacit.privacy.accounting import accountant
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Amount
from tacit.privacy.noise.distributions import DiscreteGaussian, DiscreteLaplace, Skellam
from tacit.privacy.noise.shares import PolyaShares, SkellamShares
from tacit.privacy.releases import (
    DiscreteGaussianCounts,
    DiscreteLaplaceCounts,
    NoisyCounts,
    SkellamCounts,
)
from tacit.privacy.units import Relation

ZERO_OUT = Relation.ZERO_OUT


def partitions(total: int, most: int) -> Iterator[tuple[int, ...]]:
    """All ways of writing `total` as falling parts of at most `most`."""
    if total == 0:
        yield ()
    for first in range(min(total, most), 0, -1):
        for rest in partitions(total - first, first):
            yield (first, *rest)


def sensitivity_by_enumeration(events: int, each: int, levels: int) -> int:
    """The largest squared L2 change of all cells over every way of placing a device's events in a tree.

    Nodes of level l are the prefixes of length l of a leaf's path, so levels nest as a hierarchy's do.
    """
    most = 0
    leaves = list(itertools.product(range(min(events, 3)), repeat=levels))
    kinds = [(leaf, ad, clicked) for leaf in leaves for ad in range(2) for clicked in (0, 1)]
    for chosen in itertools.combinations_with_replacement(kinds, events):
        cells: dict[object, int] = {}
        for leaf, ad, clicked in chosen:
            for level in range(1, levels + 1):
                node = leaf[:level]
                for cell in (node, (node, ad, clicked)):
                    cells[cell] = cells.get(cell, 0) + 1
        most = max(most, sum(min(count, each) ** 2 for count in cells.values()))
    return most


@pytest.mark.parametrize("events", [1, 2, 3])
@pytest.mark.parametrize("levels", [1, 2])
def test_the_squared_change_is_what_enumeration_finds(events: int, levels: int) -> None:
    for each in range(1, events + 1):
        bound = Contribution(events, each)
        claimed = levels * sum(change**2 for change in bound.changes)
        found = sensitivity_by_enumeration(events, each, levels)
        # Of answers, totals and clicks are bounded apart; a client and a proof look at the whole vector alone.
        assert found <= claimed <= 2 * levels * events * each
        if events % each == 0:
            assert found == claimed == 2 * levels * events * each


def test_changes_are_the_most_unequal_partition() -> None:
    assert Contribution(4).changes == (4, 4)
    assert Contribution(4, 1).changes == (1,) * 8
    assert Contribution(7, 3).changes == (3, 3, 3, 3, 2)  # and not 3, 3, 1 twice: any vector of 14 in all
    for events, each in ((4, 4), (6, 2), (7, 3)):
        worst = max(sum(part**2 for part in parts) for parts in partitions(2 * events, each))
        assert worst == sum(change**2 for change in Contribution(events, each).changes)
    assert len(list(partitions(5, 5))) == 7
    for wrong in ((0, None), (3, 4), (3, 0)):
        with pytest.raises(BadInput):
            Contribution(*wrong)


def noisy(kind: type[NoisyCounts], parameter: float, changes: tuple[int, ...] = (1,)) -> NoisyCounts:
    return kind(changes, ZERO_OUT, Fraction(parameter))  # type: ignore[call-arg]


NOISES = [
    *((SkellamCounts, variance) for variance in (0.5, 2.0, 20.0, 1000.0)),
    *((DiscreteGaussianCounts, variance) for variance in (0.2, 2.0, 20.0, 1000.0)),
    *((DiscreteLaplaceCounts, scale) for scale in (0.5, 3.0, 16.0)),
]


@pytest.mark.parametrize(("kind", "parameter"), NOISES)
def test_less_equal_changes_are_always_easier_to_see(kind: type[NoisyCounts], parameter: float) -> None:
    assert undominated_exchanges(noisy(kind, parameter), 6) == []


def test_an_exchange_that_is_exposed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin with a law of two humps, under which a shift of 2 is hard to see and two shifts of 1 are easy."""
    humps = {2 * k: math.exp(-(k**2) / 50) for k in range(-40, 41)}
    law = {k: humps.get(k, 1e-4 * math.exp(-(k**2) / 200)) for k in range(-80, 81)}
    whole = sum(law.values())

    def atoms(_: NoisyCounts, change: int) -> tuple[np.ndarray, np.ndarray]:
        x = np.arange(-76, 77)
        mass = np.array([law[int(k)] for k in x]) / whole
        shifted = np.array([law.get(int(k) + change, 1e-30) for k in x]) / whole
        return np.log(mass / shifted), mass

    monkeypatch.setattr(promises, "count_noise_atoms", atoms)
    assert (1, 1) in undominated_exchanges(noisy(SkellamCounts, 12.5), 2)


def test_hockey_sticks_are_those_of_the_definition() -> None:
    variance, epsilons = 3.0, np.array([0.0, 0.3, 1.0, 2.5])
    x = np.arange(-60, 61)
    first = ive(np.abs(x), variance)

    def shifted(change: int) -> np.ndarray:
        moved: np.ndarray = ive(np.abs(x - change), variance)
        return moved

    p, q = np.outer(first, first), np.outer(shifted(3), shifted(2))
    by_definition = [np.maximum(p - math.exp(epsilon) * q, 0).sum() for epsilon in epsilons]
    found = two_count_hockey_stick(noisy(SkellamCounts, variance), (3, 2), epsilons)
    assert np.allclose(found, by_definition, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("kind", [SkellamCounts, DiscreteGaussianCounts])
def test_the_concentrated_contribution_has_the_largest_epsilon(kind: type[NoisyCounts]) -> None:
    bound = Contribution(4, 3)

    def epsilon(changes: tuple[int, ...]) -> float:
        return accountant.epsilon(noisy(kind, 60.0, changes), delta=1e-6, relation=ZERO_OUT)

    worst = epsilon(bound.changes)
    for parts in itertools.combinations_with_replacement(partitions(4, 3), 2):
        # Right to .1% from above; equal ones may come out in either order.
        assert epsilon(parts[0] + parts[1]) <= worst * (1 + 1e-3)
    assert epsilon((1,) * 8) < 0.8 * worst


def analytic_gaussian_variance(sensitivity_squared: float, epsilon: float, delta: float) -> float:
    """Balle, Wang 2018 (arXiv 1805.06530), theorem 8, by bisection: an oracle of its own."""
    low, high = 1e-3, 1e3
    for _ in range(200):
        ratio = math.sqrt(low * high)  # sd over sensitivity
        a, b = 1 / (2 * ratio), epsilon * ratio
        if norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b) > delta:
            low = ratio
        else:
            high = ratio
    return sensitivity_squared * high**2


TABLE = [  # delta, levels; the paper's variance, by events, users, pure epsilon; at epsilon 1 and 4 events
    (0.01, 2, 1150, 226, 56, 512),
    (1e-6, 2, 2919, 1142, 286, 512),
    (1e-6, 9, 13134, 5140, 1285, 10368),
]


@pytest.mark.parametrize(
    ("law", "delta", "levels", "paper", "events", "users", "pure"),
    [
        *((CountNoiseLaw.DISCRETE_GAUSSIAN, *row) for row in TABLE),
        *((CountNoiseLaw.SKELLAM, *row) for row in TABLE[1:]),
    ],
)
def test_variances_are_as_computed_elsewhere(
    law: CountNoiseLaw, delta: float, levels: int, paper: int, events: int, users: int, pure: int
) -> None:
    assert paper_variance(levels=levels, events=4, epsilon=1, delta=delta) == pytest.approx(paper, abs=0.6)
    for bound, expected in ((Contribution(4), events), (Contribution(4, 1), users)):
        run = plan_run(contribution=bound, levels=levels, parties=50, epsilon=1, delta=delta, law=law)
        squared = levels * sum(change**2 for change in bound.changes)
        variance = run.noise.published_variance(50) / 2  # two servers add it
        # Calibration stays within .2% of epsilon, so .4% of the variance, on the safe side. The discrete laws
        # need a little more or less than the Gaussian (Skellam's tails are heavier, lattices leave gaps).
        assert variance == pytest.approx(analytic_gaussian_variance(squared, 1, delta), rel=7e-3)
        assert variance == pytest.approx(expected, rel=0.012)  # the figures are whole numbers
    laplace = plan_run(
        contribution=Contribution(4), levels=levels, parties=50, epsilon=1, law=CountNoiseLaw.DISCRETE_LAPLACE
    )
    assert laplace.noise.published_variance(50) / 2 == pytest.approx(pure, rel=1e-3)
    assert laplace.delta == 0


@pytest.fixture(scope="module")
def nine_levels() -> RunPlan:
    return plan_run(contribution=Contribution(4), levels=9, parties=10_000, epsilon=1, delta=1e-6)


def test_a_run_is_paid_for_before_its_first_round_and_every_round_has_an_entry(nine_levels: RunPlan) -> None:
    costs = nine_levels.costs
    assert len(costs) == 9
    assert sum(costs, Budget.NOTHING) == nine_levels.cost == Budget(Fraction(1), Fraction(1, 10**6))
    assert all(cost.epsilon > 0 for cost in costs)
    assert costs[0].delta == nine_levels.delta
    # However few rounds the results make of it, the whole run is paid, to the least parts of a ledger.
    assert costs[0].epsilon >= nine_levels.epsilon - Fraction(8, 10**9)


def test_pure_costs_are_exact() -> None:
    run = plan_run(
        contribution=Contribution(3), levels=7, parties=9, epsilon="0.7", law=CountNoiseLaw.DISCRETE_LAPLACE
    )
    assert isinstance(run.noise, ServerNoise)
    assert run.noise.law == DiscreteLaplace(Fraction(60))
    assert sum(run.costs, Budget.NOTHING) == Budget(Fraction(7, 10))
    assert run.statement.epsilon == pytest.approx(0.7)
    assert run.statement.delta == 0


def test_a_line_with_the_runs_epsilon_can_pay_all_of_its_rounds() -> None:
    run = plan_run(
        contribution=Contribution(4), levels=9, parties=9, epsilon=1, law=CountNoiseLaw.DISCRETE_LAPLACE
    )
    paid = Amount()
    for cost in run.costs:
        paid += Amount.spending(cost)
    assert paid == Amount.limit(run.cost)


def test_who_adds_which_noise() -> None:
    asked: dict[str, Any] = {"contribution": Contribution(2), "levels": 2, "parties": 1000, "epsilon": 2.0}
    servers = plan_run(**asked, law=CountNoiseLaw.DISCRETE_GAUSSIAN)
    users = plan_run(**asked, by=NoiseBy.USERS, law=CountNoiseLaw.SKELLAM, silent="1/4")
    polya = plan_run(**asked, by=NoiseBy.USERS, law=CountNoiseLaw.DISCRETE_LAPLACE, silent=0.25)
    assert isinstance(servers.noise, ServerNoise)
    assert isinstance(servers.noise.law, DiscreteGaussian)
    assert isinstance(users.noise, UserNoise)
    assert isinstance(users.noise.shares, SkellamShares)
    assert (users.noise.shares.parties, users.noise.shares.silent) == (1000, Fraction(251, 1000))
    assert isinstance(polya.noise, UserNoise)
    assert polya.noise.shares == PolyaShares(Fraction(4), 1000, Fraction(251, 1000))
    assert isinstance(plan_run(**asked, law=CountNoiseLaw.SKELLAM).noise.server_law(3), Skellam)
    # Servers pay twice; users once, over the fraction that is sure to add it; a server sees the same promise.
    assert servers.published_sd(10) ** 2 == pytest.approx(2 * float(servers.noise.law.sigma_squared))
    assert users.published_sd(1000) ** 2 == pytest.approx(float(users.noise.shares.variance) / 0.749)
    for run in (servers, users):
        kept = accountant.epsilon(run.release(), delta=run.delta, relation=ZERO_OUT)
        assert 1.99 < kept <= 2.0


def test_delta_is_well_below_one_in_all_parties() -> None:
    assert default_delta(10) == Fraction(1, 10**6)
    assert default_delta(116_432) == Fraction(1, 10**8)
    asked: dict[str, Any] = {"contribution": Contribution(1), "levels": 1, "parties": 1000, "epsilon": 1}
    assert plan_run(**asked, law=CountNoiseLaw.DISCRETE_GAUSSIAN).delta == Fraction(1, 10**6)
    assert plan_run(**asked).delta == 0  # pure noise is less here, and needs none
    with pytest.raises(BadInput, match="below 1 / parties"):
        plan_run(**asked, delta=1e-3)
    gaussian = plan_run(**asked, delta=1e-3, large_delta=True, law=CountNoiseLaw.DISCRETE_GAUSSIAN)
    assert gaussian.delta == Fraction(1, 1000)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"levels": 0}, "levels"),
        ({"levels": 101}, "at most 100 levels"),
        ({"epsilon": 0}, "epsilon"),
        ({"parties": 0}, "parties"),
        ({"law": CountNoiseLaw.DISCRETE_LAPLACE, "delta": 1e-6}, "no delta"),
        ({"law": CountNoiseLaw.DISCRETE_GAUSSIAN, "by": NoiseBy.USERS}, "devices can share"),
        ({"by": NoiseBy.SERVERS, "silent": 0.5}, "silent"),
        (
            {"law": CountNoiseLaw.DISCRETE_GAUSSIAN, "silent": 0.3},
            "silent devices only where devices add noise",
        ),
        ({"silent": 1.5}, "silent"),
        ({"delta": 0.5}, "well below 1 / parties"),
        ({"delta": 0, "law": CountNoiseLaw.SKELLAM}, "delta in"),
        ({"by": "nobody"}, "NoiseBy"),
    ],
)
def test_plans_that_cannot_be_meant(change: dict[str, Any], match: str) -> None:
    asked: dict[str, Any] = {"contribution": Contribution(1), "levels": 1, "parties": 50, "epsilon": 1}
    with pytest.raises(BadInput, match=match):
        plan_run(**(asked | change))


def test_a_plan_with_too_little_noise_cannot_be_made(nine_levels: RunPlan) -> None:
    assert isinstance(nine_levels.noise, ServerNoise)
    assert isinstance(nine_levels.noise.law, DiscreteGaussian)
    less = ServerNoise(DiscreteGaussian(nine_levels.noise.law.sigma_squared * Fraction(98, 100)))
    with pytest.raises(BadInput, match="expected noise that keeps epsilon=1"):
        replace(nine_levels, noise=less)
    with pytest.raises(BadInput, match="keeps"):
        replace(nine_levels, promise=replace(nine_levels.promise, events=5, each=5))
    with pytest.raises(BadInput, match="delta=0"):
        replace(nine_levels, promise=replace(nine_levels.promise, delta=Fraction(0)))
    with pytest.raises(BadInput, match="9 levels"):
        nine_levels.release(10)


def test_the_statement_names_unit_relation_and_gaps(nine_levels: RunPlan) -> None:
    said = nine_levels.statement
    assert str(said.unit) == "device"
    assert said.relation is ZERO_OUT
    assert 0.99 < said.epsilon <= 1
    assert any("collude" in gap for gap in said.not_protected)
    assert any("more than 4 events" in gap for gap in said.not_protected)
    users = plan_run(
        contribution=Contribution(1), levels=1, parties=50, epsilon=1, by=NoiseBy.USERS, silent=0.1
    )
    assert sum("collude" in gap for gap in users.statement.not_protected) == 1


@pytest.mark.parametrize("parties", [2, 10, 100])
@pytest.mark.parametrize("law", [CountNoiseLaw.SKELLAM, CountNoiseLaw.DISCRETE_LAPLACE])
@pytest.mark.parametrize("silent", [0, "1/4"])
def test_a_device_that_subtracts_its_own_noise_sees_no_more_than_was_promised(
    parties: int, law: CountNoiseLaw, silent: Any
) -> None:
    asked: dict[str, Any] = {"contribution": Contribution(4, 1), "levels": 2, "epsilon": 1}
    run = plan_run(**asked, parties=parties, by=NoiseBy.USERS, law=law, silent=silent)
    assert isinstance(run.noise, UserNoise)
    shares = run.noise.shares
    left = parties - math.floor(Fraction(silent) * parties) - 1  # neither silent nor the one that looks
    assert float(left * shares.share.variance) == pytest.approx(float(shares.part(Fraction(1)).variance))
    if isinstance(shares, SkellamShares):
        others = SkellamCounts(run.release().changes, ZERO_OUT, left * shares.share.variance)
        assert accountant.epsilon(others, delta=run.delta, relation=ZERO_OUT) <= 1


@pytest.mark.parametrize(("parties", "silent"), [(1, 0), (2, "1/2"), (10, "0.9")])
def test_users_alone_make_no_noise_if_nobody_is_left_to_add_it(parties: int, silent: Any) -> None:
    with pytest.raises(BadInput, match="expected more than"):
        plan_run(
            contribution=Contribution(1), levels=1, parties=parties, epsilon=1, by=NoiseBy.USERS, silent=silent
        )


# Which law, and by whom: chosen by planned error, from public numbers.

QUESTIONS = [  # events, each, levels, epsilon
    (1, 1, 1, 1),
    (4, 1, 1, 1),
    (4, 4, 1, "0.5"),
    (4, 1, 3, 4),
    (10, 1, 1, 1),
    (100, 1, 1, "0.5"),
]


@pytest.mark.parametrize(("events", "each", "levels", "epsilon"), QUESTIONS)
def test_the_law_with_the_least_planned_error_is_chosen(
    events: int, each: int, levels: int, epsilon: Any
) -> None:
    asked: dict[str, Any] = {
        "contribution": Contribution(events, each), "levels": levels, "parties": 1000, "epsilon": epsilon,
    }  # fmt: skip
    named = {
        law: plan_run(**asked, law=law)
        for law in (CountNoiseLaw.DISCRETE_GAUSSIAN, CountNoiseLaw.DISCRETE_LAPLACE)
    }
    run = plan_run(**asked)
    assert run.published_sd(1000) == min(each.published_sd(1000) for each in named.values())
    assert run == named[run.law]
    assert run.options[0].law is run.law
    assert run.options[0].sd == run.published_sd(1000)
    assert [each.sd for each in run.options] == sorted(each.sd for each in run.options)
    # Both laws win somewhere: few changes and little epsilon are for Laplace, many for Gaussian.
    pure = levels * sum(run.contribution.changes) < 10 or len(run.contribution.changes) == 2
    assert run.law is (CountNoiseLaw.DISCRETE_LAPLACE if pure else CountNoiseLaw.DISCRETE_GAUSSIAN)


def test_devices_add_noise_only_where_somebody_says_how_many_may_not() -> None:
    asked: dict[str, Any] = {"contribution": Contribution(4, 1), "levels": 1, "parties": 1000, "epsilon": 1}
    assert plan_run(**asked).by is NoiseBy.SERVERS
    assert {each.by for each in plan_run(**asked).options} == {NoiseBy.SERVERS}
    assert plan_run(**asked, silent=0).by is plan_run(**asked, silent="0.4").by is NoiseBy.USERS
    assert plan_run(**asked, silent="0.6").by is NoiseBy.SERVERS  # shares would be larger than two whole draws
    assert plan_run(**asked, silent=0, by=NoiseBy.SERVERS).by is NoiseBy.SERVERS
    everything = noise_options(**asked)
    assert len(everything) == 4
    assert [each.sd for each in everything] == sorted(each.sd for each in everything)
    assert all(("silent = 0" in each.assumes) == (each.by is NoiseBy.USERS) for each in everything)
    stated = noise_options(**asked, silent="1/4")[0]
    assert "at most 0.25" in stated.assumes
    assert (stated.by, stated.sd) == (NoiseBy.USERS, plan_run(**asked, silent="1/4").published_sd(1000))


def test_what_is_named_is_kept_though_it_is_more_noise() -> None:
    asked: dict[str, Any] = {"contribution": Contribution(1), "levels": 1, "parties": 1000, "epsilon": 1}
    best = plan_run(**asked)
    for law in (CountNoiseLaw.DISCRETE_GAUSSIAN, CountNoiseLaw.SKELLAM):
        named = plan_run(**asked, law=law)
        assert (named.law, named.by) == (law, NoiseBy.SERVERS)
        assert named.published_sd(1000) > 2 * best.published_sd(1000)
    assert plan_run(**asked, by=NoiseBy.USERS, law=CountNoiseLaw.SKELLAM).law is CountNoiseLaw.SKELLAM
    assert plan_run(**asked, delta=0).law is CountNoiseLaw.DISCRETE_LAPLACE


@pytest.mark.parametrize("events", [1, 2, 3])
def test_where_only_totals_are_asked_an_event_changes_one_count_of_a_level(events: int) -> None:
    for each in range(1, events + 1):
        bound = Contribution(events, each, totals_only=True)
        ways = itertools.combinations_with_replacement(range(events), events)  # the node of each event
        tallies = [[way.count(node) for node in range(events)] for way in ways]
        squares = [sum(min(count, each) ** 2 for count in tally) for tally in tallies]
        claimed = sum(change**2 for change in bound.changes)
        assert max(squares) <= claimed
        if events % each == 0:
            assert max(squares) == claimed
        assert sum(bound.changes) == bound.in_all == events


def test_totals_alone_carry_less_noise_for_the_same_promise() -> None:
    asked: dict[str, Any] = {"levels": 1, "parties": 1000, "epsilon": 1}
    both, one = (
        {
            law: plan_run(**asked, contribution=Contribution(4, 1, only), law=law).published_sd(1000)
            for law in CountNoiseLaw
        }
        for only in (False, True)
    )
    assert both[CountNoiseLaw.DISCRETE_GAUSSIAN] / one[CountNoiseLaw.DISCRETE_GAUSSIAN] == pytest.approx(
        math.sqrt(2), rel=2e-3
    )
    assert both[CountNoiseLaw.DISCRETE_LAPLACE] / one[CountNoiseLaw.DISCRETE_LAPLACE] == pytest.approx(
        2, rel=2e-2
    )
    run = plan_run(**asked, contribution=Contribution(4, 1, totals_only=True))
    with pytest.raises(BadInput, match="expected noise that keeps epsilon=1, got noise that keeps 2"):
        replace(run, promise=replace(run.promise, totals_only=False))  # not enough for clicks, too
