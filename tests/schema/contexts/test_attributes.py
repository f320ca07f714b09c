"""What attributes say at each level, and the values they refuse without repeating them."""

from __future__ import annotations

import math
from decimal import localcontext
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import BadInput
from tacit.schema.contexts.attributes import (
    METRES_AROUND,
    Attribute,
    Decimals,
    MetreCells,
    SetOf,
    Steps,
    columns_of_band,
    latitude_bands,
)
from tacit.schema.contexts.tree import Tree
from tests.support.context_attributes import BUSINESSES, PLACES
from tests.support.random_trees import trees

QUERY = Steps("query", BUSINESSES)
INTEREST = SetOf(Steps("interest", BUSINESSES), most=3)


def said(attribute: Attribute, value: Any) -> list[str]:
    return [attribute.generalise(value, level) for level in range(attribute.levels)]


def test_decimals_round_down() -> None:
    anchorage = (61.22913, -149.912044)
    assert said(Decimals("location"), anchorage) == [
        "61.22913,-149.912044", "61.2291,-149.9121", "61.229,-149.913", "61.22,-149.92", "61.2,-150.0",
        "61,-150", "*",
    ]  # fmt: skip
    assert said(Decimals("location"), np.array(anchorage)) == said(Decimals("location"), anchorage)


@pytest.mark.parametrize(
    ("place", "cell"),
    [
        ((0.29, 8.7), "0.29,8.70"),  # 0.29 * 100 is 28.999999999999996
        ((-0.29, -8.7), "-0.29,-8.70"),
        ((-0.0, -1e-20), "0.00,-0.01"),
        ((90, 0), "89.99,0.00"),  # not a cell that holds the pole alone
        ((-90, 0), "-90.00,0.00"),
        ((0, 180), "0.00,-180.00"),
        ((0, math.nextafter(180, 0)), "0.00,179.99"),
    ],
)
def test_edges_belong_to_the_cell_that_they_are_written_as(place: tuple[float, float], cell: str) -> None:
    assert Decimals("location", (2,)).generalise(place, 0) == cell


@given(PLACES)
def test_a_decimal_cell_holds_its_places(place: tuple[float, float]) -> None:
    """The floor in exact arithmetic on the number as written, pole and antimeridian apart."""
    kind = Decimals("location", (9, 4, 0))
    for level, digits in enumerate((9, 4, 0)):
        for degrees, corner in zip(place, kind.generalise(place, level).split(","), strict=True):
            if abs(place[0]) != 90 and degrees != 180:
                assert 0 <= Fraction(repr(degrees)) - Fraction(corner) < Fraction(1, 10**digits)


def test_a_callers_decimal_context_does_not_move_cells() -> None:
    with localcontext() as context:
        context.prec = 2
        assert Decimals("location", (4,)).generalise((40.7061, -73.9969), 0) == "40.7061,-73.9969"


@given(PLACES)
def test_cells_hold_their_places_and_are_as_large_as_promised(place: tuple[float, float]) -> None:
    coarsest, latitude = 2_500, place[0]
    rows = latitude_bands(coarsest)
    size, row, column = MetreCells("location", (100, 500, coarsest)).generalise(place, 2).split(":")
    columns = columns_of_band(coarsest, int(row))
    assert size == "2500m"
    assert 0 <= int(row) < rows
    assert 0 <= int(column) < columns
    south, north = (edge / rows * 180 - 90 for edge in (int(row), int(row) + 1))
    assert south - 1e-9 <= latitude <= north + 1e-9
    assert METRES_AROUND / 2 / rows >= coarsest
    narrowest = METRES_AROUND * math.cos(math.radians(max(abs(south), abs(north)))) / columns
    assert narrowest >= coarsest or columns == 1
    if abs(latitude) < 80:
        assert narrowest < 1.01 * coarsest


