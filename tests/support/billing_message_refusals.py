"""Requests, offers, tokens, reports, batches and receipts that must be refused, each with its verdict.

As in `billing_refusals`, of which these are the other half.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit.bill.protocol.batches import Batch, BatchStatement, CohortStatement, Receipt
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.keys import OpeningKey
from tacit.bill.protocol.reports import choice_commitment
from tacit.bill.server.token_keys import TokenKey
from tests.support import billing_messages as made
from tests.support.billing_refusals import MALFORMED, STRANGER, UNAUTHENTICATED, Refusals, flipped, refused
from tests.support.billing_spelling import blob, spelled_context, spelled_report, spelled_request
from tests.support.hpke_by_hand import sealed_by_hand

FORGED, UNOPENABLE = BillVerdict.FORGED, BillVerdict.UNOPENABLE
FOREIGN = OpeningKey(bytes(range(96, 128)))
EPHEMERAL = bytes(range(128, 160))


def bad_requests() -> Refusals:
    """Sealed to the ad server, but for those that cannot be opened."""
    context, some = spelled_context(made.FOOD), (bytes(256),)
    fields = (made.EPOCH, 1, made.ANSWER_KEY, bytes(32))
    good = spelled_request(*fields, context, some)

    def sealed(plain: bytes, public: bytes = made.REQUESTS.public, info: bytes = b"tacit/request/1") -> bytes:
        return sealed_by_hand(plain, public, info, EPHEMERAL)

    padding = 1 + 4 + 1 + 32 + 32 + 1 + len(context)
    return {
        **refused(UNOPENABLE, {
            "foreign_key": sealed(good, FOREIGN.public),
            "other_purpose": sealed(good, info=b"tacit/report/1"),
            "changed": flipped(sealed(good), 60),
            "truncated": sealed(good)[:-1],
            "bytes_after": sealed(good) + b"\0",
            "too_short": sealed(good)[:40],
            "empty": b"",
        }),
        **refused(MALFORMED, {
            "version": sealed(b"\0" + good[1:]),
            "lane": sealed(spelled_request(made.EPOCH, 2, *fields[2:], context, some)),
            "no_padding": sealed(flipped(good, padding)),
            "context_too_long": sealed(spelled_request(*fields, context + bytes(161 - len(context)), some)),
            "context_none": sealed(spelled_request(*fields, b"", some)),
            "context_truncated": sealed(spelled_request(*fields, context[:-1], some)),
            "half_a_token": sealed(good[:-1]),
            "too_many_tokens": sealed(spelled_request(*fields, context, some * 17)),
            "no_context": sealed(good[:71]),
        }),
    }  # fmt: skip


def bad_offers() -> Refusals:
    """Under the good answer key, but for those that cannot be opened."""
    nonce = bytes(range(12))

    def encrypted(plain: bytes, key: bytes = made.ANSWER_KEY, bound: bytes = b"tacit/request/1") -> bytes:
        return nonce + AESGCM(key).encrypt(nonce, plain, bound)

    def body(data: bytes, padding: bytes = b"") -> bytes:
        return encrypted(blob(data, "I") + padding)

    menu = made.menus_of_every_kind()["personal"].data
    good = b"\x01\x00\x01" + bytes(256) + b"\x00"
    listed = b"\x01\x00\x00\x01" + blob(menu, "I") + b"\xff" * 256 + bytes(4)
    return {
        **refused(UNOPENABLE, {
            "foreign_key": encrypted(blob(good, "I"), FOREIGN.public),
            "other_purpose": encrypted(blob(good, "I"), bound=b"tacit/report/1"),
            "changed": flipped(body(good), 20),
            "truncated": body(good)[:-1],
            "empty": b"",
        }),
        **refused(MALFORMED, {
            "padding_says_something": body(good, b"\x01"),
            "length_beyond": encrypted(struct.pack(">I", 2**32 - 1) + good),
            "no_length": encrypted(b"\0\0"),
            "version": body(b"\0" + good[1:]),
            "too_many_signatures": body(b"\x01\x00\x11" + bytes(256 * 17) + b"\x00"),
            "missing_signature": body(b"\x01\x00\x02" + bytes(256) + b"\x00"),
            "neither_menu_nor_none": body(good[:-1] + b"\x02"),
            "no_menu": body(good[:-1] + b"\x01"),
            "menu_changed": body(listed.replace(menu, menu[:-1] + b"\x01") + b"\0"),
            "long_path": body(listed + bytes([33]) + bytes(33 * 32)),
            "short_path": body(listed + bytes([2]) + bytes(32)),
            "bytes_after": body(good + b"\0"),
            "unknown_verdict": body(b"\x01\xff"),
        }),
    }  # fmt: skip


def bad_tokens(signed: Sequence[dict[str, Any]], keys: Sequence[TokenKey]) -> Refusals:
    """What verifies under the key of menu "personal" as no token of the message that is named."""
    good, same, _, other, *_ = signed
    token, message = bytes.fromhex(good["token"]), bytes.fromhex(good["message"])
    number, modulus = int.from_bytes(token, "big"), made.key_of("personal", keys).public.number
    cases = {
        "other_message": (bytes.fromhex(same["message"]), token),
        "other_menu": (bytes.fromhex(other["message"]), token),
        "token_of_other_key": (message, bytes.fromhex(other["token"])),
        "still_blinded": (message, bytes.fromhex(good["blind_signature"])),
        "changed": (message, flipped(token, 100)),
        "negated": (message, (modulus - number).to_bytes(256, "big")),
        "zero": (message, bytes(256)),
        "one": (message, (1).to_bytes(256, "big")),
        "modulus": (message, modulus.to_bytes(256, "big")),
        "modulus_less_one": (message, (modulus - 1).to_bytes(256, "big")),
        "short": (message, token[1:]),
        "long": (message, b"\0" + token),
        "empty": (message, b""),
    }
    if number + modulus < 2**2048:
        cases["plus_modulus"] = message, (number + modulus).to_bytes(256, "big")
    return {
        f"bad_{name}": {"message": of.hex(), "bytes": each.hex(), "verdict": FORGED.name}
        for name, (of, each) in cases.items()
    }


def bad_blinded(keys: Sequence[TokenKey]) -> Refusals:
    """What the key of menu "personal" does not sign."""
    modulus = made.key_of("personal", keys).public.number
    return refused(MALFORMED, {
        "modulus": modulus.to_bytes(256, "big"),
        "above": (modulus + 1).to_bytes(256, "big"),
        "largest": b"\xff" * 256,
        "short": bytes(255),
        "long": bytes(257),
        "empty": b"",
    })  # fmt: skip


def bad_reports(sent: Sequence[dict[str, Any]]) -> Refusals:
    """Reports of menu "personal", as the ad server judges them in its epoch."""
    good, twin, _, other, *_ = (bytes.fromhex(each["bytes"]) for each in sent)
    menu_id, nonce, token = good[1:33], good[33:65], good[65:321]
    commitment, sealed = good[321:353], good[353:]
    secret = bytes.fromhex(sent[0]["secret"])
    info = b"tacit/report/1" + menu_id + nonce

    def sealing(plain: bytes, public: bytes = made.SEALS.public, bound: bytes = info) -> bytes:
        return sealed_by_hand(plain, public, bound, EPHEMERAL)

    def spelled(commitment: bytes, sealed: bytes) -> bytes:
        return spelled_report(menu_id, nonce, token, commitment, sealed)

    beyond = len(made.menus_of_every_kind()["personal"].entries) + 1
    return {
        **refused(MALFORMED, {
            "empty": b"", "short": good[:-1], "long": good + b"\0", "version": b"\x02" + good[1:],
        }),
        **refused(BillVerdict.UNKNOWN_MENU, {"no_menu": flipped(good, 1), "other_menu": other}),
        **refused(FORGED, {
            "nonce_of_another": good[:33] + twin[33:65] + good[65:],
            "token_of_another": good[:65] + twin[65:321] + good[321:],
            "token_changed": flipped(good, 65),
            "minted_by_another_key": spelled_report(
                menu_id, nonce, bytes.fromhex(sent[3]["bytes"])[65:321], commitment, sealed
            ),
            "no_token": good[:65] + bytes(256) + good[321:],
        }),
        **refused(UNOPENABLE, {
            "seal_of_another": good[:353] + twin[353:],
            "seal_changed": flipped(good, 433),
            "seal_key_changed": flipped(good, 353),
            "foreign_seal": spelled(commitment, sealing(secret + b"\0", FOREIGN.public)),
            "seal_of_other_purpose": spelled(commitment, sealing(secret + b"\0", bound=b"tacit/request/1")),
        }),
        **refused(BillVerdict.WRONG_OPENING, {
            "commitment_to_other_index": spelled(choice_commitment(secret, 1), sealed),
            "commitment_of_another": good[:321] + twin[321:353] + good[353:],
            "commitment_changed": flipped(good, 321),
            "sealed_other_index": spelled(commitment, sealing(secret + b"\x01")),
            "sealed_other_secret": spelled(commitment, sealing(bytes(32) + b"\0")),
        }),
        **refused(BillVerdict.NO_SUCH_ENTRY, {
            "index_beyond": spelled(choice_commitment(secret, beyond), sealing(secret + bytes([beyond]))),
            "index_255": spelled(choice_commitment(secret, 255), sealing(secret + b"\xff")),
        }),
    }  # fmt: skip


def bad_statements(good: BatchStatement) -> Refusals:
    """Held to the proxy's signature."""
    data = good.to_bytes()
    return {
        **refused(UNAUTHENTICATED, {
            "other_count": replace(good, reports=good.reports + 1).to_bytes(),
            "other_menu": replace(good, menu_id=flipped(good.menu_id, 0)).to_bytes(),
            "other_epoch": replace(good, epoch=good.epoch + 1).to_bytes(),
            "other_digest": replace(good, digest=bytes(32)).to_bytes(),
            "other_id": replace(good, batch_id=bytes(16)).to_bytes(),
            "unsigned": replace(good, signature=bytes(64)).to_bytes(),
            "foreign_key": good.body + STRANGER.sign(b"tacit/batch/1", good.body),
            "signed_for_another_purpose": good.body + made.PROXY.sign(b"tacit/receipt/1", good.body),
        }),
        **refused(MALFORMED, {
            "no_reports": data[:53] + bytes(4) + data[57:],
            "too_many_reports": data[:53] + struct.pack(">I", 100_001) + data[57:],
            "truncated": data[:-1],
            "bytes_after": data + b"\0",
            "version": b"\x03" + data[1:],
        }),
    }  # fmt: skip


