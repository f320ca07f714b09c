"""Billing's messages spelled field by field with `struct`: a second writer, which also writes what the first
refuses to."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.bill.protocol.menus import PricedMenu
from tacit.schema.contexts.hierarchy import Node

LANES = {"public": 0, "personal": 1}
NO_RANK = 255


def blob(data: bytes, layout: str = "H") -> bytes:
    return struct.pack(f">{layout}", len(data)) + data


def spelled_context(node: Node) -> bytes:
    said = (
        bytes([level]) + blob(value.encode()) for level, value in zip(node.levels, node.values, strict=True)
    )
    return bytes([len(node.levels)]) + b"".join(said)


def menu_fields(menu: PricedMenu) -> dict[str, Any]:
    """A menu's fields in plain values, as JSON can hold them."""
    return {
        "epoch": menu.epoch,
        "lane": str(menu.lane),
        "context": context_fields(menu.node),
        "rule": menu.rule,
        "mechanism": menu.mechanism,
        "epsilon_micros": menu.epsilon_micros,
        "smallest_cohort": menu.smallest_cohort,
        "reserve_micros": str(menu.reserve_micros),
        "ctr_floor": menu.ctr_floor,
        "nothing_micros": menu.nothing_micros,
        "nothing_rank": menu.nothing_rank,
        "prior": menu.prior,
        "entries": [
            {
                "campaign": str(entry.campaign),
                "price_micros": str(entry.price_micros),
                "bid_micros": str(entry.bid_micros),
                "rate": entry.rate,
                "setter": str(entry.setter),
            }
            for entry in menu.entries
        ],
        "finer": [
            {
                "context": context_fields(node),
                "rates": [{"index": index, "rate": rate} for index, rate in sorted(table.items())],
            }
            for node, table in sorted(menu.finer.items())
        ],
    }


def context_fields(node: Node) -> list[dict[str, Any]]:
    return [{"level": level, "value": value} for level, value in zip(node.levels, node.values, strict=True)]


def node_of(fields: Sequence[Mapping[str, Any]]) -> Node:
    return Node(tuple(each["level"] for each in fields), tuple(each["value"] for each in fields))


def spelled_menu(fields: Mapping[str, Any], *, finer: bytes | None = None) -> bytes:
    """A menu of these fields, whatever they are; `finer` takes the place of the finer rates, count included."""
    lane = fields["lane"]
    rank, worth = fields["nothing_rank"], fields["nothing_micros"]
    parts = [
        struct.pack(">BIB", 1, fields["epoch"], LANES.get(lane, lane)),
        blob(_context(fields["context"])), blob(_text(fields["rule"])), blob(_text(fields["mechanism"])),
        struct.pack(">II", fields["epsilon_micros"], fields["smallest_cohort"]),
        struct.pack(">Qd", int(fields["reserve_micros"]), fields["ctr_floor"]),
        struct.pack(">Bd", NO_RANK if rank is None else rank, 0.0 if worth is None else worth),
        blob(_text(fields["prior"])), bytes([len(fields["entries"])]),
    ]  # fmt: skip
    for entry in fields["entries"]:
        wholes = (int(entry[name]) for name in ("campaign", "price_micros", "bid_micros"))
        parts.append(struct.pack(">QQQdq", *wholes, entry["rate"], int(entry["setter"])))
    parts.append(struct.pack(">H", len(fields["finer"])) if finer is None else finer)
    for each in fields["finer"] if finer is None else ():
        parts += [blob(_context(each["context"])), bytes([len(each["rates"])])]
        parts += [struct.pack(">Bd", rate["index"], rate["rate"]) for rate in each["rates"]]
    return b"".join(parts)


def spelled_leaf(context: bytes, lane: int, menu_id: bytes, modulus: bytes, smallest_cohort: int) -> bytes:
    return blob(context) + bytes([lane]) + menu_id + modulus + struct.pack(">I", smallest_cohort)


def spelled_head(
    epoch: int, opens: int, closes: int, expires: int, menus: int, root: bytes, sealing_key: bytes
) -> bytes:
    """The body of an epoch's head, which both parties sign."""
    return struct.pack(">BIQQQI", 1, epoch, opens, closes, expires, menus) + root + sealing_key


def spelled_request(
    epoch: int, lane: int, answer_key: bytes, known: bytes, context: bytes, blinded: Sequence[bytes]
) -> bytes:
    padded = context + bytes(max(0, 160 - len(context)))
    head = struct.pack(">BIB", 1, epoch, lane) + answer_key + known + bytes([len(context)])
    return head + padded[:160] + b"".join(blinded)


def spelled_report(
    menu_id: bytes, nonce: bytes, token: bytes, commitment: bytes, sealed: bytes, version: int = 1
) -> bytes:
    return bytes([version]) + menu_id + nonce + token + commitment + sealed


def root_by_definition(leaves: Sequence[bytes]) -> bytes:
    """The tree's root as RFC 9162, 2.1.1 defines it, recursively, over the leaves' bytes."""
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    below = root_by_definition(leaves[:split]) + root_by_definition(leaves[split:])
    return hashlib.sha256(b"\x01" + below).digest()


def path_by_definition(place: int, leaves: Sequence[bytes]) -> list[bytes]:
    """An inclusion proof as RFC 9162, 2.1.3.1 defines it."""
    if len(leaves) == 1:
        return []
    split = 1 << (len(leaves) - 1).bit_length() - 1
    if place < split:
        return [*path_by_definition(place, leaves[:split]), root_by_definition(leaves[split:])]
    return [*path_by_definition(place - split, leaves[split:]), root_by_definition(leaves[:split])]


def _context(said: Sequence[Mapping[str, Any]] | bytes) -> bytes:
    return said if isinstance(said, bytes) else spelled_context(node_of(said))


def _text(said: str | bytes) -> bytes:
    return said if isinstance(said, bytes) else said.encode()
