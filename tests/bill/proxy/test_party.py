"""The proxy as a party: when batches are released, what they say, and what it gives back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tacit.bill.protocol.batches import MOST_REPORTS, BatchStatement
from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.proxy import party
from tacit.bill.proxy.party import HoldRule
from tacit.bill.proxy.store import WaitingReports
from tacit.errors import BadInput
from tacit.store.billing_ads import SqlAdStore
from tacit.store.billing_proxy import SqlBillingProxyStore
from tests.support.billing_scenes import reason_of
from tests.support.billing_worlds import (
    DURING,
    EXPIRED,
    PROXY_KEY,
    SERVER_KEY,
    TIMES,
    World,
    a_directory,
    a_menu,
    numbered_key,
    stored_menus,
)

COHORT = a_menu("cohort", smallest_cohort=3)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """On SQLite alone: what stores do is tested elsewhere."""
    ads = SqlAdStore.open(tmp_path / "ads.sqlite")
    proxied = SqlBillingProxyStore.open(tmp_path / "proxy.sqlite")
    yield World(ads, proxied, hold=HoldRule(seconds=60, most=5))
    ads.close()
    proxied.close()


@pytest.mark.parametrize(
    ("count", "since", "now", "released"),
    [
        (2, DURING, DURING + 600, False),  # too few
        (3, DURING, DURING + 59, False),  # enough, and more may join
        (3, DURING, DURING + 60, True),
        (4, DURING, DURING + 61, True),
        (5, DURING, DURING, True),  # as many as one batch takes
        (9, DURING, DURING, True),
        (1, DURING, EXPIRED - 1, False),
        (1, DURING, EXPIRED, True),  # undersized: billing stays exact
    ],
)
def test_when_reports_become_a_batch(count: int, since: int, now: int, released: bool) -> None:
    (menu,) = stored_menus(a_directory([COHORT], [numbered_key(0)]).to_bytes())
    waiting = WaitingReports(COHORT.menu_id, count, since)
    assert HoldRule(seconds=60, most=5).releases(waiting, menu, now) is released


def test_hold_rules_of_other_values_are_refused() -> None:
    for wrong in ({"seconds": -1}, {"seconds": 1.5}, {"most": 0}, {"most": MOST_REPORTS + 1}):
        with pytest.raises(BadInput, match="expected"):
            HoldRule(**wrong)


def test_a_cohort_is_waited_for_and_said_in_a_signed_statement(world: World) -> None:
    world.open_epoch(COHORT)
    nonces = [report[33:65] for report in world.report(2)]
    world.now += 600
    assert world.bill() == []
    assert [world.proxy.statement_for(nonce) for nonce in nonces] == [None, None]
    nonces += [report[33:65] for report in world.report(1, index=3)]
    (statement,) = world.bill()
    statement.check(PROXY_KEY.public)
    assert (statement.menu_id, statement.epoch, statement.reports) == (COHORT.menu_id, COHORT.epoch, 3)
    (cohort,) = world.proxy.cohorts(COHORT.epoch)
    cohort.check(PROXY_KEY.public)
    assert (cohort.batch_id, cohort.menu_id, cohort.reports) == (statement.batch_id, COHORT.menu_id, 3)
    assert [world.proxy.statement_for(nonce) for nonce in nonces] == [cohort] * 3
    assert world.proxy.statements(COHORT.epoch) == [statement]
    assert world.proxy.statements(COHORT.epoch + 1) == []
    assert reason_of(lambda: world.proxy.statement_for(bytes(32))) is BillVerdict.UNKNOWN_MENU


def test_reports_that_the_ad_server_rejects_are_no_cohort(world: World) -> None:
    """One stranger with real tokens and nonsense in them makes nobody's crowd larger."""
    world.open_epoch(COHORT)
    honest = world.report(1)
    world.report(4, index=200)
    (statement,) = world.bill()
    assert statement.reports == 5
    (cohort,) = world.proxy.cohorts(COHORT.epoch)
    assert cohort.reports == 1
    assert world.proxy.statement_for(honest[0][33:65]) == cohort


def test_a_cohort_is_not_said_before_there_is_a_receipt(world: World) -> None:
    world.open_epoch(COHORT)
    reports = world.report(5)
    assert len(world.proxy.form_batches(world.now, world.source)) == 1
    assert world.proxy.statement_for(reports[0][33:65]) is None
    assert world.proxy.cohorts(COHORT.epoch) == []
    world.proxy.deliver_batches(world)
    (cohort,) = world.proxy.cohorts(COHORT.epoch)
    assert cohort.reports == 5


