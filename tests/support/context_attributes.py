"""Attributes of contexts and their values, for the tests: ordinary ones and those at the edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tacit.schema.contexts.attributes import Attribute, Decimals, MetreCells, SetOf, Steps
from tacit.schema.contexts.tree import ANYTHING, Tree

BUSINESSES = Tree.of_paths(
    [
        "Food>Coffee>Starbucks",
        "Food>Coffee>Blue Bottle",
        "Food>Wine",
        "Sport>Ice>Skating>Figure skating",
        "Park",
    ]
)
ATTRIBUTES: dict[str, Attribute] = {
    "decimals": Decimals("location"),
    "decimals without the exact place": Decimals("location", (3, 1)),
    "nine decimals": Decimals("location", (9, 8, 4, 0)),
    "cells": MetreCells("location"),
    "cells under the exact place": MetreCells("location", (None, 37, 74, 2_220)),
    "huge cells": MetreCells("location", (1_000, 500_000, 5_000_000)),
    "steps": Steps("query", BUSINESSES),
    "depths": Steps("query", BUSINESSES, (3, 1)),
    "sets": SetOf(Steps("interest", BUSINESSES), most=3),
    "sets by depth": SetOf(Steps("interest", BUSINESSES, (2, 1)), most=3),
}

# Edges of decimal cells, their neighbours one double away, and places that can be written in two ways.
_edges = st.builds(lambda cells, digits: cells / 10**digits, st.integers(-900, 900), st.integers(1, 5))


def _degrees(most: float) -> st.SearchStrategy[float]:
    special = [0.0, -0.0, most, -most, 5e-324, -5e-324, -1e-20, 0.29, -0.29, 8.7, most - 1e-14, 1e-14 - most]
    near = st.builds(
        lambda at, by: min(max(at + by, -most), most), _edges, st.sampled_from([0.0, 1e-13, -1e-13])
    )
    return st.one_of(st.sampled_from(special), near, st.floats(-most, most))


PLACES = st.tuples(_degrees(90.0), _degrees(180.0))
NODES = st.sampled_from(BUSINESSES.nodes)


@st.composite
def _close_places(draw: st.DrawFn) -> tuple[tuple[float, float], tuple[float, float]]:
    """Two places that often share a cell: chance alone would seldom find such a pair."""
    latitude, longitude = draw(PLACES)
    by = st.sampled_from([0.0, 1e-13, -1e-13, 1e-5, -1e-4, 0.003, -0.04, 0.5])
    moved = latitude + draw(by), longitude + draw(by)
    return (latitude, longitude), (min(max(moved[0], -90.0), 90.0), min(max(moved[1], -180.0), 180.0))


def pairs(kind: str) -> st.SearchStrategy[tuple[Any, Any]]:
    """Two values of an attribute."""
    if "sets" in kind:
        several = st.lists(NODES, max_size=3)
        return st.tuples(several, several)
    return st.tuples(NODES, NODES) if kind in ("steps", "depths") else _close_places()


@dataclass(frozen=True)
class Rounded:
    """A twin that must fail: each level rounds the place to the nearest, so that cells overlap."""

    name: str = "location"
    digits: tuple[int, ...] = (2, 1, 0)

    @property
    def levels(self) -> int:
        return len(self.digits) + 1

    def check(self, value: Any) -> None:
        del value

    def parse(self, text: str) -> tuple[float, ...]:
        return tuple(map(float, text.split(",")))

    def generalise(self, value: Any, level: int) -> str:
        if level == len(self.digits):
            return ANYTHING
        return ",".join(f"{round(each, self.digits[level]) + 0.0:.{self.digits[level]}f}" for each in value)


@dataclass(frozen=True)
class FlooredAtEachLevel(Rounded):
    """A twin that must fail: floors of the double's products, level by level: 8.7 is in 8.7, 8.70 in 8.69."""

    def generalise(self, value: Any, level: int) -> str:
        if level == len(self.digits):
            return ANYTHING
        scale = 10 ** self.digits[level]
        return ",".join(str(each * scale // 1) for each in value)
