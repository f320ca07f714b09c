"""Bids for requests of exchanges: the one entry of a context's public menu, at its price, with its notice.

    bidder = Bidder(settings, board, shelf, key, clock=clock, draw=entropy.bytes)
    bidder.respond(request)                      # a response as JSON, or a NoBid

A bid is made of the request's generalised context, its sizes and blocks, and nothing else. Where the page has
the device's client, and consent that is read here allows it, the personal lane's menu goes along under
`bid.ext.tacit`, with the markup of each of its ads. Such a device reports by itself, so the bid has no notice:
nothing is charged twice.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial

import msgspec

from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.menus import Lane, context_bytes
from tacit.bill.protocol.offers import ListedMenu
from tacit.bill.server.notices import NOTICE_NONCE_BYTES, BidNotice, NoticeKey
from tacit.deliver.consent.signals import decide_consent
from tacit.deliver.device.menu_book import listed_to_bytes
from tacit.services.ads import notices
from tacit.services.ads.menu_board import EpochMenus, MenuBoard
from tacit.services.ads.openrtb_ads import AdShelf, Blocks, RenderedAd, Size, fitting_ad
from tacit.services.ads.openrtb_messages import (
    CLIENT_VERSION,
    BidRequest,
    Imp,
    NoBid,
    consent_signals,
    price_text,
)
from tacit.services.ads.openrtb_settings import OpenRtbSettings
from tacit.services.endpoints import Clock

MOST_PERSONAL = 512 * 1024  # bytes of a personal menu's markup
DELIVERY_SECONDS = 60  # before its epoch expires, a notice is refused: its report has to reach the proxy

_encode = msgspec.json.encode


class LoadFirst(Exception):
    """Something is not in memory: `load` it, and ask again."""

    def __init__(self, load: Callable[[], Awaitable[object]]) -> None:
        self.load = load
        super().__init__("something has to be loaded first")


@dataclass(frozen=True, eq=False)
class Offering:
    """What is bid in one context and epoch."""

    head: EpochHead
    public: ListedMenu
    personal: ListedMenu | None

    @property
    def campaign(self) -> int:
        return self.public.menu.entries[0].campaign

    @cached_property
    def price_micros(self) -> int:
        return self.public.menu.entries[0].price_micros

    @cached_property
    def cpm(self) -> Decimal:
        return Decimal(self.price_micros).scaleb(-3)

    @cached_property
    def price(self) -> bytes:
        return price_text(self.price_micros)

    @cached_property
    def personal_fields(self) -> bytes:
        """Of `bid.ext.tacit`, without the ads."""
        assert self.personal is not None
        menu = self.personal.menu
        return _encode(
            {
                "version": CLIENT_VERSION,
                "epoch": self.head.epoch,
                "head": base64.b64encode(self.head.to_bytes()).decode(),
                "lane": str(menu.lane),
                "mechanism": menu.mechanism,
                "epsilon_micros": menu.epsilon_micros,
                "menu": menu.menu_id.hex(),
                "listed": base64.b64encode(listed_to_bytes(self.personal)).decode(),
            }
        )[1:-1]


class Bidder:
    """Makes a bid response of a bid request."""

    def __init__(
        self,
        settings: OpenRtbSettings,
        board: MenuBoard,
        shelf: AdShelf,
        key: NoticeKey,
        *,
        clock: Clock,
        draw: Callable[[int], bytes],
        is_spent: Callable[[bytes], bool] = lambda _menu_id: False,
    ) -> None:
        """`is_spent` says of a menu that nothing more of it can be charged."""
        self._is_spent = is_spent
        self._settings, self._board, self._shelf, self._key = settings, board, shelf, key
        self._clock, self._draw = clock, draw
        self._menus: EpochMenus | None = None
        self._offerings: dict[tuple[str | None, ...], Offering | None] = {}  # as many as the tables can tell
        self._notice = _encode(settings.charge_on) + b":" + _encode(f"{settings.url}{notices.PATH}/")[:-1]
        self._ends = (
            b',"cur":' + _encode(settings.currency)
            + b',"seatbid":[{"seat":' + _encode(settings.seat) + b',"bid":['
        )  # fmt: skip

    def respond(self, request: BidRequest) -> bytes | NoBid:
        """A response as JSON, or why there is none; LoadFirst where something is not in memory."""
        settings = self._settings
        if request.cur and settings.currency not in request.cur:
            return NoBid.CURRENCY
        if (request.wseat and settings.seat not in request.wseat) or settings.seat in (request.bseat or ()):
            return NoBid.SEAT
        if request.is_on_screen:
            return NoBid.UNSUPPORTED_MEDIA
        offering = self._offering(request)
        if offering is None or not offering.price_micros:
            return NoBid.NO_MENU
        if self._is_spent(offering.public.menu.menu_id):
            return NoBid.LIMIT_REACHED
        blocks = Blocks(request, settings.contexts.cattax)
        bids: list[bytes] = []
        reason: NoBid | None = None
        for imp in request.imp:
            found = self._bid(request, imp, offering, blocks)
            if isinstance(found, bytes):
                bids.append(found)
            elif reason is None:
                reason = found
        if not bids:
            assert reason is not None, "a request has an impression"
            return reason
        return b'{"id":' + _encode(request.id) + self._ends + b",".join(bids) + b"]}]}"

    def _offering(self, request: BidRequest) -> Offering | None:
        menus = self._board.known()
        if menus is None:
            raise LoadFirst(self._board.current)
        if menus is not self._menus:
            self._menus, self._offerings = menus, {}
        told = self._settings.contexts.told(request)
        if told not in self._offerings:
            self._offerings[told] = self._find(menus, told)
        return self._offerings[told]

    def _find(self, menus: EpochMenus, told: Sequence[str | None]) -> Offering | None:
        """The finest context that there is a menu for, of all that hold."""
        for node in self._settings.contexts.nodes(told):
            place = context_bytes(node)
            if (public := menus.listed(place, Lane.PUBLIC)) is not None:
                return Offering(menus.head, public, menus.listed(place, Lane.PERSONAL))
        return None

    def _bid(self, request: BidRequest, imp: Imp, offering: Offering, blocks: Blocks) -> bytes | NoBid:
        if imp.banner is None or (imp.qty is not None and imp.qty.multiplier not in (None, 1)):
            return NoBid.UNSUPPORTED_MEDIA
        if imp.pmp is not None and imp.pmp.private_auction not in (None, 0):
            return NoBid.DEALS_ONLY
        if imp.bidfloor:
            if (imp.bidfloorcur or "USD") != self._settings.currency:
                return NoBid.CURRENCY
            if imp.bidfloor > offering.cpm:
                return NoBid.BELOW_FLOOR
        found = fitting_ad(self._ads(offering.campaign), imp.banner, blocks)
        if isinstance(found, NoBid):
            return found
        ad, (width, height) = found
        nonce = self._draw(NOTICE_NONCE_BYTES)
        personal = self._personal(request, imp, offering, blocks) if imp.has_client else b""
        return b"".join(
            (
                b'{"id":"', nonce.hex().encode(), b'","impid":', _encode(imp.id), b',"price":', offering.price,
                b",", personal or self._notice_field(request, offering, nonce), b",", ad.fields,
                b',"w":%d,"h":%d,"exp":%d}' % (width, height, self._settings.notice_seconds),
            )
        )  # fmt: skip

    def _notice_field(self, request: BidRequest, offering: Offering, nonce: bytes) -> bytes:
        expires = min(self._clock() + self._settings.notice_seconds, offering.head.expires - DELIVERY_SECONDS)
        notice = BidNotice(
            offering.head.epoch, offering.public.menu.menu_id, 1, max(0, expires), nonce, bool(request.test)
        )
        return self._notice + self._key.sign(notice).encode() + b'"'

    def _ads(self, campaign: int) -> Sequence[RenderedAd]:
        found = self._shelf.known(campaign)
        if found is None:
            raise LoadFirst(partial(self._shelf.load, campaign))
        return found

    def _personal(self, request: BidRequest, imp: Imp, offering: Offering, blocks: Blocks) -> bytes:
        """`bid.ext`, where consent lets a device choose, and all that it may choose can be shown here."""
        signals = consent_signals(request)
        if offering.personal is None or imp.banner is None or signals is None or request.test:
            return b""
        if not decide_consent(signals, vendor=self._settings.vendor).personal:
            return b""
        ads: list[dict[str, object]] = []
        for index, entry in enumerate(offering.personal.menu.entries, start=1):
            found = fitting_ad(self._ads(entry.campaign), imp.banner, blocks)
            if isinstance(found, NoBid):
                return b""
            ads.append(_choosable(index, entry.campaign, *found))
        spelled = _encode(ads)
        if len(spelled) > MOST_PERSONAL:
            return b""
        return b'"ext":{"tacit":{' + offering.personal_fields + b',"ads":' + spelled + b"}}"


def _choosable(index: int, campaign: int, ad: RenderedAd, size: Size) -> dict[str, object]:
    """An entry with its ad; what caps and categories say is spelled as in packs, for the device's choice."""
    return {
        "index": index, "campaign": campaign, "crid": str(ad.creative), "adomain": [ad.domain],
        "adm": ad.markup, "w": size[0], "h": size[1], "caps": list(ad.caps), "categories": list(ad.categories),
    }  # fmt: skip
