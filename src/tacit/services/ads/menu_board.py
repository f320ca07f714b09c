"""Menus of the public lane for whoever asks: `GET /menus?context=1:North&context=1:Food`.

One `context` per attribute, in their order: its level and its value. The answer says what everybody is shown in
that context until the epoch closes, and at which price; `listed` is the menu with its token key and the proof
that both stand in the epoch's directory, as devices check it. It is the same for all who ask, so that any cache
may hand it on: it carries an ETag, and the second at which it is over.

Who asks here tells this server a context and an address: pages and caches do. A device asks through the proxy.

An answer is made when its context is first asked for in an epoch, and kept as bytes until the epoch is over.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from email.utils import formatdate
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, quote_plus

from starlette.types import Receive, Scope, Send

from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.encoding import BillVerdict, refuse_malformed
from tacit.bill.protocol.menus import CONTEXT_BYTES, Lane, PricedMenu, context_bytes
from tacit.bill.protocol.offers import ListedMenu
from tacit.bill.server.party import AdServer
from tacit.deliver.device.menu_book import listed_to_bytes
from tacit.display import brief
from tacit.errors import BillRefused
from tacit.schema.contexts.hierarchy import Node
from tacit.services.ads.public_operations import MENUS
from tacit.services.any_origin import page_routes
from tacit.services.background import AppPart
from tacit.services.endpoints import Clock, PreparedAnswer
from tacit.services.epochs import EpochKeeper
from tacit.services.problems import problem_from_error

if TYPE_CHECKING:
    from tacit.services.ads.parts import RunningAds

PATH = "/menus"
LONGEST_QUERY = 4 * CONTEXT_BYTES  # each byte of a value may be three characters
MOST_LEVEL = 255


class EpochMenus:
    """The menus of one epoch, as they are looked up by context."""

    def __init__(self, head: EpochHead, menus: Mapping[tuple[bytes, Lane], ListedMenu]) -> None:
        self.head, self._menus = head, menus
        self.answers: dict[bytes, PreparedAnswer] = {}  # by the query's usual spellings

    def __repr__(self) -> str:
        return brief(self, epoch=self.head.epoch, answers=len(self.answers))

    def listed(self, context: bytes, lane: Lane) -> ListedMenu | None:
        """The menu of a context (`context_bytes`) and lane, with its proof."""
        return self._menus.get((context, lane))

    def answer(self, query: bytes) -> PreparedAnswer:
        """What a query gets; BillRefused where it names no context of this epoch."""
        node = parse_query(query)
        listed = self.listed(context_bytes(node), Lane.PUBLIC)
        if listed is None:
            raise BillRefused(BillVerdict.UNKNOWN_CONTEXT)
        spellings = query_spellings(node)
        found = self.answers.get(spellings[0]) or _make_answer(self.head, listed)
        self.answers |= dict.fromkeys(spellings, found)
        return found


class MenuBoard:
    """The epoch that is open, looked up at most once per second: another one takes its place at once."""

    def __init__(self, server: AdServer, keeper: EpochKeeper, clock: Clock) -> None:
        self._server, self._keeper, self._clock = server, keeper, clock
        self._second = -1
        self._current: EpochMenus | None = None

    def known(self) -> EpochMenus | None:
        """The menus that are offered now, where that was looked up within this second."""
        return self._current if self._clock() == self._second else None

    async def current(self) -> EpochMenus:
        """The menus that are offered now; BillRefused where none are."""
        now = self._clock()
        if now != self._second:
            head = self._keeper.offered()
            if head is None:
                self._current = None
            elif self._current is None or self._current.head.epoch != head.epoch:
                self._current = await asyncio.to_thread(self._load, head.epoch)
            self._second = now
        if self._current is None:
            raise BillRefused(BillVerdict.STALE_EPOCH, "no epoch is open now: ask again")
        return self._current

    def _load(self, epoch: int) -> EpochMenus:
        """From memory, unless another process opened it."""
        opened = self._server.load_epoch(epoch)
        return EpochMenus(opened.head, {place: each.listed for place, each in opened.menus.items()})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer `GET /menus`: an ASGI endpoint, since nothing but a look-up is to be done."""
        try:
            menus, query = await self.current(), scope["query_string"]
            found = menus.answers.get(query) or menus.answer(query)
        except BillRefused as refused:
            await problem_from_error(refused)(scope, receive, send)
            return
        await found.send(scope, send)


def menu_part(running: RunningAds) -> AppPart:
    """The public lane's menus over GET."""
    running.api.describe("GET", PATH, MENUS)
    return AppPart(routes=page_routes(PATH, GET=running.paced(running.board)))


def parse_query(query: bytes) -> Node:
    """The context that a query names; BillRefused(MALFORMED) where it is none."""
    try:
        if len(query) > LONGEST_QUERY:
            raise ValueError
        said = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", strict_parsing=True)
    except ValueError:  # of UTF-8 too
        said = []
    levels: list[int] = []
    values: list[str] = []
    for name, spelled in said:
        level, colon, value = spelled.partition(":")
        is_level = level.isascii() and level.isdecimal() and len(level) <= 3 and int(level) <= MOST_LEVEL
        if name != "context" or not (is_level and colon and value) or str(int(level)) != level:
            levels.clear()
            break
        levels.append(int(level))
        values.append(value)
    if not levels:
        refuse_malformed("expected context=LEVEL:VALUE for each attribute, and nothing else")
    return Node(tuple(levels), tuple(values))


def query_spellings(node: Node) -> tuple[bytes, bytes]:
    """How a context is asked for: as a person writes it, and as forms and HTTP libraries do."""
    said = [f"{level}:{value}" for level, value in zip(node.levels, node.values, strict=True)]
    by_hand = "&".join(f"context={quote(each, safe=':*')}" for each in said)
    by_form = "&".join(f"context={quote_plus(each)}" for each in said)
    return by_hand.encode(), by_form.encode()


def menu_record(head: EpochHead, listed: ListedMenu) -> dict[str, object]:
    """A menu for machines: what it is of, until when, its entries with their prices and reasons."""
    menu = listed.menu
    return {
        "epoch": head.epoch,
        "opens": head.opens,
        "closes": head.closes,
        "expires": head.expires,
        "context": {"levels": list(menu.node.levels), "values": list(menu.node.values)},
        "lane": str(menu.lane),
        "mechanism": menu.mechanism,
        "epsilon_micros": menu.epsilon_micros,
        "menu": menu.menu_id.hex(),
        "rule": menu.rule,
        "entries": _entry_records(menu),
        "listed": base64.b64encode(listed_to_bytes(listed)).decode(),
    }


def _entry_records(menu: PricedMenu) -> list[dict[str, object]]:
    return [
        {
            "index": index,
            "campaign": entry.campaign,
            "price_micros": entry.price_micros,
            "reason": menu.reason(index),
        }
        for index, entry in enumerate(menu.entries, start=1)
    ]


def _make_answer(head: EpochHead, listed: ListedMenu) -> PreparedAnswer:
    body = json.dumps(menu_record(head, listed), separators=(",", ":"), ensure_ascii=False).encode()
    expires = formatdate(head.closes, usegmt=True).encode()
    headers = (b"cache-control", b"public, must-revalidate"), (b"expires", expires)
    return PreparedAnswer.of(body, listed.menu.menu_id.hex(), *headers)
