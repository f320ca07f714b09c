"""Figures: the same bytes every time, nothing overlapping or cut off, one style for each mechanism."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import BadInput
from tacit_lab.studies import figure_style, plotting
from tacit_lab.studies.figure_style import DOTS_PER_INCH, LINE, STYLES, spread_labels, style_of
from tacit_lab.studies.plotting import Bars, Mechanism, Panel, Series, bar_figure, line_figure

EPSILONS = np.array([1.0, 2, 4, 8, 16])
FALLING = np.array([20.0, 12, 7, 4, 3])


def lines() -> list[Series]:
    """Every mechanism, with ends that are close together, and a published figure."""
    made = [
        Series(str(mechanism), EPSILONS, FALLING + at, FALLING + at - 0.5, FALLING + at + 0.5, mechanism)
        for at, mechanism in enumerate(Mechanism)
    ]
    return [*made, Series("published RR", [1, 4], [21, 8], mechanism=Mechanism.RR, published=True)]


def draw_lines(path: Path, panels: int = 1, **changes: Any) -> tuple[Path, Path]:
    settings: dict[str, Any] = {
        "subtitle": "Per impression, replace label; synthetic, 400k rows, 10 seeds; costs < $5 & little time",
        "x_label": "epsilon",
        "y_label": "AUC loss against non-private, %",
        "log_x_ticks": (1, 2, 4, 8, 16),
        "path": path,
    }
    made = [Panel(f"Log {at}" if panels > 1 else "", lines()) for at in range(panels)]
    return line_figure(made, **settings | changes)


def draw_bars(path: Path, panels: int = 1, **changes: Any) -> tuple[Path, Path]:
    heights = [3_100_000.0, 900_000, 410_000, 52_000, 99]
    made = [Bars(f"Unit {at}", ["1", "2", "3", "4", "5+"], heights) for at in range(panels)]
    settings: dict[str, Any] = {"subtitle": "Made up", "x_label": "examples", "y_label": "users", "path": path}
    return bar_figure(made, **settings | changes)


FIGURES: dict[str, Callable[[Path], tuple[Path, Path]]] = {
    "one": draw_lines,
    "two": lambda path: draw_lines(path, 2),
    "three": lambda path: draw_lines(path, 3),
    "five": lambda path: draw_lines(path, 5, share_y=False),
    "many words": lambda path: draw_lines(path, 4, share_y=False, subtitle="at so many (1) to " * 12),
    "linear": lambda path: draw_lines(path, log_x_ticks=None),
    "crowded": lambda path: line_figure(
        [Panel("", [Series(f"number {at}", [1, 2], [at, 1], mechanism=Mechanism.RR) for at in range(9)])],
        subtitle="Ends together", x_label="x", y_label="y", path=path,
    ),
    "point": lambda path: line_figure(
        [Panel("", [Series("alone", [4], [-3], [-4], [-2], Mechanism.SNM)])],
        subtitle="One", x_label="epsilon", y_label="difference", log_x_ticks=(4,), path=path,
    ),
    "flat": lambda path: line_figure(
        [Panel("", [Series("a long name that needs much room beside the panel", [0, 1], [0, 0])])],
        subtitle="Flat", x_label="x", y_label="y", path=path,
    ),
    "bars": draw_bars,
    "log bars": lambda path: draw_bars(path, 2, log_y=True),
    "log bars with a gap": lambda path: bar_figure(
        [Bars("user", ["1", "2", "3", "4+"], [100, 0, 7, 0])],
        subtitle="Made up", x_label="examples", y_label="users", log_y=True, path=path,
    ),
    "published bars": lambda path: bar_figure(
        [Bars("", ["1", "2"], [3.0, 4.0], published=[3.1, 4.2])],
        subtitle="Made up", x_label="examples", y_label="users", path=path,
    ),
}  # fmt: skip


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A figure by name, as it would be saved."""
    kept: list[Any] = []
    monkeypatch.setattr(plotting, "save_figure", lambda figure, *_: kept.append(figure))

    def draw(name: str) -> Any:
        FIGURES[name](tmp_path / "figure")
        return kept.pop()

    return draw


