"""The made-up Taobao log: its contract, its published shape, and that clicks follow the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy.special import logit
from scipy.stats import norm

from tacit.arrays import Floats
from tacit.data.generators.markets import expected_click
from tacit.data.generators.taobao import TaobaoWorld
from tacit.data.generators.worlds import LogWorld
from tacit.errors import BadInput
from tests.support.exact_tests import ALPHA

SMALL = TaobaoWorld(seed=7, ads=4000, people=5000)


def tables(world: TaobaoWorld, rows: int) -> tuple[pa.Table, pa.Table]:
    parts = list(world.batches(rows))
    batches = pa.Table.from_batches([part.batch for part in parts])
    return batches, pa.Table.from_batches([part.truth for part in parts])


@pytest.fixture(scope="module")
def log() -> tuple[pa.Table, pa.Table]:
    return tables(TaobaoWorld(seed=1), 400_000)


def column(table: pa.Table, name: str) -> Any:
    return table[name].to_numpy()


def test_exact_rows_and_types() -> None:
    world: LogWorld = SMALL
    assert world.name == "taobao"
    batch, truth = tables(SMALL, 70_001)
    assert batch.num_rows == truth.num_rows == 70_001
    assert batch.schema == pa.schema(
        {"user": pa.int64(), "time_stamp": pa.int64(), "adgroup_id": pa.int64(), "pid": pa.string(),
         "nonclk": pa.int8(), "clk": pa.int8()}
    )  # fmt: skip
    assert truth.schema == pa.schema({"device": pa.float64(), "server": pa.float64(), "bid": pa.float64()})
    assert list(SMALL.batches(0)) == []


def test_same_seed_same_rows_and_a_longer_log_begins_with_the_shorter() -> None:
    fresh = TaobaoWorld(seed=7, ads=4000, people=5000)
    short, short_truth = tables(fresh, 5000)
    long, long_truth = tables(SMALL, 80_000)
    assert long.slice(0, 5000).equals(short)
    assert long_truth.slice(0, 5000).equals(short_truth)
    assert not tables(TaobaoWorld(seed=8, ads=4000, people=5000), 5000)[0].equals(short)


def test_a_block_is_in_time_order_within_the_published_days() -> None:
    for part in SMALL.batches(150_000):
        times = part.batch["time_stamp"].to_numpy()
        assert np.all(np.diff(times) >= 0)
        days = np.unique((times + 8 * 3600) // 86_400)  # cut in UTC+8
        first = np.datetime64("2017-05-06", "D").astype(int)
        assert days.min() >= first
        assert days.max() <= first + 7


def test_the_published_shape(log: tuple[pa.Table, pa.Table]) -> None:
    """5.14% clicks; 400,000 rows give a standard error of .035% and the solved base one of .02%."""
    batch, _ = log
    clicks = column(batch, "clk")
    assert clicks.mean() == pytest.approx(0.0514, abs=0.002)
    assert np.array_equal(clicks + column(batch, "nonclk"), np.ones(len(clicks)))
    assert set(batch["pid"].unique().to_pylist()) == {"430548_1007", "430539_1007"}
    key = column(batch, "user") * 10**10 + column(batch, "time_stamp")
    _, sizes = np.unique(key, return_counts=True)
    assert sizes.mean() == pytest.approx(4.2, abs=0.1)  # some 95,000 auctions: a standard error of .012
    assert (sizes >= 10).mean() == pytest.approx(0.066, abs=0.006)
    assert sizes.max() <= 40
    _, repeats = np.unique(key * 10**5 + column(batch, "adgroup_id"), return_counts=True)
    assert (repeats > 1).sum() <= 2  # an auction's ads are distinct; only merged auctions can share one


def calibration_z_scores(clicks: Floats, probability: Floats) -> list[float]:
    """Clicks against their expected number in twenty bins, in standard deviations."""
    bins = np.array_split(np.argsort(probability), 20)
    expected = [(probability[part].sum(), (probability[part] * (1 - probability[part])).sum()) for part in bins]
    return [
        float((clicks[part].sum() - mean) / variance**0.5)
        for part, (mean, variance) in zip(bins, expected, strict=True)
    ]


def test_clicks_follow_the_device_probability(log: tuple[pa.Table, pa.Table]) -> None:
    clicks, device = column(log[0], "clk").astype(np.float64), column(log[1], "device")
    worst = norm.isf(ALPHA / 40)
    assert max(map(abs, calibration_z_scores(clicks, device))) < worst
    # The twin: probabilities off by a tenth are caught.
    assert max(map(abs, calibration_z_scores(clicks, 1.1 * device))) > worst


def test_the_server_is_the_mean_of_the_device(log: tuple[pa.Table, pa.Table]) -> None:
    """Within 3% in each decile: the affinity's law over segments is only close to normal."""
    device, server = column(log[1], "device"), column(log[1], "server")
    for part in np.array_split(np.argsort(server), 10):
        assert device[part].mean() == pytest.approx(server[part].mean(), rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("learnable", [0.0, pytest.param(0.5, marks=pytest.mark.slow), 1.0])
def test_a_share_of_what_the_device_knows_is_by_segment_and_category(learnable: float) -> None:
    """What the device adds to the public log-odds is alike within a segment and category, by that share.

    The covariance of pairs of rows in one cell is the shared variance. The world is one draw of 1,000
    categories and 97 segments, the largest of which weigh most: .1 leaves room for that.
    """
    world = TaobaoWorld(seed=3, learnable=learnable)
    batch, truth = tables(world, 100_000)
    sides = world.side_tables()
    # The server's guess rises with the public log-odds: undo it on a fine grid.
    grid = np.linspace(-12, 8, 20_001)
    public = np.interp(column(truth, "server"), expected_click(grid, 1.0), grid)
    z = logit(column(truth, "device")) - public
    segments = np.full(world.people + 1, -1)
    segments[column(sides["user_profile"], "userid")] = column(sides["user_profile"], "cms_segid")
    segment = segments[column(batch, "user")]
    category = column(sides["ad_feature"], "cate_id")[column(batch, "adgroup_id") - 1]
    known = segment >= 0
    cell, z = (segment * 10**6 + category)[known], z[known]
    order = np.argsort(cell, kind="stable")
    cell, z = cell[order], z[order]
    pairs = cell[1:] == cell[:-1]
    assert (z[1:][pairs] * z[:-1][pairs]).mean() == pytest.approx(learnable, abs=0.1)
    assert z.mean() == pytest.approx(0, abs=0.05)
    assert z.var() == pytest.approx(1, abs=0.1)


@pytest.mark.slow
def test_side_tables() -> None:
    world = TaobaoWorld(seed=1)
    sides = world.side_tables()
    ads, profiles = sides["ad_feature"], sides["user_profile"]
    assert ads.column_names == ["adgroup_id", "cate_id", "campaign_id", "customer", "brand", "price"]
    assert profiles.column_names == [
        "userid", "cms_segid", "cms_group_id", "final_gender_code", "age_level", "pvalue_level",
        "shopping_level", "occupation", "new_user_class_level ",
    ]  # fmt: skip
    assert column(ads, "adgroup_id").tolist() == list(range(1, world.ads + 1))
    assert ads["brand"].null_count / world.ads == pytest.approx(0.29, abs=0.02)
    price = column(ads, "price")
    assert price.max() == 99_999_999
    assert 1 <= (price > 100_000).sum() <= 20
    assert np.median(price) == pytest.approx(np.exp(5), rel=0.05)
    assert profiles.num_rows / world.people == pytest.approx(1_061_768 / 1_141_729, abs=0.01)
    assert pc.count_distinct(profiles["userid"]).as_py() == profiles.num_rows
    for name, highest in (("cms_segid", 96), ("cms_group_id", 12), ("age_level", 6), ("final_gender_code", 2)):
        assert column(profiles, name).max() == highest
    for name in ("pvalue_level", "new_user_class_level "):
        assert 0 < profiles[name].null_count < profiles.num_rows


def test_side_tables_are_the_same_again() -> None:
    again, other = (TaobaoWorld(seed=seed, ads=4000, people=5000).side_tables() for seed in (7, 8))
    for name, table in SMALL.side_tables().items():
        assert table.equals(again[name])
        assert not table.equals(other[name])


def test_rows_point_into_the_side_tables_and_the_price_drives_the_bid() -> None:
    batch, truth = tables(TaobaoWorld(seed=7, ads=4000, people=5000, bid_per_price=0.25), 50_000)
    sides = SMALL.side_tables()
    ad = column(batch, "adgroup_id")
    assert ad.min() >= 1
    assert ad.max() <= SMALL.ads
    assert column(batch, "user").max() <= SMALL.people
    price, bid = column(sides["ad_feature"], "price")[ad - 1], column(truth, "bid")
    honest = price < 50_000
    assert np.allclose(bid[honest], 0.25 * price[honest], rtol=1e-12)
    assert bid.max() < 50_000  # an outlier of a price makes no outlier of a bid


@pytest.mark.parametrize(
    "change", [{"ads": 10}, {"people": 0}, {"click_rate": 0.0}, {"learnable": 1.5}, {"ad_skew": 9.0}], ids=str
)
def test_refuses(change: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(change))):
        TaobaoWorld(seed=1, **change)
