"""Ads as exchanges take them: the creatives of campaigns, rendered to markup once, and what may be shown where.

    shelf = AdShelf(campaigns, clock)
    ads = shelf.known(7) or await shelf.load(7)
    fitting_ad(ads, imp.banner, blocks)

An image is in its markup (`data:`), so that whoever sees the ad asks nobody for it, and this server learns no
address; larger ones are not offered here. All that an advertiser wrote is escaped, macros of exchanges too: no
price may be filled into a title. HTML is as the sanitiser left it.
"""

from __future__ import annotations

import asyncio
import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from tacit.deliver.campaigns.campaign import AdCampaign, CampaignStatus
from tacit.deliver.campaigns.creatives import HTML_MEDIA, TEXT_MEDIA, Creative
from tacit.deliver.campaigns.store import CampaignStore
from tacit.deliver.protocol.packs import is_excluded
from tacit.display import brief
from tacit.errors import TacitError
from tacit.services.ads.openrtb_messages import Banner, BidRequest, NoBid
from tacit.services.endpoints import Clock, LruCache

MOST_IMAGE_BYTES = 48 * 1024  # of one that is sent with every bid
MOST_CAMPAIGNS = 500  # whose markup is kept in memory
MOST_CHANGES = 500  # that are looked through; beyond, all is read again
LEAST_WIDTH, LEAST_HEIGHT = 120, 50  # pixels, for a text to be read in
TEXT_ONLY = 13  # AdCOM, list of creative attributes
TEXT_BANNER, IMAGE_BANNER = 1, 2  # AdCOM, list of banner ad types: XHTML text ad, XHTML banner ad
BANNER_MARKUP = 1  # `bid.mtype`

Size = tuple[int, int]


@dataclass(frozen=True)
class RenderedAd:
    """A creative, ready to be bid.

    size         of an image; None where it fills what there is
    banner_type  by AdCOM's list, as `banner.btype` blocks
    fields       its part of a bid, as JSON between braces
    caps         how often a device should show its campaign, as packs spell it
    """

    creative: int
    size: Size | None
    media: str
    banner_type: int
    attributes: tuple[int, ...]
    domain: str
    categories: tuple[str, ...]
    markup: str
    fields: bytes
    caps: tuple[Mapping[str, int], ...] = ()


class Blocks:
    """What a request does not want: categories and advertisers' domains."""

    def __init__(self, request: BidRequest, cattax: int) -> None:
        self._not = tuple(request.bcat or ())
        self._only = None if not request.acat else tuple(request.acat)
        self._domains = frozenset(each.strip().lower().removeprefix("www.") for each in request.badv or ())
        # Codes of another taxonomy cannot be held against ours.
        self._unreadable = bool(self._not or self._only) and (request.cattax or 1) != cattax

    def __repr__(self) -> str:
        return brief(self, categories=len(self._not), domains=len(self._domains))

    def refuse(self, ad: RenderedAd) -> bool:
        """Whether the ad is unwanted, or nobody can say: an ad without categories is not shown where some are
        blocked."""
        if self._unreadable or ((self._not or self._only is not None) and not ad.categories):
            return True
        if is_excluded(ad.categories, self._not):
            return True
        if self._only is not None and not all(is_excluded((own,), self._only) for own in ad.categories):
            return True
        if not self._domains:
            return False
        parts = ad.domain.split(".")
        return any(".".join(parts[at:]) in self._domains for at in range(len(parts)))


def fitting_ad(ads: Sequence[RenderedAd], banner: Banner, blocks: Blocks) -> tuple[RenderedAd, Size] | NoBid:
    """The first ad that fits the banner, with the size that it takes there; images of a size come first."""
    if not ads:
        return NoBid.NO_CREATIVE
    sizes = list(dict.fromkeys(banner.sizes()))
    types, attributes, media = banner.btype or (), banner.battr or (), banner.mimes
    reason = NoBid.NO_CREATIVE
    for ad in ads:
        size = _size_in(ad, sizes)
        if size is None or ad.banner_type in types or any(each in attributes for each in ad.attributes):
            continue
        if media and ad.size is not None and ad.media not in media:
            continue
        if blocks.refuse(ad):
            reason = NoBid.BLOCKED
            continue
        return ad, size
    return reason


def _size_in(ad: RenderedAd, sizes: Sequence[Size]) -> Size | None:
    if ad.size is not None:
        return ad.size if ad.size in sizes else None
    return next((size for size in sizes if size[0] >= LEAST_WIDTH and size[1] >= LEAST_HEIGHT), None)


