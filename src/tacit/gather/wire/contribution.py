"""By how much one device can change the counts of a run.

At each level a device's events fall into nodes: their totals change by parts of at most `each` that add up to
at most `events`. The same holds for clicks and no-clicks together, since an event is one or the other. So the
squared L2 change of one level is at most 2 events each, exactly 2 (q each^2 + rest^2) with q and rest the
quotient and remainder of events by each: a sum of squares is largest where parts are as unequal as they can be.
"""

from __future__ import annotations

from dataclasses import dataclass

from tacit import expect
from tacit.errors import BadInput


@dataclass(frozen=True)
class Contribution:
    """What a device may add: at most `events` in a run, chosen once, and at most `each` to one cell.

    Without `each`, a cell takes all of a device's events; with 1, cells count devices.
    """

    events: int
    each: int | None = None

    def __post_init__(self) -> None:
        expect.whole("events", self.events, at_least=1)
        if self.each is not None and expect.whole("each", self.each, at_least=1) > self.events:
            raise BadInput(f"expected each <= events = {self.events}, got {self.each}")

    @property
    def most(self) -> int:
        """The largest entry of a device's vector."""
        return self.events if self.each is None else self.each

    @property
    def changes(self) -> tuple[int, ...]:
        """By how much the cells of one level change at worst: totals, and clicks with no-clicks."""
        full, rest = divmod(self.events, self.most)
        parts = (self.most,) * full + ((rest,) if rest else ())
        return parts + parts

    @property
    def adds_up(self) -> bool:
        """Whether no cell is ever cut: then the counts of contexts add up to that of the one above them."""
        return self.most == self.events
