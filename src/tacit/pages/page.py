"""One self-contained HTML file: no script, no network, readable in light, in dark and on paper."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path

from tacit.errors import BadInput
from tacit.pages.blocks import Section
from tacit.pages.drawings import dark_colours
from tacit.pages.markup import Markup, anchor, marked


def page(
    title: str, lead: str, sections: Sequence[Section], *, footer: str = "", contents: bool = False
) -> str:
    """A page: its title, a sentence or two on what it is, and its sections.

    `contents` lists the sections, and the sections in them: beside the text where there is room.
    """
    markup = Markup()
    body = "\n".join(markup.section(each) for each in sections)
    astray = sorted(markup.wanted - markup.given)
    if astray:
        raise BadInput(f"expected links to sections of the page, got one to {astray[0]!r}")
    dark = dark_colours(body)
    listed = f'<nav class="contents" aria-label="Contents">\n{_listed(sections)}\n</nav>\n' if contents else ""
    paragraphs = "".join(f'<p class="lead">{marked(each)}</p>' for each in lead.split("\n\n") if each.strip())
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
{_style()}
@media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {dark} }} }}
@media screen {{ :root[data-theme="dark"] {{ {dark} }} }}
</style>
</head>
<body{' class="with-contents"' if contents else ""}>
{listed}<main>
<header>
<p class="mark">tacit</p>
<h1>{escape(title)}</h1>
{paragraphs}
</header>
{body}
<footer>{marked(footer)}</footer>
</main>
</body>
</html>
"""


def _listed(sections: Sequence[Section]) -> str:
    """The sections' headings as nested lists of links."""
    items = []
    for each in sections:
        inner = [block for block in each.blocks if isinstance(block, Section)]
        below = f"\n{_listed(inner)}\n" if inner else ""
        items.append(f'<li><a href="#{each.id or anchor(each.heading)}">{escape(each.heading)}</a>{below}</li>')
    return "<ol>\n" + "\n".join(items) + "\n</ol>"


@cache
def _style() -> str:
    return Path(__file__).with_name("style.css").read_text(encoding="utf-8").strip()
