"""The bin that a device reports: of one candidate, normalised within its request, never beyond the ends."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.deliver.device.ratio_report import menu_ratio_bin, ratio_bin
from tacit.deliver.protocol.menu import NOTHING, Menu
from tacit.deliver.protocol.prices import Rules, SecondPrice
from tacit.deliver.protocol.ratio_bins import BINS, MIDDLE, RATIOS, WIDTH
from tacit.deliver.server.candidates import price_menu
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Node
from tacit.schema.impressions import RESERVE_PRICE


def at(place: int) -> Any:
    """Randomness that draws one candidate."""

    def uniform_below(n: int) -> int:
        assert 0 <= place < n
        return place

    return uniform_below


def test_bins_are_what_both_sides_agreed_on() -> None:
    assert (BINS, MIDDLE, WIDTH) == (17, 8, 0.25)
    assert RATIOS[MIDDLE] == 1.0
    assert (RATIOS[0], RATIOS[-1]) == (math.exp(-2), math.exp(2))
    assert [round(ratio, 3) for ratio in RATIOS] == [
        0.135, 0.174, 0.223, 0.287, 0.368, 0.472, 0.607, 0.779, 1.0, 1.284, 1.649, 2.117, 2.718, 3.49, 4.482,
        5.755, 7.389,
    ]  # fmt: skip


GOLDEN = [  # public, private, the bin of each candidate
    ([4.0, 2.0, 1.0], [4.0, 2.0, 1.0], [8, 8, 8]),
    ([4.0, 2.0, 1.0], [40.0, 20.0, 10.0], [8, 8, 8]),
    ([4.0, 2.0, 1.0], [1.0, 2.0, 4.0], [2, 8, 14]),
    ([4.0, 2.0, 1.0], [0.0, 0.0, 7.0], [0, 0, 16]),
    ([4.0, 2.0, 1.0], [0.0, 0.0, 0.0], [8, 8, 8]),
    ([4.0, 2.0, 1.0], [7.0, 0.0, 0.0], [10, 0, 0]),
    ([1.0, 1.0], [1.0, 1e-9], [11, 0]),
    ([1.0, 1.0], [1.0, 3.0], [5, 10]),
    ([1e-320, 1e-320], [1e300, 3e300], [5, 10]),
    ([3.0], [99.0], [8]),
]


@pytest.mark.parametrize(("public", "private", "expected"), GOLDEN)
def test_golden_bins(public: list[float], private: list[float], expected: list[int]) -> None:
    assert [ratio_bin(public, private, at(place)) for place in range(len(public))] == expected


SCORES = st.lists(
    st.tuples(st.floats(0.01, 100.0), st.floats(0.0, 100.0)), min_size=1, max_size=8
).map(lambda pairs: sorted(pairs, reverse=True))  # fmt: skip


@given(SCORES, st.floats(0.01, 1000.0), st.floats(0.01, 1000.0), st.data())
def test_what_all_candidates_share_moves_no_bin(
    pairs: list[tuple[float, float]], more: float, scale: float, data: st.DataObject
) -> None:
    public, private = (np.array(column) for column in zip(*pairs, strict=True))
    place = data.draw(st.integers(0, len(public) - 1))
    found = ratio_bin(public, private, at(place))
    assert 0 <= found < BINS
    # Of what lies on an edge, rounding decides.
    assert abs(ratio_bin(scale * public, more * private, at(place)) - found) <= 1


@given(SCORES, st.data())
def test_the_bin_is_that_of_the_normalised_ratio(pairs: list[tuple[float, float]], data: st.DataObject) -> None:
    public, private = (np.array(column) for column in zip(*pairs, strict=True))
    place = data.draw(st.integers(0, len(public) - 1))
    found = ratio_bin(public, private, at(place))
    if not private.any():
        assert found == MIDDLE
        return
    ratio = private[place] / public[place] / (private.sum() / public.sum())
    within = min(max(ratio, RATIOS[0]), RATIOS[-1])
    assert abs(math.log(within / RATIOS[found])) <= WIDTH / 2 + 1e-9


def test_each_candidate_is_drawn_alike_and_those_without_a_ratio_never() -> None:
    asked: list[int] = []

    def uniform_below(n: int) -> int:
        asked.append(n)
        return n - 1

    assert ratio_bin([2.0, 1.0, 0.0, 0.0], [1.0, 2.0, 9.0, 9.0], uniform_below) == 11
    assert asked == [2], "one draw, among the candidates that are worth something to somebody"


def test_of_a_menu_with_a_floor_nothing_is_not_drawn() -> None:
    menu = price_menu(
        Node((0,), ("here",)), [3, 5, 7], [100, 100, 100], [0.5, 0.4, 0.1], Rules(), ctr_floor=0.2
    )
    assert menu.ads.index(NOTHING) == 2
    asked: list[int] = []

    def last(n: int) -> int:
        asked.append(n)
        return n - 1

    rates = np.array([0.5, 0.4, 0.0, 0.1])
    assert menu_ratio_bin(menu, rates, last) == MIDDLE
    assert asked == [3]
    twice = menu_ratio_bin(menu, np.array([0.25, 0.8, 0.0, 0.1]), at(1))
    assert twice == ratio_bin([50.0, 40.0, 10.0], [25.0, 80.0, 10.0], at(1))


def test_no_menu_is_refused_on_some_devices_only() -> None:
    """Who does not answer would tell where it is: what is a hair below nothing's worth may be below zero."""
    columns = [400_000, 500_000, 0], [0.03, 0.02, 0.0], [0] * 3, [RESERVE_PRICE] * 3
    named: dict[str, Any] = {"price": SecondPrice(), "ctr_floor": 0.01}
    menu = Menu(Node((0,), ("here",)), [9, 7, NOTHING], *columns, nothing_micros=0.0, **named)
    for rates in ([0.03, 0.02, 0.0], [0.03, 0.0, 0.0], [0.0, 0.0, 0.0]):
        assert 0 <= menu_ratio_bin(menu, np.array(rates), at(0)) < BINS
    with pytest.raises(BadInput, match=r"worth at most 2\^53 micros"):
        Menu(Node((0,), ("here",)), [9, 7, NOTHING], *columns, nothing_micros=1e308, **named)


@pytest.mark.parametrize(
    ("public", "private", "says"),
    [
        ([2.0, 1.0], [1.0], "private score for each of 2"),
        ([2.0, 1.0], ["a", "b"], "private scores to be numbers"),
        ([2.0, 1.0], [1.0, -1.0], "private scores >= 0"),
        ([2.0, 1.0], [1.0, math.nan], "private scores >= 0"),
        ([2.0, 1.0], [1.0, math.inf], "private scores >= 0"),
        ([1.0, 2.0], [1.0, 1.0], "largest down"),
        ([0.0, 0.0], [1.0, 1.0], "public score above 0"),
        ([2.0, 1.0], [[1.0], [1.0, 2.0]], "private"),
    ],
)
def test_bad_scores_are_refused_without_saying_them(public: Any, private: Any, says: str) -> None:
    drawn: list[int] = []
    with pytest.raises(BadInput, match=says) as refused:
        ratio_bin(public, private, lambda n: drawn.append(n) or 0)  # type: ignore[func-returns-value]
    assert drawn == [], "nothing is drawn"
    assert "-1" not in str(refused.value)
