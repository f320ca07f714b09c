"""Who counts as crowd: only reports that share menu, mechanism, floors and public metadata hide each other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from tacit import expect
from tacit.errors import BadInput, NoFiniteGuarantee
from tacit.privacy.budget import rounded_up
from tacit.privacy.releases import ShuffledChoice
from tacit.privacy.shuffling import amplification, bounds, mechanism

_NOTICEABLE = 1e-3
"""A cohort that takes less than this share off the epsilon of a single member is called too small."""


@dataclass(frozen=True)
class ReportClass:
    """All that is public about a report. Two reports hide each other only if these are equal.

    `mechanism` holds the exact rows where they are known; else `floors` says the smallest probability of each
    choice. A mechanism with a single row makes choices that depend on nothing private.
    """

    menu: tuple[str, ...]
    local_epsilon: Fraction
    mechanism: mechanism.Rows = ()
    floors: tuple[Fraction, ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "local_epsilon", expect.positive("local_epsilon", self.local_epsilon))
        if not self.menu or len(set(self.menu)) != len(self.menu):
            raise BadInput(
                f"expected a menu of distinct choices, got {len(self.menu)} of {len(set(self.menu))} kinds"
            )
        object.__setattr__(self, "metadata", tuple(sorted(self.metadata)))
        if self.mechanism:
            mechanism.check_rows(self.mechanism, self.local_epsilon)
            known = mechanism.row_floors(self.mechanism)
            if self.floors and tuple(self.floors) != known:
                raise BadInput(
                    "expected floors that are the smallest entries of the mechanism's rows, got others"
                )
            object.__setattr__(self, "floors", known)
        if len(self.floors) != len(self.menu):
            raise BadInput(
                f"expected one floor per choice on a menu of {len(self.menu)}, got {len(self.floors)}"
            )
        self._check_floors()

    def _check_floors(self) -> None:
        floors = tuple(expect.probability("floor", floor, zero=True, one=True) for floor in self.floors)
        object.__setattr__(self, "floors", floors)
        total = sum(floors, Fraction(0))
        # Every row lies between its floors and e^epsilon times them; without floors there is no such row.
        if total > 1 or total == 0 or math.log(1 / total) > rounded_up(self.local_epsilon) + 2.0**-40:
            raise BadInput(
                f"expected floors that sum to between e^-{float(self.local_epsilon):.6g} and 1, "
                f"got a sum of {float(total):.6g}"
            )

    @property
    def personal(self) -> bool:
        """Whether the report depends on anything private at all."""
        return len(set(self.mechanism)) != 1


@dataclass(frozen=True)
class Standing:
    """Where the members of one class stand in a batch: (epsilon, delta) each, among `members`."""

    report_class: ReportClass
    members: int
    epsilon: float
    delta: float

    @property
    def hidden(self) -> bool:
        """Whether shuffling gave these members anything."""
        return self.report_class.personal and self.epsilon < self.report_class.local_epsilon

    def __str__(self) -> str:
        local = f"ε = {float(self.report_class.local_epsilon):.4g}"
        if not self.report_class.personal:
            return f"{self.members:,} reports depend on nothing private: they spend nothing and hide nobody"
        if not self.hidden:
            return (
                f"a cohort of {self.members:,} is too small to hide in at δ = {self.delta:.3g}: "
                f"each member keeps its local {local}"
            )
        reached = f"ε = {self.epsilon:.4g} at δ = {self.delta:.3g}"
        return f"{self.members:,} members hide each other: {reached}, local {local}"


def standings(batch: Iterable[ReportClass], delta: expect.Number) -> dict[ReportClass, Standing]:
    """For each class of report in a batch, its own cohort and what that promises.

    Guarantee:  each member's report is (epsilon, delta)-DP within the batch, as its class's standing says.
    Neighbours: replace one member's private input; its class, which is public, stays.
    Assumes:    `batch` has one entry per report of a member who really randomises and does not reveal it; the
                order of the reports tells nothing; equal classes really are one mechanism.
    Source:     `amplification`, class by class: reports of other classes hide nobody here, so none are counted.
    """
    allowed = expect.probability("delta", delta)
    counts = Counter(batch)
    if not counts:
        raise BadInput("expected at least one report in the batch, got an empty cohort")
    return {kind: _standing(kind, members, allowed) for kind, members in counts.items()}


def _standing(kind: ReportClass, members: int, delta: Fraction) -> Standing:
    if not kind.personal:
        return Standing(kind, members, 0.0, 0.0)
    reached, alone = (
        amplification.epsilon(ShuffledChoice(kind.local_epsilon, count, kind.mechanism), delta)
        for count in (members, 1)
    )
    hidden = reached < alone * (1 - _NOTICEABLE)
    return Standing(kind, members, reached if hidden else rounded_up(kind.local_epsilon), float(delta))


def cohort_needed(
    target_epsilon: expect.Number,
    delta: expect.Number,
    *,
    local_epsilon: expect.Number,
    rows: mechanism.Rows = (),
) -> int:
    """The smallest cohort whose batch is (target_epsilon, delta)-DP by our bounds.

    >>> cohort_needed(1, 1e-6, local_epsilon=5)
    6202
    """
    target, local = (
        expect.positive("target_epsilon", target_epsilon),
        expect.positive("local_epsilon", local_epsilon),
    )
    allowed = float(expect.probability("delta", delta, zero=True))

    def enough(members: int) -> bool:
        return amplification.delta(ShuffledChoice(local, members, rows), target) <= allowed

    low, high = 0, 1
    while not enough(high):
        if high >= bounds.LARGEST_COHORT:
            raise NoFiniteGuarantee(
                f"expected a cohort of at most {bounds.LARGEST_COHORT:,} to reach epsilon={float(target):.6g} "
                f"at delta={allowed:.3g} from a local epsilon of {float(local):.6g}, got none that does"
            )
        low, high = high, min(2 * high, bounds.LARGEST_COHORT)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
