"""Frames of every library give one table, and roles are said, or guessed aloud."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tacit.data.encoding.encoder import Encoder
from tacit.data.encoding.vocabulary import Hashing
from tacit.data.frame_roles import FrameRoles, name_columns
from tacit.data.frames import encode_rows, read_frame
from tacit.errors import BadInput
from tacit.schema.columns import Kind, Role

COLUMNS: dict[str, list[Any]] = {
    "site": ["a", "b", None, "a"],
    "ad": [17, 18, 17, 3],
    "spent": [0.5, None, 20.25, -1.0],
    "member": [True, False, None, True],
    "seen": [datetime.datetime(2026, 1, day, 5 * day) for day in (1, 2, 3, 4)],
}
ALL = FrameRoles(public=("site", "ad", "seen"), sensitive=("spent", "member"), categories=("ad",))


def _relation() -> Any:
    table = pa.table(COLUMNS)
    return duckdb.from_arrow(table)


FRAMES: dict[str, Callable[[], Any]] = {
    "arrow": lambda: pa.table(COLUMNS),
    "batch": lambda: pa.table(COLUMNS).to_batches()[0],
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "pandas of texts as categories": lambda: pd.DataFrame(COLUMNS).astype({"site": "category"}),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "duckdb": _relation,
    "columns": lambda: dict(COLUMNS),
    "rows": lambda: pa.table(COLUMNS).to_pylist(),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_library_gives_the_same_ids(kind: str) -> None:
    reference = read_frame(FRAMES["arrow"]())
    encoder = Encoder.of(ALL.schema(reference, "label"), Hashing(2**16), Hashing(2**16))
    expected = encode_rows(encoder, reference)
    table = read_frame(FRAMES[kind]())
    assert table.column_names == list(COLUMNS)
    for found, side in zip(encode_rows(encoder, table), expected, strict=True):
        np.testing.assert_array_equal(found, side)
    assert len(np.unique(expected[0][:, 0])) == 3  # a, b and missing are three values


def test_numbers_are_one_value_however_they_are_spelled() -> None:
    roles = FrameRoles(public=("ad",), sensitive=(), categories=("ad",))
    tables = [
        read_frame({"ad": values})
        for values in ([17, 3], [17.0, 3.0], ["17", "3"], [np.uint64(17), np.uint64(3)])
    ]
    encoder = Encoder.of(roles.schema(tables[0], "label"), Hashing(2**20), Hashing(1))
    found = [encode_rows(encoder, table)[0].tolist() for table in tables]
    assert found[0] == found[1] == found[2] == found[3]


@pytest.mark.parametrize("name", ["code", "code_id", "amount"])
@pytest.mark.parametrize("other", [0.5, 3, -1e6, Decimal("2.50"), None])
def test_one_row_s_value_changes_no_other_row_s_features(name: str, other: float | None) -> None:
    """The neighbours of DP-SGD differ in one row: another value there leaves the ids of all others as they are,
    also where it makes fractions of a column of whole numbers."""
    roles = FrameRoles(public=(), sensitive=(name,), categories=("code",) if name == "code" else ())
    exact = [Decimal("17"), Decimal("3"), Decimal("0")]
    for others in ([17, 3, 0], [17.0, 3.0, 0.25], exact):
        columns = [pd.DataFrame({name: [*others, each]}, dtype=None) for each in (4, other)]
        tables = [read_frame(each) for each in columns]
        made = [Encoder.of(roles.schema(table, "label"), Hashing(1), Hashing(2**20)) for table in tables]
        assert made[0] == made[1]
        ids = [encode_rows(made[0], table)[1][:3].tolist() for table in tables]
        assert ids[0] == ids[1]


def test_a_value_in_one_column_of_rows_leaves_the_others_as_they_are() -> None:
    rows = [[i % 3, i % 5] for i in range(20)]
    changed = [*rows[:5], [2, 2.5], *rows[6:]]
    roles = FrameRoles(public=("x0",), sensitive=("x1",))
    schemas = [roles.schema(read_frame(each), "label") for each in (rows, changed)]
    assert schemas[0] == schemas[1]


def test_numbers_that_fractions_cannot_tell_apart_are_refused_as_categories() -> None:
    """pandas makes fractions of 64-bit ids where one is missing: others would be read as their neighbours."""
    roles = FrameRoles(public=(), sensitive=("user_id",))
    table = read_frame(pd.DataFrame({"user_id": [2**55 + 1, 2**55 + 2, None]}))
    encoder = Encoder.of(roles.schema(table, "label"), Hashing(1), Hashing(2**20))
    with pytest.raises(BadInput, match="column user_id: expected texts or whole numbers, got double"):
        encode_rows(encoder, table)


def test_a_sensitive_column_of_missing_values_alone_is_refused() -> None:
    with pytest.raises(BadInput, match="column z: expected values of some type, got missing ones alone"):
        FrameRoles(sensitive=("z",), public=()).schema(read_frame({"z": [None, None]}), "label")


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["a", "b"]), pl.String])
def test_polars_categories(kind: Any) -> None:
    table = read_frame(pl.DataFrame({"site": pl.Series(["a", "b", None, "a"], dtype=kind)}))
    schema = FrameRoles(public=("site",), sensitive=()).schema(table, "label")
    encoder = Encoder.of(schema, Hashing(2**16), Hashing(1))
    expected = encode_rows(encoder, read_frame(pl.DataFrame({"site": ["a", "b", None, "a"]})))[0]
    np.testing.assert_array_equal(encode_rows(encoder, table)[0], expected)


def test_an_array_has_columns_by_place() -> None:
    table = read_frame(np.arange(6).reshape(3, 2))
    assert table.column_names == ["x0", "x1"]
    assert name_columns("public", [1], table.column_names) == ("x1",)
    assert read_frame(pd.DataFrame(np.zeros((3, 2)))).column_names == ["x0", "x1"]


def test_kinds_follow_from_types_and_names() -> None:
    many = {"user_id": list(range(300)), "count": list(range(300)), "hour": [each % 24 for each in range(300)]}
    schema = FrameRoles(public=("hour",), sensitive=("user_id", "count")).schema(read_frame(many), "label")
    assert [schema[name].kind for name in many] == [Kind.CATEGORY, Kind.REAL, Kind.CATEGORY]
    seen = ALL.schema(read_frame(COLUMNS), "label")
    assert (seen["seen hour"].kind, seen["seen weekday"].kind) == (Kind.HOUR, Kind.WEEKDAY)
    assert (seen["spent"].kind, seen["member"].kind) == (Kind.REAL, Kind.FLAG)


def test_the_kind_of_a_sensitive_column_does_not_depend_on_its_values() -> None:
    """As many values as rows, or one: the schema tells nothing about either."""
    roles = FrameRoles(sensitive=("count",), public=())
    one, many = ({"count": values} for values in ([1] * 500, list(range(500))))
    assert roles.schema(read_frame(one), "label") == roles.schema(read_frame(many), "label")


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        (FrameRoles(), {"site": Role.SENSITIVE, "ad": Role.SENSITIVE}),
        (FrameRoles(public=("site",)), {"site": Role.PUBLIC, "ad": Role.SENSITIVE}),
        (FrameRoles(sensitive=("site",)), {"site": Role.SENSITIVE, "ad": Role.PUBLIC}),
        (FrameRoles(public=("site",), sensitive=()), {"site": Role.PUBLIC, "ad": Role.LEFT_OUT}),
    ],
)
def test_columns_that_are_not_named(roles: FrameRoles, expected: dict[str, Role]) -> None:
    table = read_frame({"site": ["a"], "ad": [1]})
    schema = roles.schema(table, "label")
    assert {name: next(iter(schema[name].roles)) for name in table.column_names} == expected


def test_guesses_are_said() -> None:
    names = ["site", "visitor_id", "clicked"]
    assert "site, visitor_id: taken as sensitive" in FrameRoles().guess(names, "clicked")
    assert "unit='visitor_id'" in FrameRoles().guess(names, "clicked")
    assert "site: taken as public" in FrameRoles(sensitive=("visitor_id",)).guess(names, "clicked")
    sure = FrameRoles(public=("site",), sensitive=(), unit="visitor_id")
    assert sure.guess(names, "clicked") == ""


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (pd.DataFrame({"age": [1, "two"]}), "column age: expected values of one type, got int and str"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "expected every column of X once, got 'a' twice"),
        (np.zeros(3), "Expected 2D array, got 1D array"),
        (np.array([[np.inf]]), "expected finite numbers or NaN in X, got infinity"),
        ({"a": [1, 2], "b": [1]}, "expected columns of one length, got 1 and 2"),
        (3, "expected X to be a frame of pandas, Polars, Arrow or DuckDB, an array or rows, got int"),
        ([[1, 2], [3]], "expected X to be rows of one length, got rows of several"),
    ],
)
def test_frames_that_cannot_be_read(frame: Any, said: str) -> None:
    with pytest.raises(BadInput) as refusal:
        read_frame(frame)
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        (FrameRoles(public=("sit",)), "public: expected columns of the frame, got 'sit': did you mean 'site'?"),
        (FrameRoles(public=("site",), sensitive=("site",)), "column site: expected one role, got public and"),
        (FrameRoles(public=("site", "site")), "public: expected each column once, got 'site' twice"),
        (FrameRoles(public=("clicked",)), "public: expected features, got 'clicked', which is the label"),
        (FrameRoles(unit="visitor"), "unit: expected a column of the frame, got 'visitor'"),
        (FrameRoles(unit="site", sensitive=("site",)), "unit: expected a column that names people, got 'site'"),
    ],
)
def test_roles_that_cannot_be_meant(roles: FrameRoles, said: str) -> None:
    with pytest.raises(BadInput) as refusal:
        roles.schema(read_frame({"site": ["a"], "clicked": [1]}), "clicked")
    assert said in str(refusal.value)


def test_a_column_of_lists_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="column seen: expected texts, numbers, flags or times, got list"):
        FrameRoles().schema(read_frame(pa.table({"seen": [[1], [2]]})), "label")
