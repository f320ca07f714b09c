"""Creatives: texts, images by their bytes and HTML are taken as they are, or refused by their key."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tacit.deliver.campaigns.creatives import (
    MOST_HTML_BYTES,
    MOST_IMAGE_BYTES,
    Creative,
    check_creative,
    expect_address,
)
from tacit.deliver.campaigns.images import ImageFacts, read_image
from tacit.errors import BadInput
from tests.support.ad_campaigns import (
    ADDRESS,
    MOVING,
    a_creative,
    gif,
    image_record,
    jpeg,
    png,
    text_record,
    webp,
    webp_canvas,
)

IMAGES = {
    "png": (png(), ImageFacts("image/png", 32, 32)),
    "jpeg": (jpeg(), ImageFacts("image/jpeg", 40, 24)),
    "gif": (gif(), ImageFacts("image/gif", 20, 18)),
    "webp": (webp(), ImageFacts("image/webp", 64, 48)),
    "lossy webp": (webp(lossless=False), ImageFacts("image/webp", 64, 48)),
    "extended webp": (webp(extended=webp_canvas(64, 48)), ImageFacts("image/webp", 64, 48)),
}


def check(record: Any) -> tuple[Creative, bytes]:
    return check_creative(record, 7, lambda html, address: html.replace("ADDRESS", address))


@pytest.mark.parametrize("kind", IMAGES)
def test_an_image_is_what_its_bytes_say(kind: str) -> None:
    content, facts = IMAGES[kind]
    assert read_image(content) == facts
    creative, kept = check(image_record(content))
    assert (creative.media, creative.width, creative.height) == (facts.media, facts.width, facts.height)
    assert (kept, creative.size) == (content, len(content))


@pytest.mark.parametrize("kind", IMAGES)
def test_no_image_that_is_cut_off_or_goes_on_is_taken(kind: str) -> None:
    content, _ = IMAGES[kind]
    for length in range(len(content)):
        with pytest.raises(BadInput, match=r"^creative.content: expected"):
            read_image(content[:length])
    with pytest.raises(BadInput, match=r"^creative.content: expected"):
        read_image(content + b"<script>")


@pytest.mark.parametrize("kind", IMAGES)
def test_no_change_of_a_byte_does_more_than_be_taken_or_refused(kind: str) -> None:
    content, _ = IMAGES[kind]
    for place in range(len(content)):
        for value in (0, 0x7F, 0xFF, content[place] ^ 1):
            changed = content[:place] + bytes([value]) + content[place + 1 :]
            try:
                facts = read_image(changed)
            except BadInput:
                continue
            assert facts.media.startswith("image/")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "got another kind of file"),
        (b"%PDF-1.7", "got another kind of file"),
        (png(also=MOVING), "got an animated PNG"),
        (gif(images=2), "got an animated GIF"),
        (webp(extended=webp_canvas(64, 48, flags=2)), "got an animated WebP"),
        (webp(extended=webp_canvas(65, 48)), "as large as it says"),
        (png()[:40] + b"x" + png()[41:], "damaged"),
        (png(15, 32), "16 to 4096 pixels a side, got 15 x 32"),
        (png(4097, 16), "16 to 4096 pixels a side, got 4097 x 16"),
    ],
)
def test_other_files_are_refused(content: bytes, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check(image_record(content))


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (None, "creative: expected a table of keys"),
        (text_record(kind="video"), "creative.kind to be one of text, image, html"),
        (text_record(title=""), "creative.title: expected a printable text of 1 to 90"),
        (text_record(title="x" * 91), "creative.title: expected a printable text of 1 to 90"),
        (text_record(text="x" * 301), "creative.text: expected a printable text of 1 to 300"),
        (text_record(text="a\nb"), "creative.text: expected"),
        (text_record(content="x"), "creative.content: expected none of a text"),
        (text_record(kind="image"), "creative.content: expected that of an image"),
        (text_record(kind="image", content="%%%"), "in base64"),
        (text_record(kind="image", content="ä"), "in base64"),
        (text_record(kind="html", content=7), "creative.content: expected that of an html"),
        (text_record(kind="html", content=" "), "got nothing that may be shown"),
        (text_record(kind="html", content="\ud800"), "got half of one"),
        (text_record(kind="html", content="x" * (MOST_HTML_BYTES + 1)), "20,000 bytes of HTML"),
        (text_record(media="image/png"), "creative.media: expected one of kind"),
    ],
)
def test_what_is_wrong_is_refused_by_its_key(record: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check(record)


def test_an_image_has_a_limit_before_and_behind_base64() -> None:
    for size in (MOST_IMAGE_BYTES + 1, MOST_IMAGE_BYTES + 10):
        spelled = base64.b64encode(bytes(size)).decode()
        with pytest.raises(BadInput, match="300,000 bytes"):
            check(text_record(kind="image", content=spelled))


@pytest.mark.parametrize(
    "address",
    [
        "http://bean.example", "javascript:alert(1)", "https:///path", "https://user@bean.example",
        "https://user:word@bean.example/", "https://bean.example:99999/", "https://[::1", "//bean.example",
        "https://bean.example/ x", 'https://bean.example/"onclick=', "https://bücher.example", "https://",
        "https://bean.example\\@evil.example", "https://bean.example/\n", "x" * 3_000, 7, None,
    ],
)  # fmt: skip
def test_an_ad_leads_to_an_https_address_alone(address: Any) -> None:
    with pytest.raises(BadInput, match="https://HOST"):
        expect_address("address", address)


def test_html_is_kept_as_the_sanitiser_leaves_it() -> None:
    creative, content = check(text_record(kind="html", content="<p>ADDRESS</p>"))
    assert content == f"<p>{ADDRESS}</p>".encode()
    assert (creative.media, creative.size, creative.width) == ("text/html", len(content), None)


def test_a_digest_is_of_all_that_is_said_and_shown() -> None:
    one, other = a_creative()[0], a_creative(text="More")[0]
    assert one.digest == a_creative()[0].digest
    assert len({one.digest, other.digest, one.with_digest(b"x").digest}) == 3
    assert one.as_json()["digest"] == one.digest.hex()
