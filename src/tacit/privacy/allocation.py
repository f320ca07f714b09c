"""How a unit's budget meets its impressions: which rows stay, and what share of epsilon each may spend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.mechanisms.memoisation import FlipKey, flip_labels
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.releases import Composed, Release, SplitLabels
from tacit.privacy.units import Cap, CapChoice, Split, Unit, UnitKind, Window


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

    def response(self, divisor: int, epsilon: expect.Number, classes: int = 2) -> RandomizedResponse:
        """What flips the rows with this divisor, where the whole unit has `epsilon`."""
        return RandomizedResponse.for_epsilon(expect.positive("epsilon", epsilon) / divisor, classes)

    def release(self, epsilon: expect.Number, classes: int = 2) -> Release:
        """What leaves when every kept row's label is flipped once, for an accountant; speaks of one unit."""
        if self.cap.split is Split.BY_COUNT:
            return SplitLabels(expect.positive("epsilon", epsilon), self.cap.impressions)
        labels = 1 if self.unit.kind is UnitKind.IMPRESSION else self.cap.impressions
        return Composed((self.response(labels, epsilon, classes).release,), labels)

    def flip(
        self,
        labels: ArrayLike,
        records: ArrayLike,
        epsilon: expect.Number,
        *,
        key: FlipKey,
        secret: bytes,
        classes: int = 2,
    ) -> NDArray[np.int64]:
        """The memoised flips of the kept rows, in the order of `kept`; labels and records are of all rows."""
        truth, ids = np.asarray(labels)[self.kept], np.asarray(records)[self.kept]
        flipped = np.empty(len(self.kept), np.int64)
        for divisor in np.unique(self.divisor).tolist():
            rows = self.divisor == divisor
            response = self.response(divisor, epsilon, classes)
            flipped[rows] = flip_labels(truth[rows], ids[rows], key, response, secret)
        return flipped


def allocate(
    unit: Unit,
    cap: Cap,
    columns: Mapping[str, ArrayLike],
    *,
    public: frozenset[str],
    now: int | None = None,
    ranks: ArrayLike | None = None,
) -> Allocation:
    """Cap each unit's impressions and divide its epsilon among those that stay.

    Guarantee:  the labels of one unit and window are released with at most epsilon in total, when each kept
                row's label is flipped once at epsilon / divisor.
    Neighbours: replace label, for one unit and window. Unit keys and times are the same in both datasets.
    Assumes:    the columns in `public` really are public, and so is the order of rows, which breaks ties in
                time; the allocation is drawn once and stored; windows are closed (`now`, in seconds, refuses
                open ones). For a random cap, `ranks` holds one uniform word per row: from `memoisation.ranks`
                they are the same in every run, from `Entropy.words` the allocation must be kept.
    Source:     units and caps: Ghazi et al., Evaluation of Label DP (Randomized Response) Mechanisms on Binary
                Conversion Models; the sum over a unit is basic composition.
    """
    expect.kind("unit", unit, Unit)
    expect.kind("cap", cap, Cap)
    needed = unit.kind.key_columns + (("time",) if _reads_time(unit, cap) else ())
    rows = _row_count(columns)
    _expect_public(unit, needed, columns, public)
    order_by = np.zeros(rows, np.uint64)
    if cap.choice is CapChoice.RANDOM and unit.kind is not UnitKind.IMPRESSION:
        if ranks is None:
            raise BadInput("expected ranks for a random cap, got None")
        order_by = np.asarray(ranks)
        if order_by.shape != (rows,):
            raise BadInput(f"expected one rank per row, {rows}, got shape {order_by.shape}")

    time = _whole_seconds(columns["time"]) if "time" in needed else np.zeros(rows, np.int64)
    group = unit_ids(unit, columns, public=public, now=now)

    first = cap.choice is CapChoice.FIRST
    # Row order breaks ties in time.
    order = np.lexsort((np.arange(rows), time if first else order_by, group))
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


def unit_ids(
    unit: Unit, columns: Mapping[str, ArrayLike], *, public: frozenset[str], now: int | None = None
) -> NDArray[np.intp]:
    """The unit (and window) that each row belongs to, as numbers that equal rows share; by public keys
    alone."""
    needed = unit.kind.key_columns + (("time",) if unit.window is not None else ())
    _expect_public(unit, needed, columns, public)
    rows = _row_count(columns)
    parts = [np.asarray(columns[name]) for name in unit.kind.key_columns]
    if unit.kind is UnitKind.IMPRESSION:
        parts.append(np.arange(rows))
    if unit.window is not None:
        index = (_whole_seconds(columns["time"]) - unit.window.origin) // unit.window.seconds
        if rows and now is not None:
            _refuse_open_window(unit.window, int(index.max()), now)
        parts.append(index)
    return _group_ids(parts, rows)


def _expect_public(
    unit: Unit, needed: tuple[str, ...], columns: Mapping[str, ArrayLike], public: frozenset[str]
) -> None:
    if isinstance(public, str):  # `in` would look for a part of the text
        raise BadInput(f"expected a set of column names as public, got {public!r}")
    for name in needed:
        if name not in columns:
            raise BadInput(
                f"expected a column {name!r} for unit {unit}, got {sorted(columns)}; a log without it has unit "
                "impression"
            )
        if name not in public:
            raise BadInput(
                f"expected column {name!r} to be public, got a private one: grouping by {unit.kind} reads it, "
                "so who is kept would itself tell about people"
            )


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
    """One id per distinct combination of the parts."""
    ids, distinct = np.zeros(rows, np.intp), 1
    for part in parts:
        values, dense = np.unique(part, return_inverse=True)
        if distinct * len(values) >= 2**62:
            ids = np.unique(ids, return_inverse=True)[1]
            distinct = rows
        ids, distinct = ids * len(values) + dense, distinct * len(values)
    return ids
