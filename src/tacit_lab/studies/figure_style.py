"""Style and layout of all figures: colours, lines and markers by mechanism, and where panels and labels go.

The same mechanism has the same colour, line and marker everywhere, and the same figure the same bytes.
Lengths are in points (1/72 inch). Text is measured before anything is placed, so nothing overlaps or is cut
off.
"""

from __future__ import annotations

import html
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.errors import BadInput
from tacit.expect import Choice

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.text import Text

INK, MUTED, GRID, BACKGROUND, ACCENT = "#1b1f24", "#5b626c", "#dcd9d2", "#fbfaf8", "#2f6f6d"
DOTS_PER_INCH = 192  # twice the 96 of a page
TEXT_SIZE, SMALL_SIZE = 10.0, 9.0  # points

Dashes = tuple[float, ...]  # on and off, in line widths; none: solid
SOLID, LONG, DASH_DOT, DOTTED = (), (5.0, 1.8), (5.0, 1.6, 1.2, 1.6), (1.2, 1.4)


class Mechanism(Choice):
    """What a line is of, mostly what made it private; Okabe and Ito's colours, which most colour-blind people
    can tell apart."""

    RR = "RR"
    DP_SGD = "DP-SGD"
    HYBRID = "Hybrid"
    SNM = "SNM"
    DISCLOSURE = "disclosure"
    CLIENT = "client alone"
    COUNT = "noisy counts"
    OURS = "ours"
    NON_PRIVATE = "non-private"


@dataclass(frozen=True)
class LineStyle:
    """How a line is drawn. Colour is never alone: dashes and markers tell lines apart in grey."""

    colour: str
    dashes: Dashes
    marker: str
    width: float = 1.8


STYLES = {
    Mechanism.RR: LineStyle("#0072B2", SOLID, "o"),
    Mechanism.DP_SGD: LineStyle("#E69F00", LONG, "s"),
    Mechanism.HYBRID: LineStyle("#009E73", DASH_DOT, "^"),
    Mechanism.SNM: LineStyle("#CC79A7", DOTTED, "v"),
    Mechanism.DISCLOSURE: LineStyle("#2b8cbe", SOLID, "s"),  # their sky blue, deeper: it is used in shades
    Mechanism.CLIENT: LineStyle(INK, DOTTED, "X"),
    Mechanism.COUNT: LineStyle("#6a4c93", LONG, "<"),
    Mechanism.OURS: LineStyle("#D55E00", SOLID, "P", 2.4),
    Mechanism.NON_PRIVATE: LineStyle("#6b7280", (3.0, 2.0), "", 1.4),
}
_VARIANT_DASHES = (SOLID, LONG, DASH_DOT, DOTTED)
_VARIANT_MARKERS = ("o", "s", "^", "v", "P", "X", "<", ">")
_LIGHTEST = 0.5  # how far the last variant's colour goes towards paper
_FEW, _FURTHEST = 3, 0.75  # more variants than a few go so far, towards ink where their colour is light


def style_of(mechanism: Mechanism, variant: int = 0, variants: int = 1) -> LineStyle:
    """The style of one of several lines of the same mechanism: its colour from full to pale, its own marker.

    Many variants of a light colour go from full to dark instead, where there is more room to tell them apart.
    """
    own = STYLES[mechanism]
    if variants == 1:
        return own
    darkens = variants > _FEW and _lightness(own.colour) > 0.5
    share = (_FURTHEST if darkens else _LIGHTEST) * variant / (variants - 1)
    first_marker = max(_VARIANT_MARKERS.index(own.marker), 0) if own.marker else 0
    marker = _VARIANT_MARKERS[(first_marker + variant) % len(_VARIANT_MARKERS)] if own.marker else ""
    first_dashes = _VARIANT_DASHES.index(own.dashes) if own.dashes in _VARIANT_DASHES else 0
    dashes = _VARIANT_DASHES[(first_dashes + variant) % len(_VARIANT_DASHES)]
    return LineStyle(_towards(own.colour, INK if darkens else BACKGROUND, share), dashes, marker, own.width)


def _lightness(colour: str) -> float:
    """From black, 0, to white, 1."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def _towards(colour: str, other: str, share: float) -> str:
    """A colour mixed with another."""
    parts = [(int(colour[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(one + share * (two - one)):02x}" for one, two in parts)


def expect_matplotlib() -> None:
    """Refuse before work whose figures could not be drawn in the end."""
    if find_spec("matplotlib") is None:
        raise BadInput("expected matplotlib for figures, got none: pip install 'tacit[studies]'")


@contextmanager
def new_figure() -> Iterator[Figure]:
    """A blank figure in our look; matplotlib's settings outside are neither heeded nor changed."""
    expect_matplotlib()
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # The backend stays the user's: a context would not put it back.
    settings: Any = {key: value for key, value in matplotlib.rcParamsDefault.items() if key != "backend"}
    with matplotlib.rc_context(settings | _settings()):
        figure = Figure(facecolor=BACKGROUND)
        FigureCanvasAgg(figure)
        yield figure


