"""How values show themselves: one short line, and in notebooks a small HTML table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields
from html import escape
from typing import Any

LONGEST = 48  # characters of one value within a line
RULE = "border-bottom:1px solid currentColor"
CELL = "padding:.15rem .75rem .15rem 0;font-variant-numeric:tabular-nums;background:none"
NUMBER = frozenset("0123456789+-−.")


def brief(of: object, **facts: Any) -> str:
    """The name of a thing's class and these facts, on one line; no fact is written out where it is long.

    >>> brief(object(), rows=3, ids=list(range(1000)), secret=b"12345678")
    'object(rows=3, ids=1,000 items, secret=8 bytes)'
    """
    return f"{type(of).__name__}({', '.join(f'{name}={_fact(value)}' for name, value in facts.items())})"


def brief_repr(self: Any) -> str:
    """The `__repr__` of a record that holds arrays: its fields, as `brief` writes them."""
    return brief(self, **{each.name: getattr(self, each.name) for each in fields(self) if each.repr})


def _fact(value: Any) -> str:
    shape, kind = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape and kind is not None:
        return f"{kind} {' x '.join(f'{size:,}' for size in shape)}"
    if isinstance(value, bytes | bytearray):
        return f"{len(value):,} bytes"
    shown = "" if isinstance(value, Mapping | Set) and len(value) > 3 else repr(value)
    if shown and len(shown) <= LONGEST and "\n" not in shown and " at 0x" not in shown:
        return shown
    if isinstance(value, str):
        return f"{shown[: LONGEST - 1]}…"
    if isinstance(value, Mapping | Set | Sequence):
        return f"{len(value):,} item{'' if len(value) == 1 else 's'}"
    return getattr(value, "__qualname__", None) or f"{type(value).__name__}(…)"


def html_table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, note: str = "") -> str:
    """A table in the notebook's own colours: thin rules around the head and at the end, numbers to the right.

    >>> "&lt;b&gt;" in html_table("Lines", ["scope"], [["<b>"]])
    True
    """
    right = [bool(rows) and all(_is_number(row[place]) for row in rows) for place in range(len(head))]

    def cells(tag: str, texts: Sequence[str], more: str = "") -> str:
        styled = (
            f'<{tag} style="text-align:{"right" if right[place] else "left"};vertical-align:top;'
            f'{"" if place else "white-space:nowrap;"}{CELL};{more}">{escape(text)}</{tag}>'
            for place, text in enumerate(texts)
        )
        return f"<tr>{''.join(styled)}</tr>"

    body = "".join(cells("td", row) for row in rows)
    top = f"<thead>{cells('th', head, RULE)}</thead>" if any(head) else ""
    foot = f'<p style="margin:.25rem 0;max-width:45rem;opacity:.75">{escape(note)}</p>' if note else ""
    title = f'<caption style="text-align:left;caption-side:top;font-weight:600">{escape(caption)}</caption>'
    style = (
        f"border-collapse:collapse;font-family:system-ui,sans-serif;border-top:1px solid currentColor;{RULE}"
    )
    return f'<div><table style="{style}">{title}{top}<tbody>{body}</tbody></table>{foot}</div>'


def _is_number(text: str) -> bool:
    return text[:1] in NUMBER if text else True
