"""Attributes of a context, from exact to nothing: nodes of a tree, sets of them, and points on the globe.

Trees coarsen categories. Points are coarsened to cells that nest: by decimals of the degree, or by metres.
A place is written in one way only: -0.0 is 0.0, the meridian 180 is -180, and a pole has longitude 0.

>>> Decimals("location").generalise((61.22913, -149.912044), 4)
'61.2,-150.0'
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from functools import lru_cache
from numbers import Real
from typing import Any, Protocol

from tacit import expect
from tacit.errors import BadInput
from tacit.schema.contexts.tree import ANYTHING, Tree

BETWEEN, NONE = " + ", "-"  # how a set of values is written


class Attribute(Protocol):
    """One thing that is known about a moment, from exact (level 0) to nothing (the last level, ANYTHING).

    Levels nest: what a level says follows from what any finer level says. Two values that agree at one level
    agree at every coarser one, so disclosing a coarse level next to a fine one tells nothing more, and a
    node has one parent. A kind that breaks this (rounding to the nearest does) must not be one.

    A value is a person's own, so a refusal never repeats it.
    """

    @property
    def name(self) -> str: ...

    @property
    def levels(self) -> int:
        """How many there are, the last among them."""

    def check(self, value: Any) -> None:
        """Refuse a value that is not of this attribute."""

    def generalise(self, value: Any, level: int) -> str:
        """What may be said of the value at this level; refuses what `check` does."""

    def parse(self, text: str) -> Any:
        """The value that a person wrote so, which `check` may still refuse."""


@dataclass(frozen=True)
class Steps:
    """A node of a tree, inner or leaf. Level i keeps at most depths[i] steps below the root, which is ANYTHING.

    By default these are all depths, the deepest first: where all leaves are equally deep, level i goes i steps
    up from each. Where they are not, a value at depth d is told exactly at the levels that keep d steps or
    more, and goes up with its longer neighbours from there. So an inner node that leaves go up to is said by
    all that lies below it. Steps counted from each leaf would not do that: with a clinic at depth 2 and shops
    at depth 3, "Health" one step up would be said by the clinic alone, and mean the clinic.
    """

    name: str
    tree: Tree
    depths: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_attribute_name(self.name)
        if self.depths is not None:
            object.__setattr__(self, "depths", check_falling(f"{self.name}: depths", self.depths, at_least=1))

    @property
    def levels(self) -> int:
        return len(self._depths) + 1

    def check(self, value: Any) -> None:
        if value not in self.tree:
            raise BadInput(f"{self.name}: expected a node of its tree, got a value that is not in it")

    def generalise(self, value: Any, level: int) -> str:
        self.check(value)
        return ANYTHING if is_last_level(self, level) else self.ancestor(value, level)

    def ancestor(self, node: str, level: int) -> str:
        """What a node of the tree becomes at a level before the last."""
        for _ in range(self.tree.depth(node) - self._depths[level]):
            node = self.tree.parent(node) or node
        return ANYTHING if node == self.tree.root else node

    def parse(self, text: str) -> str:
        return text.strip()

    @property
    def _depths(self) -> Sequence[int]:
        return range(self.tree.height, 0, -1) if self.depths is None else self.depths


@dataclass(frozen=True)
class SetOf:
    """Several nodes of a tree at once, at most `most`; each goes up by itself, and equals become one."""

    of: Steps
    most: int

    def __post_init__(self) -> None:
        expect.having("of", self.of, "tree", "an attribute with a tree")
        object.__setattr__(self, "most", expect.whole(f"{self.name}: most", self.most, at_least=1))
        for node in self.of.tree.nodes:
            if BETWEEN in node or node == NONE:
                raise BadInput(
                    f"{self.name}: expected no node named {NONE!r} or with {BETWEEN!r}, got {node!r}"
                )

    @property
    def name(self) -> str:
        return self.of.name

    @property
    def levels(self) -> int:
        return self.of.levels

    def check(self, value: Any) -> None:
        if isinstance(value, str) or not isinstance(value, list | tuple | frozenset | set):
            raise BadInput(f"{self.name}: expected a list of nodes, got something else")
        if len(value) > self.most:
            raise BadInput(f"{self.name}: expected at most {self.most} values, got {len(value)}")
        tree = self.of.tree
        if not all(each in tree for each in value):
            raise BadInput(f"{self.name}: expected nodes of its tree, got a value that is not in it")

    def generalise(self, value: Any, level: int) -> str:
        self.check(value)
        if is_last_level(self, level):
            return ANYTHING
        return BETWEEN.join(sorted({self.of.ancestor(each, level) for each in value})) or NONE

    def parse(self, text: str) -> tuple[str, ...]:
        """With commas between them."""
        return tuple(part.strip() for part in text.split(",") if part.strip())


def is_last_level(attribute: Attribute, level: int) -> bool:
    """Whether nothing is said at this level; refuses one that is not there."""
    last = attribute.levels - 1
    if not 0 <= level <= last:
        raise BadInput(f"{attribute.name}: expected a level from 0 to {last}, got {level!r}")
    return level == last


def check_falling(name: str, numbers: Any, *, at_least: int) -> tuple[int, ...]:
    """Whole numbers, each less than the one before."""
    if isinstance(numbers, str) or not isinstance(numbers, Sequence) or not numbers:
        raise BadInput(f"expected {name} to be a list of whole numbers, got {numbers!r}")
    found = tuple(expect.whole(f"each of {name}", each, at_least=at_least) for each in numbers)
    if any(later >= earlier for earlier, later in itertools.pairwise(found)):
        raise BadInput(f"expected {name} to fall, the finest first, got {list(found)}")
    return found


def check_attribute_name(name: Any) -> None:
    if not isinstance(name, str) or not name.strip():
        raise BadInput(f"expected an attribute's name to be a text that is not empty, got {name!r}")


METRES_AROUND = 40_030_228.884  # 2 pi times the mean radius of the Earth, 6,371,008.8 m
MOST_DIGITS = 9  # a tenth of a millimetre
_FLOOR = Context(prec=60, rounding=ROUND_FLOOR)  # our own: a caller's decimal context must not move cells


@dataclass(frozen=True)
class PointAttribute(ABC):
    """A (latitude, longitude): exact where a level's size is None, else as the cell of that size."""

    name: str

    @property
    @abstractmethod
    def sizes(self) -> tuple[int | None, ...]:
        """Of every level but the last, which is ANYTHING."""

    @abstractmethod
    def cell(self, latitude: float, longitude: float, size: int) -> str:
        """The cell of this size that a place is in; cells of rising sizes nest."""

    @property
    def levels(self) -> int:
        return len(self.sizes) + 1

    def check(self, value: Any) -> None:
        normalise_place(self.name, value)

    def parse(self, text: str) -> tuple[float, float]:
        return parse_place(self.name, text)

    def generalise(self, value: Any, level: int) -> str:
        latitude, longitude = normalise_place(self.name, value)
        if is_last_level(self, level):
            return ANYTHING
        size = self.sizes[level]
        return f"{latitude!r},{longitude!r}" if size is None else self.cell(latitude, longitude, size)


