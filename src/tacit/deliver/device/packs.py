"""The ads of a menu on the device, and what of them it would rather not show: frequency caps, exclusions.

    shelf = PackShelf(channel.pack, keys)
    device = AdDevice(settings, keys, journal, channel, Entropy(), packs=shelf)
    device.show(context, rates, now, render=lambda ad: draw(shelf.pack(ad.menu_id).campaign(ad.campaign)))

A device fetches a menu's pack before it chooses, whatever it will choose, and so tells its proxy which menu it
has: what the report would tell too, only earlier, and also where no report follows.

A cap is kept within the choice. A campaign that has reached one, or is about what its person excluded, is
worth nothing to this device, and the menu's own law does the rest: it is shown as rarely as the law allows, and
that is not never. To leave it out, to show nothing, or not to report would tell that the cap was reached, and
so what this person has seen; a law that gives it chance 0 would tell the same, with no epsilon that covers it.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence

from tacit.deliver.device.journal import Showing
from tacit.deliver.device.parties import PartyKeys
from tacit.deliver.protocol.packs import MenuPack, read_pack
from tacit.display import brief

MOST_SHELVED = 64

FetchPack = Callable[[bytes], bytes]
"""From a menu's id to its pack, through the proxy: `HttpAdChannel.pack`. OSError where nobody answers."""


class PackShelf:
    """Packs that were fetched and checked, the latest of them. All of it is public: devices may share one."""

    def __init__(self, fetch: FetchPack, keys: PartyKeys, *, most: int = MOST_SHELVED) -> None:
        self._fetch, self._keys, self._most = fetch, keys, most
        self._packs: OrderedDict[bytes, MenuPack] = OrderedDict()

    def __repr__(self) -> str:
        return brief(self, packs=len(self._packs))

    def pack(self, menu_id: bytes) -> MenuPack:
        """A menu's pack, from here or from the proxy; BillRefused where the ad server did not sign it."""
        found = self._packs.get(menu_id)
        if found is None:
            found = read_pack(self._fetch(menu_id), self._keys.server_signing, menu_id)
            self._packs[menu_id] = found
            if len(self._packs) > self._most:
                self._packs.popitem(last=False)
        return found


def barred_campaigns(
    pack: MenuPack, showings: Sequence[Showing], excluded: Sequence[str], now: int
) -> frozenset[int]:
    """Campaigns of a menu that count as worth nothing on this device: a cap was reached, or they are about what
    its person excluded.

    Guarantee:  none of its own: it is private, and goes into the choice as rates of 0. The choice stays pure
                LDP with the epsilon of its menu, since that holds for any two vectors of rates; so what it
                tells of what this device has shown before, and of what its person excludes, is within the same
                epsilon.
    Neighbours: any two private states of a device with the same disclosed context: what it has shown before and
                what is excluded, too.
    Assumes:    what `PrivateChoice` assumes; it is not asked where nothing private may be read. So caps do not
                hold in the public lane, nor where a menu's public best is shown at epsilon 0; what is shown
                there counts all the same.
    Source:     `PrivateChoice`.
    """
    shown: defaultdict[int, list[int]] = defaultdict(list)
    for each in showings:
        shown[each.campaign].append(each.at)
    return frozenset(
        each.number
        for each in pack.campaigns
        if each.is_about(excluded) or each.is_capped(shown[each.number], now)
    )


def showing_of(pack: MenuPack | None, campaign: int | None, now: int) -> Showing | None:
    """What a choice counts towards caps; None where none are to be kept."""
    if pack is None or campaign is None:
        return None
    seconds = pack.campaign(campaign).remembered_seconds
    return Showing(campaign, now, now + seconds) if seconds else None
