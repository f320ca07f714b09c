"""Rates as menus are made of them: of counts, of what lies above where nothing was counted, and fixed ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tacit.deliver.campaigns.campaign import BidEvent
from tacit.deliver.server.moment_shrinkage import MomentShrinkage
from tacit.deliver.server.rate_book import CountedRates, FixedRates
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Decimals, SetOf, Steps
from tacit.schema.contexts.hierarchy import Lattice, Node, Sequence
from tacit.schema.contexts.listed import list_nodes, node_above
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import Tree
from tacit.schema.counts import Counts

CITY = Tree.of_paths(["North > Northport", "North > Millbridge", "South > Southwick", "South > Harbour"])
TOPIC = Tree.of_paths(["Food > Coffee", "Food > Tea", "Sport > Running"])
HIERARCHY = Sequence((Steps("city", CITY), Steps("topic", TOPIC)), [(0, 0), (1, 1), (1, 2), (2, 2)])
CAMPAIGNS = (7, 9, 11)


def counted(rows: int = 4_000) -> tuple[ContextNodes, Counts]:
    """Impressions of three ads; nobody was ever in Harbour."""
    draws = np.random.default_rng(3)
    cities = np.array(["Northport", "Millbridge", "Southwick"])[draws.integers(3, size=rows)]
    topics = np.array(["Coffee", "Tea", "Running"])[draws.integers(3, size=rows)]
    ad = draws.integers(3, size=rows)
    chance = np.where((topics == "Running") == (ad == 1), 0.2, 0.02)
    nodes = ContextNodes.of(HIERARCHY, {"city": cities, "topic": topics})
    return nodes, Counts.of_rows(nodes, ad, 3, draws.random(rows) < chance)


NODES, COUNTS = counted()
BOOK = CountedRates(NODES, {BidEvent.CLICK: COUNTS}, CAMPAIGNS, version="1")


def at(levels: tuple[int, int], *values: str) -> Node:
    return Node(levels, values)


def test_rates_are_the_estimators() -> None:
    asked = [at((1, 1), "North", "Food"), at((0, 0), "Southwick", "Running")]
    found = BOOK.rates(asked, [11, 7], BidEvent.CLICK)
    for row, node in enumerate(asked):
        cells = MomentShrinkage().rates(COUNTS, node.levels, np.array([NODES.id(node)]), np.array([2, 0]))
        assert (found[row] == cells.rate[0]).all()
    assert (BOOK.rates(asked, [11, 7], BidEvent.IMPRESSION) == 1).all()


def test_rates_alone_are_those_that_come_with_their_errors() -> None:
    """In a chain of levels and in a lattice, of exact counts and of noisy ones."""
    lattice = Lattice(HIERARCHY.attributes)
    draws = np.random.default_rng(5)
    cities, topics = (draws.choice(tree.leaves(), 300).tolist() for tree in (CITY, TOPIC))
    in_lattice = ContextNodes.of(lattice, {"city": cities, "topic": topics})
    exact = Counts.of_rows(in_lattice, draws.integers(3, size=300), 3, draws.random(300) < 0.3)
    for counts in (COUNTS, exact):
        noisy = {
            levels: replace(level, noise_sd=2.0, clicks=level.clicks + draws.normal(0, 2, len(level.clicks)))
            for levels, level in counts.by_level.items()
        }
        for each in (counts, replace(counts, by_level=noisy)):
            for levels in each.levels:
                nodes, ads = np.arange(each.at(levels).nodes), np.arange(3)
                whole = MomentShrinkage().rates(each, levels, nodes, ads).rate
                assert (MomentShrinkage().only_rates(each, levels, nodes, ads) == whole).all()


def test_a_cell_does_not_depend_on_what_is_asked_beside_it() -> None:
    asked = list_nodes(HIERARCHY, HIERARCHY.levels(), 100)
    whole = BOOK.rates(asked, [11, 5, 7, 9], BidEvent.CLICK)
    for row, node in enumerate(asked):
        for column, campaign in enumerate((11, 5, 7, 9)):
            assert BOOK.rates([node], [campaign], BidEvent.CLICK)[0, 0] == whole[row, column]


def test_what_was_not_counted_has_the_rates_above_it() -> None:
    unseen, above = at((0, 0), "Harbour", "Tea"), at((1, 1), "South", "Food")
    assert (
        BOOK.rates([unseen], CAMPAIGNS, BidEvent.CLICK) == BOOK.rates([above], CAMPAIGNS, BidEvent.CLICK)
    ).all()
    level = COUNTS.by_level[2, 2]
    everything = float(level.clicks.sum() / level.shown.sum()) if level.shown is not None else 0
    assert BOOK.rates([above], [8], BidEvent.CLICK)[0, 0] == everything
    nobody = CountedRates(
        NODES,
        {BidEvent.CLICK: Counts.of_rows(NODES, np.zeros(NODES.rows, int), 1, rows=np.zeros(NODES.rows, bool))},
        [7],
        version="2",
    )
    assert nobody.rates([above], [7, 8], BidEvent.CLICK).tolist() == [[0.01, 0.01]]


def test_conversions_that_were_not_counted_follow_clicks() -> None:
    node = at((1, 1), "North", "Sport")
    clicks = BOOK.rates([node], CAMPAIGNS, BidEvent.CLICK)
    assert BOOK.rates([node], CAMPAIGNS, BidEvent.CONVERSION) == pytest.approx(clicks / 10)
    both = CountedRates(NODES, {BidEvent.CLICK: COUNTS, BidEvent.CONVERSION: COUNTS}, CAMPAIGNS, version="3")
    assert (both.rates([node], CAMPAIGNS, BidEvent.CONVERSION) == clicks).all()


def test_contexts_below_a_node_are_the_finest_that_were_counted_often_enough() -> None:
    below = BOOK.below(at((1, 1), "North", "Food"))
    assert {node.values for node in below.nodes} == {
        (c, t) for c in ("Northport", "Millbridge") for t in ("Coffee", "Tea")
    }
    total = COUNTS.by_level[0, 0].total
    held = [total[NODES.id(node)] for node in below.nodes]
    assert below.chance == pytest.approx(np.array(held) / sum(held))
    rare = CountedRates(NODES, {BidEvent.CLICK: COUNTS}, CAMPAIGNS, version="4", fewest_requests=900)
    assert rare.below(at((1, 1), "North", "Food")).nodes == ()
    assert BOOK.below(at((0, 0), "Northport", "Tea")).nodes == ()
    assert BOOK.below(at((0, 0), "Harbour", "Tea")).nodes == ()


def test_fixed_rates_are_the_same_everywhere() -> None:
    book = FixedRates(0.02, 0.005)
    assert book.rates([at((2, 2), "*", "*")], [1, 2], BidEvent.CLICK).tolist() == [[0.02, 0.02]]
    assert book.rates([at((2, 2), "*", "*")], [1], BidEvent.CONVERSION).tolist() == [[0.005]]
    assert book.rates([at((2, 2), "*", "*")], [1], BidEvent.IMPRESSION).tolist() == [[1.0]]
    assert book.version != FixedRates(0.02, 0.004).version


@pytest.mark.parametrize(
    ("campaigns", "counts", "said"),
    [
        ((7, 9), {BidEvent.CLICK: COUNTS}, "counts of click: expected 2 ads, .* got 3"),
        ((7, 9, 9), {BidEvent.CLICK: COUNTS}, "expected different campaigns, got one twice"),
        (CAMPAIGNS, {BidEvent.CONVERSION: COUNTS}, "expected counts of clicks"),
    ],
)
def test_counts_that_do_not_fit_are_refused(
    campaigns: tuple[int, ...], counts: dict[BidEvent, Counts], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        CountedRates(NODES, counts, campaigns, version="5")


def test_nodes_of_levels_are_listed_in_the_order_of_the_file() -> None:
    said = [node.values for node in list_nodes(HIERARCHY, [(1, 1), (2, 2)], 10)]
    assert said == [("North", "Food"), ("North", "Sport"), ("South", "Food"), ("South", "Sport"), ("*", "*")]
    with pytest.raises(BadInput, match=r"levels: expected at most 4 contexts, got 5 up to \[2, 2\]"):
        list_nodes(HIERARCHY, [(1, 1), (2, 2)], 4)
    places = Sequence((Decimals("where"), Steps("topic", TOPIC)), [(0, 0), (6, 0)])
    assert len(list_nodes(places, [(6, 0)], 10)) == 3
    with pytest.raises(BadInput, match="got where at level 0, which is no single node of a tree"):
        list_nodes(places, [(0, 0)], 10)


def test_the_node_above_is_what_every_context_in_it_says() -> None:
    for city in CITY.leaves():
        for topic in TOPIC.leaves():
            path = HIERARCHY.path((city, topic))
            for place, node in enumerate(path):
                for above in path[place:]:
                    assert node_above(HIERARCHY, node, above.levels) == above
                for finer in path[:place]:
                    assert node_above(HIERARCHY, node, finer.levels) is None
    assert node_above(HIERARCHY, at((0, 0), "Nowhere", "Tea"), (1, 1)) is None
    assert node_above(HIERARCHY, Node((0,), ("Tea",)), (1, 1)) is None
    several = Sequence((SetOf(Steps("topics", TOPIC), 2),), [(0,), (1,)])
    assert node_above(several, several.at((("Coffee", "Tea"),), (0,)), (1,)) == several.at((("Tea",),), (1,))
    places = Sequence((Decimals("where"),), [(0,), (3,), (6,)])
    cell = places.at(((61.2, -149.9),), (0,))
    assert node_above(places, cell, (3,)) is None
    assert node_above(places, cell, (6,)) == places.at(((1.0, 1.0),), (6,))
