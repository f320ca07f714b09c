"""Known logs in miniature, rows made up here (Criteo, visits, conversions); real samples where present."""

from __future__ import annotations

import datetime
import gzip
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.data.logs.definition import find_log
from tacit.data.preparation import hashing_encoder, prepare
from tacit.data.reading.reader import LogReader
from tacit.errors import BadInput
from tacit.schema.columns import Role
from tests.support.reading_checks import arrays, field_ids, prepare_log, prepared, read

Row = dict[str, Any]


# Criteo Attribution: tabs, a header, -1 for missing

ATTRIBUTION = [
    "timestamp",
    "uid",
    "campaign",
    "conversion",
    "conversion_timestamp",
    "conversion_id",
    "attribution",
    "click",
    "click_pos",
    "click_nb",
    "cost",
    "cpo",
    "time_since_last_click",
    "cat1",
    "cat2",
    "cat3",
    "cat4",
    "cat5",
    "cat6",
    "cat7",
    "cat8",
    "cat9",
]
TOUCH = dict.fromkeys(ATTRIBUTION, 5) | {
    "conversion": 1,
    "attribution": 1,
    "click": 1,
    "click_pos": 2,
    "click_nb": 3,
}


def attribution(folder: Path, *changes: Row, name: str = "criteo_attribution_dataset.tsv.gz") -> Path:
    lines = ["\t".join(ATTRIBUTION)]
    lines += ["\t".join(str((TOUCH | change)[column]) for column in ATTRIBUTION) for change in changes]
    (folder / name).write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))
    return folder / name


@pytest.mark.parametrize(
    ("change", "label"),
    [
        ({}, 1),
        ({"click_pos": 0, "click_nb": 1}, 1),
        ({"conversion": 0}, 0),
        ({"attribution": 0}, 0),
        ({"click_pos": 1}, 0),
        ({"click_pos": 3}, 0),
        ({"click_pos": -1}, 0),
        ({"click_pos": -1, "click_nb": -1}, 0),
        ({"click_pos": -1, "click_nb": 0}, 0),
        ({"conversion": -1}, 0),
        ({"attribution": ""}, 0),
    ],
)
def test_attribution_is_a_conversion_attributed_to_its_last_click(
    tmp_path: Path, change: Row, label: int
) -> None:
    assert prepared("criteo-attribution", attribution(tmp_path, change)).label.tolist() == [label]


def test_attribution_passes_over_what_was_not_clicked(tmp_path: Path) -> None:
    path = attribution(
        tmp_path, {"click": 0, "uid": -1}, {}, {"click": 0}, {"conversion": 0}, {"uid": -1}, {"click": -1}
    )
    result = prepare_log("criteo-attribution", path)
    assert result.columns.label.tolist() == [1, 0]
    assert result.positive_rate == 0.5
    manifest = result.columns.manifest
    assert (manifest["rows_read"], manifest["rows"], manifest["rows_passed_over"]) == (6, 2, 3)
    assert manifest["bad_rows"]["first"] == [
        {"line": 6, "column": "uid", "problem": "expected a user, got none"}
    ]


def test_attribution_keys_numbers_and_features(tmp_path: Path) -> None:
    changes: list[Row] = [
        {"uid": 7},
        {"uid": 8, "campaign": 9, "cost": 0.25},
        {"uid": 7, "timestamp": 6, "cost": -1},
    ]
    columns = prepared("criteo-attribution", attribution(tmp_path, *changes))
    user, advertiser = columns["user"], columns["advertiser"]
    assert user[0] == user[2] != user[1]
    assert advertiser[0] == advertiser[2] != advertiser[1]
    assert columns["time"].tolist() == [5, 5, 6]
    assert columns["price"].tolist()[:2] == [5.0, 0.25]
    assert math.isnan(columns["price"][2])
    assert columns.manifest["fields"] == {
        "public": ["campaign", *(f"cat{number}" for number in range(1, 10)), "cost"],
        "sensitive": [],
    }
    assert "publisher" not in columns
    assert columns.key(Role.PUBLISHER) is None


def test_attribution_never_lets_an_outcome_in(tmp_path: Path) -> None:
    outcomes = {"conversion_timestamp": 99, "conversion_id": 98, "cpo": 0.97, "time_since_last_click": 96}
    plain = arrays(prepared("criteo-attribution", attribution(tmp_path, {}, {"conversion": 0})))
    told = arrays(
        prepared(
            "criteo-attribution", attribution(tmp_path, outcomes, {"conversion": 0, "click_nb": 8} | outcomes)
        )
    )
    assert told == plain
    for column in ("campaign", "cat1", "cat9", "cost", "uid", "timestamp"):  # the twin: what is used does show
        assert (
            arrays(prepared("criteo-attribution", attribution(tmp_path, {column: 77}, {"conversion": 0})))
            != plain
        )


