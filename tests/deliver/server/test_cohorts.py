"""Plans of epochs and cuts: cohorts by exact tails, a plan by hand, and 10,000 contexts of uneven traffic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import poisson

from tacit.bill.protocol.directory import DirectoryLeaf
from tacit.bill.protocol.menus import Lane
from tacit.bill.protocol.tokens import TOKEN_BYTES, TokenPublicKey
from tacit.bill.proxy.party import HoldRule
from tacit.bill.proxy.store import StoredMenu, WaitingReports
from tacit.deliver.protocol.cuts import depth_cut
from tacit.deliver.protocol.minimum_users import discrete_laplace_margin
from tacit.deliver.server.cohorts import (
    DAY,
    EPOCHS,
    CohortGoal,
    CohortPlan,
    Traffic,
    _assured,
    best_plan,
    epsilon_within,
    plan_cohorts,
)
from tacit.errors import BadInput
from tacit.privacy.releases import ShuffledChoice
from tacit.privacy.shuffling import cohort_needed, epsilon
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Node, Sequence
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import Tree
from tacit.schema.counts import Counts

GOAL = CohortGoal(Fraction(3), Fraction(1), Fraction("1e-6"))
LOOSE = CohortGoal(Fraction(1), Fraction("0.9"), Fraction("1e-3"))


def zipf_traffic(total: float, contexts: int = 10_000, groups: int = 100) -> Traffic:
    """Contexts in proportion to 1 / rank, dealt out to groups from a fixed seed."""
    weights = 1 / np.arange(1, contexts + 1)
    weights *= total / weights.sum()
    group = np.random.default_rng(7).permutation(contexts) % groups
    parent: dict[str, str | None] = {"*": None, **{f"group {g}": "*" for g in range(groups)}}
    parent.update((f"context {i}", f"group {g}") for i, g in enumerate(group.tolist()))
    sums = np.bincount(group, weights, groups).tolist()
    per_day = {"*": math.fsum(sums), **{f"group {g}": each for g, each in enumerate(sums)}}
    per_day.update((f"context {i}", each) for i, each in enumerate(weights.tolist()))
    return Traffic(Tree.of(parent), per_day)


@pytest.mark.parametrize("total", [1e6, 1e7])
def test_a_cut_and_an_epoch_that_follow_the_traffic_hide_every_request(total: float) -> None:
    traffic = zipf_traffic(total)
    plans = [plan_cohorts(traffic, GOAL, epoch) for epoch in EPOCHS]
    for plan in plans:
        assert plan.hidden_share == 1
        assert all(menu.large_enough and menu.expected >= GOAL.expected for menu in plan.menus)
        assert math.fsum(menu.requests_per_day for menu in plan.menus) == pytest.approx(total)
    assert [plan.bits for plan in plans] == sorted(plan.bits for plan in plans)
    chosen = best_plan(plans)
    assert chosen.bits >= 0.9 * plans[-1].bits > plans[0].bits
    assert 5 < chosen.bits < chosen.most_bits < math.log2(10_000)


def test_exact_contexts_in_ten_minutes_hide_none() -> None:
    traffic = zipf_traffic(1e6)
    fixed = CohortPlan(traffic, GOAL, 600, depth_cut(traffic.tree, traffic.tree.height))
    assert len(fixed.menus) == 10_000
    assert fixed.hidden_share == 0
    assert fixed.bits == 0
    # The most requested of all contexts comes close, and is still too small in four epochs of five.
    assert 0.8 < fixed.menus[0].undersized < 0.9


def test_where_all_requests_together_are_too_few_there_is_the_public_lane() -> None:
    plan = plan_cohorts(zipf_traffic(1e5), GOAL, 600)
    assert plan.cut is None
    assert plan.menus == ()
    assert (plan.hidden_share, plan.bits) == (0, 0)


@pytest.mark.parametrize("undersized", ["0.3", "0.01", "1e-6"])
def test_the_expected_cohort_is_the_least_that_is_rarely_undersized(undersized: str) -> None:
    goal = CohortGoal(Fraction(3), Fraction(1), Fraction("1e-6"), Fraction(undersized))
    assert goal.needed == cohort_needed(1, "1e-6", local_epsilon=3)
    short = poisson.cdf(goal.needed - 1, [goal.expected, goal.expected * 0.999])
    assert short[0] <= float(undersized) < short[1]


@given(expected=st.floats(0, 5_000), undersized=st.sampled_from([0.3, 0.01, 1e-6]))
def test_what_is_assured_is_the_most_that_is_rarely_missed(expected: float, undersized: float) -> None:
    found = _assured(expected, undersized)
    assert poisson.cdf(found - 1, expected) <= undersized < poisson.cdf(found, expected) * (1 + 1e-9)


TREE = Tree.of_paths(["Food > Tea", "Food > Coffee", "Food > Cake", "Sport > Yoga", "Sport > Chess", "News"])


def by_hand(tea: float, coffee: float, cake: float, yoga: float, chess: float, news: float) -> Traffic:
    leaves = {"Tea": tea, "Coffee": coffee, "Cake": cake, "Yoga": yoga, "Chess": chess, "News": news}
    above = {"Food": tea + coffee + cake, "Sport": yoga + chess, "*": math.fsum(leaves.values())}
    return Traffic(TREE, {**leaves, **above})


def test_a_plan_by_hand() -> None:
    """A day's epoch needs 801 reports: tea and news have them, coffee and cake together, sport with no one."""
    plan = plan_cohorts(by_hand(tea=900, coffee=500, cake=400, yoga=850, chess=20, news=3_000), GOAL, DAY)
    assert math.ceil(GOAL.expected) == 801
    assert {str(menu.block): menu.requests_per_day for menu in plan.menus} == {
        "News": 3_000, "rest of Food": 900, "Tea": 900, "Sport": 870
    }  # fmt: skip
    assert plan.hidden_share == 1
    news = plan.menus[0]
    assert news.expected == 3_000
    assert news.epsilon == epsilon(ShuffledChoice(Fraction(3), 2_800), "1e-6")  # 2,874 for sure, read as 2,800
    assert poisson.cdf(news.assured - 1, 3_000) <= 0.01
    assert str(news).startswith("News: about 3,000 reports per epoch; with a chance of 0.99 at least 2,87")


