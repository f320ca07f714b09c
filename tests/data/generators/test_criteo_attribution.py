"""The made-up attribution log: its contract, its journeys, and the published figures that it follows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from tacit.data.generators.attribution_journeys import UserLaw
from tacit.data.generators.criteo_attribution import FIELDS, AttributionWorld
from tacit.data.generators.worlds import seeded_generator
from tacit.errors import BadInput
from tests.support.generator_checks import label_surprises

ROWS = 300_000
DAY = 86_400

PUBLISHED_COLUMNS = [
    "timestamp", "uid", "campaign", "conversion", "conversion_timestamp", "conversion_id", "attribution",
    "click", "click_pos", "click_nb", "cost", "cpo", "time_since_last_click", "cat1", "cat2", "cat3", "cat4",
    "cat5", "cat6", "cat7", "cat8", "cat9",
]  # fmt: skip


@dataclass(frozen=True)
class Log:
    table: pa.Table
    truth: pa.Table

    @classmethod
    def of(cls, world: AttributionWorld, rows: int) -> Log:
        parts = list(world.batches(rows))
        return cls(
            pa.Table.from_batches([part.batch for part in parts]),
            pa.Table.from_batches([part.truth for part in parts]),
        )

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        column: NDArray[np.float64] = self.table[name].to_numpy()
        return column

    @cached_property
    def clicked(self) -> NDArray[np.bool_]:
        clicked: NDArray[np.bool_] = self["click"] == 1
        return clicked

    @cached_property
    def positive(self) -> NDArray[np.bool_]:
        last = self["click_pos"] == self["click_nb"] - 1
        positive: NDArray[np.bool_] = last & (self["attribution"] == 1)
        return positive

    @cached_property
    def probability(self) -> NDArray[np.float64]:
        """Of the clicks."""
        probability: NDArray[np.float64] = self.truth["probability"].drop_null().to_numpy()
        return probability


WORLD = AttributionWorld(seed=5, span_rows=ROWS)


@pytest.fixture(scope="module")
def log() -> Log:
    return Log.of(WORLD, ROWS)


def test_it_has_the_published_columns_and_a_publisher(log: Log) -> None:
    assert log.table.column_names == [*PUBLISHED_COLUMNS, "publisher"]
    for field in log.table.schema:
        assert field.type == (pa.float64() if field.name in ("cost", "cpo") else pa.int64())
    assert log.table.num_rows == log.truth.num_rows == ROWS
    assert sum(column.null_count for column in log.table.columns) == 0
    assert log.truth["probability"].is_valid().to_numpy().tolist() == log.clicked.tolist()


@pytest.mark.parametrize("rows", [0, 1, 44_000, 123_457])
def test_a_shorter_log_is_the_beginning_of_a_longer_one(log: Log, rows: int) -> None:
    parts = list(AttributionWorld(seed=5, span_rows=ROWS).batches(rows))
    assert sum(part.batch.num_rows for part in parts) == rows
    if rows:
        assert pa.Table.from_batches([part.batch for part in parts]).equals(log.table.slice(0, rows))
        assert pa.Table.from_batches([part.truth for part in parts]).equals(log.truth.slice(0, rows))


def test_another_seed_is_another_log(log: Log) -> None:
    assert not Log.of(AttributionWorld(seed=6, span_rows=ROWS), 1000).table.equals(log.table.slice(0, 1000))


def test_rows_are_in_time_order_and_fill_the_published_days(log: Log) -> None:
    assert log["timestamp"][0] >= 0
    assert (np.diff(log["timestamp"]) >= 0).all()
    # The number of rows of 113,000 users has a standard deviation of about 1%.
    assert log["timestamp"][-1] / DAY == pytest.approx(30.9, rel=0.04)


def test_a_longer_log_runs_on_at_the_same_rate() -> None:
    small = AttributionWorld(seed=5, span_rows=30_000)
    days = [part.batch["timestamp"][-1].as_py() / DAY for part in small.batches(300_000)]
    # A little faster than the first month, which starts from nobody: later ones have everybody's rows.
    assert 0.92 * 309 < days[-1] < 309


def test_who_has_come_is_gone_after_a_month() -> None:
    """So the rows that wait for their time do not grow with the log."""
    seen = UserLaw().impressions(seeded_generator(1), 100_000)
    assert seen.since_first.max() < 31 * DAY
    first = np.flatnonzero(np.diff(seen.user, prepend=-1))
    assert (seen.since_first[first] == 0).all()
    assert (np.diff(seen.since_first)[np.diff(seen.user) == 0] >= 59.99).all()


# A published figure, a tolerance of about four standard deviations at this size, and how the log gives it.
FIGURES: dict[str, tuple[float, float, Callable[[Log], float]]] = {
    "clicks of rows": (0.3612, 0.01, lambda log: log.clicked.mean()),
    "conversions of rows": (0.0490, 0.06, lambda log: log["conversion"].mean()),
    "attributed of rows": (0.0269, 0.06, lambda log: log["attribution"].mean()),
    "positive of clicks": (0.0674, 0.06, lambda log: log.positive[log.clicked].mean()),
    "impressions per user": (2.68, 0.03, lambda log: _per_unit(log["uid"]).mean()),
    "median impressions per user": (1, 0, lambda log: np.median(_per_unit(log["uid"]))),
    "users of one impression": (0.517, 0.015, lambda log: (_per_unit(log["uid"]) == 1).mean()),
    "delay, median hours": (89.9, 0.1, lambda log: np.quantile(_delay_hours(log), 0.5)),
    "delay, upper quartile": (287, 0.06, lambda log: np.quantile(_delay_hours(log), 0.75)),
    "delay, last tenth": (504, 0.04, lambda log: np.quantile(_delay_hours(log), 0.9)),
    "campaigns": (675, 0.002, lambda log: len(_per_unit(log["campaign"]))),
    "top 20 campaigns of clicks": (0.30, 0.03, lambda log: np.sort(_campaign_shares(log))[-20:].sum()),
    "Gini of campaigns": (0.66, 0.02, lambda log: _gini(_campaign_shares(log))),
}


@pytest.mark.parametrize("name", FIGURES)
def test_it_follows_the_published_figures(log: Log, name: str) -> None:
    published, tolerance, measure = FIGURES[name]
    assert measure(log) == pytest.approx(published, rel=tolerance)


def test_it_has_the_published_vocabularies(log: Log) -> None:
    sizes = [9, 70, 1829, 21, 51, 30, 57196, 11, 30]
    for number, size in enumerate(sizes, start=1):
        seen = log[f"cat{number}"]
        assert seen.min() == 0
        assert seen.max() < size
        if size < 1000:
            assert len(np.unique(seen)) == size


def test_conversions_follow_clicks_only(log: Log) -> None:
    converted = log["conversion"] == 1
    assert log.clicked[converted].all()
    for name in ("conversion_timestamp", "conversion_id", "click_pos", "click_nb"):
        assert ((log[name] >= 0) == converted).all()
        assert (log[name][~converted] == -1).all()
    assert (log["attribution"] <= log["conversion"]).all()
    delay = (log["conversion_timestamp"] - log["timestamp"])[converted]
    assert delay.min() > 0
    assert delay.max() <= 30 * DAY


def test_journeys_are_told_consistently(log: Log) -> None:
    """Replays every journey, one row at a time."""
    journeys = defaultdict(list)
    last_click: dict[tuple[int, int], int] = {}
    open_until: dict[tuple[int, int], tuple[int, int]] = {}
    names = ("timestamp", "uid", "campaign", "click", "conversion_id", "conversion_timestamp", "attribution",
             "click_pos", "click_nb", "time_since_last_click")  # fmt: skip
    for row in zip(*(log[name].tolist() for name in names), strict=True):
        second, user, campaign, click, journey, conversion, credited, position, clicks, since = row
        pair = (user, campaign)
        assert since == (second - last_click[pair] if pair in last_click else -1)
        if not click:
            continue
        last_click[pair] = second
        if pair in open_until and open_until[pair][0] != journey:
            # A click that belongs to something else comes after the conversion before it.
            assert second > open_until[pair][1]
        if journey >= 0:
            journeys[journey].append((user, campaign, conversion, clicks, position, credited, second))
            open_until[pair] = (journey, conversion)

    endings = {"whole": 0, "cut short": 0, "past the end": 0}
    for rows in journeys.values():
        assert len({row[:4] for row in rows}) == 1
        clicks, found = rows[0][3], len(rows)
        assert [row[4] for row in rows] == list(range(found))
        credited = [row[5] for row in rows]
        assert sum(credited[:-1]) == 0  # nothing before the journey's last click here
        if found == clicks:
            endings["whole"] += 1
        elif found == clicks - 1 and credited[-1]:
            endings["cut short"] += 1
        else:
            assert not any(credited)
            assert rows[0][2] > log["timestamp"][-1]
            endings["past the end"] += 1
    assert endings["whole"] > 20 * endings["past the end"] > 0
    assert endings["cut short"] > 100


def test_the_truth_is_the_law_of_the_labels(log: Log) -> None:
    label = log.positive[log.clicked]
    twins = {"a little too high": 1.15 * log.probability, "of other clicks": np.roll(log.probability, 1)}
    # Tenths: with smaller bins the first twin would pass.
    assert label_surprises(label, log.probability, bins=10) == 0
    for name, wrong in twins.items():
        assert label_surprises(label, wrong, bins=10) > 0, name


def test_the_log_shows_all_that_the_label_depends_on(log: Log) -> None:
    clicks = {field.name: log[field.name][log.clicked] for field in FIELDS}
    clicks["cost"] = np.floor(20 * np.log10(clicks["cost"] / 1e-5) / 2.5 + 1e-9)
    again = WORLD.model.probabilities([clicks[field.name].astype(np.int64) for field in FIELDS])
    # A cost on the very edge of its bucket may be read as the next one's.
    assert np.isclose(again, log.probability, rtol=1e-6).mean() > 0.9999


def test_the_privacy_units_differ(log: Log) -> None:
    user, campaign, publisher = (log[name][log.clicked] for name in ("uid", "campaign", "publisher"))
    by_user, by_advertiser, by_publisher = (
        _per_unit(key).mean() for key in (user, user * 10_000 + campaign, user * 10_000 + publisher)
    )
    assert by_advertiser > 1.05
    assert by_publisher > by_advertiser + 0.1
    assert by_user > by_publisher + 0.3


def test_it_refuses_what_cannot_be_meant() -> None:
    with pytest.raises(BadInput, match="span_rows"):
        AttributionWorld(seed=1, span_rows=0)
    with pytest.raises(BadInput, match="seed"):
        AttributionWorld(seed=-1)
    with pytest.raises(BadInput, match="rows"):
        list(WORLD.batches(-1))
    with pytest.raises(BadInput, match="same_publisher"):
        UserLaw(same_publisher=1.5)


def _per_unit(keys: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = np.unique(keys, return_counts=True)[1]
    return counts


def _delay_hours(log: Log) -> NDArray[np.float64]:
    converted = log["conversion"] == 1
    hours: NDArray[np.float64] = (log["conversion_timestamp"] - log["timestamp"])[converted] / 3600
    return hours


def _campaign_shares(log: Log) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = _per_unit(log["campaign"][log.clicked]) / log.clicked.sum()
    return shares


def _gini(shares: NDArray[np.float64]) -> float:
    """Twice the area between the diagonal and the Lorenz curve."""
    below = np.concatenate([[0], np.cumsum(np.sort(shares))])
    return float(1 - (below[1:] + below[:-1]).mean())
