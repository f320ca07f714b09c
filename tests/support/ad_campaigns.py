"""Campaigns, creatives and images as tests hand them in."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

from tacit.deliver.campaigns.campaign import AdCampaign
from tacit.deliver.campaigns.creatives import Creative, check_creative
from tacit.deliver.campaigns.store import Author

BEAN, SHOES = "Bean & Leaf", "Fleet/Foot"
BY = Author("machine", 1_800_000_000)
ADDRESS = "https://bean.example/roast?from=ad"


def campaign_record(number: int = 7, advertiser: str = BEAN, **more: Any) -> dict[str, Any]:
    return {
        "number": number,
        "advertiser": advertiser,
        "title": "Spring roast",
        "event": "click",
        "bids": [
            {"micros": 400_000},
            {"micros": 650_000, "context": {"levels": [1, 1], "values": ["North", "Food"]}},
        ],
        "budget_micros": 50_000_000,
        **more,
    }


def a_campaign(number: int = 7, advertiser: str = BEAN, **more: Any) -> AdCampaign:
    return AdCampaign.from_json(campaign_record(number, advertiser, **more))


def text_record(**more: Any) -> dict[str, Any]:
    return {"kind": "text", "title": "Fresh every Monday", "address": ADDRESS, **more}


def image_record(content: bytes, **more: Any) -> dict[str, Any]:
    return text_record(kind="image", content=base64.b64encode(content).decode(), **more)


def a_creative(campaign: int = 7, **more: Any) -> tuple[Creative, bytes]:
    return check_creative(text_record(**more), campaign, lambda html, _: html)


def png(width: int = 32, height: int = 32, *, also: bytes = b"") -> bytes:
    """A white image, of a byte per pixel; `also` stands before its pixels."""
    rows = zlib.compress((b"\x00" + b"\xff" * width) * height)
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + also + _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


MOVING = _chunk(b"acTL", struct.pack(">II", 2, 0))


def jpeg(width: int = 40, height: int = 24) -> bytes:
    """One as far as its frame, a scan with an escaped byte and a restart, and its end."""
    frame = struct.pack(">BHHB", 8, height, width, 1) + b"\x01\x11\x00"
    scan = b"\x01\x01\x00\x00\x3f\x00"
    return (
        b"\xff\xd8" + _segment(0xE0, b"JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00") + _segment(0xC0, frame)
        + _segment(0xDA, scan) + b"\x12\xff\x00\x34\xff\xd0\x56" + b"\xff\xd9"
    )  # fmt: skip


def _segment(marker: int, body: bytes) -> bytes:
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(body) + 2) + body


def gif(width: int = 20, height: int = 18, *, images: int = 1) -> bytes:
    head = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + b"\x00\x00\x00\xff\xff\xff"
    image = b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x44\x01\x00"
    return head + b"!\xf9\x04\x00\x00\x00\x00\x00" + image * images + b";"


def webp(width: int = 64, height: int = 48, *, lossless: bool = True, extended: bytes = b"") -> bytes:
    if lossless:
        bits = struct.pack("<I", (width - 1) | (height - 1) << 14)
        body = _riff(b"VP8L", b"\x2f" + bits + b"\x00" * 3)
    else:
        body = _riff(b"VP8 ", b"\x10\x00\x00\x9d\x01\x2a" + struct.pack("<HH", width, height) + b"\x00" * 4)
    whole = b"WEBP" + extended + body
    return b"RIFF" + struct.pack("<I", len(whole)) + whole


def webp_canvas(width: int, height: int, flags: int = 0) -> bytes:
    sizes = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return _riff(b"VP8X", bytes([flags]) + b"\x00" * 3 + sizes)


def _riff(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("<I", len(body)) + body + b"\x00" * (len(body) % 2)
