"""What goes wrong in a storm over billing: messages that are lost, repeated or late, and parties that die.

Every decision is drawn from a seed: the same seed, the same faults. A party dies at a crash point: around the
commit of a write, just before it (the write is undone) or just after it (whoever waits for it never hears).
What its object knew is lost; its file stays. That is what a kill leaves behind.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection

from tacit.deliver.device.account import DeviceAccount
from tacit.deliver.device.journal import ImpressionRecord, Showing
from tacit.entropy import Simulation
from tacit.errors import BillRefused
from tacit.store.billing_ads import SqlAdStore
from tacit.store.billing_proxy import SqlBillingProxyStore
from tacit.store.device_journal import SqlDeviceJournal

Answer = TypeVar("Answer")
BEFORE, AFTER = "before", "after"
LOST, UNANSWERED, TWICE, LATE = "request lost", "answer lost", "sent twice", "delayed"
FATES = (LOST, UNANSWERED, TWICE, LATE)
SERVER, PROXY, DEVICE = "server", "proxy", "device"


class CrashPoint(NamedTuple):
    """Where a party may die: around its write of this number, from 1."""

    party: str
    write: int
    moment: str


class Died(BaseException):
    """A party was killed here. No `except Exception` of a party may go on."""

    def __init__(self, party: str, moment: str) -> None:
        super().__init__(f"{party} {moment}")
        self.party, self.moment = party, moment


class Message(NamedTuple):
    """What crossed between two parties, as whoever listens in between has it."""

    link: str
    asked: bytes
    answered: bytes


@dataclass
class Weather:
    """Decides what goes wrong.

    lossy      of a hundred messages, how many meet a fate of their own
    deadly     of a thousand crash points, at how many the party dies
    victims    how the names of parties begin that die there; all may
    crash_at   crash points at which it dies in any case
    downtime   how often at most a party is called in vain before it is up again
    """

    seed: int | str
    lossy: int = 0
    deadly: int = 0
    victims: tuple[str, ...] = ("",)
    crash_at: frozenset[CrashPoint] = frozenset()
    downtime: int = 0
    calm: bool = False
    faults: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    met: list[CrashPoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = Simulation(f"storm {self.seed}")

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        return f"seed {self.seed}: {self.faults.total()} faults ({kinds})"

    def below(self, n: int) -> int:
        return self.chance.uniform_below(n)

    def happens(self, percent: int) -> bool:
        return not self.calm and self.below(100) < percent

    def fate(self, link: str) -> str:
        """What becomes of the next message on a link; "" where it just arrives."""
        if not self.happens(self.lossy):
            return ""
        fate = FATES[self.below(len(FATES))]
        self.note(f"{link.partition(' ')[0]} {fate}")
        return fate

    def meet(self, party: str, write: int, moment: str, what: str = "a commit") -> None:
        """A crash point; raises where the party dies there."""
        point = CrashPoint(party, write, moment)
        self.met.append(point)
        dies = point in self.crash_at
        if not dies and self.deadly and not self.calm and party.startswith(self.victims):
            dies = self.below(1_000) < self.deadly
        if dies:
            self.kill(party, moment, f" {what}")

    def kill(self, party: str, moment: str, what: str = "") -> None:
        self.note(f"{party} died {moment}{what}")
        raise Died(party, moment)

    def note(self, what: str) -> None:
        self.faults[re.sub("-[0-9]+", "", what)] += 1  # devices are many, and one kind

    def begin_write(self, party: str) -> int:
        self.writes[party] += 1
        return self.writes[party]


class Network:
    """Hands messages between parties, as far as the weather lets it, and keeps a copy of all of them."""

    def __init__(self, weather: Weather, bury: Callable[[Died], None]) -> None:
        self.weather, self._bury = weather, bury
        self.captured: list[Message] = []
        self._late: list[Callable[[], object]] = []
        self._acting: list[str] = []  # who works now, and who waits for them

    @contextmanager
    def acting(self, party: str) -> Iterator[None]:
        """While a party works. If it dies, it is buried; it may have died at other work that it did meanwhile,
        in which case all that it was at ends."""
        self._acting.append(party)
        try:
            yield
        except Died as death:
            if death.party == party:
                self._bury(death)
                if party not in self._acting[:-1]:
                    raise ConnectionError("it died") from None
            raise
        finally:
            self._acting.pop()

    def call(self, link: str, message: bytes, handle: Callable[[bytes], Answer]) -> Answer:
        """The answer of whoever handles it; an OSError where none comes, whether it was handled or not.

        `link` is "CALLER>CALLED WHAT".
        """
        self._hand_out_late()
        fate = self.weather.fate(link)
        if fate == LOST:
            raise ConnectionError("nobody answered")
        if fate == LATE:
            self._late.append(lambda: self._handled(link, message, handle))
            raise ConnectionError("nobody answered")
        answer = self._handled(link, message, handle)
        if fate == TWICE:
            answer = self._handled(link, message, handle)
        if fate == UNANSWERED:
            raise ConnectionError("nobody answered")
        return answer

    def hand_out_rest(self) -> None:
        """What is still on its way arrives now, in any order."""
        while self._late:
            self._hand_out()

    def _hand_out_late(self) -> None:
        while self._late and self.weather.happens(30):
            self._hand_out()

    def _hand_out(self) -> None:
        arrives = self._late.pop(self.weather.below(len(self._late)))
        with suppress(OSError, BillRefused):  # nobody waits for the answer any more
            arrives()

    def _handled(self, link: str, message: bytes, handle: Callable[[bytes], Answer]) -> Answer:
        place = len(self.captured)
        self.captured.append(Message(link, message, b""))
        with self.acting(link.partition(" ")[0].partition(">")[2]):
            answer = handle(message)
        self.captured[place] = Message(link, message, _as_bytes(answer))
        return answer


def _as_bytes(answer: object) -> bytes:
    if isinstance(answer, bytes):
        return answer
    return b"".join(map(_as_bytes, answer)) if isinstance(answer, Sequence) else b""


def arm_store(store: SqlAdStore | SqlBillingProxyStore, weather: Weather, party: str) -> None:
    """Make every write of a party's store a crash point."""
    database: Any = store._database
    honest = database.writing

    @contextmanager
    def writing() -> Iterator[Connection]:
        with honest() as connection:
            yield connection
            write = weather.begin_write(party)
            weather.meet(party, write, BEFORE)
        weather.meet(party, write, AFTER)

    database.writing = writing


Kept = Callable[[Sequence[ImpressionRecord], DeviceAccount | None], None]


def arm_journal(journal: SqlDeviceJournal, weather: Weather, party: str, kept: Kept) -> None:
    """Make every change of a device's journal a crash point; `kept` is told of all that was committed."""
    opened: Any = journal
    honest, commit = opened._transaction, opened.commit

    @contextmanager
    def transaction() -> Iterator[Connection]:
        with honest() as connection:
            driver: Any = connection.connection.dbapi_connection
            changes = driver.total_changes
            yield connection
            write = weather.begin_write(party) if driver.total_changes > changes else 0
            if write:
                weather.meet(party, write, BEFORE)
        if write:
            weather.meet(party, write, AFTER)

    def told(
        records: Sequence[ImpressionRecord],
        account: DeviceAccount | None = None,
        showing: Showing | None = None,
    ) -> None:
        try:
            commit(records, account, showing)
        except Died as death:
            if death.moment == AFTER:
                kept(records, account)
            raise
        kept(records, account)

    opened._transaction, opened.commit = transaction, told
