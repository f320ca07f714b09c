"""Cohorts: how long an epoch lasts and how finely contexts are told, so that menus have crowds to hide in.

Reports hide each other only within one menu, which is one context in one epoch. Both can be made larger: an
epoch by lasting longer, a context by being told more coarsely. Traffic is uneven, so no one level serves: a cut
of the tree of contexts (`protocol/cuts.py`) is as fine as the traffic below each node allows, and what is too
rare by itself is told as the rest of what is above it.

    goal = CohortGoal(epsilon=3, target=1, delta=1e-6)
    plans = [plan_cohorts(traffic, goal, epoch) for epoch in EPOCHS]
    plan = best_plan(plans)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainccinv, pdtr, pdtrik

from tacit import expect
from tacit.arrays import Floats
from tacit.deliver.protocol.cuts import (
    Cut,
    CutBlock,
    context_tree,
    finest_cut_with_remainders,
    node_name,
    nodes_by_name,
)
from tacit.deliver.protocol.minimum_users import Margin, MinimumUsers
from tacit.display import brief
from tacit.errors import BadInput
from tacit.privacy.budget import format_rounded_up, rounded_up
from tacit.privacy.releases import ShuffledChoice
from tacit.privacy.shuffling import cohort_needed
from tacit.privacy.shuffling import delta as shuffled_delta
from tacit.privacy.shuffling import epsilon as shuffled_epsilon
from tacit.privacy.shuffling.mechanism import Rows
from tacit.schema.contexts.hierarchy import Levels, Node
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import Tree
from tacit.schema.counts import Counts

DAY = 86_400
EPOCHS = (600, 1_800, 3_600, 3 * 3_600, 6 * 3_600, DAY)
"""Seconds that are tried where none are named: from ten minutes to a day."""


@dataclass(frozen=True)
class CohortGoal:
    """How well reports of a menu are to hide each other, and how often they may fail to.

    epsilon     of one choice, to whoever can link its report to the device
    target      of one choice, to whoever sees shuffled batches only
    delta       what `target` leaves to chance
    undersized  the chance at most with which an epoch's cohort turns out too small
    per_device  choices at most that a device makes from one menu in an epoch: k of them count with n // k each
    rows        the exact mechanism, where it is known (`ShuffledChoice`); fewer members will do then
    """

    epsilon: Fraction
    target: Fraction
    delta: Fraction
    undersized: Fraction = Fraction(1, 100)
    per_device: int = 1
    rows: Rows = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for name in ("epsilon", "target"):
            object.__setattr__(self, name, expect.positive(name, getattr(self, name)))
        for name in ("delta", "undersized"):
            object.__setattr__(self, name, expect.probability(name, getattr(self, name)))
        expect.whole("per_device", self.per_device, at_least=1)

    @cached_property
    def needed(self) -> int:
        """The smallest cohort that reaches the target, by the bounds of `privacy.shuffling`."""
        alone = cohort_needed(self.target, self.delta, local_epsilon=self.epsilon, rows=self.rows)
        return alone * self.per_device

    @cached_property
    def expected(self) -> float:
        """The least mean of a Poisson number that is below `needed` no oftener than `undersized`."""
        return float(gammainccinv(self.needed, float(self.undersized))) * (1 + 1e-9)

    def epsilon_among(self, cohort: int) -> float:
        """What one choice tells within a batch of so many; sizes are read down to two digits."""
        members = cohort // self.per_device
        if members < 2:
            return rounded_up(self.epsilon)
        unit = 10 ** max(0, len(str(members)) - 2)
        found = _epsilon_among(ShuffledChoice(self.epsilon, members // unit * unit, self.rows), self.delta)
        return min(found, rounded_up(self.target)) if cohort >= self.needed else found


@lru_cache(maxsize=4096)
def _epsilon_among(release: ShuffledChoice, delta: Fraction) -> float:
    return shuffled_epsilon(release, delta)


@dataclass(frozen=True, eq=False)
class Traffic:
    """Requests per day at every node of a tree of contexts, exact or with noise.

    `nodes` says which context each of the tree's names stands for. Noisy counts carry independent noise of
    deviation `noise_sd` per day, whose kind `noise` is a margin of `protocol/minimum_users.py`; what a plan
    offers then passes by that margin, all of it together except with probability `failure`.
    """

    tree: Tree
    per_day: Mapping[str, float]
    nodes: Mapping[str, Node] = field(default_factory=dict)
    noise_sd: float = 0.0
    noise: Margin | None = None
    failure: float = 1e-6

    def __repr__(self) -> str:
        return brief(self, contexts=len(self.tree.leaves()), requests_per_day=round(self.total))

    @classmethod
    def of_rows(cls, nodes: ContextNodes, requests: ArrayLike, days: expect.Number = 1) -> Traffic:
        """Exact traffic: how many requests each row of `nodes` stands for, counted over so many days."""
        expect.kind("nodes", nodes, ContextNodes)
        try:
            counted = np.asarray(requests, np.float64)
        except (TypeError, ValueError):
            raise BadInput("expected a count per row, got values that are no numbers") from None
        if counted.shape != (nodes.rows,) or not np.isfinite(counted).all() or (counted < 0).any():
            raise BadInput(f"expected a count >= 0 for each of {nodes.rows} rows, got others")
        totals: dict[Levels, Floats] = {
            levels: np.bincount(nodes.of_row(levels), counted, nodes.count(levels)).astype(np.float64)
            for levels in nodes.levels
        }
        return cls._of(nodes, totals, days)

    @classmethod
    def of_counts(
        cls, nodes: ContextNodes, counts: Counts, days: expect.Number = 1, noise: Margin | None = None
    ) -> Traffic:
        """Traffic as it was gathered: the totals of each level's nodes, with the largest noise of any level."""
        expect.kind("nodes", nodes, ContextNodes)
        expect.kind("counts", counts, Counts)
        totals = {levels: counts.at(levels).total for levels in nodes.levels}
        noisiest = max(counts.at(levels).noise_sd for levels in nodes.levels)
        return cls._of(nodes, totals, days, noisiest, noise)

    @classmethod
    def _of(
        cls,
        nodes: ContextNodes,
        totals: Mapping[Levels, Floats],
        days: expect.Number,
        noise_sd: float = 0.0,
        noise: Margin | None = None,
    ) -> Traffic:
        lasted = float(expect.positive("days", days))
        per_day = {
            node_name(nodes.name(levels, at)): float(total) / lasted
            for levels, column in totals.items()
            for at, total in enumerate(column)
        }
        return cls(context_tree(nodes), per_day, nodes_by_name(nodes), noise_sd / lasted, noise)

    @property
    def total(self) -> float:
        return max(0.0, self.per_day[self.tree.root])

    def of_block(self, block: CutBlock) -> float:
        """Requests per day in a block; noise may make it less than nothing, which counts as nothing."""
        return max(0.0, self.per_day[block.node] - math.fsum(self.per_day[child] for child in block.without))


