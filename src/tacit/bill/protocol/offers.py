"""A device asks for the menu of a context and for tokens; the ad server answers so that only the device reads.

The request is sealed to the ad server and goes through the proxy, which sees an address and a length. The
answer is encrypted under a key that the request carries, refusals included, and a refusal is as long as an
offer without a menu. An offer with one is longer, in steps of 256 bytes: its length may tell which menu it is,
which the proxy reads in the clear once the impression is reported. A request for so many tokens has one length,
whatever it asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit import expect
from tacit.bill.protocol.directory import HASH_BYTES
from tacit.bill.protocol.encoding import (
    BillVerdict,
    Reader,
    begin_message,
    expect_bytes,
    expect_size,
    read_message,
    refuse_malformed,
)
from tacit.bill.protocol.keys import OpeningKey
from tacit.bill.protocol.menus import CONTEXT_BYTES, LANES, Lane, PricedMenu, context_bytes, parse_context
from tacit.bill.protocol.tokens import TOKEN_BYTES, TokenPublicKey
from tacit.display import brief
from tacit.errors import BadInput, BillRefused
from tacit.privacy.randomness import Source
from tacit.schema.contexts.hierarchy import Node
from tacit.sealing import KEY_BYTES, seal

MOST_TOKENS = 16  # in one request
NO_MENU = bytes(HASH_BYTES)
_REQUEST = b"tacit/request/1"
_NONCE_BYTES, _TAG_BYTES = 12, 16
_STEP = 256  # answers are padded to whole steps
_LONGEST_PATH = 32


@dataclass(frozen=True)
class OfferRequest:
    """What a device asks for: the menu of its generalised context, and blinded messages to be signed.

    known       the id of the menu that the device has already, which then need not be sent again
    answer_key  what the answer is encrypted under; drawn for this request alone
    """

    epoch: int
    lane: Lane
    node: Node
    blinded: tuple[bytes, ...]
    answer_key: bytes = field(repr=False)
    known: bytes = NO_MENU

    def __post_init__(self) -> None:
        if not 0 <= expect.integer("epoch", self.epoch) < 2**32:
            raise BadInput("expected an epoch in 0..2^32-1, got another number")
        expect_size("an answer key", self.answer_key, KEY_BYTES)
        expect_size("a menu's id", self.known, HASH_BYTES)
        if len(self.blinded) > MOST_TOKENS:
            raise BadInput(f"expected at most {MOST_TOKENS} tokens in one request, got {len(self.blinded)}")
        for each in self.blinded:
            expect_size("a blinded message", each, TOKEN_BYTES)

    def __repr__(self) -> str:
        return brief(self, epoch=self.epoch, tokens=len(self.blinded))

    def sealed_to(self, server_key: bytes) -> bytes:
        context = context_bytes(self.node)
        if len(context) > CONTEXT_BYTES:
            raise BadInput(f"expected a context of at most {CONTEXT_BYTES} bytes, got {len(context)}")
        writer = begin_message().number("I", self.epoch).number("B", LANES.index(self.lane))
        writer.raw(self.answer_key, KEY_BYTES).raw(self.known, HASH_BYTES).number("B", len(context))
        writer.raw(context + bytes(CONTEXT_BYTES - len(context)), CONTEXT_BYTES)
        plain = writer.to_bytes() + b"".join(self.blinded)
        return seal(plain, server_key, _REQUEST)

    @classmethod
    def opened_by(cls, key: OpeningKey, sealed: bytes) -> OfferRequest:
        return read_message(key.open(sealed, _REQUEST), "request", cls._parse)

    @classmethod
    def _parse(cls, reader: Reader) -> OfferRequest:
        epoch, lane = reader.number("I"), reader.number("B")
        if lane >= len(LANES):
            refuse_malformed("expected a lane")
        answer_key, known, length = reader.raw(KEY_BYTES), reader.raw(HASH_BYTES), reader.number("B")
        padded, rest = reader.raw(CONTEXT_BYTES), reader.rest()
        if length > CONTEXT_BYTES or any(padded[length:]) or len(rest) % TOKEN_BYTES:
            refuse_malformed("expected a padded context and whole blinded messages")
        blinded = tuple(rest[at : at + TOKEN_BYTES] for at in range(0, len(rest), TOKEN_BYTES))
        return cls(epoch, LANES[lane], parse_context(padded[:length]), blinded, answer_key, known)


LONGEST_REQUEST = 512 + MOST_TOKENS * TOKEN_BYTES


@dataclass(frozen=True)
class ListedMenu:
    """A menu, its token key, and the proof that both stand in the epoch's directory."""

    menu: PricedMenu
    token_key: TokenPublicKey
    place: int
    path: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True)
