"""Signed HTTP requests and answers between two parties that share a secret.

Each exchange has a caller and a called party, and each of its two directions a key of its own, derived from the
secret by HKDF-SHA256, so that nothing signed for one direction passes in the other.

    request:   HMAC-SHA256 over method, path with query, time, nonce and SHA-256 of the body
    response:  HMAC-SHA256 over the request's nonce, the status and SHA-256 of the body

The hash of the body travels in a header of its own and is covered by the signature: a stranger is refused
before a byte of its body is read. An attacker on the network can read the messages unless TLS hides them, and
can withhold them, but can neither change nor repeat them.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit import expect
from tacit.errors import BadInput, Refused
from tacit.gather.protocol.encoding import MessageVerdict

SECRET_BYTES = 32
NONCE_BYTES = 16
MOST_NONCES = 100_000

TIME, NONCE, DIGEST, SIGNATURE = "tacit-time", "tacit-nonce", "tacit-digest", "tacit-signature"


class Party(expect.Choice):
    """The party that calls, or is called."""

    PROXY = "proxy"
    SERVER = "server"
    OPERATOR = "operator"


def derive_key(secret: bytes, label: str) -> bytes:
    """A key of 32 bytes for one purpose: other labels give unrelated keys."""
    if len(secret) != SECRET_BYTES:
        raise BadInput(f"expected a secret of {SECRET_BYTES} bytes, got {len(secret)}")
    return HKDF(SHA256(), 32, salt=None, info=b"tacit services 1: " + label.encode()).derive(secret)


@dataclass(frozen=True)
class ExchangeKeys:
    """The keys of all requests from one party to another, and of the answers to them."""

    caller: Party
    called: Party
    requests: bytes = field(repr=False)
    responses: bytes = field(repr=False)

    @classmethod
    def between(cls, secret: bytes, *, caller: Party, called: Party) -> ExchangeKeys:
        way = f"{caller} calls {called}"
        return cls(
            caller, called, derive_key(secret, f"request, {way}"), derive_key(secret, f"response, {way}")
        )

    def request_headers(self, method: str, path: str, body: bytes, *, now: int, nonce: bytes) -> dict[str, str]:
        """What to send along; `path` is as the other side will see it, with its query."""
        digest = hashlib.sha256(body).hexdigest()
        signature = _signature(self.requests, method, path, str(now), nonce.hex(), digest)
        return {TIME: str(now), NONCE: nonce.hex(), DIGEST: digest, SIGNATURE: signature}

    def response_signature(self, nonce: str, status: int, body: bytes) -> str:
        return _signature(self.responses, nonce, str(status), hashlib.sha256(body).hexdigest())

    def answers(self, nonce: bytes, status: int, body: bytes, headers: Mapping[str, str]) -> bool:
        """Whether this response was made by the called party, for the request with this nonce."""
        expected = self.response_signature(nonce.hex(), status, body)
        return hmac.compare_digest(expected.encode(), headers.get(SIGNATURE, "").encode())


def _signature(key: bytes, *parts: str) -> str:
    # Each part with its length in front: no two lists of parts give the same bytes.
    spelled = b"".join(len(part.encode()).to_bytes(4, "little") + part.encode() for part in parts)
    return hmac.new(key, spelled, hashlib.sha256).hexdigest()


class WrongTime(Refused):
    """Signed by the holder of the key, but at another time than ours: `now` here, `nonce` of the request.

    It may be told so. A request that somebody held back, and hands over late, gets no more than that.
    """

    def __init__(self, nonce: str, now: int) -> None:
        self.nonce, self.now = nonce, now
        super().__init__(MessageVerdict.UNAUTHENTICATED)


class NonceStore(Protocol):
    """Where nonces are remembered for all processes of a party."""

    def admit_command(self, nonce: str, *, until: int, now: int) -> bool:
        """Remember it until that second; no where it is known already."""


class RequestGate:
    """Lets a signed request in once.

    Nonces are remembered for as long as their request's time would pass. They are forgotten when the process
    ends, so what was signed before it began is refused; where the caller's clock is ahead, a request from just
    before a restart could be repeated just after it, and gets the answer that is already kept.

    Our own clock may be wrong, and be set right. What had expired by it stays so, unless it goes back by more
    than the tolerance: then all begins anew at that second, as if the process did. Nonces of a time that is
    still to come are kept until it has.

    Where several processes serve, each remembers what it let in itself: a request that somebody repeats at
    another one passes there once more. For what a proxy and a server ask of each other that changes nothing: it
    gets the answer that is already kept. For commands of operators, `shared` remembers for all of them.
    """

    def __init__(
        self,
        exchange: ExchangeKeys,
        *,
        tolerance_seconds: int,
        began: int,
        shared: NonceStore | None = None,
    ) -> None:
        self.exchange, self._shared = exchange, shared
        self._tolerance, self._began, self._latest = tolerance_seconds, began, began
        self._seen: set[str] = set()
        self._expiring: list[tuple[int, str]] = []  # a heap: the last second at which a nonce would pass

    def admit(self, method: str, path: str, headers: Mapping[str, str], now: int) -> tuple[str, str]:
        """The nonce of a request, and the hash that its body must have; Refused(UNAUTHENTICATED) otherwise."""
        time, nonce, digest = (headers.get(name, "") for name in (TIME, NONCE, DIGEST))
        expected = _signature(self.exchange.requests, method, path, time, nonce, digest)
        # The signature comes first: a caller without the key learns nothing, and fills no memory here.
        if not hmac.compare_digest(expected.encode(), headers.get(SIGNATURE, "").encode()):
            raise Refused(MessageVerdict.UNAUTHENTICATED)
        if len(nonce) != 2 * NONCE_BYTES or not time.isdecimal():
            raise Refused(MessageVerdict.UNAUTHENTICATED)
        signed = int(time)
        if now < self._latest - self._tolerance:
            self._began = self._latest = now
        self._latest = max(self._latest, now)
        if abs(now - signed) > self._tolerance:
            raise WrongTime(nonce, now)
        if signed < max(self._began, self._latest - self._tolerance):
            raise Refused(MessageVerdict.UNAUTHENTICATED)
        self._forget()
        if nonce in self._seen or len(self._seen) >= MOST_NONCES:
            raise Refused(MessageVerdict.UNAUTHENTICATED)
        self._seen.add(nonce)
        heapq.heappush(self._expiring, (signed + self._tolerance, nonce))
        return nonce, digest

    async def admit_everywhere(self, nonce: str, now: int) -> None:
        """Refused(UNAUTHENTICATED) where another process let this nonce in, which this one did just now."""
        until = now + 2 * self._tolerance  # a caller's clock may be as far ahead as ours is behind
        if self._shared is not None and not await asyncio.to_thread(
            self._shared.admit_command, nonce, until=until, now=now
        ):
            raise Refused(MessageVerdict.UNAUTHENTICATED)

    def _forget(self) -> None:
        while self._expiring and self._expiring[0][0] < self._latest:
            self._seen.discard(heapq.heappop(self._expiring)[1])