def test_cells_are_measured_on_a_sphere_and_the_ellipsoid_has_slightly_shorter_rows() -> None:
    """The WGS84 radii of curvature: along the meridian, and of the parallel, at geodetic latitudes."""
    axis, flattening = 6_378_137.0, 1 / 298.257223563
    eccentricity = flattening * (2 - flattening)
    latitude = np.radians(np.linspace(0, 90, 10_001))
    bulge = 1 - eccentricity * np.sin(latitude) ** 2
    meridian = axis * (1 - eccentricity) / bulge**1.5
    across = axis / np.sqrt(bulge)
    sphere = METRES_AROUND / 2 / math.pi
    assert 0.994 < meridian.min() / sphere < 0.995
    assert across.min() / sphere > 1
    text = " ".join((MetreCells.__doc__ or "").split())
    assert "on a sphere" in text
    assert "rows are up to 0.6% shorter" in text


def test_finer_cells_divide_coarser_ones_evenly() -> None:
    kind = MetreCells("location", (100, 500, 2_500))
    fine, middle, coarse = (
        tuple(map(int, kind.generalise((40.7061, -73.9969), level).split(":")[1:])) for level in range(3)
    )
    assert middle == (fine[0] // 5, fine[1] // 5)
    assert coarse == (fine[0] // 25, fine[1] // 25)


def test_steps_go_up_and_short_branches_wait_for_the_longer_ones() -> None:
    assert said(QUERY, "Figure skating") == ["Figure skating", "Skating", "Ice", "Sport", "*"]
    assert said(QUERY, "Starbucks") == ["Starbucks", "Starbucks", "Coffee", "Food", "*"]
    assert said(QUERY, "Wine") == ["Wine", "Wine", "Wine", "Food", "*"]
    assert said(QUERY, "Park") == ["Park"] * 4 + ["*"]
    assert said(QUERY, "Coffee") == ["Coffee", "Coffee", "Coffee", "Food", "*"]
    assert said(QUERY, "*") == ["*"] * 5


@given(trees(most=20))
def test_an_inner_node_that_leaves_go_up_to_is_said_by_all_below_it(tree: Tree) -> None:
    steps = Steps("query", tree)
    for level in range(steps.levels - 1):
        told = {leaf: steps.generalise(leaf, level) for leaf in tree.leaves()}
        for node in set(told.values()) - {"*"}:
            assert {leaf for leaf, each in told.items() if each == node} == set(tree.leaves(node))


@given(st.integers(1, 4), st.integers(1, 3))
def test_in_an_even_tree_level_i_goes_i_steps_up(height: int, children: int) -> None:
    """As the paper says it: no branch is shorter than another."""
    paths = product(*(range(children) for _ in range(height)))
    names = [">".join(".".join(map(str, path[: i + 1])) for i in range(height)) for path in paths]
    tree = Tree.of_paths(names)
    steps = Steps("query", tree)
    assert steps.levels == height + 1
    for leaf in tree.leaves():
        assert said(steps, leaf) == list(tree.path(leaf))


def test_depths_cut_all_branches_at_the_same_depth() -> None:
    by_depth = Steps("query", BUSINESSES, (3, 2, 1))
    assert said(by_depth, "Figure skating") == ["Skating", "Ice", "Sport", "*"]
    assert said(by_depth, "Starbucks") == ["Starbucks", "Coffee", "Food", "*"]
    assert said(by_depth, "Wine") == ["Wine", "Wine", "Food", "*"]


def test_a_set_has_no_order_and_no_doubles() -> None:
    assert said(INTEREST, ["Wine", "Starbucks", "Park"]) == [
        "Park + Starbucks + Wine", "Park + Starbucks + Wine", "Coffee + Park + Wine", "Food + Park", "*",
    ]  # fmt: skip
    assert said(INTEREST, ("Park", "Park")) == said(INTEREST, {"Park"})
    assert said(INTEREST, []) == ["-"] * 4 + ["*"]


SECRET = "secret-place"


@pytest.mark.parametrize(
    ("attribute", "text", "value"),
    [
        (Decimals("location"), "37.75, -122.5", (37.75, -122.5)),
        (MetreCells("location"), "37.75,-122.5", (37.75, -122.5)),
        (QUERY, " Figure skating ", "Figure skating"),
        (INTEREST, "Wine, Park,", ("Wine", "Park")),
        (INTEREST, "", ()),
    ],
)
def test_each_kind_reads_what_was_typed(attribute: Attribute, text: str, value: object) -> None:
    assert attribute.parse(text) == value
    attribute.check(value)


@pytest.mark.parametrize("attribute", [Decimals("location"), MetreCells("location")])
@pytest.mark.parametrize("text", [SECRET, f"1,{SECRET}", "1,2,3", ""])
def test_a_text_that_is_no_point_is_refused_and_not_repeated(attribute: Attribute, text: str) -> None:
    with pytest.raises(BadInput, match="location: expected LATITUDE,LONGITUDE, got another text") as refusal:
        attribute.parse(text)
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize(
    ("attribute", "value", "expected"),
    [
        (Decimals("location"), (math.nan, 0.0), "location: expected latitude and longitude to be finite"),
        (MetreCells("location"), (0.0, math.inf), "location: expected latitude and longitude to be finite"),
        (Decimals("location"), (90.51234, 0.0), "location: expected latitude within 90"),
        (MetreCells("location"), (0.0, -180.51234), "location: expected latitude within 90"),
        (Decimals("location"), 40.51234, r"location: expected \(latitude, longitude\)"),
        (Decimals("location"), (1.0, 2.0, 3.0), r"location: expected \(latitude, longitude\)"),
        (Decimals("location"), (SECRET, 0.0), "location: expected latitude and longitude to be numbers"),
        (Decimals("location"), (True, 0.0), "location: expected latitude and longitude to be numbers"),
        (QUERY, SECRET, "query: expected a node of its tree, got a value that is not in it"),
        (QUERY, [SECRET], "query: expected a node of its tree, got a value that is not in it"),
        (INTEREST, [SECRET], "interest: expected nodes of its tree, got a value that is not in it"),
        (INTEREST, SECRET, "interest: expected a list of nodes, got something else"),
        (INTEREST, ["Park"] * 4, "interest: expected at most 3 values, got 4"),
    ],
)
def test_a_bad_value_is_refused_and_not_repeated(attribute: Attribute, value: Any, expected: str) -> None:
    for refuse in (attribute.check, lambda value: attribute.generalise(value, attribute.levels - 1)):
        with pytest.raises(BadInput, match=expected) as refusal:
            refuse(value)
        assert "\n" not in str(refusal.value)
        assert not any(mark in str(refusal.value) for mark in (SECRET, "51234", "nan"))


@pytest.mark.parametrize("attribute", [Decimals("location"), MetreCells("location")])
@pytest.mark.parametrize("level", [-1, 99])
def test_a_level_that_is_not_there_is_refused(attribute: Attribute, level: int) -> None:
    with pytest.raises(BadInput, match="location: expected a level from 0 to"):
        attribute.generalise((0.0, 0.0), level)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Decimals("location", (3, 4)), "expected location: digits to fall"),
        (lambda: Decimals("location", (3, None)), "to have the exact place first or not at all"),
        (lambda: Decimals("location", (-1,)), "each of location: digits to be a whole number >= 0"),
        (lambda: Decimals("location", (10,)), "expected at most 9 digits, got 10"),
        (lambda: Decimals("location", ()), "to be a list that is not empty"),
        (lambda: Decimals("", (1,)), "expected an attribute's name"),
        (
            lambda: MetreCells("location", (100, 250)),
            "a whole multiple of the one before, got 250 m after 100 m",
        ),
        (lambda: MetreCells("location", (100, 100)), "a whole multiple of the one before"),
        (lambda: MetreCells("location", (0,)), "a whole number >= 1, got 0"),
        (lambda: MetreCells("location", (20_000_000,)), "at most 10,000 km"),
        (lambda: Steps("query", BUSINESSES, (1, 2)), "expected query: depths to fall"),
        (lambda: Steps("query", BUSINESSES, (0,)), "a whole number >= 1, got 0"),
        (lambda: SetOf(QUERY, 0), "query: most to be a whole number >= 1"),
    ],
)
def test_attributes_that_cannot_be_meant_are_refused(make: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        make()


@pytest.mark.parametrize("name", ["-", "Fish + Chips"])
def test_a_set_refuses_nodes_that_read_like_several(name: str) -> None:
    with pytest.raises(BadInput, match="expected no node"):
        SetOf(Steps("interest", Tree.of({name: "*"})), 2)
