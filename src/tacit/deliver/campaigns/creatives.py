"""The ads themselves, checked before they are kept: texts, images and fragments of HTML.

    creative, content = check_creative({"kind": "text", "title": "Spring roast", "address": "https://bean.example"},
                                       campaign=7, sanitise=sanitise)

An image is what its bytes say it is (`images`), never what is claimed. HTML is kept as the sanitiser leaves it.
An ad leads to one https address and asks for nothing else. Whatever is refused names its key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from tacit import expect
from tacit.deliver.campaigns.campaign import expect_keys
from tacit.deliver.campaigns.images import ImageFacts, read_image
from tacit.errors import BadInput

MOST_TITLE, MOST_WORDS, MOST_ADDRESS = 90, 300, 2_000  # characters
MOST_IMAGE_BYTES, MOST_HTML_BYTES = 300_000, 20_000
LEAST_SIDE, MOST_SIDE = 16, 4_096  # pixels
TEXT_MEDIA, HTML_MEDIA = "text/plain", "text/html"

Sanitise = Callable[[str, str], str]
"""Of a fragment of HTML and the address that the ad leads to: what of the fragment may be shown."""


class CreativeKind(expect.Choice):
    TEXT = "text"
    IMAGE = "image"
    HTML = "html"


@dataclass(frozen=True)
class Creative:
    """An ad as it is kept, without its content.

    number          0 until it is kept
    media           what it was recognised as: text/plain, text/html, image/png...
    address         where it leads
    size            bytes of its content; a text has none but title and text
    width, height   pixels of an image
    digest          SHA-256 of all of it, content too
    """

    number: int
    campaign: int
    media: str
    title: str
    text: str
    address: str
    size: int
    width: int | None
    height: int | None
    digest: bytes

    def as_json(self) -> dict[str, Any]:
        return {"number": self.number, "campaign": self.campaign, **self.said(), "digest": self.digest.hex()}

    def said(self) -> dict[str, Any]:
        """What is said of it beside its number, campaign and digest."""
        names = ("media", "title", "text", "address", "size", "width", "height")
        return {name: getattr(self, name) for name in names}

    def with_digest(self, content: bytes) -> Creative:
        said = json.dumps(self.said(), sort_keys=True, separators=(",", ":")).encode()
        return replace(self, digest=hashlib.sha256(len(said).to_bytes(4, "big") + said + content).digest())


NEEDED = ("kind", "title", "address")
ALLOWED = (*NEEDED, "text", "content")


def check_creative(record: Any, campaign: int, sanitise: Sanitise) -> tuple[Creative, bytes]:
    """A creative of a record, and what is shown of it.

    `content` is an image's bytes in base64, or a fragment of HTML; a text has none.
    """
    said = expect_keys("creative", record, NEEDED, ALLOWED)
    kind = CreativeKind.named("creative.kind", said["kind"])
    title = _expect_text("title", said["title"], MOST_TITLE)
    words = _expect_text("text", said["text"], MOST_WORDS) if said.get("text", "") != "" else ""
    address = expect_address("address", said["address"])
    made = Creative(0, campaign, TEXT_MEDIA, title, words, address, 0, None, None, b"")
    if kind is CreativeKind.TEXT:
        if "content" in said:
            raise BadInput("creative.content: expected none of a text, got some")
        return made.with_digest(b""), b""
    given = said.get("content")
    if not isinstance(given, str) or not given:
        raise BadInput(f"creative.content: expected that of an {kind}, got nothing or no text")
    if kind is CreativeKind.IMAGE:
        content, image = _expect_image(given)
        made = replace(made, media=image.media, width=image.width, height=image.height, size=len(content))
    else:
        content = _sanitised(given, address, sanitise)
        made = replace(made, media=HTML_MEDIA, size=len(content))
    return made.with_digest(content), content


def _expect_text(name: str, given: Any, most: int) -> str:
    if not isinstance(given, str) or not given.strip() or not given.isprintable() or len(given) > most:
        raise BadInput(
            f"creative.{name}: expected a printable text of 1 to {most} characters, got another value"
        )
    return given


def expect_address(name: str, given: Any) -> str:
    """An https address of a host, spelled in ASCII, without a user's name."""
    fine = isinstance(given, str) and len(given) <= MOST_ADDRESS and given.isascii() and given.isprintable()
    try:
        parts = urlsplit(given) if fine and not set(given) & set(' "<>\\^`{|}') else None
        usable = (
            parts is not None and parts.scheme == "https" and bool(parts.hostname) and "@" not in parts.netloc
            and (parts.port is None or parts.port > 0)
        )  # fmt: skip
    except ValueError:  # of a port or a bracket
        usable = False
    if not usable:
        raise BadInput(f"creative.{name}: expected an address https://HOST/..., got another value")
    return str(given)


def _expect_image(spelled: str) -> tuple[bytes, ImageFacts]:
    if len(spelled) > (MOST_IMAGE_BYTES + 2) // 3 * 4:
        raise BadInput(f"creative.content: expected at most {MOST_IMAGE_BYTES:,} bytes of an image, got more")
    try:
        content = base64.b64decode(spelled, validate=True)
    except (binascii.Error, ValueError):
        raise BadInput("creative.content: expected an image in base64, got another text") from None
    if len(content) > MOST_IMAGE_BYTES:
        raise BadInput(f"creative.content: expected at most {MOST_IMAGE_BYTES:,} bytes of an image, got more")
    image = read_image(content)
    for side in (image.width, image.height):
        if not LEAST_SIDE <= side <= MOST_SIDE:
            raise BadInput(
                f"creative.content: expected an image of {LEAST_SIDE} to {MOST_SIDE} pixels a side, got "
                f"{image.width} x {image.height}"
            )
    return content, image


def _sanitised(given: str, address: str, sanitise: Sanitise) -> bytes:
    if not given.isascii() and any(0xD800 <= ord(each) <= 0xDFFF for each in given):
        raise BadInput("creative.content: expected a text of Unicode characters, got half of one")
    if len(given.encode()) > MOST_HTML_BYTES:
        raise BadInput(f"creative.content: expected at most {MOST_HTML_BYTES:,} bytes of HTML, got more")
    left = sanitise(given, address)
    if not left.strip():
        raise BadInput(
            "creative.content: expected HTML of text, headings, lists and links to the ad's own address, got "
            "nothing that may be shown"
        )
    content = left.encode()
    if len(content) > 2 * MOST_HTML_BYTES:
        raise BadInput(f"creative.content: expected at most {MOST_HTML_BYTES:,} bytes of HTML, got more")
    return content
