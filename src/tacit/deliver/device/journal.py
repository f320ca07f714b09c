"""The journal of a device's impressions: every state is on disk before the device acts on it.

    NEW      a token's secret was drawn and blinded        then: ask the ad server to sign it
    ISSUED   the signature was checked                     then: wait for an impression
    CHOSEN   what to show was drawn, and paid for          then: show it
    SHOWN    it was shown; the report's bytes are made     then: send them until they are taken
    ACKED    the proxy has the report on its disk          then: ask how many it left among
    SETTLED  that is known, or will not be
    CLOSED   it ended before: nothing is charged for it

Whatever happens to the device, it goes on from the last state. What was blinded is sent again as it was, and
signed the same; what was drawn is never drawn again; a report that was made is sent again byte for byte. Where
a device fails between showing an ad and SHOWN, nothing is charged for it: never the reverse.

What a state no longer needs is not kept: blinding factors go with ISSUED, secret and token with SHOWN, the
report's bytes with ACKED.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Protocol

from tacit.bill.protocol.directory import HASH_BYTES
from tacit.bill.protocol.encoding import BillVerdict, Reader, begin_message, expect_size, read_message
from tacit.bill.protocol.reports import REPORT_BYTES
from tacit.bill.protocol.tokens import NONCE_BYTES, SECRET_BYTES, TOKEN_BYTES, BlindedMessage, token_nonce
from tacit.deliver.device.account import DeviceAccount
from tacit.display import brief
from tacit.errors import BadInput, BillError


class ImpressionState(IntEnum):
    """How far an impression is. Numbers are on disk and never change."""

    NEW = 0
    ISSUED = 1
    CHOSEN = 2
    SHOWN = 3
    ACKED = 4
    SETTLED = 5
    CLOSED = 6


AFTER = {
    ImpressionState.NEW: frozenset({None}),
    ImpressionState.ISSUED: frozenset({ImpressionState.NEW}),
    ImpressionState.CHOSEN: frozenset({ImpressionState.ISSUED}),
    ImpressionState.SHOWN: frozenset({ImpressionState.CHOSEN}),
    ImpressionState.ACKED: frozenset({ImpressionState.SHOWN}),
    ImpressionState.SETTLED: frozenset({ImpressionState.ACKED}),
    ImpressionState.CLOSED: frozenset({ImpressionState.CHOSEN, ImpressionState.SHOWN}),
}
"""Which states one may follow; None: no record is there."""

OPEN = frozenset(set(ImpressionState) - {ImpressionState.SETTLED, ImpressionState.CLOSED})

_SIZES = {
    "secret": SECRET_BYTES, "blinded": TOKEN_BYTES, "inverse": TOKEN_BYTES, "token": TOKEN_BYTES,
    "report": REPORT_BYTES,
}  # fmt: skip
_HELD = {
    ImpressionState.NEW: frozenset({"secret", "blinded", "inverse"}),
    ImpressionState.ISSUED: frozenset({"secret", "token"}),
    ImpressionState.CHOSEN: frozenset({"secret", "token"}),
    ImpressionState.SHOWN: frozenset({"report"}),
}
_NONE = 2**32 - 1


@dataclass(frozen=True)
class ImpressionRecord:
    """One token and what became of it. Printing it shows neither secrets nor the choice.

    expires          the second from which its report is no longer taken
    smallest_cohort  reports of its menu that a batch should have
    index            which entry of the menu was drawn; from CHOSEN on
    epsilon_micros   what drawing it spent, and in which `window` of the account
    cohort           among how many reports it left, by the proxy's signature; None where that is not known
    refusal          why it was closed, where a party said so
    """

    state: ImpressionState
    nonce: bytes
    menu_id: bytes
    epoch: int
    expires: int
    smallest_cohort: int
    secret: bytes = b""
    blinded: bytes = b""
    inverse: bytes = b""
    token: bytes = b""
    index: int | None = None
    epsilon_micros: int = 0
    window: int = 0
    report: bytes = b""
    cohort: int | None = None
    refusal: BillVerdict | None = None

    def __post_init__(self) -> None:
        expect_size("a nonce", self.nonce, NONCE_BYTES)
        expect_size("a menu's id", self.menu_id, HASH_BYTES)
        held = _HELD.get(self.state, frozenset())
        for name, size in _SIZES.items():
            if len(getattr(self, name)) != (size if name in held else 0):
                raise BadInput(f"expected {size if name in held else 0} bytes of {name} in {self.state.name}")
        if (self.index is None) != (self.state < ImpressionState.CHOSEN):
            raise BadInput(f"expected a choice from CHOSEN on and not before, got another at {self.state.name}")

    def __repr__(self) -> str:
        return brief(self, state=self.state.name, nonce=self.nonce.hex()[:16], epoch=self.epoch)

    @classmethod
    def new(
        cls, secret: bytes, blinded: BlindedMessage, *, menu_id: bytes, epoch: int, expires: int, cohort: int
    ) -> ImpressionRecord:
        return cls(
            ImpressionState.NEW, token_nonce(secret), menu_id, epoch, expires, cohort,
            secret=secret, blinded=blinded.blinded, inverse=blinded.inverse,
        )  # fmt: skip

    def issued(self, token: bytes) -> ImpressionRecord:
        return replace(self, state=ImpressionState.ISSUED, token=token, blinded=b"", inverse=b"")

    def chosen(self, index: int, epsilon_micros: int, window: int) -> ImpressionRecord:
        return replace(
            self, state=ImpressionState.CHOSEN, index=index, epsilon_micros=epsilon_micros, window=window
        )

    def shown(self, report: bytes) -> ImpressionRecord:
        return replace(self, state=ImpressionState.SHOWN, report=report, secret=b"", token=b"")

    def acked(self) -> ImpressionRecord:
        return replace(self, state=ImpressionState.ACKED, report=b"")

    def settled(self, cohort: int | None) -> ImpressionRecord:
        return replace(self, state=ImpressionState.SETTLED, cohort=cohort)

    def closed(self, refusal: BillVerdict | None = None) -> ImpressionRecord:
        return replace(self, state=ImpressionState.CLOSED, secret=b"", token=b"", report=b"", refusal=refusal)

    def to_bytes(self) -> bytes:
        writer = begin_message().number("B", self.state).raw(self.nonce, NONCE_BYTES)
        writer.raw(self.menu_id, HASH_BYTES).number("I", self.epoch).number("Q", self.expires)
        writer.number("I", self.smallest_cohort)
        for name in _SIZES:
            writer.blob(getattr(self, name))
        for number in (self.index, self.cohort, self.refusal):
            writer.number("I", _NONE if number is None else number)
        return writer.number("I", self.epsilon_micros).number("q", self.window).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> ImpressionRecord:
        return read_message(data, "record of an impression", cls._parse)

    @classmethod
    def _parse(cls, reader: Reader) -> ImpressionRecord:
        state = reader.number("B")
        if state not in ImpressionState._value2member_map_:
            raise BadInput("expected a state of an impression, got another number")
        nonce, menu_id = reader.raw(NONCE_BYTES), reader.raw(HASH_BYTES)
        epoch, expires, smallest = reader.number("I"), reader.number("Q"), reader.number("I")
        held = {name: reader.blob() for name in _SIZES}
        index, cohort, refusal = (None if (n := reader.number("I")) == _NONE else n for _ in range(3))
        if refusal is not None and refusal not in BillVerdict._value2member_map_:
            raise BadInput("expected why an impression was closed, got another number")
        epsilon_micros, window = reader.number("I"), reader.number("q")
        return cls(
            ImpressionState(state), nonce, menu_id, epoch, expires, smallest, **held, index=index,
            epsilon_micros=epsilon_micros, window=window, cohort=cohort,
            refusal=None if refusal is None else BillVerdict(refusal),
        )  # fmt: skip


@dataclass(frozen=True)
class KeptMenu:
    """A menu that was found in its epoch's directory: where it stands, and its bytes with the proof."""

    menu_id: bytes
    epoch: int
    place: bytes  # context and lane, in their one spelling
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Showing:
    """That a campaign with frequency caps was drawn to be shown, and for how long that counts.

    It counts from the draw on, also where the device failed before it was seen: a cap may be kept too well.
    """

    campaign: int
    at: int
    until: int


