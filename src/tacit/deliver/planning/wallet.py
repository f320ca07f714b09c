"""What a device has spent of its epsilon in this period. The book stays on the device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from tacit import expect
from tacit.errors import BadInput, BudgetExceeded
from tacit.privacy.budget import Budget
from tacit.privacy.units import Window


@dataclass(frozen=True)
class Wallet:
    """At most `total` epsilon in each window of time, at most `most_per_request` of it at once.

    Windows are fixed stretches: around the end of one, twice the total may be spent within a second.

    Guarantee:  all choices that were paid for in one window are together total-LDP; each is
                most_per_request-LDP. Amounts may depend on what was chosen before: pure epsilons add up.
    Neighbours: all private data of one device in that window, replaced. A person with two devices has two
                wallets, and may spend twice.
    Assumes:    every choice is paid for before it is made, and the wallet that `spend` returns takes the place
                of this one; `now` is an honest clock, for one set forward opens later windows early; one
                wallet per server (ad tech). What is left follows from earlier requests, which their server
                knows: a refusal tells it nothing. It would tell another server that the device was there.
    Source:     basic composition, with amounts chosen on the way: Rogers, Roth, Ullman, Vadhan 2016
                (arXiv 1605.08294), with delta = 0.
    """

    total: Fraction
    most_per_request: Fraction
    window: Window
    spent: Fraction = Fraction(0)
    in_window: int | None = None
    ad_tech: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", expect.positive("total", self.total))
        object.__setattr__(self, "most_per_request", expect.positive("most_per_request", self.most_per_request))
        object.__setattr__(self, "spent", expect.at_least_zero("spent", self.spent))
        if not isinstance(self.window, Window):
            raise BadInput(f"expected window to be a Window, got {self.window!r}")
        if self.most_per_request > self.total:
            raise BadInput(f"expected most_per_request <= total = {float(self.total):g}, got more")
        if self.spent > self.total:
            raise BadInput(f"expected spent <= total = {float(self.total):g}, got more")
        if self.in_window is not None:
            object.__setattr__(self, "in_window", expect.integer("in_window", self.in_window))
        elif self.spent:
            raise BadInput("expected in_window beside what was spent, got None: it would be forgotten")

    def left(self, now: int) -> Fraction:
        """What can still be spent in the window that second `now` lies in; a clock set back is refused."""
        index = self.window.index(expect.integer("now", now))
        if self.in_window is None or index > self.in_window:
            return self.total
        if index < self.in_window:
            raise BadInput("expected now in the wallet's window or a later one, got an earlier second")
        return self.total - self.spent

    def spend(self, epsilon: expect.Number, now: int, auction: str | None = None) -> Wallet:
        """The wallet after one more choice; raises before anything changes, and says for which auction."""
        asked, left = expect.at_least_zero("epsilon", epsilon), self.left(now)
        asker = "this request" if auction is None else f"auction {auction}"
        if asked > self.most_per_request:
            raise BadInput(
                f"{asker}: expected epsilon <= {float(self.most_per_request):g}, the most for one, got more"
            )
        if asked > left:
            raise BudgetExceeded(
                f"device wallet, {asker}",
                asked=Budget(asked),
                spent=Budget(self.total - left),
                reserved=Budget.NOTHING,
                limit=Budget(self.total),
            )
        return replace(self, spent=self.total - left + asked, in_window=self.window.index(now))
