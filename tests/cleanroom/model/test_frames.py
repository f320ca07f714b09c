"""Frames for the clean room: whatever library made them, both sides name records alike and labels join."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tacit.cleanroom import (
    AdapterPlan,
    ClickReader,
    ConversionModel,
    LearnSettings,
    advertiser_key,
    labels_of_frame,
    predict,
    pretrain,
    record_tokens,
    room_in_process,
    token_key,
    tokens,
    train_adapter,
)
from tacit.entropy import Simulation
from tacit.errors import BadInput, RoomError

KEY = token_key(bytes(range(32)), "spring")
ROWS = 3000


def clicks(rows: int = ROWS) -> pd.DataFrame:
    """Two shops; the second's sales hang on the site the other way round, and are not in the frame."""
    draw = np.random.default_rng(4)
    frame = pd.DataFrame(
        {
            "click_id": draw.permutation(10 * rows)[:rows],
            "shop": draw.choice(["sports", "shoes"], rows),
            "site": draw.choice(["news", "games", "mail", "maps"], rows),
            "hour": draw.integers(0, 24, rows),
        }
    )
    towards = np.where(frame.shop == "sports", 1, -1) * np.where(frame.site.isin(["news", "mail"]), 1.5, -1.5)
    frame["bought"] = (draw.random(rows) < 1 / (1 + np.exp(1 - towards))).astype(int)
    return frame


def reader(frame: Any) -> ClickReader:
    return ClickReader.of(frame, record="click_id", advertiser="shop", labels=["bought"])


LIBRARIES: dict[str, Any] = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "arrow": pa.Table.from_pandas,
    "duckdb": lambda frame: duckdb.from_df(frame),
    "columns": lambda frame: {name: frame[name].to_numpy() for name in frame},
}


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
def test_every_library_gives_the_same_examples_and_labels(library: Any) -> None:
    frame = clicks(200)
    expected, found = reader(frame).examples(frame), reader(library(frame)).examples(library(frame))
    assert found.encoder == expected.encoder
    assert np.array_equal(found.fields, expected.fields)
    assert np.array_equal(found.records, expected.records)
    assert np.array_equal(found.advertiser, expected.advertiser)
    assert found.labels("bought").tolist() == frame.bought.tolist()
    table = labels_of_frame(library(frame), record="click_id", labels=["bought"], key=KEY)
    assert table.look_up(found.tokens(KEY), "bought").tolist() == frame.bought.tolist()


def test_ids_as_texts_and_as_numbers_name_the_same_records() -> None:
    frame = clicks(50)
    spelled = frame.assign(click_id=frame.click_id.astype(str))
    named = reader(frame).examples(frame).tokens(KEY)
    assert np.array_equal(reader(spelled).examples(spelled).tokens(KEY), named)
    for ids in (frame.click_id, spelled.click_id.tolist(), frame.click_id.to_numpy(), pa.array(frame.click_id)):
        assert np.array_equal(record_tokens(ids, KEY), named)


def test_a_later_frame_is_read_as_the_first() -> None:
    frame = clicks(300)
    reading = reader(frame)
    later = frame.head(3).assign(site=["news", "elsewhere", "maps"]).drop(columns="bought")
    found, first = reading.examples(later), reading.examples(frame)
    assert found.encoder == first.encoder
    assert found.labels("bought").tolist() == [0, 0, 0]
    assert found.fields[0, 0] == first.fields[frame.site.tolist().index("news"), 0]
    assert found.fields[1, 0] not in first.fields[:, 0]  # the row of values that are not listed
    found.check_fit(first.settings())


def test_an_advertiser_is_found_by_the_name_that_its_frame_has() -> None:
    frame = clicks(100).assign(shop=np.arange(100) % 3)
    found = reader(frame).examples(frame)
    assert len(found.of_advertiser(2)) == len(found.of_advertiser(advertiser_key(2))) == 33
    with pytest.raises(BadInput, match=r"expected an advertiser with rows, got 5, which has none"):
        found.of_advertiser(5)
    with pytest.raises(BadInput, match=r"expected an advertiser with rows, got 'five'"):
        found.of_advertiser("five")


