"""The private half of a menu's token key, and the one operation it is for: raw RSA on a blinded message.

No Python package offers that operation, but the OpenSSL that Python itself is linked to does: it is called
through ctypes, in constant time, with OpenSSL's own blinding and its check against faults, and without holding
Python's lock. Where that library cannot be reached, whole numbers of Python do the same several times slower.
"""

from __future__ import annotations

import ctypes
import hmac
import ssl
import weakref
from functools import cache
from typing import Any, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.tokens import EXPONENT, TOKEN_BITS, TokenPublicKey
from tacit.display import brief
from tacit.errors import BadInput, BillRefused
from tacit.privacy.randomness import Source

_NO_PADDING = 3  # RSA_NO_PADDING
_KEY, _CONTEXT, _SIZE = ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "d2i_AutoPrivateKey": (_KEY, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p), ctypes.c_long]),
    "EVP_PKEY_free": (None, [_KEY]),
    "EVP_PKEY_CTX_new": (_CONTEXT, [_KEY, ctypes.c_void_p]),
    "EVP_PKEY_CTX_free": (None, [_CONTEXT]),
    "EVP_PKEY_sign_init": (ctypes.c_int, [_CONTEXT]),
    "EVP_PKEY_CTX_set_rsa_padding": (ctypes.c_int, [_CONTEXT, ctypes.c_int]),
    "EVP_PKEY_sign": (ctypes.c_int, [_CONTEXT, ctypes.c_char_p, _SIZE, ctypes.c_char_p, ctypes.c_size_t]),
    "ERR_clear_error": (None, []),
}


@cache
def openssl() -> Any | None:
    """The OpenSSL that Python's own TLS uses; None where it cannot be called."""
    try:
        library = ctypes.CDLL(ssl._ssl.__file__)  # type: ignore[attr-defined]
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (AttributeError, OSError):  # built in otherwise, or with hidden names
        return None
    return library


class TokenKey:
    """A menu's private key. Printing it shows its size alone."""

    def __init__(self, private: rsa.RSAPrivateKey) -> None:
        numbers = private.public_key().public_numbers()
        if numbers.e != EXPONENT:
            raise BadInput(f"expected a key with exponent {EXPONENT}, got another")
        self._private = private
        self.public = TokenPublicKey(numbers.n.to_bytes(private.key_size // 8, "big"))
        self._handle = _load_key(self, self.to_bytes())

    @classmethod
    def generate(cls, bits: int = TOKEN_BITS) -> Self:
        """A new key, from the operating system's randomness."""
        return cls(rsa.generate_private_key(EXPONENT, bits))

    @classmethod
    def from_bytes(cls, der: bytes) -> Self:
        try:
            # What this class wrote is not proved anew, which takes as long as drawing it; a signature that came
            # out wrong would be noticed, by OpenSSL or below.
            private = serialization.load_der_private_key(der, None, unsafe_skip_rsa_key_validation=True)
        except (TypeError, ValueError):
            private = None
        if not isinstance(private, rsa.RSAPrivateKey):
            raise BadInput("expected a private key of RSA, got another")
        return cls(private)

    def to_bytes(self) -> bytes:
        """The private key itself (PKCS #8), to be kept where nobody else reads."""
        kinds = serialization.Encoding.DER, serialization.PrivateFormat.PKCS8
        return self._private.private_bytes(*kinds, serialization.NoEncryption())

    def sign_blinded(self, blinded: bytes, source: Source) -> bytes:
        """Raw RSA on a blinded message: always the same for the same bytes, so that asking again is harmless.

        `source` hides the message from the clock where Python's own numbers do the work.
        """
        size = len(self.public.modulus)
        if len(blinded) != size or int.from_bytes(blinded, "big") >= self.public.number:
            raise BillRefused(BillVerdict.MALFORMED, "expected a blinded message below the key's modulus")
        library = openssl()
        if library is None or self._handle is None:
            return power_by_python(self._private, blinded, source)
        return _power_by_openssl(library, self._handle, blinded)

    def __repr__(self) -> str:
        return brief(self, bits=8 * len(self.public.modulus))


def power_by_python(private: rsa.RSAPrivateKey, blinded: bytes, source: Source) -> bytes:
    """The same by whole numbers of Python: each half by Fermat, on a message multiplied by a random power."""
    numbers = private.private_numbers()
    modulus = numbers.public_numbers.n
    factor = int.from_bytes(source.bytes(len(blinded)), "big") % modulus
    hidden = int.from_bytes(blinded, "big") * pow(factor, EXPONENT, modulus) % modulus
    of_p, of_q = pow(hidden, numbers.dmp1, numbers.p), pow(hidden, numbers.dmq1, numbers.q)
    whole = of_q + numbers.q * ((of_p - of_q) * numbers.iqmp % numbers.p)
    signature = (whole * pow(factor, -1, modulus) % modulus).to_bytes(len(blinded), "big")
    # A fault in one half would give the factors away.
    check = pow(int.from_bytes(signature, "big"), EXPONENT, modulus).to_bytes(len(blinded), "big")
    if not hmac.compare_digest(check, blinded):
        raise BillRefused(BillVerdict.FORGED, "the signature was computed wrongly here, and is not sent")
    return signature


def _load_key(owner: TokenKey, der: bytes) -> int | None:
    library = openssl()
    if library is None:
        return None
    start = ctypes.c_char_p(der)
    handle = library.d2i_AutoPrivateKey(None, ctypes.byref(start), len(der))
    if handle:
        weakref.finalize(owner, library.EVP_PKEY_free, handle)
    return handle or None


def _power_by_openssl(library: Any, key: int, blinded: bytes) -> bytes:
    context = library.EVP_PKEY_CTX_new(key, None)  # one for each call: a context belongs to one thread
    try:
        signature = ctypes.create_string_buffer(len(blinded))
        size = ctypes.c_size_t(len(blinded))
        done = (
            library.EVP_PKEY_sign_init(context) == 1
            and library.EVP_PKEY_CTX_set_rsa_padding(context, _NO_PADDING) == 1
            and library.EVP_PKEY_sign(context, signature, ctypes.byref(size), blinded, len(blinded)) == 1
        )
    finally:
        library.EVP_PKEY_CTX_free(context)
    if not done or size.value != len(blinded):
        library.ERR_clear_error()
        raise BillRefused(BillVerdict.MALFORMED, "expected a blinded message that RSA can sign")
    return signature.raw
