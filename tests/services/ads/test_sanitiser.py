"""HTML of ads: whatever is handed in, only text, headings, lists and links to the ad's own address are left."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.services.ads.sanitiser import REL, TAGS, TARGET, sanitise_html
from tests.support.ad_campaigns import ADDRESS

PIECES = [
    "<script>", "</script>", "<style>", "<svg/onload=x()>", "<math><mi>", "<a href='javascript:x()'>",
    f"<a href={ADDRESS!r} onclick='x()'>", "</a>", "<img src=x onerror=x()>", "<p style='position:fixed'>",
    "<h1>", "</h1>", "<ul><li>", "<template>", "<noscript>", "<iframe srcdoc='<script>'>", "<base href=//x>",
    "<!--", "-->", "<![CDATA[", "]]>", "&lt;script&gt;", "<a href=' data:text/html,x'>",
    "<form action=//x><input>", "<b", ">", "'", '"', "text", "\x00",
    "<select><option>", "<title>", "<textarea>", "<a target=_top rel=opener href=//x>",
]  # fmt: skip


class Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.other: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_comment(self, data: str) -> None:
        self.other.append(data)

    def handle_decl(self, decl: str) -> None:
        self.other.append(decl)

    def unknown_decl(self, data: str) -> None:
        self.other.append(data)


def check(html: str) -> None:
    left = sanitise_html(html, ADDRESS)
    seen = Seen()
    seen.feed(left)
    seen.close()
    assert seen.other == []
    for tag, attributes in seen.tags:
        assert tag in TAGS
        forced = {"rel": REL, "target": TARGET}
        assert attributes in ([forced, {"href": ADDRESS, **forced}] if tag == "a" else [{}])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=12).map("".join))
def test_whatever_is_mixed_only_what_may_be_shown_is_left(html: str) -> None:
    check(html)


@pytest.mark.parametrize(
    ("html", "left"),
    [
        ("plain", "plain"),
        ("<h2 class=x>A</h2><ul><li>b</ul>", "<h2>A</h2><ul><li>b</li></ul>"),
        ("<style>p{}</style><p>a<script>x</script>b", "<p>ab</p>"),
        ("a<!-- c -->b<img src=https://bean.example/x.png>", "ab"),
        ("<svg><a href='https://bean.example'>x</a></svg>y", "y"),
        (f"<a href='{ADDRESS}#x'>x</a>", f'<a rel="{REL}" target="{TARGET}">x</a>'),
        (f"<a href=' {ADDRESS} '>x</a>", f'<a href="{ADDRESS}" rel="{REL}" target="{TARGET}">x</a>'),
    ],
)
def test_what_is_left(html: str, left: str) -> None:
    made = sanitise_html(html, ADDRESS)
    parsed, wanted = Seen(), Seen()
    parsed.feed(made)
    wanted.feed(left)
    assert parsed.tags == wanted.tags
    assert made.replace(f' target="{TARGET}"', "") == left.replace(f' target="{TARGET}"', "")
