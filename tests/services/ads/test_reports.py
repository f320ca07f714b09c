"""Reports over HTTP: each form, own advertisers alone, sums that are the bill's, and a page that shows it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pyarrow.parquet as pq
import pytest

from tacit.bill.accounts import show_micros
from tacit.deliver.campaigns.access import AccessRole
from tacit.deliver.campaigns.store import Advertiser
from tacit.deliver.campaigns.versions import NewVersion, VersionKind
from tacit.deliver.server.advertiser_report import AdvertiserReport, show_day
from tacit.deliver.server.released_statistics import ReleasedStatistics
from tacit.privacy.releases import LocalChoice
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit.schema.contexts.hierarchy import Node
from tacit.services.ads.report_page import draw_days, report_page
from tacit.services.ads.reports import parse_day
from tacit.store.versions import SqlVersionStore
from tests.support.ad_campaigns import BEAN, BY, a_campaign
from tests.support.ads_services import AdsWorld
from tests.support.billing_services import HERE, START

NORTH_FOOD = Node((1, 1), ("North", "Food"))
STATEMENT = PrivacyStatement.of(
    [LocalChoice(Fraction(1))], unit=Unit(UnitKind.DEVICE), relation=Relation.REPLACE_ONE
)
CONVERSIONS_STATEMENT = PrivacyStatement.of(
    [LocalChoice(Fraction(1, 2))], unit=Unit(UnitKind.DEVICE), relation=Relation.REPLACE_ONE
)
PERIOD = f"from={show_day(START)}&until={show_day(START + 86_400)}"


class ReportWorld(AdsWorld):
    """Twelve impressions that were charged, statistics that were released, and a key of each kind."""

    def prepare(self) -> None:
        store = self.running.campaigns
        store.put_advertiser(Advertiser(BEAN), BY)
        store.add_campaign(a_campaign(1, daily_micros=20_000_000), BY)
        self.wait_for_epoch()
        self.show(12, HERE)
        self.now += 600
        self.bill(12)
        counts = ReleasedStatistics(
            (NORTH_FOOD,), np.array([5_000]), np.array([0, 2]), np.array([1, 4]), np.array([64, 40]),
            np.array([2_000, 1_500]), noise_sd=7.0, reports=900,
        )  # fmt: skip
        body = {"statement": STATEMENT.as_json()}
        versions = SqlVersionStore(self.ads.database)
        versions.add(NewVersion(VersionKind.STATISTICS, "round 1f", body, counts.to_bytes()), BY, use=True)
        self.operator_key = self.key(AccessRole.VIEWER)
        self.own_key = self.key(AccessRole.ADVERTISER_VIEWER, BEAN)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReportWorld]:
    made = ReportWorld(tmp_path_factory.mktemp("reports"))
    try:
        made.prepare()
        yield made
    finally:
        made.end()


def test_a_report_is_what_was_charged(world: ReportWorld) -> None:
    told = world.get(f"/ads/reports?{PERIOD}", world.own_key).json()
    charged = {each.campaign: each.charged_micros for each in world.ads.campaigns()}
    (row,) = told["rows"]
    assert row["campaign"] == 1
    assert row["spend_micros"]["value"] == charged[1] == told["total"]["spend_micros"]["value"] > 0
    assert {each["reason"] for each in row["reasons"]} == {
        "second price per impression, public rank 1, price set by campaign 4"
    }
    assert row["impressions"]["statement"]["epsilon"] == 1.0  # of the market's menus
    rate = row["clicks"]["rate"]
    assert rate["value"] == pytest.approx(0.032)
    assert rate["low"] < 0.026 < 0.038 < rate["high"]
    assert rate["statement"]["source"] == "round 1f"
    assert told["statistics"][0]["statement"]["unit"] == "device"
    assert row["conversions"]["withheld"] == "not counted"


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReportWorld]:
    """The same, with conversions that were released after the clicks."""
    made = ReportWorld(tmp_path_factory.mktemp("conversions"))
    try:
        made.prepare()
        counts = ReleasedStatistics(
            (NORTH_FOOD,), np.array([3_000]), np.array([0, 1]), np.array([1]), np.array([24]),
            np.array([3_000]), noise_sd=5.0, reports=800,
        )  # fmt: skip
        body = {"statement": CONVERSIONS_STATEMENT.as_json()}
        version = NewVersion(VersionKind.CONVERSION_STATISTICS, "round 2e", body, counts.to_bytes())
        SqlVersionStore(made.ads.database).add(version, BY, use=True)
        yield made
    finally:
        made.end()


def test_conversions_have_their_own_counts_intervals_and_statement(converted: ReportWorld) -> None:
    told = converted.get(f"/ads/reports?{PERIOD}", converted.own_key).json()
    (row,) = told["rows"]
    for figures in (row["conversions"], told["total"]["conversions"]):
        rate = figures["rate"]
        assert rate["value"] == pytest.approx(0.008)
        assert rate["low"] < 0.0065 < 0.0095 < rate["high"]
        assert figures["hits"]["low"] == pytest.approx(24 - 1.96 * 5, abs=0.01)
        assert rate["statement"]["source"] == "round 2e"
        assert rate["statement"]["epsilon"] == pytest.approx(0.5)
    assert row["clicks"]["rate"]["value"] == pytest.approx(0.032)  # another round's, with its own promise
    assert row["clicks"]["rate"]["statement"]["source"] == "round 1f"
    assert [(each["event"], each["source"]) for each in told["statistics"]] == [
        ("click", "round 1f"),
        ("conversion", "round 2e"),
    ]


def test_conversions_are_in_every_form(converted: ReportWorld) -> None:
    path = f"/ads/reports?{PERIOD}&by=campaign"
    (line,) = csv.DictReader(io.StringIO(converted.get(f"{path}&form=csv", converted.own_key).text))
    assert line["conversions"] == "24"
    assert float(line["conversions_rate"]) == pytest.approx(0.008)
    assert "0.5" in line["conversions_statement"]
    parquet = converted.get(f"{path}&form=parquet", converted.own_key).content
    table = pq.read_table(io.BytesIO(parquet))
    assert table["conversions"].to_pylist() == [24]
    assert table["conversions_rate_high"].to_pylist()[0] > 0.0095
    page = converted.get(f"{path}&form=page", converted.own_key).text
    for words in (
        "Conversions",
        "conversion rate",
        "0.80%",
        "round 2e",
        "Conversion rates with their intervals",
    ):
        assert words in page
    assert "were not counted" not in page
    assert "of them were released" in report_page(AdvertiserReport("Nobody", 0, 86_400, ()))


@pytest.mark.parametrize("by", ["campaign", "context", "day", "line"])
def test_all_forms_say_the_same(world: ReportWorld, by: str) -> None:
    path = f"/ads/reports?advertiser=Bean%20%26%20Leaf&{PERIOD}&by={by}"
    told = world.get(path, world.own_key).json()
    spend = [row["spend_micros"]["value"] for row in told["rows"]]
    as_csv = world.get(f"{path}&form=csv", world.own_key)
    assert as_csv.headers["content-type"].startswith("text/csv")
    assert "attachment" in as_csv.headers["content-disposition"]
    assert [int(row["spend_micros"]) for row in csv.DictReader(io.StringIO(as_csv.text))] == spend
    as_parquet = world.get(f"{path}&form=parquet", world.operator_key)
    assert pq.read_table(io.BytesIO(as_parquet.content))["spend_micros"].to_pylist() == spend
    as_page = world.get(f"{path}&form=page", world.own_key)
    assert "default-src 'none'" in as_page.headers["content-security-policy"]
    assert show_micros(sum(spend)) in as_page.text
    assert "<script" not in as_page.text


def test_an_advertiser_sees_no_other_and_a_stranger_none(world: ReportWorld) -> None:
    assert world.get("/ads/reports").status_code == 401
    assert world.get("/ads/reports?advertiser=Tea%20House", world.own_key).status_code == 404
    assert world.get("/ads/reports?advertiser=Tea%20House", world.operator_key).status_code == 200
    assert world.get("/ads/reports?advertiser=Nobody", world.operator_key).status_code == 404
    assert world.get("/ads/reports", world.operator_key).status_code == 400
    assert world.get("/ads/reports", world.own_key).status_code == 200  # its own, of the last thirty days


@pytest.mark.parametrize(
    "query",
    ["from=2027-02-30", "from=2027-1-1", "from=2027-01-02&until=2027-01-02", "from=0001-01-01", "by=week",
     "form=xml", "from=2026-01-01&until=2027-12-31", "more=1", "from=tomorrow11"],
)  # fmt: skip
def test_what_is_asked_wrongly_is_refused_in_one_line(world: ReportWorld, query: str) -> None:
    refused = world.get(f"/ads/reports?{query}", world.own_key)
    assert refused.status_code == 400
    assert refused.json()["detail"].split(":")[0] in query + "until"


def test_statistics_of_later_are_not_in_an_earlier_report(world: ReportWorld) -> None:
    before = show_day(START - 86_400)
    told = world.get(f"/ads/reports?from={before}&until={show_day(START)}", world.own_key).json()
    assert told["statistics"] == []
    assert told["total"]["clicks"]["withheld"] == "not counted"
    assert told["total"]["spend_micros"]["value"] == 0


def test_an_empty_report_is_a_page_too_and_names_are_escaped() -> None:
    text = report_page(AdvertiserReport("<b>&Co", 0, 86_400, (), titles={7: "<img src=x>"}))
    assert "Nothing was charged" in text
    assert "<b>&Co" not in text
    assert "<img" not in text
    assert "&lt;img src=x&gt;" in text


def test_a_chart_has_a_bar_per_day_with_spend_and_the_budget_as_a_line() -> None:
    begin = parse_day("from", "2027-01-30")
    drawn = draw_days(begin, begin + 3 * 86_400, {"2027-01-30": 500_000, "2027-02-01": 250_000}, 1_000_000)
    assert drawn.count("<rect") == 2
    assert 'height="75.00"' in drawn  # half of the plot, for half of the budget
    assert "daily budget" in drawn
    assert "daily budget" not in draw_days(begin, begin + 86_400, {}, None)
