"""Taobao's tables in miniature, rows made up here: joins, auctions, bids, histories and ways to store them."""

from __future__ import annotations

import gzip
import io
import math
from collections import defaultdict
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

import tacit.data.logs.taobao_tables as tables_module
from tacit.data.logs.definition import find_log
from tacit.data.logs.taobao_tables import FIRST_DAY, HISTORY, HISTORY_LENGTH, PERSON, read_histories
from tacit.data.reading.reader import LogReader
from tacit.data.reading.text import blocks
from tacit.errors import BadInput
from tests.support.reading_checks import arrays, field_ids, prepare_log, prepared, read

TAOBAO = find_log("taobao")
DAY = 86_400
T = FIRST_DAY + 1000
SHOWN = "430548_1007"
HEADER = "user,time_stamp,adgroup_id,pid,nonclk,clk\n"
TABLES = {
    "raw_sample": f"""{HEADER}\
11,{T},101,{SHOWN},1,0
11,{T},102,{SHOWN},0,1
12,{T},101,{SHOWN},1,0
11,{T + 1},103,{SHOWN},1,0
13,{T + DAY},999,{SHOWN},1,0
""",
    "ad_feature": """adgroup_id,cate_id,campaign_id,customer,brand,price
103,7,33,3,500,99999999.0
101,6,31,1,NULL,200.0
102,6,32,1,501,12.5
""",
    "user_profile": """userid,cms_segid,cms_group_id,final_gender_code,age_level,pvalue_level,shopping_level,\
occupation,new_user_class_level\x20
12,5,4,1,4,,3,0,
11,0,5,2,5,2,3,1,4
""",
    "behavior_log": f"""user,time_stamp,btag,cate,brand
11,{FIRST_DAY - 1},pv,72,900
11,{FIRST_DAY},buy,73,901
11,{FIRST_DAY - 50},cart,71,902
99,{FIRST_DAY - 50},fav,70,903
13,{FIRST_DAY + 5},pv,74,904
""",
}  # fmt: skip


def stored(folder: Path, form: str = "csv", **changes: str) -> Path:
    """The tables in one of the three forms; a change to the empty text leaves its table out."""
    folder.mkdir(exist_ok=True)
    for name, text in (TABLES | changes).items():
        data = text.encode()
        if not data:
            continue
        if form == "parquet":
            nulls = arrow_csv.ConvertOptions(null_values=["", "NULL"])
            table = arrow_csv.read_csv(io.BytesIO(data), convert_options=nulls)
            pq.write_table(table, folder / f"{name}.parquet")
        else:
            (folder / f"{name}.{form}").write_bytes(gzip.compress(data) if form == "csv.gz" else data)
    return folder


def test_the_first_day_begins_at_midnight_in_china() -> None:
    assert datetime(2017, 5, 6, tzinfo=timezone(timedelta(hours=8))).timestamp() == FIRST_DAY


def test_impressions_are_joined_with_ads_and_people(tmp_path: Path) -> None:
    found = read(TAOBAO, stored(tmp_path))
    assert found.bad == {}
    ads = [
        (row["cate_id"], row["campaign_id"], row["customer"], row["brand"], row["price"]) for row in found.rows
    ]
    first = (6, 31, 1, None, 200.0)
    assert ads == [first, (6, 32, 1, 501, 12.5), first, (7, 33, 3, 500, 99_999_999.0), (None,) * 5]
    people = [tuple(row[name] for name in PERSON) for row in found.rows]
    known = (0, 5, 2, 5, 2, 3, 1, 4)
    assert people == [known, known, (5, 4, 1, 4, None, 3, 0, None), known, (None,) * 8]
    assert [row["clk"] for row in found.rows] == [0, 1, 0, 0, 0]
    assert all("nonclk" not in row for row in found.rows)


def test_an_unknown_ad_or_person_is_missing_in_the_arrays(tmp_path: Path) -> None:
    rows = HEADER + f"14,{T},999,a,1,0\n15,{T},998,a,1,0\n11,{T},101,a,1,0\n"
    columns = prepared("taobao", stored(tmp_path / "log", raw_sample=rows))
    for side, name in (("public", "cate_id"), ("public", "customer"), ("sensitive", "age_level")):
        ids = field_ids(columns, side, name)
        assert ids[0] == ids[1] != ids[2]
    assert np.isnan(columns["price"]).tolist() == [True, True, False]
    assert columns["advertiser"][0] == columns["advertiser"][1] != columns["advertiser"][2]


def test_an_auction_is_one_users_one_moment(tmp_path: Path) -> None:
    columns = prepared("taobao", stored(tmp_path / "log"))
    auction = columns["auction"].tolist()
    assert auction[0] == auction[1]
    assert len(set(auction)) == 4


