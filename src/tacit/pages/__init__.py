"""Pages that need nothing but themselves: text, tables and figures in one HTML file, in one look.

`blocks`    what a page is made of, as values
`page`      writes it
`drawings`  SVG files as parts of it

>>> from tacit.pages import Prose, Section, page
>>> "<h2>One day</h2>" in page("A report", "What happened.", [Section("One day", [Prose("It rained.")])])
True
"""

from tacit.pages.blocks import (
    Block,
    Board,
    Cell,
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
)
from tacit.pages.page import page

__all__ = [
    "Block", "Board", "Cell", "Chip", "Code", "Details", "Facts", "Figure", "Flow", "Link", "Prose", "Ruling",
    "Section", "Table", "Verdict", "Verdicts", "page",
]  # fmt: skip