def _settings() -> dict[str, Any]:
    return {
        "font.family": ["DejaVu Sans"],  # comes with matplotlib, so every machine measures text alike
        "font.size": TEXT_SIZE,
        "text.color": INK,
        "text.parse_math": False,  # a dollar sign is a dollar sign
        "axes.facecolor": BACKGROUND,
        "axes.edgecolor": MUTED,
        "axes.labelcolor": INK,
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "axes.axisbelow": True,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "grid.color": GRID,
        "grid.linewidth": 0.8,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "xtick.labelsize": SMALL_SIZE,
        "ytick.labelsize": SMALL_SIZE,
        "ytick.major.size": 0.0,
        "xtick.major.size": 3.0,
        "legend.frameon": False,
        "legend.fontsize": SMALL_SIZE,
        "svg.fonttype": "none",  # text stays text: it can be read aloud, searched and set in the reader's font
        "svg.hashsalt": "tacit",
    }


def save_figure(figure: Figure, path: Path, words: str) -> tuple[Path, Path]:
    """Write `path`.svg and `path`.png, the same bytes for the same figure; `words` say what it shows."""
    figure.set_dpi(72)
    drawn = io.StringIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(drawn, format="svg", metadata=metadata)
    svg = drawn.getvalue().replace("'DejaVu Sans'", "system-ui, sans-serif")
    start = svg.index("<svg ")
    body = svg.index(">", start) + 1
    spoken = f'<svg role="img" {svg[start + 5 : body]}\n <title>{html.escape(words)}</title>'
    places = path.with_name(f"{path.name}.svg"), path.with_name(f"{path.name}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    places[0].write_text(svg[:start] + spoken + svg[body:], encoding="utf-8")
    figure.savefig(places[1], format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    return places


PAD = 16.0  # around everything
GAP = 22.0  # between panels
BELOW = 14.0  # from the subtitle to what follows
LEAST_WIDTH = 360.0  # so that a subtitle has room
LINE = 1.35 * SMALL_SIZE  # from one direct label to the next
LABEL_OFFSET = 8.0  # from the panel to its direct labels
MOST_SHIFT = 2.5 * LINE  # labels that would stand further than this from their lines go into a legend


@dataclass(frozen=True)
class PanelSize:
    """Of the part of a panel in which data is drawn."""

    width: float
    height: float


@dataclass(frozen=True)
class LineLabel:
    """What a line is called, and where it ends, in data units."""

    words: str
    x: float
    y: float
    colour: str


def spread_labels(wanted: Sequence[float], distance: float) -> list[float]:
    """Places as near as can be (in squares) to the wanted ones, in the same order, at least `distance` apart.

    >>> spread_labels([0.0, 1.0, 50.0], 10.0)
    [-4.5, 5.5, 50.0]
    """
    order = np.argsort(wanted, kind="stable").tolist()
    # Labels that touch: the sum of what they want less their steps, and how many they are.
    blocks: list[tuple[float, int]] = []
    for step, at in enumerate(order):
        total, members = wanted[at] - step * distance, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / members:
            total, members = total + blocks[-1][0], members + blocks[-1][1]
            blocks.pop()
        blocks.append((total, members))
    levels = [total / members for total, members in blocks for _ in range(members)]
    places = {at: levels[step] + step * distance for step, at in enumerate(order)}
    return [places[at] for at in range(len(wanted))]


def has_room(axes: Axes, size: PanelSize, labels: Sequence[LineLabel]) -> bool:
    """Whether direct labels stay near their lines and beside their panel."""
    wanted = _heights(axes, size, labels)
    places = spread_labels(wanted, LINE)
    near = all(abs(place - at) <= MOST_SHIFT for place, at in zip(places, wanted, strict=True))
    return near and all(-LINE < place < size.height + LINE for place in places)


def put_labels(axes: Axes, size: PanelSize, labels: Sequence[LineLabel]) -> None:
    """Write each label right of the panel at its line's end, with a thin leader where it had to move."""
    wanted = _heights(axes, size, labels)
    to_panel = axes.transData - axes.transAxes
    for label, place, at in zip(labels, spread_labels(wanted, LINE), wanted, strict=True):
        ends_early = to_panel.transform((label.x, label.y))[0] < 0.9
        leader = {"arrowstyle": "-", "color": label.colour, "linewidth": 0.8, "shrinkA": 1.0, "shrinkB": 5.0}
        leader["relpos"] = (0, 0.5)  # from the first letter, so that it crosses no other label
        axes.annotate(
            label.words,
            (label.x, label.y),
            (size.width + LABEL_OFFSET, place),
            textcoords="axes points",
            va="center",
            fontsize=SMALL_SIZE,
            annotation_clip=False,
            arrowprops=leader if ends_early or abs(place - at) > 2 else None,
        )


def _heights(axes: Axes, size: PanelSize, labels: Sequence[LineLabel]) -> list[float]:
    """How far above the bottom of its panel each line ends."""
    to_panel = axes.transData - axes.transAxes
    return [float(to_panel.transform((label.x, label.y))[1]) * size.height for label in labels]


def put_heading(axes: Axes, title: str, y_label: str) -> None:
    """The panel's name, and below it what its heights mean: read from left to right, not sideways."""
    at: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
    if y_label:
        axes.annotate(y_label, (0, 1), (0, 9), color=MUTED, fontsize=SMALL_SIZE, **at)
    if title:
        axes.annotate(
            title, (0, 1), (0, 11 + 1.4 * SMALL_SIZE), weight="bold", color=INK, fontsize=TEXT_SIZE, **at
        )


def arrange_panels(
    figure: Figure,
    panels: Sequence[Axes],
    size: PanelSize,
    *,
    columns: int,
    title: str,
    subtitle: str,
    legend: Sequence[tuple[Artist, str]],
) -> None:
    """Place the panels by what they were measured to need, under title, subtitle and legend."""
    figure.set_dpi(72)  # a pixel is a point
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    rows = -(-len(panels) // columns)
    sides = np.zeros((4, rows, columns))  # how far each panel's text sticks out: left, right, top, bottom
    for at, axes in enumerate(panels):
        _place(figure, axes, 0, 0, size)
        box = axes.get_tightbbox(renderer)
        assert box is not None
        sides[:, *divmod(at, columns)] = -box.x0, box.x1 - size.width, box.y1 - size.height, -box.y0
    left, right = np.maximum(sides[:2].max(axis=1), 0)  # each (columns,)
    top, bottom = np.maximum(sides[2:].max(axis=2), 0)  # each (rows,)
    width = max(2 * PAD + left.sum() + right.sum() + columns * size.width + (columns - 1) * GAP, LEAST_WIDTH)

    name = figure.text(
        0, 0, title, transform=figure.dpi_scale_trans, weight="bold", color=INK, fontsize=TEXT_SIZE, va="top"
    )
    width = max(width, _width(name) + 2 * PAD)
    name_height = name.get_window_extent(renderer).height + BELOW / 2 if title else 0.0
    words = _subtitle(figure, subtitle, width - 2 * PAD)
    key = _legend(figure, legend, width - 2 * PAD)
    words_height = name_height + words.get_window_extent(renderer).height
    key_height = key.get_window_extent(renderer).height + BELOW if key else 0.0
    above = PAD + words_height + BELOW + key_height
    height = above + top.sum() + bottom.sum() + rows * size.height + (rows - 1) * GAP + PAD
    figure.set_size_inches(width / 72, height / 72)
    name.set_position((PAD / 72, (height - PAD) / 72))
    words.set_position((PAD / 72, (height - PAD - name_height) / 72))
    if key:
        place = (PAD / 72, (height - PAD - words_height - BELOW) / 72)
        key.set_bbox_to_anchor(place, figure.dpi_scale_trans)

    for at, axes in enumerate(panels):
        row, column = divmod(at, columns)
        x = PAD + left[: column + 1].sum() + right[:column].sum() + column * (size.width + GAP)
        y = above + top[: row + 1].sum() + bottom[:row].sum() + row * (size.height + GAP)
        _place(figure, axes, x, height - y - size.height, size)


def _place(figure: Figure, axes: Axes, x: float, y: float, size: PanelSize) -> None:
    width, height = 72 * figure.get_size_inches()
    axes.set_position((x / width, y / height, size.width / width, size.height / height))


def _subtitle(figure: Figure, words: str, width: float) -> Text:
    """The subtitle, in as many lines as it needs."""
    style: dict[str, Any] = {"color": MUTED, "fontsize": TEXT_SIZE, "va": "top", "linespacing": 1.35}
    text = figure.text(0, 0, "", transform=figure.dpi_scale_trans, **style)
    lines: list[str] = []
    for word in words.split():
        longer = f"{lines[-1]} {word}" if lines else word
        text.set_text(longer)
        fits = _width(text) <= width
        lines = [*lines[:-1], longer] if fits or not lines else [*lines, word]
    text.set_text("\n".join(lines))
    return text


def _width(words: Text | Legend) -> float:
    """How wide it gets, on a page or in a picture: with few dots per inch letters are set narrower."""
    figure = words.get_figure(root=True)
    assert figure is not None
    widths = []
    for dots in (DOTS_PER_INCH, 72):
        figure.set_dpi(dots)
        renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        widths.append(words.get_window_extent(renderer).width * 72 / dots)
    return max(widths)


def _legend(figure: Figure, entries: Sequence[tuple[Artist, str]], width: float) -> Legend | None:
    """A legend with as many columns as fit."""
    for columns in range(len(entries), 0, -1):
        made = figure.legend(
            [artist for artist, _ in entries],
            [name for _, name in entries],
            loc="upper left",
            bbox_to_anchor=(0, 1),
            bbox_transform=figure.dpi_scale_trans,
            ncols=columns,
            borderpad=0,
            borderaxespad=0,
            columnspacing=1.8,
            handlelength=2.6,
        )
        if columns == 1 or _width(made) <= width:
            return made
        made.remove()
    return None
