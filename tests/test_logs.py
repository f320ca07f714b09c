"""The published layouts of Criteo in miniature, rows made up here, and the real samples where they are."""

from __future__ import annotations

import gzip
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reading_checks import arrays, field_ids, prepare_log, prepared, read
from tacit.data.logs import named
from tacit.data.preparing import hashing_encoder, prepare
from tacit.data.reading.stream import LogReader
from tacit.errors import BadInput
from tacit.schema.columns import Role

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
    found = read(named("criteo-display"), path)
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
        LogReader(named("criteo-display"), tmp_path / "test.txt")


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
    assert read(named("criteo-search"), path).rows[0].keys() == set(SEARCH) - outcomes.keys()
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
        named("criteo-search"), search(tmp_path, {"user_id": -1}, {"click_timestamp": -1}, {"Sale": -1})
    )
    assert [row["user_id"] for row in found.rows] == [None]
    assert found.bad == {2: "click_timestamp: expected a time, got none", 3: "Sale: expected a label, got none"}


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
    reader = LogReader(named(log), sample(file), bad_rows_limit=0)
    result = prepare(reader, hashing_encoder(named(log)), tmp_path / "out")
    assert result.columns.rows == reader.rows_read == rows
    if positive_rate is not None:
        assert result.positive_rate == positive_rate
    if log == "visits":
        users = result.columns.key(Role.USER)
        assert users is not None
        assert len(np.unique(users)) == 3_785
