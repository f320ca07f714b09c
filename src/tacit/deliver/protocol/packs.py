"""Packs: the ads of one menu with what a device needs to show them, all of them before it chooses.

    pack = read_pack(data, keys.server_signing, menu_id)
    pack.campaign(7).creatives[0].title

A pack has every campaign of its menu: its ads, its frequency caps, what it is about. Whoever fetched the
chosen ad alone would tell the choice; everybody who asks for a pack is sent the same bytes, which any cache may
hold. It is JSON, {"pack": TEXT, "signature": HEX}: the ad server signs the text, so that a proxy or a cache
that hands it on can change nothing in it. A pack is of its second: where an advertiser takes an ad back, the
next one is without it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tacit import expect
from tacit.bill.protocol.encoding import BillVerdict, malformed_if_refused
from tacit.bill.protocol.keys import check_signature
from tacit.display import brief
from tacit.errors import BadInput, BillRefused
from tacit.expect import RECORD_FAULTS
from tacit.files import parse_json

PACK_LABEL = b"tacit/pack/1"
MOST_CAMPAIGN_BYTES, MOST_PACK_BYTES = 300_000, 2_000_000
"""Of what ads show, for one campaign and for all of a menu."""

MOST_PACKED = 3
"""Ads of a campaign in a pack."""

LONGEST_PACK = 8_000_000
"""Bytes of a pack as it is sent: contents in base64; titles, texts and addresses."""

KeyOfPack = Callable[[bytes, bytes], bytes]
"""Signs a body under a label: `SigningKey.sign`."""


def is_excluded(categories: Iterable[str], exclude: Iterable[str]) -> bool:
    """Whether one of the categories is excluded, or below one that is.

    >>> is_excluded(["IAB8-5"], ["IAB8"]), is_excluded(["IAB8"], ["IAB8-5"]), is_excluded(["IAB80"], ["IAB8"])
    (True, False, False)
    """
    known = tuple(exclude)
    return any(each == out or each.startswith(f"{out}-") for each in categories for out in known)


@dataclass(frozen=True)
class FrequencyCap:
    """At most so many impressions of the campaign within so many seconds, as the device counts them."""

    impressions: int
    seconds: int

    def __post_init__(self) -> None:
        if not 1 <= expect.integer("impressions", self.impressions) < 2**16:
            raise BadInput("caps.impressions: expected 1..65535, got another number")
        if not 1 <= expect.integer("seconds", self.seconds) < 2**32:
            raise BadInput("caps.seconds: expected 1..2^32-1, got another number")


@dataclass(frozen=True)
class PackedCreative:
    """An ad as a device shows it.

    media    what it is: text/plain, text/html, image/png...
    content  bytes of an image or of HTML; None of a text, and where it was left out for room: then title, text
             and address are what is shown. HTML belongs into a frame that runs nothing
    """

    number: int
    media: str
    title: str
    text: str
    address: str
    width: int | None = None
    height: int | None = None
    content: bytes | None = field(default=None, repr=False)

    def as_json(self) -> dict[str, Any]:
        names = ("number", "media", "title", "text", "address", "width", "height")
        content = None if self.content is None else base64.b64encode(self.content).decode()
        return {**{name: getattr(self, name) for name in names}, "content": content}


@dataclass(frozen=True)
class PackedCampaign:
    """A campaign of a menu: how often it may be shown, what it is about, and its ads, the smallest first."""

    number: int
    caps: tuple[FrequencyCap, ...] = ()
    categories: tuple[str, ...] = ()
    creatives: tuple[PackedCreative, ...] = ()

    @property
    def remembered_seconds(self) -> int:
        """For how long an impression of it counts; 0 where nothing is capped."""
        return max((cap.seconds for cap in self.caps), default=0)

    def is_capped(self, shown: Sequence[int], now: int) -> bool:
        """Whether a cap is reached at `now` by impressions at these seconds; those to come count too, since
        clocks are set back.

        >>> PackedCampaign(1, (FrequencyCap(2, 60),)).is_capped([100, 130], 159)
        True
        >>> PackedCampaign(1, (FrequencyCap(2, 60),)).is_capped([100, 130], 160)
        False
        """
        return any(sum(at > now - cap.seconds for at in shown) >= cap.impressions for cap in self.caps)

    def is_about(self, excluded: Sequence[str]) -> bool:
        """Whether it is about something excluded: a category, or one below it.

        >>> PackedCampaign(1, categories=("IAB9-7",)).is_about(("IAB9",))
        True
        >>> PackedCampaign(1, categories=("IAB9-7",)).is_about(("IAB9-1", "IAB"))
        False
        """
        return is_excluded(self.categories, excluded)

    def as_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "caps": [{"impressions": cap.impressions, "seconds": cap.seconds} for cap in self.caps],
            "categories": list(self.categories),
            "creatives": [each.as_json() for each in self.creatives],
        }


@dataclass(frozen=True)
class MenuPack:
    """The campaigns of one menu, in its order."""

    menu_id: bytes
    campaigns: tuple[PackedCampaign, ...]

    def __repr__(self) -> str:
        return brief(self, menu=self.menu_id.hex()[:16], campaigns=len(self.campaigns))

    @cached_property
    def _by_number(self) -> dict[int, PackedCampaign]:
        return {each.number: each for each in self.campaigns}

    def campaign(self, number: int) -> PackedCampaign:
        """A campaign of the menu; one that the pack says nothing of has no caps and no ads."""
        return self._by_number.get(number) or PackedCampaign(number)

    def signed(self, sign: KeyOfPack) -> bytes:
        """As it is sent."""
        record = {"menu": self.menu_id.hex(), "campaigns": [each.as_json() for each in self.campaigns]}
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        signature = sign(PACK_LABEL, text.encode())
        sent = {"pack": text, "signature": signature.hex()}
        return json.dumps(sent, ensure_ascii=False, separators=(",", ":")).encode()


def check_pack(data: bytes, server_signing: bytes) -> bytes:
    """The signed text of a pack; BillRefused where it is none, or not by the ad server of this key."""
    try:
        if len(data) > LONGEST_PACK:
            raise ValueError
        said = parse_json(data)
        text, signature = said["pack"].encode(), bytes.fromhex(said["signature"])
    except RECORD_FAULTS:
        raise BillRefused(BillVerdict.MALFORMED, "expected a pack of ads") from None
    check_signature(server_signing, PACK_LABEL, text, signature)
    return bytes(text)


def read_pack(data: bytes, server_signing: bytes, menu_id: bytes) -> MenuPack:
    """The pack of a menu, as the ad server of this key signed it; BillRefused otherwise."""
    text = check_pack(data, server_signing)
    with malformed_if_refused():
        try:
            said = parse_json(text)
            campaigns = tuple(_read_campaign(each) for each in said["campaigns"])
            found = MenuPack(bytes.fromhex(said["menu"]), campaigns)
        except RECORD_FAULTS:
            raise BadInput("expected the campaigns of a menu with their ads") from None
    if found.menu_id != menu_id:
        raise BillRefused(BillVerdict.UNKNOWN_MENU, "expected the pack of another menu")
    return found


def _read_campaign(record: Any) -> PackedCampaign:
    return PackedCampaign(
        expect.integer("campaign", record["number"]),
        tuple(FrequencyCap(cap["impressions"], cap["seconds"]) for cap in record["caps"]),
        tuple(str(each) for each in record["categories"]),
        tuple(_read_creative(each) for each in record["creatives"]),
    )


def _read_creative(record: Any) -> PackedCreative:
    content = record["content"]
    media, title, text, address = (str(record[name]) for name in ("media", "title", "text", "address"))
    if re.fullmatch(r"https://[^/?#\\@]+([/?#].*)?", address, re.DOTALL) is None:  # nor a user's name in it
        raise BadInput("creative.address: expected https://HOST/..., got another value")
    shown = None if content is None else base64.b64decode(content, validate=True)
    number = expect.integer("creative", record["number"])
    return PackedCreative(number, media, title, text, address, record["width"], record["height"], shown)
