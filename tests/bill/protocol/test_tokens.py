"""Blind RSA tokens: the vector of RFC 9474, blinding that hides everything, and keys that are refused."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.tokens import (
    EXPONENT,
    TokenPublicKey,
    blind,
    blind_with,
    encode_pss,
    finalize,
    token_message,
    token_nonce,
)
from tacit.bill.server.token_keys import TokenKey, power_by_python
from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput, BillRefused
from tests.support import billing_messages as made
from tests.support.repository import VECTORS

RFC = {
    name: bytes.fromhex(value)
    for name, value in json.loads((VECTORS / "rfc9474.json").read_text()).items()
    if name not in ("source", "variant")
}
MENU, MESSAGE = bytes(range(32)), token_message(token_nonce(b"k" * 32), bytes(range(32)))


@cache
def rfc_key() -> TokenKey:
    return made.token_key(int.from_bytes(RFC["p"], "big"), int.from_bytes(RFC["q"], "big"))


def test_the_rfcs_key_and_message() -> None:
    assert rfc_key().public.modulus == RFC["n"]
    assert len(RFC["n"]) == 512
    assert RFC["prepared_msg"] == RFC["msg_prefix"] + RFC["msg"]
    assert int.from_bytes(RFC["e"], "big") == EXPONENT


def test_the_rfcs_blinding() -> None:
    encoded = encode_pss(RFC["prepared_msg"], 4095, RFC["salt"])
    inverse = int.from_bytes(RFC["inv"], "big")
    factor = pow(inverse, -1, rfc_key().public.number)
    blinded = blind_with(rfc_key().public, int.from_bytes(encoded, "big"), inverse, factor)
    assert blinded.blinded == RFC["blinded_msg"]
    assert blinded.inverse == RFC["inv"]


def test_the_rfcs_signature_by_openssl_and_by_python() -> None:
    assert rfc_key().sign_blinded(RFC["blinded_msg"], Entropy()) == RFC["blind_sig"]
    assert power_by_python(rfc_key()._private, RFC["blinded_msg"], Entropy()) == RFC["blind_sig"]


def test_the_rfcs_token() -> None:
    key = rfc_key().public
    assert finalize(key, RFC["prepared_msg"], RFC["blind_sig"], RFC["inv"]) == RFC["sig"]
    assert key.verify(RFC["prepared_msg"], RFC["sig"])
    assert not key.verify(RFC["msg"], RFC["sig"])
    with pytest.raises(BillRefused) as refusal:
        finalize(key, RFC["msg"], RFC["blind_sig"], RFC["inv"])
    assert refusal.value.reason is BillVerdict.FORGED


def test_a_token_from_end_to_end() -> None:
    key = made.key_of("personal")
    blinded = blind(key.public, MESSAGE, Entropy())
    signature = key.sign_blinded(blinded.blinded, Entropy())
    token = finalize(key.public, MESSAGE, signature, blinded.inverse)
    assert key.public.verify(MESSAGE, token)
    again = blind(key.public, MESSAGE, Entropy())
    assert again.blinded != blinded.blinded
    assert blinded.inverse.hex() not in repr(blinded)


def test_the_same_blinded_bytes_give_the_same_signature() -> None:
    key = made.key_of("personal")
    blinded = blind(key.public, MESSAGE, Entropy()).blinded
    signatures = {key.sign_blinded(blinded, Entropy()) for _ in range(3)}
    signatures |= {power_by_python(key._private, blinded, Entropy()) for _ in range(2)}
    signatures.add(TokenKey.from_bytes(key.to_bytes()).sign_blinded(blinded, Entropy()))
    assert len(signatures) == 1


@pytest.mark.parametrize("number", [0, 1])
def test_zero_and_one_sign_to_themselves_and_make_no_token(number: int) -> None:
    key, said = made.key_of("personal"), number.to_bytes(256, "big")
    assert key.sign_blinded(said, Entropy()) == power_by_python(key._private, said, Entropy()) == said
    assert not key.public.verify(MESSAGE, said)


@dataclass(frozen=True)
class ToyKey:
    """A modulus small enough to try every factor."""

    number: int

    @property
    def modulus(self) -> bytes:
        return self.number.to_bytes(2, "big")

    @property
    def units(self) -> list[int]:
        return [each for each in range(1, self.number) if math.gcd(each, self.number) == 1]

    def blinded(self, encoded: int, factor: int) -> int:
        made = blind_with(cast(TokenPublicKey, self), encoded, pow(factor, -1, self.number), factor)
        assert int.from_bytes(made.inverse, "big") * factor % self.number == 1
        return int.from_bytes(made.blinded, "big")


@pytest.mark.parametrize("primes", [(11, 23), (3, 5, 7), (13, 13)])
def test_a_blinded_message_is_exactly_uniform_whatever_it_hides(primes: tuple[int, ...]) -> None:
    """Every factor gives another blinded message: all units once, the same for every message."""
    key = ToyKey(math.prod(primes))
    for encoded in key.units:
        assert sorted(key.blinded(encoded, factor) for factor in key.units) == key.units


def test_what_a_server_sees_goes_with_every_token_by_exactly_one_factor() -> None:
    """Of a key whose exponent divides the group's order: the server may answer with any of several roots, and
    still each pair of a view (blinded message, signature) and a token (message, signature) has one factor."""
    key = ToyKey(11 * 31)
    exponent = 5  # as 65,537 would be for a key that was made so: it divides 10 and 30
    roots = {each: pow(each, exponent, key.number) for each in key.units}
    pairs: Counter[tuple[int, int, int, int]] = Counter()
    tokens = [(encoded, root) for root, encoded in roots.items()]  # those that verify
    for encoded in set(roots.values()):
        for factor in key.units:
            blinded = encoded * pow(factor, exponent, key.number) % key.number
            for root in (root for root, power in roots.items() if power == blinded):  # the server's free choice
                token = root * pow(factor, -1, key.number) % key.number
                assert roots[token] == encoded
                pairs[blinded, root, encoded, token] += 1
    views = [(power, root) for root, power in roots.items()]
    assert pairs == Counter({(*view, *token): 1 for view in views for token in tokens})


def test_what_shares_a_factor_with_the_modulus_is_not_sent() -> None:
    """A modulus that 3 divides: a third of all messages would stay recognisable, however they are blinded."""
    number = 2**2048 - 1
    assert number % 3 == 0
    key = TokenPublicKey(number.to_bytes(256, "big"))
    outcomes: Counter[tuple[bool, bool]] = Counter()
    for seed in range(200):
        source = Simulation(seed)
        encoded = int.from_bytes(encode_pss(MESSAGE, 2047, source.bytes(48)), "big")
        factor = int.from_bytes(source.bytes(256), "big")
        coprime = math.gcd(encoded, number) == 1, math.gcd(factor, number) == 1
        outcomes[coprime] += 1
        if all(coprime):
            sent = blind(key, MESSAGE, Simulation(seed)).blinded
            assert math.gcd(int.from_bytes(sent, "big"), number) == 1
        else:
            with pytest.raises(BillRefused) as refusal:
                blind(key, MESSAGE, Simulation(seed))
            assert refusal.value.reason is BillVerdict.FORGED
    assert len(outcomes) == 4  # either, both and neither were met


@given(st.binary(max_size=300), st.binary(min_size=48, max_size=48))
@settings(max_examples=30)
def test_encodings_verify_when_signed(message: bytes, salt: bytes) -> None:
    """A library's own check takes what we encode, with its salt of 48 bytes."""
    key = made.key_of("public")
    encoded = encode_pss(message, 2047, salt)
    assert len(encoded) == 256
    assert encoded[0] < 128
    assert key.public.verify(message, key.sign_blinded(encoded, Entropy()))


