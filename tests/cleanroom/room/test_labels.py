"""The room's table of labels: every lookup against a dictionary, and files whose faults are named by column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv, parquet

from tacit.cleanroom.protocol.tokens import token_key, tokens
from tacit.cleanroom.room.labels import LabelTable, has_repeats, read_labels
from tacit.data.encoding.fingerprints import key_fingerprints
from tacit.errors import BadInput
from tests.support.cleanroom_rooms import SECRET, some_table, some_tokens

KEY = token_key(SECRET, "spring")

# Tokens of two bytes that differ, the others alike: halves collide all the time.
CLOSE_TOKENS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=0, max_size=12, unique=True)


def close(pairs: list[tuple[int, int]]) -> np.ndarray:
    made = np.zeros((len(pairs), 16), np.uint8)
    if pairs:
        made[:, 0], made[:, 15] = np.array(pairs).T
    return made


@given(CLOSE_TOKENS, CLOSE_TOKENS, st.integers(0, 2**12 - 1))
def test_every_lookup_is_that_of_a_dictionary(known: list[Any], asked: list[Any], bits: int) -> None:
    labels = np.array([[bits >> place & 1] for place in range(len(known))], np.uint8).reshape(-1, 1)
    table = LabelTable.of(close(known), labels, ("conversion",))
    truth = dict(zip(known, labels[:, 0].tolist(), strict=True))
    assert table.look_up(close(asked), "conversion").tolist() == [truth.get(each, 0) for each in asked]
    assert has_repeats(close(asked + asked[:1])) == bool(asked)
    assert not has_repeats(close(asked))


def test_each_task_has_its_own_column() -> None:
    table = some_table(40, tasks=("conversion", "cart"))
    for place, task in enumerate(table.tasks):
        assert np.array_equal(table.look_up(table.records, task), table.labels[:, place])
    assert not np.array_equal(table.labels[:, 0], table.labels[:, 1])


def test_records_that_are_not_there_have_the_label_zero() -> None:
    everyone = LabelTable.of(some_tokens(50), np.ones((50, 1), np.uint8), ("conversion",))
    assert everyone.look_up(some_tokens(50, "others"), "conversion").sum() == 0
    half = some_tokens(50).copy()
    half[:, 8:] = some_tokens(50, "others")[:, 8:]  # shares its first half with a token that is there
    assert everyone.look_up(half, "conversion").sum() == 0


@pytest.mark.parametrize(
    ("records", "labels", "tasks"),
    [
        (some_tokens(2)[[0, 0]], [[0], [1]], ("conversion",)),
        (some_tokens(2), [[0], [2]], ("conversion",)),
        (some_tokens(2), [[0.0], [1.0]], ("conversion",)),
        (some_tokens(2), [[0]], ("conversion",)),
        (some_tokens(2)[:, :8], [[0], [1]], ("conversion",)),
        (some_tokens(2), [[0, 0], [1, 1]], ("conversion", "conversion")),
        (some_tokens(2), np.empty((2, 0), int), ()),
    ],
)
def test_tables_that_cannot_be_meant_are_refused(
    records: np.ndarray, labels: list[Any], tasks: tuple[str, ...]
) -> None:
    with pytest.raises(BadInput, match="expected"):
        LabelTable.of(records, np.array(labels), tasks)


def test_the_digest_names_the_table_and_needs_the_secret() -> None:
    table = some_table(8)
    changed = table.labels.copy()
    changed[3] ^= 1
    others = [
        LabelTable.of(table.records, changed, table.tasks),
        LabelTable.of(table.records[:-1], table.labels[:-1], table.tasks),
        LabelTable.of(table.records, table.labels, ("cart",)),
    ]
    order = np.arange(8)[::-1]
    same = LabelTable.of(table.records[order], table.labels[order], table.tasks)
    assert same.digest(SECRET) == table.digest(SECRET)
    digests = {each.digest(SECRET) for each in [table, *others]} | {table.digest(SECRET[::-1])}
    assert len(digests) == 5


def write(path: Path, **columns: list[Any]) -> Path:
    table = pa.table(columns)
    if path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path)
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("ids", [["a1", "b2", "c3"], [10, 20, 30], ["007", "7", "NA"]])
def test_a_file_names_records_as_the_platform_does(tmp_path: Path, suffix: str, ids: list[Any]) -> None:
    file = write(tmp_path / f"labels{suffix}", click=ids, conversion=[0, 1, 1], cart=[True, False, True])
    table = read_labels(file, "click", ("conversion", "cart"), KEY)
    column = pa.array([each.encode() if isinstance(each, str) else each for each in ids])
    asked = tokens(key_fingerprints(column, "record"), KEY)
    assert table.look_up(asked, "conversion").tolist() == [0, 1, 1]
    assert table.look_up(asked, "cart").tolist() == [1, 0, 1]
    elsewhere = tokens(key_fingerprints(column, "record"), token_key(SECRET, "autumn"))
    assert table.look_up(elsewhere, "cart").sum() == 0


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"click": ["marked-7", "marked-7"], "conversion": [0, 1]}, "click"),
        ({"click": ["marked-7", None], "conversion": [0, 1]}, "click"),
        ({"click": [0.5, 1.5], "conversion": [0, 1]}, "click"),
        ({"click": ["a", "b"], "conversion": [0, 777]}, "conversion"),
        ({"click": ["a", "b"], "conversion": [0, None]}, "conversion"),
        ({"click": ["a", "b"], "conversion": ["marked-7", "0"]}, "conversion"),
        ({"click": ["a", "b"], "converted": [0, 1]}, "conversion"),
    ],
)
def test_faults_are_named_by_column_and_never_by_value(
    tmp_path: Path, columns: dict[str, Any], named: str
) -> None:
    file = write(tmp_path / "labels.parquet", **columns)
    with pytest.raises(BadInput, match=named) as refusal:
        read_labels(file, "click", ("conversion",), KEY)
    assert "marked-7" not in str(refusal.value)
    assert "777" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_files_that_are_no_table_are_refused(tmp_path: Path) -> None:
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(b"marked-7" * 100)
    for path in (torn, tmp_path / "nowhere.csv", tmp_path / "labels.txt"):
        with pytest.raises(BadInput) as refusal:
            read_labels(path, "click", ("conversion",), KEY)
        assert "marked-7" not in str(refusal.value)
