"""OpenRTB 2.6 as an exchange spells it: the fields of a bid request that are read, and reasons for no bid.

    request = parse_request(body, encoding=b"gzip")
    request.imp[0].banner.sizes()

Only the fields below are decoded; whatever else stands in a request is skipped, and kept nowhere: ids of people
and devices, addresses and user agents are not among them. What is said of consent is read by `consent_signals`,
where a personal choice is asked for. Money is decimal: a floor of 9.8 is 9.8.

Source: IAB Tech Lab, "OpenRTB Specification v2.6"; "OpenRTB 3.0", list of no-bid reason codes, of which those
from 500 on are a bidder's own.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from decimal import Decimal
from enum import IntEnum
from typing import Any

import msgspec

from tacit.deliver.consent.signals import ConsentSignals

VERSION = "2.6"
MOST_BYTES = 128 * 1024  # of a request, also once it was unpacked
MOST_IDENTIFIER, MOST_IMPS, MOST_SIZES = 256, 64, 64
CLIENT_VERSION = 1
"""Of `imp.ext.tacit`, by which a page says that it has the device's client."""

UNSAID = msgspec.Raw(b"null")
_GZIP = 31  # zlib's word for a gzip stream of any window


class NoBid(IntEnum):
    """Why there is no bid; from 500 on in our own words."""

    TECHNICAL_ERROR = 1
    INVALID_REQUEST = 2
    INSUFFICIENT_TIME = 15
    NO_MENU = 500
    UNSUPPORTED_MEDIA = 501
    NO_CREATIVE = 502
    BELOW_FLOOR = 503
    CURRENCY = 504
    SEAT = 505
    BLOCKED = 506
    DEALS_ONLY = 507
    LIMIT_REACHED = 508


class MalformedRequest(ValueError):
    """What came is no bid request; nothing of it is repeated."""


class Format(msgspec.Struct, gc=False):
    w: int | None = None
    h: int | None = None


class Banner(msgspec.Struct):
    w: int | None = None
    h: int | None = None
    format: list[Format] | None = None
    btype: list[int] | None = None
    battr: list[int] | None = None
    mimes: list[str] | None = None

    def sizes(self) -> Iterator[tuple[int, int]]:
        """What fits, as often as it is said; `format` first, which is newer."""
        for each in self.format or ():
            if each.w is not None and each.h is not None:
                yield each.w, each.h
        if self.w is not None and self.h is not None:
            yield self.w, self.h


class DealTerms(msgspec.Struct, gc=False):
    private_auction: int | None = 0


class Quantity(msgspec.Struct, gc=False):
    multiplier: Decimal | None = None


class ClientHint(msgspec.Struct, gc=False):
    version: int


class ImpExtension(msgspec.Struct, gc=False):
    tacit: ClientHint | None = None


class Imp(msgspec.Struct):
    id: str
    banner: Banner | None = None
    pmp: DealTerms | None = None
    bidfloor: Decimal | None = None
    bidfloorcur: str | None = None
    qty: Quantity | None = None
    ext: ImpExtension | None = None

    @property
    def has_client(self) -> bool:
        return self.ext is not None and self.ext.tacit is not None and self.ext.tacit.version == CLIENT_VERSION


class Geo(msgspec.Struct, gc=False):
    country: str | None = None
    region: str | None = None
    metro: str | None = None
    city: str | None = None


class Device(msgspec.Struct):
    geo: Geo | None = None
    lmt: Any = None
    dnt: Any = None
    ext: msgspec.Raw = UNSAID


class Place(msgspec.Struct):
    """A site or an app."""

    domain: str | None = None
    bundle: str | None = None
    cat: list[str] | None = None
    sectioncat: list[str] | None = None
    pagecat: list[str] | None = None
    cattax: int | None = None


class BidRequest(msgspec.Struct):
    """`regs`, `user` and `dooh` stay as they came, unread."""

    id: str
    imp: list[Imp]
    site: Place | None = None
    app: Place | None = None
    dooh: msgspec.Raw = UNSAID
    device: Device | None = None
    user: msgspec.Raw = UNSAID
    regs: msgspec.Raw = UNSAID
    test: int | None = 0
    tmax: int | None = None
    wseat: list[str] | None = None
    bseat: list[str] | None = None
    cur: list[str] | None = None
    bcat: list[str] | None = None
    acat: list[str] | None = None
    badv: list[str] | None = None
    cattax: int | None = None

    @property
    def is_on_screen(self) -> bool:
        """Whether it is for a screen that many look at."""
        return bytes(self.dooh) != bytes(UNSAID)