def test_no_two_auctions_of_different_users_and_moments_meet(tmp_path: Path) -> None:
    pairs = [(11, T), (12, T), (T, 11), (12, T ^ 11 ^ 12), (11 + 2**20, T), (11, T + 2**20)]
    rows = "".join(f"{user},{stamp},101,a,1,0\n" for user, stamp in pairs)
    columns = prepared("taobao", stored(tmp_path / "log", raw_sample=HEADER + rows))
    assert len(set(columns["auction"].tolist())) == len(pairs)


def test_a_bid_is_a_share_of_the_price_which_is_cut(tmp_path: Path) -> None:
    bids = [row["bid"] for row in read(TAOBAO, stored(tmp_path / "log")).rows]
    assert bids[:4] == pytest.approx([2.0, 0.125, 2.0, 1000.0])
    assert bids[4] is None
    kept = prepared("taobao", tmp_path / "log")["price"].tolist()
    assert kept[:4] == pytest.approx([2.0, 0.125, 2.0, 1000.0])
    assert math.isnan(kept[4])


def test_days_and_hours_are_those_of_china(tmp_path: Path) -> None:
    stamps = (FIRST_DAY - 1, FIRST_DAY, FIRST_DAY + DAY - 1, FIRST_DAY + 3599)
    rows = "".join(f"11,{stamp},101,a,1,0\n" for stamp in stamps)
    columns = prepared("taobao", stored(tmp_path / "log", raw_sample=HEADER + rows))
    weekdays, hours = (field_ids(columns, "public", name) for name in ("weekday", "hour"))
    assert weekdays[0] != weekdays[1] == weekdays[2] == weekdays[3]
    assert hours[0] == hours[2] != hours[1] == hours[3]


@pytest.mark.parametrize("form", ["csv.gz", "parquet"])
def test_however_the_tables_are_stored_the_arrays_are_the_same(tmp_path: Path, form: str) -> None:
    plain = prepare_log("taobao", stored(tmp_path / "plain"))
    other = prepare_log("taobao", stored(tmp_path / "other", form))
    assert other.columns.manifest == plain.columns.manifest
    for name, values in arrays(plain.columns).items():
        assert np.array_equal(values, arrays(other.columns)[name], equal_nan=name == "price"), name


# Histories


def seen(folder: Path) -> list[Any]:
    return [row[HISTORY] for row in read(TAOBAO, folder).rows]


def test_a_history_is_what_was_seen_before_the_first_day_oldest_first(tmp_path: Path) -> None:
    assert seen(stored(tmp_path)) == [[71, 72], [71, 72], None, [71, 72], None]
    columns = prepared("taobao", tmp_path)
    offsets, ids = columns.sequence(HISTORY)
    assert offsets.tolist() == [0, 2, 4, 4, 6, 6]
    assert ids[0] == ids[2] == ids[4] != ids[1]


def test_a_behaviour_table_without_early_rows_leaves_every_history_empty(tmp_path: Path) -> None:
    late = f"user,time_stamp,btag,cate,brand\n11,{FIRST_DAY},pv,1,2\n"
    assert seen(stored(tmp_path / "late", behavior_log=late)) == [None] * 5
    assert seen(stored(tmp_path / "empty", behavior_log="user,time_stamp,btag,cate,brand\n")) == [None] * 5
    assert prepared("taobao", tmp_path / "late").sequence(HISTORY)[0].tolist() == [0] * 6


@pytest.mark.parametrize("prune_after", [1, 50, 4_000_000])
def test_histories_are_the_last_few_as_a_slow_reader_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prune_after: int
) -> None:
    """However often what is held is cut down on the way; equal times stay in the order of the file."""
    monkeypatch.setattr(tables_module, "PRUNE_AFTER", prune_after)
    monkeypatch.setattr(tables_module, "blocks", partial(blocks, block_bytes=200))
    draws = np.random.default_rng(3)
    users, categories = draws.integers(0, 12, 900), draws.integers(0, 10**6, 900)
    times = FIRST_DAY - 25 + draws.integers(0, 30, 900)
    lines = [
        f"{user},{time},pv,{category},5" for user, time, category in zip(users, times, categories, strict=True)
    ]
    path = tmp_path / "behavior_log.csv"
    path.write_text("\n".join(["user,time_stamp,btag,cate,brand", *lines]))
    slow: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for user, time, category in zip(users.tolist(), times.tolist(), categories.tolist(), strict=True):
        if time < FIRST_DAY:
            slow[user].append((time, category))
    expected = [
        [category for _, category in sorted(slow[user], key=lambda event: event[0])][-HISTORY_LENGTH:]
        for user in range(12)
    ]
    assert max(map(len, slow.values())) > HISTORY_LENGTH
    assert read_histories(path).of(pa.array(range(12)))[HISTORY].to_pylist() == expected


