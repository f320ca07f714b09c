"""The made-up visits: their contract, their calibration, and that they follow the stated model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

from tacit.data.generators.visits import (
    CityPlan,
    VisitsWorld,
    _Walks,
    draw_city,
    endless_uniforms,
    hour_of_week_weights,
)
from tacit.data.generators.worlds import LogWorld
from tacit.errors import BadInput
from tests.support.exact_tests import ALPHA, assert_matches_pmf

SMALL = VisitsWorld(seed=7, venues=400)
SAMPLE_ROWS = 105_961  # of the public sample that the defaults are calibrated to


def tables(world: VisitsWorld, rows: int) -> tuple[pa.Table, pa.Table]:
    parts = list(world.batches(rows))
    batches = pa.Table.from_batches([part.batch for part in parts])
    return batches, pa.Table.from_batches([part.truth for part in parts])


@pytest.fixture(scope="module")
def log() -> tuple[pa.Table, pa.Table]:
    return tables(VisitsWorld(seed=4), SAMPLE_ROWS)


def column(table: pa.Table, name: str) -> Any:
    return table[name].to_numpy()


def test_exact_rows_and_types() -> None:
    world: LogWorld = SMALL
    assert world.name == "visits"
    assert world.side_tables() == {}
    batch, truth = tables(SMALL, 12_345)
    assert batch.num_rows == truth.num_rows == 12_345
    assert batch.schema == pa.schema(
        {"user": pa.int64(), "time": pa.int64(), "hour_of_week": pa.int16(), "place": pa.string(),
         "category_path": pa.string(), "latitude": pa.float64(), "longitude": pa.float64()}
    )  # fmt: skip
    assert truth.schema == pa.schema({"explored": pa.bool_(), "home_place": pa.string()})
    assert list(SMALL.batches(0)) == []


def test_same_seed_same_rows_and_a_longer_log_begins_with_the_shorter() -> None:
    short, short_truth = tables(SMALL, 3000)
    long, long_truth = tables(VisitsWorld(seed=7, venues=400), 30_000)
    assert long.slice(0, 3000).equals(short)
    assert long_truth.slice(0, 3000).equals(short_truth)
    assert not tables(VisitsWorld(seed=8, venues=400), 3000)[0].equals(short)


def test_people_stay_within_a_block_and_a_block_is_in_time_order() -> None:
    met: set[int] = set()
    for part in SMALL.batches(40_000):
        people = set(part.batch["user"].to_pylist())
        assert not met & people
        met |= people
        assert np.all(np.diff(part.batch["time"].to_numpy()) >= 0)


def test_hours_are_the_times_by_the_citys_clock(log: tuple[pa.Table, pa.Table]) -> None:
    times, hours = column(log[0], "time"), column(log[0], "hour_of_week")
    local = (times - 5 * 3600).astype("datetime64[s]")
    monday_first = (local.astype("datetime64[D]").astype(np.int64) + 3) % 7  # 1970-01-01 was a Thursday
    hour = (local - local.astype("datetime64[D]")).astype(np.int64) // 3600
    assert np.array_equal(hours, 24 * monday_first + hour)
    assert 290 < (times.max() - times.min()) / 86_400 <= 301  # about ten months


def test_the_week_has_its_rhythm() -> None:
    """Whole blocks only: a cut one has the first months alone, though each of its weeks is alike."""
    hours = column(tables(SMALL, 60_000)[0], "hour_of_week")
    share = hour_of_week_weights() / hour_of_week_weights().sum()
    assert_matches_pmf(Counter(hours.tolist()), dict(enumerate(share.tolist())))


def test_venues_have_one_name_category_and_spot(log: tuple[pa.Table, pa.Table]) -> None:
    batch, truth = log
    venues = batch.group_by("place").aggregate(
        [(name, "count_distinct") for name in ("category_path", "latitude", "longitude")]
    )
    for name in ("category_path", "latitude", "longitude"):
        assert column(venues, f"{name}_count_distinct").max() == 1
    assert all(re.fullmatch("[0-9a-f]{24}", place) for place in batch["place"].unique().to_pylist())
    assert all(re.fullmatch("[^>]+>[^>]+", path) for path in batch["category_path"].unique().to_pylist())
    assert pa.table({"user": batch["user"], "home": truth["home_place"]}).group_by("user").aggregate(
        [("home", "count_distinct")]
    )["home_count_distinct"].to_pylist().count(1) == len(batch["user"].unique())  # fmt: skip


def by_person(log: tuple[pa.Table, pa.Table]) -> tuple[Any, Any, Any]:
    """User, venue number and row, each person's visits in time order."""
    user = column(log[0], "user")
    _, venue = np.unique(column(log[0], "place"), return_inverse=True)
    order = np.lexsort((column(log[0], "time"), user))
    return user[order], venue[order], order


