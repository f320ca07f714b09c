"""A clock that jumps by a day and comes back costs nothing but the time for which it was wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from tacit.errors import Refused
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.proxy.store import ProxyPhase
from tacit.services.http_clients import LinkFailed
from tacit.services.rounds import AnnouncedRound
from tacit.services.signatures import ExchangeKeys, Party, RequestGate, WrongTime
from tests.support.service_worlds import (
    CLOSES,
    OPENS,
    SERVER_URL,
    SKEW,
    World,
    a_world,
    counts_of,
    fetch_result,
    honest,
    reason,
    settle,
)

DAY = 86_400


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(tmp_path, job_reports=1) as made:
        yield made


@pytest.mark.parametrize("early", [0, 3, 6], ids=["none yet", "too few so far", "enough already"])
def test_a_proxy_that_was_a_day_ahead_takes_reports_again(world: World, early: int) -> None:
    world.open()
    for number in range(early):
        world.device(number).report(world.round, counts_of(number))
    world.wait_until(lambda: world.proxy_store.waiting_count(world.round.digest) == 0)
    asked = len(world.network.asked)
    world.proxy_now = OPENS + DAY
    world.start_proxy()
    assert reason(lambda: world.device(7).report(world.round, counts_of(7))) is MessageVerdict.TOO_LATE
    world.wait_until(lambda: "POST server.test/agreements" in world.network.asked[asked:])
    world.proxy_now = None
    world.start_proxy()
    world.wait_until(lambda: world.proxy_store.rounds()[0].phase is ProxyPhase.OPEN)
    for number in range(early, 10):
        world.device(number).report(world.round, counts_of(number))
    settle(world)
    np.testing.assert_array_equal(
        fetch_result(world.client, SERVER_URL, world.round.digest).values, sum(map(counts_of, range(10)))
    )


def test_a_proxy_that_jumps_while_it_runs_goes_on_when_it_is_set_right(world: World) -> None:
    """A day ahead and back, then a day behind and back, without a restart."""
    world.open()
    for jump in (DAY, -DAY):
        world.proxy_now = world.now + jump
        refusal = reason(lambda: world.device(7).report(world.round, counts_of(7)))
        assert refusal is (MessageVerdict.TOO_LATE if jump > 0 else MessageVerdict.TOO_EARLY)
        world.proxy_now = None
        world.wait_until(lambda: world.proxy_store.rounds()[0].phase is ProxyPhase.OPEN)
        for number in (1, 2, 3) if jump > 0 else (4, 5, 6):
            world.device(number).report(world.round, counts_of(number))
    world.open(AnnouncedRound(world.a_round(task="another")))
    settle(world)
    assert fetch_result(world.client, SERVER_URL, world.round.digest).count == 6


def test_a_round_that_the_server_agreed_to_stays_closed(world: World) -> None:
    """Its answer got lost, and the proxy's clock is set back: nobody may be added to what was agreed."""
    world.open()
    for number in range(6):
        world.device(number).report(world.round, counts_of(number))
    world.wait_until(lambda: world.proxy_store.waiting_count(world.round.digest) == 0)
    lost: list[str] = []

    def losing(request: httpx.Request, send: Callable[[httpx.Request], httpx.Response]) -> httpx.Response:
        answer = send(request)
        if request.url.path == "/agreements":
            lost.append(request.url.path)
            raise httpx.ReadError("lost", request=request)
        return answer

    world.network.meddle = losing
    world.now = CLOSES + SKEW
    world.wait_until(lambda: len(lost) >= 2)
    world.now = OPENS + 10
    assert reason(lambda: world.device(8).report(world.round, counts_of(8))) is MessageVerdict.TOO_LATE
    world.network.meddle = honest
    world.wait_until(lambda: world.proxy_store.rounds()[0].phase is ProxyPhase.RELEASED)
    assert fetch_result(world.client, SERVER_URL, world.round.digest).count == 6


def test_where_clocks_differ_opening_says_by_how_much(world: World) -> None:
    world.proxy_now = OPENS + DAY
    with pytest.raises(LinkFailed, match=r"clocks of server and proxy .* got the proxy's 86,400 s ahead$"):
        world.open()
    world.proxy_now, world.server_now = None, OPENS - 90
    with pytest.raises(LinkFailed, match=r"clocks of operator and server .* got the server's 90 s behind$"):
        world.open()
    world.server_now = None
    world.open()


def test_where_the_proxy_is_away_opening_says_so(world: World) -> None:
    world.stop("proxy.test")
    with pytest.raises(LinkFailed, match=r"the server answered: the proxy does not answer it"):
        world.open()


NONCES = [bytes([number] * 16) for number in range(8)]


def a_gate(began: int) -> tuple[RequestGate, Callable[[int, bytes, int], None]]:
    """A gate, and how a request that was signed then, with this nonce, is handed to it now."""
    exchange = ExchangeKeys.between(bytes(32), caller=Party.PROXY, called=Party.SERVER)
    gate = RequestGate(exchange, tolerance_seconds=60, began=began)

    def handed(signed: int, nonce: bytes, now: int) -> None:
        headers = exchange.request_headers("POST", "/jobs", b"", now=signed, nonce=nonce)
        gate.admit("POST", "/jobs", headers, now)

    return gate, handed


def test_a_gate_that_began_by_a_wrong_clock_lets_in_once_it_is_right() -> None:
    _, handed = a_gate(began=OPENS + DAY)
    handed(OPENS, NONCES[0], OPENS)
    with pytest.raises(Refused):  # from before the process began, for all that it can know
        handed(OPENS - 1, NONCES[1], OPENS)


@pytest.mark.parametrize("away", [DAY, 200, 61, 30])
def test_no_jump_of_the_clock_lets_a_request_in_twice(away: int) -> None:
    _, handed = a_gate(began=OPENS - 100)
    handed(OPENS, NONCES[0], OPENS)
    with contextlib.suppress(Refused):
        handed(OPENS, NONCES[1], OPENS + away)
    handed(OPENS + away, NONCES[2], OPENS + away)  # from a caller that is as wrong
    for now in (OPENS + 1, OPENS + 2, OPENS + 59):  # right again
        with pytest.raises(Refused):
            handed(OPENS, NONCES[0], now)
    handed(OPENS + 60, NONCES[3], OPENS + 60)
    for now in range(OPENS + away - 60, OPENS + away + 61, 10):  # and when the wrong time is the right one
        with pytest.raises(Refused):
            handed(OPENS + away, NONCES[2], now)


def test_a_difference_is_told_only_to_who_holds_the_key() -> None:
    gate, handed = a_gate(began=OPENS)
    with pytest.raises(WrongTime) as caught:
        handed(OPENS + 100, NONCES[0], OPENS)
    assert (caught.value.nonce, caught.value.now) == (NONCES[0].hex(), OPENS)
    stranger = ExchangeKeys.between(bytes([1] * 32), caller=Party.PROXY, called=Party.SERVER)
    headers = stranger.request_headers("POST", "/jobs", b"", now=OPENS + 100, nonce=NONCES[0])
    with pytest.raises(Refused) as plain:
        gate.admit("POST", "/jobs", headers, OPENS)
    assert not isinstance(plain.value, WrongTime)