# What is refused


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize(("table", "key"), [("ad_feature", "adgroup_id"), ("user_profile", "userid")])
def test_a_key_that_comes_twice_is_refused(tmp_path: Path, table: str, key: str, form: str) -> None:
    header, *rows = TABLES[table].splitlines()
    again = "\n".join([header, *rows, rows[0], ""])
    with pytest.raises(BadInput, match=rf"{table}\.{form}: expected every {key} once, got 1 of them again"):
        LogReader(TAOBAO, stored(tmp_path, form, **{table: again}))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("x,7,33,3,500,1.0", "line 3, column adgroup_id: expected a whole number, got another text"),
        ("104,7,33,3,500,cheap", "line 3, column price: expected a number, got another text"),
        (",7,33,3,500,1.0", "line 3, column adgroup_id: expected a key, got none"),
        ("104,7,33", "line 3: expected 6 fields, got 3"),
        ("", "line 3: expected 6 fields, got an empty line"),
    ],
)
def test_a_row_of_a_joined_table_that_cannot_be_read_refuses_it(tmp_path: Path, line: str, says: str) -> None:
    header, *rows = TABLES["ad_feature"].splitlines()
    with pytest.raises(BadInput, match=rf"ad_feature\.csv: expected at most 0 bad rows, got 1 so far: {says}$"):
        LogReader(TAOBAO, stored(tmp_path, ad_feature="\n".join([header, rows[0], line, *rows[1:]])))


def test_an_absent_table_column_or_row_is_named(tmp_path: Path) -> None:
    for name in ("raw_sample", "ad_feature", "user_profile"):
        with pytest.raises(
            BadInput, match=rf"expected a table {name} \(\.csv, \.csv\.gz, \.parquet\), got none"
        ):
            LogReader(TAOBAO, stored(tmp_path / f"without-{name}", **{name: ""}))
    for form in ("csv", "parquet"):
        renamed = TABLES["user_profile"].replace("age_level", "age")
        with pytest.raises(BadInput, match=rf"user_profile\.{form}: expected a column age_level, got userid, "):
            LogReader(TAOBAO, stored(tmp_path / f"renamed-{form}", form, user_profile=renamed))
    header = TABLES["ad_feature"].splitlines()[0]
    with pytest.raises(BadInput, match=r"ad_feature\.csv: expected rows, got none"):
        LogReader(TAOBAO, stored(tmp_path / "header", ad_feature=header))
    with pytest.raises(BadInput, match=r"ad_feature\.csv: expected a column adgroup_id, got "):
        LogReader(TAOBAO, stored(tmp_path / "blank", ad_feature="\n"))


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "raw_sample.csv").write_text(TABLES["raw_sample"])
    with pytest.raises(
        BadInput, match="taobao: expected a folder with raw_sample, ad_feature and user_profile"
    ):
        LogReader(TAOBAO, tmp_path / "raw_sample.csv")


def test_a_truncated_table_is_refused_by_name(tmp_path: Path) -> None:
    folder = stored(tmp_path, "csv.gz")
    whole = (folder / "user_profile.csv.gz").read_bytes()
    (folder / "user_profile.csv.gz").write_bytes(whole[:-9])
    with pytest.raises(BadInput, match=r"user_profile\.csv\.gz: expected a whole gzip file"):
        LogReader(TAOBAO, folder)


def test_impressions_without_a_user_or_time_are_bad_rows_and_without_an_ad_are_not(tmp_path: Path) -> None:
    rows = [f",{T},101,a,1,0", f"11,{T},101,a,1,0", "11,,101,a,1,0", f"11,{T},,a,1,0", f"11,{T},101,a,,"]
    found = read(TAOBAO, stored(tmp_path, raw_sample=HEADER + "\n".join(rows)))
    assert found.bad == {
        2: "user: expected a user, got none",
        4: "time_stamp: expected a time, got none",
        6: "clk: expected a label, got none",
    }
    assert [row["price"] for row in found.rows] == [200.0, None]


def test_what_is_missing_is_not_number_nought(tmp_path: Path) -> None:
    ads = TABLES["ad_feature"] + "0,7,33,3,500,1.0\n"
    rows = HEADER + f"11,{T},,a,1,0\n11,{T},0,a,1,0\n"
    found = read(TAOBAO, stored(tmp_path, ad_feature=ads, raw_sample=rows))
    assert [row["price"] for row in found.rows] == [None, 1.0]


def test_a_name_without_its_trailing_space_is_the_same_column(tmp_path: Path) -> None:
    trimmed = TABLES["user_profile"].replace("level \n", "level\n")
    assert trimmed != TABLES["user_profile"]
    expected = read(TAOBAO, stored(tmp_path / "published"))
    assert read(TAOBAO, stored(tmp_path / "trimmed", user_profile=trimmed)) == expected