# Criteo Display: tabs, no header, empty for missing

COUNTS, HASHES = [f"I{number}" for number in range(1, 14)], [f"C{number}" for number in range(1, 27)]


def display(folder: Path, *changes: Row) -> Path:
    usual = {"label": "0"} | dict.fromkeys(COUNTS, "3") | {name: f"{at:08x}" for at, name in enumerate(HASHES)}
    lines = ["\t".join((usual | change).values()) for change in changes]
    (folder / "train.txt").write_text("\n".join([*lines, ""]))
    return folder / "train.txt"


def test_display_has_forty_columns_and_a_header_of_none(tmp_path: Path) -> None:
    path = display(
        tmp_path, {"label": "1", "I2": "-2"}, dict.fromkeys((*COUNTS, *HASHES), ""), {"I2": "x"}, {"label": ""}
    )
    found = read(find_log("criteo-display"), path)
    assert found.bad == {
        3: "I2: expected a whole number, got another text",
        4: "label: expected a label, got none",
    }
    assert [row["label"] for row in found.rows] == [1, 0]
    assert (found.rows[0]["I2"], found.rows[0]["C3"]) == (-2, b"00000002")
    assert all(found.rows[1][name] is None for name in (*COUNTS, *HASHES))


def test_display_features_take_turns_in_being_public(tmp_path: Path) -> None:
    columns = prepared("criteo-display", display(tmp_path, {}))
    features = [*COUNTS, *HASHES]
    assert columns.manifest["fields"] == {"public": features[0::2], "sensitive": features[1::2]}
    assert columns.public.shape == (1, 20)
    assert columns.sensitive.shape == (1, 19)


def test_display_of_another_width_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("\t".join(["1"] * 39) + "\n")  # the challenge's test file has no label
    with pytest.raises(
        BadInput, match=r"expected 40 fields separated by '\\t' in line 1, got another first line"
    ):
        LogReader(find_log("criteo-display"), tmp_path / "test.txt")


# Criteo Sponsored Search: tabs without a header, or the extracts with commas and one

SEARCH = [
    "Sale",
    "SalesAmountInEuro",
    "time_delay_for_conversion",
    "click_timestamp",
    "nb_clicks_1week",
    "product_price",
    "product_age_group",
    "device_type",
    "audience_id",
    "product_gender",
    "product_brand",
    "product_category1",
    "product_category2",
    "product_category3",
    "product_category4",
    "product_category5",
    "product_category6",
    "product_category7",
    "product_country",
    "product_id",
    "product_title",
    "partner_id",
    "user_id",
]
CLICK = {name: f"{name.upper()}F0" for name in SEARCH} | {
    "Sale": 0, "SalesAmountInEuro": "-1.0", "time_delay_for_conversion": -1, "click_timestamp": 1_600_000_000,
    "nb_clicks_1week": 9, "product_price": "0.0", "product_category6": -1, "product_title": "AA0 BB1 CC2",
}  # fmt: skip


def search(folder: Path, *changes: Row, commas: bool = False) -> Path:
    rows = [[str((CLICK | change)[column]) for column in SEARCH] for change in changes]
    if commas:
        header = ["", *(name.replace("product_category", "prod_category") for name in SEARCH)]
        rows = [header, *([str(1000 + 7 * at), *row] for at, row in enumerate(rows))]
    path = folder / ("partner.csv" if commas else "CriteoSearchData")
    path.write_text("\n".join([("," if commas else "\t").join(row) for row in rows] + [""]))
    return path


def test_search_is_the_same_with_tabs_and_with_commas(tmp_path: Path) -> None:
    changes: list[Row] = [
        {"Sale": 1, "user_id": "U1"},
        {"user_id": "U2"},
        {"user_id": "U1", "product_brand": -1},
    ]
    tabs = prepared("criteo-search", search(tmp_path, *changes))
    commas = prepared("criteo-search", search(tmp_path, *changes, commas=True))
    assert arrays(tabs) == arrays(commas)
    assert tabs.label.tolist() == [1, 0, 0]
    assert tabs.manifest["fields"]["sensitive"] == ["device_type", "audience_id", "user_id"]
    assert tabs.manifest["sensitive_keys"] == ["user"]
    assert tabs["user"][0] == tabs["user"][2] != tabs["user"][1]
    assert len(set(field_ids(tabs, "public", "product_brand"))) == 2


@pytest.mark.parametrize("commas", [False, True])
def test_search_never_lets_the_price_or_an_outcome_in(tmp_path: Path, commas: bool) -> None:
    plain = arrays(prepared("criteo-search", search(tmp_path, {"Sale": 1}, commas=commas)))
    outcomes = {"SalesAmountInEuro": "12.5", "time_delay_for_conversion": 86_400, "product_price": "12.5"}
    path = search(tmp_path, {"Sale": 1} | outcomes, commas=commas)
    assert arrays(prepared("criteo-search", path)) == plain
    assert read(find_log("criteo-search"), path).rows[0].keys() == set(SEARCH) - outcomes.keys()
    for column in set(SEARCH) - outcomes.keys() - {"Sale"}:  # the twin: everything else does show
        path = search(tmp_path, {"Sale": 1, column: 77}, commas=commas)
        assert arrays(prepared("criteo-search", path)) != plain, column


