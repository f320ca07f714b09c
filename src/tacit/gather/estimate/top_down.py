"""A run from the coarsest level down: ask, look where there is support, ask about all children there.

Every child of a node with support is visited. (Algorithm 3 of Hardt and Nath, CCS 2012, as printed returns
from inside its loop, after the first.) What is asked depends on earlier results and on public facts only: the
nodes of a public universe and the ads with bids.

Which nodes exist must not depend on private data: a node that is there because somebody was in it tells that
by being asked about. So `public_nodes` makes them from lists that anybody could write down (the map's cells,
the tree of categories), not from a log. A device whose context is on no list adds to the coarser nodes that
it is in, and to none below.

`GatherTask` turns plan, question and both parties' keys into the round that asks the next question.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.arrays import Integers
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.gather.estimate.plan import RunPlan
from tacit.gather.estimate.published_noise import AboveNoise, PublishedNoise, SupportRule
from tacit.gather.protocol.groups import Group
from tacit.gather.protocol.promises import CountBounds
from tacit.gather.protocol.rounds import CHECK_BYTES, DIGEST_BYTES, Question, Round
from tacit.schema.contexts.hierarchy import Hierarchy, Levels, is_coarser
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.counts import Counts, LevelCounts

MOST_CONTEXTS = 5_000_000


def public_nodes(
    hierarchy: Hierarchy, values: Mapping[str, Sequence[Any]], levels: Iterable[Levels] | None = None
) -> ContextNodes:
    """The nodes of every combination of these exact values, by attribute; by default at all levels.

    Guarantee:  none needed: what is made here is the same whatever anybody's device holds.
    Neighbours: any two sets of devices.
    Assumes:    the values were listed without looking at private data.
    Source:     declared keys, as in Chrome's Aggregation Service.
    """
    expect.having("hierarchy", hierarchy, "attributes", "a hierarchy of contexts")
    names = [attribute.name for attribute in hierarchy.attributes]
    if set(values) != set(names):
        raise BadInput(f"expected public values for {', '.join(names)}, got {', '.join(values) or 'none'}")
    contexts = math.prod(len(values[name]) for name in names)
    if not 1 <= contexts <= MOST_CONTEXTS:
        raise BadInput(
            f"expected from 1 to {MOST_CONTEXTS:,} combinations of public values, got {contexts:,}: "
            "list fewer, one for each of the finest nodes that are asked about is enough"
        )
    columns = zip(*itertools.product(*(values[name] for name in names)), strict=True)
    return ContextNodes.of(hierarchy, dict(zip(names, map(list, columns), strict=True)), levels)


@dataclass(frozen=True)
class GatherTask:
    """What all rounds of a run have in common, beside its plan.

    parties         devices that are enrolled
    smallest_batch  reports below which nothing is released
    scope           of the ledger line that pays
    check           `protocol.rounds.check_key_hash` of the key that both parties check proofs with, if each
                    report must prove that its counts are within the plan's contribution; None: no proofs
    """

    name: str
    parties: int
    smallest_batch: int
    scope: str
    proxy_key: bytes
    server_key: bytes
    skew: int = 60
    check: bytes | None = None

    __repr__ = brief_repr

    def round(self, run: RunPlan, question: Question | int, *, level: int, opens: int, closes: int) -> Round:
        """Round `level` of the run; times are Unix seconds. Instead of a question, the number of cells if what
        they count was agreed on otherwise.

        With a proof, each count is at most what the plan allows a cell, and all of them at most twice a
        device's events, since an event counts in a total and as a click or a no-click; or once, where only
        totals are asked for.
        """
        promise, proof = run.promise, self.check is not None
        if isinstance(question, Question):
            question.expect_promised(promise)
        return Round(
            task=self.name,
            level=level,
            cells=question.cells if isinstance(question, Question) else question,
            question=question.digest if isinstance(question, Question) else bytes(DIGEST_BYTES),
            group=Group.FIELD64 if proof else Group.RING64,
            opens=opens,
            closes=closes,
            skew=self.skew,
            parties=self.parties,
            smallest_batch=self.smallest_batch,
            noise=run.noise,
            bounds=CountBounds(each=promise.each, total=promise.contribution.in_all) if proof else None,
            scope=self.scope,
            promise=promise,
            check=self.check or bytes(CHECK_BYTES),
            proxy_key=self.proxy_key,
            server_key=self.server_key,
        )


Bids = Callable[[Levels, int], ArrayLike] | Mapping[tuple[Levels, int], ArrayLike]
"""The ads with bids on a node, by its levels and id; a node that a mapping does not have has none. Where an ad
bids on a node it should on the node's parent: counts of both can then be held together."""