class DeviceJournal(Protocol):
    """Impressions, what counts towards caps, the account, heads of epochs and menus. Every method is one
    transaction; what it keeps is on disk when it returns. Any error may come after it was kept: whoever is told
    of one reads again."""

    def account(self) -> bytes | None:
        """The account as it was last kept."""

    def impression(self, nonce: bytes) -> ImpressionRecord | None: ...

    def impressions(
        self, states: Collection[ImpressionState], menu_id: bytes | None = None
    ) -> Sequence[ImpressionRecord]:
        """Those in these states, of one menu or of all, the oldest first."""

    def commit(
        self,
        records: Sequence[ImpressionRecord],
        account: DeviceAccount | None = None,
        showing: Showing | None = None,
    ) -> None:
        """Keep records, the account and what counts towards a cap, all of them or none. A record that does not
        follow the kept one (`AFTER`), or an account that is not one change after the kept one, is refused with
        a BillError."""

    def showings(self, now: int) -> Sequence[Showing]:
        """Those that still count at this second."""

    def keep_head(self, epoch: int, expires: int, head: bytes) -> bytes:
        """Keep the head of an epoch, and return the first that was ever kept for it."""

    def head(self, epoch: int) -> bytes | None: ...

    def keep_menu(self, menu: KeptMenu) -> None: ...

    def menu(self, menu_id: bytes) -> KeptMenu | None: ...

    def last_menu_at(self, place: bytes, before: int) -> KeptMenu | None:
        """The latest menu of this context and lane of an epoch before this one."""

    def forget(self, expired_before: int) -> int:
        """Delete, and overwrite, records whose epochs expired before this second, but for those that are still
        owed something (`is_over`), and heads and menus that no record needs; how many records that were."""

    def forget_showings(self, now: int) -> None:
        """Delete, and overwrite, those that no longer count."""

    def erase(self) -> int:
        """Delete, and overwrite, every record, showing and menu, whatever is owed; how many records that were.
        The account and the heads of epochs stay."""