@pytest.mark.parametrize("size", [0, 47, 49])
def test_other_salts_are_no_tokens(size: int) -> None:
    """The variant has salts of 48 bytes: others would be another signature of the same message."""
    key = made.key_of("public")
    signature = key.sign_blinded(encode_pss(MESSAGE, 2047, bytes(size)), Entropy())
    assert not key.public.verify(MESSAGE, signature)


def test_a_long_message_is_a_message() -> None:
    key, message = made.key_of("public"), bytes(1_000_000)
    signature = key.sign_blinded(encode_pss(message, 2047, bytes(48)), Entropy())
    assert key.public.verify(message, signature)
    assert not key.public.verify(message[:-1], signature)


@pytest.mark.parametrize(
    "modulus",
    [
        b"",
        b"\xff" * 255,
        b"\xff" * 513,
        b"\x7f" + b"\xff" * 255,
        b"\xff" * 255 + b"\xfe",
        bytearray(b"\xff" * 256),
        "f" * 256,
        None,
    ],
)
def test_other_moduli_are_refused(modulus: bytes) -> None:
    with pytest.raises(BadInput, match="expected"):
        TokenPublicKey(modulus)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_other_sizes_of_secrets_nonces_and_menus_are_refused(size: int) -> None:
    with pytest.raises(BadInput):
        token_nonce(bytes(size))
    with pytest.raises(BadInput):
        token_message(bytes(size), MENU)
    with pytest.raises(BadInput):
        token_message(bytes(32), bytes(size))
