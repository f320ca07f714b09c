"""Privacy units and neighbouring relations: whom a guarantee protects, and what may differ.

A guarantee is about two neighbouring datasets. `Relation` says what may differ between them, `Unit` for
whom: an impression, a user, a device, per time window. `Cap` and `Split` say which rows of a unit are kept
and how they share its epsilon.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from tacit import expect
from tacit.errors import BadInput
from tacit.expect import Choice


class Relation(Choice):
    """What may differ between two neighbouring datasets, for one privacy unit."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"
    REPLACE_LABEL = "replace-label"
    ZERO_OUT = "zero-out"

    @property
    def plain(self) -> str:
        """The relation in words, after 'a dataset in which'."""
        return _PLAIN[self]


_PLAIN = {
    Relation.ADD_REMOVE: "all records of one {unit} were added or removed",
    Relation.REPLACE_ONE: "the private part (sensitive features and labels) of one {unit} was replaced; "
    "public features stay as they are",
    Relation.REPLACE_LABEL: "the labels of one {unit} were replaced; all features stay as they are",
    Relation.ZERO_OUT: "the contribution of one {unit} was set to zero; the number of contributors is public",
}

ADD_LIKE = frozenset({Relation.ADD_REMOVE, Relation.ZERO_OUT})
"""One unit's contribution is there, or is not."""

REPLACE_LIKE = frozenset({Relation.REPLACE_ONE, Relation.REPLACE_LABEL})
"""One unit's contribution is another one."""


class UnitKind(expect.Choice):
    """Whose records are protected together.

    A device is what holds one wallet: all that is private on it. A person with two devices is two of them, and
    what is promised for each adds up.
    """

    IMPRESSION = "impression"
    USER = "user"
    USER_PUBLISHER = "user-publisher"
    USER_ADVERTISER = "user-advertiser"
    DEVICE = "device"

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that together name a unit; an impression is named by its own row."""
        return _KEY_COLUMNS[self]


_KEY_COLUMNS: dict[UnitKind, tuple[str, ...]] = {
    UnitKind.IMPRESSION: (),
    UnitKind.USER: ("user",),
    UnitKind.USER_PUBLISHER: ("user", "publisher"),
    UnitKind.USER_ADVERTISER: ("user", "advertiser"),
    UnitKind.DEVICE: ("device",),
}


@dataclass(frozen=True)
class Window:
    """The time windows of a unit: equal stretches of impression time from `origin` on, in whole seconds.

    A unit's promise starts anew in each window. Windows go by the time of the impression, never by the time
    at which its label arrived.
    """

    seconds: int
    origin: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", expect.whole("window seconds", self.seconds, at_least=1))
        object.__setattr__(self, "origin", expect.integer("window origin", self.origin))

    @classmethod
    def days(cls, count: int, origin: int = 0) -> Window:
        return cls(seconds=expect.whole("window days", count, at_least=1) * 86_400, origin=origin)

    def index(self, time: int) -> int:
        """The window that a second lies in."""
        return (expect.integer("time", time) - self.origin) // self.seconds

    def bounds(self, index: int) -> tuple[int, int]:
        """First second of window `index`, and the first second after it."""
        start = self.origin + index * self.seconds
        return start, start + self.seconds

    def __str__(self) -> str:
        days, rest = divmod(self.seconds, 86_400)
        return f"{self.seconds} s" if rest else f"{days} day{'s' if days > 1 else ''}"


@dataclass(frozen=True)
class Unit:
    """The privacy unit, per time window (`None`: all time) and per ad-tech (`None`: all of them together).

    >>> print(Unit(UnitKind.USER_ADVERTISER, Window.days(7), ad_tech="example-exchange"))
    user-advertiser per 7 days at example-exchange
    """

    kind: UnitKind
    window: Window | None = None
    ad_tech: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", UnitKind(self.kind))
        if not isinstance(self.window, Window | None):
            raise BadInput(f"expected window to be a Window or None, got {self.window!r}")
        if self.ad_tech is not None and (not isinstance(self.ad_tech, str) or not self.ad_tech.strip()):
            raise BadInput(f"expected ad_tech to be a name or None, got {self.ad_tech!r}")

    @classmethod
    def of(cls, words: Unit | UnitKind | str, *, origin: int = 0) -> Self:
        """The unit that these words name, as it is printed; windows are counted from second `origin` on.

        >>> Unit.of("user per 7 days") == Unit(UnitKind.USER, Window.days(7))
        True
        """
        if isinstance(words, cls):
            return words
        spelled = words if isinstance(words, str) else ""
        found = re.fullmatch(r"(\S+)(?: per (\d+) (days?|s))?(?: at (.+))?", spelled)
        if found is None:
            kinds = ", ".join(UnitKind)
            raise BadInput(f"expected unit to be one of {kinds}, perhaps 'per 7 days', got {words!r}")
        kind, count, measure, ad_tech = found.groups()
        window = None
        if count is not None:
            seconds = int(count) if measure == "s" else Window.days(int(count)).seconds
            window = Window(seconds, origin)
        return cls(UnitKind.named("unit", kind), window, ad_tech)

    def records(self, most: int | None) -> int:
        """How many records one unit has at most, which somebody must say of all units but an impression."""
        if self.kind is UnitKind.IMPRESSION:
            if most not in (None, 1):
                raise BadInput(f"expected records=1 for an impression, which is one record, got {most!r}")
            return 1
        if most is None:
            raise BadInput(
                f"expected records, how many records one {self.kind} has at most (1 where all of them are "
                "clipped together), got None"
            )
        return expect.whole("records", most, at_least=1)

    def __str__(self) -> str:
        window = f" per {self.window}" if self.window else ""
        ad_tech = f" at {self.ad_tech}" if self.ad_tech else ""
        return f"{self.kind}{window}{ad_tech}"


class CapChoice(expect.Choice):
    """Which K impressions of a unit stay; the others leave the training set."""

    FIRST = "first"
    RANDOM = "random"


class Split(expect.Choice):
    """How a unit's epsilon is shared among its kept impressions."""

    BY_CAP = "epsilon/K"
    BY_COUNT = "epsilon/K_i"


@dataclass(frozen=True)
class Cap:
    """The most impressions of a unit (and window) that are kept, which ones, and how they share epsilon."""

    impressions: int
    choice: CapChoice = CapChoice.FIRST
    split: Split = Split.BY_CAP

    def __post_init__(self) -> None:
        expect.whole("cap K", self.impressions, at_least=1)
        object.__setattr__(self, "choice", CapChoice(self.choice))
        object.__setattr__(self, "split", Split(self.split))
