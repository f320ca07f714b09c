"""Menus, directories, heads and proofs that must be refused, each with the verdict that it must be given.

Every function gives {name: {"bytes": hex, ..., "verdict": name}}, as the golden vectors hold it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tacit.bill.protocol.directory import Directory
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.keys import OpeningKey, SigningKey
from tacit.bill.protocol.menus import Lane
from tacit.bill.server.token_keys import TokenKey
from tacit.schema.contexts.hierarchy import Node
from tests.support import billing_messages as made
from tests.support.billing_spelling import (
    blob,
    menu_fields,
    root_by_definition,
    spelled_context,
    spelled_head,
    spelled_leaf,
    spelled_menu,
)

Refusals = dict[str, dict[str, Any]]
MALFORMED, FORGED, UNOPENABLE = BillVerdict.MALFORMED, BillVerdict.FORGED, BillVerdict.UNOPENABLE
UNAUTHENTICATED, NOT_LISTED = BillVerdict.UNAUTHENTICATED, BillVerdict.NOT_LISTED
STRANGER, FOREIGN = SigningKey.derive(b"stranger" * 4), OpeningKey(bytes(range(96, 128)))
EPHEMERAL = bytes(range(128, 160))


def refused(verdict: BillVerdict, spelled: dict[str, bytes], **more: Any) -> Refusals:
    return {
        f"bad_{name}": {**more, "bytes": data.hex(), "verdict": verdict.name} for name, data in spelled.items()
    }


def flipped(data: bytes, at: int) -> bytes:
    """The same with one bit changed."""
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def bad_menus() -> Refusals:
    good = menu_fields(made.menus_of_every_kind()["finer"])
    nothing = menu_fields(made.menus_of_every_kind()["nothing"])
    entry, rates = good["entries"][0], good["finer"][0]

    def entries(**changed: Any) -> bytes:
        return spelled_menu({**good, "entries": [{**entry, **changed}, *good["entries"][1:]]})

    def finer(index: int, rate: float) -> bytes:
        return spelled_menu({**good, "finer": [{**rates, "rates": [{"index": index, "rate": rate}]}]})

    several = b"".join([
        blob(spelled_context(made.COFFEE)), bytes([2]), struct.pack(">BdBd", 3, 0.5, 1, 0.5),
    ])  # fmt: skip
    once = blob(spelled_context(made.COFFEE)) + bytes([1]) + struct.pack(">Bd", 1, 0.5)
    data, empty = spelled_menu(good), spelled_context(made.FOOD)[:0]
    return refused(MALFORMED, {
        "empty": b"",
        "version": b"\x02" + data[1:],
        "truncated": data[:-1],
        "bytes_after": data + b"\0",
        "lane": spelled_menu({**good, "lane": 2}),
        "context_empty": spelled_menu({**good, "context": b"\x00"}),
        "context_none": spelled_menu({**good, "context": empty}),
        "context_bytes_after": spelled_menu({**good, "context": spelled_context(made.FOOD) + b"\0"}),
        "context_161_bytes": spelled_menu({**good, "context": spelled_context(Node((0,), ("x" * 157,)))}),
        "rule_no_utf8": spelled_menu({**good, "rule": b"\xff\xfe"}),
        "cohort_of_none": spelled_menu({**good, "smallest_cohort": 0}),
        "reserve_too_large": spelled_menu({**good, "reserve_micros": 2**53 + 1}),
        "floor_no_number": spelled_menu({**good, "ctr_floor": float("nan")}),
        "floor_above_one": spelled_menu({**good, "ctr_floor": 1.5}),
        "no_entries": spelled_menu({**good, "entries": [], "finer": []}),
        "campaign_twice": spelled_menu({**good, "entries": [entry, entry], "finer": []}),
        "campaign_too_large": entries(campaign=2**63),
        "price_too_large": entries(price_micros=2**40 + 1),
        "bid_too_large": entries(bid_micros=2**53 + 1),
        "rate_above_one": entries(rate=1.0000000000000002),
        "rate_no_number": entries(rate=float("nan")),
        "setter_unknown": entries(setter=-4),
        "nothing_beyond": spelled_menu({**nothing, "nothing_rank": 3}),
        "nothing_without_rank": spelled_menu({**nothing, "nothing_rank": None}),
        "nothing_infinite": spelled_menu({**nothing, "nothing_micros": float("inf")}),
        "nothing_negative": spelled_menu({**nothing, "nothing_micros": -1.0}),
        "public_two_entries": spelled_menu({**good, "lane": "public", "epsilon_micros": 0, "finer": []}),
        "public_epsilon": spelled_menu({**good, "lane": "public", "entries": [entry], "finer": []}),
        "public_nothing": spelled_menu({
            **nothing, "lane": "public", "entries": nothing["entries"][:1], "epsilon_micros": 0,
            "nothing_micros": 0.0,
        }),
        "finer_of_nothing": finer(0, 0.5),
        "finer_of_no_entry": finer(4, 0.5),
        "finer_rate_above_one": finer(1, 2.0),
        "finer_rate_no_number": finer(1, float("nan")),
        "finer_out_of_order": spelled_menu(good, finer=struct.pack(">H", 1) + several),
        "finer_node_twice": spelled_menu(good, finer=struct.pack(">H", 2) + once + once),
        "finer_count_beyond": spelled_menu(good, finer=struct.pack(">H", 65_535)),
    })  # fmt: skip


def bad_directories(keys: Sequence[TokenKey]) -> Refusals:
    """Signed by the ad server, all of them: what is wrong is what they list."""
    good = made.directory(keys, signed=False)
    leaves = [leaf.to_bytes() for leaf in good.leaves]
    first = good.leaves[0]
    context, lane = first.place
    twin = spelled_leaf(
        context, lane, hashlib.sha256(b"other").digest(), first.token_key.modulus, first.smallest_cohort
    )
    tagged = spelled_leaf(
        spelled_context(made.COFFEE), 1, first.menu_id, good.leaves[1].token_key.modulus, first.smallest_cohort
    )
    even = first.token_key.modulus[:-1] + b"\0"
    other_root = Directory.make(
        good.leaves[1:], epoch=made.EPOCH, opens=made.OPENS, closes=made.CLOSES, expires=made.EXPIRES,
        sealing_key=made.SEALS.public,
    )  # fmt: skip
    whole = made.directory(keys).to_bytes()
    return refused(MALFORMED, {
        "context_twice": _directory([leaves[0], twin, *leaves[1:]]),
        "menu_twice": _directory(sorted([*leaves, tagged], key=_place)),
        "out_of_order": _directory([leaves[1], leaves[0], *leaves[2:]]),
        "same_leaf_twice": _directory([leaves[0], leaves[0]]),
        "root_of_others": _directory(leaves, root=other_root.head.root),
        "fewer_leaves": _directory(leaves, listed=leaves[:-1]),
        "more_leaves": _directory(leaves[:-1], listed=leaves),
        "lane": _directory([leaves[0][: 2 + len(context)] + b"\x02" + leaves[0][3 + len(context) :]]),
        "even_key": _directory([leaves[0].replace(first.token_key.modulus, even)]),
        "short_key": _directory([
            leaves[0].replace(first.token_key.modulus, b"\0" + first.token_key.modulus[1:])
        ]),
        "cohort_of_none": _directory([leaves[0][:-4] + bytes(4)]),
        "leaf_bytes_after": _directory([leaves[0] + b"\0"]),
        "truncated": whole[:-1],
        "bytes_after": whole + b"\0",
        "version": b"\0" + whole[1:],
    })  # fmt: skip


def _place(leaf: bytes) -> tuple[bytes, int]:
    length = int.from_bytes(leaf[:2], "big")
    return leaf[2 : 2 + length], leaf[2 + length]


def _directory(leaves: Sequence[bytes], *, root: bytes | None = None, listed: Sequence[bytes] = ()) -> bytes:
    body = spelled_head(
        made.EPOCH, made.OPENS, made.CLOSES, made.EXPIRES, len(leaves), root or root_by_definition(leaves),
        made.SEALS.public,
    )  # fmt: skip
    head = body + made.SERVER.sign(b"tacit/epoch/1", body) + bytes(64)
    return b"\x01" + head + b"".join(blob(leaf) for leaf in listed or leaves)


def bad_heads(keys: Sequence[TokenKey]) -> Refusals:
    """Held to the signatures of both parties."""
    head = made.directory(keys).head
    times = (made.EPOCH, made.OPENS, made.CLOSES, made.EXPIRES, head.menus, head.root, head.sealing_key)

    def signed(*fields: Any) -> bytes:
        body = spelled_head(*fields)
        by_server = made.SERVER.sign(b"tacit/epoch/1", body)
        return body + by_server + made.PROXY.sign(b"tacit/epoch/1/countersigned", body + by_server)

    data = head.to_bytes()
    return {
        **refused(UNAUTHENTICATED, {
            "without_proxy": replace(head, by_proxy=bytes(64)).to_bytes(),
            "without_server": replace(head, by_server=bytes(64)).to_bytes(),
            "swapped_signatures": replace(head, by_server=head.by_proxy, by_proxy=head.by_server).to_bytes(),
            "server_for_both": replace(head, by_proxy=head.by_server).to_bytes(),
            "proxy_signed_as_server": replace(
                head, by_proxy=made.PROXY.sign(b"tacit/epoch/1", head.body)
            ).to_bytes(),
            "foreign_proxy": head.countersigned(STRANGER).to_bytes(),
            "foreign_server": head.signed_by_server(STRANGER).countersigned(made.PROXY).to_bytes(),
            "other_epoch": flipped(data, 4),
            "other_expiry": flipped(data, 28),
            "other_count": flipped(data, 32),
            "other_root": flipped(data, 33),
            "other_sealing_key": flipped(data, 65),
            "changed_signature": flipped(data, len(data) - 1),
        }),
        **refused(MALFORMED, {
            "closes_first": signed(times[0], times[2], times[1], *times[3:]),
            "expires_before_it_closes": signed(*times[:3], made.CLOSES - 1, *times[4:]),
            "never_expires": signed(*times[:3], 2**62, *times[4:]),
            "no_menus": signed(*times[:4], 0, *times[5:]),
            "too_many_menus": signed(*times[:4], 2**20 + 1, *times[5:]),
            "truncated": data[:-1],
            "bytes_after": data + b"\0",
            "version": b"\x02" + data[1:],
        }),
    }  # fmt: skip


def bad_proofs(keys: Sequence[TokenKey]) -> Refusals:
    """Leaves, places and paths that do not lead to the root of the good head."""
    found = made.directory(keys)
    place, last = 1, found.head.menus - 1
    leaf, path = found.leaves[place], found.proof(place)
    other_lane = Lane.PUBLIC if leaf.lane is Lane.PERSONAL else Lane.PERSONAL
    foreign = replace(leaf, token_key=found.leaves[0].token_key)
    cases = {
        "other_place": (leaf, place - 1, path),
        "place_beyond": (leaf, found.head.menus, path),
        "truncated": (leaf, place, path[:-1]),
        "no_path": (leaf, place, ()),
        "extended": (leaf, place, (*path, path[-1])),
        "swapped": (leaf, place, path[::-1]),
        "changed": (leaf, place, (flipped(path[0], 0), *path[1:])),
        "tagged_key": (foreign, place, path),
        "tagged_menu": (replace(leaf, menu_id=flipped(leaf.menu_id, 0)), place, path),
        "other_lane": (replace(leaf, lane=other_lane), place, path),
        "other_context": (replace(leaf, node=made.TEA), place, path),
        "other_cohort": (replace(leaf, smallest_cohort=leaf.smallest_cohort + 1), place, path),
        "last_place": (found.leaves[-1], last, found.proof(last)[1:]),
    }  # fmt: skip
    return {
        f"bad_{name}": {
            "leaf": each.to_bytes().hex(),
            "place": at,
            "path": [beside.hex() for beside in proof],
            "verdict": NOT_LISTED.name,
        }
        for name, (each, at, proof) in cases.items()
    }
