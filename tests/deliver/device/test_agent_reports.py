"""Reports are sent until they are taken, and settled by sizes that the proxy signed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tacit.bill.protocol.encoding import BillVerdict
from tacit.deliver.device.account import MICRO
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.journal import ImpressionState
from tacit.deliver.device.outcomes import SentReports, SettledReports
from tacit.errors import BillRefused
from tests.support.billing_worlds import CLOSED, EXPIRED
from tests.support.device_worlds import (
    NEW,
    OLD,
    SETTINGS,
    AdTown,
    TownChannel,
    reported,
    town_menus,
)

TWO = 2 * MICRO
SHOWN, ACKED, SETTLED = ImpressionState.SHOWN, ImpressionState.ACKED, ImpressionState.SETTLED


@pytest.fixture
def town(tmp_path: Path) -> AdTown:
    return AdTown.open(tmp_path)


def states(device: AdDevice) -> Counter[ImpressionState]:
    return Counter(each.state for each in device.journal.impressions(tuple(ImpressionState)))


def test_reports_that_are_too_late_are_closed_without_a_charge(town: AdTown) -> None:
    device = town.device()
    device.show(OLD, town.rates, town.now)
    town.world.now = EXPIRED
    assert device.send_reports(EXPIRED) == SentReports(0, 0, (BillVerdict.EXPIRED,))
    assert states(device)[ImpressionState.CLOSED] == 1
    (closed,) = device.journal.impressions((ImpressionState.CLOSED,))
    assert closed.refusal is BillVerdict.EXPIRED
    assert device.account.local_micros == TWO, "it was drawn"
    town.bill()
    assert town.charges() == {}
    assert device.send_reports(EXPIRED) == SentReports(0, 0)


def test_who_erases_is_charged_for_nothing_more_and_gets_no_privacy_back(town: AdTown) -> None:
    device = town.device()
    device.show(OLD, town.rates, town.now)
    device.send_reports(town.now)
    device.show(OLD, town.rates, town.now)  # shown, and not yet reported
    spent = device.account
    assert spent.local_micros == 2 * TWO
    assert device.erase() >= 2
    assert device.journal.impressions(tuple(ImpressionState)) == []
    assert device.account == spent
    assert town.device(journal=device.journal).account == spent, "after a restart too"
    assert device.send_reports(town.now) == SentReports(0, 0)
    town.bill()
    assert sum(town.charges().values()) == 1, "what was reported before stays: it names nobody"
    device.show(OLD, town.rates, town.now)
    assert device.account.local_micros == 3 * TWO


@dataclass
class Refusing(TownChannel):
    """Takes no report, and says why."""

    verdict: BillVerdict = BillVerdict.NONE_LEFT

    def report(self, report: bytes) -> None:
        del report
        raise BillRefused(self.verdict)


@pytest.mark.parametrize("verdict", [BillVerdict.NONE_LEFT, BillVerdict.UNKNOWN_MENU, BillVerdict.STALE_EPOCH])
def test_what_is_refused_otherwise_is_tried_again_until_it_is_over(town: AdTown, verdict: BillVerdict) -> None:
    device = town.device(channel=Refusing(town.world, verdict=verdict))
    device.show(OLD, town.rates, town.now)
    assert device.send_reports(town.now) == SentReports(0, 1, (verdict,))
    again = town.device(journal=device.journal)
    assert again.send_reports(CLOSED) == SentReports(1, 0)
    device = town.device(channel=Refusing(town.world, verdict=verdict))
    device.show(OLD, town.rates, town.now)
    late = EXPIRED + SETTINGS.skew_seconds
    assert device.send_reports(late - 1).waiting == 1
    assert device.send_reports(late) == SentReports(0, 0, (verdict,))
    assert states(device)[ImpressionState.CLOSED] == 1


@dataclass
class Forgetting(TownChannel):
    """Takes reports, and the answers are lost."""

    def report(self, report: bytes) -> None:
        super().report(report)
        raise ConnectionError("lost")


def test_a_report_that_was_taken_in_time_is_not_closed_because_its_answer_was_lost(town: AdTown) -> None:
    device = town.device(channel=Forgetting(town.world))
    device.show(OLD, town.rates, town.now)
    assert device.send_reports(town.now) == SentReports(0, 1)
    again = town.device(journal=device.journal)
    town.world.now = EXPIRED
    assert again.send_reports(EXPIRED) == SentReports(1, 0, (BillVerdict.EXPIRED,))
    town.bill()
    assert town.charges() == reported([again])
    assert again.settle(EXPIRED).by_size == 1


# Cohorts.


def test_an_undersized_cohort_counts_in_full(tmp_path: Path) -> None:
    town = AdTown.open(tmp_path, town_menus(smallest_cohort=5))
    device = town.device()
    device.show(OLD, town.rates, town.now)
    device.send_reports(town.now)
    town.bill()
    assert device.settle(town.now) == SettledReports(0, 0, 1), "it waits for others"
    town.bill(EXPIRED)
    assert device.settle(EXPIRED) == SettledReports(0, 1, 0)
    (record,) = device.journal.impressions((SETTLED,))
    assert record.cohort == 1
    assert device.account.central_micros == TWO
    assert town.charges() == reported([device]), "billing stays exact"


def test_an_unknown_cohort_counts_in_full_after_the_deadline(tmp_path: Path) -> None:
    town = AdTown.open(tmp_path, town_menus(smallest_cohort=5))
    device = town.device()
    device.show(OLD, town.rates, town.now)
    device.send_reports(town.now)
    deadline = EXPIRED + SETTINGS.settle_seconds
    assert device.settle(deadline - 1).waiting == 1
    assert device.settle(deadline) == SettledReports(0, 1, 0)
    (record,) = device.journal.impressions((SETTLED,))
    assert record.cohort is None
    assert device.account.central_micros == TWO


@dataclass
class Boasting(TownChannel):
    """Statements of larger cohorts than there were, which the proxy did not sign so."""

    def statement(self, nonce: bytes) -> bytes | None:
        found = self.world.proxy.statement_for(nonce)
        assert found is not None
        return replace(found, reports=10_000).to_bytes()


def test_a_size_that_the_proxy_did_not_sign_is_not_believed(town: AdTown) -> None:
    device = town.device(channel=Boasting(town.world))
    device.show(OLD, town.rates, town.now)
    device.send_reports(town.now)
    town.bill()
    assert device.settle(town.now) == SettledReports(0, 0, 1)
    assert device.account.central_micros == TWO


def test_a_statement_of_another_batch_is_not_believed(town: AdTown) -> None:
    device, other = town.device(), town.device()
    device.show(OLD, town.rates, town.now)
    other.show(NEW, town.rates, town.now)
    for each in (device, other):
        each.send_reports(town.now)
    town.bill()
    (elsewhere,) = other.journal.impressions((ACKED,))
    foreign = town.channel.statement(elsewhere.nonce)

    class Mixing(TownChannel):
        def statement(self, nonce: bytes) -> bytes | None:
            del nonce
            return foreign

    again = town.device(journal=device.journal, channel=Mixing(town.world))
    assert again.settle(town.now) == SettledReports(0, 0, 1)


def test_reports_of_ones_own_that_may_be_in_the_batch_hide_nothing(tmp_path: Path) -> None:
    """Three of this device's reports are in a batch of six; of one of them it does not know it."""
    town = AdTown.open(tmp_path, town_menus(smallest_cohort=6))
    forgetting = Forgetting(town.world)
    device = town.device()
    for _ in range(3):
        device.show(OLD, town.rates, town.now)
    records = device.waiting_reports()
    device.enter_verdicts(records[:2], [BillVerdict.ACCEPTED] * 2, town.now)
    for record in records[:2]:
        town.channel.report(record.report)
    with pytest.raises(ConnectionError):
        forgetting.report(records[2].report)
    for _ in range(3):
        member = town.device()
        member.show(OLD, town.rates, town.now)
        member.send_reports(town.now)
    town.bill()
    assert device.settle(town.now).by_size == 2
    assert [each.cohort for each in device.account.choices] == [5, 5, None]
    assert device.send_reports(town.now).acked == 1
    assert device.settle(town.now).by_size == 1
    assert [each.cohort for each in device.account.choices] == [5, 5, 6]
