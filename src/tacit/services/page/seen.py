"""What a party of a demonstration saw last: its messages, and what it can read in them, newest last.

Each party tells of what it has in its hands where it has it: the proxy of addresses, lengths, which packs and
statements are asked for, and what stands in the clear in a report; the ad server of requests that it opened and
of batches, whose reports have no address and no order. Neither is told anything by the other. The last hundred
are in memory, and gone with the process; outside of a demonstration nothing is kept, since nobody looks on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from tacit.bill.protocol.batches import BatchStatement
from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import PricedMenu
from tacit.bill.protocol.offers import NO_MENU, OfferRequest
from tacit.bill.protocol.reports import ImpressionReport
from tacit.bill.proxy.party import BillingProxy
from tacit.bill.server.store import RedeemedBatch
from tacit.display import brief
from tacit.schema.contexts.hierarchy import Node
from tacit.services.endpoints import Clock

MOST_MESSAGES = 100
SHOWN_BYTES = 64  # of a message, in hexadecimal digits
MOST_ENTRIES = 50  # reports of a batch that are told one by one


class SeenMessages:
    """The latest messages of one party; any thread may add to them."""

    def __init__(self, clock: Clock, most: int = MOST_MESSAGES) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._messages: deque[dict[str, Any]] = deque(maxlen=most)

    def __repr__(self) -> str:
        return brief(self, messages=len(self._messages))

    def note(self, kind: str, data: bytes, **fields: Any) -> None:
        """A message of this kind, as it came or left, and what the party reads in it."""
        with self._lock:
            self._messages.append(self._message(kind, data, fields))

    def note_again(self, kind: str, data: bytes, **fields: Any) -> None:
        """The same of what devices ask again and again: it stands once, as it came last, with how often."""
        with self._lock:
            before = next((each for each in self._messages if _is_of(each, kind, fields)), None)
            if before is not None:
                self._messages.remove(before)
            times = 1 if before is None else before["fields"]["times"] + 1
            self._messages.append(self._message(kind, data, {**fields, "times": times}))

    def _message(self, kind: str, data: bytes, fields: dict[str, Any]) -> dict[str, Any]:
        shown = data[:SHOWN_BYTES].hex()
        return {"at": self._clock(), "kind": kind, "bytes": len(data), "fields": fields, "hex": shown}

    def latest(self) -> list[dict[str, Any]]:
        """The oldest first."""
        with self._lock:
            return list(self._messages)


def _is_of(message: dict[str, Any], kind: str, fields: dict[str, Any]) -> bool:
    told = {name: each for name, each in message["fields"].items() if name != "times"}
    return message["kind"] == kind and told == fields


class AdServerSight:
    """What the ad server sees: generalised contexts, and shuffled reports (an `AdServerOnlooker`)."""

    def __init__(self, seen: SeenMessages) -> None:
        self._seen = seen

    def request(self, sealed: bytes, request: OfferRequest) -> None:
        self._seen.note(
            "request",
            sealed,
            **_context(request.node),
            lane=str(request.lane),
            epoch=request.epoch,
            tokens=len(request.blinded),
            knows_menu=request.known != NO_MENU,
        )

    def batch(self, data: bytes, batch: RedeemedBatch, menu: PricedMenu) -> None:
        self._seen.note(
            "batch",
            data,
            batch=batch.batch_id.hex(),
            menu=batch.menu_id.hex(),
            **_context(menu.node),
            lane=str(menu.lane),
            epoch=menu.epoch,
            reports=len(batch.reports),
            entries=[
                {
                    "entry": each.index,
                    "campaign": each.campaign,
                    "price_micros": each.price_micros,
                    "verdict": each.verdict.name,
                }
                for each in batch.reports[:MOST_ENTRIES]
            ],
        )


class ProxySight:
    """What the proxy sees: addresses, lengths, and which menus packs and reports are of (a `ProxyOnlooker`)."""

    def __init__(self, seen: SeenMessages, proxy: BillingProxy) -> None:
        self._seen, self._proxy = seen, proxy

    def head(self, address: str, answer: bytes) -> None:
        self._seen.note("head", answer, address=address, epoch=EpochHead.from_bytes(answer).epoch)

    def request(self, address: str, sealed: bytes, answer: bytes) -> None:
        self._seen.note("request", sealed, address=address, length=len(sealed), answer_length=len(answer))

    def report(self, address: str, report: bytes, verdict: BillVerdict) -> None:
        read = ImpressionReport.from_bytes(report)
        self._seen.note(
            "report",
            report,
            address=address,
            length=len(report),
            **self._menu(read.menu_id),
            nonce=read.nonce.hex(),
            commitment=read.commitment.hex(),
            verdict=verdict.name,
        )

    def pack(self, address: str, menu_id: bytes, answer: bytes) -> None:
        self._seen.note("pack", answer, address=address, **self._menu(menu_id))

    def statement(self, address: str, nonce: bytes, answer: bytes) -> None:
        self._seen.note_again("statement", answer, address=address, nonce=nonce.hex(), known=bool(answer))

    def sizes(self, address: str, epoch: int, answer: bytes) -> None:
        self._seen.note_again("sizes", answer, address=address, epoch=epoch)

    def batches(self, formed: Sequence[BatchStatement]) -> None:
        """Batches that were shuffled, signed, and are on their way."""
        for each in formed:
            told = self._menu(each.menu_id) | {"epoch": each.epoch, "reports": each.reports}
            self._seen.note("batch", each.to_bytes(), batch=each.batch_id.hex(), **told)

    def _menu(self, menu_id: bytes) -> dict[str, Any]:
        """Which menu it is, and of which context: the directory that the proxy countersigned says so."""
        leaf = self._proxy.leaf(menu_id)
        told = {} if leaf is None else {**_context(leaf.node), "lane": str(leaf.lane)}
        return {"menu": menu_id.hex(), **told}


def _context(node: Node) -> dict[str, Any]:
    said = str(Node(node.levels, node.values))
    return {"context": said, "levels": list(node.levels), "values": list(node.values)}
