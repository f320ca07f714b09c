"""Caps and splits: no unit may spend more than its epsilon, and no private key may decide who is kept."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.privacy.accounting import pure_epsilon
from tacit.privacy.allocation import allocate
from tacit.privacy.mechanisms.memoisation import FlipKey, flip_labels
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.units import Cap, CapChoice, Relation, Split, Unit, UnitKind, Window

PUBLIC = frozenset({"user", "publisher", "advertiser", "time", "device"})
KINDS = st.sampled_from(list(UnitKind))


def ranks(table: dict[str, Any]) -> NDArray[np.uint64]:
    return np.random.default_rng(7).integers(0, 2**64, len(table["user"]), dtype=np.uint64)


def columns(rows: list[tuple[int, int, int, int]]) -> dict[str, Any]:
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    named = dict(zip(("user", "publisher", "advertiser", "time"), table.T, strict=True))
    return {**named, "device": 2 * named["user"] + named["publisher"] % 2}  # a person has two


rows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2), st.integers(-50, 50)), max_size=40
)


@given(
    rows,
    KINDS,
    st.integers(1, 4),
    st.sampled_from(list(CapChoice)),
    st.sampled_from(list(Split)),
    st.booleans(),
)
def test_no_unit_spends_more_than_its_epsilon(
    data: list[tuple[int, int, int, int]],
    kind: UnitKind,
    k: int,
    choice: CapChoice,
    split: Split,
    windowed: bool,
) -> None:
    window = Window(seconds=20) if windowed else None
    table = columns(data)
    found = allocate(Unit(kind, window), Cap(k, choice, split), table, public=PUBLIC, ranks=ranks(table))
    spent: dict[object, Fraction] = defaultdict(Fraction)
    counted: dict[object, int] = defaultdict(int)

    def key(row: int) -> object:
        where = int(table["time"][row] // 20) if windowed else 0
        return (
            row if kind is UnitKind.IMPRESSION else None,
            where,
            *(int(table[c][row]) for c in kind.key_columns),
        )

    for row in range(len(data)):
        counted[key(row)] += 1
    for row, divisor in zip(found.kept.tolist(), found.divisor.tolist(), strict=True):
        spent[key(row)] += Fraction(1, divisor)
    assert all(total <= 1 for total in spent.values())
    if split is Split.BY_COUNT or kind is UnitKind.IMPRESSION:
        assert all(total == 1 for total in spent.values())
    assert len(found) == sum(min(count, k) for count in counted.values())
    assert sorted(set(found.kept.tolist())) == found.kept.tolist()


def test_a_person_with_two_devices_has_two_units() -> None:
    table = {"user": [7, 7, 7], "device": [1, 1, 2], "time": [1, 2, 3]}
    by_device, by_user = (
        allocate(Unit(kind), Cap(1), table, public=PUBLIC) for kind in (UnitKind.DEVICE, UnitKind.USER)
    )
    assert (by_device.kept.tolist(), by_user.kept.tolist()) == ([0, 2], [0])
    with pytest.raises(BadInput, match="expected a column 'device' for unit device"):
        allocate(Unit(UnitKind.DEVICE), Cap(1), {"user": [7], "time": [1]}, public=PUBLIC)


def test_the_first_k_are_the_earliest() -> None:
    table = {"user": [1, 1, 1, 2], "time": [30, 10, 20, 5]}
    found = allocate(Unit(UnitKind.USER), Cap(2), table, public=PUBLIC)
    assert found.kept.tolist() == [1, 2, 3]
    assert found.divisor.tolist() == [2, 2, 2]


def test_a_random_cap_is_the_same_when_its_ranks_are() -> None:
    table = {"user": np.repeat(np.arange(20), 5)}
    cap = Cap(2, CapChoice.RANDOM, Split.BY_COUNT)
    first, second = (
        allocate(Unit(UnitKind.USER), cap, table, public=PUBLIC, ranks=ranks(table)) for _ in range(2)
    )
    assert first.kept.tolist() == second.kept.tolist()
    assert first.kept.tolist() != allocate(Unit(UnitKind.USER), Cap(2), {**table, "time": np.zeros(100, int)},
                                           public=PUBLIC).kept.tolist()  # fmt: skip


@pytest.mark.parametrize("split", list(Split))
@pytest.mark.parametrize("private", ["user", "time"])
def test_a_private_key_or_time_is_refused(split: Split, private: str) -> None:
    table = {"user": [1, 2], "time": [1, 2]}
    with pytest.raises(BadInput, match=f"expected column '{private}' to be public, got a private one"):
        allocate(Unit(UnitKind.USER), Cap(1, split=split), table, public=PUBLIC - {private})


def test_open_windows_are_refused() -> None:
    unit, table = Unit(UnitKind.USER, Window(10)), {"user": [1, 1], "time": [3, 19]}
    with pytest.raises(BadInput, match="expected only closed windows at now=19"):
        allocate(unit, Cap(1), table, public=PUBLIC, now=19)
    assert len(allocate(unit, Cap(1), table, public=PUBLIC, now=20)) == 2


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"time": [1]}, "expected a column 'user'"),
        ({"user": [1], "time": [1, 2]}, "expected columns of one length"),
        ({"user": [1], "time": [1.5]}, "expected column 'time' in whole seconds"),
        ({}, "expected at least one column"),
    ],
)
def test_bad_tables_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        allocate(Unit(UnitKind.USER), Cap(1), table, public=PUBLIC)


def test_bad_caps_windows_and_units_are_refused() -> None:
    with pytest.raises(BadInput, match="expected cap K to be a whole number >= 1, got 0"):
        Cap(0)
    with pytest.raises(BadInput, match="expected window seconds"):
        Window(0)
    with pytest.raises(BadInput, match="expected ad_tech"):
        Unit(UnitKind.USER, ad_tech=" ")
    with pytest.raises(BadInput, match="expected ranks for a random cap"):
        allocate(Unit(UnitKind.USER), Cap(1, CapChoice.RANDOM), {"user": [1]}, public=PUBLIC)


@pytest.mark.parametrize("split", list(Split))
def test_an_allocation_flips_and_states_what_left(split: Split) -> None:
    table = {"user": np.repeat([1, 2, 3], [1, 2, 6]), "time": np.arange(9)}
    found = allocate(Unit(UnitKind.USER), Cap(3, split=split), table, public=PUBLIC)
    release = found.release(2)
    assert pure_epsilon(release, relation=Relation.REPLACE_LABEL) <= 2 + 1e-9
    labels, records = np.arange(9) % 2, np.arange(9) + 100
    flips = found.flip(labels, records, 2, key=FlipKey("task", 0), secret=bytes(32))
    for place, (row, divisor) in enumerate(zip(found.kept.tolist(), found.divisor.tolist(), strict=True)):
        response = RandomizedResponse.for_epsilon(Fraction(2, divisor))
        alone = flip_labels([labels[row]], [records[row]], FlipKey("task", 0), response, bytes(32))
        assert flips[place] == alone[0]