@dataclass(frozen=True)
class Decimals(PointAttribute):
    """A (latitude, longitude), each rounded down to `digits` decimals; None, only first, is the place as given.

    Down and not to the nearest, and counted in whole cells of the finest rounded level, so that cells nest. The
    decimals are those of the number as written: 0.29 lies in the cell 0.29, although its double is below it.
    Latitude 90 belongs to the cell south of it: one of its own would hold the pole alone.
    """

    digits: tuple[int | None, ...] = (None, 4, 3, 2, 1, 0)

    def __post_init__(self) -> None:
        check_attribute_name(self.name)
        exact, rounded = _first_exact(f"{self.name}: digits", self.digits)
        if rounded:
            rounded = check_falling(f"{self.name}: digits", rounded, at_least=0)
            if rounded[0] > MOST_DIGITS:
                raise BadInput(f"{self.name}: expected at most {MOST_DIGITS} digits, got {rounded[0]}")
        object.__setattr__(self, "digits", (*exact, *rounded))

    @property
    def sizes(self) -> tuple[int | None, ...]:
        return self.digits

    def cell(self, latitude: float, longitude: float, digits: int) -> str:
        finest = self.digits[0] if self.digits[0] is not None else self.digits[1] or 0
        row = min(_floor(latitude, finest), 90 * 10**finest - 1)
        shrink = 10 ** (finest - digits)
        column = _floor(longitude, finest)
        return f"{_write_degrees(row // shrink, digits)},{_write_degrees(column // shrink, digits)}"


