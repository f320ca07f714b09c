"""Batches go out until they are receipted: what is lost, late or refused is said once, and never given up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from tacit.bill.proxy.party import BillingProxy
from tacit.entropy import Simulation
from tacit.errors import BillRefused
from tacit.services.background import DAY_SECONDS
from tacit.services.billing_driver import BatchDriver, BillingRetention
from tacit.services.proxy_driver import LONGEST_PAUSE_SECONDS, LinkState
from tacit.services.signatures import Party
from tests.support.billing_services import (
    EPOCH_SECONDS,
    PROXY_HOST,
    REPORT_SECONDS,
    SERVER_HOST,
    BillingWorld,
    a_billing_world,
)
from tests.support.service_worlds import an_answer, honest

Send = Callable[[httpx.Request], httpx.Response]


@pytest.fixture
def world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[BillingWorld]:
    caplog.set_level(logging.INFO, "tacit.services")
    with a_billing_world(tmp_path) as made:
        made.wait_for_epoch()
        yield made


def told(caplog: pytest.LogCaptureFixture, words: str) -> int:
    return sum(words in record.getMessage() for record in caplog.records)


def test_a_receipt_that_got_lost_is_asked_for_again(
    world: BillingWorld, caplog: pytest.LogCaptureFixture
) -> None:
    prices, lost = world.show(4), list[bytes]()

    def losing(request: httpx.Request, send: Send) -> httpx.Response:
        answer = send(request)
        if request.url.path == "/billing/batches" and len(lost) < 3:
            lost.append(request.read())
            raise httpx.ReadError("lost", request=request)
        return answer

    world.network.meddle = losing
    world.bill(4)
    world.wait_until(lambda: not world.reports.undelivered())
    assert len(lost) == 3
    assert len(set(lost)) == 1, "the very same bytes"
    assert (world.impressions(), world.charged_micros()) == (4, sum(prices))
    assert told(caplog, "the ad server did not answer for a batch, will try again: ReadError") == 1
    world.wait_until(lambda: told(caplog, "batches are delivered again"))


def test_while_the_ad_server_is_away_reports_are_taken_and_batches_wait(
    world: BillingWorld, caplog: pytest.LogCaptureFixture
) -> None:
    prices = world.show(3)
    world.stop(SERVER_HOST)
    world.now += 5
    world.wait_until(lambda: told(caplog, "the ad server did not answer for a batch"))
    world.start_proxy()  # killed, it goes on with the same batch
    [batch] = world.reports.undelivered()
    world.start_server()
    world.bill(3)
    assert world.charged_micros() == sum(prices)
    world.wait_until(lambda: not world.reports.undelivered())
    assert world.ads.receipt(batch) is not None


def test_an_answer_of_somebody_else_settles_nothing(
    world: BillingWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.show(3)

    def lying(request: httpx.Request, send: Send) -> httpx.Response:
        if request.url.path == "/billing/batches":
            return an_answer(200, b"receipt")
        return send(request)

    world.network.meddle = lying
    world.now += 5
    world.wait_until(lambda: told(caplog, "expected a signed answer, got another"))
    assert len(world.reports.undelivered()) == 1
    assert world.impressions() == 0
    world.network.meddle = honest
    world.bill(3)


def test_a_batch_that_is_refused_stays_and_keeps_no_other(
    world: BillingWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """The ad server has another key of the proxy in its settings: whoever runs it has to look."""
    world.show(3)
    world.start_server(proxy_public=bytes(32))
    world.now += 5
    words = "a batch cannot be delivered, will try again: BillRefused: the sender is not the party it should be"
    world.wait_until(lambda: told(caplog, words))
    assert len(world.reports.undelivered()) == 1
    world.start_server()
    world.bill(3)
    assert told(caplog, words) == 1


@pytest.mark.parametrize("jump", [DAY_SECONDS, -DAY_SECONDS])
def test_while_the_proxys_clock_is_a_day_off_nothing_is_delivered_and_nothing_lost(
    world: BillingWorld, jump: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A day ahead it forms the batch, undersized as it may be; no clock lets the ad server take it."""
    prices = world.show(3)
    world.proxy_now = world.now + jump
    if jump > 0:
        words = "expected the clocks of proxy and server to agree, got the server's 86,400 s behind"
        world.wait_until(lambda: told(caplog, words))
    assert world.impressions() == 0
    world.proxy_now = None
    world.start_proxy()
    world.bill(3)
    assert world.charged_micros() == sum(prices)


class NoLink:
    """An ad server that is away, or that refuses all."""

    def __init__(self, error: Exception) -> None:
        self.error, self.asked = error, 0

    def deliver(self, batch: bytes) -> bytes:  # noqa: ARG002
        self.asked += 1
        raise self.error


@pytest.mark.parametrize("error", [ConnectionError("away"), BillRefused(12)])
def test_pauses_grow_up_to_half_a_minute_and_end_with_the_service(
    world: BillingWorld, error: Exception
) -> None:
    world.show(3)
    world.stop(PROXY_HOST)
    world.now += 5
    link, reach = NoLink(error), LinkState()
    driver = BatchDriver(
        BillingProxy(world.signing[Party.PROXY], world.reports, server_public=bytes(32), hold=world.proxy.hold),
        link, reach=reach, clock=lambda: world.now, entropy=Simulation(1), every_seconds=1.0,
    )  # fmt: skip
    pauses = [driver.look() for _ in range(8)]
    assert all(pause <= 2 * before * 2 for before, pause in pairwise(pauses))
    assert LONGEST_PAUSE_SECONDS / 2 <= pauses[-1] <= LONGEST_PAUSE_SECONDS
    assert reach.works is (not isinstance(error, OSError))
    assert link.asked == 8
    driver.end()
    driver.look()
    assert link.asked == 8, "nothing is sent once it is to end"


def test_old_epochs_are_forgotten_and_not_by_a_clock_that_is_wrong(world: BillingWorld) -> None:
    world.show(3)
    world.bill(3)
    world.wait_until(lambda: not world.reports.undelivered())
    epoch = world.keeper.heads()[0].epoch
    wrong = BillingRetention(world.reports, clock=lambda: world.now + 365 * DAY_SECONDS, keep_days=7)
    assert wrong.look() == 0, "no epoch is open by that clock"
    assert world.reports.head(epoch) is not None
    right = BillingRetention(world.reports, clock=lambda: world.now, keep_days=7)
    world.now += EPOCH_SECONDS + REPORT_SECONDS + 7 * DAY_SECONDS - 30
    world.wait_for_epoch()
    assert right.look() == 0
    world.now += EPOCH_SECONDS
    world.wait_for_epoch()
    assert right.look() >= 1
    assert world.channel().statements(epoch) == []
