"""Epochs with limits of tokens on running services: they run out, others take their place, nobody is over."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from tacit.bill.protocol.encoding import BillVerdict
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.server.pacing import PacingSettings
from tacit.errors import BillRefused
from tacit.services.ads.pacer import Pacer
from tacit.store.pacing import SqlPacingStore
from tests.support.billing_services import (
    EPOCH_SECONDS,
    HERE,
    MARKET,
    PROXY_HOST,
    REPORT_SECONDS,
    START,
    THERE,
    BillingWorld,
    liking,
)
from tests.support.service_worlds import honest

FEW = PacingSettings(share=Fraction(1, 50), first_tokens=6, room=1, late_seconds=60)
# Each campaign can pay for a few dozen impressions, at some 10,000 micros each.
POOR = (
    MARKET.replace("budget_micros = 50_000_000", "budget_micros = 500_000")
    .replace("budget_micros = 80_000_000", "budget_micros = 600_000")
    .replace('advertiser = "Two Wheels"', 'advertiser = "Two Wheels"\nbudget_micros = 700_000')
    .replace('advertiser = "Tea House"', 'advertiser = "Tea House"\nbudget_micros = 400_000')
)
FIRST = START // EPOCH_SECONDS


class PacedWorld(BillingWorld):
    """A market of poor campaigns, and how far over their budgets they can be by now."""

    def start_server(self, *, proxy_public: bytes | None = None) -> None:
        self.market.write_text(POOR)
        super().start_server(proxy_public=proxy_public)

    def check(self) -> None:
        pacer = self.pacer
        assert pacer is not None
        for each in pacer.report(self.now).campaigns:
            assert not each.is_over(FEW.share), each
        held = self.ads.held_micros()
        for campaign in self.ads.campaigns():
            assert campaign.budget_micros is not None
            spent = campaign.charged_micros + held.get(campaign.campaign, 0)
            assert spent <= campaign.budget_micros + int(FEW.share * campaign.budget_micros)

    def epochs(self) -> list[int]:
        return [head.epoch for head in self.keeper.heads()]


@pytest.fixture
def open_world(tmp_path: Path) -> Iterator[Callable[..., PacedWorld]]:
    made: list[PacedWorld] = []

    def make(**options: object) -> PacedWorld:
        made.append(PacedWorld(tmp_path, **{"pacing": FEW, **options}))  # type: ignore[arg-type]
        made[-1].wait_for_epoch()
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tacit.services")


def show_all(devices: list[AdDevice], context: tuple[str, str], now: int) -> int:
    """Each device shows what it can get; how many were refused."""
    refused = []
    for device in devices:
        try:
            device.show(context, liking, now)
        except BillRefused as problem:
            refused.append(problem.reason)
        device.send_reports(now)
    # A context in which nobody can pay for a token has no menu in that epoch.
    assert set(refused) <= {BillVerdict.NONE_LEFT, BillVerdict.UNKNOWN_CONTEXT}
    return len(refused)


def test_tokens_run_out_and_an_epoch_takes_its_place_once_a_part_of_it_is_over(
    open_world: Callable[..., PacedWorld], caplog: pytest.LogCaptureFixture
) -> None:
    world = open_world()
    devices = [world.device(number, prefetch=1) for number in range(14)]
    assert show_all(devices, HERE, world.now) == 2, "six of each lane"
    assert show_all(devices[-2:], THERE, world.now) == 0, "other contexts have theirs"
    world.check()
    assert world.epochs() == [FIRST]
    world.now = START + EPOCH_SECONDS // 4
    world.wait_until(lambda: world.epochs() == [FIRST, FIRST + 1])
    assert show_all(devices, HERE, world.now) == 0, "there are more tokens where they ran out"
    said = [record.getMessage() for record in caplog.records]
    assert f"epoch {FIRST + 1} was opened early: tokens of the one before were given" in said
    world.check()
    world.now += EPOCH_SECONDS // 8
    show_all(devices * 4, HERE, world.now)
    world.keeper.look()
    assert world.epochs() == [FIRST, FIRST + 1], "at most once per part of an epoch"
    world.check()


def test_whatever_comes_nobody_is_over_and_what_is_not_reported_is_sold_again(
    open_world: Callable[..., PacedWorld],
) -> None:
    world = open_world()
    for turn in range(9):
        devices = [world.device(1_000 * turn + each, prefetch=4) for each in range(5)]
        show_all(devices * 2, HERE if turn % 2 else THERE, world.now)
        if turn == 4:
            world.start_server()
        if turn == 6:
            world.operator().rotate()
        world.check()
        world.now += EPOCH_SECONDS // 2
        world.wait_until(world.keeper.is_offering)
    before = {each.campaign: each.money.out_micros for each in _report(world)}
    assert all(before.values())
    world.now += 2 * EPOCH_SECONDS + REPORT_SECONDS + 60
    world.wait_for_epoch()
    world.wait_until(lambda: len(SqlPacingStore(world.ads.database).look(0).epochs) <= 2)
    world.check()
    assert world.impressions() > 20


def test_a_clock_that_is_ahead_frees_no_money_though_epochs_are_open_by_it(
    open_world: Callable[..., PacedWorld],
) -> None:
    """Nothing has to be countersigned for a while, and the epoch's reports are still taken by the proxy."""
    world = open_world()
    device = world.device(1, prefetch=4)
    device.show(HERE, liking, world.now)
    expires = START + EPOCH_SECONDS + REPORT_SECONDS
    world.now = expires - 300
    world.wait_until(lambda: world.epochs()[-1] == expires // EPOCH_SECONDS)
    store = SqlPacingStore(world.ads.database)
    assert sum(each.out for each in store.tokens_of(FIRST)) >= 1, "set aside, and not reported"
    world.server_now = expires + FEW.late_seconds
    world.keeper.look()
    assert FIRST in store.look(0).epochs
    assert device.send_reports(world.now).acked == 1, "it can still cost somebody something"
    world.server_now, world.now = None, expires + 2 * FEW.late_seconds
    world.wait_until(lambda: FIRST not in store.look(0).epochs)


def _report(world: BillingWorld):  # type: ignore[no-untyped-def]
    assert world.pacer is not None
    return world.pacer.report(world.now).campaigns


def test_a_budget_that_is_lowered_is_kept_from_the_next_epoch(open_world: Callable[..., PacedWorld]) -> None:
    world = open_world()
    show_all([world.device(1)], HERE, world.now)
    before = {each.campaign.campaign: each for each in _report(world)}[1]
    assert before.money.bound_micros == 0
    world.operator().set_budget(1, 1_000)
    lowered = {each.campaign.campaign: each for each in _report(world)}[1]
    assert lowered.money.bound_micros == before.money.spent_micros + before.money.out_micros - 1_000
    assert lowered.is_over(FEW.share), "it is shown"
    world.now = START + EPOCH_SECONDS // 2
    world.wait_until(lambda: world.epochs() == [FIRST, FIRST + 1])
    after = {each.campaign.campaign: each for each in _report(world)}[1]
    assert after.money.out_micros == lowered.money.out_micros, "nothing of it is in the next epoch"


def test_epochs_from_before_pacing_are_replaced_at_once(tmp_path: Path) -> None:
    world = PacedWorld(tmp_path)
    try:
        world.wait_for_epoch()
        assert show_all([world.device(1)], HERE, world.now) == 0
        world._pacing = FEW
        world.start_server()
        world.wait_until(lambda: world.epochs() == [FIRST, FIRST + 1])
        assert show_all([world.device(2)], HERE, world.now) == 0
    finally:
        world.end()


def test_an_epoch_that_is_left_frees_its_money(open_world: Callable[..., PacedWorld]) -> None:
    world = open_world()
    world.stop(PROXY_HOST)
    world.now = START + EPOCH_SECONDS // 2
    world.wait_until(lambda: world.ads.last_epoch() == FIRST + 1)
    store = SqlPacingStore(world.ads.database)
    assert sum(each.out for each in store.tokens_of(FIRST + 1)) > 0, "it may have been countersigned"
    world.now = START + 3 * EPOCH_SECONDS
    world.network.meddle = honest
    world.start_proxy()
    world.wait_for_epoch()
    assert sum(each.out for each in store.tokens_of(FIRST + 1)) == 0
    world.check()


def test_a_campaign_that_cannot_pay_for_a_context_is_left_out_with_one_line(
    open_world: Callable[..., PacedWorld], caplog: pytest.LogCaptureFixture
) -> None:
    world = open_world(pacing=PacingSettings(first_tokens=60, room=1))
    said = [each.getMessage() for each in caplog.records if "left out" in each.getMessage()]
    assert len(said) == 1, said
    assert said[0].startswith("left out of contexts that they could not pay for at worst: campaigns 1, 2")
    assert isinstance(world.pacer, Pacer)
    assert world.pacer.report(world.now).left_out >= 2
    world.check()
