"""Writes a page as one self-contained HTML file, readable in light, in dark and on paper.

It has no script and loads nothing. Every text is escaped here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, singledispatchmethod
from html import escape
from itertools import count
from pathlib import Path

from tacit.errors import BadInput
from tacit.pages.blocks import (
    Block,
    Board,
    Cell,
    Code,
    Details,
    Facts,
    Figure,
    Flow,
    Link,
    Prose,
    Ruling,
    Section,
    Table,
    Verdict,
    Verdicts,
)
from tacit.pages.drawings import dark_colours, inline_svg

_MARKS = re.compile(r"`([^`\n]+)`|(?<![*\w])\*(?![*\s])([^*\n]+?)(?<!\s)\*(?![*\w])")
_MARKED: tuple[Callable[[str], str], ...] = ("<code>{}</code>".format, "<em>{}</em>".format)
SMALLEST_HEADING = 3


@dataclass
class Markup:
    """Writes blocks out, and keeps the ids that were given and those that links want."""

    given: set[str] = field(default_factory=set)
    wanted: set[str] = field(default_factory=set)
    _figures: Iterator[int] = field(default_factory=lambda: count(1))

    def section(self, section: Section, level: int = 2) -> str:
        name = self.give(section.id or anchor(section.heading))
        inner = "\n".join(
            self.section(each, min(level + 1, SMALLEST_HEADING))
            if isinstance(each, Section)
            else self.block(each)
            for each in section.blocks
        )
        return f'<section id="{name}">\n<h{level}>{escape(section.heading)}</h{level}>\n{inner}\n</section>'

    @singledispatchmethod
    def block(self, block: Block) -> str:
        raise BadInput(f"expected a block of a page, got {type(block).__name__}")

    @block.register
    def _(self, block: Prose) -> str:
        paragraphs = [part.strip() for part in re.split(r"\n\s*\n", block.text) if part.strip()]
        return "\n".join(f"<p>{escape_marked(each)}</p>" for each in paragraphs)

    @block.register
    def _(self, block: Table) -> str:
        right = [' class="number"' if name in block.numbers else "" for name in block.columns]
        header = "".join(
            f'<th scope="col"{kind}>{escape(name)}</th>'
            for name, kind in zip(block.columns, right, strict=True)
        )
        rows = []
        for down, row in enumerate(block.rows):
            cells = []
            for across, cell in enumerate(row):
                text = self.cell(cell)
                text = f"<strong>{text}</strong>" if (down, across) in block.strong else text
                cells.append(f"<td{right[across]}>{text}</td>")
            rows.append(f"<tr>{''.join(cells)}</tr>")
        caption = f'<p class="caption">{escape_marked(block.caption)}</p>\n' if block.caption else ""
        body = "\n".join(rows)
        # A wide table scrolls in its own box, which the keyboard must be able to reach.
        label = escape(block.caption or f"Table of {', '.join(block.columns)}")
        return (
            f'{caption}<div class="wide" tabindex="0" role="region" aria-label="{label}"><table>\n'
            f"<thead><tr>{header}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
        )

    @block.register
    def _(self, block: Figure) -> str:
        drawing = inline_svg(block.svg, f"f{next(self._figures)}-")
        caption = f"\n<figcaption>{escape_marked(block.caption)}</figcaption>" if block.caption else ""
        return f'<figure><div class="drawing">{drawing}</div>{caption}</figure>'

    @block.register
    def _(self, block: Facts) -> str:
        facts = "\n".join(
            f"<div><dt>{escape(label)}</dt>"
            f'<dd class="large">{escape(figure)}</dd>'
            + (f"<dd>{escape_marked(note)}</dd>" if note else "")
            + "</div>"
            for figure, label, note in block.facts
        )
        return f'<dl class="facts">\n{facts}\n</dl>'

    @block.register
    def _(self, block: Flow) -> str:
        stages = "\n".join(
            f"<li><strong>{escape(name)}</strong><span>{escape_marked(what)}</span>"
            + (f'<span class="spent">{escape(spent)}</span>' if spent else "")
            + "</li>"
            for name, what, spent in block.stages
        )
        return f'<ol class="flow">\n{stages}\n</ol>'

    @block.register
    def _(self, block: Code) -> str:
        return f'<pre tabindex="0"><code>{escape(block.text.rstrip())}</code></pre>'

    @block.register
    def _(self, block: Details) -> str:
        inner = "\n".join(map(self.block, block.blocks))
        return f"<details><summary>{escape(block.name)}</summary>\n{inner}\n</details>"

    @block.register
    def _(self, block: Verdicts) -> str:
        return '<div class="rulings">\n' + "\n".join(map(self.ruling, block.rulings)) + "\n</div>"

    @block.register
    def _(self, block: Board) -> str:
        rows = []
        for name, chips in block.rows:
            inner = "".join(
                f'<a class="chip {chip.verdict.kind}" href="#{self.want(chip.to)}" '
                f'title="{escape(chip.verdict.words)}: {escape(chip.words)}">{escape(chip.name)}'
                f'<span class="unseen"> {escape(chip.verdict.words)}</span></a>'
                for chip in chips
            )
            rows.append(f"<dt>{escape(name)}</dt><dd>{inner}</dd>")
        key = "".join(
            f'<span class="chip {kind}">{word}</span>'
            for kind, word in (
                ("holds", "holds"),
                ("fails", "fails"),
                ("undecided", "undecided"),
                ("open", "not tested"),
            )
        )
        return '<dl class="board">\n' + "\n".join(rows) + f'\n</dl>\n<p class="key">{key}</p>'

    def ruling(self, ruling: Ruling) -> str:
        name = f' id="{self.give(ruling.id)}"' if ruling.id else ""
        facts = "".join(f"<dt>{escape(label)}</dt><dd>{self.cell(text)}</dd>" for label, text in ruling.facts)
        return (
            f'<article{name} class="ruling"><h4><span class="name">{escape(ruling.name)}</span> '
            f"{escape(ruling.words)} {self.cell(ruling.verdict)}</h4><dl>{facts}</dl></article>"
        )

    def cell(self, cell: Cell) -> str:
        match cell:
            case Link(text, to):
                return f'<a href="#{self.want(to)}">{escape(text)}</a>'
            case Verdict(words):
                return f'<span class="verdict {cell.kind}">{escape(words)}</span>'
            case str():
                return escape(cell)
        raise BadInput(f"expected a cell of text, a link or a verdict, got {type(cell).__name__}")

    def give(self, name: str) -> str:
        """An id for an element; two of one name would make links go astray."""
        if anchor(name) != name:
            raise BadInput(f"expected an id of small letters, digits and hyphens, got {name!r}")
        if name in self.given:
            raise BadInput(f"expected every section to have its own id, got {name!r} twice")
        self.given.add(name)
        return name

    def want(self, name: str) -> str:
        self.wanted.add(name)
        return escape(name)


def escape_marked(text: str) -> str:
    """Escaped, with `code` and *emphasis* as elements."""
    parts = []
    last = 0
    for found in _MARKS.finditer(text):
        parts.append(escape(text[last : found.start()]))
        at = 0 if found[1] is not None else 1
        parts.append(_MARKED[at](escape(found[at + 1])))
        last = found.end()
    return "".join(parts) + escape(text[last:])


def anchor(heading: str) -> str:
    """A heading as an id: small letters, digits and hyphens."""
    return "-".join(re.findall(r"[a-z0-9]+", heading.lower())) or "part"


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
    listed = (
        f'<nav class="contents" aria-label="Contents">\n{_list_headings(sections)}\n</nav>\n'
        if contents
        else ""
    )
    paragraphs = "".join(
        f'<p class="lead">{escape_marked(each)}</p>' for each in lead.split("\n\n") if each.strip()
    )
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
<footer>{escape_marked(footer)}</footer>
</main>
</body>
</html>
"""


def _list_headings(sections: Sequence[Section]) -> str:
    """The sections' headings as nested lists of links."""
    items = []
    for each in sections:
        inner = [block for block in each.blocks if isinstance(block, Section)]
        below = f"\n{_list_headings(inner)}\n" if inner else ""
        items.append(f'<li><a href="#{each.id or anchor(each.heading)}">{escape(each.heading)}</a>{below}</li>')
    return "<ol>\n" + "\n".join(items) + "\n</ol>"


@cache
def _style() -> str:
    return Path(__file__).with_name("style.css").read_text(encoding="utf-8").strip()
