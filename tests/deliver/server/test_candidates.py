"""The server's answers: greedy sets for a disclosed node, from public data alone, with rates beside them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from tacit.deliver.device.choice import prepare_choice
from tacit.deliver.device.context import ClickHistory, DeviceContext
from tacit.deliver.device.local_choice import choose_locally
from tacit.deliver.device.wallet import BudgetPolicy
from tacit.deliver.protocol.factor_laws import Spread
from tacit.deliver.protocol.menu import NOTHING
from tacit.deliver.protocol.plans import Planner
from tacit.deliver.protocol.priors import ContextRatios
from tacit.deliver.server.candidates import CandidateServer
from tacit.deliver.server.moment_shrinkage import MomentShrinkage
from tacit.deliver.server.selection import IncrementalSelection
from tacit.deliver.server.shrinkage import BackOff, Shrinkage
from tacit.deliver.server.values import Bid
from tacit.errors import BadInput
from tacit.privacy.units import Window
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Node, Sequence
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import Tree
from tacit.schema.counts import Counts, LevelCounts

TOWN = Sequence(
    [Steps("place", Tree.of_paths(["Old>Cafe", "Old>Bakery", "New>Gym", "New>Pool"]))], [(0,), (1,), (2,)]
)
ADS = 6


def counted(rows: list[tuple[str, int]]) -> tuple[ContextNodes, Counts]:
    nodes = ContextNodes.of(TOWN, {"place": [place for place, _ in rows]})
    return nodes, Counts.of_rows(nodes, [ad for _, ad in rows], ads=ADS)


ROWS = [
    *[("Cafe", 0)] * 9, *[("Cafe", 1)] * 6, *[("Bakery", 2)] * 8, *[("Bakery", 1)] * 7, *[("Gym", 3)] * 5,
    *[("Gym", 1)] * 3, *[("Pool", 4)] * 4, *[("Pool", 3)] * 2,
]  # fmt: skip


def node(name: str) -> Node:
    return Node((2,) if name == "*" else (1,) if name in ("Old", "New") else (0,), (name,))


def everywhere(*micros: int) -> list[Bid]:
    return [Bid(ad, node("*"), each) for ad, each in enumerate(micros)]


def server(bids: list[Bid], ctr_floor: float = 0.0) -> CandidateServer:
    nodes, counts = counted(ROWS)
    return CandidateServer(nodes, counts, BackOff(1), bids, ctr_floor, fewest_requests=1)


def test_the_set_is_the_best_of_all_pairs_here_and_its_revenue_is_the_expected_one() -> None:
    answer = server(everywhere(*[100] * 5)).answer(node("*"), k=2)
    share = {place: sum(each == place for each, _ in ROWS) / len(ROWS) for place, _ in ROWS}
    rate = {
        place: np.bincount([ad for each, ad in ROWS if each == place], minlength=ADS)
        / sum(each == place for each, _ in ROWS)
        for place in share
    }

    def revenue(ads: tuple[int, ...]) -> float:
        return float(sum(share[place] * 100 * max(rate[place][ad] for ad in ads) for place in share))

    best_pair = max(map(revenue, combinations(range(5), 2)))
    assert answer.selection.revenue == pytest.approx(revenue(tuple(answer.selection.ads.tolist())))
    assert answer.selection.revenue >= (1 - 1 / np.e) * best_pair
    assert answer.selection.bound is not None
    assert answer.selection.bound >= best_pair - 1e-9


def test_a_device_below_gets_the_rates_of_its_own_context() -> None:
    answer = server(everywhere(*[100] * 5)).answer(node("*"), k=5)
    for place in ("Cafe", "Bakery", "Gym", "Pool"):
        me = DeviceContext.of(TOWN, (place,), (2,))
        own = np.bincount([ad for each, ad in ROWS if each == place], minlength=ADS)
        expected = own / own.sum()
        assert answer.menu.rates_along(me.below) == pytest.approx(expected[list(answer.menu.ads)])
        assert choose_locally(answer.menu, me, ClickHistory(((0,),))).ad == int(np.argmax(own))


def test_the_answer_to_a_node_is_the_same_for_everybody_below_it_and_speaks_of_nothing_else() -> None:
    answer = server(everywhere(*[100] * 5)).answer(node("Old"), k=5)
    assert set(answer.menu.ads) == {0, 1, 2}
    assert {each.values[0] for each in answer.menu.finer} == {"Cafe", "Bakery"}


def test_few_finer_rates_are_those_that_matter_most() -> None:
    ask = server(everywhere(*[100] * 5))
    whole = ask.answer(node("*"), k=5).menu
    none = ask.answer(node("*"), k=5, most_finer_rates=0).menu
    some = ask.answer(node("*"), k=5, most_finer_rates=4).menu
    assert none.finer == {}
    assert sum(map(len, some.finer.values())) == 4
    assert none.size_bytes() < some.size_bytes() < whole.size_bytes()

    def earned(sent: object) -> float:
        total = 0.0
        for place, ad in ROWS:
            shown = choose_locally(sent, DeviceContext.of(TOWN, (place,), (2,)), ClickHistory(((0,),)))  # type: ignore[arg-type]
            total += shown.ad == ad
        return total

    assert earned(none) < earned(some) <= earned(whole)


def test_bids_hold_below_their_node_and_the_most_specific_wins() -> None:
    bids = [*everywhere(100, 100, 100), Bid(1, node("Old"), 120), Bid(3, node("New"), 90)]
    ask = server(bids)
    old = ask.answer(node("Old"), k=5).menu
    assert dict(zip(old.ads, old.bid_micros.tolist(), strict=True)) == {0: 100, 1: 120}  # 2 adds nothing
    new = ask.answer(node("New"), k=5).menu
    assert dict(zip(new.ads, new.bid_micros.tolist(), strict=True)) == {3: 90}


def test_every_ad_has_its_own_price_and_one_without_counts_is_not_sent() -> None:
    nodes, counts = counted(ROWS)
    bids = [Bid(ad, node("*"), 700 - 100 * ad) for ad in range(ADS)]
    sent = CandidateServer(nodes, counts, Shrinkage(4.0), bids).answer(node("Old"), k=ADS).menu
    assert set(sent.ads) <= {0, 1, 2}  # the others were never clicked there, though their rates are not 0
    assert sent.bid_micros.tolist() == [700 - 100 * ad for ad in sent.ads]
    assert len(set(sent.bid_micros.tolist())) > 1


def test_a_bid_on_more_than_was_disclosed_does_not_hold() -> None:
    ask = server([*everywhere(100), Bid(1, node("Cafe"), 900)])
    assert ask.answer(node("Old"), k=5).menu.ads == (0,)
    assert ask.answer(node("Cafe"), k=5).menu.ads == (1,)  # 0 adds nothing to it there


def test_an_ad_below_the_floor_is_not_sent() -> None:
    assert set(server(everywhere(*[100] * 5)).answer(node("Old"), k=5).menu.ads) == {0, 1, 2}
    # Ad 1 has 6 of 15 clicks in the cafe and 7 of 15 in the bakery: below one half in both.
    sent = server(everywhere(*[100] * 5), ctr_floor=0.5).answer(node("Old"), k=5).menu
    assert set(sent.ads) == {0, 2, NOTHING}
    assert sent.ctr_floor == 0.5, "the device is told the floor, and may show nothing"


def test_a_price_for_sending_keeps_the_list_short() -> None:
    ask = server(everywhere(*[100] * 5))
    assert len(ask.answer(node("*"), k=5, price_per_ad=10).menu) < len(ask.answer(node("*"), k=5).menu)


def test_shrunk_rates_are_sent_as_they_are() -> None:
    nodes, counts = counted(ROWS)
    estimator = Shrinkage(4.0)
    answer = CandidateServer(nodes, counts, estimator, everywhere(*[100] * 5), fewest_requests=1).answer(
        node("Old"), k=3
    )
    cafe = nodes.id(node("Cafe"))
    expected = estimator.rates(counts, (0,), np.array([cafe]), np.array(answer.menu.ads)).rate[0]
    me = DeviceContext.of(TOWN, ("Cafe",), (1,))
    assert answer.menu.rates_along(me.below) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("asked", "k", "said"),
    [
        (Node((0,), ("Zoo",)), 1, "Zoo"),
        (node("Old"), 0, "k"),
        (Node((1,), ("Cafe",)), 1, "Cafe"),
    ],
)
def test_unknown_nodes_and_empty_lists_are_refused(asked: Node, k: int, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        server(everywhere(*[100] * 5)).answer(asked, k=k)


def test_nodes_without_paying_ads_and_prices_above_all_gains_are_refused_by_name() -> None:
    with pytest.raises(BadInput, match=r"node New: expected ads with statistics and a bid"):
        server([Bid(0, node("Old"), 100)]).answer(node("New"), k=1)
    with pytest.raises(BadInput, match=r"node Old: expected an ad that earns more"):
        server(everywhere(100)).answer(node("Old"), k=1, price_per_ad=1e9)


def test_a_context_without_statistics_is_refused_by_name() -> None:
    nodes = ContextNodes.of(TOWN, {"place": ["Cafe", "Gym"]})
    counts = Counts.of_rows(nodes, [0, 1], ads=ADS, rows=np.array([True, False]))
    with pytest.raises(BadInput, match="node New: expected"):
        CandidateServer(nodes, counts, BackOff(1), everywhere(1, 1)).answer(node("New"), k=1)


@pytest.mark.parametrize(
    ("bid", "said"),
    [
        (Bid(0, node("Old"), -1), "ad 0 on place Old|ad 0 on Old"),
        (Bid(ADS, node("Old"), 1), f"ad {ADS}"),
        (Bid(0, Node((1, 1), ("Old", "x")), 1), "levels of the hierarchy"),
    ],
)
def test_wrong_bids_are_refused_when_the_server_is_made(bid: Bid, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        server([bid])


@pytest.mark.parametrize(
    ("fewest", "noise_sd", "named"), [(1, 0, {"Cafe", "Bakery"}), (10, 0, {"Cafe"}), (10, 2, set())]
)
def test_places_where_few_were_are_not_named(fewest: float, noise_sd: float, named: set[str]) -> None:
    nodes, exact = counted([*[("Cafe", 0)] * 12, *[("Cafe", 1)] * 3, ("Bakery", 1)])
    counts = replace(
        exact, by_level={each: replace(level, noise_sd=noise_sd) for each, level in exact.by_level.items()}
    )
    server = CandidateServer(nodes, counts, Shrinkage(4.0), everywhere(100, 100), fewest_requests=fewest)
    assert {
        each.values[0] for each in server.answer(node("Old"), k=2).menu.finer if each.levels == (0,)
    } == named


def test_a_rest_is_answered_without_those_disclosed_by_themselves() -> None:
    ask = server(everywhere(*[100] * 5))
    rest = ask.answer(node("*"), k=5, without=(node("New"),))
    assert set(rest.menu.ads) == {0, 1, 2}
    assert {each.values[0] for each in rest.menu.finer} <= {"Old", "Cafe", "Bakery"}
    assert rest.selection.revenue == pytest.approx(ask.answer(node("Old"), k=5).selection.revenue)
    whole = dict(zip(rest.menu.ads, rest.menu.rates, strict=True))
    assert whole[1] == pytest.approx(13 / 30)  # in the cafe and the bakery
    with pytest.raises(BadInput, match="node Old: expected to leave out nodes below it, got New"):
        ask.answer(node("Old"), k=1, without=(node("New"),))


def test_answers_are_kept_and_parts_of_them_can_be_had_apart() -> None:
    ask = server(everywhere(*[100] * 5))
    answer = ask.answer(node("*"), k=3)
    assert ask.answer(node("*"), k=3) is answer
    kept = IncrementalSelection(ask.values(node("*")))
    assert kept.select(3).revenue == pytest.approx(answer.selection.revenue)
    again = ask.send(node("*"), kept.select(3).ads.tolist())
    assert (again.ads, again.bid_micros.tolist(), again.finer) == (
        answer.menu.ads, answer.menu.bid_micros.tolist(), answer.menu.finer,
    )  # fmt: skip
    with pytest.raises(BadInput, match="got ad 5"):
        ask.send(node("*"), [0, 5])


def noisy_town(sd: float, seed: int) -> tuple[ContextNodes, Counts]:
    """40 busy places and 960 that nobody visits, below one town; ad a is right in the places a, a + 4, ..."""
    tree = Tree.of_paths([*(f"Busy>b{at}" for at in range(40)), *(f"Empty>e{at}" for at in range(960))])
    town = Sequence([Steps("place", tree)], [(0,), (1,), (2,)])
    rows = [(f"b{at}", at % 4) for at in range(40) for _ in range(200)]
    places = [*(place for place, _ in rows), *(f"e{at}" for at in range(960))]
    nodes = ContextNodes.of(town, {"place": places})
    counted = np.arange(len(places)) < len(rows)
    exact = Counts.of_rows(nodes, [*(ad for _, ad in rows), *[0] * 960], ads=4, rows=counted)
    draws = np.random.default_rng(seed)
    by_level = {}
    for levels, level in exact.by_level.items():  # every (node, ad) is released, as noise has it
        ad = np.tile(np.arange(4), level.nodes)
        clicks = np.zeros((level.nodes, 4))
        clicks[level.entry_node, level.ad] = level.clicks
        by_level[levels] = LevelCounts(
            levels, level.nodes, 4,
            total=level.total + sd * draws.standard_normal(level.nodes),
            offsets=np.arange(level.nodes + 1) * 4, ad=ad,
            clicks=clicks.ravel() + sd * draws.standard_normal(4 * level.nodes), noise_sd=sd,
        )  # fmt: skip
    return nodes, replace(exact, by_level=by_level)


@pytest.mark.parametrize("seed", range(3))
def test_noise_does_not_make_empty_contexts_count(seed: int) -> None:
    """960 empty contexts with noise of 20 would seem to hold half of all requests."""
    nodes, counts = noisy_town(20.0, seed)
    root = Node((2,), ("*",))
    ask = CandidateServer(nodes, counts, MomentShrinkage(), [Bid(ad, root, 100) for ad in range(4)])
    values = ask.values(root)
    assert len(values.weight) == 40
    answer = ask.answer(root, k=4)
    assert answer.selection.revenue == pytest.approx(
        100, rel=0.15
    )  # the truth: every place has an ad at rate 1
    assert all(each.values[0][0] in "bB" for each in answer.menu.finer)


def test_with_too_much_noise_below_the_disclosed_node_itself_decides() -> None:
    nodes, counts = noisy_town(300.0, 1)
    root = Node((2,), ("*",))
    ask = CandidateServer(nodes, counts, MomentShrinkage(), [Bid(ad, root, 100) for ad in range(4)])
    assert len(ask.values(root).weight) <= 2


def test_as_few_ads_as_earn_what_is_asked_for() -> None:
    ask = server(everywhere(*[100] * 5))
    most = ask.answer(node("*"), k=5).selection
    for count in range(1, len(most.ads) + 1):
        wanted = float(most.gains[:count].sum()) * (1 - 1e-9)
        found = ask.answer(node("*"), k=5, revenue_at_least=wanted)
        assert found.selection.ads.tolist() == most.ads[:count].tolist()
        assert set(found.menu.ads) == set(found.selection.ads.tolist())
        assert ask.answer(node("*"), k=count, revenue_at_least=wanted).menu.ads == found.menu.ads
        if count > 1:
            with pytest.raises(BadInput, match=rf"expected room for {count} ads, .* got k = {count - 1}"):
                ask.answer(node("*"), k=count - 1, revenue_at_least=wanted)
    with pytest.raises(BadInput, match="at most what all ads together earn"):
        ask.answer(node("*"), k=5, revenue_at_least=1.01 * most.revenue)
    with pytest.raises(BadInput, match="a price per ad or the revenue to reach, got both"):
        ask.answer(node("*"), k=5, price_per_ad=1.0, revenue_at_least=1.0)


def test_the_coarsest_disclosure_that_earns_what_is_asked_for() -> None:
    """One ad a request: by place it is the favourite there, by quarter or for all of the town one for many."""
    ask = server([*everywhere(100, 100, 100, 100), Bid(4, node("New"), 100)])
    share = {place: sum(each == place for each, _ in ROWS) / len(ROWS) for place, _ in ROWS}
    below = {"*": tuple(share), "Old": ("Cafe", "Bakery"), "New": ("Gym", "Pool")}
    names = {(2,): ("*",), (1,): ("Old", "New"), (0,): tuple(share)}
    earns = {
        levels: sum(
            sum(share[place] for place in below.get(name, (name,)))
            * ask.answer(node(name), k=1).selection.revenue
            for name in at
        )
        for levels, at in names.items()
    }
    assert earns[2,] < earns[1,] < earns[0,]
    for levels, revenue in earns.items():
        found = ask.coarsest(1, revenue * (1 - 1e-9))
        assert found.level == levels
        assert found.revenue == pytest.approx(revenue)
        assert len(found.selections) == len(names[levels])
    with pytest.raises(BadInput, match="that some level reaches with 1 ads"):
        ask.coarsest(1, 1.01 * earns[0,])
    old = server([Bid(0, node("Old"), 100)]).coarsest(1, 1.0)  # nobody wants anything coarser than a quarter
    assert (old.level, len(old.selections)) == ((1,), 1), "and the other quarter earns nothing"


# Planning by what is known below.


def rates_in(place: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    own = np.bincount([ad for each, ad in ROWS if each == place], minlength=ADS)
    return np.asarray(own / own.sum())


def test_contexts_below_become_the_prior_with_their_chances() -> None:
    ask = server(everywhere(*[100] * 5))
    menu = ask.answer(node("*"), k=5).menu
    planned = ask.plan_below(menu)
    assert isinstance(planned.prior, ContextRatios)
    assert (planned.ads, planned.node) == (menu.ads, menu.node)
    assert np.array_equal(planned.price_micros, menu.price_micros)
    ads = list(menu.ads)
    found = {
        tuple(np.round(row, 9)): weight
        for row, weight in zip(planned.prior.ratios, planned.prior.weights, strict=False)
    }
    expected = {
        tuple(np.round(rates_in(place)[ads] / menu.rates, 9)): sum(each == place for each, _ in ROWS)
        / len(ROWS)
        for place in ("Cafe", "Bakery", "Gym", "Pool")
    }
    assert found == pytest.approx(expected)
    # What is expected of each ad over the contexts is what is public of it.
    scores = planned.prior.scores(menu.public_scores[None], len(ROWS))[:, 0]
    np.testing.assert_allclose(scores.mean(axis=1), menu.public_scores)


def test_rare_contexts_count_as_the_node_itself() -> None:
    ask = replace(server(everywhere(*[100] * 5)), fewest_requests=10)  # the gym has 8 requests, the pool 6
    prior = ask.plan_below(ask.answer(node("*"), k=5).menu).prior
    assert isinstance(prior, ContextRatios)
    assert len(prior.weights) == 3
    assert prior.ratios[-1] == (1.0,) * len(prior.ratios[0])
    assert prior.weights == pytest.approx((15 / 44, 15 / 44, 14 / 44))
    whole = server(everywhere(*[100] * 5))
    whole_prior = whole.plan_below(whole.answer(node("*"), k=5).menu).prior
    assert isinstance(whole_prior, ContextRatios)
    assert len(whole_prior.weights) == 4, "no fifth one with what rounding left"


def test_with_a_floor_nothing_is_no_ad_and_has_no_ratio() -> None:
    ask = server(everywhere(*[100] * 5), ctr_floor=0.2)
    menu = ask.answer(node("*"), k=5).menu
    assert NOTHING in menu.ads
    planned = ask.plan_below(menu)
    assert isinstance(planned.prior, ContextRatios)
    assert len(planned.prior.ratios[0]) == len(menu) - 1
    policy = BudgetPolicy(3.0, (3.0,), threshold=0.0, window=Window.days(1))
    choice, _ = prepare_choice(planned, Planner(), policy, policy.wallet(), now=0)
    assert choice.epsilon_spent in (0.0, 3.0)
    assert len(choice.pmf(np.asarray(planned.rates))) == len(menu)


def test_what_is_left_out_does_not_count_below_either() -> None:
    ask = server(everywhere(*[100] * 5))
    menu = ask.answer(node("*"), k=5, without=(node("New"),)).menu
    prior = ask.plan_below(menu, without=(node("New"),)).prior
    assert isinstance(prior, ContextRatios)
    assert prior.weights == pytest.approx((0.5, 0.5))


def test_where_nothing_is_known_below_there_is_no_such_prior() -> None:
    ask = server(everywhere(*[100] * 5))
    finest = ask.answer(node("Cafe"), k=5).menu
    rare = replace(ask, fewest_requests=100)
    for asked, menu in ((ask, finest), (rare, rare.answer(node("*"), k=5).menu)):
        with pytest.raises(BadInput, match="expected statistics of contexts below it to plan by, got none"):
            asked.plan_below(menu)


def test_menus_have_the_prior_of_their_server_one_for_all_or_by_node() -> None:
    assert server(everywhere(*[100] * 5)).answer(node("Old"), k=2).menu.prior == Spread()
    ask = replace(server(everywhere(*[100] * 5)), prior=Spread(0.2))
    assert ask.answer(node("Old"), k=2).menu.prior == Spread(0.2)
    by_node = replace(ask, prior=lambda where: Spread(0.1 if where == node("Old") else 0.9))
    assert by_node.answer(node("Old"), k=2).menu.prior == Spread(0.1)
    assert by_node.answer(node("*"), k=2).menu.prior == Spread(0.9)
