"""Signed requests: let in once, in time, unchanged, one way only; answers hold for one request only."""

from __future__ import annotations

import pytest

from tacit.errors import BadInput, Refused
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.services.signatures import (
    DIGEST,
    NONCE,
    SIGNATURE,
    TIME,
    ExchangeKeys,
    Party,
    RequestGate,
    derive_key,
)

SECRET, OTHER_SECRET = bytes(range(32)), bytes(32)
NOW, NONCE_A, NONCE_B = 1_800_000_000, bytes(16), bytes([1] * 16)
BODY = b"a job"


def exchange(caller: Party = Party.PROXY, called: Party = Party.SERVER, secret: bytes = SECRET) -> ExchangeKeys:
    return ExchangeKeys.between(secret, caller=caller, called=called)


def gate(began: int = NOW - 1_000) -> RequestGate:
    return RequestGate(exchange(), tolerance_seconds=60, began=began)


def headers(now: int = NOW, nonce: bytes = NONCE_A, by: ExchangeKeys | None = None) -> dict[str, str]:
    return (by or exchange()).request_headers("POST", "/jobs", BODY, now=now, nonce=nonce)


def refused(
    gate: RequestGate, given: dict[str, str], *, method: str = "POST", path: str = "/jobs", now: int = NOW
) -> None:
    with pytest.raises(Refused) as caught:
        gate.admit(method, path, given, now)
    assert caught.value.reason is MessageVerdict.UNAUTHENTICATED


def test_a_request_is_let_in_once() -> None:
    here = gate()
    nonce, digest = here.admit("POST", "/jobs", headers(), NOW)
    assert (nonce, digest) == (NONCE_A.hex(), headers()[DIGEST])
    refused(here, headers())
    here.admit("POST", "/jobs", headers(nonce=NONCE_B), NOW)


def test_nothing_of_it_can_be_changed() -> None:
    refused(gate(), headers(), method="PUT")
    refused(gate(), headers(), path="/shares")
    refused(gate(), headers(), path="/jobs?again")
    for name, other in (
        (TIME, str(NOW + 1)),
        (NONCE, NONCE_B.hex()),
        (DIGEST, "0" * 64),
        (SIGNATURE, "0" * 64),
    ):
        refused(gate(), headers() | {name: other})
        refused(gate(), {key: value for key, value in headers().items() if key != name})
    refused(gate(), headers() | {SIGNATURE: "é"})


@pytest.mark.parametrize(
    "by",
    [
        exchange(secret=OTHER_SECRET),
        exchange(Party.SERVER, Party.PROXY),
        exchange(Party.OPERATOR, Party.SERVER),
        ExchangeKeys(Party.PROXY, Party.SERVER, exchange().responses, exchange().requests),
    ],
)
def test_only_the_caller_of_this_direction_passes(by: ExchangeKeys) -> None:
    refused(gate(), headers(by=by))


def test_only_near_its_time() -> None:
    for off in (-61, 61):
        refused(gate(), headers(now=NOW + off))
    for number, off in enumerate((-60, 60)):
        gate().admit("POST", "/jobs", headers(now=NOW + off, nonce=bytes([number] * 16)), NOW)


def test_what_was_signed_before_a_restart_is_refused_after_it() -> None:
    gate(began=NOW - 5).admit("POST", "/jobs", headers(now=NOW - 3), NOW)
    refused(gate(began=NOW - 2), headers(now=NOW - 3))


def test_nonces_are_remembered_as_long_as_their_time_passes_and_no_longer() -> None:
    here, early = gate(), headers(now=NOW - 60)
    here.admit("POST", "/jobs", early, NOW)
    here.admit("POST", "/jobs", headers(now=NOW + 60, nonce=NONCE_B), NOW)
    refused(here, headers(now=NOW + 60, nonce=NONCE_B), now=NOW + 120)  # the last second at which it would pass
    assert len(here._seen) == 1
    refused(here, headers(now=NOW + 60, nonce=NONCE_B), now=NOW + 121)
    here.admit("POST", "/jobs", headers(now=NOW + 181, nonce=NONCE_A), NOW + 181)
    assert len(here._seen) == 1


def test_a_stranger_fills_no_memory() -> None:
    here = gate()
    refused(here, headers(by=exchange(secret=OTHER_SECRET)))
    assert not here._seen


def test_an_answer_is_for_one_request_status_and_body() -> None:
    pair = exchange()
    signed = {SIGNATURE: pair.response_signature(NONCE_A.hex(), 200, b"reply")}
    assert pair.answers(NONCE_A, 200, b"reply", signed)
    assert not pair.answers(NONCE_B, 200, b"reply", signed)
    assert not pair.answers(NONCE_A, 410, b"reply", signed)
    assert not pair.answers(NONCE_A, 200, b"reply!", signed)
    assert not pair.answers(NONCE_A, 200, b"reply", {})
    for other in (exchange(Party.SERVER, Party.PROXY), exchange(secret=OTHER_SECRET)):
        assert not other.answers(NONCE_A, 200, b"reply", signed)


def test_every_purpose_has_a_key_of_its_own() -> None:
    ways = [exchange(a, b) for a in Party for b in Party if a is not b]
    keys = {key for way in ways for key in (way.requests, way.responses)} | {derive_key(SECRET, "check")}
    assert len(keys) == 2 * len(ways) + 1
    with pytest.raises(BadInput, match="expected a secret of 32 bytes, got 31"):
        derive_key(bytes(31), "check")


def test_keys_are_not_shown() -> None:
    assert exchange().requests.hex() not in repr(exchange())
    assert repr(exchange().requests) not in repr(exchange())
