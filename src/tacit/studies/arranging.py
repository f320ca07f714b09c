"""Where panels, labels and legends go: panels keep their size, and the figure grows around them.

All lengths are in points (1/72 inch). Text is measured before anything is placed, so nothing overlaps or is cut
off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.studies.look import DOTS_PER_INCH, INK, MUTED, SMALL_SIZE, TEXT_SIZE

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.text import Text

PAD = 16.0  # around everything
GAP = 22.0  # between panels
BELOW = 14.0  # from the subtitle to what follows
LEAST_WIDTH = 360.0  # so that a subtitle has room
LINE = 1.35 * SMALL_SIZE  # from one direct label to the next
LABEL_OFFSET = 8.0  # from the panel to its direct labels
MOST_SHIFT = 2.5 * LINE  # labels that would stand further than this from their lines go into a legend


@dataclass(frozen=True)
class Size:
    """Of the part of a panel in which data is drawn."""

    width: float
    height: float


@dataclass(frozen=True)
class Label:
    """What a line is called, and where it ends, in data units."""

    words: str
    x: float
    y: float
    colour: str


def spread(wanted: Sequence[float], distance: float) -> list[float]:
    """Places as near as can be (in squares) to the wanted ones, in the same order, at least `distance` apart.

    >>> spread([0.0, 1.0, 50.0], 10.0)
    [-4.5, 5.5, 50.0]
    """
    order = np.argsort(wanted, kind="stable").tolist()
    blocks: list[
        tuple[float, int]
    ] = []  # labels that touch: the sum of what they want less their steps, how many
    for step, at in enumerate(order):
        total, members = wanted[at] - step * distance, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / members:
            total, members = total + blocks[-1][0], members + blocks[-1][1]
            blocks.pop()
        blocks.append((total, members))
    levels = [total / members for total, members in blocks for _ in range(members)]
    places = {at: levels[step] + step * distance for step, at in enumerate(order)}
    return [places[at] for at in range(len(wanted))]


def has_room(axes: Axes, size: Size, labels: Sequence[Label]) -> bool:
    """Whether direct labels stay near their lines and beside their panel."""
    wanted = _heights(axes, size, labels)
    places = spread(wanted, LINE)
    near = all(abs(place - at) <= MOST_SHIFT for place, at in zip(places, wanted, strict=True))
    return near and all(-LINE < place < size.height + LINE for place in places)


def put_labels(axes: Axes, size: Size, labels: Sequence[Label]) -> None:
    """Write each label right of the panel at its line's end, with a thin leader where it had to move."""
    wanted = _heights(axes, size, labels)
    to_panel = axes.transData - axes.transAxes
    for label, place, at in zip(labels, spread(wanted, LINE), wanted, strict=True):
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


def _heights(axes: Axes, size: Size, labels: Sequence[Label]) -> list[float]:
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


def arrange(
    figure: Figure,
    panels: Sequence[Axes],
    size: Size,
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


def _place(figure: Figure, axes: Axes, x: float, y: float, size: Size) -> None:
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
    """How wide it gets, on a page or in a picture: with few dots an inch letters are set narrower."""
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
