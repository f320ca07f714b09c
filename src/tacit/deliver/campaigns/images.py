"""What an image is, by its own bytes: PNG, JPEG, GIF or WebP, how wide and high, and nothing else in the file.

Headers and blocks are walked from the first byte to the last; pixels are not decoded. What moves is refused (a
small file may unfold into hours), and so is what lies behind the image's end, where another file could hide.
Sources: PNG (W3C, third edition), JPEG (ITU-T T.81, annex B), GIF89a, WebP container (RFC 9649).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import NoReturn

from tacit.errors import BadInput

PNG, GIFS, JPEG = b"\x89PNG\r\n\x1a\n", (b"GIF87a", b"GIF89a"), b"\xff\xd8\xff"
# Frames of JPEG that browsers show: baseline, extended and progressive.
_FRAMES = frozenset({0xC0, 0xC1, 0xC2})
_OTHER_FRAMES = frozenset(range(0xC0, 0xD0)) - _FRAMES - {0xC4, 0xC8, 0xCC}
_EOI, _SOS = 0xD9, 0xDA


@dataclass(frozen=True)
class ImageFacts:
    """What an image is and how large, in pixels."""

    media: str
    width: int
    height: int


def read_image(content: bytes) -> ImageFacts:
    """The facts of an image; BadInput says what is wrong with it."""
    try:
        if content.startswith(PNG):
            return _read_png(content)
        if content.startswith(JPEG):
            return _read_jpeg(content)
        if content.startswith(GIFS):
            return _read_gif(content)
        if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
            return _read_webp(content)
    except IndexError:
        raise BadInput("creative.content: expected a whole image, got one that is cut off") from None
    raise BadInput("creative.content: expected a PNG, JPEG, GIF or WebP image, got another kind of file")


def _refuse(words: str) -> NoReturn:
    raise BadInput(f"creative.content: expected {words}")


def _number(content: bytes, at: int, size: int, order: str = "big") -> int:
    if at + size > len(content):
        raise IndexError
    return int.from_bytes(content[at : at + size], "big" if order == "big" else "little")


def _read_png(content: bytes) -> ImageFacts:
    at, size, pixels = len(PNG), (0, 0), False
    while True:
        length, kind = _number(content, at, 4), content[at + 4 : at + 8]
        checksum = _number(content, at + 8 + length, 4)
        if checksum != zlib.crc32(content[at + 4 : at + 8 + length]):
            _refuse("a PNG whose chunks have their checksums, got one that is damaged")
        if (at == len(PNG)) != (kind == b"IHDR") or (kind == b"IHDR" and length != 13):
            _refuse("a PNG that begins with its header, got another order")
        if kind == b"IHDR":
            size = _number(content, at + 8, 4), _number(content, at + 12, 4)
        if kind == b"acTL":
            _refuse("an image that does not move, got an animated PNG")
        pixels = pixels or kind == b"IDAT"
        at += 12 + length
        if kind == b"IEND":
            break
    _expect_end(content, at)
    if not pixels:
        _refuse("a PNG with pixels, got one without")
    return ImageFacts("image/png", *size)


def _read_jpeg(content: bytes) -> ImageFacts:
    at, size = 2, None
    while True:
        if content[at] != 0xFF:
            _refuse("a JPEG of segments, got something else between them")
        while content[at] == 0xFF:  # a marker may be filled up
            at += 1
        marker = content[at]
        at += 1
        if marker == _EOI:
            break
        length = _number(content, at, 2)
        if length < 2 or at + length > len(content):
            raise IndexError
        if marker in _OTHER_FRAMES:
            _refuse("a baseline or progressive JPEG, got one that browsers do not show")
        if marker in _FRAMES:
            if size is not None:
                _refuse("a JPEG of one frame, got several")
            size = _number(content, at + 5, 2), _number(content, at + 3, 2)
        at += length
        if marker == _SOS:
            at = _behind_scan(content, at)
    _expect_end(content, at)
    if size is None:
        _refuse("a JPEG with a frame, got none")
    return ImageFacts("image/jpeg", *size)


def _behind_scan(content: bytes, at: int) -> int:
    """Where the marker behind coded pixels begins: 0xFF that is neither a byte of theirs nor a restart."""
    while True:
        at = content.find(b"\xff", at)
        if at < 0 or at + 1 >= len(content):
            raise IndexError
        if content[at + 1] != 0 and not 0xD0 <= content[at + 1] <= 0xD7:
            return at
        at += 2


def _read_gif(content: bytes) -> ImageFacts:
    size = _number(content, 6, 2, "little"), _number(content, 8, 2, "little")
    at, images = 13 + _table_bytes(content[10]), 0
    while (block := content[at]) != 0x3B:
        if block == 0x21:  # an extension: its label, then pieces
            at = _behind_pieces(content, at + 2)
        elif block == 0x2C:
            images += 1
            if images > 1:
                _refuse("an image that does not move, got an animated GIF")
            left, top, width, height = (_number(content, at + 1 + 2 * each, 2, "little") for each in range(4))
            if left + width > size[0] or top + height > size[1]:
                _refuse("a GIF within its own screen, got a larger image")
            at = _behind_pieces(content, at + 10 + _table_bytes(content[at + 9]) + 1)
        else:
            _refuse("a GIF of blocks, got something else between them")
    _expect_end(content, at + 1)
    if not images:
        _refuse("a GIF with an image, got none")
    return ImageFacts("image/gif", *size)


def _table_bytes(packed: int) -> int:
    """Of a table of colours, where the flags say that one follows."""
    return 3 << ((packed & 7) + 1) if packed & 0x80 else 0


def _behind_pieces(content: bytes, at: int) -> int:
    while content[at]:
        at += 1 + content[at]
    return at + 1


def _read_webp(content: bytes) -> ImageFacts:
    _expect_end(content, 8 + _number(content, 4, 4, "little"))
    at, size, canvas = 12, None, None
    while at < len(content):
        kind, length, body = content[at : at + 4], _number(content, at + 4, 4, "little"), at + 8
        if body + length > len(content):
            raise IndexError
        if kind in (b"ANIM", b"ANMF") or (kind == b"VP8X" and content[body] & 0x02):
            _refuse("an image that does not move, got an animated WebP")
        if kind == b"VP8X":
            canvas = 1 + _number(content, body + 4, 3, "little"), 1 + _number(content, body + 7, 3, "little")
        elif kind in (b"VP8 ", b"VP8L"):
            if size is not None:
                _refuse("a WebP of one image, got several")
            size = _lossy_size(content, body) if kind == b"VP8 " else _lossless_size(content, body)
        at = body + length + length % 2
    if size is None or canvas not in (None, size):
        _refuse("a WebP with an image as large as it says, got another")
    return ImageFacts("image/webp", *size)


def _lossy_size(content: bytes, at: int) -> tuple[int, int]:
    if content[at] & 1 or content[at + 3 : at + 6] != b"\x9d\x01\x2a":
        _refuse("a WebP that begins with a key frame, got another")
    return _number(content, at + 6, 2, "little") & 0x3FFF, _number(content, at + 8, 2, "little") & 0x3FFF


def _lossless_size(content: bytes, at: int) -> tuple[int, int]:
    if content[at] != 0x2F:
        _refuse("a WebP in lossless form, got something else")
    bits = _number(content, at + 1, 4, "little")
    return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1


def _expect_end(content: bytes, at: int) -> None:
    if at > len(content):
        raise IndexError
    if at < len(content):
        _refuse("nothing behind the image's end, got something")
