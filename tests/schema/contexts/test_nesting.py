"""Levels nest: values that agree at one level agree at every coarser one, whatever the attribute.

This is what makes a coarse disclosure harmless next to a finer one, and gives a node one parent.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from tacit.schema.contexts.attributes import Attribute, Decimals, MetreCells
from tacit.schema.contexts.tree import ANYTHING
from tests.support.context_attributes import ATTRIBUTES, PLACES, FlooredAtEachLevel, Rounded, pairs


def nests(attribute: Attribute, one: Any, other: Any) -> bool:
    """Whether agreement, once reached, lasts; and the last level says nothing."""
    agree = [attribute.generalise(one, i) == attribute.generalise(other, i) for i in range(attribute.levels)]
    return agree == sorted(agree) and attribute.generalise(one, attribute.levels - 1) == ANYTHING


@pytest.mark.parametrize("kind", ATTRIBUTES)
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_values_that_agree_go_on_agreeing(kind: str, data: st.DataObject) -> None:
    one, other = data.draw(pairs(kind))
    assert nests(ATTRIBUTES[kind], one, other)
    assert nests(ATTRIBUTES[kind], one, one)


@pytest.mark.parametrize("twin", [Rounded(), FlooredAtEachLevel()])
def test_the_same_pairs_catch_levels_that_do_not_nest(twin: Attribute) -> None:
    """`find` raises where the pairs above have no power against the twin."""
    calm = settings(max_examples=20_000, derandomize=True, database=None, deadline=None)
    found = find(pairs("decimals"), lambda pair: not nests(twin, *pair), settings=calm)
    assert nests(Decimals("location", (2, 1, 0)), *found)


def test_rounding_to_the_nearest_splits_neighbours_again() -> None:
    near, nearer = (0.446, 0.0), (0.454, 0.0)  # both 0.45, which is 0.4 or 0.5 by where it came from
    assert not nests(Rounded(), near, nearer)
    assert nests(Decimals("location", (2, 1, 0)), near, nearer)


def test_products_of_doubles_split_neighbours_again() -> None:
    edge, beside = (0.0, -163.8), (0.0, -163.801)  # -163.8 times 100 is below -16380 as doubles go
    assert not nests(FlooredAtEachLevel(), edge, beside)
    assert nests(Decimals("location", (2, 1, 0)), edge, beside)


@given(PLACES, st.sampled_from([Decimals("location"), MetreCells("location", (None, 100, 500, 2_500))]))
def test_a_place_that_can_be_written_twice_is_said_once(place: tuple[float, float], kind: Attribute) -> None:
    latitude, longitude = place
    twice = {
        (latitude, -180.0): (latitude, 180.0),
        (0.0, longitude): (-0.0, longitude),
        (latitude, 0.0): (latitude, -0.0),
        (90.0, longitude): (90.0, 17.0),
        (-90.0, longitude): (-90, -3),
    }
    for one, other in twice.items():
        assert [kind.generalise(one, i) for i in range(kind.levels)] == [
            kind.generalise(other, i) for i in range(kind.levels)
        ]
