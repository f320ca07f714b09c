"""Histories of the Taobao log: nothing of a row's own second, its future or a click is in them.

They share table rows with the candidate's fields, and the generated ones tell what people like.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import tacit.data.logs.taobao_tables as tables_module
from tacit.data.encoding.encoder import Encoder
from tacit.data.encoding.vocabulary import Hashing, count_column_values, public_vocabulary
from tacit.data.generators.taobao import TaobaoWorld
from tacit.data.logs.definition import find_log
from tacit.data.logs.taobao_tables import FIRST_DAY, HISTORY, HISTORY_BRAND, HISTORY_LENGTH
from tacit.data.preparation import hashing_encoder, prepare
from tacit.data.reading.reader import LogReader
from tacit.data.reading.text import blocks
from tacit.data.synthetic import LogDestination, write_log
from tacit.schema.columns import Role
from tests.support.reading_checks import prepared, read

TAOBAO = find_log("taobao")
ADS, PEOPLE, ROWS = 30, 6, 700
HEADER = "user,time_stamp,adgroup_id,pid,nonclk,clk\n"
PROFILE = "userid,cms_segid,cms_group_id,final_gender_code,age_level,pvalue_level,shopping_level,occupation,"


def impressions(seed: int = 4) -> list[tuple[int, int, int, int]]:
    """(user, time, ad, click), in no order, with many equal times; the last two ads are unknown."""
    draws = np.random.default_rng(seed)
    columns = (draws.integers(1, PEOPLE + 1, ROWS), FIRST_DAY + draws.integers(0, 150, ROWS),
               draws.integers(0, ADS + 2, ROWS), draws.integers(0, 2, ROWS))  # fmt: skip
    return list(zip(*(column.tolist() for column in columns), strict=True))


def category(ad: int) -> int:
    return 500 + ad % 7


def brand(ad: int) -> int | None:
    return None if ad % 3 == 0 else 900 + ad % 5


def stored(folder: Path, rows: list[tuple[int, int, int, int]]) -> Path:
    folder.mkdir()
    lines = "".join(f"{user},{time},{ad},a,{1 - click},{click}\n" for user, time, ad, click in rows)
    (folder / "raw_sample.csv").write_text(HEADER + lines)
    ads = "".join(f"{ad},{category(ad)},1,1,{brand(ad) or 'NULL'},10.0\n" for ad in range(ADS))
    (folder / "ad_feature.csv").write_text("adgroup_id,cate_id,campaign_id,customer,brand,price\n" + ads)
    (folder / "user_profile.csv").write_text(f"{PROFILE}new_user_class_level \n1,0,5,2,5,2,3,1,4\n")
    return folder


def test_what_was_shown_before_as_a_slow_reader_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strictly before: the other candidates of an auction have the row's own second, and are not in it."""
    monkeypatch.setattr(tables_module, "blocks", partial(blocks, block_bytes=400))
    rows = impressions()
    found = read(TAOBAO, stored(tmp_path / "log", rows)).rows
    longest = shared_second = 0
    for (user, time, _, _), row in zip(rows, found, strict=True):
        earlier = sorted(
            (event for event in rows if event[0] == user and event[1] < time and event[2] < ADS),
            key=lambda event: event[1],
        )
        shared_second += sum(event[:2] == (user, time) for event in rows) > 1
        longest = max(longest, len(earlier))
        assert row[HISTORY] == [category(event[2]) for event in earlier][-HISTORY_LENGTH:]
        assert row[HISTORY_BRAND] == [brand(event[2]) for event in earlier][-HISTORY_LENGTH:]
    assert longest > HISTORY_LENGTH  # else the cut was not tried
    assert shared_second > ROWS / 4


def test_a_history_of_impressions_does_not_depend_on_any_click(tmp_path: Path) -> None:
    """A promise about labels holds for a model that reads it."""
    rows = impressions()
    flipped = [(user, time, ad, 1 - click) for user, time, ad, click in rows]
    honest, other = (
        prepared("taobao", stored(tmp_path / name, each)) for name, each in (("a", rows), ("b", flipped))
    )
    assert not np.array_equal(honest.label, other.label)
    for name in (HISTORY, HISTORY_BRAND):
        assert len(honest.sequence(name)[1]) > ROWS
        np.testing.assert_array_equal(honest.sequence(name)[0], other.sequence(name)[0])
        np.testing.assert_array_equal(honest.sequence(name)[1], other.sequence(name)[1])