@dataclass(frozen=True)
class PlannedMenu:
    """One context that a plan offers, and the cohort that an epoch of it is expected to have.

    block       the contexts that are told as this one
    node        how they are told; None where the traffic's tree has names alone
    expected    reports in an epoch, on average
    undersized  the chance that there are too few of them
    assured     reports that there are, except with the chance that the goal allows
    """

    block: CutBlock
    node: Node | None
    requests_per_day: float
    expected: float
    undersized: float
    assured: int
    goal: CohortGoal = field(repr=False)

    @property
    def large_enough(self) -> bool:
        return self.undersized <= self.goal.undersized

    @property
    def epsilon(self) -> float:
        """Of one choice at the goal's delta, in all epochs but those that the goal allows to fail."""
        return self.goal.epsilon_among(self.assured)

    def __str__(self) -> str:
        told = self.block.node if self.node is None else str(self.node)
        rest = " (the rest of it)" if self.block.without else ""
        return f"{told}{rest}: about {self.expected:,.0f} reports per epoch; {self.statement}"

    @property
    def statement(self) -> str:
        """What shuffling hides here, in one sentence."""
        local = f"ε = {format_rounded_up(float(self.goal.epsilon))}"
        if not self.large_enough:
            often = f"{self.undersized:.0%} of epochs"
            return f"in {often} fewer than {self.goal.needed:,}: each choice keeps its local {local}"
        reached = f"ε = {format_rounded_up(self.epsilon, 3)} at δ = {float(self.goal.delta):.3g}"
        often = f"{float(1 - self.goal.undersized):.6g}"
        return f"with a chance of {often} at least {self.assured:,}, and {reached}; else the local {local}"


