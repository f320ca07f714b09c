"""A page needs nothing but itself: well formed, escaped, with ids of its own and no way out."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import BadInput
from tacit.pages import (
    Block,
    Board,
    Chip,
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
    drawings,
    page,
)
from tacit.pages.drawings import LEAST_CONTRAST, contrast, lighten_for_dark
from tacit_lab.studies import figure_style
from tests.support.browsers import a_browser, needs_chromium
from tests.support.page_reader import Seen, assert_self_contained

SVG = """<?xml version="1.0" encoding="utf-8" standalone="no"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="300pt" height="150pt"
 viewBox="0 0 300 150">
 <title>what it shows</title>
 <metadata><rdf xmlns="http://example.org">none</rdf></metadata>
 <defs><style type="text/css">*{stroke: red}</style>
  <clipPath id="clip"><rect width="9" height="9"/></clipPath><path id="dot" d="M 0 1.23456"/></defs>
 <g id="axes"><use xlink:href="#dot" clip-path="url(#clip)" style="fill: #0072B2; stroke: #fbfaf8"/>
  <text style="fill: #1b1f24">#0072B2 &lt;</text></g>
</svg>
"""


NASTY = "<script>alert('x')</script> & \"quoted\""
EVERYTHING: list[Block | Section] = [
    Prose(f"A `code` and *weight* and 2 * 3 * 4. {NASTY}\n\nA second paragraph."),
    Table(
        ("arm", "revenue"),
        [(NASTY, "1.0"), (Link("there", "r1"), Verdict("fails on 1 of 3"))],
        numbers=("revenue",),
        caption=NASTY,
        strong={(0, 1)},
    ),
    Figure(SVG, "one"),
    Figure(SVG, NASTY),
    Facts([("12", NASTY, "a note"), ("€ 3", "charged", "")]),
    Flow([("gather", NASTY, "ε 1"), ("train", "b", "")]),
    Code(f"$ tacit {NASTY}"),
    Details(NASTY, [Prose("folded")]),
    Verdicts([Ruling("R1", NASTY, Verdict("holds"), [("seen", NASTY)], id="r1")]),
    Board([("a paper", [Chip("R1", Verdict("not tested"), NASTY, "r1")])]),
    Section(NASTY, [Prose("deeper")], id="deeper"),
]


@pytest.fixture(scope="module")
def html() -> str:
    return page(NASTY, f"{NASTY} lead", [Section("A part", EVERYTHING)], footer=NASTY, contents=True)


def test_a_page_of_everything_is_well_formed_and_needs_nothing_else(html: str) -> None:
    seen = assert_self_contained(html)
    assert {"a-part", "deeper", "r1", "f1-clip", "f2-clip"} <= set(seen.ids)
    assert {"#r1", "#deeper"} <= set(seen.links)


def test_every_text_is_escaped_wherever_it_stands(html: str) -> None:
    wanted = (
        12  # title twice, lead, footer, prose, table, figure, facts, flow, code, ruling twice, section twice
    )
    assert Seen(html).text.count("<script>alert('x')</script>") >= wanted


def test_marks_are_code_and_emphasis_and_nothing_else(html: str) -> None:
    assert "<code>code</code> and <em>weight</em> and 2 * 3 * 4" in html
    assert "<p>A second paragraph.</p>" in html


def test_a_table_sets_numbers_right_and_the_best_in_bold(html: str) -> None:
    assert '<td class="number"><strong>1.0</strong></td>' in html
    assert '<span class="verdict fails">fails on 1 of 3</span>' in html


def test_a_figure_is_drawn_in_the_colours_of_the_page(html: str) -> None:
    drawing = re.findall(r"<svg.*?</svg>", html, re.DOTALL)[1]
    assert 'href="#f2-dot"' in drawing
    assert "url(#f2-clip)" in drawing
    assert "fill: var(--c-0072b2, #0072b2); stroke: var(--paper)" in drawing
    assert "fill: var(--ink)" in drawing
    assert ">#0072B2 &lt;</text>" in drawing, "text is text"
    assert "M 0 1.23" in drawing
    assert "max-width: 400px" in drawing
    assert not re.search(r"metadata|stroke: red", drawing)
    assert f"--c-0072b2: {lighten_for_dark('#0072b2')}" in html, "on dark paper"


@pytest.mark.parametrize(
    "part",
    [
        "<script>1</script>",
        "<foreignObject/>",
        "<a href='#x'/>",
        "<image href='x.png'/>",
        "<use href='https://example.org/#a'/>",
        "<g onclick='x()'/>",
        "<g style='fill: url(https://example.org)'/>",
        "<g style='fill: url(#a) url(//example.org)'/>",
        "<unclosed>",
    ],
)
def test_a_figure_that_could_load_or_run_is_refused(part: str) -> None:
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1">{part}</svg>'
    with pytest.raises(BadInput, match="expected a figure"):
        page("t", "l", [Section("a", [Figure(svg, "")])])


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ([Table(("a",), [(Link("x", "nowhere"),)])], "links to sections"),
        ([Section("a", [])], "own id, got 'a' twice"),
        ([Section("b", [], id="Not an id")], "small letters"),
        ([Figure("<p/>", "")], "element 'p'"),
        ([Figure('<svg xmlns="http://www.w3.org/2000/svg"/>', "")], "a viewBox"),
        (["text"], "a block of a page, got str"),
        ([Table(("a",), [(3,)])], "got int"),  # type: ignore[list-item]
    ],
)
def test_what_would_not_work_is_refused(blocks: list[Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        page("t", "l", [Section("a", blocks)])


def test_a_table_refuses_rows_and_columns_that_do_not_fit() -> None:
    with pytest.raises(BadInput, match="rows of 2 cells, got one of 1"):
        Table(("a", "b"), [("1",)])
    with pytest.raises(BadInput, match="got 'c'"):
        Table(("a", "b"), [], numbers=("c",))


def test_figures_and_pages_have_one_look() -> None:
    assert (drawings.RULE, drawings.PAPER) == (figure_style.GRID, figure_style.BACKGROUND)
    for name in ("INK", "MUTED", "ACCENT"):
        assert getattr(drawings, name) == getattr(figure_style, name)
    html = page("t", "l", [])
    for colour, name in drawings.PAGE_COLOURS.items():
        assert f"{name}: {colour}" in html, "the style sheet says the same"
    assert f"--paper: {drawings.DARK_PAPER}" in html
    assert f"--ink: {drawings.DARK_INK}" in html


@pytest.mark.parametrize("style", figure_style.STYLES.values(), ids=lambda style: style.colour)
def test_every_line_stands_out_on_dark_paper(style: figure_style.LineStyle) -> None:
    assert contrast(lighten_for_dark(style.colour.lower()), drawings.DARK_PAPER) >= LEAST_CONTRAST


# On a phone: measured in a browser, where there is one.

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PHONE, FINE = 390, 1  # pixels; what boxes differ by for rounding
ASKED = """
frame.onload = () => {
  const page = frame.contentDocument, boxes = [...page.querySelectorAll(".wide, .drawing, pre")];
  const shaded = box => frame.contentWindow.getComputedStyle(box).backgroundAttachment.includes("local");
  document.title = JSON.stringify({
    page: page.documentElement.scrollWidth,
    boxes: boxes.map(box => [box.className, box.clientWidth, box.scrollWidth, shaded(box)]),
  });
};"""


def as_on_a_phone(html: str, folder: Path) -> dict[str, Any]:
    """How wide a page and the boxes in it are in a frame of a phone's width; the page runs no script."""
    outer = folder / "outer.html"
    frame = (
        f'<iframe id="frame" width="{PHONE}" height="844" style="border: 0" srcdoc="{escape(html)}"></iframe>'
    )
    asked = ASKED.replace("frame.onload", 'const frame = document.getElementById("frame"); frame.onload')
    outer.write_text(f'<meta charset="utf-8">{frame}<script>{asked}</script>', encoding="utf-8")
    assert CHROMIUM is not None
    switches = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--dump-dom",
        "--hide-scrollbars",
    ]
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command = [CHROMIUM, *switches, *quiet, f"--user-data-dir={folder / 'profile'}", outer.as_uri()]
    dumped = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout.decode()
    found = re.search("<title>(.*?)</title>", dumped)
    assert found is not None
    measured: dict[str, Any] = json.loads(unescape(found[1]))
    return measured


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium to measure a page")
def test_nothing_of_a_page_is_cut_off_on_a_phone_without_a_hint(tmp_path: Path) -> None:
    long = "undecided (a verdict of many words, which a phone shows on several lines)"
    wide = Table(
        [f"column {n}" for n in range(9)], [[f"{n}.000 ± 0.000" for n in range(9)]], numbers=["column 1"]
    )
    figures = [Figure(SVG.replace("300pt", f"{points}pt"), "as drawn") for points in (500, 900)]
    blocks: list[Block | Section] = [*EVERYTHING, wide, *figures, Code("x" * 200)]
    blocks.append(Verdicts([Ruling("R99", "a claim", Verdict(long), [("seen", "1")])]))
    seen = as_on_a_phone(page("A title", "A lead", [Section("A part", blocks)], contents=True), tmp_path)
    assert seen["page"] <= PHONE  # the page itself never scrolls sideways
    cut = [box for box in seen["boxes"] if box[2] > box[1] + FINE]
    assert {box[0] for box in cut} == {"wide", "drawing", ""}
    assert all(shaded for *_, shaded in cut)
    drawn = [(inside, outside) for name, outside, inside, _ in seen["boxes"] if name == "drawing"]
    # Nearly as large as drawn, or nobody could read it, and the rest a scroll away.
    assert [inside for inside, _ in drawn[2:]] == pytest.approx([0.85 * 500 * 4 / 3, 0.85 * 900 * 4 / 3], abs=1)


@needs_chromium
def test_what_is_wider_than_the_screen_says_that_it_scrolls(tmp_path: Path) -> None:
    """In words, without a script; and what fits says nothing."""
    wide = Table([f"a column {each}" for each in range(6)], [["nothing" * 3] * 6], caption="wide")
    few = Table(("a", "b"), [("1", "2")], caption="fits")
    html = page("t", "l", [Section("a", [wide, few, Figure(SVG, "")])])
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    told = """() => [...document.querySelectorAll(".wide, .drawing")]
      .map(each => [each.scrollWidth > each.clientWidth + 1, getComputedStyle(each, "::after").maxHeight])"""
    with a_browser() as browser:
        opened = browser.new_page(viewport={"width": 390, "height": 800})
        opened.goto((tmp_path / "page.html").as_uri())
        assert opened.evaluate(told) == [[True, "24px"], [False, "0px"], [False, "0px"]]
        assert "scroll for more" in opened.evaluate(
            "getComputedStyle(document.querySelector('.wide'), '::after').content"
        )
