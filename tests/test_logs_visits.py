"""Visits in the forms that their files take, and the made-up conversions; all rows are made up here."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reading_checks import prepared, read
from tacit.data.logs import named
from tacit.data.reading.stream import LogReader
from tacit.errors import BadInput

Row = dict[str, Any]

# Visits: any file with these columns

VISIT = {
    "user": "u1",
    "place": "p1",
    "category_path": "Food>Cafe>Tea House",
    "latitude": 40.7,
    "longitude": -74.0,
}


def visits(folder: Path, *changes: Row, **usual: Any) -> Path:
    rows = [VISIT | usual | change for change in changes]
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    (folder / "visits.csv").write_text("\n".join([*lines, ""]))
    return folder / "visits.csv"


def test_visits_take_the_ends_of_a_path_and_the_hour_of_a_time(tmp_path: Path) -> None:
    moment = datetime.datetime(2017, 5, 10, 23, 59, 59, tzinfo=datetime.UTC)  # a Wednesday
    monday = datetime.datetime(2017, 5, 8, tzinfo=datetime.UTC)
    path = visits(
        tmp_path, {"time": int(moment.timestamp())}, {"time": int(monday.timestamp()), "category_path": "Bar"}
    )
    first, second = read(named("visits"), path).rows
    assert (first["category_root"], first["category"], first["hour_of_week"]) == (
        b"Food",
        b"Tea House",
        2 * 24 + 23,
    )
    assert (second["category_root"], second["category"], second["hour_of_week"]) == (b"Bar", b"Bar", 0)
    columns = prepared("visits", path)
    assert columns.label.tolist() == [1, 1]
    assert columns.manifest["fields"] == {
        "public": ["hour_of_week"],
        "sensitive": ["place", "category", "category_root"],
    }
    assert columns["latitude"].tolist() == [40.7, 40.7]
    assert columns["longitude"].tolist() == [-74.0, -74.0]
    assert columns["time"].tolist() == [int(moment.timestamp()), int(monday.timestamp())]


def test_visits_may_call_a_place_a_venue_and_have_the_hour_ready(tmp_path: Path) -> None:
    path = visits(
        tmp_path, {"hour_of_week": 168}, {"hour_of_week": 0}, {"hour_of_week": 169}, {"hour_of_week": ""}
    )
    path.write_text(path.read_text().replace("place", "venue_id"))
    found = read(named("visits"), path)
    assert [(row["place"], row["hour_of_week"]) for row in found.rows] == [
        (b"p1", 168),
        (b"p1", 0),
        (b"p1", None),
    ]
    assert found.bad == {4: "hour_of_week: expected 0 to 168, got another number"}
    assert "time" not in prepared("visits", path)


def test_visits_without_any_time_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="visits: expected a column time or hour_of_week, got neither"):
        read(named("visits"), visits(tmp_path, {}))


def test_visits_out_of_this_world_are_bad_rows(tmp_path: Path) -> None:
    odd: list[Row] = [
        {"latitude": 90.01},
        {"latitude": -91},
        {"longitude": 180.5},
        {"latitude": "nan"},
        {"user": ""},
    ]
    fine: list[Row] = [{"latitude": -90, "longitude": 180}, {"latitude": ""}]
    found = read(named("visits"), visits(tmp_path, *odd, {"time": ""}, *fine, time=0))
    assert found.bad == {
        **dict.fromkeys((2, 3, 5), "latitude: expected -90 to 90, got another number"),
        4: "longitude: expected -180 to 180, got another number",
        6: "user: expected a user, got none",
        7: "time: expected a time, got none",
    }
    assert [row["latitude"] for row in found.rows] == [-90.0, None]


def test_visits_of_places_in_any_language(tmp_path: Path) -> None:
    path = visits(tmp_path, {}, time=0)
    path.write_bytes(path.read_bytes().replace(b"Food>", "Fööd>é>".encode()))
    (row,) = read(named("visits"), path).rows
    assert (row["category_root"], row["category"]) == ("Fööd".encode(), b"Tea House")


def test_visits_of_places_by_number(tmp_path: Path) -> None:
    numbered = VISIT | {"user": 1, "place": 2, "category_path": 3, "time": 0}
    pq.write_table(pa.table({name: [value] for name, value in numbered.items()}), tmp_path / "visits.parquet")
    (row,) = read(named("visits"), tmp_path / "visits.parquet").rows
    assert (row["user"], row["place"], row["category"], row["category_root"]) == (1, 2, b"3", b"3")


# Conversions: made up, and Parquet only


def test_conversions_have_sequences_and_further_labels(tmp_path: Path) -> None:
    names = [column.name for column in named("conversions").schema.columns]
    lists = {name: [[1, 2], [], [3]] for name in names if name.startswith("sequence")}
    table = {name: [1, 0, 1] for name in names} | lists | {"cart": [0, 1, 1], "click_id": [5, 6, 5]}
    pq.write_table(pa.table(table), tmp_path / "conversions.parquet")
    columns = prepared("conversions", tmp_path / "conversions.parquet")
    assert columns.label.tolist() == [1, 0, 1]
    assert columns["auxiliary-cart"].tolist() == [0, 1, 1]
    for name in lists:
        offsets, ids = columns.sequence(name)
        assert offsets.tolist() == [0, 2, 2, 3]
        assert len(ids) == 3
    assert columns["record"][0] == columns["record"][2] != columns["record"][1]
    (tmp_path / "conversions.csv").write_text(",".join(names) + "\n")
    with pytest.raises(BadInput, match="expected a Parquet file, which can hold the lists of sequence_topic"):
        LogReader(named("conversions"), tmp_path / "conversions.csv")