class _Regs(msgspec.Struct):
    coppa: Any = None
    gdpr: Any = None
    gpp: Any = None
    gpp_sid: Any = None
    us_privacy: Any = None
    gpc: Any = None
    ext: _Regs | None = None


class _User(msgspec.Struct):
    consent: Any = None
    ext: _User | None = None


class _DeviceExtension(msgspec.Struct):
    atts: Any = None


_REQUESTS = msgspec.json.Decoder(BidRequest)
_REGS = msgspec.json.Decoder(_Regs | None)
_USERS = msgspec.json.Decoder(_User | None)
_DEVICES = msgspec.json.Decoder(_DeviceExtension | None)
_FAULTS = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def unpack_gzip(body: bytes) -> bytes:
    """What one whole gzip stream holds, up to as much as a request may be."""
    stream = zlib.decompressobj(_GZIP)
    try:
        found = stream.decompress(body, MOST_BYTES + 1)
    except zlib.error:
        raise MalformedRequest from None
    if len(found) > MOST_BYTES or not stream.eof or stream.unused_data:
        raise MalformedRequest
    return found


def parse_request(body: bytes, encoding: bytes = b"") -> BidRequest:
    """A bid request; MalformedRequest for anything else."""
    if encoding not in (b"", b"identity"):
        if encoding not in (b"gzip", b"x-gzip"):
            raise MalformedRequest
        body = unpack_gzip(body)
    try:
        found = _REQUESTS.decode(body)
    except _FAULTS:
        raise MalformedRequest from None
    if not 0 < len(found.id) <= MOST_IDENTIFIER or not 0 < len(found.imp) <= MOST_IMPS:
        raise MalformedRequest
    for imp in found.imp:
        sizes = 0 if imp.banner is None or imp.banner.format is None else len(imp.banner.format)
        # Texts that spell no number are decimals, too, and one of them cannot even be compared.
        several = None if imp.qty is None else imp.qty.multiplier
        odd = any(each is not None and not (each.is_finite() and each >= 0) for each in (imp.bidfloor, several))
        if not 0 < len(imp.id) <= MOST_IDENTIFIER or sizes > MOST_SIZES or odd:
            raise MalformedRequest
    return found


def consent_signals(request: BidRequest) -> ConsentSignals | None:
    """All that a request says of consent; None where that cannot be read, so that nothing is allowed by it.

    Each is where version 2.6 has it, or under `ext`, where earlier versions had it. Where both say something,
    and not the same, it cannot be read.
    """
    try:
        regs = _REGS.decode(request.regs) or _Regs()
        user = _USERS.decode(request.user) or _User()
        said = {
            name: _either(getattr(regs, name), None if regs.ext is None else getattr(regs.ext, name))
            for name in ("gdpr", "gpp", "gpp_sid", "us_privacy", "coppa", "gpc")
        }
        consent = _either(user.consent, None if user.ext is None else user.ext.consent)
        device = Device() if request.device is None else request.device
        atts = (_DEVICES.decode(device.ext) or _DeviceExtension()).atts
    except (*_FAULTS, MalformedRequest):
        return None
    texts = (consent, said["gpp"], said["us_privacy"])
    if not all(each is None or isinstance(each, str) for each in texts):
        return None
    listed = said["gpp_sid"]
    if listed is not None and not (isinstance(listed, list) and all(type(each) is int for each in listed)):
        return None
    return ConsentSignals(
        gdpr=said["gdpr"],
        tc_string=consent,
        gpp=said["gpp"],
        gpp_sid=None if listed is None else tuple(listed),
        us_privacy=said["us_privacy"],
        coppa=said["coppa"],
        lmt=device.lmt,
        dnt=device.dnt,
        gpc=said["gpc"],
        atts=atts,
    )


def _either(first: Any, second: Any) -> Any:
    if first is not None and second is not None and first != second:
        raise MalformedRequest
    return second if first is None else first


def price_text(price_micros: int) -> bytes:
    """The price of one impression as a CPM, exactly: 9,800 micros are 9.8 for a thousand."""
    whole, thousandths = divmod(price_micros, 1000)
    return f"{whole}.{thousandths:03d}".rstrip("0").rstrip(".").encode()