class Offer:
    """The answer to a request: signatures of its blinded messages, and the menu unless it was known."""

    signatures: tuple[bytes, ...]
    listed: ListedMenu | None = None

    def __repr__(self) -> str:
        return brief(self, tokens=len(self.signatures), menu=self.listed is not None)

    def encrypted(self, answer_key: bytes, source: Source) -> bytes:
        writer = begin_message().number("B", BillVerdict.ACCEPTED).number("B", len(self.signatures))
        for signature in self.signatures:
            writer.raw(signature, TOKEN_BYTES)
        writer.number("B", self.listed is not None)
        if self.listed is not None:
            writer.blob(self.listed.menu.data, "I").raw(self.listed.token_key.modulus, TOKEN_BYTES)
            writer.number("I", self.listed.place).number("B", len(self.listed.path))
            for beside in self.listed.path:
                writer.raw(beside, HASH_BYTES)
        return _encrypt(writer.to_bytes(), answer_key, source)

    @classmethod
    def decrypted(cls, data: bytes, answer_key: bytes) -> Offer:
        """The offer; BillRefused with the server's reason where it made none."""
        expect_bytes(data)
        try:
            plain = AESGCM(answer_key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _REQUEST)
        except (InvalidTag, ValueError):
            raise BillRefused(BillVerdict.UNOPENABLE) from None
        reader = Reader(plain)
        length = reader.number("I")
        body = reader.raw(length)
        if any(reader.rest()):
            refuse_malformed("expected padding behind the offer")
        return read_message(body, "offer", cls._parse)

    @classmethod
    def _parse(cls, reader: Reader) -> Offer:
        verdict = reader.number("B")
        if verdict:
            reader.rest()
            known = verdict in BillVerdict._value2member_map_
            raise BillRefused(BillVerdict(verdict) if known else BillVerdict.MALFORMED)
        count = reader.number("B")
        if count > MOST_TOKENS:
            refuse_malformed(f"expected at most {MOST_TOKENS} signatures")
        signatures = tuple(reader.raw(TOKEN_BYTES) for _ in range(count))
        has_menu = reader.number("B")
        if not has_menu:
            return cls(signatures)
        if has_menu > 1:
            refuse_malformed("expected a menu or none")
        menu = PricedMenu.from_bytes(reader.blob("I"))
        key, place, steps = TokenPublicKey(reader.raw(TOKEN_BYTES)), reader.number("I"), reader.number("B")
        if steps > _LONGEST_PATH:
            refuse_malformed("expected a shorter proof")
        path = tuple(reader.raw(HASH_BYTES) for _ in range(steps))
        return cls(signatures, ListedMenu(menu, key, place, path))


def encrypted_refusal(verdict: BillVerdict, request: OfferRequest, source: Source) -> bytes:
    """The answer where no offer is made: only the device reads why, and by its length it could be an offer of
    all tokens that were asked for."""
    body = begin_message().number("B", verdict).to_bytes()
    return _encrypt(body, request.answer_key, source, as_long_as=4 + len(request.blinded) * TOKEN_BYTES)


def _encrypt(body: bytes, answer_key: bytes, source: Source, as_long_as: int = 0) -> bytes:
    plain = len(body).to_bytes(4, "big") + body + bytes(max(0, as_long_as - len(body)))
    padded = plain + bytes(-(len(plain) + _NONCE_BYTES + _TAG_BYTES) % _STEP)
    nonce = source.bytes(_NONCE_BYTES)
    return nonce + AESGCM(answer_key).encrypt(nonce, padded, _REQUEST)


MOST_RELAYED = 256  # requests of devices that the proxy hands on at once
LONGEST_ANSWER = 2**20


def pack_messages(messages: Sequence[bytes]) -> bytes:
    """Several messages of devices, or their answers, as the proxy hands them on: one after the other."""
    writer = begin_message().number("H", len(messages))
    for each in messages:
        writer.blob(each, "I")
    return writer.to_bytes()


def unpack_messages(data: bytes, *, longest: int) -> list[bytes]:
    """What `pack_messages` joined: at most `MOST_RELAYED`, none longer than `longest` bytes."""

    def parse(reader: Reader) -> list[bytes]:
        count = reader.number("H")
        if count > MOST_RELAYED:
            refuse_malformed(f"expected at most {MOST_RELAYED} messages")
        found = [reader.blob("I") for _ in range(count)]
        if any(len(each) > longest for each in found):
            raise BillRefused(BillVerdict.OVERSIZED)
        return found

    return read_message(data, "bundle of messages", parse)
