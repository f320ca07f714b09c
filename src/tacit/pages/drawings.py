"""SVG files as parts of a page: inlined, their ids prefixed, their colours following the page's theme.

Several can stand side by side. A colour that would not stand out on dark paper is made lighter there.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from tacit.errors import BadInput

INK, MUTED, RULE, PAPER, ACCENT = "#1b1f24", "#5b626c", "#dcd9d2", "#fbfaf8", "#2f6f6d"
DARK_PAPER, DARK_INK = "#15171a", "#e6e3dc"
PAGE_COLOURS = {INK: "--ink", MUTED: "--muted", RULE: "--rule", PAPER: "--paper", ACCENT: "--accent"}
"""The colours that figures share with the page, by their names in the style sheet."""

LEAST_CONTRAST = 4.5  # of a line to dark paper: what WCAG asks of text, which labels of lines are


def lighten_for_dark(colour: str) -> str:
    """The colour itself where it stands out on dark paper, else lighter until it does."""
    for step in range(21):
        candidate = _mix_colours(colour, DARK_INK, step / 20)
        if contrast(candidate, DARK_PAPER) >= LEAST_CONTRAST:
            return candidate
    return DARK_INK


def _mix_colours(colour: str, other: str, share: float) -> str:
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(255 * (one + share * (two - one))):02x}" for one, two in pairs)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, from 1 to 21, by WCAG 2."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in _channels(colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue


DRAWING_ELEMENTS = frozenset(
    {"circle", "clipPath", "defs", "desc", "ellipse", "g", "line", "marker", "path", "polygon", "polyline"}
    | {"rect", "svg", "symbol", "text", "title", "tspan", "use"}
)
DROPPED_ELEMENTS = frozenset({"metadata", "style"})  # a style would be one for the whole page
READABLE, WIDEST = 0.5, 832  # how far a drawing is shrunk before it scrolls instead; pixels that fit a laptop
_REFERENCE = re.compile(r"url\(\s*['\"]?#([^)'\"\s]+)['\"]?\s*\)")
_COLOUR = re.compile(r"#([0-9a-fA-F]{6})\b")
_LONG_NUMBER = re.compile(r"(-?\d+\.\d{2})\d+")
_THEMED = re.compile(r"var\(--c-([0-9a-f]{6}),")


def inline_svg(svg: str, prefix: str) -> str:
    """The drawing as an element of HTML, its ids prefixed; refused if it could load or run anything."""
    try:
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError as problem:
        raise BadInput(f"expected a figure as SVG, got what cannot be read as XML: {problem}") from None
    if _local(root.tag) != "svg":
        raise BadInput(f"expected a figure as SVG, got an element {_local(root.tag)!r}")
    _clean(root, prefix)
    width = _width(root)
    root.attrib.pop("height", None)
    root.attrib.pop("width", None)
    root.set("role", "img")
    # As wide as it was drawn, or narrower while its text can be read; on a phone that is nearly as wide
    # (`style.css`). The rest are matplotlib's own defaults, which it says in the style that is left out.
    least = min(READABLE * width, WIDEST)
    size = f"--drawn: {width:.0f}px; max-width: {width:.0f}px; min-width: {least:.0f}px"
    root.set("style", f"{size}; stroke-linejoin: round; stroke-linecap: butt")
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)


def dark_colours(html: str) -> str:
    """What the colours of the drawings in a page are on dark paper, as CSS declarations."""
    used = sorted(set(_THEMED.findall(html)))
    changed = ((f"#{colour}", lighten_for_dark(f"#{colour}")) for colour in used)
    return "".join(f"--c-{light[1:]}: {dark}; " for light, dark in changed if light != dark).strip()


def _clean(element: ElementTree.Element, prefix: str) -> None:
    for child in list(element):
        if not isinstance(child.tag, str) or _local(child.tag) in DROPPED_ELEMENTS:
            element.remove(child)
        else:
            _clean(child, prefix)
    element.tag = _local(element.tag)
    if element.tag not in DRAWING_ELEMENTS:
        raise BadInput(f"expected a figure of shapes and text, got an element {element.tag!r}")
    attributes = {_local(name): value for name, value in element.attrib.items()}
    element.attrib.clear()
    for name, value in attributes.items():
        element.set(name, _safe(name, value, prefix))


def _safe(name: str, value: str, prefix: str) -> str:
    if name == "href":
        if not value.startswith("#"):
            raise BadInput("expected a figure that refers only to its own parts, got a link to elsewhere")
        return f"#{prefix}{value[1:]}"
    if name.lower().startswith("on") or (name == "style" and "@" in value):
        raise BadInput(f"expected a figure that only shows, got the attribute {name!r}")
    if name == "id":
        return prefix + value
    if name == "d":
        return " ".join(_LONG_NUMBER.sub(r"\1", value).split())
    rewritten = _REFERENCE.sub(rf"url(#{prefix}\1)", value)
    if "url(" in _REFERENCE.sub("", value):
        raise BadInput("expected a figure that refers only to its own parts, got a link to elsewhere")
    return _COLOUR.sub(lambda found: _theme_colour(found[0].lower()), rewritten)


def _theme_colour(colour: str) -> str:
    """The page's own colours as the page has them; others by a name, so that dark paper can have its own."""
    named = PAGE_COLOURS.get(colour)
    return f"var({named})" if named else f"var(--c-{colour[1:]}, {colour})"


def _width(root: ElementTree.Element) -> float:
    """In the pixels of a page; points are four thirds of one."""
    written = root.get("width", "")
    found = re.fullmatch(r"([0-9.]+)(pt|px)?", written)
    if found:
        return float(found[1]) * (4 / 3 if found[2] == "pt" else 1.0)
    box = root.get("viewBox", "").split()
    if len(box) != 4:
        raise BadInput("expected a figure with a width or a viewBox, got neither")
    return float(box[2])


def _local(name: str) -> str:
    """Without the namespace."""
    return name.rpartition("}")[2]