def assert_tidy(figure: Any) -> None:
    """No text lies over another, or nearer than 8 points to the figure's edge."""
    for dots in (72, DOTS_PER_INCH):  # letters are set narrower at few dots than at many
        figure.set_dpi(dots)
        _assert_tidy(figure, dots / 72)


def _assert_tidy(figure: Any, point: float) -> None:
    from matplotlib.text import Text

    figure.canvas.draw()
    # matplotlib keeps the texts of ticks that it does not draw.
    unused = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
        if tick not in axis._update_ticks()
        for label in (tick.label1, tick.label2)
    }
    boxes = [
        (text.get_text(), Text.get_window_extent(text))  # without the leader of a label
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in unused
    ]
    assert len(boxes) > 3
    for words, box in boxes:
        inside = min(box.x0, box.y0, figure.bbox.width - box.x1, figure.bbox.height - box.y1) >= 8 * point
        assert inside, f"{words!r} is cut off"
    for (words, box), (other_words, other) in itertools.combinations(boxes, 2):
        beside = box.x1 <= other.x0 or other.x1 <= box.x0
        apart = beside or box.y1 <= other.y0 + point or other.y1 <= box.y0 + point
        assert apart, f"{words!r} lies over {other_words!r}"


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_lies_over_another_or_is_cut_off(name: str, drawn: Callable[[str], Any]) -> None:
    assert_tidy(drawn(name))


def test_labels_that_were_not_spread_would_be_noticed(
    drawn: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure_style, "spread_labels", lambda wanted, _: list(wanted))
    with pytest.raises(AssertionError, match="lies over"):
        assert_tidy(drawn("crowded"))


def test_labels_beside_a_panel_that_kept_its_place_would_be_noticed(drawn: Callable[[str], Any]) -> None:
    figure = drawn("flat")
    figure.set_size_inches(figure.get_size_inches() * (0.8, 1))
    with pytest.raises(AssertionError, match="is cut off"):
        assert_tidy(figure)


def test_lines_are_labelled_directly_where_there_is_room_and_else_in_a_legend(
    drawn: Callable[[str], Any],
) -> None:
    for name, entries in (("one", ["published RR"]), ("crowded", [f"number {at}" for at in range(9)])):
        (legend,) = drawn(name).legends
        assert [text.get_text() for text in legend.get_texts()] == entries
    assert len(drawn("three").legends[0].get_texts()) == len(lines())
    assert not drawn("flat").legends


@pytest.mark.parametrize("draw", [FIGURES["two"], FIGURES["published bars"]], ids=["two", "published bars"])
def test_bytes_repeat_and_have_no_date(draw: Callable[[Path], tuple[Path, Path]], tmp_path: Path) -> None:
    import matplotlib

    first = [place.read_bytes() for place in draw(tmp_path / "first" / "figure")]
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.hashsalt": "other"}):
        second = [place.read_bytes() for place in draw(tmp_path / "second" / "figure")]
        assert matplotlib.rcParams["font.size"] == 30
    assert first == second
    assert b"<dc:date>" not in first[0]
    assert b"matplotlib.org" not in first[0] + first[1]


def test_svg_is_text_that_can_be_read_aloud(tmp_path: Path) -> None:
    svg, png = draw_lines(tmp_path / "deep" / "figure.v2")
    assert (svg.name, png.name) == ("figure.v2.svg", "figure.v2.png")
    tree = ElementTree.fromstring(svg.read_text())
    space = "{http://www.w3.org/2000/svg}"
    title = tree.find(f"{space}title")
    assert title is not None
    assert str(title.text).endswith("costs < $5 & little time")
    assert tree.get("role") == "img"
    texts = [str(text.text) for text in tree.iter(f"{space}text")]
    assert {
        "RR",
        "DP-SGD",
        "Hybrid",
        "published RR",
        "epsilon",
        "16",
        "AUC loss against non-private, %",
    } <= set(texts)
    assert "DejaVu" not in svg.read_text()
    from PIL import Image

    with Image.open(png) as image:
        points = float(str(tree.get("width")).removesuffix("pt"))
        # Twice the 96 dots per inch of a page.
        assert image.width == pytest.approx(points * 96 / 72 * 2, abs=1)


