"""Reports: one impression, always 434 bytes, whose choice only the ad server can open.

    clear to the proxy   version 1 | menu's id 32 | nonce 32 | token 256 | commitment 32
    sealed to the server 81: the token's secret 32 | index 1, by HPKE, bound to menu and nonce

The commitment, SHA-256 over the secret and the index, is covered by what the proxy signs: a server that charged
another index could not open it before an auditor. "Nothing was shown" is reported too, as index 0: otherwise a
missing report would tell.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from tacit.bill.protocol.encoding import BillVerdict, Writer, expect_size, refuse_malformed
from tacit.bill.protocol.keys import OpeningKey
from tacit.bill.protocol.tokens import (
    NONCE_BYTES,
    SECRET_BYTES,
    TOKEN_BYTES,
    TokenPublicKey,
    token_message,
    token_nonce,
)
from tacit.display import brief
from tacit.errors import BadInput, BillRefused
from tacit.sealing import SEAL_OVERHEAD, seal

VERSION = 1
REPORT_BYTES = 1 + 32 + NONCE_BYTES + TOKEN_BYTES + 32 + SEAL_OVERHEAD + SECRET_BYTES + 1
_CHOICE, _SEAL = b"tacit/choice/1", b"tacit/report/1"
_NONCE_AT, _TOKEN_AT = 33, 33 + NONCE_BYTES
_COMMITMENT_AT = _TOKEN_AT + TOKEN_BYTES
_SEALED_AT = _COMMITMENT_AT + 32


def choice_commitment(secret: bytes, index: int) -> bytes:
    """What a device commits to: nobody without the secret learns the index from it."""
    return hashlib.sha256(_CHOICE + secret + bytes([index])).digest()


@dataclass(frozen=True)
class Opening:
    """What was sealed: the token's secret, and which entry of the menu was shown."""

    secret: bytes = field(repr=False)
    index: int = field(repr=False)


@dataclass(frozen=True)
class ImpressionReport:
    """One impression of one menu, paid for with one token."""

    menu_id: bytes
    nonce: bytes
    token: bytes
    commitment: bytes
    sealed: bytes

    def __repr__(self) -> str:
        return brief(self, nonce=self.nonce.hex()[:16], menu=self.menu_id.hex()[:16])

    @classmethod
    def make(
        cls, menu_id: bytes, secret: bytes, token: bytes, index: int, sealing_key: bytes
    ) -> ImpressionReport:
        """The report that the entry `index` was shown. Sealing draws: keep its bytes, and send those again."""
        if not 0 <= index < 256:
            raise BadInput(f"expected an index in 0..255, got {index}")
        nonce = token_nonce(secret)
        sealed = seal(secret + bytes([index]), sealing_key, _seal_info(menu_id, nonce))
        return cls(
            menu_id, nonce, expect_size("a token", token, TOKEN_BYTES), choice_commitment(secret, index), sealed
        )

    def to_bytes(self) -> bytes:
        writer = Writer().number("B", VERSION).raw(self.menu_id, 32).raw(self.nonce, NONCE_BYTES)
        writer.raw(self.token, TOKEN_BYTES).raw(self.commitment, 32)
        return writer.raw(self.sealed, REPORT_BYTES - _SEALED_AT).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> ImpressionReport:
        if type(data) is not bytes or len(data) != REPORT_BYTES or data[0] != VERSION:
            refuse_malformed(f"expected a report of version {VERSION} in {REPORT_BYTES} bytes")
        return cls(
            data[1:_NONCE_AT], data[_NONCE_AT:_TOKEN_AT], data[_TOKEN_AT:_COMMITMENT_AT],
            data[_COMMITMENT_AT:_SEALED_AT], data[_SEALED_AT:],
        )  # fmt: skip

    def has_token_of(self, key: TokenPublicKey) -> bool:
        """Whether the token was signed by this menu's key, for this menu and nonce."""
        return key.verify(token_message(self.nonce, self.menu_id), self.token)

    def open(self, key: OpeningKey) -> Opening:
        """What was sealed, held to nonce and commitment."""
        plain = key.open(self.sealed, _seal_info(self.menu_id, self.nonce))
        opening = Opening(plain[:SECRET_BYTES], plain[-1])
        self.check_opening(opening)
        return opening

    def check_opening(self, opening: Opening) -> None:
        """BillRefused(WRONG_OPENING) unless this is what the device committed to: an auditor's check too."""
        good = token_nonce(opening.secret) == self.nonce
        if not good or choice_commitment(opening.secret, opening.index) != self.commitment:
            raise BillRefused(BillVerdict.WRONG_OPENING)


def _seal_info(menu_id: bytes, nonce: bytes) -> bytes:
    return _SEAL + menu_id + nonce