def test_calibrated_to_the_public_sample(log: tuple[pa.Table, pa.Table]) -> None:
    """The sample's figures, of people with three visits or more; worlds differ, so tolerances are wide.

    Six worlds gave 32 to 41 visits a person, .55 to .59 repeats, .38 to .43 at the top tenth, 1.7 to 2.3 km.
    """
    batch, _ = log
    user, venue, order = by_person(log)
    visits = np.unique(user, return_counts=True)[1]
    assert visits.mean() == pytest.approx(38.9, rel=0.2)
    assert np.median(visits) == pytest.approx(12, abs=3)
    first = np.unique(user * 10**5 + venue, return_index=True)[1]
    assert 1 - len(first) / len(user) == pytest.approx(0.546, abs=0.05)
    counts = np.sort(np.bincount(venue))[::-1]
    assert len(counts) == pytest.approx(3607, rel=0.03)
    assert counts[: len(counts) // 10].sum() / len(user) == pytest.approx(0.40, abs=0.05)
    north, east = column(batch, "latitude")[order] * 111.2, column(batch, "longitude")[order] * 84.3
    moved = np.hypot(np.diff(north), np.diff(east))[np.diff(user) == 0]
    assert np.median(moved) == pytest.approx(1.77, rel=0.35)
    assert (np.diff(venue) == 0)[np.diff(user) == 0].mean() == pytest.approx(0.123, abs=0.01)
    paths = batch["category_path"].unique().to_pylist()
    assert len(paths) == pytest.approx(282, abs=15)
    assert len({path.split(">")[0] for path in paths}) == 10


def test_explored_marks_exactly_the_first_visits(log: tuple[pa.Table, pa.Table]) -> None:
    user, venue, order = by_person(log)
    first = np.zeros(len(user), dtype=bool)
    first[np.unique(user * 10**5 + venue, return_index=True)[1]] = True
    assert np.array_equal(column(log[1], "explored")[order], first)


def novelty_z_scores(log: tuple[pa.Table, pa.Table], exponent: float) -> list[float]:
    """New places against S^-exponent in bins of S, the number seen so far, in standard deviations."""
    user, _, order = by_person(log)
    new = column(log[1], "explored")[order].astype(np.int64)
    so_far = np.cumsum(new) - new
    seen = so_far - so_far[np.searchsorted(user, user)]
    scores = []
    for low, high in ((2, 4), (4, 8), (8, 16), (16, 32), (32, 64), (64, 1000)):
        part = (seen >= low) & (seen < high)
        p = seen[part] ** -exponent
        scores.append(float((new[part].sum() - p.sum()) / (p * (1 - p)).sum() ** 0.5))
    return scores


def test_new_places_come_at_the_stated_rate(log: tuple[pa.Table, pa.Table]) -> None:
    """The martingale of new places; the cut of a log's last block ends walks by time, which is drawn apart."""
    worst = norm.isf(ALPHA / 12)
    assert max(map(abs, novelty_z_scores(log, 0.31))) < worst
    assert max(map(abs, novelty_z_scores(log, 0.36))) > worst  # the twin: another exponent is caught


@pytest.fixture(scope="module")
def walks() -> _Walks:
    world = VisitsWorld(seed=5, venues=30, known_leaf=0.0)
    return _Walks(world, draw_city(CityPlan(leaves=4), world.venues, world.seed))


def uniforms() -> Iterator[float]:
    return endless_uniforms(np.random.default_rng(11))


def test_exploration_follows_the_citys_law_among_the_unseen(walks: _Walks) -> None:
    plan, seen = CityPlan(leaves=4), {0, 3, 17}
    city = draw_city(plan, 30, 5)

    def law(origin: int) -> Any:
        distance = np.hypot(city.x_km - city.x_km[origin], city.y_km - city.y_km[origin])
        weight = city.popularity / (1 + (distance / plan.explore_km) ** 2)
        weight[list(seen)] = 0
        return weight / weight.sum()

    expected = (law(3) + law(8)) / 2
    stream = uniforms()
    drawn = Counter(walks._explore(3, 8, seen, [0, 3, 17], stream) for _ in range(20_000))
    assert_matches_pmf(drawn, {venue: p for venue, p in enumerate(expected.tolist()) if p})


def test_exploration_within_a_known_leaf_stays_there() -> None:
    world = VisitsWorld(seed=5, venues=60, known_leaf=1.0)
    city = draw_city(CityPlan(leaves=4), world.venues, world.seed)
    within = _Walks(world, city)
    stream = uniforms()
    leaf = int(city.leaf[0])
    assert (city.leaf == leaf).sum() > 2
    found = {within._explore(5, 9, {0}, [0], stream) for _ in range(500)}
    assert {int(city.leaf[venue]) for venue in found} == {leaf}
    everything_there = set(np.flatnonzero(city.leaf == leaf).tolist())
    assert within._explore(5, 9, everything_there, [0], stream) not in everything_there


def test_returns_are_by_count_and_distance(walks: _Walks) -> None:
    plan = CityPlan(leaves=4)
    city = draw_city(plan, 30, 5)
    history = [2] * 5 + [7] * 3 + [20] + [11] * 9
    weight = {
        there: history.count(there)
        * float(
            np.exp(-np.hypot(*(axis[there] - axis[11] for axis in (city.x_km, city.y_km))) / plan.return_km)
        )
        for there in (2, 7, 20)
    }
    stream = uniforms()
    drawn = Counter(walks._go_back(11, history, stream) for _ in range(20_000))
    assert_matches_pmf(drawn, {there: w / sum(weight.values()) for there, w in weight.items()})


def test_a_person_who_has_seen_everything_goes_back() -> None:
    batch, truth = tables(VisitsWorld(seed=1, venues=2, fewest_visits=20), 6000)
    assert len(batch["place"].unique()) == 2
    user = column(batch, "user")
    assert np.bincount(user, weights=column(truth, "explored")).max() == 2


@pytest.mark.parametrize(
    "change", [{"venues": 1}, {"venues": 10**6}, {"again": 1.5}, {"weeks": 0}, {"most_visits": 2}], ids=str
)
def test_refuses(change: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(change))):
        VisitsWorld(seed=1, **change)


def test_refuses_a_city_without_reach() -> None:
    with pytest.raises(BadInput, match="return_km"):
        CityPlan(return_km=0.0)