def test_styles_differ_without_colour_and_keep_the_colours_of_the_look() -> None:
    assert len({(style.dashes, style.marker) for style in STYLES.values()}) == len(Mechanism)
    assert {str(name): style.colour for name, style in STYLES.items()} == {
        "RR": "#0072B2", "DP-SGD": "#E69F00", "Hybrid": "#009E73", "SNM": "#CC79A7",
        "disclosure": "#2b8cbe", "client alone": "#1b1f24", "ours": "#D55E00", "non-private": "#6b7280",
        "noisy counts": "#6a4c93",
    }  # fmt: skip
    for mechanism in Mechanism:
        variants = [style_of(mechanism, at, 4) for at in range(4)]
        assert len({(each.dashes, each.marker) for each in variants}) == 4
        assert variants[0].colour.lower() == STYLES[mechanism].colour.lower()
        assert len({each.colour for each in variants}) == 4
        # Neighbours differ in some channel by a twelfth of the way from black to white.
        channels = [[int(each.colour[at : at + 2], 16) for at in (1, 3, 5)] for each in variants]
        assert all(np.abs(np.diff(channels, axis=0)).max(axis=1) >= 21)


def test_a_name_has_one_style_in_all_panels() -> None:
    user, impression = (Series(name, [1], [1], mechanism=Mechanism.RR) for name in ("user", "impression"))
    published = Series("published", [1], [1], mechanism=Mechanism.RR, published=True)
    styles = plotting._styles([user, impression, published, impression, user])
    assert styles[Mechanism.RR, "user"] == style_of(Mechanism.RR, 0, 2)
    assert styles[Mechanism.RR, "impression"] == style_of(Mechanism.RR, 1, 2)
    assert styles[Mechanism.RR, "published"] == style_of(Mechanism.RR)


@given(st.lists(st.floats(-200, 200), max_size=9))
def test_labels_are_spread_in_order_and_no_further_than_needed(wanted: list[float]) -> None:
    places = spread_labels(wanted, LINE)
    order = np.argsort(wanted, kind="stable")
    sorted_places = np.array(places)[order]
    assert np.all(np.diff(sorted_places) >= LINE - 1e-9)
    assert sum(places) == pytest.approx(sum(wanted), abs=1e-6)  # least squares keeps the mean of every block
    if np.all(np.diff(np.array(wanted)[order]) >= LINE):
        assert places == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda _: Series("a", [1, 2], [1]), r"series a: expected y as long as x \(2\)"),
        (lambda _: Series("a", [], []), r"series a: expected x as long as x \(0\)"),
        (lambda _: Series("a", [1], [np.nan]), "series a: expected y to be finite"),
        (lambda _: Series("a", [1], [1], low=[0]), "series a: expected low and high together"),
        (lambda _: Series("a", [1], [1], [2], [3]), "series a: expected low <= y <= high"),
        (lambda _: Series("a", [1], [1], mechanism="magic"), "expected Mechanism to be one of RR, DP-SGD"),  # type: ignore[arg-type]
        (lambda _: Bars("", ["1"], [1, 2]), "expected 1 heights for as many labels, got 2"),
        (lambda _: Bars("", ["1"], [1], [-1]), "expected published heights that are finite and >= 0"),
        (lambda path: line_figure([], subtitle="", x_label="", y_label="", path=path), "expected panels with"),
        (lambda path: bar_figure([], subtitle="", x_label="", y_label="", path=path), "expected at least one"),
        (
            lambda path: line_figure(
                [Panel("", [Series("a", [0, 1], [1, 2])])],
                subtitle="", x_label="", y_label="", log_x_ticks=(1,), path=path,
            ),
            "expected x > 0 on a logarithmic axis",
        ),
        (
            lambda path: bar_figure(
                [Bars("", ["1"], [0])], subtitle="", x_label="", y_label="", log_y=True, path=path
            ),
            "expected some height > 0 on a logarithmic axis",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused(draw: Callable[[Path], object], words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=words):
        draw(tmp_path / "figure")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_refusal_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BadInput, match=r"pip install 'tacit\[studies\]'"):
        draw_lines(tmp_path / "figure")


def test_importing_a_study_does_not_import_matplotlib() -> None:
    code = "import sys; from tacit_lab.studies import plotting, results; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
