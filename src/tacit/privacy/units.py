"""Whom a promise protects: the privacy unit, its time window, and how a unit's budget meets its impressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import BadInput
from tacit.privacy import expect


class UnitKind(expect.Choice):
    """Whose records are protected together."""

    IMPRESSION = "impression"
    USER = "user"
    USER_PUBLISHER = "user-publisher"
    USER_ADVERTISER = "user-advertiser"

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that together name a unit; an impression is named by its own row."""
        return _KEY_COLUMNS[self]


_KEY_COLUMNS: dict[UnitKind, tuple[str, ...]] = {
    UnitKind.IMPRESSION: (),
    UnitKind.USER: ("user",),
    UnitKind.USER_PUBLISHER: ("user", "publisher"),
    UnitKind.USER_ADVERTISER: ("user", "advertiser"),
}


@dataclass(frozen=True)
class Window:
    """Equal stretches of impression time, counted from `origin` (whole seconds).

    A unit's promise starts anew in each window. Windows go by the time of the impression, never by the time
    at which its label arrived.
    """

    seconds: int
    origin: int = 0

    def __post_init__(self) -> None:
        expect.whole("window seconds", self.seconds, at_least=1)
        if isinstance(self.origin, bool) or not isinstance(self.origin, int):
            raise BadInput(f"expected window origin in whole seconds, got {self.origin!r}")

    @classmethod
    def days(cls, count: int, origin: int = 0) -> Window:
        return cls(seconds=expect.whole("window days", count, at_least=1) * 86_400, origin=origin)

    def index(self, time: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.floor_divide(time - self.origin, self.seconds)

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
        if self.ad_tech is not None and not self.ad_tech.strip():
            raise BadInput("expected ad_tech to be a name or None, got an empty string")

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
    """At most `impressions` of each unit and window are kept."""

    impressions: int
    choice: CapChoice = CapChoice.FIRST
    split: Split = Split.BY_CAP

    def __post_init__(self) -> None:
        expect.whole("cap K", self.impressions, at_least=1)
        object.__setattr__(self, "choice", CapChoice(self.choice))
        object.__setattr__(self, "split", Split(self.split))


@dataclass(frozen=True)
class Allocation:
    """Which rows stay, and the share of the unit's epsilon that each kept row may spend (1/K or 1/K_i).

    Keep it: a random cap that is drawn again for a second run would release more than K labels of a unit.
    """

    unit: Unit
    cap: Cap
    kept: NDArray[np.intp]
    divisor: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.kept)


RankKeys = Callable[[int], NDArray[np.uint64]]


def allocate(
    unit: Unit,
    cap: Cap,
    columns: Mapping[str, ArrayLike],
    *,
    public: frozenset[str],
    now: int | None = None,
    rank_keys: RankKeys | None = None,
) -> Allocation:
    """Cap each unit's impressions and divide its epsilon among those that stay.

    Guarantee:  the labels of one unit and window are released with at most epsilon in total, when each kept
                row's label is flipped once at epsilon / divisor.
    Neighbours: replace label, for one unit and window. Unit keys and times are the same in both datasets.
    Assumes:    the columns in `public` really are public; the allocation is drawn once and stored; windows
                are closed (`now`, in seconds, refuses open ones); `rank_keys(n)` gives n independent uniform
                words, needed for a random cap only.
    Source:     units and caps: Ghazi et al., Evaluation of Label DP (Randomized Response) Mechanisms on Binary
                Conversion Models; the sum over a unit is basic composition.
    """
    needed = unit.kind.key_columns + (("time",) if _reads_time(unit, cap) else ())
    rows = _row_count(columns)
    for name in needed:
        if name not in columns:
            raise BadInput(f"expected a column {name!r} for unit {unit}, got {sorted(columns)}")
        if name not in public:
            raise BadInput(
                f"expected column {name!r} to be public, got a private one: capping by {unit.kind} reads it, "
                "so who is kept would itself tell about people"
            )
    if cap.choice is CapChoice.RANDOM and unit.kind is not UnitKind.IMPRESSION and rank_keys is None:
        raise BadInput("expected rank_keys for a random cap, got None")

    time = _whole_seconds(columns["time"]) if "time" in needed else np.zeros(rows, np.int64)
    parts = [np.unique(np.asarray(columns[name]), return_inverse=True)[1] for name in unit.kind.key_columns]
    if unit.kind is UnitKind.IMPRESSION:
        parts.append(np.arange(rows))
    if unit.window is not None:
        index = unit.window.index(time)
        if rows and now is not None:
            _refuse_open_window(unit.window, int(index.max()), now)
        parts.append(index)
    group = _group_ids(parts, rows)

    if cap.choice is CapChoice.RANDOM and rank_keys is not None and unit.kind is not UnitKind.IMPRESSION:
        order = np.lexsort((rank_keys(rows), group))
    else:
        order = np.lexsort((np.arange(rows), time, group))  # row order breaks ties in time
    sorted_group = group[order]
    starts = np.flatnonzero(np.r_[True, sorted_group[1:] != sorted_group[:-1]]) if rows else np.zeros(0, int)
    counts = np.diff(np.r_[starts, rows])
    place = np.arange(rows) - np.repeat(starts, counts)
    stays = place < cap.impressions
    kept = order[stays]
    if cap.split is Split.BY_COUNT:
        divisor = np.minimum(np.repeat(counts, counts)[stays], cap.impressions)
    else:
        whole_unit = 1 if unit.kind is UnitKind.IMPRESSION else cap.impressions
        divisor = np.full(len(kept), whole_unit)
    by_row = np.argsort(kept)
    return Allocation(unit, cap, kept[by_row], divisor[by_row].astype(np.int64))


def _reads_time(unit: Unit, cap: Cap) -> bool:
    several = unit.kind is not UnitKind.IMPRESSION
    return unit.window is not None or (several and cap.choice is CapChoice.FIRST)


def _row_count(columns: Mapping[str, ArrayLike]) -> int:
    lengths = {name: len(np.asarray(column)) for name, column in columns.items()}
    if not lengths:
        raise BadInput("expected at least one column, got none")
    if len(set(lengths.values())) > 1:
        raise BadInput(f"expected columns of one length, got {lengths}")
    return next(iter(lengths.values()))


def _whole_seconds(column: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(column)
    if array.dtype.kind not in "iu":
        raise BadInput(f"expected column 'time' in whole seconds (integers), got dtype {array.dtype}")
    return array.astype(np.int64)


def _refuse_open_window(window: Window, last: int, now: int) -> None:
    end = window.bounds(last)[1]
    if now < end:
        raise BadInput(
            f"expected only closed windows at now={now}, got impressions in the window that ends at {end}: "
            "rows that arrive later would change who is kept"
        )


def _group_ids(parts: list[NDArray[np.intp]], rows: int) -> NDArray[np.intp]:
    """One dense id per distinct combination of the parts."""
    ids = np.zeros(rows, np.intp)
    for part in parts:
        dense = np.unique(part, return_inverse=True)[1]
        width = int(dense.max()) + 1 if rows else 1
        ids = np.unique(ids * width + dense, return_inverse=True)[1]
    return ids
