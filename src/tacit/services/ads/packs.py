"""The ads of a menu for whoever shows them: `GET /packs/{menu's id}`, the same bytes for all who ask.

A device needs an ad before it has chosen one, and must not fetch the chosen one alone: it gets all of its menu
(`deliver/protocol/packs.py`). It asks the proxy (`GET /billing/packs/...`), which hands on what stands here,
since whoever asks here tells this server an address and a context. Pages and caches may.

A pack is made when it is first asked for and again when a campaign or an ad was changed, looked up at most once
per second. It holds for a minute in caches, and is gone with its epoch.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, NamedTuple

from starlette.types import Receive, Scope, Send

from tacit.bill.protocol.encoding import BillVerdict
from tacit.deliver.campaigns.packs import pack_menu
from tacit.errors import BillRefused
from tacit.services.ads.public_operations import PACKS
from tacit.services.any_origin import page_routes
from tacit.services.background import AppPart
from tacit.services.endpoints import LruCache, PreparedAnswer, menu_id_of
from tacit.services.problems import problem_from_error

if TYPE_CHECKING:
    from tacit.services.ads.parts import RunningAds

PATH = "/packs/{menu_id}"
FRESH_SECONDS = 60
MOST_KEPT_BYTES = 64 * 2**20


class KeptPack(NamedTuple):
    """A pack as it is sent, and what it was made of."""

    epoch: int
    revision: int
    answer: PreparedAnswer


class PackBoard:
    """Packs of the menus of epochs that have not expired."""

    def __init__(self, running: RunningAds) -> None:
        self._running = running
        self._answers: LruCache[bytes, KeptPack] = LruCache(
            MOST_KEPT_BYTES, lambda each: len(each.answer.body["body"])
        )
        self._looked: tuple[int, int] = (-1, 0)  # a second, and the revision of campaigns then

    def answer(self, menu_id: bytes) -> KeptPack:
        """The pack of a menu; BillRefused where there is no such menu any more."""
        revision, found = self._revision(), self._answers.get(menu_id)
        epochs = {head.epoch for head in self._running.keeper.heads()}
        if found is not None and found.revision == revision and found.epoch in epochs:
            return found
        menu = self._running.store.menu(menu_id)
        if menu is None or menu.epoch not in epochs:
            raise BillRefused(BillVerdict.UNKNOWN_MENU)
        campaigns = self._running.campaigns
        numbers = [entry.campaign for entry in menu.entries]
        kept = {number: campaigns.campaign(number) for number in numbers}
        pack = pack_menu(
            menu,
            {number: each.campaign for number, each in kept.items() if each is not None},
            {number: campaigns.creatives(number) for number, each in kept.items() if each is not None},
            campaigns.content,
        )
        body = pack.signed(self._running.server.sign)
        fresh = b"cache-control", f"public, max-age={FRESH_SECONDS}".encode()
        answer = PreparedAnswer.of(body, hashlib.sha256(body).hexdigest(), fresh)
        return self._answers.put(menu_id, KeptPack(menu.epoch, revision, answer))

    def _revision(self) -> int:
        now = self._running.clock()
        if self._looked[0] != now:
            self._looked = now, self._running.campaigns.revision()
        return self._looked[1]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI endpoint, since mostly nothing but a look-up is to be done."""
        try:
            found = await asyncio.to_thread(self.answer, menu_id_of(scope["path_params"]["menu_id"]))
        except BillRefused as refused:
            await problem_from_error(refused)(scope, receive, send)
            return
        await found.answer.send(scope, send)


def pack_part(running: RunningAds) -> AppPart:
    """Packs over GET."""
    running.api.describe("GET", PATH, PACKS)
    return AppPart(routes=page_routes(PATH, GET=running.paced(PackBoard(running))))
