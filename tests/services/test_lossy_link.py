"""A link that loses a fifth of its messages: rounds settle within a minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tacit.entropy import Simulation
from tacit.errors import GatherError
from tacit.gather.client.reporter import MemoryDeviceStore, Reporter
from tacit.gather.protocol import credentials
from tacit.gather.protocol.credentials import SealingKey
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.rounds import Round
from tacit.gather.proxy.party import Proxy
from tacit.gather.server.party import Server
from tacit.memory_ledger import MemoryLedger
from tacit.services.proxy_driver import LONGEST_PAUSE_SECONDS, LinkState, RoundDriver
from tacit.services.proxy_intake import UnsettledRounds
from tacit.services.rounds import AnnouncedRound
from tests.support.service_worlds import (
    CELLS,
    CHECK,
    CLOSES,
    ENROLMENT,
    GRANTED,
    OPENS,
    SERVER_URL,
    SKEW,
    ProxyStore,
    ServerStore,
    a_round,
    a_world,
    counts_of,
    fetch_result,
)

ROUNDS, DEVICES, JOB_REPORTS = 5, 12, 2  # six jobs per round, an agreement and a share
AFTER = CLOSES + SKEW
LOST_SECONDS = 1.0

Fate = Callable[[bytes], str]
"""What becomes of a message: "" (delivered), "lost", or "unanswered"."""


@dataclass
class Lossy:
    """Both parties in one process, a link between them, and seconds that pass only where somebody waits."""

    fate: Fate
    seconds: float = 0.0
    sent: list[tuple[str, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        keys = SealingKey.generate(), SealingKey.generate()
        self.store, ledgers = ProxyStore(), (MemoryLedger(), MemoryLedger())
        self.server = Server(keys[1], ServerStore(), ledgers[1], check_key=CHECK)
        proxy = Proxy(keys[0], self.store, ledgers[0], enrolment_secret=ENROLMENT, check_key=CHECK)
        self.rounds = [a_round(*keys, task=f"run {number}") for number in range(ROUNDS)]
        for ledger in ledgers:
            ledger.grant(self.rounds[0].line, GRANTED)
        for round in self.rounds:
            proxy.open_round(round)
            self.server.open_round(round)
            uploads = [self._upload(round, number, keys) for number in range(DEVICES)]
            assert proxy.take(uploads, OPENS) == [MessageVerdict.ACCEPTED] * DEVICES
        self.live, self.reach = UnsettledRounds(self.store, not_before=0), LinkState()
        self.driver = RoundDriver(
            proxy, self.store, self.live, self, reach=self.reach, clock=lambda: AFTER,
            timer=lambda: self.seconds, entropy=Simulation("pauses"), enough=JOB_REPORTS, every_seconds=1.0,
        )  # fmt: skip

    @staticmethod
    def _upload(round: Round, number: int, keys: tuple[SealingKey, SealingKey]) -> bytes:
        name = number.to_bytes(16, "little")
        reporter = Reporter(
            name, credentials.issue_device_key(ENROLMENT, name), Simulation(number), MemoryDeviceStore(),
            proxy_key=keys[0].public, server_key=keys[1].public, simulated=True,
        )  # fmt: skip
        return reporter.upload(round, counts_of(number, CELLS))

    def job(self, body: bytes) -> bytes:
        return self._handed("job", body)

    def agree(self, body: bytes) -> bytes:
        return self._handed("agree", body)

    def share(self, body: bytes) -> bytes:
        return self._handed("share", body)

    def _handed(self, kind: str, body: bytes) -> bytes:
        self.sent.append((kind, body))
        became = self.fate(body)
        if became != "lost":
            reply: bytes = getattr(self.server, kind)(body, AFTER)
            if not became:
                return reply
        self.seconds += LOST_SECONDS
        raise ConnectionError

    def settle(self, most_seconds: float = 600) -> float:
        """Look after look, until all rounds are settled; how long that took."""
        while self.live.all():
            assert self.seconds < most_seconds, "it never happened"
            self.look()
        return self.seconds

    def look(self) -> float:
        pause = self.driver.look()
        self.seconds += pause
        return pause


def losing(seed: int, percent: int) -> Fate:
    chance = Simulation(f"losses {seed}")

    def fate(_body: bytes) -> str:
        lost = chance.uniform_below(100) < percent
        return ("lost", "unanswered")[chance.uniform_below(2)] if lost else ""

    return fate


def test_a_fifth_is_lost_and_all_rounds_settle_within_a_minute() -> None:
    taken = [Lossy(losing(seed, 20)).settle() for seed in range(10)]
    assert max(taken) < 60
    assert Lossy(losing(0, 0)).settle() < 5
    assert Lossy(losing(0, 60)).settle() > max(taken), "the losses are not felt"


def test_results_are_exact_for_all_that() -> None:
    world = Lossy(losing(1, 20))
    world.settle()
    for round in world.rounds:
        values = world.server.result(round.digest, AFTER).values
        assert values.tolist() == sum(counts_of(number) for number in range(DEVICES)).tolist()  # type: ignore[union-attr]


def test_one_round_that_never_gets_through_holds_up_no_other() -> None:
    world = Lossy(lambda _: "")
    poor = world.rounds[0]
    world.fate = lambda body: "lost" if poor.digest in body else ""
    for _ in range(3):
        world.look()
    assert world.live.all() == [poor]
    assert world.seconds < 20
    world.fate = lambda _: ""
    assert world.settle() < 60


def test_a_link_that_is_down_is_tried_seldom_and_taken_up_at_once(caplog: pytest.LogCaptureFixture) -> None:
    world = Lossy(lambda _: "lost")
    pauses = [world.look() for _ in range(12)]
    troubles = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(troubles) == 1, "every look has said the same"
    assert len(world.sent) <= 2 * len(pauses), "every round tried a link that was down"
    assert LONGEST_PAUSE_SECONDS / 2 <= pauses[-1] <= LONGEST_PAUSE_SECONDS
    assert len(set(pauses[-4:])) == 4, "no jitter"
    assert not world.reach.works
    world.fate = lambda _: ""
    assert world.driver.look() == 1.0
    assert world.reach.works
    assert not world.live.all()


def test_a_message_is_sent_again_at_once_only_while_the_link_works() -> None:
    world = Lossy(lambda _: "lost")
    world.driver.look()
    assert len(world.sent) == len(set(world.sent)), "insisted on a link that never answered"
    answered: list[bytes] = []

    def second(body: bytes) -> str:
        answered.append(body)
        return "lost" if len(answered) == 2 else ""

    world.fate = second
    before = world.seconds
    world.driver.look()
    assert not world.live.all(), "one lost message ended the look"
    assert world.seconds - before == LOST_SECONDS


def test_a_refusal_is_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    """Trouble of one round is no sign that the link is down."""
    world = Lossy(lambda _: "")

    def refusing(body: bytes) -> str:
        if world.rounds[0].digest in body:
            raise GatherError("no budget, say")
        return ""

    world.fate = refusing
    for _ in range(20):
        assert world.look() == 1.0
    assert world.live.all() == [world.rounds[0]]
    troubles = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(troubles) == 1, "every look has said the same"


@pytest.mark.slow
def test_a_fifth_is_lost_in_real_time(tmp_path: Path) -> None:
    """The services at their usual pace, over a transport that loses a fifth of what they say to each other."""
    chance = Simulation("real losses")

    def meddle(request: httpx.Request, send: Callable[[httpx.Request], httpx.Response]) -> httpx.Response:
        if request.url.host == "server.test" and request.method == "POST" and chance.uniform_below(100) < 20:
            if chance.uniform_below(2):
                send(request)
            raise httpx.ReadTimeout("lost", request=request)
        return send(request)

    with a_world(tmp_path, look_every_ms=1_000, job_reports=2) as world:
        rounds = [world.a_round(task=f"run {number}") for number in range(ROUNDS)]
        for round in rounds:
            world.open(AnnouncedRound(round))
            for number in range(DEVICES):
                world.device(number).report(round, counts_of(number))
        world.network.meddle = meddle
        world.now, began = AFTER, time.monotonic()
        while {str(each.phase) for each in world.proxy_store.rounds()} != {"released"}:
            assert time.monotonic() - began < 60, "not within a minute"
            time.sleep(0.1)
        world.network.meddle = lambda request, send: send(request)
        for round in rounds:
            assert fetch_result(world.client, SERVER_URL, round.digest).count == DEVICES
