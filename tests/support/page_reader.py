"""Reads a page as a browser would, and fails where one would have to guess."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "hr"}


class Seen(HTMLParser):
    """Elements as they open and close, ids, links and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == [], "every element that opens closes"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del tag
        self.attributes += attrs
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name == "href"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def assert_self_contained(html: str) -> Seen:
    """Every link goes to something on the page, and nothing is loaded or run."""
    seen = Seen(html)
    assert len(set(seen.ids)) == len(seen.ids)
    assert all(link.startswith("#") and link[1:] in seen.ids for link in seen.links)
    for outside in ("http", "src=", "@import", "<script", "<link", "url(h"):
        assert outside not in html
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    return seen
