"""Menus made of campaigns: held to plain words, and to a build from nothing after any change."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.bill.protocol.menus import MOST_PRICE_MICROS, Lane, PricedMenu
from tacit.deliver.campaigns.campaign import (
    ALWAYS,
    AdCampaign,
    BidEvent,
    CampaignStatus,
    ContextBid,
    Schedule,
)
from tacit.deliver.protocol.packs import is_excluded
from tacit.deliver.server.competition import MenuRules
from tacit.deliver.server.market import MenuMarket
from tacit.deliver.server.rate_book import FixedRates, RateBook
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Node
from tacit.schema.contexts.listed import ListedNodes
from tests.support.menu_markets import EVERYWHERE, HIERARCHY, NODES, DrawnRates, plain_menu

OPENS, CLOSES = 4 * 86_400, 4 * 86_400 + 5  # a Monday's first seconds
STRANGE = (Node((0, 0), ("Nowhere", "Tea")), Node((0,), ("Tea",)))
CATEGORIES = ("IAB1", "IAB8-5", "IAB8")

bids = st.lists(
    st.tuples(st.sampled_from([None, *EVERYWHERE, *STRANGE]), st.sampled_from([10_000, 20_000, 40_000])),
    min_size=1, max_size=4, unique_by=lambda each: each[0],
)  # fmt: skip


@st.composite
def campaigns(draw: st.DrawFn, number: int | None = None) -> AdCampaign:
    return AdCampaign(
        draw(st.integers(0, 9)) if number is None else number,
        "Bean & Leaf",
        "Spring",
        draw(st.sampled_from([BidEvent.CLICK, BidEvent.CLICK, BidEvent.CONVERSION, BidEvent.IMPRESSION])),
        tuple(ContextBid(micros, node) for node, micros in draw(bids)),
        draw(st.sampled_from([CampaignStatus.ACTIVE] * 4 + [CampaignStatus.PAUSED])),
        draw(
            st.sampled_from(
                [ALWAYS, ALWAYS, Schedule(ends=OPENS + 3), Schedule(starts=OPENS), Schedule(hours=(0,))]
            )
        ),
        categories=tuple(draw(st.lists(st.sampled_from(CATEGORIES), max_size=1))),
        blocked=tuple(draw(st.lists(st.sampled_from([*EVERYWHERE, *STRANGE]), max_size=1))),
    )


rules = st.builds(
    MenuRules,
    epsilon=st.just(1),
    smallest_cohort=st.just(5),
    candidates=st.integers(1, 4),
    price_per_ad=st.sampled_from([0.0, 0.0, 50.0]),
    ctr_floor=st.sampled_from([0.0, 0.0, 0.01]),
    cutoff=st.sampled_from([1.0, 1.0, 0.5]),
    reserve_micros=st.sampled_from([0, 100]),
    exclude=st.sampled_from([(), ("IAB8",)]),
    exclude_in=st.sampled_from([{}, {NODES[0]: ("IAB1",)}]),
)
books = st.builds(DrawnRates, st.sampled_from("abc"), steps=st.sampled_from([3, 1_000]), below=st.booleans())


def made(offered: list[PricedMenu]) -> dict[Node, list[tuple[int, int, int | None]]]:
    return {
        menu.node: [
            (entry.campaign, entry.price_micros, entry.setter if entry.setter >= 0 else None)
            for entry in menu.entries
        ]
        for menu in offered
        if menu.lane is Lane.PERSONAL
    }


def market_of(known: dict[int, AdCampaign], rules: MenuRules, book: RateBook) -> MenuMarket:
    market = MenuMarket(ListedNodes(HIERARCHY, NODES), rules, book)
    market.change(known.values())
    return market


@settings(max_examples=40, deadline=None)
@given(
    st.lists(campaigns(), max_size=9), rules, books, st.dictionaries(st.integers(0, 9), st.integers(0, 3_000))
)
def test_menus_are_those_of_the_plain_words(
    listed: list[AdCampaign], rules: MenuRules, book: DrawnRates, left: dict[int, int]
) -> None:
    known = {each.number: each for each in listed}
    without = {NODES[1]: frozenset({0, 1, 2})}
    found = made(market_of(known, rules, book).menus(3, OPENS, CLOSES, left, without))
    for node in NODES:
        expected = plain_menu(node, known.values(), rules, book, without.get(node, ()), left, OPENS, CLOSES)
        assert found.get(node, []) == expected


@settings(max_examples=40, deadline=None)
@given(st.data(), rules, books)
def test_after_any_changes_menus_are_those_of_a_build_from_nothing(
    data: st.DataObject, rules: MenuRules, book: DrawnRates
) -> None:
    known = {number: data.draw(campaigns(number)) for number in range(10)}
    market = market_of(known, rules, book)
    for _ in range(3):
        left = data.draw(st.dictionaries(st.integers(0, 9), st.integers(0, 3_000), max_size=2))
        now = market.menus(3, OPENS, CLOSES, left, {})
        assert now == market_of(known, rules, book).menus(3, OPENS, CLOSES, left, {})
        new = {each.number: each for each in data.draw(st.lists(campaigns(), max_size=2))}
        gone = data.draw(st.sets(st.integers(0, 9), max_size=1)) - new.keys()
        market.change(new.values(), gone)
        known = {number: each for number, each in (known | new).items() if number not in gone}
        if data.draw(st.integers(0, 5)) == 0:
            book = data.draw(books)
            market.use(book)
    assert market.menus(4, OPENS, CLOSES, {}, {}) == market_of(known, rules, book).menus(
        4, OPENS, CLOSES, {}, {}
    )


def test_a_campaign_that_suits_one_context_below_gets_in_by_its_gain_there() -> None:
    """Many campaigns, few of which are ranked: what a change touches is found by the steps of greedy choice."""
    draws, rules = np.random.default_rng(7), replace(PLAIN, candidates=3)
    book = DrawnRates("many", steps=1_000)
    known = {number: bean(number, int(draws.integers(10_000, 90_000))) for number in range(60)}
    market, unlike = market_of(known, rules, book), 0
    for _ in range(25):
        before = market.menus(1, OPENS, CLOSES, {}, {})
        new = {
            number: bean(number, int(draws.integers(10_000, 120_000)))
            for number in draws.choice(60, 2).tolist()
        }
        known |= new
        market.change(new.values())
        after = market.menus(1, OPENS, CLOSES, {}, {})
        assert after == market_of(known, rules, book).menus(1, OPENS, CLOSES, {}, {})
        unlike += sum(one != other for one, other in zip(before, after, strict=True))
    assert unlike > 20


def bean(number: int, micros: int, node: Node | None = None, **more: object) -> AdCampaign:
    return replace(
        AdCampaign(number, "Bean & Leaf", "Spring", BidEvent.CLICK, (ContextBid(micros, node),)),
        **more,  # type: ignore[arg-type]
    )


PLAIN = MenuRules(epsilon=Fraction(1), smallest_cohort=5)


def offered(market: MenuMarket, node: Node = NODES[0]) -> list[tuple[int, int, int | None]]:
    return made(market.menus(1, OPENS, CLOSES, {}, {})).get(node, [])


def test_scores_are_bids_times_rates_and_prices_those_of_the_next() -> None:
    known = [bean(1, 400_000), bean(2, 300_000), bean(3, 20, event=BidEvent.IMPRESSION)]
    market = market_of({each.number: each for each in known}, PLAIN, FixedRates(0.01, 0.001))
    assert offered(market) == [(1, 3_000, 2), (2, 20, 3), (3, 0, None)]
    market.change([replace(known[0], event=BidEvent.CONVERSION)])
    assert offered(market) == [(2, 400, 1), (1, 20, 3), (3, 0, None)]


def test_an_ad_that_is_not_sent_still_makes_a_price() -> None:
    known = {number: bean(number, 1_000_000 - 100_000 * number) for number in range(5)}
    market = market_of(known, replace(PLAIN, candidates=2), FixedRates(0.01))
    assert offered(market) == [(0, 9_000, 1), (1, 8_000, 2)]


def test_a_change_that_cannot_matter_keeps_the_very_menu() -> None:
    known = {number: bean(number, 1_000_000 - 100_000 * number) for number in range(6)}
    market = market_of(known, replace(PLAIN, candidates=2), FixedRates(0.01))
    before = market.menus(1, OPENS, CLOSES, {}, {})
    kept = [made[b""].menu for made in market._made]
    assert market.change([bean(5, 300_000), bean(7, 100_000)], [4]) == len(NODES)
    assert market.menus(1, OPENS, CLOSES, {}, {}) == before
    assert all(new[b""].menu is old for new, old in zip(market._made, kept, strict=True))
    market.change([bean(7, 850_000)])
    assert offered(market) == [(0, 9_000, 1), (1, 8_500, 7)]


def test_a_schedule_counts_only_if_it_runs_for_as_long_as_the_menu_is_offered() -> None:
    runs = Schedule(OPENS, CLOSES)
    market = market_of({1: bean(1, 400_000, schedule=runs), 2: bean(2, 400_000)}, PLAIN, FixedRates())
    assert [each[0] for each in offered(market)] == [1, 2]
    for opens, closes in ((OPENS - 1, CLOSES), (OPENS, CLOSES + 1)):
        assert [each[0] for each in made(market.menus(1, opens, closes, {}, {}))[NODES[0]]] == [2]


def test_a_bid_that_no_price_can_hold_takes_no_part() -> None:
    dear = {n: bean(n, MOST_PRICE_MICROS + 1, event=BidEvent.IMPRESSION) for n in (1, 2)}
    market = market_of({**dear, 3: bean(3, MOST_PRICE_MICROS, event=BidEvent.IMPRESSION)}, PLAIN, FixedRates())
    assert offered(market) == [(3, 0, None)]


def test_what_is_blocked_is_shown_in_no_menu_that_has_a_context_in_common_with_it() -> None:
    food = Node((2, 1), ("*", "Food"))
    market = market_of({1: bean(1, 400_000, blocked=(food,))}, PLAIN, FixedRates())
    found = made(market.menus(1, OPENS, CLOSES, {}, {}))
    assert {node.values for node in found} == {("North", "Sport"), ("South", "Sport"), ("*", "Sport")}


def test_finer_rates_are_those_that_devices_would_be_most_off_without() -> None:
    book = DrawnRates("finer", steps=1_000)
    known = {number: bean(number, 400_000) for number in range(4)}
    menus = market_of(known, replace(PLAIN, finer_rates=3), book).menus(1, OPENS, CLOSES, {}, {})
    menu = next(each for each in menus if each.node == NODES[0])
    below, sent = book.below(menu.node), [entry.campaign for entry in menu.entries]
    worth = sorted(
        (
            (
                chance * abs(book.rate(leaf, ad, BidEvent.CLICK) - book.rate(menu.node, ad, BidEvent.CLICK)),
                leaf,
                ad,
            )
            for leaf, chance in zip(below.nodes, below.chance.tolist(), strict=True)
            for ad in sent
        ),
        reverse=True,
    )
    told = {(leaf, sent[index - 1]) for leaf, table in menu.finer.items() for index in table}
    assert told == {(leaf, ad) for _, leaf, ad in worth[:3]}
    assert not market_of(known, replace(PLAIN, finer_rates=0), book).menus(1, OPENS, CLOSES, {}, {})[0].finer


def test_categories_are_excluded_with_all_below_them() -> None:
    assert is_excluded(["IAB8-5-1"], ["IAB8-5"])
    assert not is_excluded([], ["IAB8"])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"candidates": 251}, "candidates: expected at most 250, got 251"),
        ({"candidates": 0}, "candidates"),
        ({"cutoff": 1.5}, "cutoff"),
        ({"price_per_ad": -1}, "price_per_ad"),
        ({"ctr_floor": 2}, "ctr_floor"),
        ({"finer_rates": -1}, "finer_rates"),
    ],
)
def test_rules_that_cannot_be_meant_are_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        MenuRules(epsilon=1, smallest_cohort=5, **wrong)  # type: ignore[arg-type]
