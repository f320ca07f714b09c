"""Rounds as the parties announce them: canonical bytes, question files, and whether a ledger can pay.

Whether a party's ledger can pay is checked before a round opens, not after its reports have come.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import msgpack

from tacit.errors import Refused
from tacit.files import write_atomically
from tacit.gather.protocol.credentials import PartyRole
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.releases import expect_first_round_paid, round_ledger_key
from tacit.gather.protocol.rounds import Question, Round
from tacit.privacy.ledger.lines import NOTHING, Amount, Line
from tacit.privacy.ledger.rules import Account, Reservation
from tacit.services.problems import NotGranted

NO_QUESTION = bytes(32)
QUESTION_NAME = re.compile("[0-9a-f]{64}")
MOST_ANNOUNCED = 1_000


@dataclass(frozen=True)
class AnnouncedRound:
    """A round, and the bytes of the question that its vector answers (empty: agreed otherwise)."""

    round: Round
    question: bytes = b""

    def __post_init__(self) -> None:
        if self.round.question == NO_QUESTION:
            if self.question:
                raise Refused(MessageVerdict.MALFORMED, "expected no question for a round without one")
            return
        Question.of_round(self.round, self.question)

    @property
    def parts(self) -> tuple[bytes, bytes]:
        return self.round.to_bytes(), self.question

    def to_bytes(self) -> bytes:
        return bytes(msgpack.packb(self.parts))

    @classmethod
    def from_bytes(cls, data: bytes) -> AnnouncedRound:
        return _read_round(_unpack(data))


def pack_rounds(rounds: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Several rounds in one message, from their parts."""
    return bytes(msgpack.packb(list(rounds)))


def unpack_rounds(data: bytes) -> list[AnnouncedRound]:
    found = _unpack(data)
    if not isinstance(found, list) or len(found) > MOST_ANNOUNCED:
        raise Refused(MessageVerdict.MALFORMED, "expected a list of rounds")
    return [_read_round(each) for each in found]


def _unpack(data: bytes) -> Any:
    try:
        return msgpack.unpackb(data, max_str_len=0, max_bin_len=len(data), max_map_len=0, max_ext_len=0)
    except (ValueError, TypeError, OverflowError, RecursionError):  # what msgpack says of bytes it cannot read
        raise Refused(MessageVerdict.MALFORMED, "expected msgpack") from None


def _read_round(found: Any) -> AnnouncedRound:
    if not isinstance(found, list) or len(found) != 2 or not all(type(part) is bytes for part in found):
        raise Refused(MessageVerdict.MALFORMED, "expected a round and its question")
    return AnnouncedRound(Round.from_bytes(found[0]), found[1])


class QuestionFiles:
    """Questions in a folder, each in a file named by its digest: written once, whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def keep(self, digest: bytes, question: bytes) -> None:
        """On disk when this returns; the digest must be the question's own."""
        place = self._folder / digest.hex()
        if digest == NO_QUESTION or place.exists():
            return
        write_atomically(place, question)

    def find(self, digest: bytes) -> bytes:
        """The question's bytes; empty for a round without a question. Refused where its file is gone: who asks
        is told that there is no such round, since nobody could answer it."""
        if digest == NO_QUESTION:
            return b""
        try:
            return (self._folder / digest.hex()).read_bytes()
        except FileNotFoundError:
            raise Refused(MessageVerdict.UNKNOWN_ROUND) from None

    def names(self) -> list[str]:
        """All that are kept, by their digests in hexadecimal digits."""
        return sorted(each.name for each in self._folder.iterdir() if QUESTION_NAME.fullmatch(each.name))


class LedgerAccounts(Protocol):
    """What is looked up of a ledger. `tacit.store.ledger.LedgerStore` is one."""

    def account(self, line: Line) -> Account | None: ...

    def reservation(self, key: str) -> Reservation | None: ...


def expect_granted(
    accounts: LedgerAccounts, round: Round, role: PartyRole, beside: Iterable[Round] = ()
) -> None:
    """NotGranted if the line has too little left for the round, or for the whole run if it is its first.
    Refused, if it is a later one, unless the first was paid for.

    Nothing is set aside: of two rounds that are open at once the second may still find too little, unless the
    first is named `beside` it, and not yet paid for.
    """
    if accounts.reservation(round_ledger_key(round, role)) is not None:
        return
    if round.level:
        expect_first_round_paid(accounts, round, role)
    cost = Amount.spending(round.cost if round.level else round.promise.cost)
    account = accounts.account(round.line)
    for each in beside:
        if each.line == round.line and accounts.reservation(round_ledger_key(each, role)) is None:
            cost = cost + Amount.spending(each.cost)
    needed = cost if account is None else account.used + cost
    if account is None or not needed.fits(account.limit):
        limit = Amount(  # what the line has in plenty, it keeps
            max(needed.epsilon_nanos, (NOTHING if account is None else account.limit).epsilon_nanos),
            max(needed.delta_attos, (NOTHING if account is None else account.limit).delta_attos),
        )
        raise NotGranted(
            str(role), round.scope, _decimal(limit.epsilon_nanos, 9), _decimal(limit.delta_attos, 18)
        )


def _decimal(parts: int, places: int) -> str:
    """The number itself, as a command line takes it."""
    return f"{Decimal(parts).scaleb(-places).normalize():f}" if parts else "0"
