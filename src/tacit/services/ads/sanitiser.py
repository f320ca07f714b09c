"""HTML of ads, as far as it may be shown: text, headings, lists, and links to the ad's own address.

    sanitise_html('<h2 onclick="x()">Roast</h2><a href="https://bean.example/">Buy</a>', "https://bean.example/")

Scripts, styles, frames, forms, images and whatever else would run, load or hide something go, with their
contents where those are no text. A link leads to the ad's own address or is none; it opens a tab of its own,
which learns neither where it was opened nor how to reach back.
"""

from __future__ import annotations

import nh3

TAGS = frozenset(
    {"a", "b", "blockquote", "br", "em", "h1", "h2", "h3", "h4", "i", "li", "ol", "p", "small", "strong", "ul"}
)
GONE_WITH_CONTENT = frozenset(
    {
        "applet", "audio", "button", "canvas", "datalist", "embed", "frameset", "iframe", "math", "noembed",
        "noframes", "noscript", "object", "select", "script", "style", "svg", "template", "textarea", "title",
        "video", "xmp",
    }
)  # fmt: skip
REL, TARGET = "noopener noreferrer nofollow sponsored", "_blank"


def sanitise_html(html: str, address: str) -> str:
    """What of a fragment may be shown of an ad that leads to `address`."""

    def keep(tag: str, attribute: str, value: str) -> str | None:
        if attribute == "href":
            return address if tag == "a" and value.strip() == address else None
        return {"rel": REL, "target": TARGET}.get(attribute)  # as they are set here: nobody else can

    return nh3.clean(
        html,
        tags=set(TAGS),
        clean_content_tags=set(GONE_WITH_CONTENT),
        attributes={"a": {"href"}},
        attribute_filter=keep,
        url_schemes={"https"},
        link_rel=REL,
        set_tag_attribute_values={"a": {"target": TARGET}},
    )
