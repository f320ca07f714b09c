"""Small HTML tables, for objects that show themselves in notebooks: escaped, styled in place, no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

RULE = "border-bottom:1px solid currentColor"
CELL = "padding:.15rem .75rem .15rem 0;font-variant-numeric:tabular-nums;background:none"
NUMBER = frozenset("0123456789+-−.")


def html_table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, note: str = "") -> str:
    """A table in the notebook's own colours: thin rules around the head and at the end, numbers to the right.

    >>> "&lt;b&gt;" in html_table("Lines", ["scope"], [["<b>"]])
    True
    """
    right = [bool(rows) and all(_is_number(row[place]) for row in rows) for place in range(len(head))]

    def cells(tag: str, texts: Sequence[str], more: str = "") -> str:
        aligned = zip(texts, right, strict=True)
        styled = (
            f'<{tag} style="text-align:{"right" if number else "left"};vertical-align:top;{CELL};{more}">'
            f"{escape(text)}</{tag}>"
            for text, number in aligned
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