MOVED_ON = "the device's journal has moved on: another process uses it, or an old copy of it was put back"


def check_step(before: ImpressionState | None, record: ImpressionRecord) -> None:
    """Refuse a record that does not follow what is kept of its token."""
    if before not in AFTER[record.state]:
        raise BillError(MOVED_ON)


def check_turn(before: int | None, account: DeviceAccount) -> None:
    """Refuse an account that was made from another one than the one that is kept."""
    if account.turn != (before or 0) + 1:
        raise BillError(MOVED_ON)


STILL_OWED = (ImpressionState.SHOWN, ImpressionState.ACKED)
"""States that are never forgotten: what was shown is to be reported, what was reported to be settled."""


def is_over(record: ImpressionRecord, expired_before: int) -> bool:
    """Whether a record may be forgotten."""
    return record.expires < expired_before and record.state not in STILL_OWED


class MemoryJournal:
    """A journal that is gone with the process: fleets, simulations, tests."""

    def __init__(self) -> None:
        self._open: dict[bytes, ImpressionRecord] = {}  # those that a device looks through
        self._done: dict[bytes, ImpressionRecord] = {}
        self._account: DeviceAccount | None = None
        self._heads: dict[int, tuple[int, bytes]] = {}
        self._menus: dict[bytes, KeptMenu] = {}
        self._showings: list[Showing] = []

    def __repr__(self) -> str:
        return brief(self, impressions=len(self._open) + len(self._done))

    def account(self) -> bytes | None:
        return None if self._account is None else self._account.to_bytes()

    def impression(self, nonce: bytes) -> ImpressionRecord | None:
        return self._open.get(nonce) or self._done.get(nonce)

    def impressions(
        self, states: Collection[ImpressionState], menu_id: bytes | None = None
    ) -> Sequence[ImpressionRecord]:
        every = [*self._open.values(), *(() if OPEN.issuperset(states) else self._done.values())]
        return [each for each in every if each.state in states and menu_id in (None, each.menu_id)]

    def commit(
        self,
        records: Sequence[ImpressionRecord],
        account: DeviceAccount | None = None,
        showing: Showing | None = None,
    ) -> None:
        for each in records:
            before = self.impression(each.nonce)
            check_step(None if before is None else before.state, each)
        if account is not None:
            check_turn(None if self._account is None else self._account.turn, account)
            self._account = account
        for each in records:
            if each.state in OPEN:
                self._open[each.nonce] = each
            else:
                self._open.pop(each.nonce, None)
                self._done[each.nonce] = each
        if showing is not None:
            self._showings.append(showing)

    def showings(self, now: int) -> Sequence[Showing]:
        return [each for each in self._showings if each.until > now]

    def keep_head(self, epoch: int, expires: int, head: bytes) -> bytes:
        return self._heads.setdefault(epoch, (expires, head))[1]

    def head(self, epoch: int) -> bytes | None:
        found = self._heads.get(epoch)
        return None if found is None else found[1]

    def keep_menu(self, menu: KeptMenu) -> None:
        self._menus.setdefault(menu.menu_id, menu)

    def menu(self, menu_id: bytes) -> KeptMenu | None:
        return self._menus.get(menu_id)

    def last_menu_at(self, place: bytes, before: int) -> KeptMenu | None:
        earlier = [each for each in self._menus.values() if each.place == place and each.epoch < before]
        return max(earlier, key=lambda each: each.epoch, default=None)

    def forget(self, expired_before: int) -> int:
        over = {epoch for epoch, (expires, _) in self._heads.items() if expires < expired_before}
        before = len(self._open) + len(self._done)
        self._open = {at: each for at, each in self._open.items() if not is_over(each, expired_before)}
        self._done = {at: each for at, each in self._done.items() if not is_over(each, expired_before)}
        over -= {each.epoch for each in (*self._open.values(), *self._done.values())}
        for epoch in over:
            del self._heads[epoch]
        self._menus = {each.menu_id: each for each in self._menus.values() if each.epoch not in over}
        return before - len(self._open) - len(self._done)

    def erase(self) -> int:
        gone = len(self._open) + len(self._done)
        for each in (self._open, self._done, self._menus, self._showings):
            each.clear()
        return gone

    def forget_showings(self, now: int) -> None:
        self._showings = [each for each in self._showings if each.until > now]