def test_a_quiet_epoch_needs_coarser_contexts_and_a_day_has_none() -> None:
    traffic = by_hand(tea=90_000, coffee=50_000, cake=40_000, yoga=85_000, chess=80_000, news=300_000)
    usual, quiet = (plan_cohorts(traffic, GOAL, 3_600, quietest=share) for share in (1, "0.2"))
    assert len(quiet.menus) < len(usual.menus)
    assert all(menu.large_enough for menu in quiet.menus)
    assert quiet.menus[0].expected == pytest.approx(0.2 * usual.menus[0].expected)
    assert plan_cohorts(traffic, GOAL, DAY, quietest="0.2").menus[0].expected == 300_000


def test_a_device_that_comes_twice_needs_twice_the_crowd() -> None:
    twice = CohortGoal(Fraction(3), Fraction(1), Fraction("1e-6"), per_device=2)
    assert twice.needed == 2 * GOAL.needed
    assert twice.epsilon_among(1_999) == GOAL.epsilon_among(999)
    assert twice.epsilon_among(1) == 3


def test_a_known_mechanism_needs_fewer() -> None:
    odds = Fraction(20)
    rows = tuple(tuple((odds if x == y else 1) / (odds + 4) for y in range(5)) for x in range(5))
    known = CohortGoal(Fraction(3), Fraction(1), Fraction("1e-6"), rows=rows)
    assert known.needed == cohort_needed(1, "1e-6", local_epsilon=3, rows=rows) < GOAL.needed


def test_a_menu_that_is_too_small_says_so() -> None:
    plan = CohortPlan(by_hand(900, 500, 400, 850, 20, 3_000), GOAL, DAY, depth_cut(TREE, 2))
    told = {menu.block.node: menu for menu in plan.menus}
    assert [name for name, menu in told.items() if menu.large_enough] == ["News", "Tea", "Yoga"]
    assert told["Chess"].statement == "in 100% of epochs fewer than 736: each choice keeps its local ε = 3"
    assert told["Chess"].epsilon == 3
    assert plan.hidden_share == pytest.approx((3_000 + 900 + 850) / 5_670)


ATTRIBUTES = (Steps("place", Tree.of_paths(["North > A", "North > B", "South > C"])),)
HIERARCHY = Sequence(ATTRIBUTES, [(0,), (1,)])


def test_traffic_of_counted_rows_is_that_of_gathered_counts() -> None:
    places = ["A", "B", "C", "A", "C"]
    nodes = ContextNodes.of(HIERARCHY, {"place": places})
    one_each = Traffic.of_rows(nodes, [1] * 5, days=2)
    gathered = Traffic.of_counts(nodes, Counts.of_rows(nodes, [0] * 5, ads=1), days=2)
    assert one_each.per_day == gathered.per_day
    assert one_each.tree == gathered.tree
    assert one_each.total == 2.5
    assert {str(node): one_each.per_day[name] for name, node in one_each.nodes.items()} == {
        "place A": 1, "place B": 0.5, "place C": 1, "place North": 1.5, "place South": 1, "anything": 2.5
    }  # fmt: skip


def test_a_plan_names_contexts_and_levels() -> None:
    nodes = ContextNodes.of(HIERARCHY, {"place": ["A", "B", "C"]})
    plan = plan_cohorts(Traffic.of_rows(nodes, [5_000, 100, 3_000]), GOAL, DAY)
    assert [(menu.node, bool(menu.block.without)) for menu in plan.menus] == [
        (Node((1,), ("North",)), False), (Node((0,), ("C",)), False)
    ]  # fmt: skip
    assert plan.share_by_levels() == {(0,): pytest.approx(3 / 8.1), (1,): pytest.approx(5.1 / 8.1)}


