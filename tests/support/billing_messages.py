"""One message of every kind that crosses in billing, from fixed keys: what tests change, and what golden
vectors are made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa

from tacit.bill.protocol.batches import Batch, BatchStatement, CohortStatement, Receipt
from tacit.bill.protocol.directory import Directory, DirectoryLeaf
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.keys import OpeningKey, SigningKey
from tacit.bill.protocol.menus import Lane, MenuEntry, PricedMenu
from tacit.bill.protocol.offers import ListedMenu
from tacit.bill.protocol.reports import ImpressionReport
from tacit.bill.protocol.tokens import (
    EXPONENT,
    BlindedMessage,
    blind_with,
    encode_pss,
    finalize,
    token_message,
    token_nonce,
)
from tacit.bill.server.token_keys import TokenKey
from tacit.entropy import Entropy
from tacit.schema.contexts.hierarchy import Node
from tacit.schema.impressions import NO_BIDDER, OWN_BID, RESERVE_PRICE
from tests.support.repository import VECTORS

EPOCH, OPENS, CLOSES, EXPIRES = 7, 1_800_000_000, 1_800_003_600, 1_800_090_000
SERVER, PROXY = (SigningKey.derive(name * 4) for name in (b"adserver", b"theproxy"))
REQUESTS, SEALS = OpeningKey(bytes(range(32))), OpeningKey(bytes(range(32, 64)))
ANSWER_KEY = bytes(range(64, 96))
FOOD, SPORT = Node((1, 2), ("Food", "anything")), Node((0, 2), ("Sport>Yoga", "anything"))
COFFEE, TEA = Node((0, 2), ("Food>Coffee", "anything")), Node((0, 1), ("Food>Tea", "morning"))
LONGEST = Node((255,), ("ü" * 78,))  # 160 bytes, as many as a context may have
RULE = "second price per impression"
LEARNT = json.dumps({"version": 1, "law": "few-liked", "share": 0.1, "times": 30.0})


@cache
def token_keys() -> tuple[TokenKey, ...]:
    """The private keys of the golden vectors, one per menu."""
    found = json.loads((VECTORS / "billing_v1.json").read_text())["token_keys"]
    return tuple(token_key(int(each["p"], 16), int(each["q"], 16)) for each in found)


def token_key(p: int, q: int) -> TokenKey:
    """The key of two primes."""
    d = rsa.rsa_recover_private_exponent(EXPONENT, p, q)
    crt = rsa.rsa_crt_dmp1(d, p), rsa.rsa_crt_dmq1(d, q), rsa.rsa_crt_iqmp(p, q)
    numbers = rsa.RSAPrivateNumbers(p, q, d, *crt, rsa.RSAPublicNumbers(EXPONENT, p * q))
    return TokenKey(numbers.private_key())


def menus_of_every_kind() -> dict[str, PricedMenu]:
    personal = PricedMenu(
        epoch=EPOCH, lane=Lane.PERSONAL, node=FOOD, rule=RULE, mechanism="trunc", epsilon_micros=3_000_000,
        smallest_cohort=40, reserve_micros=500,
        entries=(
            MenuEntry(12, 1_500, 50_000, 0.04, 7),
            MenuEntry(7, 1_200, 30_000, 0.05, RESERVE_PRICE),
            MenuEntry(2**40, 500, 10_000, 0.0625, RESERVE_PRICE),
        ),
    )  # fmt: skip
    nothing = replace(
        personal, node=SPORT, smallest_cohort=1, ctr_floor=0.01, nothing_micros=900.5, nothing_rank=1,
        entries=(MenuEntry(3, 1_100, 20_000, 0.06, NO_BIDDER), MenuEntry(0, 800, 8_000, 0.1, OWN_BID)),
    )  # fmt: skip
    finer = replace(
        personal, node=Node((2, 2), ("anything", "anything")), prior=LEARNT,
        finer={COFFEE: {1: 0.1, 3: 0.0}, TEA: {2: 1.0}},
    )  # fmt: skip
    limits = PricedMenu(
        epoch=EPOCH, lane=Lane.PERSONAL, node=LONGEST, rule="", mechanism="", epsilon_micros=2**32 - 1,
        smallest_cohort=2**32 - 1, reserve_micros=2**53, ctr_floor=1.0, nothing_micros=2.0**53, nothing_rank=0,
        entries=(
            MenuEntry(2**63 - 1, 2**40, 2**53, 1.0, 2**63 - 1),
            MenuEntry(0, 0, 0, 0.0, OWN_BID),
        ),
    )  # fmt: skip
    return {
        "personal": personal, "public": personal.public_lane(), "nothing": nothing, "finer": finer,
        "limits": limits,
    }  # fmt: skip


def directory(keys: Sequence[TokenKey] | None = None, *, signed: bool = True) -> Directory:
    """All of these menus, signed by both parties unless it is said otherwise."""
    keys = token_keys() if keys is None else keys
    leaves = [
        DirectoryLeaf.of(menu, key.public)
        for menu, key in zip(menus_of_every_kind().values(), keys, strict=True)
    ]
    made = Directory.make(
        leaves, epoch=EPOCH, opens=OPENS, closes=CLOSES, expires=EXPIRES, sealing_key=SEALS.public
    )
    return made.with_head(made.head.signed_by_server(SERVER).countersigned(PROXY)) if signed else made


def listed(name: str, found: Directory) -> ListedMenu:
    """A menu with its key and its proof."""
    menu = menus_of_every_kind()[name]
    place = [leaf.menu_id for leaf in found.leaves].index(menu.menu_id)
    return ListedMenu(menu, found.leaves[place].token_key, place, found.proof(place))


def key_of(name: str, keys: Sequence[TokenKey] | None = None) -> TokenKey:
    """The private key of a menu."""
    return (token_keys() if keys is None else keys)[list(menus_of_every_kind()).index(name)]


def blinded_by(key: TokenKey, message: bytes, salt: bytes, factor: int) -> tuple[int, BlindedMessage]:
    """A message as it is encoded with this salt, and blinded with this factor."""
    encoded = int.from_bytes(encode_pss(message, 8 * len(key.public.modulus) - 1, salt), "big")
    return encoded, blind_with(key.public, encoded, pow(factor, -1, key.public.number), factor)


def token_of(name: str, secret: bytes, keys: Sequence[TokenKey] | None = None) -> bytes:
    """A token of a menu, always the same for the same secret."""
    menu, key = menus_of_every_kind()[name], key_of(name, keys)
    message = token_message(token_nonce(secret), menu.menu_id)
    _, made = blinded_by(key, message, (secret * 2)[:48], 3)
    return finalize(key.public, message, key.sign_blinded(made.blinded, Entropy()), made.inverse)


def report_of(name: str, secret: bytes, index: int) -> ImpressionReport:
    """A report; its seal is another one each time."""
    menu = menus_of_every_kind()[name]
    return ImpressionReport.make(menu.menu_id, secret, token_of(name, secret), index, SEALS.public)


@cache
def reports() -> tuple[bytes, ...]:
    """Three good reports of one menu."""
    return tuple(report_of("personal", bytes([at]) * 32, at).to_bytes() for at in range(3))


def batch(of: Sequence[bytes] | None = None) -> Batch:
    some = tuple(reports() if of is None else of)
    menu = menus_of_every_kind()["personal"]
    return Batch(BatchStatement.sign(PROXY, bytes(range(16)), menu.menu_id, EPOCH, some), some)


def cohort() -> CohortStatement:
    """Of the batch, of whose three reports one was accepted."""
    return CohortStatement.sign(PROXY, batch().statement, receipt().charged)


def receipt() -> Receipt:
    verdicts = bytes([BillVerdict.ACCEPTED, BillVerdict.DUPLICATE, BillVerdict.WRONG_OPENING])
    return Receipt.sign(SERVER, bytes(range(16)), verdicts)


def messages_of_every_kind() -> dict[str, Any]:
    """All that have `to_bytes` and `from_bytes`."""
    return {
        **{f"menu: {name}": menu for name, menu in menus_of_every_kind().items()},
        "head": directory().head,
        "directory": directory(),
        "report": ImpressionReport.from_bytes(reports()[0]),
        "statement": batch().statement,
        "batch": batch(),
        "receipt": receipt(),
    }
