"""What a person allows their device: to choose for them, what to disclose, how much to tell, what to count.

    settings = DeviceSettings(hierarchy, DisclosureLevel((1,)), consent=True)

Without consent nothing private is read: the device shows what everybody is shown. What is told of a context is
a level of the hierarchy (`DisclosureLevel`), or a block of a published cut (`CutDisclosure`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tacit import expect
from tacit.bill.protocol.offers import MOST_TOKENS
from tacit.deliver.device.account import DeviceLimits
from tacit.deliver.device.context import DeviceContext
from tacit.deliver.device.shown_log import LOOK_BACK_SECONDS, UNCOUNTED_SECONDS, RoundFamily
from tacit.deliver.protocol.cuts import Cut, node_name
from tacit.deliver.protocol.disclosure import DisclosureLevel
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Hierarchy, Node


@dataclass(frozen=True)
class CutDisclosure:
    """Disclose the block of a published cut that the context lies in (`protocol/cuts.py`).

    The cut's tree is that of `context_tree` over levels of the same hierarchy.

    Guarantee:  the disclosure tells that the context is a leaf of its block, and nothing about which.
    Neighbours: two contexts of one block.
    Assumes:    what `Cut` assumes: above all, it was chosen without looking at the context.
    Source:     `Cut`.
    """

    cut: Cut

    def __post_init__(self) -> None:
        expect.kind("cut", self.cut, Cut)

    def disclose(self, hierarchy: Hierarchy, context: Sequence[Any]) -> Node:
        by_name = {node_name(node): node for node in hierarchy.path(context)}
        tree = self.cut.tree
        leaves = [name for name in by_name if name in tree and not tree.children(name)]
        found = by_name.get(self.cut.of(leaves[0]).node) if leaves else None
        if found is None:
            raise BadInput("expected a context that is a leaf of the cut's tree, got another")
        return found


@dataclass(frozen=True)
class StatisticsConsent:
    """Which rounds of counting a device takes part in, and when; by default in none.

    allowed        whether it takes part in any
    only_charging  only while it is being charged
    only_wifi      only on WiFi
    questions      the names of tasks that it answers, and of families of scheduled ones (`RoundFamily`);
                   None: all
    per_round      the largest epsilon that a round which an ad server schedules may promise
    most_delta     and the largest delta: with probability delta a round may tell more than epsilon says. Rounds
                   that are planned by default have at most 1e-6
    """

    allowed: bool = False
    only_charging: bool = True
    only_wifi: bool = True
    questions: tuple[str, ...] | None = None
    per_round: Fraction = Fraction(2)
    most_delta: Fraction = Fraction(1, 10**6)

    def __post_init__(self) -> None:
        for name in ("allowed", "only_charging", "only_wifi"):
            expect.kind(name, getattr(self, name), bool)
        object.__setattr__(self, "per_round", expect.positive("per_round", self.per_round))
        object.__setattr__(self, "most_delta", expect.probability("most_delta", self.most_delta, zero=True))
        if self.questions is not None:
            object.__setattr__(self, "questions", expect.several("questions", self.questions, str))

    def allows(self, task: str, *, charging: bool, wifi: bool) -> bool:
        """Whether a round of this task may be answered now. It reads settings alone, and no answer: to take
        part or not tells nothing of what would have been said.

        >>> consent = StatisticsConsent(allowed=True, only_wifi=False, questions=("clicks",))
        >>> [consent.allows(task, charging=True, wifi=False) for task in ("clicks", "visits")]
        [True, False]
        >>> consent.allows("clicks", charging=False, wifi=True)
        False
        """
        asked = self.includes(task)
        return asked and (charging or not self.only_charging) and (wifi or not self.only_wifi)

    def includes(self, task: str) -> bool:
        """Whether such a round may be answered at all, on whatever network."""
        return self.allowed and (self.questions is None or task in self.questions)

    @property
    def families(self) -> frozenset[RoundFamily]:
        """Scheduled rounds that it may take part in: what is kept for others is not kept at all."""
        return frozenset(each for each in RoundFamily if self.includes(each))


@dataclass(frozen=True)
class DeviceSettings:
    """A person's settings. All of it is chosen without looking at what it protects.

    hierarchy        how contexts generalise
    disclosure       which generalised context is told: a level, or a cut
    consent          whether the device may choose by private data at all
    limits           how much its choices may tell in a window, each and together
    prefetch         how many tokens are fetched at once
    smallest_cohort  where signed sizes of earlier batches of a context were below this, the public lane is
                     taken; None: never looked at. What a choice costs does not depend on it: a small cohort
                     is paid for in full
    skew_seconds     how far this device's clock may be outside of an epoch
    settle_seconds   how long after an epoch expired its cohorts may still become known
    keep_seconds     how long after that its records are kept
    statistics       which rounds of counting it joins
    look_back_seconds  how long after an impression a conversion counts as its own. Rates mean something where
                     all devices of a market have the same
    uncounted_seconds  how long after that an impression waits for rounds to count it, at most
    excluded         categories of ads that the person does not want ("IAB9-7", or "IAB9" with all below it).
                     They are private: an ad of one is worth nothing in the choice, and nobody is told
    """

    hierarchy: Hierarchy = field(repr=False)
    disclosure: DisclosureLevel | CutDisclosure
    consent: bool = False
    limits: DeviceLimits = field(default_factory=DeviceLimits)
    prefetch: int = 4
    smallest_cohort: int | None = None
    skew_seconds: int = 300
    settle_seconds: int = 86_400
    keep_seconds: int = 7 * 86_400
    statistics: StatisticsConsent = field(default_factory=StatisticsConsent)
    excluded: tuple[str, ...] = field(default=(), repr=False)
    look_back_seconds: int = LOOK_BACK_SECONDS
    uncounted_seconds: int = UNCOUNTED_SECONDS

    def __post_init__(self) -> None:
        expect.having("hierarchy", self.hierarchy, "path", "a hierarchy of contexts")
        expect.kind("disclosure", self.disclosure, DisclosureLevel, CutDisclosure)
        expect.kind("consent", self.consent, bool)  # nothing that merely counts as true is consent
        expect.kind("limits", self.limits, DeviceLimits)
        expect.kind("statistics", self.statistics, StatisticsConsent)
        object.__setattr__(self, "excluded", expect.several("excluded", self.excluded, str))
        if expect.whole("prefetch", self.prefetch, at_least=1) > MOST_TOKENS:
            raise BadInput(f"expected prefetch in 1..{MOST_TOKENS}, got {self.prefetch}")
        if self.smallest_cohort is not None:
            expect.whole("smallest_cohort", self.smallest_cohort, at_least=1)
        for name in (
            "skew_seconds", "settle_seconds", "keep_seconds", "look_back_seconds", "uncounted_seconds"
        ):  # fmt: skip
            expect.whole(name, getattr(self, name), at_least=0)

    def generalise(self, context: Sequence[Any]) -> DeviceContext:
        """The exact context, which stays here, beside the one node of it that is told."""
        node = self.disclosure.disclose(self.hierarchy, context)
        return DeviceContext(self.hierarchy.path(context), node)
