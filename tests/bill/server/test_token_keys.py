"""Private token keys: raw RSA by OpenSSL and by whole numbers, to the same end, and no wrong signature."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import cast

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.server import token_keys
from tacit.bill.server.token_keys import TokenKey, power_by_python
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tests.support import billing_messages as made
from tests.support.billing_scenes import reason_of

KEY = made.key_of("personal")


def test_openssl_can_be_called_here() -> None:
    """Else issuing is several times slower, and the tests below hold nothing to it."""
    assert token_keys.openssl() is not None
    assert KEY._handle is not None


@given(st.integers(0, KEY.public.number - 1))
@settings(max_examples=20)
def test_both_ways_give_the_power_by_the_definition(number: int) -> None:
    blinded = number.to_bytes(256, "big")
    numbers = KEY._private.private_numbers()
    by_definition = pow(number, numbers.d, numbers.public_numbers.n).to_bytes(256, "big")
    assert KEY.sign_blinded(blinded, Entropy()) == by_definition
    assert power_by_python(KEY._private, blinded, Entropy()) == by_definition


def test_multiples_of_a_prime_are_signed_too() -> None:
    """Nobody who meets one has use for a token; the answer is right all the same."""
    prime = KEY._private.private_numbers().p
    blinded = (5 * prime).to_bytes(256, "big")
    assert KEY.sign_blinded(blinded, Entropy()) == power_by_python(KEY._private, blinded, Entropy())


def test_without_openssl_python_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    blinded = (12345).to_bytes(256, "big")
    expected = KEY.sign_blinded(blinded, Entropy())
    monkeypatch.setattr(token_keys, "openssl", lambda: None)
    alone = TokenKey.from_bytes(KEY.to_bytes())
    assert alone._handle is None
    assert alone.sign_blinded(blinded, Entropy()) == expected
    assert KEY.sign_blinded(blinded, Entropy()) == expected


@dataclass(frozen=True)
class Faulty:
    """A key with one wrong half, as a fault of the machine would make it."""

    numbers: rsa.RSAPrivateNumbers

    def private_numbers(self) -> rsa.RSAPrivateNumbers:
        return self.numbers


def test_a_fault_in_one_half_gives_no_signature() -> None:
    """It would have the modulus' factor in common with what it should be."""
    good = KEY._private.private_numbers()
    faulty = rsa.RSAPrivateNumbers(
        good.p, good.q, good.d, good.dmp1 ^ 4, good.dmq1, good.iqmp, good.public_numbers
    )
    private = cast(rsa.RSAPrivateKey, Faulty(faulty))
    blinded = (7).to_bytes(256, "big")
    assert reason_of(lambda: power_by_python(private, blinded, Entropy())) is BillVerdict.FORGED


def test_many_threads_sign_at_once() -> None:
    messages = [number.to_bytes(256, "big") for number in range(2, 42)]
    expected = [KEY.sign_blinded(each, Entropy()) for each in messages]
    with ThreadPoolExecutor(4) as workers:
        assert list(workers.map(lambda each: KEY.sign_blinded(each, Entropy()), messages)) == expected


def test_other_keys_are_refused() -> None:
    with pytest.raises(BadInput, match="exponent 65537"):
        TokenKey(rsa.generate_private_key(3, 1024))
    with pytest.raises(BadInput, match="256 to 512 bytes"):
        TokenKey(rsa.generate_private_key(65_537, 1024))
    other = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(BadInput, match="a private key of RSA"):
        TokenKey.from_bytes(other.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))
    for data in (b"", b"no key", KEY.to_bytes()[:-1], bytes(1200)):
        with pytest.raises(BadInput, match="a private key of RSA"):
            TokenKey.from_bytes(data)


def test_a_new_key_has_2048_bits_and_shows_that_alone() -> None:
    key = TokenKey.generate()
    assert repr(key) == "TokenKey(bits=2048)"
    assert len(key.public.modulus) == 256
    assert TokenKey.from_bytes(key.to_bytes()).public == key.public
