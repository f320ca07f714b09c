"""A log of one's own: TOML in, columns out, the same from CSV and from Parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.data.logs import definition
from tacit.data.preparation import PreparedLog, hashing_encoder, prepare
from tacit.data.reading.reader import LogReader
from tacit.errors import BadInput, TooManyBadRows
from tacit.schema.columns import Kind, Role

SCHEMA = """
name = "shop"
utc_offset_hours = 1

[file]
missing = ["", "NULL"]

[split]
way = "by-user"
shares = { train = 0.5, test = 0.5 }

[keep]
column = "shown"
value = 1

[bins]
public = 1000
sensitive = 500

[columns.site]
role = "public"

[columns.hour]
role = "public"
kind = "hour"
source = "time"

[columns.time]
role = "time"
kind = "whole"

[columns.age]
role = "sensitive"
kind = "whole"
buckets_per_doubling = 2
between = [0, 120]

[columns.visitor]
role = "user"

[columns.paid]
role = "price"
kind = "real"

[columns.bought]
role = "label"
kind = "flag"

[columns.refund]
role = "left-out"
why = "an outcome"
"""
ROWS = """site,time,age,visitor,paid,bought,refund,shown
a.example,3600,33,v1,0.5,1,0,1
b.example,7200,NULL,v2,,0,0,1
"with, comma",7300,44,v1,1.25,0,1,1
a.example,9000,7,v3,2,1,0,0
"""


def written(folder: Path, text: str = SCHEMA) -> Path:
    path = folder / "shop.toml"
    path.write_text(text)
    return path


def prepared(folder: Path, name: str, schema: Path) -> PreparedLog:
    log = definition.load_log(schema)
    return prepare(LogReader(log, folder / name), hashing_encoder(log), folder / f"{name}.columns")


def test_csv_and_parquet_give_the_same_columns(tmp_path: Path) -> None:
    schema = written(tmp_path)
    (tmp_path / "shop.csv").write_text(ROWS)
    pq.write_table(
        pa.table(
            {
                "visitor": ["v1", "v2", "v1", "v3"],
                "site": pa.array(["a.example", "b.example", "with, comma", "a.example"]).dictionary_encode(),
                "time": pa.array([3600, 7200, 7300, 9000], pa.int32()),
                "age": [33, None, 44, 7],
                "paid": pa.array([0.5, None, 1.25, 2.0], pa.float32()),
                "bought": [1, 0, 0, 1],
                "shown": [1, 1, 1, 0],
            }
        ),
        tmp_path / "shop.parquet",
    )
    text, binary = (prepared(tmp_path, name, schema) for name in ("shop.csv", "shop.parquet"))
    assert text.columns.rows == 3
    assert text.columns.manifest["rows_passed_over"] == 1
    assert text.columns.manifest["arrays"] == binary.columns.manifest["arrays"]
    for name in text.columns.manifest["arrays"]:
        np.testing.assert_array_equal(text.columns[name], binary.columns[name])
    assert text.columns.label.tolist() == [1, 0, 0]
    assert text.columns["price"].tolist()[0] == 0.5
    assert np.isnan(text.columns["price"][1])
    users = text.columns.key(Role.USER)
    assert users is not None
    assert users[0] == users[2] != users[1]
    assert "refund" not in str(text.columns.manifest)


def test_a_file_without_a_header_names_its_columns_in_order(tmp_path: Path) -> None:
    names = 'columns = ["site", "time", "age", "visitor", "paid", "bought", "refund", "shown"]\nheader = false'
    (tmp_path / "shop.csv").write_text(ROWS)
    (tmp_path / "bare.csv").write_text(ROWS.split("\n", 1)[1])
    with_header = prepared(tmp_path, "shop.csv", written(tmp_path))
    bare = prepared(tmp_path, "bare.csv", written(tmp_path, SCHEMA.replace("[file]", f"[file]\n{names}")))
    np.testing.assert_array_equal(with_header.columns.public, bare.columns.public)


def test_a_number_outside_its_limits_is_a_bad_row(tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_text(ROWS.replace(",44,", ",444,"))
    log = definition.load_log(written(tmp_path))
    with pytest.raises(TooManyBadRows, match="line 4, column age: expected 0 to 120"):
        prepare(LogReader(log, tmp_path / "shop.csv", bad_rows_limit=0), hashing_encoder(log), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("found", "instead", "problem"),
    [
        ('role = "user"', 'role = "person"', "column visitor: expected Role to be one of"),
        ('role = "user"', 'role = "user"\nroles = ["user"]', "column visitor: expected role ="),
        ('role = "user"', "", "column visitor: expected role ="),
        ('role = "user"', 'role = "user"\nfield = 1', "unknown key columns.visitor.field"),
        ("[bins]", "[bin]", "unknown key bin"),
        ("[bins]\npublic", "[bins]\nprivate", "unknown key bins.private"),
        ('way = "by-user"', 'way = "by-luck"', "expected Way to be one of"),
        ("train = 0.5", "train = 0.6", "shares that add up to 1"),
        ('role = "label"', 'role = "public"', "expected a column of role label"),
        ("utc_offset_hours = 1", "utc_offset_hours = 99", "utc_offset_hours"),
        ("between = [0, 120]", "between = [120, 0]", "column age: expected between"),
        ("value = 1", 'value = "1"', "keep.value"),
        (
            "shares = { train = 0.5, test = 0.5 }",
            "shares = [0.5, 0.5]",
            "expected split.way and split.shares =",
        ),
        ('missing = ["", "NULL"]', 'missing = ""', "expected file.missing to be a list"),
        ("[file]", '[file]\nquoted = "yes"', "expected file.quoted to be true or false"),
        ('column = "shown"', 'column = "bought"', "column bought: expected keep.column to be public"),
        ('column = "shown"', 'column = "age"', "column age: expected keep.column to be public"),
        ('kind = "hour"', 'kind = "real"', "column time: expected cells of real"),
        ('name = "shop"', 'name = "shop', "expected TOML"),
        ("[file]", "[file]\nheader = false", "expected file.columns"),
        ("[file]", '[file]\nheader = false\ncolumns = ["site"]', "expected it in file.columns"),
        ("[file]", '[file]\ncolumns = ["site"]', "expected file.columns only for a file without a header"),
        ("[file]", '[file]\nseparator = "||"', "separator of one character"),
        ("[columns.site]", "columns2 = 1\n[columns.site]", "unknown key"),
        ("missing =", "missings =", "unknown key file.missings"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, found: str, instead: str, problem: str) -> None:
    assert found in SCHEMA
    path = written(tmp_path, SCHEMA.replace(found, instead, 1))
    with pytest.raises(BadInput) as refusal:
        definition.load_log(path)
    assert problem in str(refusal.value)
    assert str(refusal.value).startswith(str(path))
    assert "\n" not in str(refusal.value)


def test_every_kind_can_be_read() -> None:
    assert set(definition.CELL_TYPES) == set(Kind)


def test_a_schema_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.toml: expected a schema here, got no such file"):
        definition.load_log(tmp_path / "none.toml")


def test_a_column_that_the_file_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_text(ROWS.replace("visitor", "person", 1))
    with pytest.raises(BadInput, match="visitor"):
        LogReader(definition.load_log(written(tmp_path)), tmp_path / "shop.csv")
