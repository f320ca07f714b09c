"""Where spending adds up: a line is (scope, unit, relation, window). Lines never mix."""

from __future__ import annotations

from dataclasses import dataclass

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.relations import Relation
from tacit.privacy.units import Unit

LONGEST_NAME = 200


@dataclass(frozen=True)
class Series:
    """The lines of one scope, unit and relation, over all windows."""

    scope: str
    unit: Unit
    relation: Relation

    def __post_init__(self) -> None:
        named("scope", self.scope)
        if not isinstance(self.unit, Unit):
            raise BadInput(f"expected unit to be a Unit, got {self.unit!r}")
        object.__setattr__(self, "relation", Relation(self.relation))

    def line(self, window: int | None) -> Line:
        return Line(self.scope, self.unit, self.relation, window)

    def __str__(self) -> str:
        return f"{self.scope} ({self.unit}, {self.relation})"


@dataclass(frozen=True)
class Line:
    """Where spending adds up. A unit with a window needs the index of one; a unit without has all time.

    >>> from tacit.privacy.units import UnitKind, Window
    >>> print(Line("clicks", Unit(UnitKind.USER, Window.days(7)), Relation.REPLACE_ONE, 12))
    clicks (user per 7 days, replace-one), window 12
    """

    scope: str
    unit: Unit
    relation: Relation
    window: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", self.series.relation)
        if self.window is not None:
            object.__setattr__(self, "window", expect.integer("window", self.window))
        if (self.unit.window is None) != (self.window is None):
            expected = "None" if self.unit.window is None else "the index of a window"
            raise BadInput(f"expected {expected} as window of a line for {self.unit}, got {self.window!r}")

    @property
    def series(self) -> Series:
        return Series(self.scope, self.unit, self.relation)

    def __str__(self) -> str:
        return f"{self.series}, {'all time' if self.window is None else f'window {self.window}'}"


def named(what: str, name: str) -> str:
    """Refuse names that no database or terminal would show as they are."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        raise BadInput(f"expected {what} to be 1 to {LONGEST_NAME} printable characters, got {name!r}")
    return name