class AdShelf:
    """Rendered ads by campaign; what was changed counts within some two seconds, and is read again."""

    def __init__(self, store: CampaignStore, clock: Clock, cattax: int = 1) -> None:
        self._store, self._clock, self._cattax = store, clock, cattax
        self._ads: LruCache[int, tuple[RenderedAd, ...]] = LruCache(MOST_CAMPAIGNS)
        self._revision: int | None = None
        self._looked = -1
        self._look: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return brief(self, campaigns=len(self._ads))

    def known(self, campaign: int) -> tuple[RenderedAd, ...] | None:
        """Its ads, where they are in memory; once per second a look at the store begins beside it."""
        now = self._clock()
        if now != self._looked and (self._look is None or self._look.done()):
            self._looked = now
            self._look = asyncio.create_task(self._forget_changed())
        return self._ads.get(campaign)

    async def load(self, campaign: int) -> tuple[RenderedAd, ...]:
        kept, revision = self._ads, self._revision
        found = await asyncio.to_thread(self._read, campaign)
        # Where something has changed meanwhile it may be older than the change, and is read again.
        return kept.put(campaign, found) if revision == self._revision else found

    async def _forget_changed(self) -> None:
        try:
            revision, changed = await asyncio.to_thread(self._changed)
        except TacitError:  # what was known goes on; whoever asks for something new is told
            return
        if revision == self._revision:
            return
        self._revision = revision
        if changed is None:
            self._ads = LruCache(MOST_CAMPAIGNS)
            return
        for number in changed:
            self._ads.drop(number)

    def _changed(self) -> tuple[int, set[int] | None]:
        """The last change that there is, and the campaigns that changed since ours; None: all may have."""
        revision = self._store.revision()
        if self._revision is None or not 0 <= revision - self._revision <= MOST_CHANGES:
            return revision, None
        found = (
            self._store.changes(after=self._revision, most=MOST_CHANGES) if revision > self._revision else ()
        )
        return revision, {number for change in found if (number := change.campaign) is not None}

    def _read(self, number: int) -> tuple[RenderedAd, ...]:
        """None of a campaign that is paused, ended, or has no creative that can be sent."""
        stored = self._store.campaign(number)
        if stored is None or stored.campaign.status is not CampaignStatus.ACTIVE:
            return ()
        found = []
        for creative in self._store.creatives(number):
            if creative.width is not None and creative.size > MOST_IMAGE_BYTES:
                continue
            content = self._store.content(creative.number)
            if content is not None:
                found.append(render_ad(stored.campaign, creative, content, self._cattax))
        # Images first, then HTML, then texts; of a kind the newest.
        order = {IMAGE_BANNER: 0, TEXT_BANNER: 2}
        return tuple(sorted(found, key=lambda ad: (order[ad.banner_type], ad.size is None, -ad.creative)))


def render_ad(campaign: AdCampaign, creative: Creative, content: bytes, cattax: int) -> RenderedAd:
    """A creative as a bid has it."""
    host = (urlsplit(creative.address).hostname or "").removeprefix("www.")
    is_text = creative.media == TEXT_MEDIA
    size = None
    if creative.width is not None and creative.height is not None:
        size = creative.width, creative.height
    attributes = (TEXT_ONLY,) if is_text else ()
    said: dict[str, object] = {
        "adm": (markup := render_markup(creative, content)),
        "adomain": [host],
        "cid": str(campaign.number),
        "crid": str(creative.number),
        "mtype": BANNER_MARKUP,
    }
    if campaign.categories:
        said |= {"cat": list(campaign.categories), "cattax": cattax}
    if attributes:
        said["attr"] = list(attributes)
    return RenderedAd(
        creative.number, size, creative.media, TEXT_BANNER if is_text else IMAGE_BANNER, attributes, host,
        campaign.categories, markup, msgspec.json.encode(said)[1:-1],
        tuple({"impressions": cap.impressions, "seconds": cap.seconds} for cap in campaign.caps),
    )  # fmt: skip


def render_markup(creative: Creative, content: bytes) -> str:
    """HTML of an ad, without scripts, that asks for nothing and leads to one address."""
    link = (
        f'<a href="{_escape(creative.address)}" target="_blank" '
        'rel="noopener noreferrer nofollow sponsored" style="text-decoration:none;color:inherit">'
    )
    if creative.media == HTML_MEDIA:
        return f"<div>{_without_macros(content.decode())}</div>"
    if creative.media == TEXT_MEDIA:
        words = f"<br>{_escape(creative.text)}" if creative.text else ""
        return f"{link}<strong>{_escape(creative.title)}</strong>{words}</a>"
    spelled = base64.b64encode(content).decode()
    return (
        f'{link}<img src="data:{creative.media};base64,{spelled}" width="{creative.width}" '
        f'height="{creative.height}" alt="{_escape(creative.title)}" style="border:0;display:block"></a>'
    )


def _escape(text: str) -> str:
    return _without_macros(html.escape(text))


def _without_macros(markup: str) -> str:
    """The same to a browser, with no macro in it that an exchange would fill in: ${...}, %%...%%, {{...}}."""
    for sign, entity in (("${", "&#36;{"), ("%%", "&#37;&#37;"), ("{{", "&#123;&#123;")):
        markup = markup.replace(sign, entity)
    return markup