def test_ten_lines_from_two_frames_to_an_adapter_and_a_wrong_join_is_refused() -> None:
    frame = clicks()
    sales = frame.loc[(frame.shop == "shoes") & (frame.bought == 1), ["click_id", "bought"]]
    seen = frame.assign(bought=frame.bought.where(frame.shop == "sports"))  # NaN where nothing is shared
    examples = reader(seen).examples(seen)
    shoes = examples.of_advertiser("shoes")
    assert shoes.labels("bought").sum() == 0
    model = ConversionModel(examples.settings(dim=4, tower=(16,)), seed=1)
    pretrain(model, examples.of_advertiser("sports"), settings=LearnSettings(epochs=4, batch=128))
    table = labels_of_frame(sales, record="click_id", labels=["bought"], key=KEY)
    room = room_in_process(table, source=Simulation("frames"), epsilon=3)
    model.add_adapter("shoes", "shoes", seed=1)
    plan = AdapterPlan(task="bought", batch=256, epochs=4, learning_rate=1e-2)
    trained = train_adapter(model, "shoes", shoes, shoes.tokens(KEY), room, plan, run="joined")
    truth = frame.bought[frame.shop == "shoes"].to_numpy()
    assert trained.positives is not None
    # Flips of 1,500 records have a deviation of 8.8: beyond 55 with chance below 1e-9.
    assert abs(trained.positives.value - truth.sum()) < 55
    told = predict(model, shoes, "bought")
    assert told[truth == 1].mean() > told[truth == 0].mean() + 0.5
    share = room.room.joined()["joined"]
    assert share.found / share.asked == pytest.approx(truth.mean(), abs=0.01)

    model.remove_adapter("shoes")
    fresh = model.add_adapter("shoes", "shoes", seed=1).values
    elsewhere = shoes.tokens(token_key(bytes(32), "another"))
    with pytest.raises(RoomError, match="do both parties name records by the same ids"):
        train_adapter(model, "shoes", shoes, elsewhere, room, plan, run="not joined")
    assert np.array_equal(model.adapter_values("shoes"), fresh)
    assert room.room.joined()["not joined joined"].found == 0
    raw = tokens(
        frame.click_id[frame.shop == "shoes"].to_numpy(), KEY
    )  # ids as they are, not as logs keep them
    with pytest.raises(RoomError, match="do both parties name records by the same ids"):
        train_adapter(model, "shoes", shoes, raw, room, plan, run="raw ids")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no such record": ({"record": "id"}, "expected a column 'id', got click_id"),
    "no such label": ({"labels": ["sold"]}, "expected a column 'sold'"),
    "labels as a text": ({"labels": "bought"}, "expected labels as a list"),
    "no feature": ({"features": []}, "expected a column of features"),
}


@pytest.mark.parametrize("name", WRONG)
def test_columns_that_are_not_there_are_refused_by_name(name: str) -> None:
    given, said = WRONG[name]
    with pytest.raises(BadInput, match=said):
        ClickReader.of(
            clicks(20), **({"record": "click_id", "advertiser": "shop", "labels": ["bought"]} | given)
        )


def test_values_that_cannot_be_meant_are_refused_by_their_column() -> None:
    frame = clicks(20)
    reading = reader(frame)
    for column, values, said in (
        ("bought", np.full(20, -1), "column bought: expected labels of 0 or 1, got another value"),
        ("bought", np.full(20, "yes"), "column bought: expected labels of 0 or 1, got values of type"),
        ("click_id", np.full(20, 0.5), "column click_id: expected ids as texts or whole numbers"),
        ("click_id", np.full(20, np.nan), "column click_id: expected a value in every row"),
        ("shop", [None] * 20, "column shop: expected a value in every row"),
    ):
        with pytest.raises(BadInput, match=said):
            reading.examples(frame.assign(**{column: values}))
    for column, values, said in (
        ("bought", np.full(20, 2), "column bought: expected labels of 0 or 1, got another value"),
        ("click_id", np.full(20, 7), "column click_id: expected each id once"),
    ):
        with pytest.raises(BadInput, match=said):
            labels_of_frame(frame.assign(**{column: values}), record="click_id", labels=["bought"], key=KEY)