def test_an_undersized_cohort_leaves_when_its_epoch_expires(world: World) -> None:
    world.open_epoch(COHORT)
    world.report(1)
    world.now = EXPIRED - 1
    assert world.bill() == []
    world.now = EXPIRED
    assert [statement.reports for statement in world.bill()] == [1]


def test_menus_are_batched_apart_and_no_batch_is_larger_than_the_most(world: World) -> None:
    menus = a_menu("one"), a_menu("two")
    world.open_epoch(*menus)
    world.report(7, menu=menus[0])
    world.report(2, menu=menus[1])
    world.now += 60
    formed: list[BatchStatement] = []
    for _ in range(3):
        formed += world.bill()
    assert sorted((each.menu_id == menus[0].menu_id, each.reports) for each in formed) == [
        (False, 2), (True, 2), (True, 5),
    ]  # fmt: skip
    assert sum(line.impressions for line in world.ads.totals()) == 9


def test_the_head_of_the_epoch_that_is_open(world: World) -> None:
    assert reason_of(lambda: world.proxy.head(DURING)) is BillVerdict.STALE_EPOCH
    head = world.open_epoch(COHORT)
    assert world.proxy.head(DURING) == head
    assert world.proxy.head(TIMES.opens) == head
    for now in (TIMES.opens - 1, TIMES.closes):
        assert reason_of(lambda now=now: world.proxy.head(now)) is BillVerdict.STALE_EPOCH  # type: ignore[misc]


def test_a_directory_is_countersigned_once_and_the_same_for_ever(world: World) -> None:
    directory = a_directory([COHORT], [numbered_key(0)])
    signed = world.proxy.countersign(directory.to_bytes(), DURING)
    EpochHead.from_bytes(signed).check(SERVER_KEY.public, PROXY_KEY.public)
    again = {
        world.proxy.countersign(directory.to_bytes(), now) for now in (DURING, DURING + 1, EXPIRED, 2 * EXPIRED)
    }
    assert again == {signed}


def test_a_menu_is_looked_up_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the memory of menus does not grow without end."""
    monkeypatch.setattr(party, "MOST_MENUS_KNOWN", 2)
    menus = [a_menu(str(at)) for at in range(4)]
    world.open_epoch(*menus)
    for menu in menus * 2:
        assert world.proxy.take(world.make_reports(1, menu=menu), DURING) == [BillVerdict.ACCEPTED]
    assert len(world.proxy._menus) == 2


def test_links_that_fail_end_the_delivery_and_lose_nothing(world: World) -> None:
    world.open_epoch(a_menu("one"))
    world.report(2)
    world.now += 60
    world.proxy.form_batches(world.now, world.source)

    class Broken:
        def deliver(self, batch: bytes) -> bytes:
            world.deliver(batch)  # charged, and the receipt is lost
            raise ConnectionError("lost")

    for _ in range(2):
        with pytest.raises(OSError, match="lost"):
            world.proxy.deliver_batches(Broken())
    assert world.proxy.deliver_batches(world) == 1
    assert world.proxy.deliver_batches(world) == 0
    assert sum(line.impressions for line in world.ads.totals()) == 2


def test_reports_are_taken_one_by_one_whatever_stands_beside_them(world: World) -> None:
    world.open_epoch(COHORT)
    good = world.make_reports(2)
    other = replace_token(good[1])
    assert world.proxy.take([good[0], b"", other, good[1], good[0]], DURING) == [
        BillVerdict.ACCEPTED, BillVerdict.MALFORMED, BillVerdict.FORGED, BillVerdict.ACCEPTED,
        BillVerdict.ACCEPTED,
    ]  # fmt: skip
    assert world.proxy.take([], DURING) == []
    assert [waiting.count for waiting in world.proxied.waiting()] == [2]


def replace_token(report: bytes) -> bytes:
    return report[:65] + bytes(256) + report[321:]


def test_leaves_of_one_directory_keep_their_own_cohorts(world: World) -> None:
    menus = replace(COHORT, smallest_cohort=1), a_menu("two", smallest_cohort=2)
    world.open_epoch(*menus)
    for menu in menus:
        world.report(1, menu=menu)
    world.now += 60
    assert [(each.menu_id, each.reports) for each in world.bill()] == [(menus[0].menu_id, 1)]
