"""Menus: what they say, one spelling each by hypothesis, prices and reasons, and values that are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.bill.protocol.menus import (
    CONTEXT_BYTES,
    MOST_ENTRIES,
    MOST_MICROS,
    MOST_PRICE_MICROS,
    NOTHING,
    Lane,
    MenuEntry,
    PricedMenu,
    context_bytes,
    parse_context,
)
from tacit.errors import BadInput, BillRefused
from tacit.schema.contexts.hierarchy import Node
from tests.support import billing_messages as made
from tests.support.billing_spelling import menu_fields, spelled_context, spelled_menu

MENUS = made.menus_of_every_kind()
UTF8 = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
RATES = st.floats(0, 1)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    said = draw(st.lists(st.tuples(st.integers(0, 255), UTF8), min_size=1, max_size=4))
    node = Node(tuple(level for level, _ in said), tuple(value for _, value in said))
    return node if len(context_bytes(node)) <= CONTEXT_BYTES else Node((0,), ("long",))


@st.composite
def menus(draw: st.DrawFn) -> PricedMenu:
    campaigns = draw(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=6, unique=True))
    entries = tuple(
        MenuEntry(
            campaign, draw(st.integers(0, MOST_PRICE_MICROS)), draw(st.integers(0, MOST_MICROS)), draw(RATES),
            draw(st.integers(-3, 2**63 - 1)),
        )
        for campaign in campaigns
    )  # fmt: skip
    nothing = draw(st.booleans())
    tables = st.dictionaries(st.integers(1, len(entries)), RATES, max_size=3)
    menu = PricedMenu(
        epoch=draw(st.integers(0, 2**32 - 1)), lane=Lane.PERSONAL, node=draw(nodes()), entries=entries,
        rule=draw(UTF8), mechanism=draw(UTF8), epsilon_micros=draw(st.integers(0, 2**32 - 1)),
        smallest_cohort=draw(st.integers(1, 2**32 - 1)), reserve_micros=draw(st.integers(0, MOST_MICROS)),
        ctr_floor=draw(RATES), nothing_micros=draw(st.floats(0, MOST_MICROS)) if nothing else None,
        nothing_rank=draw(st.integers(0, len(entries))) if nothing else None,
        finer=draw(st.dictionaries(nodes(), tables, max_size=3)), prior=draw(UTF8),
    )  # fmt: skip
    return menu if draw(st.booleans()) else menu.public_lane()


@given(menus())
def test_any_menu_is_read_back_and_spelled_as_by_hand(menu: PricedMenu) -> None:
    found = PricedMenu.from_bytes(menu.data)
    assert found == menu
    assert found.menu_id == menu.menu_id
    assert spelled_menu(menu_fields(menu)) == menu.data


@given(menus(), menus())
def test_other_menus_have_other_ids(one: PricedMenu, other: PricedMenu) -> None:
    assert (one.menu_id == other.menu_id) == (one.data == other.data)


@given(nodes())
def test_contexts_are_read_back(node: Node) -> None:
    assert parse_context(context_bytes(node)) == node
    assert spelled_context(node) == context_bytes(node)


def test_contexts_have_one_spelling_whatever_stands_in_them() -> None:
    """Values that would run into each other if they were joined stay apart."""
    spelled = {
        context_bytes(Node((0, 0), pair))
        for pair in (("a", "bc"), ("ab", "c"), ("abc", ""), ("", "abc"), ("a\0b", "c"), ("a", "b\0c"))
    }
    assert len(spelled) == 6
    named = Node((0,), ("x",), ("a name that does not travel",))
    assert parse_context(context_bytes(named)) == named


def test_each_index_has_its_price_and_its_reason() -> None:
    menu = MENUS["personal"]
    assert [menu.price_micros(index) for index in range(5)] == [0, 1_500, 1_200, 500, None]
    assert menu.price_micros(-1) is None
    assert menu.price_micros(255) is None
    assert menu.reason(NOTHING) == "nothing was shown"
    assert menu.reason(1) == "second price per impression, public rank 1, price set by campaign 7"
    assert menu.reason(2) == "second price per impression, public rank 2, price set by the reserve"


def test_the_public_lane_reads_nothing_private() -> None:
    for menu in MENUS.values():
        public = menu.public_lane()
        assert public.lane is Lane.PUBLIC
        assert (public.entries, public.epsilon_micros) == (menu.entries[:1], 0)
        assert (public.finer, public.prior, public.nothing_rank, public.ctr_floor) == ({}, "{}", None, 0.0)


BAD_FIELDS: list[dict[str, Any]] = [
    {"epoch": -1}, {"epoch": 2**32}, {"epoch": True}, {"epoch": 1.5}, {"entries": ()},
    {"entries": tuple(MenuEntry(at, 0, 0, 0, 0) for at in range(MOST_ENTRIES + 1))},
    {"entries": (MenuEntry(1, 0, 0, 0, 0),) * 2}, {"epsilon_micros": -1}, {"epsilon_micros": 2**32},
    {"smallest_cohort": 0}, {"smallest_cohort": 2**32}, {"reserve_micros": -1},
    {"reserve_micros": MOST_MICROS + 1}, {"ctr_floor": float("nan")}, {"ctr_floor": -0.1}, {"ctr_floor": 1.1},
    {"ctr_floor": float("inf")}, {"nothing_rank": 0}, {"nothing_micros": 1.0},
    {"nothing_micros": float("nan"), "nothing_rank": 0}, {"nothing_micros": -1.0, "nothing_rank": 0},
    {"nothing_micros": float("inf"), "nothing_rank": 0}, {"nothing_micros": 1.0, "nothing_rank": 4},
    {"node": Node((0,), ("x" * 157,))}, {"node": Node((256,), ("x",))}, {"node": "Food"}, {"lane": "secret"},
    {"lane": Lane.PUBLIC}, {"finer": {made.COFFEE: {0: 0.5}}}, {"finer": {made.COFFEE: {4: 0.5}}},
    {"finer": {made.COFFEE: {1: float("nan")}}}, {"finer": {made.COFFEE: {1: 1.5}}},
    {"finer": {made.COFFEE: {1.5: 0.5}}},
]  # fmt: skip


@pytest.mark.parametrize("changed", BAD_FIELDS, ids=[str(at) for at in range(len(BAD_FIELDS))])
def test_menus_of_other_values_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="expected"):
        replace(MENUS["personal"], **changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"campaign": -1}, {"campaign": 2**63}, {"campaign": 1.0}, {"price_micros": -1},
        {"price_micros": MOST_PRICE_MICROS + 1}, {"price_micros": True}, {"bid_micros": MOST_MICROS + 1},
        {"rate": -0.1}, {"rate": 1.1}, {"rate": float("nan")}, {"setter": -4}, {"setter": 2**63},
    ],
)  # fmt: skip
def test_entries_of_other_values_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="expected"):
        replace(MenuEntry(1, 10, 20, 0.5, 3), **changed)


def test_the_public_lane_takes_no_private_choice() -> None:
    public = MENUS["public"]
    two = MENUS["personal"].entries[:2]
    changes: list[dict[str, Any]] = [
        {"epsilon_micros": 1}, {"entries": two}, {"nothing_micros": 0.0, "nothing_rank": 0},
    ]  # fmt: skip
    for changed in changes:
        with pytest.raises(BadInput, match="public lane"):
            replace(public, **changed)


def test_the_largest_menu_is_read_back() -> None:
    entries = tuple(MenuEntry(at, 1, 1, 0.5, -2) for at in range(MOST_ENTRIES))
    finer = {Node((0,), (f"{at}",)): {1: 0.5, MOST_ENTRIES: 1.0} for at in range(300)}
    menu = replace(
        MENUS["personal"], entries=entries, finer=finer, nothing_micros=0.0, nothing_rank=MOST_ENTRIES
    )
    assert PricedMenu.from_bytes(menu.data) == menu
    with pytest.raises(BadInput, match="fits its field"):
        _ = replace(menu, prior="x" * 65_536).data
    with pytest.raises(BillRefused):
        PricedMenu.from_bytes(menu.data[: len(menu.data) // 2])
