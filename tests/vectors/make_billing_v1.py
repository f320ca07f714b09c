"""Makes `billing_v1.json`: what devices, proxies and ad servers must read, write and refuse, byte for byte.

    PYTHONPATH=. .venv/bin/python tests/vectors/make_billing_v1.py

Bytes are spelled in hex, and whole numbers that a double cannot hold as texts. All keys are fixed, and so are
the ephemeral keys of seals, which real ones draw: the same file comes out every time. Entries of `bad_...` must
be refused with the verdict that they name. Changing what is there breaks devices that are in use.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.bill.protocol.batches import Batch, BatchStatement, CohortStatement, Receipt
from tacit.bill.protocol.directory import EpochHead, leaf_hash
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import Lane
from tacit.bill.protocol.offers import Offer, OfferRequest, encrypted_refusal
from tacit.bill.protocol.reports import choice_commitment
from tacit.bill.protocol.tokens import EXPONENT, finalize, token_message, token_nonce
from tacit.bill.server.token_keys import TokenKey
from tacit.entropy import Entropy, Simulation
from tests.support import billing_messages as made
from tests.support.billing_message_refusals import (
    bad_batches,
    bad_blinded,
    bad_cohorts,
    bad_offers,
    bad_receipts,
    bad_reports,
    bad_requests,
    bad_statements,
    bad_tokens,
)
from tests.support.billing_refusals import bad_directories, bad_heads, bad_menus, bad_proofs
from tests.support.billing_spelling import (
    context_fields,
    menu_fields,
    spelled_context,
    spelled_report,
    spelled_request,
)
from tests.support.hpke_by_hand import sealed_by_hand

CHOSEN = {"personal": (0, 1, 3), "public": (1,), "nothing": (0, 2)}
"""Which entries are reported, by menu."""


def draw_prime(source: Simulation) -> int:
    """A prime of 1024 bits, the two upper ones set, that RSA with exponent 65,537 can use."""
    while True:
        found = int.from_bytes(source.bytes(128), "big") | 3 << 1022 | 1
        if found % EXPONENT != 1 and all(found % small for small in range(3, 2000, 2)) and is_prime(found):
            return found


def is_prime(number: int) -> bool:
    """Miller and Rabin, by the first forty primes as bases."""
    twos = (number - 1 & 1 - number).bit_length() - 1
    bases = [each for each in range(2, 174) if all(each % below for below in range(2, each))]
    return all(
        (power := pow(base, number - 1 >> twos, number)) in (1, number - 1)
        or any((power := power * power % number) == number - 1 for _ in range(twos - 1))
        for base in bases
    )


def draw_keys() -> tuple[TokenKey, ...]:
    source = Simulation("golden vectors of billing: token keys")
    return tuple(made.token_key(draw_prime(source), draw_prime(source)) for _ in made.menus_of_every_kind())


def key_fields(key: TokenKey) -> dict[str, str]:
    numbers = key._private.private_numbers()
    fields = {"p": numbers.p, "q": numbers.q, "n": numbers.public_numbers.n, "e": EXPONENT, "d": numbers.d}
    return {name: f"{value:x}".zfill(len(f"{value:x}") + 1 & ~1) for name, value in fields.items()}


def tokens(keys: Sequence[TokenKey]) -> list[dict[str, Any]]:
    source = Simulation("golden vectors of billing: tokens")
    found = []
    for name, index in _chosen():
        menu, key = made.menus_of_every_kind()[name], made.key_of(name, keys)
        secret, salt = source.bytes(32), source.bytes(48)
        factor = source.uniform_below(key.public.number)
        message = token_message(token_nonce(secret), menu.menu_id)
        encoded, blinded = made.blinded_by(key, message, salt, factor)
        signature = key.sign_blinded(blinded.blinded, Entropy())
        found.append({
            "menu": name,
            "index": index,
            "secret": secret.hex(),
            "nonce": token_nonce(secret).hex(),
            "message": message.hex(),
            "salt": salt.hex(),
            "factor": factor.to_bytes(256, "big").hex(),
            "inverse": blinded.inverse.hex(),
            "encoded": encoded.to_bytes(256, "big").hex(),
            "blinded": blinded.blinded.hex(),
            "blind_signature": signature.hex(),
            "token": finalize(key.public, message, signature, blinded.inverse).hex(),
        })  # fmt: skip
    return found


def reports(signed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One per token."""
    source = Simulation("golden vectors of billing: seals")
    found = []
    for token in signed:
        menu_id = made.menus_of_every_kind()[token["menu"]].menu_id
        secret, nonce, index = bytes.fromhex(token["secret"]), bytes.fromhex(token["nonce"]), token["index"]
        commitment = choice_commitment(secret, index)
        ephemeral, info = source.bytes(32), b"tacit/report/1" + menu_id + nonce
        plain = secret + bytes([index])
        sealed = sealed_by_hand(plain, made.SEALS.public, info, ephemeral)
        spelled = spelled_report(menu_id, nonce, bytes.fromhex(token["token"]), commitment, sealed)
        found.append({
            "menu": token["menu"],
            "index": index,
            "secret": secret.hex(),
            "commitment": commitment.hex(),
            "seal_info": info.hex(),
            "sealed_plain": plain.hex(),
            "ephemeral_private_key": ephemeral.hex(),
            "sealed": sealed.hex(),
            "bytes": spelled.hex(),
        })  # fmt: skip
    return found