@dataclass(frozen=True)
class MetreCells(PointAttribute):
    """A (latitude, longitude) as a cell of at least `metres` each way; None, only first, is the place as given.

    Each size is a whole multiple of the one before. Latitude is cut into equal rows; each row of the coarsest
    size is a band, cut into equal columns, as many as fit at its edge nearer to the pole; finer cells divide
    these, so cells nest, meet at the antimeridian without a sliver, and are never smaller than promised,
    but in the band at each pole, where columns run together. A cell is written as its size, row and column.

    Metres are those on a sphere of the Earth's mean radius. On the ellipsoid WGS84 rows are up to 0.6% shorter
    than promised near the equator, where meridians are curved more; columns never are.
    """

    metres: tuple[int | None, ...] = (100, 500, 2_500)

    def __post_init__(self) -> None:
        check_attribute_name(self.name)
        exact, sizes = _first_exact(f"{self.name}: metres", self.metres)
        sizes = tuple(expect.whole(f"each of {self.name}: metres", each, at_least=1) for each in sizes)
        for finer, coarser in itertools.pairwise(sizes):
            if coarser <= finer or coarser % finer:
                raise BadInput(
                    f"{self.name}: expected each size a whole multiple of the one before, got {coarser} m "
                    f"after {finer} m"
                )
        if sizes and sizes[-1] > METRES_AROUND / 4:
            raise BadInput(f"{self.name}: expected sizes of at most 10,000 km, got {sizes[-1]} m")
        object.__setattr__(self, "metres", (*exact, *sizes))

    @property
    def sizes(self) -> tuple[int | None, ...]:
        return self.metres

    def cell(self, latitude: float, longitude: float, metres: int) -> str:
        finest, coarsest = next(each for each in self.metres if each), self.metres[-1] or metres
        parts, shrink = coarsest // finest, metres // finest
        rows = parts * latitude_bands(coarsest)
        row = min(int((latitude + 90) / 180 * rows), rows - 1)
        columns = parts * columns_of_band(coarsest, row // parts)
        column = min(int((longitude + 180) / 360 * columns), columns - 1)
        return f"{metres}m:{row // shrink}:{column // shrink}"


def latitude_bands(metres: int) -> int:
    """The number of rows between the poles, of at least `metres` each."""
    return max(1, int(METRES_AROUND / 2 / metres))


@lru_cache(maxsize=65_536)
def columns_of_band(metres: int, band: int) -> int:
    """The number of columns around a band, of at least `metres` each where it is narrowest."""
    edges = (abs(edge / latitude_bands(metres) * 180 - 90) for edge in (band, band + 1))
    return max(1, int(METRES_AROUND * math.cos(math.radians(max(edges))) / metres))


def normalise_place(name: str, value: Any) -> tuple[float, float]:
    """The one way to write a point; the refusals keep the value to themselves."""
    try:
        latitude, longitude = value
    except (TypeError, ValueError):
        raise BadInput(f"{name}: expected (latitude, longitude), got something else") from None
    for each in (latitude, longitude):
        if type(each) is float:  # the usual kind, and the quick way out
            continue
        if isinstance(each, bool) or not isinstance(each, Real):
            raise BadInput(f"{name}: expected latitude and longitude to be numbers, got another kind")
    latitude, longitude = float(latitude), float(longitude)
    if not (math.isfinite(latitude) and math.isfinite(longitude)):
        raise BadInput(f"{name}: expected latitude and longitude to be finite, got one that is not")
    if abs(latitude) > 90 or abs(longitude) > 180:
        raise BadInput(f"{name}: expected latitude within 90 and longitude within 180 degrees, got one outside")
    if abs(latitude) == 90:
        longitude = 0.0
    return latitude + 0.0, -180.0 if longitude == 180 else longitude + 0.0  # adding 0.0 turns -0.0 into 0.0


def parse_place(name: str, text: str) -> tuple[float, float]:
    """A point written as LATITUDE,LONGITUDE."""
    try:
        latitude, longitude = map(float, text.split(","))
    except ValueError:
        raise BadInput(f"{name}: expected LATITUDE,LONGITUDE, got another text") from None
    return latitude, longitude


def _first_exact(name: str, entries: Any) -> tuple[tuple[None, ...], tuple[Any, ...]]:
    """The leading None, if there is one, and the rest."""
    if isinstance(entries, str) or not isinstance(entries, list | tuple) or not entries:
        raise BadInput(f"expected {name} to be a list that is not empty, got {entries!r}")
    exact: tuple[None, ...] = (None,) if entries[0] is None else ()
    rest = tuple(entries[len(exact) :])
    if None in rest:
        raise BadInput(f"expected {name} to have the exact place first or not at all, got it later")
    return exact, rest


def _floor(degrees: float, digits: int) -> int:
    """How many whole cells of 10^-digits lie below the number as it is written."""
    scaled = degrees * 10.0**digits
    below = math.floor(scaled)
    if 0.001 < scaled - below < 0.999:  # the product is off by less than 1e-4, so only edges need the long way
        return below
    return int(_FLOOR.to_integral_value(_FLOOR.scaleb(Decimal(repr(degrees)), digits)))


def _write_degrees(cells: int, digits: int) -> str:
    """A whole number of cells in degrees; with at most 12 digits in all, the double's writing is exact."""
    return f"{cells / 10**digits:.{digits}f}"
