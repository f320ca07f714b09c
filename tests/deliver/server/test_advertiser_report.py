"""Reports: every figure with its statement, rates whose intervals hold, files that carry no formula."""

from __future__ import annotations

import csv
import io
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from tacit.bill.protocol.menus import Lane
from tacit.deliver.campaigns.campaign import BidEvent
from tacit.deliver.server.advertiser_report import AdvertiserReport, ChargeLine, Grouping, show_day
from tacit.deliver.server.rate_intervals import CountedCell, EventCounts
from tacit.deliver.server.report_files import COLUMNS, report_as_csv, report_as_parquet
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.noise.distributions import DiscreteLaplace
from tacit.privacy.releases import LocalChoice
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit.schema.contexts.hierarchy import Node
from tests.support.exact_tests import ALPHA

DAY, BEGIN = 86_400, 20_000 * 86_400
NORTH, SOUTH = Node((1,), ("North",)), Node((1,), ("South",))
STATEMENT = PrivacyStatement.of(
    [LocalChoice(Fraction(1))], unit=Unit(UnitKind.DEVICE), relation=Relation.REPLACE_ONE
)
CELLS = {
    (1, NORTH): CountedCell(61, 1_900), (1, SOUTH): CountedCell(20, 1_000), (2, NORTH): CountedCell(3, 40),
}  # fmt: skip
CLICKS = EventCounts(BidEvent.CLICK, "round 12", BEGIN, STATEMENT, 5.0, CELLS)


def a_line(campaign: int = 1, day: int = 0, node: Node = NORTH, **more: Any) -> ChargeLine:
    given: dict[str, Any] = {
        "price_micros": 100,
        "impressions": 3,
        "reason": "second price",
        "lane": Lane.PERSONAL,
    }
    given |= {"epsilon_micros": 2_000_000, **more}
    return ChargeLine(campaign=campaign, epoch=day, opens=BEGIN + day * DAY, node=node, **given)


def a_report(*lines: ChargeLine, **more: Any) -> AdvertiserReport:
    return AdvertiserReport("Acme", BEGIN, BEGIN + 9 * DAY, lines, **{"clicks": CLICKS, **more})


def test_every_figure_has_its_statement() -> None:
    """Whatever has a value says beside it for whom it promises what."""
    report = a_report(a_line(), a_line(2, 1, SOUTH), a_line(held=True))
    seen = 0

    def look(value: Any) -> None:
        nonlocal seen
        if isinstance(value, dict):
            if "value" in value or ("spend_micros" in value and not isinstance(value["spend_micros"], dict)):
                seen += 1
                assert value["statement"].keys() == {"unit", "epsilon", "delta", "relation", "source"}
            for each in value.values():
                look(each)
        elif isinstance(value, list):
            for each in value:
                look(each)

    for by in Grouping:
        told = report.as_json(by)
        look(told)
        json.dumps(told)
    assert seen > 50
    shown = report.as_json(Grouping.CAMPAIGN)["rows"][0]
    assert shown["impressions"]["statement"] == {
        "unit": "choice on a device", "epsilon": 2.0, "delta": 0.0, "relation": "replace-one",
        "source": "charges",
    }  # fmt: skip
    assert shown["clicks"]["rate"]["statement"]["source"] == "round 12"
    assert shown["clicks"]["rate"]["statement"]["epsilon"] == STATEMENT.epsilon


def test_rates_are_of_campaigns_and_contexts_that_were_counted_and_large_enough() -> None:
    report = a_report(a_line(), a_line(2), a_line(3), a_line(node=SOUTH))
    by_campaign = {row.campaign: row.clicks for row in report.rows(Grouping.CAMPAIGN)}
    assert by_campaign[1].rate == pytest.approx(81 / 2_900)
    assert by_campaign[2].withheld == "too few"
    assert by_campaign[3].withheld == "not counted"
    by_context = {row.node: row.clicks for row in report.rows(Grouping.CONTEXT)}
    assert by_context[SOUTH].rate == pytest.approx(0.02)
    assert by_context[NORTH].rate == pytest.approx(64 / 1_940), "of the campaigns that were shown there"
    assert {row.clicks.withheld for row in report.rows(Grouping.DAY)} == {"not counted by day"}
    assert {row.conversions.withheld for row in report.rows(Grouping.CAMPAIGN)} == {"not counted"}
    assert a_report(a_line(), clicks=None).whole.clicks.withheld == "not counted"


def test_a_public_lane_spends_nothing_and_the_largest_choice_is_told() -> None:
    public = a_line(lane=Lane.PUBLIC, epsilon_micros=0)
    assert a_report(public).whole.promise.epsilon == 0
    assert a_report(public, a_line(epsilon_micros=1_500_000)).whole.promise.epsilon == 1.5


@pytest.mark.parametrize(("begin", "end"), [(5, 5), (6, 5), (0, 500 * DAY)])
def test_a_period_is_some_days(begin: int, end: int) -> None:
    with pytest.raises(BadInput, match="until: expected a day after the first"):
        AdvertiserReport("Acme", begin, end, ())