@dataclass(frozen=True, eq=False)
class CohortPlan:
    """A cut of contexts and an epoch's length, with the cohort of each menu.

    Guarantee:  in a menu that is `large_enough` an epoch's cohort is at least `goal.needed`, except with
                probability `goal.undersized`; in such a cohort one choice is (target, delta)-DP to whoever sees
                shuffled batches alone, and in any other it keeps its local epsilon.
    Neighbours: replace one device's private data; the others' data are arbitrary and fixed.
    Assumes:    requests come independently (Poisson), in every epoch at no less than `quietest` times the
                average that was counted, and each is reported; the proxy keeps an epoch's reports for one
                batch, as it does without `hold_seconds`: what leaves before leaves the others a smaller one.
                Members are devices that really randomise; what `ShuffledChoice` says.
    Source:     `privacy.shuffling`; the cuts: `protocol.cuts`; noisy counts: `MinimumUsers`.
    """

    traffic: Traffic = field(repr=False)
    goal: CohortGoal
    epoch_seconds: int
    cut: Cut | None = field(repr=False)  # None: not even all requests together are enough
    quietest: float = 1.0

    def __repr__(self) -> str:
        return brief(
            self, epoch_seconds=self.epoch_seconds, menus=len(self.menus), hidden=round(self.hidden_share, 4)
        )

    @cached_property
    def menus(self) -> tuple[PlannedMenu, ...]:
        """What is offered, the most requested first; nothing where there is no cut, but the public lane."""
        blocks = () if self.cut is None else self.cut.blocks
        return tuple(sorted(map(self._menu, blocks), key=lambda menu: -menu.requests_per_day))

    def _menu(self, block: CutBlock) -> PlannedMenu:
        per_day = self.traffic.of_block(block)
        expected = self.reports_per_epoch(per_day)
        return PlannedMenu(
            block=block,
            node=self.traffic.nodes.get(block.node),
            requests_per_day=per_day,
            expected=expected,
            undersized=float(pdtr(self.goal.needed - 1, expected)),
            assured=_assured(expected, float(self.goal.undersized)),
            goal=self.goal,
        )

    def reports_per_epoch(self, per_day: float) -> float:
        """In the quietest epoch, on average."""
        return per_day * self.epoch_seconds / DAY * _quiet(self.epoch_seconds, self.quietest)

    @property
    def hidden_share(self) -> float:
        """Of all requests, those whose menu has large enough cohorts; the others take the public lane."""
        hidden = math.fsum(menu.requests_per_day for menu in self.menus if menu.large_enough)
        return min(1.0, hidden / self.traffic.total) if self.traffic.total else 0.0

    @cached_property
    def bits(self) -> float:
        """How much the menus' contexts tell about the moment: the entropy of which one it is."""
        return _entropy([menu.requests_per_day for menu in self.menus if menu.large_enough])

    @cached_property
    def most_bits(self) -> float:
        """The same, if every context were told exactly."""
        tree = self.traffic.tree
        return _entropy([max(0.0, self.traffic.per_day[leaf]) for leaf in tree.leaves()])

    def share_by_levels(self) -> dict[Levels, float]:
        """Which share of all requests is hidden at which levels, the finest first."""
        found: dict[Levels, float] = {}
        for menu in self.menus:
            if menu.large_enough and menu.node is not None:
                share = menu.requests_per_day / self.traffic.total
                found[menu.node.levels] = found.get(menu.node.levels, 0.0) + share
        return dict(sorted(found.items(), key=lambda item: (sum(item[0]), item[0])))


