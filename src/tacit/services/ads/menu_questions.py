"""What scheduled rounds ask, and a round as it is kept before anybody hears of it.

    asked = ask_about_menus(menus, hierarchy, cells_most=20_000)                        # of clicks
    asked = ask_about_menus(menus, hierarchy, campaigns={3}, earlier=pairs, cells_most=20_000)  # of conversions

A question is made of menus, which are public: of what they offer now and, for conversions, of what was offered
when the impressions were shown whose look-back is over now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgpack
import numpy as np

from tacit.bill.protocol.menus import Lane, PricedMenu, context_bytes, parse_context
from tacit.deliver.protocol.disclosure import context_number
from tacit.errors import BadInput, TacitError
from tacit.gather.protocol.messages import RoundResult
from tacit.gather.protocol.rounds import Question
from tacit.schema.contexts.hierarchy import Hierarchy, Levels, Node, is_coarser
from tacit.schema.contexts.listed import node_above
from tacit.services.rounds import AnnouncedRound

if TYPE_CHECKING:
    from tacit.deliver.server.released_statistics import ReleasedStatistics

NEVER_MENU = 1_000  # the rank of a campaign that stands in a coarser menu alone, beyond any of its own
EARLIER = 2_000  # and of one that stands in no menu any more

AskedPair = tuple[Node, int]
"""A context and a campaign."""


@dataclass(frozen=True, eq=False)
class MenuQuestion:
    """What is asked of devices: a question, its contexts in the question's order, and how many pairs of context
    and campaign found no room."""

    question: Question
    nodes: tuple[Node, ...]
    left_out: int


def ask_about_menus(
    menus: Sequence[PricedMenu],
    hierarchy: Hierarchy,
    *,
    levels: Levels | None = None,
    cells_most: int,
    campaigns: Collection[int] | None = None,
    earlier: Iterable[AskedPair] = (),
) -> MenuQuestion | None:
    """The question for these menus' contexts of one level, by default the finest; None where there are none.

    A context is asked about with the campaigns of its own menu and of coarser menus that it lies in, since who
    told less saw those there. What finds no room, by its public rank, is left out.

    campaigns  ask about these alone, and about contexts that have some of them; None: about all
    earlier    pairs that were in menus before, and are asked about too, after all that are now
    """
    personal = [menu for menu in menus if menu.lane is Lane.PERSONAL]
    asked = _finest(personal) if levels is None else levels
    own = {menu.node: menu for menu in personal if menu.node.levels == asked}
    above: dict[Node, list[PricedMenu]] = {}
    coarser = {menu.node: menu for menu in personal if menu.node.levels != asked}
    for levels_above in {node.levels for node in coarser if is_coarser(node.levels, asked)}:
        for node in own:
            found = node_above(hierarchy, node, levels_above)
            if found in coarser:
                above.setdefault(node, []).append(coarser[found])
    ranks: dict[Node, dict[int, int]] = {}  # by campaign
    for node, menu in own.items():
        of_node = ranks.setdefault(node, {})
        of_node.update((each.campaign, rank) for rank, each in enumerate(menu.entries))
        for other in above.get(node, ()):
            for rank, each in enumerate(other.entries):
                of_node.setdefault(each.campaign, NEVER_MENU + rank)
    for node, campaign in earlier:
        if node.levels == asked:
            ranks.setdefault(node, {}).setdefault(campaign, EARLIER)
    if campaigns is not None:
        wanted = {node: {each: of[each] for each in of if each in campaigns} for node, of in ranks.items()}
        ranks = {node: of for node, of in wanted.items() if of}
    if not ranks:
        return None
    ranked = [(rank, campaign, node) for node, of in ranks.items() for campaign, rank in of.items()]
    kept_nodes = sorted(ranks)[:cells_most]
    room = (cells_most - len(kept_nodes)) // 2
    allowed = set(kept_nodes)
    ranked = sorted(each for each in ranked if each[2] in allowed)
    return _question(asked, kept_nodes, ranked[:room], len(ranked) - min(room, len(ranked)))


def _finest(menus: Sequence[PricedMenu]) -> Levels:
    """Of the levels that menus have one that none is finer than; of several the one with most menus."""
    counted: dict[Levels, int] = {}
    for menu in menus:
        counted[menu.node.levels] = counted.get(menu.node.levels, 0) + 1
    finest = [
        each for each in counted if not any(other != each and is_coarser(each, other) for other in counted)
    ]
    return max(finest, key=lambda each: (counted[each], each), default=())


def _question(
    levels: Levels, nodes: Sequence[Node], ranked: Sequence[tuple[int, int, Node]], left_out: int
) -> MenuQuestion:
    by_number = {context_number(node): node for node in nodes}
    if len(by_number) < len(nodes):
        raise BadInput("expected contexts with different numbers, got two of the same: ask at other levels")
    campaigns: dict[Node, list[int]] = {node: [] for node in nodes}
    for _, campaign, node in ranked:
        campaigns[node].append(campaign)
    numbers = sorted(by_number)
    ordered = tuple(by_number[number] for number in numbers)
    offsets = np.cumsum([0, *(len(campaigns[node]) for node in ordered)], dtype=np.int64)
    ads = [sorted(campaigns[node]) for node in ordered]
    flat = np.array([each for some in ads for each in some], np.int64)
    return MenuQuestion(Question(levels, np.array(numbers, np.int64), offsets, flat), ordered, left_out)


@dataclass(frozen=True, eq=False)
class KeptRound:
    """A scheduled round as it is kept before it is announced: with its contexts, which the question names by
    numbers only."""

    announced: AnnouncedRound
    nodes: tuple[Node, ...]

    def to_bytes(self) -> bytes:
        return bytes(msgpack.packb((self.announced.to_bytes(), [context_bytes(node) for node in self.nodes])))

    @classmethod
    def from_bytes(cls, data: bytes) -> KeptRound:
        try:
            announced, nodes = msgpack.unpackb(data)
            found = cls(AnnouncedRound.from_bytes(announced), tuple(parse_context(each) for each in nodes))
        except (ValueError, TypeError, TacitError):
            raise BadInput("expected a scheduled round as it was kept, got other bytes") from None
        numbers = [context_number(node) for node in found.nodes]
        if numbers != found.question.nodes.tolist():
            raise BadInput("expected the contexts that the round's question names, got others")
        return found

    @property
    def question(self) -> Question:
        return Question.of_round(self.announced.round, self.announced.question)

    def pairs(self) -> set[AskedPair]:
        """What it asks about."""
        question = self.question
        return {
            (self.nodes[place], campaign)
            for place, campaign in zip(question.entry_node.tolist(), question.ad.tolist(), strict=True)
        }

    def statistics(self, result: RoundResult) -> ReleasedStatistics:
        """What the round released, by context and campaign; conversions, where it asked for those, in the place
        of clicks."""
        from tacit.deliver.server.released_statistics import ReleasedStatistics

        question, values = self.question, result.values.astype(np.int64)
        clicks = values[question.clicks]
        return ReleasedStatistics(
            self.nodes,
            values[question.totals],
            question.offsets,
            question.ad,
            clicks,
            clicks + values[question.no_clicks],
            float(result.noise_variance) ** 0.5,
            result.count,
        )
