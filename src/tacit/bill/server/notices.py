"""Notices of exchanges: a bid carries an address that only this ad server can have made, and whoever calls it
says that the bid's impression is to be paid for.

    key = NoticeKey.derive(secret)
    spelled = key.sign(BidNotice(epoch, menu_id, index=1, expires=1_800_000_000, nonce=source.bytes(16)))
    desk.take([key.open(spelled)], now)          # a report is kept for it, which goes to the proxy

A notice says what is to be charged: a menu, an entry, until when; and nothing of the person or the page. The
price is the menu's, whatever else the caller says. A report is made and kept once per bid.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.server.party import AdServer
from tacit.display import brief
from tacit.errors import BadInput, BillRefused

NOTICE_NONCE_BYTES = 16
MOST_SPENT = 10_000
_MAC_BYTES, _VERSION = 16, 1
_BODY = struct.Struct(f">BBIB32sQ{NOTICE_NONCE_BYTES}s")
_SPELLED = -(-(_BODY.size + _MAC_BYTES) * 4 // 3)
_KEY = b"tacit/notice/1"


@dataclass(frozen=True)
class BidNotice:
    """What a bid's notice is for.

    expires  the second from which it is refused
    nonce    drawn for the bid; its notice is taken once
    test     a bid of a test auction, which nobody is charged for
    """

    epoch: int
    menu_id: bytes
    index: int
    expires: int
    nonce: bytes
    test: bool = False


class NoticeKey:
    """Signs notices and knows its own again: a MAC, since nobody else has to check one."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return brief(self)

    @classmethod
    def derive(cls, secret: bytes) -> NoticeKey:
        """The key that follows from a secret of the ad server, and leads nobody back to it."""
        return cls(hmac.digest(secret, _KEY, "sha256"))

    def sign(self, notice: BidNotice) -> str:
        """As it is spelled in an address."""
        body = _BODY.pack(
            _VERSION, notice.test, notice.epoch, notice.index, notice.menu_id, notice.expires, notice.nonce
        )
        whole = body + hmac.digest(self._key, body, "sha256")[:_MAC_BYTES]
        return _spell(whole)

    def open(self, spelled: str) -> BidNotice:
        """A notice that this key signed; BillRefused(FORGED) for anything else."""
        try:
            if len(spelled) != _SPELLED:
                raise ValueError
            whole = base64.b64decode(spelled + "=" * (-len(spelled) % 4), b"-_", validate=True)
            if _spell(whole) != spelled:  # one notice has one spelling
                raise ValueError
        except (ValueError, binascii.Error):
            whole = b""
        body, mac = whole[: _BODY.size], whole[_BODY.size :]
        good = hmac.compare_digest(hmac.digest(self._key, body, "sha256")[:_MAC_BYTES], mac)
        if not good or len(body) != _BODY.size:
            raise BillRefused(BillVerdict.FORGED)
        version, test, epoch, index, menu_id, expires, nonce = _BODY.unpack(body)
        if version != _VERSION:
            raise BillRefused(BillVerdict.FORGED)
        return BidNotice(epoch, menu_id, index, expires, nonce, bool(test))


def _spell(whole: bytes) -> str:
    return base64.urlsafe_b64encode(whole).rstrip(b"=").decode()


@dataclass(frozen=True)
class KeptNotice:
    """A notice that was taken, with the report that says so to the proxy."""

    nonce: bytes
    report: bytes = field(repr=False)
    expires: int


class NoticeStore(Protocol):
    """Notices that were taken. Every method is one transaction, on disk when it returns."""

    def known(self, nonces: Collection[bytes]) -> Collection[bytes]:
        """Those of the nonces that were taken before."""

    def add(self, notices: Sequence[KeptNotice]) -> None:
        """Keep them, but none whose nonce is known: there the report stays that was kept first."""

    def waiting(self, most: int) -> Sequence[KeptNotice]:
        """Those that the proxy may not have, the first to expire first."""

    def mark_delivered(self, nonces: Sequence[bytes]) -> None: ...

    def forget(self, expired_before: int) -> int:
        """Delete what was delivered and can no longer come again; how many."""


class NoticeDesk:
    """Takes notices: each bid once, in time, at the price of its menu's entry.

    Guarantee:  of all notices with one nonce one report is kept, and its bytes never change; the proxy takes a
                report once, and the ad server charges a token once, of which a bid has one for ever. So a bid
                is charged at most once, also where its notice was forgotten and comes again, and is charged if
                its notice was answered with success and the proxy is reached before the epoch expires. No more
                are taken of a menu than it has tokens for (`AdServer.count_tokens`): what a campaign can be
                over its budget stays within its bound.
    Neighbours: two runs that differ in how often notices come, in which order, and where the process dies.
    Assumes:    the store's transactions; that the key is known to this ad server alone.
    Source:     IAB Tech Lab, "OpenRTB Specification v2.6", billing notices.
    """

    def __init__(self, server: AdServer, store: NoticeStore) -> None:
        self._server, self._store = server, store
        self._spent: set[bytes] = set()  # menus of which no token is left

    def is_spent(self, menu_id: bytes) -> bool:
        """Whether a notice of this menu was refused, since no token of it is left: no more are to be bid."""
        return menu_id in self._spent

    def __repr__(self) -> str:
        return brief(self, store=self._store)

    def take(self, notices: Sequence[BidNotice], now: int) -> list[BillVerdict]:
        """What becomes of each: ACCEPTED, DUPLICATE, or why it is refused; one transaction for all."""
        verdicts: list[BillVerdict] = []
        known = set(self._store.known({each.nonce for each in notices if not each.test}))
        new: list[KeptNotice] = []
        for notice in notices:
            if notice.test:
                verdicts.append(BillVerdict.EXPIRED if now >= notice.expires else BillVerdict.ACCEPTED)
            elif notice.nonce in known:
                verdicts.append(BillVerdict.DUPLICATE)
            elif now >= notice.expires:
                verdicts.append(BillVerdict.EXPIRED)
            else:
                try:
                    report = self._server.own_report(notice.epoch, notice.menu_id, notice.index, notice.nonce)
                except (BillRefused, BadInput) as refused:
                    reason = refused.reason if isinstance(refused, BillRefused) else BillVerdict.NO_SUCH_ENTRY
                    verdicts.append(BillVerdict(reason))
                    if reason is BillVerdict.NONE_LEFT:
                        self._note_spent(notice.menu_id)
                    continue
                known.add(notice.nonce)
                new.append(KeptNotice(notice.nonce, report, notice.expires))
                verdicts.append(BillVerdict.ACCEPTED)
        if new:
            self._store.add(new)
        return verdicts

    def _note_spent(self, menu_id: bytes) -> None:
        if len(self._spent) >= MOST_SPENT:  # of epochs long gone, most of them
            self._spent.clear()
        self._spent.add(menu_id)
