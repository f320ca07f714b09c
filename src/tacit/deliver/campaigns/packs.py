"""The ads of a menu's campaigns as devices get them: within a size, every campaign's smallest ad first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tacit.bill.protocol.menus import PricedMenu
from tacit.deliver.campaigns.campaign import AdCampaign
from tacit.deliver.campaigns.creatives import Creative
from tacit.deliver.protocol.packs import (
    MOST_CAMPAIGN_BYTES,
    MOST_PACK_BYTES,
    MOST_PACKED,
    MenuPack,
    PackedCampaign,
    PackedCreative,
)


def pack_menu(
    menu: PricedMenu,
    campaigns: Mapping[int, AdCampaign],
    creatives: Mapping[int, Sequence[Creative]],
    content: Callable[[int], bytes | None],
    *,
    campaign_bytes: int = MOST_CAMPAIGN_BYTES,
    pack_bytes: int = MOST_PACK_BYTES,
) -> MenuPack:
    """All campaigns of a menu; of each up to `MOST_PACKED` ads.

    Each campaign's smallest ad comes before any campaign's second, in the menu's order. A first ad whose
    content has no room is there without it; a later one is not there. A campaign that nobody handed in (one of
    a market file) has no ads.
    """
    ordered = {
        entry.campaign: sorted(
            creatives.get(entry.campaign, ()), key=lambda each: (each.size, each.number)
        )[:MOST_PACKED]
        for entry in menu.entries
    }  # fmt: skip
    packed: dict[int, list[PackedCreative]] = {number: [] for number in ordered}
    used = dict.fromkeys(ordered, 0)
    for turn in range(MOST_PACKED):
        for number, several in ordered.items():
            if turn >= len(several):
                continue
            ad, left = several[turn], pack_bytes - sum(used.values())
            fits = ad.size <= min(left, campaign_bytes - used[number])
            if fits:
                used[number] += ad.size
            if fits or turn == 0:
                packed[number].append(_packed(ad, content(ad.number) if fits and ad.size else None))
    return MenuPack(
        menu.menu_id,
        tuple(_campaign(number, campaigns.get(number), packed[number]) for number in ordered),
    )


def _campaign(number: int, said: AdCampaign | None, ads: Sequence[PackedCreative]) -> PackedCampaign:
    if said is None:
        return PackedCampaign(number, creatives=tuple(ads))
    return PackedCampaign(number, said.caps, said.categories, tuple(ads))


def _packed(ad: Creative, content: bytes | None) -> PackedCreative:
    return PackedCreative(
        ad.number, ad.media, ad.title, ad.text, ad.address, ad.width, ad.height, content or None
    )
