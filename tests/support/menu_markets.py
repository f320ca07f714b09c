"""Small markets of campaigns, and their menus by the plainest words: what the real ones are held to."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tacit.arrays import Floats
from tacit.bill.protocol.menus import MOST_PRICE_MICROS
from tacit.deliver.campaigns.campaign import AdCampaign, BidEvent, CampaignStatus
from tacit.deliver.protocol.packs import is_excluded
from tacit.deliver.server.competition import MenuRules
from tacit.deliver.server.rate_book import ContextsBelow
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Lattice, Node, is_coarser
from tacit.schema.contexts.listed import list_nodes, node_above
from tacit.schema.contexts.tree import Tree

CITY = Tree.of_paths(["North > Northport", "North > Millbridge", "South > Southwick"])
TOPIC = Tree.of_paths(["Food > Coffee", "Food > Tea", "Sport > Running"])
HIERARCHY = Lattice((Steps("city", CITY), Steps("topic", TOPIC)))
NODES = tuple(list_nodes(HIERARCHY, [(1, 1), (1, 2), (2, 1), (2, 2)], 100))
LEAVES = tuple(list_nodes(HIERARCHY, [(0, 0)], 100))
EVERYWHERE = tuple(list_nodes(HIERARCHY, HIERARCHY.levels(), 100))


class DrawnRates:
    """Rates that follow from a word and the cell alone, in few steps so that scores are often equal."""

    def __init__(self, word: str, *, steps: int = 8, below: bool = True) -> None:
        self.version, self._steps, self._below = f"{word} {steps} {below}", steps, below

    def rate(self, node: Node, campaign: int, event: BidEvent) -> float:
        if event is BidEvent.IMPRESSION:
            return 1.0
        words = f"{self.version}/{node.levels}/{node.values}/{campaign}/{event}".encode()
        return int.from_bytes(hashlib.sha256(words).digest()[:4], "big") % (self._steps + 1) / self._steps / 16

    def rates(self, nodes: Sequence[Node], campaigns: Sequence[int], event: BidEvent) -> Floats:
        found = [[self.rate(node, each, event) for each in campaigns] for node in nodes]
        return np.array(found, np.float64).reshape(len(nodes), len(campaigns))

    def below(self, node: Node) -> ContextsBelow:
        inside = [leaf for leaf in LEAVES if node_above(HIERARCHY, leaf, node.levels) == node]
        if not self._below or node.levels != (1, 1):
            return ContextsBelow()
        weights = np.arange(1.0, len(inside) + 1)
        return ContextsBelow(tuple(inside), weights / weights.sum())


def leaves_of(node: Node) -> set[tuple[str, ...]]:
    return {leaf.values for leaf in LEAVES if node_above(HIERARCHY, leaf, node.levels) == node}


def plain_bid(campaign: AdCampaign, node: Node) -> int:
    """The most specific bid that holds; of several the least."""
    root = Node((2, 2), ("*", "*"))
    holding = []
    for bid in campaign.bids:
        at = root if bid.node is None else bid.node
        if len(at.levels) == 2 and node_above(HIERARCHY, node, at.levels) == at:
            holding.append((at, bid.node is not None, bid.micros))
    best = [
        micros
        for at, placed, micros in holding
        if not any(
            (other != at and is_coarser(at.levels, other.levels)) or (other == at and other_placed > placed)
            for other, other_placed, _ in holding
        )
    ]
    return min(best, default=0)


def plain_menu(
    node: Node, campaigns: Iterable[AdCampaign], rules: MenuRules, book: DrawnRates, out: Iterable[int],
    left: Mapping[int, int], opens: int, closes: int,
) -> list[tuple[int, int, int | None]]:  # fmt: skip
    """(campaign, price, who set it or None) in the order of the menu."""
    here, left_out = leaves_of(node), set(out)
    bids, scores = {}, {}
    for each in campaigns:
        bid = plain_bid(each, node)
        score = bid * book.rate(node, each.number, each.event)
        excluded = is_excluded(each.categories, rules.exclude) or any(
            is_excluded(each.categories, words) and leaves_of(at) & here
            for at, words in rules.exclude_in.items()
        )
        if (
            each.status is CampaignStatus.ACTIVE
            and all(each.schedule.runs_at(second) for second in range(opens, closes))
            and each.number not in left_out
            and not excluded
            and not any(leaves_of(at) & here for at in each.blocked)
            and book.rate(node, each.number, BidEvent.CLICK) >= rules.ctr_floor
            and max(rules.reserve_micros, 1e-12) <= score <= MOST_PRICE_MICROS
            and left.get(each.number, 2**62) >= max(1, math.ceil(score))
        ):
            bids[each.number], scores[each.number] = bid, score
    if not scores:
        return []
    ranking = sorted(scores, key=lambda number: (-scores[number], number))
    near = [number for number in ranking if scores[number] >= (1.0 - float(rules.cutoff)) * scores[ranking[0]]]
    events = {each.number: each.event for each in campaigns}
    sent = plain_selection(node, near, bids, scores, events, rules, book)
    found = []
    for place, number in enumerate(ranking):
        if number in sent:
            behind = ranking[place + 1] if place + 1 < len(ranking) else None
            price = scores[behind] if behind is not None else rules.reserve_micros
            found.append((number, math.floor(price), behind))
    return found


def plain_selection(
    node: Node, near: list[int], bids: dict[int, int], scores: dict[int, float],
    events: dict[int, BidEvent], rules: MenuRules, book: DrawnRates,
) -> set[int]:  # fmt: skip
    below = book.below(node)
    if len(below.nodes) < 2:
        return {number for number in near[: rules.candidates] if scores[number] > rules.price_per_ad}
    values = {}
    for number in near:
        rates = [np.float32(book.rate(leaf, number, events[number])) for leaf in below.nodes]
        values[number] = [
            float(np.float32(bids[number] * float(rate))) if rate >= rules.ctr_floor else 0.0 for rate in rates
        ]
    chosen: list[int] = []
    best = [0.0] * len(below.nodes)
    while len(chosen) < rules.candidates:
        gains = {
            number: math.fsum(
                weight * max(0.0, value - top)
                for weight, value, top in zip(below.chance.tolist(), values[number], best, strict=True)
            )
            for number in near
            if number not in chosen
        }
        if not gains:
            break
        most = max(gains.values())
        if most <= rules.price_per_ad + 1e-9:
            break
        # Sums in another order may differ in their last place: those that are equal but for that are equal.
        pick = min(number for number, gain in gains.items() if gain >= most * (1 - 1e-12))
        chosen.append(pick)
        best = [max(top, value) for top, value in zip(best, values[pick], strict=True)]
    if not rules.price_per_ad:
        chosen += [number for number in near if number not in chosen][: rules.candidates - len(chosen)]
    return set(chosen)
