"""One look for all figures: the same colour, line and marker for the same mechanism, and bytes that repeat."""

from __future__ import annotations

import html
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import BadInput
from tacit.expect import Choice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, RULE, PAPER, ACCENT = "#1b1f24", "#5b626c", "#dcd9d2", "#fbfaf8", "#2f6f6d"
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
class Style:
    """How a line is drawn. Colour is never alone: dashes and markers tell lines apart in grey."""

    colour: str
    dashes: Dashes
    marker: str
    width: float = 1.8


STYLES = {
    Mechanism.RR: Style("#0072B2", SOLID, "o"),
    Mechanism.DP_SGD: Style("#E69F00", LONG, "s"),
    Mechanism.HYBRID: Style("#009E73", DASH_DOT, "^"),
    Mechanism.SNM: Style("#CC79A7", DOTTED, "v"),
    Mechanism.DISCLOSURE: Style("#2b8cbe", SOLID, "s"),  # their sky blue, deeper: it is used in shades
    Mechanism.CLIENT: Style(INK, DOTTED, "X"),
    Mechanism.COUNT: Style("#6a4c93", LONG, "<"),
    Mechanism.OURS: Style("#D55E00", SOLID, "P", 2.4),
    Mechanism.NON_PRIVATE: Style("#6b7280", (3.0, 2.0), "", 1.4),
}
_VARIANT_DASHES = (SOLID, LONG, DASH_DOT, DOTTED)
_VARIANT_MARKERS = ("o", "s", "^", "v", "P", "X", "<", ">")
_LIGHTEST = 0.5  # how far the last variant's colour goes towards paper
_FEW, _FURTHEST = 3, 0.75  # more variants than a few go so far, towards ink where their colour is light


def style_of(mechanism: Mechanism, variant: int = 0, variants: int = 1) -> Style:
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
    return Style(_towards(own.colour, INK if darkens else PAPER, share), dashes, marker, own.width)


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
def drawing() -> Iterator[Figure]:
    """A blank figure in our look; matplotlib's settings outside are neither heeded nor changed."""
    expect_matplotlib()
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # The backend stays the user's: a context would not put it back.
    settings: Any = {key: value for key, value in matplotlib.rcParamsDefault.items() if key != "backend"}
    with matplotlib.rc_context(settings | _settings()):
        figure = Figure(facecolor=PAPER)
        FigureCanvasAgg(figure)
        yield figure


def _settings() -> dict[str, Any]:
    return {
        "font.family": ["DejaVu Sans"],  # comes with matplotlib, so every machine measures text alike
        "font.size": TEXT_SIZE,
        "text.color": INK,
        "text.parse_math": False,  # a dollar sign is a dollar sign
        "axes.facecolor": PAPER,
        "axes.edgecolor": MUTED,
        "axes.labelcolor": INK,
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "axes.axisbelow": True,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "grid.color": RULE,
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


def save(figure: Figure, path: Path, words: str) -> tuple[Path, Path]:
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