def test_a_row_that_cannot_be_read_is_in_no_history(tmp_path: Path) -> None:
    folder = stored(tmp_path / "log", [(1, FIRST_DAY, 1, 0), (1, FIRST_DAY + 5, 2, 0)])
    with (folder / "raw_sample.csv").open("a") as file:
        file.write(f"1,{FIRST_DAY + 1},x,a,1,0\n1,,2,a,1,0\n7,{FIRST_DAY + 9},,a,1,0\n")
    found = read(TAOBAO, folder)
    assert sorted(found.bad) == [4, 5]
    assert [row[HISTORY] for row in found.rows] == [[], [category(1)], []]


@pytest.mark.parametrize("listed", [False, True])
def test_events_read_the_same_table_rows_as_the_candidates_field(tmp_path: Path, listed: bool) -> None:
    folder = stored(tmp_path / "log", impressions())
    encoder = hashing_encoder(TAOBAO, 4000, 37)
    if listed:
        tallies = count_column_values(LogReader(TAOBAO, folder), TAOBAO.schema.columns_with(Role.PUBLIC))
        encoder = Encoder.of(TAOBAO.schema, public_vocabulary(TAOBAO.schema, tallies, 1), Hashing(37))
    columns = prepare(LogReader(TAOBAO, folder), encoder, tmp_path / "columns").columns
    for name, field in ((HISTORY, "cate_id"), (HISTORY_BRAND, "brand")):
        own = columns.public[:, encoder.fields(Role.PUBLIC).index(field)]
        assert set(columns.sequence(name)[1].tolist()) <= set(own.tolist())
    assert columns.sensitive.max() < 37  # the person's own fields stay where they were


def test_a_real_table_of_behaviour_makes_the_log_real(tmp_path: Path) -> None:
    world = TaobaoWorld(seed=1, ads=1000, people=50)
    write_log(world, 100, TAOBAO.layouts[0], LogDestination.at(tmp_path / "log"), {"seed": 1})
    assert LogReader(TAOBAO, tmp_path / "log").synthetic
    pq.write_table(
        world.side_tables()["behavior_log"].replace_schema_metadata(), tmp_path / "log" / "behavior_log.parquet"
    )
    assert not LogReader(TAOBAO, tmp_path / "log").synthetic


# Made-up behaviour


def lift(**likings: float) -> float:
    """How much likelier a click is than the server can know, where the person looked at the category before."""
    world = TaobaoWorld(seed=3, ads=4000, people=3000, **likings)
    parts = list(world.batches(100_000))
    user, ad = (np.concatenate([p.batch[name].to_numpy() for p in parts]) for name in ("user", "adgroup_id"))
    device, server = (
        np.concatenate([p.truth[name].to_numpy() for p in parts]) for name in ("device", "server")
    )
    sides = world.side_tables()
    behaviour = sides["behavior_log"]
    looked = behaviour["user"].to_numpy() * 10**6 + behaviour["cate"].to_numpy()
    before = np.isin(user * 10**6 + sides["ad_feature"]["cate_id"].to_numpy()[ad - 1], looked)
    return float(device[before].mean() / server[before].mean())


def test_people_click_more_on_what_they_looked_at_before() -> None:
    """The ratio has a standard error of about .05 over a thousand rows, and the twin has more."""
    assert lift() > 1.5
    # The twin: where likings are nobody's own and of no segment, behaviour tells nothing.
    assert lift(learnable=0, personal=0) == pytest.approx(1, abs=0.15)


def test_behaviour_is_before_the_first_day_and_the_same_again() -> None:
    world = TaobaoWorld(seed=5, ads=1000, people=400)
    table = world.side_tables()["behavior_log"]
    assert table.column_names == ["user", "time_stamp", "btag", "cate", "brand"]
    assert table["time_stamp"].to_numpy().max() < FIRST_DAY
    assert table.equals(TaobaoWorld(seed=5, ads=1000, people=400).side_tables()["behavior_log"])
