"""The page's colours, light and dark, and what the colour of a line becomes on dark paper."""

from __future__ import annotations

INK, MUTED, RULE, PAPER, ACCENT = "#1b1f24", "#5b626c", "#dcd9d2", "#fbfaf8", "#2f6f6d"
DARK_PAPER, DARK_INK = "#15171a", "#e6e3dc"
SHARED = {INK: "--ink", MUTED: "--muted", RULE: "--rule", PAPER: "--paper", ACCENT: "--accent"}
"""The colours that figures share with the page, by their names in the style sheet."""

LEAST_CONTRAST = 4.5  # of a line to dark paper: what WCAG asks of text, which labels of lines are


def lifted(colour: str) -> str:
    """The colour itself where it stands out on dark paper, else lighter until it does."""
    for step in range(21):
        candidate = _mixed(colour, DARK_INK, step / 20)
        if contrast(candidate, DARK_PAPER) >= LEAST_CONTRAST:
            return candidate
    return DARK_INK


def _mixed(colour: str, other: str, share: float) -> str:
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(255 * (one + share * (two - one))):02x}" for one, two in pairs)


def contrast(one: str, other: str) -> float:
    """From 1 to 21, by WCAG 2."""
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