class RoundCounts(Protocol):
    """What a round released; `gather.protocol.messages.RoundResult` is one."""

    @property
    def values(self) -> NDArray[np.int64]:
        """(cells,)"""

    @property
    def noise_variance(self) -> float:
        """Of each value."""

    @property
    def count(self) -> int:
        """Of reports."""


@dataclass(frozen=True, eq=False)
class LevelResult:
    """One round of a run: what was asked, and what came back."""

    question: Question
    result: RoundCounts

    @property
    def levels(self) -> Levels:
        return self.question.levels

    @property
    def totals(self) -> NDArray[np.float64]:
        return self.result.values[self.question.totals].astype(np.float64)


@dataclass(frozen=True, eq=False)
class TopDownRun:
    """A run so far. `question` is what to ask next, None at the end; `with_result` gives the run that follows.

    The plan has a round for each level of the nodes. With `ads` 0 only totals are asked for, by a plan that
    says so. The same results give the same questions, so a run can be taken up again from its stored results.
    """

    nodes: ContextNodes
    ads: int
    plan: RunPlan
    support: SupportRule = field(default_factory=AboveNoise)
    bids: Bids | None = None
    rounds: tuple[LevelResult, ...] = ()

    def __post_init__(self) -> None:
        self._check_ads()
        for finer, coarser in itertools.pairwise(self.chain):
            if not is_coarser(coarser, finer):
                raise BadInput(f"expected a sequence of levels to go down, got {finer} beside {coarser}")
        self._check_levels()

    def _check_ads(self) -> None:
        expect.whole("ads", self.ads, at_least=0)
        expect.kind("plan", self.plan, RunPlan)
        expect.kind("nodes", self.nodes, ContextNodes)
        if self.ads and self.plan.contribution.totals_only:
            raise BadInput(
                f"expected ads=0 with a plan for totals only, got {self.ads}: clicks would count an event a "
                "second time, which its noise does not cover; plan without totals_only to ask about ads"
            )
        if not self.ads and not self.plan.contribution.totals_only:
            raise BadInput(
                "expected ads >= 1, or a plan for totals only, which has less noise: plan with "
                "Contribution(..., totals_only=True); got ads=0"
            )

    def _check_levels(self) -> None:
        """A plan's rounds are those of the nodes' levels: with fewer, the finest would never be asked about."""
        there, planned = len(self.chain), self.plan.levels
        if planned < there:
            asked, left = self.chain[-planned:][::-1], self.chain[:-planned]
            raise BadInput(
                f"expected a plan for the {there} levels of these nodes (a hierarchy adds its root), got "
                f"{planned}: it would ask only about {_join(asked)}, and every count of {_join(left)} would "
                f"read 0; plan with levels={there}, or ask less: nodes.only({list(self.chain[:planned])})"
            )
        if planned > there:
            raise BadInput(
                f"expected a plan for the {there} levels of these nodes, got {planned}: rounds that are never "
                f"held would be paid for, with more noise than it needs; plan with levels={there}"
            )

    @cached_property
    def chain(self) -> tuple[Levels, ...]:
        """The levels of the nodes, the finest first."""
        kept = set(self.nodes.levels)
        return tuple(levels for levels in self.nodes.hierarchy.levels() if levels in kept)

    @cached_property
    def question(self) -> Question | None:
        """What to ask next."""
        depth = len(self.rounds)
        if depth >= len(self.chain):
            return None
        levels = self.chain[-1 - depth]
        if not self.rounds:
            return self._question(levels, np.arange(self.nodes.count(levels), dtype=np.int64))
        last = self.rounds[-1]
        noise = PublishedNoise.of(self.plan.noise, last.result.count)
        chosen = last.question.nodes[self.support.expand(last.totals, noise)]
        children = np.flatnonzero(np.isin(self.nodes.parent(levels, last.levels), chosen))
        return self._question(levels, children.astype(np.int64)) if len(children) else None

    def with_result(self, result: RoundCounts) -> TopDownRun:
        """The run with the answer to its question."""
        question = self.question
        if question is None:
            raise BadInput("expected an answer while the run asks something, got one after its end")
        if result.values.shape != (question.cells,):
            raise BadInput(f"expected the counts of {question.cells} cells, got shape {result.values.shape}")
        expect.positive("noise_variance", result.noise_variance)
        return replace(self, rounds=(*self.rounds, LevelResult(question, result)))

    @cached_property
    def counts(self) -> Counts:
        """What was released so far, for estimates, at all levels of the nodes.

        A node that was not asked about has total 0 and no entries: estimators climb past it. Entries have as
        many impressions as clicks and no-clicks together.
        """
        if not self.rounds:
            raise BadInput("expected counts of at least one round, got none")
        asked = {round.levels: round for round in self.rounds}
        by_level = {
            levels: self._counts_asked_for(asked[levels]) if levels in asked else self._nothing(levels)
            for levels in self.chain
        }
        parent = {
            (finer, coarser): self.nodes.parent(finer, coarser).astype(np.int64)
            for finer, coarser in itertools.pairwise(self.chain)
        }
        return Counts(self.chain, by_level, parent, self.nodes)

    def _question(self, levels: Levels, nodes: Integers) -> Question:
        if self.bids is None:
            every = np.arange(self.ads, dtype=np.int64)
            offsets = np.arange(len(nodes) + 1, dtype=np.int64) * self.ads
            return Question(levels, nodes, offsets, np.tile(every, len(nodes)))
        ads = [self._bidding(self.bids, levels, int(node)) for node in nodes]
        offsets = np.cumsum([0, *map(len, ads)], dtype=np.int64)
        return Question(levels, nodes, offsets, np.concatenate(ads))

    def _bidding(self, bids: Bids, levels: Levels, node: int) -> Integers:
        given = bids.get((levels, node), ()) if isinstance(bids, Mapping) else bids(levels, node)
        ads = np.unique(np.asarray(given, np.int64))
        if len(ads) and not 0 <= ads[0] <= ads[-1] < self.ads:
            raise BadInput(f"expected bids of ads from 0 to {self.ads - 1}, got others at {levels}")
        return ads

    def _counts_asked_for(self, round: LevelResult) -> LevelCounts:
        question, values = round.question, round.result.values.astype(np.float64)
        nodes = self.nodes.count(question.levels)
        total = np.zeros(nodes)
        total[question.nodes] = values[question.totals]
        listed = np.zeros(nodes, np.int64)
        listed[question.nodes] = np.diff(question.offsets)
        clicks = values[question.clicks]
        return LevelCounts(
            question.levels,
            nodes,
            self.ads,
            total,
            np.r_[0, np.cumsum(listed)].astype(np.int64),
            question.ad,
            clicks,
            shown=clicks + values[question.no_clicks],
            noise_sd=math.sqrt(round.result.noise_variance),
        )

    def _nothing(self, levels: Levels) -> LevelCounts:
        nodes, none = self.nodes.count(levels), np.zeros(0)
        # Noisy, though nothing was drawn: where counts are exact, not being listed would mean a zero.
        sd = math.sqrt(self.rounds[-1].result.noise_variance)
        offsets, ad = np.zeros(nodes + 1, np.int64), np.zeros(0, np.int64)
        return LevelCounts(levels, nodes, self.ads, np.zeros(nodes), offsets, ad, none, none, sd)


def _join(levels: Iterable[Levels]) -> str:
    return ", ".join(map(str, levels))


def gather_counts(
    nodes: ContextNodes,
    ads: int,
    plan: RunPlan,
    count: Callable[[Question], RoundCounts],
    *,
    support: SupportRule | None = None,
    bids: Bids | None = None,
) -> TopDownRun:
    """A whole run, `count` answering each round's question; `.counts` of what it gives are for estimates.

    Guarantee:  that of `plan`, for everything that the run releases.
    Neighbours: the contribution of one device set to zero.
    Assumes:    `nodes` is a public universe, and bids are public; `count` adds the plan's noise, and is asked
                about nothing else on the plan's budget.
    Source:     Hardt and Nath, CCS 2012, algorithms 2 and 3.
    """
    run = TopDownRun(nodes, ads, plan, AboveNoise() if support is None else support, bids)
    while (question := run.question) is not None:
        run = run.with_result(count(question))
    return run
