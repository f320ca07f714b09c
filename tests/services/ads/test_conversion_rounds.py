"""Conversions end to end: noted on devices, asked for by schedule, released, made into rates and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit.bill.protocol.menus import PricedMenu
from tacit.deliver.campaigns.access import AccessRole
from tacit.deliver.campaigns.campaign import AdCampaign, BidEvent
from tacit.deliver.campaigns.store import Author
from tacit.deliver.campaigns.versions import StoredVersion, VersionKind
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.settings import StatisticsConsent
from tacit.deliver.server.advertiser_report import show_day
from tacit.deliver.server.released_statistics import ReleasedStatistics
from tacit.entropy import Simulation
from tacit.schema.contexts.hierarchy import Hierarchy
from tacit.services.ads.menu_questions import KeptRound, ask_about_menus
from tacit.services.ads.statistics import EARLIER_SECONDS
from tacit.services.ads.versions import RatesInUse
from tacit.services.device_rounds import CountingDevice, family_of
from tacit.store.campaigns import SqlCampaignStore
from tests.services.ads.test_statistics import MADE_OF_CAMPAIGNS, cut, market, versions
from tests.support.ad_campaigns import BEAN, a_campaign
from tests.support.billing_services import HERE, liking
from tests.support.statistics_worlds import (
    EPSILON,
    EVERY_SECONDS,
    LINE,
    OPEN_SECONDS,
    TABLE,
    StatisticsWorld,
    scheduled,
)

ROUND, COUNTS = VersionKind.ROUND, VersionKind.CONVERSION_STATISTICS
DAY = 86_400
BUYS, CLICKS = 1, 2  # campaigns, by what they bid on

assert market  # a fixture, used by its name


def some_campaigns() -> list[AdCampaign]:
    return [
        a_campaign(BUYS, event="conversion", bids=[{"micros": 9_000_000}], budget_micros=None),
        a_campaign(CLICKS, bids=[{"micros": 400_000}], budget_micros=None),
    ]


def a_world(folder: Path, campaigns: list[AdCampaign] | None = None, **more: Any) -> StatisticsWorld:
    given = some_campaigns() if campaigns is None else campaigns
    return StatisticsWorld(folder, market=MADE_OF_CAMPAIGNS, campaigns=given, **more)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StatisticsWorld]:
    made = a_world(tmp_path)
    yield made
    made.end()


def wait(world: StatisticsWorld, seconds: int) -> None:
    """Until menus are offered again, then; and look."""
    world.now += seconds
    world.wait_for_epoch()
    world.rounds.look()


def show_one(world: StatisticsWorld, device: AdDevice, campaign: int, context: Any = HERE) -> None:
    """Show ads until one is of this campaign."""
    for _ in range(60):
        if device.show(context, liking, world.now).campaign == campaign:
            return
    raise AssertionError("it never was")


def join(counting: CountingDevice) -> list[str]:
    """The families of the rounds that took an answer."""
    return sorted(str(family_of(task)) for task in counting.join(charging=True, wifi=True))


def content_of(world: StatisticsWorld, stored: StoredVersion) -> bytes:
    content = world.running.versions.content(stored.number)
    assert content is not None
    return content


def last_counts(world: StatisticsWorld) -> tuple[float, float]:
    """Conversions and impressions of the campaign, as the last round released them."""
    newest = versions(world, COUNTS)[0]
    counted = ReleasedStatistics.from_bytes(content_of(world, newest))
    node = world.hierarchy.at(HERE, (2, 2))
    hits, shown, _ = counted.cells(world.hierarchy, [node], [BUYS])
    return float(hits[0, 0]), float(shown[0, 0])


def release(world: StatisticsWorld) -> None:
    """Close what is open, and take the result."""
    before = len(world.server_rounds.rounds())
    world.now += OPEN_SECONDS + 60
    world.wait_for_result(before)
    world.rounds.look()


def test_conversions_of_devices_become_a_rate_and_a_line_of_a_report(tmp_path: Path) -> None:
    only = [a_campaign(BUYS, event="conversion", bids=[{"micros": 9_000_000}], budget_micros=None)]
    world = a_world(tmp_path, only)
    try:
        world.wait_for_epoch()
        world.rounds.look()
        assert {family_of(each.source) for each in versions(world, ROUND)} == {"menu-rates", "menu-conversions"}
        devices = [world.asking_device(number) for number in range(15)]
        counting = [world.counting_device(number, each) for number, each in enumerate(devices)]
        for number, device in enumerate(devices):
            for _ in range(8):
                assert device.show(HERE, liking, world.now).campaign == BUYS
            assert join(counting[number]) == ["menu-conversions", "menu-rates"]
            if number % 3 == 0:  # a day later, when the clicks were counted long ago
                assert device.note_conversion(BUYS, world.now + DAY)
        release(world)
        assert last_counts(world) == (0, 0)  # for no impression was it sure yet

        wait(world, 7 * DAY)
        for each in counting:
            assert join(each) == ["menu-conversions", "menu-rates"]
        assert all(device.log is not None and device.log.events() == [] for device in devices)
        release(world)
        assert last_counts(world) == (5, 120)
        used = world.running.versions.in_use(COUNTS)
        assert used is not None
        assert used.body["statement"]["unit"] == "device"
        assert used.body["statement"]["epsilon"] == pytest.approx(EPSILON, rel=1e-6)

        rates = RatesInUse(world.running.versions, world.hierarchy, world.running.campaigns, strength=100.0)
        node = world.hierarchy.at(HERE, (1, 1))
        found = float(rates.book().rates([node], [BUYS], BidEvent.CONVERSION)[0, 0])
        assert 0.01 < found < 5 / 120  # from what clicks say towards what was counted
        days = f"from={show_day(world.now - 9 * DAY)}&until={show_day(world.now + DAY)}"
        key = world.key(AccessRole.ADVERTISER_VIEWER, BEAN)
        told = world.get(f"/ads/reports?{days}", key).json()
        (row,) = told["rows"]
        assert row["conversions"]["hits"]["value"] == 5
        assert row["conversions"]["counted_impressions"]["value"] == 120
        rate = row["conversions"]["rate"]
        assert rate["value"] == pytest.approx(5 / 120)
        assert rate["low"] < rate["value"] < rate["high"]
        assert rate["statement"]["source"] == used.source

        spent = {party: ledger.account(LINE) for party, ledger in world.ledgers.items()}
        for account in spent.values():  # two periods, each with a round of either family
            assert account is not None
            assert account.used.epsilon_nanos == pytest.approx(4 * EPSILON * 1e9)
    finally:
        world.end()


def test_a_conversion_counts_once_when_its_look_back_is_over_and_only_within_it(world: StatisticsWorld) -> None:
    world.wait_for_epoch()
    world.rounds.look()
    devices = {number: world.asking_device(number) for number in range(4)}
    counting = {number: world.counting_device(number, each) for number, each in devices.items()}
    start = world.now
    for device in devices.values():
        show_one(world, device, BUYS)
        assert not device.note_conversion(99, world.now)  # which was never shown
    assert devices[0].note_conversion(BUYS, start + 7 * DAY)
    assert not devices[1].note_conversion(BUYS, start + 7 * DAY + 1)
    assert not devices[2].note_conversion(BUYS, start - 1)
    assert devices[3].note_conversion(BUYS, start + 1)
    assert devices[3].note_conversion(BUYS, start + 2)  # of the same impression
    wait(world, 7 * DAY - EVERY_SECONDS)
    assert join(counting[0]) == ["menu-conversions", "menu-rates"]
    log = devices[0].log
    assert log is not None
    mine = [each for each in log.events() if each.campaign == BUYS]
    assert [(each.converted, sorted(each.counted)) for each in mine][-1] == (True, ["menu-rates"])
    wait(world, EVERY_SECONDS)
    for each in counting.values():
        assert "menu-conversions" in join(each)
    release(world)
    hits, shown = last_counts(world)
    assert hits == 2
    assert shown >= 4
    wait(world, EVERY_SECONDS)
    for each in counting.values():
        assert "menu-conversions" in join(each)
    release(world)
    assert last_counts(world) == (0, 0)  # each was counted before


def test_who_did_not_agree_is_counted_nowhere(world: StatisticsWorld) -> None:
    world.wait_for_epoch()
    world.rounds.look()
    start = world.now
    silent = [
        world.asking_device(10, statistics=StatisticsConsent(allowed=False)),
        world.asking_device(11, ("menu-rates",)),
        world.asking_device(12, ("visits",)),
    ]
    for device in silent:
        show_one(world, device, BUYS)
        assert not device.note_conversion(BUYS, start + 1)
    assert [device.log is None for device in silent] == [True, False, True]
    others = [world.asking_device(number) for number in range(3)]
    for device in others:
        show_one(world, device, BUYS)
    counting = [world.counting_device(number, each) for number, each in enumerate([*others, *silent])]
    wait(world, 8 * DAY)
    assert [join(each) for each in counting] == [
        *[["menu-conversions", "menu-rates"]] * 3, [], ["menu-rates"], [],
    ]  # fmt: skip
    release(world)
    assert last_counts(world)[0] == 0
    assert versions(world, COUNTS)[0].body["reports"] == 3


def test_who_withdraws_from_conversions_has_none_kept(world: StatisticsWorld) -> None:
    world.wait_for_epoch()
    device = world.asking_device(1)
    show_one(world, device, BUYS)
    assert device.note_conversion(BUYS, world.now + 5)
    log = device.log
    assert log is not None
    consent = replace(device.settings.statistics, questions=("menu-rates",))
    again = AdDevice(
        replace(device.settings, statistics=consent), world.keys, device.journal, world.channel(),
        Simulation(1), log=log, simulated=True,
    )  # fmt: skip
    assert not again.note_conversion(BUYS, world.now + 6)
    assert len(log.events()) >= 1
    assert not any(each.converted for each in log.events())


def test_what_nobody_counted_is_deleted_when_it_is_too_old(world: StatisticsWorld) -> None:
    world.wait_for_epoch()
    device = world.asking_device(1)
    show_one(world, device, BUYS)
    assert device.log is not None
    device.forget(world.now + EARLIER_SECONDS)
    assert len(device.log.events()) >= 1
    device.forget(world.now + EARLIER_SECONDS + 1)
    assert device.log.events() == []


def test_only_campaigns_that_bid_per_conversion_are_asked_about(world: StatisticsWorld) -> None:
    world.wait_for_epoch()
    world.rounds.look()
    asked = {
        family_of(each.source): set(KeptRound.from_bytes(content_of(world, each)).question.ad.tolist())
        for each in versions(world, ROUND)
    }
    assert asked == {"menu-rates": {BUYS, CLICKS}, "menu-conversions": {BUYS}}


@pytest.mark.parametrize("why", ["nobody bids on them", "the operator wants none"])
def test_without_them_nothing_is_asked_or_paid(tmp_path: Path, why: str) -> None:
    off = why == "the operator wants none"
    campaigns = some_campaigns() if off else [a_campaign(CLICKS)]
    world = a_world(tmp_path, campaigns, table=TABLE + ("conversions_epsilon = 0\n" if off else ""))
    try:
        world.wait_for_epoch()
        for _ in range(3):
            world.rounds.look()
        assert [family_of(each.source) for each in versions(world, ROUND)] == ["menu-rates"]
    finally:
        world.end()


def test_a_campaign_that_ended_is_asked_about_until_its_impressions_are_counted(world: StatisticsWorld) -> None:
    world.wait_for_epoch()
    world.rounds.look()
    store = SqlCampaignStore(world.ads.database)
    store.amend_campaign(BUYS, {"status": "ended"}, None, Author("k", world.now))
    wait(world, 10 * DAY)
    assert {family_of(each.source) for each in versions(world, ROUND)[:2]} == {"menu-rates", "menu-conversions"}
    wait(world, EARLIER_SECONDS - 10 * DAY + EVERY_SECONDS)  # the round above was asked for, and is no menu
    assert family_of(versions(world, ROUND)[0].source) == "menu-rates"


def test_earlier_pairs_come_after_those_of_now(market: tuple[list[PricedMenu], Hierarchy]) -> None:
    menus, hierarchy = market
    whole = ask_about_menus(menus, hierarchy, cells_most=20_000)
    assert whole is not None
    node = whole.nodes[0]
    more = ask_about_menus(
        menus, hierarchy, cells_most=20_000, campaigns={2, 77}, earlier=[(node, 77), (node, 5)]
    )
    assert more is not None
    assert (set(more.question.ad.tolist()), more.left_out) == ({2, 77}, 0)
    few = ask_about_menus(menus, hierarchy, cells_most=4 + 2 * 4, campaigns={2, 77}, earlier=[(node, 77)])
    assert few is not None
    assert (set(few.question.ad.tolist()), few.left_out) == ({2}, 1)
    assert ask_about_menus(menus, hierarchy, cells_most=100, campaigns={78}) is None
    coarse = [(hierarchy.at(("Northport", "Coffee"), (2, 2)), 77)]  # of other levels than are asked about
    assert ask_about_menus(menus, hierarchy, cells_most=100, campaigns={77}, earlier=coarse) is None


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_restart_at_any_write_opens_and_counts_once(world: StatisticsWorld, after: bool) -> None:
    world.wait_for_epoch()
    for expected in (1, 2) if after else (0, 0):  # rounds that are kept: of clicks, and then of conversions
        cut(world, ROUND, after=after)
        assert len(versions(world, ROUND)) == expected
    for _ in range(2):
        world.rounds.look()
        world.rounds = scheduled(world.running)
    assert len(world.server_rounds.rounds()) == len(versions(world, ROUND)) == 2
    for number in range(3):
        device = world.asking_device(number, look_back_seconds=0)
        show_one(world, device, BUYS)
        assert device.note_conversion(BUYS, world.now)
        assert join(world.counting_device(number, device)) == ["menu-conversions", "menu-rates"]
    world.now += OPEN_SECONDS + 60
    world.wait_for_result(2)
    cut(world, COUNTS, after=after)
    for _ in range(2):
        world.rounds.look()
        world.rounds = scheduled(world.running)
    assert len(versions(world, COUNTS)) == len(versions(world, VersionKind.STATISTICS)) == 1
    assert last_counts(world)[0] == 3
    trail = SqlCampaignStore(world.ads.database).changes(subject="conversion-statistics in use")
    assert len(trail) == 1


class Cut(Exception):
    """The device ends here."""


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_device_that_is_cut_off_draws_once(
    world: StatisticsWorld, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its log is marked or after: the same answer is sent, and the log is marked in the end or not, in
    which case the next round counts it again, and is paid for."""
    world.wait_for_epoch()
    world.rounds.look()
    device = world.asking_device(1, ("menu-conversions",), look_back_seconds=0)
    show_one(world, device, BUYS)
    device.note_conversion(BUYS, world.now)
    counting, log = world.counting_device(1, device), device.log
    assert log is not None
    marks: Callable[..., None] = log.mark_counted

    def ends(*given: Any) -> None:
        if after:
            marks(*given)
        raise Cut

    with monkeypatch.context() as patched:
        patched.setattr(log, "mark_counted", ends)
        with pytest.raises(Cut):
            join(counting)
    [task] = [each.source for each in versions(world, ROUND) if family_of(each.source) == "menu-conversions"]
    kept = counting._memory.find_chosen(task)
    assert kept is not None
    show_one(world, device, BUYS)  # later than the draw
    assert join(counting) == ["menu-conversions"]
    assert join(counting) == []
    left = [each for each in log.events() if not each.counted]
    assert len(left) >= (1 if after else 2)


def test_a_ledger_that_pays_for_clicks_alone_counts_those(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = a_world(tmp_path, granted=1.5 * EPSILON)
    try:
        world.wait_for_epoch()
        caplog.clear()
        for _ in range(3):
            world.rounds.look()
        families = [family_of(each.source) for each in versions(world, ROUND)]
        assert families == ["menu-rates"]
        said = [each for each in caplog.records if "no round of statistics is opened" in each.getMessage()]
        assert len(said) == 1
    finally:
        world.end()
