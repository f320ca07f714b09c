"""Splits: every row in one part, shares as asked, people kept together, nothing decided by what is hidden."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from tacit.data.logs.definition import LOG_NAMES, find_log
from tacit.data.preparation import hashing_encoder, prepare
from tacit.data.reading.reader import LogReader
from tacit.data.splits import LARGEST_SEED, LogSplit, Way
from tacit.errors import BadInput
from tests.support.exact_tests import ALPHA
from tests.support.reading_checks import COMMAS, HEADER, prepared

THREE = {"train": "0.7", "validation": "0.1", "test": "0.2"}


def rows_of(split: LogSplit, rows: int, **columns: Any) -> dict[str, list[int]]:
    everything = np.arange(rows)
    return {name: part.of(everything).tolist() for name, part in split.parts(rows, **columns).items()}


@st.composite
def shares(draw: st.DrawFn) -> dict[str, Fraction]:
    weights = draw(st.lists(st.integers(1, 50), min_size=1, max_size=5))
    return {f"part{at}": Fraction(weight, sum(weights)) for at, weight in enumerate(weights)}


@given(way=st.sampled_from(Way), asked=shares(), seed=st.integers(0, LARGEST_SEED), data=st.data())
def test_every_row_is_in_exactly_one_part_in_the_order_of_the_file(
    way: Way, asked: dict[str, Fraction], seed: int, data: st.DataObject
) -> None:
    rows = data.draw(st.integers(0, 60))
    times = np.array(data.draw(st.lists(st.integers(-5, 5), min_size=rows, max_size=rows)), dtype=np.int64)
    users = np.array(
        data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=rows, max_size=rows)), dtype=np.uint64
    )
    split = LogSplit(way, asked, seed)
    parts = split.parts(rows, times=times, users=users)
    found = rows_of(split, rows, times=times, users=users)
    assert list(found) == list(asked)
    assert sorted(row for part in found.values() for row in part) == list(range(rows))
    assert all(part == sorted(part) for part in found.values())
    assert {name: len(part) for name, part in parts.items()} == {
        name: len(part) for name, part in found.items()
    }


# By time


@given(asked=shares(), times=st.lists(st.integers(-5, 5), max_size=60))
def test_by_time_as_sorting_row_by_row_gives_it(asked: dict[str, Fraction], times: list[int]) -> None:
    """Also where the file is not in order; rows of the same second stay in the order of the file."""
    found = rows_of(LogSplit("chronological", asked), len(times), times=np.array(times, dtype=np.int64))
    order = sorted(range(len(times)), key=lambda row: (times[row], row))
    edge, first = Fraction(0), 0
    for name, share in asked.items():
        edge += share
        past = int(edge * len(times))
        assert found[name] == sorted(order[first:past])
        assert abs(len(found[name]) - share * len(times)) < 1
        first = past
    assert first == len(times)


def test_without_times_the_order_of_the_file_is_that_of_time() -> None:
    found = rows_of(LogSplit("chronological", THREE), 10)
    assert found == {"train": [0, 1, 2, 3, 4, 5, 6], "validation": [7], "test": [8, 9]}
    assert found == rows_of(LogSplit("chronological", THREE), 10, times=np.arange(10) * 5)


def test_a_stretch_of_a_file_in_order_is_a_view() -> None:
    column = np.arange(100)
    sorted_parts = LogSplit("chronological", THREE).parts(100, times=np.arange(100))
    assert all(np.shares_memory(part.of(column), column) for part in sorted_parts.values())
    shuffled = LogSplit("chronological", THREE).parts(100, times=np.arange(100)[::-1].copy())
    assert not any(np.shares_memory(part.of(column), column) for part in shuffled.values())


# At random, and by user


def share_is(count: int, of: int, share: float) -> bool:
    """An exact binomial test that is wrong once in a thousand million times."""
    return bool(binomtest(count, of, share).pvalue >= ALPHA)


def test_random_shares_are_as_asked() -> None:
    found = rows_of(LogSplit("random", THREE, seed=4), 50_000)
    for name, share in THREE.items():
        assert share_is(len(found[name]), 50_000, float(share))
        assert not share_is(len(found[name]), 50_000, float(share) + 0.02)  # the twin: it would notice
    # Nor does the draw follow the row's number: the first half has as many as the second.
    early = sum(row < 25_000 for row in found["test"])
    assert share_is(early, len(found["test"]), 0.5)


def test_user_shares_are_as_asked_and_a_user_stays_together() -> None:
    people = np.random.default_rng(8).integers(0, 2**64, 20_000, dtype=np.uint64)
    users = np.repeat(people, 3)[np.random.default_rng(9).permutation(60_000)]
    found = LogSplit("by-user", THREE, seed=4).parts(60_000, users=users)
    sets = {name: set(part.of(users).tolist()) for name, part in found.items()}
    assert sum(map(len, sets.values())) == len(set().union(*sets.values())) == 20_000
    for name, share in THREE.items():
        assert share_is(len(sets[name]), 20_000, float(share))
        assert not share_is(len(sets[name]), 20_000, float(share) + 0.03)


def test_a_users_part_depends_on_the_user_alone() -> None:
    users = np.random.default_rng(8).integers(0, 2**64, 500, dtype=np.uint64)
    split = LogSplit("by-user", THREE, seed=4)
    part = {row: name for name, rows in rows_of(split, 500, users=users).items() for row in rows}
    turned = {row: name for name, rows in rows_of(split, 500, users=users[::-1].copy()).items() for row in rows}
    assert part == {499 - row: name for row, name in turned.items()}


def test_a_longer_log_splits_its_beginning_as_a_shorter_one() -> None:
    split = LogSplit("random", THREE, seed=4)
    longer = rows_of(split, 1000)
    assert rows_of(split, 300) == {name: [row for row in part if row < 300] for name, part in longer.items()}


def test_seeds_differ_and_the_same_seed_does_not() -> None:
    """Two independent halvings agree on half of the rows."""
    halves = {"a": "1/2", "b": "1/2"}
    users = np.arange(20_000, dtype=np.uint64)
    for way in ("random", "by-user"):
        first, again, *others = (
            set(rows_of(LogSplit(way, halves, seed), 20_000, users=users)["a"])
            for seed in (0, 0, 1, 2, 2**32, LARGEST_SEED)
        )
        assert first == again
        for other in others:
            agree = 20_000 - len(first ^ other)
            assert share_is(agree, 20_000, 0.5)


# Shares are exact


def test_shares_add_up_exactly() -> None:
    tenths = LogSplit("random", {str(at): 0.1 for at in range(10)})  # in doubles these add up to a little less
    assert sum([0.1] * 10) != 1
    assert sum(tenths.shares.values()) == 1
    assert LogSplit("random", {"a": "1/3", "b": Fraction(2, 3)}).shares == {
        "a": Fraction(1, 3),
        "b": Fraction(2, 3),
    }
    assert rows_of(LogSplit("chronological", {"all": 1}), 3) == {"all": [0, 1, 2]}


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({}, "expected shares that add up to 1, got 0.0"),
        ({"a": 0.5}, "expected shares that add up to 1, got 0.5"),
        ({"a": 0.5, "b": 0.6}, "expected shares that add up to 1, got 1.1"),
        ({"a": "0.3333333", "b": "0.6666666"}, "expected shares that add up to 1, got 0.9999999"),
        ({"a": 1, "b": 0}, "expected share b in (0, 1], got 0"),
        ({"a": 1.5, "b": -0.5}, "expected share a in (0, 1], got 1.5"),
        ({"a": float("nan"), "b": 1}, "expected share a to be finite"),
        ({"a": "half", "b": 0.5}, "expected share a to be a finite number, got 'half'"),
    ],
)
def test_other_shares_are_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput) as refusal:
        LogSplit("random", asked)
    assert says in str(refusal.value)


@pytest.mark.parametrize("seed", [-1, 1.5, True, "0", LARGEST_SEED + 1, 2**64])
def test_other_seeds_are_refused(seed: Any) -> None:
    with pytest.raises(BadInput, match="seed"):
        LogSplit("random", {"all": 1}, seed)


def test_another_way_is_refused_by_naming_the_ways() -> None:
    with pytest.raises(
        BadInput, match="expected Way to be one of chronological, random, by-user, got 'sorted'"
    ):
        LogSplit("sorted", {"all": 1})


@pytest.mark.parametrize("name", LOG_NAMES)
def test_a_split_survives_its_record(name: str) -> None:
    for split in (find_log(name).split, LogSplit("by-user", {"a": "1/3", "b": "2/3"}, LARGEST_SEED)):
        again = LogSplit.from_json(json.loads(json.dumps(split.as_json())))
        assert again == split
        assert list(again.shares) == list(split.shares)


# Of prepared columns


def visits(folder: Path, times: list[int], users: list[str]) -> Path:
    lines = [f"{user},{time},p,Food,1.5,2.5" for time, user in zip(times, users, strict=True)]
    path = folder / "visits.csv"
    path.write_text("\n".join(["user,time,place,category_path,latitude,longitude", *lines]))
    return path


def test_prepared_columns_split_by_their_times_and_users(tmp_path: Path) -> None:
    times = [int(time) for time in np.random.default_rng(2).permutation(200) // 2]
    columns = prepared("visits", visits(tmp_path, times, [f"u{at % 7}" for at in range(200)]))
    parts = columns.parts()
    assert {name: len(part) for name, part in parts.items()} == {"train": 180, "test": 20}
    assert parts["train"].of(columns["time"]).max() < parts["test"].of(columns["time"]).min() == 90
    users = [
        set(part.of(columns["user"]).tolist()) for part in columns.parts(LogSplit("by-user", THREE)).values()
    ]
    assert sum(map(len, users)) == len(set().union(*users)) == 7


def test_no_split_goes_by_a_user_who_is_sensitive(tmp_path: Path) -> None:
    (tmp_path / "search").write_text("\t".join(["1", *["5"] * 22]) + "\n")
    columns = prepared("criteo-search", tmp_path / "search")
    assert "user" in columns
    with pytest.raises(
        BadInput, match="expected a split that anybody may know, got by-user, and the user is sensitive"
    ):
        columns.parts(LogSplit("by-user", THREE))
    assert sum(map(len, columns.parts().values())) == 1
    log = find_log("criteo-search")
    prepared_otherwise = prepare(
        LogReader(log, tmp_path / "search"),
        hashing_encoder(log),
        tmp_path / "other",
        split=LogSplit("random", THREE),
    )
    assert prepared_otherwise.columns.split == LogSplit("random", THREE)


def test_no_split_goes_by_a_user_who_is_absent(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("\t".join(["1", *[""] * 39]) + "\n")
    columns = prepared("criteo-display", tmp_path / "train.txt")
    says = "expected a user column for a split by user, got a log without one"
    with pytest.raises(BadInput, match=says):
        columns.parts(LogSplit("by-user", THREE))
    with pytest.raises(BadInput, match=says):
        LogSplit("by-user", THREE).parts(5)


def test_a_log_without_times_goes_by_the_order_of_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "shop.csv"
    path.write_bytes(b"\n".join([HEADER, *(b"%d,1,1,1,ann,north" % (at % 2) for at in range(10))]))
    columns = prepare(LogReader(COMMAS, path), hashing_encoder(COMMAS), tmp_path / "out").columns
    found = [
        part.of(np.arange(10)).tolist() for part in columns.parts(LogSplit("chronological", THREE)).values()
    ]
    assert found == [[0, 1, 2, 3, 4, 5, 6], [7], [8, 9]]


def test_no_split_goes_by_a_time_that_is_sensitive() -> None:
    split = LogSplit("chronological", {"train": 1})
    with pytest.raises(BadInput, match="got chronological, and the time is sensitive"):
        split.refuse_sensitive("log", {"time"})
    split.refuse_sensitive("log", {"user"})


@pytest.mark.parametrize("way", list(Way))
def test_sizes_are_those_of_the_parts(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.data.splits.CHUNK", 7)  # several chunks
    split = LogSplit(way, {"train": "0.7", "validation": "0.2", "test": "0.1"}, seed=5)
    users = np.repeat(np.arange(10, dtype=np.uint64), 5)
    times = np.arange(50)[::-1]
    parts = split.parts(50, times=times, users=users)
    assert split.sizes(50, users=users) == {name: len(rows) for name, rows in parts.items()}
    assert sorted(row for rows in parts.values() for row in np.arange(50)[rows.at]) == list(range(50))
    assert split.sizes(0, users=users[:0]) == dict.fromkeys(parts, 0)
