"""What reports read of charges adds up to charges, invoices and accounts, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tacit.bill.server.store import Campaign
from tacit.deliver.server.advertiser_report import AdvertiserReport, Grouping
from tacit.entropy import Simulation
from tacit.store import SqlAdStore
from tacit.store.report_lines import read_report_lines
from tests.support.charged_markets import ACME, BOLT, CONTEXTS, DAY, FIRST_DAY, ChargedMarket
from tests.support.ledger_places import Place

DAYS = 3


@pytest.fixture
def market(place: Place) -> Iterator[ChargedMarket]:
    store = SqlAdStore.open(place.where)
    made = ChargedMarket(store)
    for day in range(DAYS):
        made.open_epoch(day)
    yield made
    store.close()


def report(market: ChargedMarket, advertiser: str, first: int = 0, last: int = DAYS) -> AdvertiserReport:
    begin, end = FIRST_DAY + first * DAY, FIRST_DAY + last * DAY
    lines = read_report_lines(market.store.database, advertiser, begin, end)
    return AdvertiserReport(advertiser, begin, end, tuple(lines))


def test_late_charges_are_of_their_epochs_day_and_on_the_next_invoice(market: ChargedMarket) -> None:
    market.charge(0, "North", [1, 1, 2, 0])
    (first,) = market.store.close_invoices(now=FIRST_DAY + 5 * DAY)
    market.charge(0, "North", [1])  # late
    market.charge(1, "South", [2])
    found = report(market, ACME, 0, 1)
    assert [(row.day, row.impressions, row.spend_micros) for row in found.rows(Grouping.DAY)] == [
        ("2024-10-04", 4, 330)
    ]
    assert found.invoices() == [(first.number, 3, 230), (None, 1, 100)]
    (second,) = market.store.close_invoices(now=FIRST_DAY + 6 * DAY)
    assert report(market, ACME, 0, 1).invoices() == [(first.number, 3, 230), (second.number, 1, 100)]
    assert report(market, ACME).whole.spend_micros == first.total_micros + second.total_micros


def test_what_is_held_is_shown_beside_the_spend_and_not_in_it(market: ChargedMarket) -> None:
    market.store.put_campaigns([Campaign(1, ACME, 250)])
    market.charge(0, "North", [1, 1, 1, 2])
    whole = report(market, ACME).whole
    assert (whole.impressions, whole.spend_micros, whole.held_micros) == (3, 230, 100)
    market.store.put_campaigns([Campaign(1, ACME, None)])
    whole = report(market, ACME).whole
    assert (whole.impressions, whole.spend_micros, whole.held_micros) == (4, 330, 0)


def test_an_advertiser_sees_its_own_and_nothing_of_days_outside(market: ChargedMarket) -> None:
    for day in range(DAYS):
        market.charge(day, "North", [1, 3])
    assert {line.campaign for line in report(market, ACME).lines} == {1}
    assert {line.campaign for line in report(market, BOLT).lines} == {4}
    assert report(market, "Nobody").lines == ()
    (only,) = report(market, BOLT, 1, 2).lines
    assert (only.day, only.reason) == ("2024-10-05", market.menus[1, "North"].reason(3))
    assert report(market, BOLT, 7, 9).lines == ()


def test_spend_is_what_was_charged_and_what_invoices_say(market: ChargedMarket) -> None:
    """After every one of some random steps: batches of any entries, invoices, budgets that run out."""
    draw = Simulation("a market").uniform_below
    for step in range(8):
        indices = [draw(4) for _ in range(1 + draw(6))]
        market.charge(draw(DAYS), CONTEXTS[draw(2)], indices)
        then = ("", "close", "poor", "rich")[draw(4)]
        if then == "close":
            market.store.close_invoices(now=FIRST_DAY + 9 * DAY + step)
        elif then:
            budget = 150 if then == "poor" else None
            market.store.put_campaigns([Campaign(1, ACME, budget), Campaign(4, BOLT, budget)])
        _check_sums(market)
    assert market.store.invoices()


def _check_sums(market: ChargedMarket) -> None:
    store = market.store
    charged, held = {each.campaign: each for each in store.campaigns()}, store.held_micros()
    for advertiser, campaigns in ((ACME, (1, 2)), (BOLT, (4,))):
        whole = report(market, advertiser).whole
        assert whole.spend_micros == sum(charged[each].charged_micros for each in campaigns)
        assert whole.held_micros == sum(held.get(each, 0) for each in campaigns)
        totals = [line for line in store.totals() if line.campaign in campaigns]
        assert whole.spend_micros == sum(line.total_micros for line in totals)
        assert whole.impressions == sum(line.impressions for line in totals)
        invoices = [each for each in store.invoices() if each.advertiser == advertiser]
        found = report(market, advertiser).invoices()
        assert [each for each in found if each[0] is not None] == [
            (each.number, each.impressions, each.total_micros) for each in invoices
        ]
        assert sum(each[2] for each in found) == whole.spend_micros
        for by in Grouping:
            rows = report(market, advertiser).rows(by)
            assert sum(row.spend_micros for row in rows) == whole.spend_micros
            assert sum(row.impressions for row in rows) == whole.impressions
            assert sum(row.held_micros for row in rows) == whole.held_micros
            assert sum(micros for row in rows for _, _, micros in row.reasons()) == whole.spend_micros
        by_day = [report(market, advertiser, day, day + 1).whole.spend_micros for day in range(DAYS)]
        assert sum(by_day) == whole.spend_micros
