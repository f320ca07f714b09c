"""Whom a device believes, and the one way to them: all of it goes through the proxy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from tacit.bill.protocol.encoding import BillVerdict, expect_size
from tacit.display import brief
from tacit.errors import BillRefused
from tacit.sealing import KEY_BYTES


@dataclass(frozen=True)
class PartyKeys:
    """Public keys of ad server and proxy: told with the app, never by the network.

    server_sealing  what requests are sealed to, so that the proxy cannot read them
    server_signing  what the ad server signs an epoch's head with
    proxy_signing   what the proxy countersigns it with, and signs how large batches were
    """

    server_sealing: bytes
    server_signing: bytes
    proxy_signing: bytes

    def __post_init__(self) -> None:
        for each in fields(self):
            expect_size(each.name, getattr(self, each.name), KEY_BYTES)

    def __repr__(self) -> str:
        return brief(self, server=self.server_signing.hex()[:16], proxy=self.proxy_signing.hex()[:16])


class AdChannel(Protocol):
    """A device's calls to the proxy. OSError where nobody answers: nobody knows whether the call arrived."""

    def head(self) -> bytes:
        """The head of the epoch that is open; BillRefused(STALE_EPOCH) where none is."""

    def offer(self, sealed: bytes) -> bytes:
        """The ad server's answer to a sealed request, which only this device can read."""

    def report(self, report: bytes) -> None:
        """Hand in one report: on the proxy's disk when this returns. The same bytes again change nothing.
        BillRefused says why it was not taken."""

    def statement(self, nonce: bytes) -> bytes | None:
        """The signed statement of the batch that this token's report left in; None while it waits."""

    def statements(self, epoch: int) -> Sequence[bytes]:
        """The signed statements of all batches of an epoch so far."""


def verdict_of(call: Callable[[bytes], object], message: bytes) -> BillVerdict:
    """What a party says to a message that it takes or refuses; OSError where nobody answers."""
    try:
        call(message)
    except BillRefused as refused:
        return BillVerdict(refused.reason)
    return BillVerdict.ACCEPTED