LINES = st.lists(
    st.builds(
        a_line, st.integers(1, 3), st.integers(0, 4), st.sampled_from([NORTH, SOUTH]),
        price_micros=st.integers(0, 2**40), impressions=st.integers(1, 10**6), held=st.booleans(),
        reason=st.sampled_from("abc"), invoice=st.none() | st.integers(1, 2),
    ),
    max_size=12,
)  # fmt: skip


@given(LINES)
def test_whatever_it_is_by_rows_add_up_to_the_total(lines: list[ChargeLine]) -> None:
    report = a_report(*lines)
    whole = report.whole
    assert whole.spend_micros + whole.held_micros == sum(line.micros for line in lines)
    assert sum(micros for _, _, micros in report.invoices()) == whole.spend_micros
    for by in Grouping:
        rows = report.rows(by)
        for name in ("impressions", "spend_micros", "held_micros", "invoiced_micros"):
            assert sum(getattr(row, name) for row in rows) == getattr(whole, name)
        assert sum(len(row.lines) for row in rows) == len(lines)
        assert all(sum(each[2] for each in row.reasons()) == row.spend_micros for row in rows)


# Intervals.


@pytest.mark.parametrize(("rate", "shown", "counts", "scale"), [
    (0.03, 2_000, 1, 3.0), (0.03, 2_000, 4, 6.0), (0.002, 5_000, 2, 4.0), (0.3, 400, 1, 8.0),
    (0.0, 1_000, 1, 5.0),
])  # fmt: skip
def test_intervals_hold_as_often_as_they_say(rate: float, shown: int, counts: int, scale: float) -> None:
    """Samples with noise of their own on clicks and on no-clicks, as rounds release them."""
    trials, entropy = 2_000, Simulation(f"{rate} {shown} {counts}")
    law = DiscreteLaplace(Fraction(scale))
    sd = math.sqrt(law.variance)
    noise = law.sample_array(2 * trials * counts, entropy.words).reshape(2, trials, counts).sum(axis=2)
    clicks = np.maximum(binom.ppf(entropy.words(trials) / 2.0**64, shown, rate), 0)
    held = 0
    for at in range(trials):
        hits = float(clicks[at] + noise[0, at])
        found = CountedCell(hits, float(shown + noise[0, at] + noise[1, at]), counts).interval(sd)
        assert found is not None
        held += found[0] <= rate <= found[1]
    assert binomtest(held, trials, 0.93, alternative="less").pvalue > ALPHA, held
    # And without the noise they would not.
    if rate == 0.03 and counts == 4:
        narrow = sum(
            low <= rate <= high
            for low, high in (
                CountedCell(float(clicks[at] + noise[0, at]), float(shown), counts).interval(0.0) or (0, 1)
                for at in range(trials)
            )
        )
        assert binomtest(narrow, trials, 0.93, alternative="less").pvalue < ALPHA


@given(st.floats(-50, 5_000), st.floats(-100, 50_000), st.integers(1, 50), st.floats(0, 100))
def test_an_interval_is_within_0_and_1_and_has_the_rate_in_it(
    hits: float, shown: float, counts: int, sd: float
) -> None:
    cell = CountedCell(hits, shown, counts)
    found = cell.interval(sd)
    assert (found is None) == cell.is_suppressed(sd)
    if found is not None:
        assert 0 <= found[0] <= cell.rate() <= found[1] <= 1
        assert cell.interval(sd + 1) is None or _width(cell.interval(sd + 1)) >= _width(found) - 1e-9


def _width(interval: tuple[float, float] | None) -> float:
    assert interval is not None
    return interval[1] - interval[0]


# Files.


@pytest.mark.parametrize("start", ["=", "@", "+", "-"])
def test_a_spreadsheet_is_given_no_formula(start: str) -> None:
    told = a_report(a_line(reason=f"{start}1", node=Node((1,), (f"{start}cmd",))), titles={1: f"{start}x"})
    for by in Grouping:
        (row,) = csv.DictReader(io.StringIO(report_as_csv(told, by).decode(), newline=""))
        assert not any(cell.startswith(start) for cell in row.values())
    (row,) = csv.DictReader(io.StringIO(report_as_csv(told, Grouping.CONTEXT).decode(), newline=""))
    assert (row["row"], row["context"]) == (f"'{start}cmd", f"'{start}cmd")


@pytest.mark.parametrize("by", list(Grouping))
def test_csv_and_parquet_say_the_same_and_add_up(by: Grouping) -> None:
    report = a_report(a_line(), a_line(2, 1, SOUTH, invoice=3), a_line(held=True), a_line(day=1))
    rows = list(csv.DictReader(io.StringIO(report_as_csv(report, by).decode())))
    table = pq.read_table(io.BytesIO(report_as_parquet(report, by)))
    assert table.column_names == list(COLUMNS) == list(rows[0])
    for row, other in zip(rows, table.to_pylist(), strict=True):
        assert row == {name: "" if value is None else str(value) for name, value in other.items()}
    assert sum(table["spend_micros"].to_pylist()) == report.whole.spend_micros == 900
    about = json.loads(table.schema.metadata[b"tacit.report"])
    assert (about["advertiser"], about["from"], about["statement"]["epsilon"]) == ("Acme", show_day(BEGIN), 2.0)
    assert np.all(table["epsilon"].to_numpy() == 2.0)