@given(seed=st.integers(0, 2**32 - 1))
def test_noise_never_makes_a_menu_that_is_too_small(seed: int) -> None:
    """Noise of at most 30, and margins that cover it: whatever was offered has the traffic it needs."""
    rng = np.random.default_rng(seed)
    true = by_hand(*rng.integers(0, 2_000, 6).tolist())
    noisy = {node: count + float(rng.integers(-30, 31)) for node, count in true.per_day.items()}
    traffic = Traffic(TREE, noisy, noise_sd=10.0, noise=discrete_laplace_margin)
    for counts in range(1, 5):
        assert discrete_laplace_margin(10.0, counts, traffic.failure / (3 * len(TREE))) > 30 * counts
    for menu in plan_cohorts(traffic, GOAL, DAY).menus:
        assert true.of_block(menu.block) >= GOAL.expected


def test_without_a_margin_noise_would() -> None:
    true = by_hand(tea=700, coffee=700, cake=700, yoga=700, chess=700, news=700)
    noisy = {node: count + 120 for node, count in true.per_day.items()}
    trusting = Traffic(TREE, {**noisy, "Food": 2_460, "Sport": 1_640, "*": 4_920})
    assert any(true.of_block(menu.block) < GOAL.expected for menu in plan_cohorts(trusting, GOAL, DAY).menus)


def sizes(hold: HoldRule, arrivals: list[int], menu: StoredMenu) -> list[int]:
    """Of the batches that the proxy forms of reports at these seconds, looking every second."""
    found, waiting = [], []
    for now in range(menu.opens, menu.expires + 1):
        waiting += [now] * arrivals.count(now)
        if waiting and hold.releases(WaitingReports(bytes(32), len(waiting), waiting[0]), menu, now):
            found.append(len(waiting))
            waiting = []
    assert not waiting
    return found


def test_the_proxy_must_keep_an_epoch_together() -> None:
    """With 1,000 reports in an epoch of ten minutes, a short wait leaves the last of them a batch too small."""
    leaf = DirectoryLeaf(
        Node((0,), ("A",)), Lane.PERSONAL, bytes(32), TokenPublicKey(b"\xff" * TOKEN_BYTES), GOAL.needed
    )
    menu = StoredMenu(leaf, epoch=0, opens=0, closes=600, expires=900)
    arrivals = [i * 600 // 1_000 for i in range(1_000)]
    assert sizes(HoldRule(), arrivals, menu) == [1_000]
    short = sizes(HoldRule(seconds=60), arrivals, menu)
    assert len(short) == 2
    assert short[1] < GOAL.needed


def test_the_shortest_epoch_among_those_that_hide_most() -> None:
    traffic = zipf_traffic(1e6, contexts=1_000, groups=10)
    plans = [plan_cohorts(traffic, LOOSE, epoch) for epoch in (60, 600, 3_600, DAY)]
    assert best_plan(plans, keep=1) is max(plans, key=lambda plan: plan.bits)
    assert best_plan(plans, keep=0).epoch_seconds == min(p.epoch_seconds for p in plans if p.hidden_share == 1)
    kept = best_plan(plans, keep="0.5")
    assert kept.bits >= 0.5 * plans[-1].bits
    assert all(plan.bits < 0.5 * plans[-1].bits for plan in plans if plan.epoch_seconds < kept.epoch_seconds)


def test_the_epsilon_that_a_few_reports_could_carry() -> None:
    found = epsilon_within(GOAL, 500.0)
    members = _assured(500.0, 0.01)
    assert cohort_needed(1, "1e-6", local_epsilon=found) <= members
    assert cohort_needed(1, "1e-6", local_epsilon=found + Fraction(1, 100)) > members
    assert epsilon_within(GOAL, 0.0) == 1  # alone, at the target itself
    assert epsilon_within(GOAL, 1e6) == 3


def test_refusals() -> None:
    nodes = ContextNodes.of(HIERARCHY, {"place": ["A", "B"]})
    with pytest.raises(BadInput, match="a count >= 0 for each of 2 rows"):
        Traffic.of_rows(nodes, [1, -1])
    with pytest.raises(BadInput, match="a count >= 0 for each of 2 rows"):
        Traffic.of_rows(nodes, [1])
    with pytest.raises(BadInput, match="days"):
        Traffic.of_rows(nodes, [1, 1], days=0)
    with pytest.raises(BadInput, match="at least one plan"):
        best_plan([])
    with pytest.raises(BadInput, match="epoch_seconds"):
        plan_cohorts(Traffic.of_rows(nodes, [1, 1]), GOAL, 0)
    with pytest.raises(BadInput, match="kind of noise"):
        plan_cohorts(Traffic(TREE, dict.fromkeys(TREE.nodes, 1.0), noise_sd=1.0), GOAL, DAY)
    for bad in ({"epsilon": 0}, {"target": -1}, {"delta": 0}, {"undersized": 1}, {"per_device": 0}):
        with pytest.raises(BadInput, match=next(iter(bad))):
            CohortGoal(**{"epsilon": 3, "target": 1, "delta": 1e-6, **bad})  # type: ignore[arg-type]
