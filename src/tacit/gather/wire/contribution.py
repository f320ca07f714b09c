"""By how much one device can change the counts of a run.

At each level an event counts in the total of its node, and as a click or a no-click: in two cells, or in one
where only totals are asked for. So the counts of a device at a level are at most `each` and add up to at most
`in_all` (2 events, or as many as events), which is also what its client and a proof hold it to. The squared L2
change of one level is at most q each^2 + rest^2, with q and rest the quotient and remainder of `in_all` by
each: sums of squares are largest where parts are as unequal as can be.
"""

from __future__ import annotations

from dataclasses import dataclass

from tacit import expect
from tacit.errors import BadInput


@dataclass(frozen=True)
class Contribution:
    """What a device may add: at most `events` in a run, chosen once, and at most `each` to one cell.

    Without `each`, a cell takes all of a device's events; with 1, cells count devices. With `totals_only` a run
    asks how often contexts were seen and nothing about ads: an event counts once a level, for less noise.
    """

    events: int
    each: int | None = None
    totals_only: bool = False

    def __post_init__(self) -> None:
        expect.whole("events", self.events, at_least=1)
        if self.each is not None and expect.whole("each", self.each, at_least=1) > self.events:
            raise BadInput(f"expected each <= events = {self.events}, got {self.each}")
        if type(self.totals_only) is not bool:
            raise BadInput("expected totals_only to be True or False, got something else")

    @property
    def most(self) -> int:
        """The largest entry of a device's vector."""
        return self.events if self.each is None else self.each

    @property
    def in_all(self) -> int:
        """What the cells of a device's vector add up to at most."""
        return self.events if self.totals_only else 2 * self.events

    @property
    def changes(self) -> tuple[int, ...]:
        """By how much the cells of one level change at worst, whichever of them they are."""
        full, rest = divmod(self.in_all, self.most)
        return (self.most,) * full + ((rest,) if rest else ())

    @property
    def adds_up(self) -> bool:
        """Whether no cell is ever cut: then the counts of contexts add up to that of the one above them."""
        return self.most == self.events