def test_search_has_hours_weekdays_and_the_log_of_clicks(tmp_path: Path) -> None:
    start, hour, day = 1_600_000_000, 3600, 86_400
    changes = [{"click_timestamp": start + step} for step in (0, 7 * day, day, hour)]
    columns = prepared(
        "criteo-search", search(tmp_path, *changes, *({"nb_clicks_1week": n} for n in (8, 15, 16)))
    )
    hours, weekdays = (field_ids(columns, "public", f"click_{part}") for part in ("hour", "weekday"))
    assert hours[0] == hours[1] == hours[2] != hours[3]
    assert weekdays[0] == weekdays[1] == weekdays[3] != weekdays[2]
    clicks = field_ids(columns, "public", "nb_clicks_1week")
    assert clicks[4] == clicks[5] != clicks[6]
    assert columns["time"].tolist() == [start, start + 7 * day, start + day, start + hour, start, start, start]


def test_search_needs_a_label_and_a_time_but_no_user(tmp_path: Path) -> None:
    found = read(
        find_log("criteo-search"), search(tmp_path, {"user_id": -1}, {"click_timestamp": -1}, {"Sale": -1})
    )
    assert [row["user_id"] for row in found.rows] == [None]
    assert found.bad == {2: "click_timestamp: expected a time, got none", 3: "Sale: expected a label, got none"}


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
    first, second = read(find_log("visits"), path).rows
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
    found = read(find_log("visits"), path)
    assert [(row["place"], row["hour_of_week"]) for row in found.rows] == [
        (b"p1", 168),
        (b"p1", 0),
        (b"p1", None),
    ]
    assert found.bad == {4: "hour_of_week: expected 0 to 168, got another number"}
    assert "time" not in prepared("visits", path)


def test_visits_without_any_time_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="visits: expected a column time or hour_of_week, got neither"):
        read(find_log("visits"), visits(tmp_path, {}))


def test_visits_out_of_this_world_are_bad_rows(tmp_path: Path) -> None:
    odd: list[Row] = [
        {"latitude": 90.01},
        {"latitude": -91},
        {"longitude": 180.5},
        {"latitude": "nan"},
        {"user": ""},
    ]
    fine: list[Row] = [{"latitude": -90, "longitude": 180}, {"latitude": ""}]
    found = read(find_log("visits"), visits(tmp_path, *odd, {"time": ""}, *fine, time=0))
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
    (row,) = read(find_log("visits"), path).rows
    assert (row["category_root"], row["category"]) == ("Fööd".encode(), b"Tea House")


def test_visits_of_places_by_number(tmp_path: Path) -> None:
    numbered = VISIT | {"user": 1, "place": 2, "category_path": 3, "time": 0}
    pq.write_table(pa.table({name: [value] for name, value in numbered.items()}), tmp_path / "visits.parquet")
    (row,) = read(find_log("visits"), tmp_path / "visits.parquet").rows
    assert (row["user"], row["place"], row["category"], row["category_root"]) == (1, 2, b"3", b"3")


# Conversions: made up, and Parquet only


def test_conversions_have_sequences_and_further_labels(tmp_path: Path) -> None:
    names = [column.name for column in find_log("conversions").schema.columns]
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
        LogReader(find_log("conversions"), tmp_path / "conversions.csv")


# The real samples, which may not be shipped


def sample(name: str) -> Path:
    folder = os.environ.get("TACIT_DATA")
    if not folder:
        pytest.skip("TACIT_DATA is not set: the real samples were not read")
    return Path(folder) / name


@pytest.mark.parametrize(
    ("log", "file", "rows", "positive_rate"),
    [
        ("criteo-display", "criteo_display_10k.tsv", 10_000, 0.2182),
        ("criteo-search", "criteo_search_partner.csv", 2_822, None),
        ("visits", "checkins_nyc.csv.gz", 105_961, 1.0),
    ],
)
def test_a_real_sample(tmp_path: Path, log: str, file: str, rows: int, positive_rate: float | None) -> None:
    reader = LogReader(find_log(log), sample(file), bad_rows_limit=0)
    result = prepare(reader, hashing_encoder(find_log(log)), tmp_path / "out")
    assert result.columns.rows == reader.rows_read == rows
    if positive_rate is not None:
        assert result.positive_rate == positive_rate
    if log == "visits":
        users = result.columns.key(Role.USER)
        assert users is not None
        assert len(np.unique(users)) == 3_785
