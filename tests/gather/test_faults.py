"""Crashes in the middle of a step, lost and repeated messages, wrong clocks: the exact sum once, or nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit.entropy import Simulation
from tacit.errors import GatherError, NotYet, TooFew
from tacit.gather.protocol.credentials import PartyRole, SealingKey
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.proxy.party import Proxy, drive
from tacit.gather.proxy.store import ProxyPhase
from tacit.gather.server.party import Server
from tacit.gather.simulate.memory import MemoryProxyStore, MemoryServerStore
from tacit.memory_ledger import MemoryLedger
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Amount
from tacit.privacy.ledger.rules import ReservationState
from tests.support.gather_worlds import (
    AFTER,
    CHECK,
    CLOSES,
    DURING,
    ENROLMENT,
    PROXY_KEY,
    SERVER_KEY,
    SKEW,
    Recorded,
    a_round,
    an_upload,
    noise_of,
)

ROUND = a_round()
COUNTS = Simulation("counts of devices").words(24).reshape(8, 3) % 10  # (devices, cells)
UPLOADS = [
    an_upload(ROUND, each, row.astype(np.int64), Simulation(each)).to_bytes() for each, row in enumerate(COUNTS)
]  # sealed once: a retry sends the same bytes
BAD_SEAL = an_upload(ROUND, 8, [1, 1, 1], Simulation(8), server_key=PROXY_KEY.public).to_bytes()
FORGED = an_upload(ROUND, 9, [1, 1, 1], Simulation(9), tag=bytes(32)).to_bytes()

WRITES = {
    "add_reports", "begin_job", "finish_job", "keep_share", "keep_job", "keep_result", "set_phase",
    "reserve", "make", "commit",
}  # fmt: skip

Trouble = Callable[[], str]
"""Asked at each write: "" to go on, or to die "before" or "after" it."""


class Crash(Exception):
    """The process is gone. What was written stays."""


class Shaky:
    """A store or a ledger whose owner may die at any write."""

    def __init__(self, kept: Any, trouble: Trouble) -> None:
        self._kept, self._trouble = kept, trouble

    def __getattr__(self, method: str) -> Any:
        call = getattr(self._kept, method)
        return self._writing(call) if method in WRITES else call

    def _writing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def write(*arguments: Any, **named: Any) -> Any:
            when = self._trouble()
            if when == "before":
                raise Crash
            done = call(*arguments, **named)
            if when == "after":
                raise Crash
            return done

        return write


class PaidFor(Recorded):
    """A key for noise, which nobody may draw before the ledger has set its cost aside."""

    ledger: MemoryLedger
    ledger_key: str

    @classmethod
    def by(cls, key: SealingKey, ledger: MemoryLedger, ledger_key: str) -> PaidFor:
        found = cls.from_bytes(key.to_bytes())
        found.ledger, found.ledger_key = ledger, ledger_key
        return found

    def derive(self, label: bytes) -> bytes:
        if b" noise " in label:
            kept = self.ledger.reservation(self.ledger_key)
            assert kept is not None, "noise was drawn before it was paid for"
            assert kept.release is not None, "noise was drawn before the ledger knew for which sum"
            assert kept.state is ReservationState.RESERVED, "noise was drawn for a release that had left"
        return super().derive(label)


class Troubled:
    """Both parties over stores that outlive them, and a link on which anything may happen."""

    def __init__(self, trouble: Trouble, fate: Callable[[str], bool]) -> None:
        self.fate = fate  # whether this misfortune happens now
        self.stores = MemoryProxyStore(), MemoryServerStore()
        self.ledgers = MemoryLedger(), MemoryLedger()
        self.shaky: list[Any] = [Shaky(each, trouble) for each in (*self.stores, *self.ledgers)]
        self.keys = (
            PaidFor.by(PROXY_KEY, self.ledgers[0], f"{ROUND.key}/proxy"),
            PaidFor.by(SERVER_KEY, self.ledgers[1], f"{ROUND.key}/server"),
        )
        self.clock_of_server = 0
        self.now = DURING
        self.sent: list[tuple[str, bytes]] = []
        self.answers: dict[str, list[bytes]] = {"job": [], "agree": [], "share": []}
        self.restart_proxy()
        self.restart_server()
        self.proxy.open_round(ROUND)
        self.server.open_round(ROUND)
        for ledger in self.ledgers:
            ledger.grant(ROUND.line, Budget.of(96, "1e-6"))  # not enough to pay twice

    def restart_proxy(self) -> None:
        store, ledger = self.shaky[0], self.shaky[2]
        self.proxy = Proxy(self.keys[0], store, ledger, enrolment_secret=ENROLMENT, check_key=CHECK)

    def restart_server(self) -> None:
        store, ledger = self.shaky[1], self.shaky[3]
        self.server = Server(self.keys[1], store, ledger, check_key=CHECK)

    # The link.

    def job(self, body: bytes) -> bytes:
        return self._send("job", body)

    def agree(self, body: bytes) -> bytes:
        return self._send("agree", body)

    def share(self, body: bytes) -> bytes:
        return self._send("share", body)

    def _send(self, kind: str, body: bytes) -> bytes:
        self.sent.append((kind, body))
        if self.fate("an old message arrives first"):
            with contextlib.suppress(GatherError, OSError):
                self._deliver(*self.sent[len(self.sent) // 2])
        if self.fate("the request is lost"):
            raise ConnectionError
        answer = self._deliver(kind, body)
        if self.fate("the request is repeated"):
            assert self._deliver(kind, body) == answer
        if self.fate("the response is lost"):
            raise ConnectionError
        if self.fate("another response comes") and self.answers[kind]:
            return self.answers[kind][0]
        self.answers[kind].append(answer)
        return answer

    def _deliver(self, kind: str, body: bytes) -> bytes:
        try:
            answered: bytes = getattr(self.server, kind)(body, self.now + self.clock_of_server)
            return answered
        except Crash:
            self.restart_server()
            raise ConnectionError from None

    # What happens.

    def take(self, upload: bytes) -> MessageVerdict | None:
        try:
            return self.proxy.take([upload], self.now)[0]
        except Crash:
            self.restart_proxy()
            return None

    def drive(self, most: int = 3) -> None:
        try:
            drive(self.proxy, self, ROUND.digest, self.now, most=most)
        except Crash:
            self.restart_proxy()
        except (OSError, GatherError):
            pass
        self.expect_paid()

    def expect_paid(self) -> None:
        """Whatever left a party was paid for before: spent for good by the proxy, whose share can be seen."""
        if any(kind == "share" for kind, _ in self.sent):
            assert self.reserved(0) is ReservationState.COMMITTED
        if self.stores[1].result(ROUND.digest) is not None:
            assert self.reserved(1) is not None

    def reserved(self, party: int) -> ReservationState | None:
        found = self.ledgers[party].reservation(f"{ROUND.key}/{('proxy', 'server')[party]}")
        return found.state if found else None

    def expect_settled(self, acknowledged: set[int], tried: set[int]) -> ProxyPhase:
        """After all trouble: the exact sum over the agreed set was released once, or nothing was."""
        self.shaky = [*self.stores, *self.ledgers]
        self.restart_proxy()
        self.restart_server()
        proxy_ids, server_ids = (set(store.accepted_ids(ROUND.digest)) for store in self.stores)
        assert proxy_ids == server_ids
        counted = {int.from_bytes(each, "big") - 1000 for each in server_ids}
        assert acknowledged <= counted <= tried, "a report that was taken is lost, or one was made up"
        phase = self.proxy.phase(ROUND.digest)
        shares = {body for kind, body in self.sent if kind == "share"}
        if phase is ProxyPhase.TOO_FEW:
            assert len(counted) < ROUND.smallest_batch
            assert (self.reserved(0), self.reserved(1)) == (None, None)
            assert not shares
            assert not self.keys[0].drawn
            assert not self.keys[1].drawn
            with pytest.raises(TooFew):
                self.server.result(ROUND.digest, AFTER)
            return phase
        assert phase is ProxyPhase.RELEASED
        assert len(counted) >= ROUND.smallest_batch
        assert len(shares) == 1, "two draws of noise on one sum left the proxy"
        result = self.server.result(ROUND.digest, AFTER)
        assert [len(set(each.drawn)) for each in self.keys] == [1, 1], "two sets had noise drawn for them"
        agreed = self.proxy.accepted_set(ROUND.digest)
        noise = sum(
            noise_of(ROUND, agreed, role, store)
            for role, store in zip((PartyRole.PROXY, PartyRole.SERVER), self.stores, strict=True)
        )
        exact = COUNTS[sorted(counted)].sum(axis=0).astype(np.int64)
        np.testing.assert_array_equal(result.values - noise, exact)
        assert result.count == len(counted)
        for party, ledger in enumerate(self.ledgers):
            assert len(ledger.now.reservations) == 1
            assert self.reserved(party) is ReservationState.COMMITTED
            account = ledger.now.accounts[ROUND.line]
            assert (account.spent, account.reserved) == (Amount.spending(ROUND.cost), Amount())
        return phase


def never(_: str = "") -> bool:
    return False


# One crash, and two, at every write there is.


def short_run(deaths: dict[int, str]) -> tuple[Troubled, int]:
    """Four devices report and the round ends; the owner of write number i dies as `deaths[i]` says."""
    writes = 0

    def trouble() -> str:
        nonlocal writes
        writes += 1
        return deaths.get(writes - 1, "")

    world = Troubled(trouble, never)
    acknowledged: set[int] = set()
    for device in range(4):
        for _ in range(4):
            if world.take(UPLOADS[device]) is MessageVerdict.ACCEPTED:
                acknowledged.add(device)
                break
    world.now = AFTER
    for _ in range(4):
        world.drive()
    assert world.expect_settled(acknowledged, {0, 1, 2, 3}) is ProxyPhase.RELEASED
    return world, writes


def test_a_crash_before_or_after_any_write_changes_nothing_in_the_end() -> None:
    world, writes = short_run({})
    assert writes > 15
    assert [len(each.drawn) for each in world.keys] == [1, 1]
    draws = set()
    for place in range(writes):
        for when in ("before", "after"):
            world, _ = short_run({place: when})
            draws.add(tuple(len(each.drawn) for each in world.keys))
    # A draw that died before it was kept is the only one that is made again, by either party.
    assert draws == {(1, 1), (2, 1), (1, 2)}


def test_two_crashes() -> None:
    _, writes = short_run({})
    for first in range(4, writes):  # the first four are uploads
        for second in range(first + 1, writes + 2):
            for when in ("before", "after"):
                short_run({first: when, second: "after"})


# Everything at once.


def troubled_run(seed: int) -> ProxyPhase:
    dice = Simulation(f"dice {seed}")
    calm = False

    def happens(one_in: int) -> bool:
        return not calm and dice.uniform_below(one_in) == 0

    def trouble() -> str:
        return ("before", "after")[dice.uniform_below(2)] if happens(8) else ""

    world = Troubled(trouble, lambda _: happens(7))
    world.clock_of_server = dice.uniform_below(2 * SKEW + 1) - SKEW
    acknowledged: set[int] = set()
    tried: set[int] = set()
    for _ in range(10 + dice.uniform_below(20)):
        action = dice.uniform_below(8)
        if action < 4:
            device = dice.uniform_below(1 + dice.uniform_below(len(UPLOADS)))
            answer = world.take(UPLOADS[device])
            tried.add(device)
            assert answer in (None, MessageVerdict.ACCEPTED, MessageVerdict.TOO_LATE)
            if answer is MessageVerdict.ACCEPTED:
                acknowledged.add(device)
        elif action == 4:
            assert world.take(BAD_SEAL) in (None, MessageVerdict.ACCEPTED, MessageVerdict.TOO_LATE)
            assert world.take(FORGED) in (MessageVerdict.FORGED, MessageVerdict.TOO_LATE)
        elif action == 5:
            world.restart_proxy() if happens(2) else world.restart_server()
        else:
            world.drive(most=1 + dice.uniform_below(4))
        if dice.uniform_below(12) == 0:  # the proxy's clock goes on, and is at times set back
            world.now = CLOSES - SKEW + dice.uniform_below(3 * SKEW)
    world.now = AFTER
    for _ in range(dice.uniform_below(8)):
        world.drive()
    calm = True
    for _ in range(3):
        world.drive()
    return world.expect_settled(acknowledged, tried)


def test_whatever_happens_the_sum_is_exact_once_or_nothing_is_released() -> None:
    ends = [troubled_run(seed) for seed in range(250)]
    assert min(ends.count(ProxyPhase.RELEASED), ends.count(ProxyPhase.TOO_FEW)) > 25  # both ends are really met


@pytest.mark.slow
def test_whatever_happens_many_times() -> None:
    for seed in range(1000, 11_000):
        troubled_run(seed)


def test_not_yet_is_said_while_a_round_is_in_trouble() -> None:
    world = Troubled(lambda: "", lambda what: what == "the request is lost")
    for upload in UPLOADS[:4]:
        world.take(upload)
    world.now = AFTER
    world.drive()
    with pytest.raises(NotYet):
        world.server.result(ROUND.digest, AFTER)
    assert (world.reserved(0), world.reserved(1)) == (None, None)  # nothing is paid for what did not begin