def requests(signed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    source = Simulation("golden vectors of billing: requests")
    found = []
    for name, count, known in (("personal", 1, False), ("public", 0, False), ("nothing", 2, True)):
        menu = made.menus_of_every_kind()[name]
        blinded = tuple(bytes.fromhex(each["blinded"]) for each in signed if each["menu"] == name)[:count]
        asked = OfferRequest(
            menu.epoch, menu.lane, menu.node, blinded, source.bytes(32), menu.menu_id if known else bytes(32)
        )
        lane = int(menu.lane == "personal")
        plain = spelled_request(
            menu.epoch, lane, asked.answer_key, asked.known, spelled_context(menu.node), blinded
        )
        ephemeral = source.bytes(32)
        found.append({
            "epoch": menu.epoch,
            "lane": str(menu.lane),
            "context": context_fields(menu.node),
            "blinded": [each.hex() for each in blinded],
            "answer_key": asked.answer_key.hex(),
            "known_menu": asked.known.hex(),
            "plain": plain.hex(),
            "seal_info": b"tacit/request/1".hex(),
            "ephemeral_private_key": ephemeral.hex(),
            "sealed": sealed_by_hand(plain, made.REQUESTS.public, b"tacit/request/1", ephemeral).hex(),
        })  # fmt: skip
    return found


def offers(keys: Sequence[TokenKey], signed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    source = Simulation("golden vectors of billing: offers")
    found = []
    for name, with_menu in (("personal", True), ("finer", True), ("nothing", False)):
        signatures = tuple(bytes.fromhex(each["blind_signature"]) for each in signed if each["menu"] == name)
        listed = made.listed(name, made.directory(keys))
        offer = Offer(signatures, listed if with_menu else None)
        found.append({
            "answer_key": made.ANSWER_KEY.hex(),
            "signatures": [each.hex() for each in signatures],
            "menu": name if with_menu else None,
            "token_key": listed.token_key.modulus.hex() if with_menu else None,
            "place": listed.place if with_menu else None,
            "path": [each.hex() for each in listed.path] if with_menu else None,
            "encrypted": offer.encrypted(made.ANSWER_KEY, source).hex(),
        })  # fmt: skip
    request = OfferRequest(made.EPOCH, Lane.PERSONAL, made.SPORT, (bytes(256),), made.ANSWER_KEY)
    for verdict in (BillVerdict.UNKNOWN_CONTEXT, BillVerdict.STALE_EPOCH):
        found.append({
            "answer_key": made.ANSWER_KEY.hex(),
            "refused": verdict.name,
            "encrypted": encrypted_refusal(verdict, request, source).hex(),
        })  # fmt: skip
    return found


def directory_fields(keys: Sequence[TokenKey]) -> dict[str, Any]:
    found = made.directory(keys)
    head = found.head
    return {
        "leaves": [
            {
                "context": context_fields(leaf.node),
                "lane": str(leaf.lane),
                "menu_id": leaf.menu_id.hex(),
                "token_key": leaf.token_key.modulus.hex(),
                "smallest_cohort": leaf.smallest_cohort,
                "bytes": leaf.to_bytes().hex(),
                "hash": leaf_hash(leaf).hex(),
                "path": [each.hex() for each in found.proof(place)],
            }
            for place, leaf in enumerate(found.leaves)
        ],
        "tree": [[node.hex() for node in level] for level in found.tree],
        "head": head_fields(head),
        "bytes": found.to_bytes().hex(),
    }


def head_fields(head: EpochHead) -> dict[str, Any]:
    return {
        "epoch": head.epoch,
        "opens": head.opens,
        "closes": head.closes,
        "expires": head.expires,
        "menus": head.menus,
        "root": head.root.hex(),
        "sealing_key": head.sealing_key.hex(),
        "body": head.body.hex(),
        "by_server_signs": (b"tacit/epoch/1\0" + head.body).hex(),
        "by_server": head.by_server.hex(),
        "by_proxy_signs": (b"tacit/epoch/1/countersigned\0" + head.body + head.by_server).hex(),
        "by_proxy": head.by_proxy.hex(),
        "bytes": head.to_bytes().hex(),
    }


def batch_fields(sent: Sequence[dict[str, Any]]) -> tuple[Batch, dict[str, Any]]:
    some = tuple(bytes.fromhex(each["bytes"]) for each in sent if each["menu"] == "personal")
    batch = made.batch(some)
    statement: BatchStatement = batch.statement
    return batch, {
        "batch_id": statement.batch_id.hex(),
        "menu_id": statement.menu_id.hex(),
        "epoch": statement.epoch,
        "reports": statement.reports,
        "digest": statement.digest.hex(),
        "signs": (b"tacit/batch/1\0" + statement.body).hex(),
        "signature": statement.signature.hex(),
        "statement": statement.to_bytes().hex(),
        "bytes": batch.to_bytes().hex(),
    }


def receipt_fields(receipt: Receipt) -> dict[str, Any]:
    return {
        "batch_id": receipt.batch_id.hex(),
        "verdicts": [BillVerdict(each).name for each in receipt.verdicts],
        "charged": receipt.charged,
        "duplicate": receipt.duplicate,
        "rejected": receipt.rejected,
        "signs": (b"tacit/receipt/1\0" + receipt.body).hex(),
        "signature": receipt.signature.hex(),
        "bytes": receipt.to_bytes().hex(),
    }


def cohort_fields(cohort: CohortStatement) -> dict[str, Any]:
    return {
        "batch_id": cohort.batch_id.hex(),
        "menu_id": cohort.menu_id.hex(),
        "epoch": cohort.epoch,
        "reports": cohort.reports,
        "signs": (b"tacit/cohort/1\0" + cohort.body).hex(),
        "signature": cohort.signature.hex(),
        "bytes": cohort.to_bytes().hex(),
    }


def records(keys: Sequence[TokenKey]) -> dict[str, Any]:
    """All vectors, from the token keys."""
    signed = tokens(keys)
    sent = reports(signed)
    batch, batch_said = batch_fields(sent)
    parties = {"ad_server": made.SERVER, "proxy": made.PROXY}
    return {
        "version": 1,
        "signing_keys": {name: {"public": key.public.hex()} for name, key in parties.items()},
        "request_key": {"private": made.REQUESTS.to_bytes().hex(), "public": made.REQUESTS.public.hex()},
        "epoch_key": {"private": made.SEALS.to_bytes().hex(), "public": made.SEALS.public.hex()},
        "token_keys": [
            {"menu": name, **key_fields(key)}
            for name, key in zip(made.menus_of_every_kind(), keys, strict=True)
        ],
        "menus": {
            name: {**menu_fields(menu), "bytes": menu.data.hex(), "menu_id": menu.menu_id.hex()}
            for name, menu in made.menus_of_every_kind().items()
        },
        "bad_menus": bad_menus(),
        "directory": directory_fields(keys),
        "bad_directories": bad_directories(keys),
        "bad_heads": bad_heads(keys),
        "bad_proofs": bad_proofs(keys),
        "requests": requests(signed),
        "bad_requests": bad_requests(),
        "offers": offers(keys, signed),
        "bad_offers": bad_offers(),
        "tokens": signed,
        "bad_tokens": bad_tokens(signed, keys),
        "bad_blinded": bad_blinded(keys),
        "reports": sent,
        "bad_reports": bad_reports(sent),
        "batch": batch_said,
        "bad_statements": bad_statements(batch.statement),
        "bad_batches": bad_batches(batch),
        "receipt": receipt_fields(made.receipt()),
        "bad_receipts": bad_receipts(made.receipt()),
        "cohort": cohort_fields(made.cohort()),
        "bad_cohorts": bad_cohorts(made.cohort()),
    }


def _chosen() -> list[tuple[str, int]]:
    return [(name, index) for name, chosen in CHOSEN.items() for index in chosen]


def main() -> None:
    spelled = json.dumps(records(draw_keys()), indent=1, ensure_ascii=False)
    Path(__file__).with_name("billing_v1.json").write_text(spelled + "\n")


if __name__ == "__main__":
    main()
