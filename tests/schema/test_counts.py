"""Counts of a log against a plain count, and what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import BadInput
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.counts import Counts, LevelCounts
from tests.support.small_contexts import ANY, LEAF, PLACES, TOP, counts_of, lattice, nodes_of

ROWS = st.lists(
    st.tuples(st.sampled_from(PLACES.leaves()), st.integers(0, 3), st.booleans()), min_size=1, max_size=40
)


def entries(level: LevelCounts) -> dict[tuple[int, int], tuple[float, float | None]]:
    shown = [None] * len(level.ad) if level.shown is None else level.shown.tolist()
    keys = zip(level.entry_node.tolist(), level.ad.tolist(), strict=True)
    return dict(zip(keys, zip(level.clicks.tolist(), shown, strict=True), strict=True))


@given(ROWS, st.booleans())
def test_rows_are_counted_at_every_level(rows: list[tuple[str, int, bool]], impressions: bool) -> None:
    nodes = nodes_of([(place, ad) for place, ad, _ in rows])
    ads, clicked = [ad for _, ad, _ in rows], [click for *_, click in rows]
    counts = Counts.of_rows(nodes, ads, 4, clicked if impressions else None)
    assert counts.levels == (LEAF, TOP, ANY)
    for levels in counts.levels:
        level, node = counts.at(levels), nodes.of_row(levels).tolist()
        assert level.total.tolist() == [node.count(i) for i in range(nodes.count(levels))]
        shown = Counter(zip(node, ads, strict=True))
        clicks = Counter((v, ad) for v, ad, click in zip(node, ads, clicked, strict=True) if click)
        expected = {
            key: (clicks[key], shown[key]) if impressions else (shown[key], None) for key in sorted(shown)
        }
        assert entries(level) == expected
    for (finer, coarser), above in counts.parent.items():  # totals add up along the parents
        summed = np.bincount(above, counts.at(finer).total, minlength=counts.at(coarser).nodes)
        assert summed.tolist() == counts.at(coarser).total.tolist()


def test_some_rows_are_counted_on_the_nodes_of_all() -> None:
    nodes = nodes_of([("Coffee", 0), ("Tea", 1), ("Run", 1)])
    counts = Counts.of_rows(nodes, [0, 1, 1], 2, rows=np.array([True, False, True]))
    seen = counts.at(LEAF)
    assert seen.nodes == 3
    assert seen.total[nodes.of_row(LEAF)].tolist() == [1.0, 0.0, 1.0]
    assert entries(seen) == {(int(nodes.of_row(LEAF)[i]), ad): (1.0, None) for i, ad in ((0, 0), (2, 1))}
    with pytest.raises(BadInput, match="expected a flag for each of 3 rows"):
        Counts.of_rows(nodes, [0, 1, 1], 2, rows=[0, 2])


def test_parents_skip_levels_that_are_left_out() -> None:
    counts = counts_of([("Coffee", 0), ("Run", 1)], 2, levels=[ANY, LEAF])
    assert counts.levels == (LEAF, ANY)
    assert counts.parents(LEAF) == (ANY,)
    assert counts.parents(ANY) == ()


def test_parents_of_a_lattice() -> None:
    nodes = ContextNodes.of(lattice(), {"where": ["North", "South"], "what": ["Tea", "Tea"]})
    counts = Counts.of_rows(nodes, [0, 1], 2)
    assert {levels: set(counts.parents(levels)) for levels in counts.levels} == {
        levels: set(lattice().parents(levels)) for levels in lattice().levels()
    }
    some = Counts.of_rows(nodes, [0, 1], 2, levels=[(0, 0), (1, 0), (1, 1)])
    assert some.parents((0, 0)) == ((1, 0),)


def test_nodes_are_named_where_names_are_known() -> None:
    counts = counts_of([("Coffee", 0)], 1)
    assert counts.name(LEAF, 0) == "place Coffee"
    assert Counts(counts.levels, counts.by_level, counts.parent).name(LEAF, 0) == "0 at (0,)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ad": [0, 4]}, "expected ads from 0 to 3"),
        ({"ad": [0]}, "expected the ads of 2 rows"),
        ({"ads": 0}, "expected ads to be a whole number >= 1"),
        ({"ad": [0, 1.7]}, "expected ads as whole numbers, got float64"),
        ({"ad": [0, np.nan]}, "expected ads as whole numbers, got float64"),
        ({"ad": ["0", "1"]}, "expected ads as whole numbers, got text"),
        ({"ad": [[0], [1, 2]]}, "expected ads as whole numbers, one per row, got lists of different lengths"),
        ({"clicked": ["1", "no"]}, "expected clicked as 0 or 1, got text"),
        ({"clicked": [1, np.nan]}, "expected clicked to be 0 or 1"),
        ({"clicked": [1, 2]}, "expected clicked to be 0 or 1"),
        ({"clicked": [1]}, "expected clicked to be 0 or 1"),
        ({"levels": [(7,)]}, "expected levels of the hierarchy"),
        ({"levels": [LEAF, LEAF]}, "expected levels of the hierarchy, each once"),
    ],
)
def test_bad_rows(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"ad": [0, 1], "ads": 4} | change
    with pytest.raises(BadInput, match=message):
        Counts.of_rows(nodes_of([("Coffee", 0), ("Tea", 1)]), **arguments)


GOOD: dict[str, Any] = {
    "levels": LEAF, "nodes": 2, "ads": 3, "total": np.array([5.0, 2.0]), "offsets": np.array([0, 2, 3]),
    "ad": np.array([0, 2, 1]), "clicks": np.array([1.0, 3.0, 2.0]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"total": np.array([5.0])}, r"level \(0,\): expected total of shape \(2,\)"),
        ({"total": np.array([5.0, np.nan])}, "expected finite total"),
        ({"offsets": np.array([0, 3, 2])}, "expected offsets that rise from 0 to 3"),
        ({"offsets": np.array([1, 2, 3])}, "expected offsets that rise"),
        ({"ad": np.array([0, 3, 1])}, "expected ads from 0 to 2"),
        ({"ad": np.array([2, 0, 1])}, "expected each node's ads in rising order"),
        ({"ad": np.array([2, 2, 1])}, "expected each node's ads in rising order"),
        ({"clicks": np.array([1.0, -3.0, 2.0])}, "expected exact counts >= 0"),
        ({"clicks": np.array([1.0, 6.0, 2.0])}, "expected at most one click per impression"),
        ({"shown": np.array([1.0, 2.0, 2.0])}, "expected at most one click per impression"),
        ({"shown": np.array([1.0, 2.0])}, "expected shown of shape"),
        ({"noise_sd": -1.0}, "expected noise_sd >= 0"),
    ],
)
def test_bad_counts(change: dict[str, Any], message: str) -> None:
    LevelCounts(**GOOD)
    with pytest.raises(BadInput, match=message):
        LevelCounts(**(GOOD | change))


def test_noisy_counts_may_be_negative() -> None:
    level = LevelCounts(**(GOOD | {"clicks": np.array([-8.0, 60.0, 2.0]), "noise_sd": 9.0}))
    assert level.opportunity_variance == 81.0
    with_shown = LevelCounts(**(GOOD | {"shown": np.array([4.0, 9.0, 2.0]), "noise_sd": 9.0}))
    assert with_shown.opportunity_variance == 162.0  # clicks and no-clicks carry noise each


def test_levels_and_parents_must_fit() -> None:
    counts = counts_of([("Coffee", 0), ("Run", 1)], 2)
    leaf, top = counts.at(LEAF), counts.at(TOP)
    with pytest.raises(BadInput, match="expected counts for the levels"):
        Counts((LEAF, TOP), {LEAF: leaf}, {})
    with pytest.raises(BadInput, match="expected parents of levels at later ones"):
        Counts((LEAF, TOP), {LEAF: leaf, TOP: top}, {(TOP, LEAF): np.zeros(2, np.int64)})
    with pytest.raises(BadInput, match="one of 2 parents"):
        Counts((LEAF, TOP), {LEAF: leaf, TOP: top}, {(LEAF, TOP): np.array([0, 2])})
    other = counts_of([("Coffee", 0), ("Run", 1)], 3).at(TOP)
    with pytest.raises(BadInput, match="expected as many ads at every level"):
        Counts((LEAF, TOP), {LEAF: leaf, TOP: other}, {})


def test_a_level_under_another_s_name_or_without_a_way_up_is_refused() -> None:
    counts = counts_of([("Coffee", 0), ("Tea", 1)], 2)
    swapped = dict(counts.by_level)
    swapped[LEAF], swapped[TOP] = swapped[TOP], swapped[LEAF]
    with pytest.raises(BadInput, match="expected its own counts, got those of"):
        replace(counts, by_level=swapped)
    cut_off = {pair: above for pair, above in counts.parent.items() if pair[0] != LEAF}
    with pytest.raises(BadInput, match="expected its parents at a coarser level, got none"):
        replace(counts, parent=cut_off)