def plan_cohorts(
    traffic: Traffic, goal: CohortGoal, epoch_seconds: int, *, quietest: expect.Number = 1
) -> CohortPlan:
    """The finest cut whose menus all have large enough cohorts in epochs of this length.

    `quietest` is the traffic of the quietest epoch, as a share of the average one; not used from a day on.
    """
    expect.kind("traffic", traffic, Traffic)
    expect.kind("goal", goal, CohortGoal)
    epoch = expect.whole("epoch_seconds", epoch_seconds, at_least=1)
    quiet = float(expect.probability("quietest", quietest, one=True))
    least = goal.expected * DAY / (epoch * _quiet(epoch, quiet))
    safe = MinimumUsers(
        traffic.tree,
        traffic.per_day,
        at_least=max(1, math.ceil(least)),
        noise_sd=traffic.noise_sd,
        noise=traffic.noise,
        failure=traffic.failure,
    )
    return CohortPlan(traffic, goal, epoch, finest_cut_with_remainders(traffic.tree, safe, safe.size), quiet)


def best_plan(plans: Iterable[CohortPlan], keep: expect.Number = "0.9") -> CohortPlan:
    """Of those that hide the most requests, the shortest epoch that tells `keep` of what the finest tells.

    Short epochs have fresh prices and early bills, long ones finer contexts.
    """
    tried: Sequence[CohortPlan] = expect.several("plans", plans, CohortPlan)
    if not tried:
        raise BadInput("expected at least one plan, got none")
    most = max(plan.hidden_share for plan in tried)
    hiding = [plan for plan in tried if plan.hidden_share >= most * (1 - 1e-9)]
    enough = max(plan.bits for plan in hiding) * float(expect.probability("keep", keep, zero=True, one=True))
    return min((plan for plan in hiding if plan.bits >= enough), key=lambda plan: plan.epoch_seconds)


def epsilon_within(goal: CohortGoal, expected: float) -> Fraction:
    """The largest epsilon, in hundredths, that so many reports per epoch bring to the goal's target.

    At least the target itself, for which no crowd is needed, and at most the goal's own epsilon.
    """
    members = max(1, _assured(expected, float(goal.undersized)) // goal.per_device)
    low, high = (
        math.floor(goal.target * 100),
        math.floor(goal.epsilon * 100) + 1,
    )  # `low` will do, `high` is out
    while high - low > 1:
        middle = (low + high) // 2
        release = ShuffledChoice(Fraction(middle, 100), members)
        low, high = (middle, high) if shuffled_delta(release, goal.target) <= goal.delta else (low, middle)
    return Fraction(low, 100) if low else goal.target


def _quiet(epoch_seconds: int, quietest: float) -> float:
    return 1.0 if epoch_seconds >= DAY else quietest


def _assured(expected: float, undersized: float) -> int:
    """The most of which a Poisson number of this mean falls short no oftener than that."""
    found = math.ceil(expected) + 1
    if expected > 1:
        found = max(0, min(found, math.floor(pdtrik(undersized, expected)) + 2))
    while found and pdtr(found - 1, expected) > undersized:
        found -= 1
    return found


def _entropy(weights: Sequence[float]) -> float:
    """In bits."""
    total = math.fsum(weights)
    shares = [weight / total for weight in weights if weight > 0]
    return max(0.0, -math.fsum(share * math.log2(share) for share in shares))