def bad_batches(good: Batch) -> Refusals:
    data, first = good.to_bytes(), good.statement
    size = len(first.to_bytes())
    reports = b"".join(good.reports)
    return refused(MALFORMED, {
        "report_changed": flipped(data, size + 40),
        "reports_reordered": data[:size] + b"".join(good.reports[::-1]),
        "report_missing": data[:-434],
        "report_more": data + good.reports[0],
        "half_a_report": data[:-1],
        "bytes_after": data + b"\0",
        "other_count": replace(first, reports=first.reports + 1).to_bytes() + reports,
        "statement_alone": data[:size],
        "empty": b"",
    })  # fmt: skip


def bad_cohorts(good: CohortStatement) -> Refusals:
    """Held to the proxy's signature."""
    data = good.to_bytes()
    reports = len(good.body) - 4
    return {
        **refused(UNAUTHENTICATED, {
            "more_reports": data[:reports] + b"\x00\x00\x00\x09" + data[reports + 4 :],
            "other_batch": flipped(data, 1),
            "other_menu": flipped(data, 1 + 16),
            "unsigned": good.body + bytes(64),
            "foreign_key": good.body + STRANGER.sign(b"tacit/cohort/1", good.body),
            "signed_for_another_purpose": good.body + made.PROXY.sign(b"tacit/batch/1", good.body),
            "signed_by_ad_server": good.body + made.SERVER.sign(b"tacit/cohort/1", good.body),
        }),
        **refused(MALFORMED, {
            "too_many_reports": data[:reports] + b"\xff" * 4 + data[reports + 4 :],
            "truncated": data[:-1],
            "bytes_after": data + b"\0",
            "version": b"\0" + data[1:],
        }),
    }  # fmt: skip


def bad_receipts(good: Receipt) -> Refusals:
    """Held to the ad server's signature."""
    data = good.to_bytes()
    at = 1 + 16 + 4
    return {
        **refused(UNAUTHENTICATED, {
            "other_verdict": data[:at] + b"\x01" + data[at + 1 :],
            "other_batch": flipped(data, 1),
            "unsigned": good.body + bytes(64),
            "foreign_key": good.body + STRANGER.sign(b"tacit/receipt/1", good.body),
            "signed_for_another_purpose": good.body + made.SERVER.sign(b"tacit/batch/1", good.body),
            "signed_by_proxy": good.body + made.PROXY.sign(b"tacit/receipt/1", good.body),
        }),
        **refused(MALFORMED, {
            "no_verdicts": data[: at - 4] + bytes(4) + data[-64:],
            "unknown_verdict": data[:at] + b"\x63" + data[at + 1 :],
            "tells_an_empty_budget": data[:at] + bytes([BillVerdict.OVER_BUDGET]) + data[at + 1 :],
            "truncated": data[:-1],
            "bytes_after": data + b"\0",
            "version": b"\0" + data[1:],
        }),
    }  # fmt: skip
