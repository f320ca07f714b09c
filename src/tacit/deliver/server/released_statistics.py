"""What a round released of impressions and clicks by context and campaign: kept as bytes, read as rates.

    statistics = ReleasedStatistics(nodes, total, offsets, campaign, clicks, shown, noise_sd=12.0, reports=900)
    ReleasedStatistics.from_bytes(statistics.to_bytes())
    book = statistics.rate_book(hierarchy, version="statistics 41")          # a `CountedRates`

Counts are of contexts at one level of the hierarchy. What coarser contexts have is their sum, so that a rate is
drawn towards that of the more general context (`moment_shrinkage`) without another question.

Rounds of conversions release the same, with conversions in the place of clicks: the kind of a version says
which, and `conversion_rates` makes rates of them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.bill.protocol.encoding import Reader, Writer
from tacit.bill.protocol.menus import context_bytes, parse_context
from tacit.deliver.campaigns.campaign import BidEvent
from tacit.deliver.server.rate_book import NOTHING_COUNTED, CountedRates, FixedRates
from tacit.display import brief
from tacit.errors import BadInput, BillRefused
from tacit.schema.contexts.attributes import BETWEEN, NONE, Attribute, SetOf, Steps
from tacit.schema.contexts.hierarchy import Hierarchy, Levels, Node, is_coarser
from tacit.schema.contexts.listed import node_above
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import ANYTHING
from tacit.schema.counts import Counts, LevelCounts, next_coarser

MAGIC = b"tacit statistics 1\n"
DIGEST_BYTES = 32
MOST_CELLS = 2**20
LARGEST_COUNT = 2**62


@dataclass(frozen=True, eq=False)
class ReleasedStatistics:
    """Noisy counts of one level.

    nodes     contexts, each once, all of one level
    total     (nodes,) impressions counted there, of whatever campaign
    offsets   (nodes + 1,) where each node's entries start
    campaign  (entries,) numbers, rising within a node
    clicks    (entries,) and
    shown     (entries,) impressions, clicked or not: each a sum of noisy counts, and perhaps negative
    noise_sd  the standard deviation of the noise in each count that was released
    reports   devices that were counted
    """

    nodes: tuple[Node, ...]
    total: Integers
    offsets: Integers
    campaign: Integers
    clicks: Integers
    shown: Integers
    noise_sd: float
    reports: int

    def __post_init__(self) -> None:
        entries = len(self.campaign)
        sizes = {
            "total": len(self.nodes), "offsets": len(self.nodes) + 1, "campaign": entries, "clicks": entries,
            "shown": entries,
        }  # fmt: skip
        for name, size in sizes.items():
            column = getattr(self, name)
            if not isinstance(column, np.ndarray) or column.dtype != np.int64 or column.shape != (size,):
                raise BadInput(f"{name}: expected {size} whole numbers of 64 bits, got others")
            if len(column) and max(abs(int(column.min())), abs(int(column.max()))) > LARGEST_COUNT:
                raise BadInput(f"{name}: expected numbers within 2^62, got a larger one")
        if not self.nodes or len(set(self.nodes)) < len(self.nodes):
            raise BadInput("nodes: expected contexts, each once, got none or one twice")
        if len({node.levels for node in self.nodes}) > 1:
            raise BadInput("nodes: expected contexts of one level, got several")
        steps = np.diff(self.offsets)
        if self.offsets[0] != 0 or self.offsets[-1] != entries or (steps < 0).any():
            raise BadInput(f"offsets: expected numbers that rise from 0 to {entries}, got others")
        if len(self.nodes) + 2 * entries > MOST_CELLS:
            raise BadInput(f"expected at most {MOST_CELLS} counts, got more")
        for start, end in pairwise(self.offsets.tolist()):
            if (np.diff(self.campaign[start:end]) <= 0).any():
                raise BadInput("campaign: expected each context's campaigns in rising order, got others")
        if entries and self.campaign.min() < 0:
            raise BadInput("campaign: expected numbers >= 0, got others")
        if not (math.isfinite(self.noise_sd) and self.noise_sd >= 0):
            raise BadInput(f"noise_sd: expected a finite number >= 0, got {self.noise_sd}")
        expect.whole("reports", self.reports, at_least=0)

    def __repr__(self) -> str:
        return brief(self, contexts=len(self.nodes), entries=len(self.campaign), reports=self.reports)

    @property
    def levels(self) -> Levels:
        return self.nodes[0].levels

    @cached_property
    def campaigns(self) -> tuple[int, ...]:
        """All that were asked about, by number."""
        return tuple(np.unique(self.campaign).tolist())

    # Bytes

    def to_bytes(self) -> bytes:
        """The one spelling: what it is, SHA-256 of the rest, and the counts."""
        writer = Writer().number("d", self.noise_sd).number("Q", self.reports).number("I", len(self.nodes))
        for place, node in enumerate(self.nodes):
            start, end = self.offsets[place : place + 2].tolist()
            writer.blob(context_bytes(node)).number("q", int(self.total[place])).number("I", end - start)
            columns = (self.campaign, self.clicks, self.shown)
            body = np.stack([column[start:end] for column in columns]).astype(">i8").tobytes()
            writer.raw(body, len(body))
        body = writer.to_bytes()
        return MAGIC + hashlib.sha256(body).digest() + body

    @classmethod
    def from_bytes(cls, data: bytes) -> ReleasedStatistics:
        """What `to_bytes` wrote; anything else is refused."""
        head, body = data[: len(MAGIC) + DIGEST_BYTES], data[len(MAGIC) + DIGEST_BYTES :]
        if not head.startswith(MAGIC):
            raise BadInput("expected released statistics of version 1, got other bytes")
        if head[len(MAGIC) :] != hashlib.sha256(body).digest():
            raise BadInput("expected released statistics as they were written, got damaged bytes")
        try:
            found = cls._read(Reader(body))
        except BillRefused as wrong:
            raise BadInput(f"expected released statistics, got other bytes: {wrong}") from None
        if found.to_bytes() != data:
            raise BadInput("expected released statistics in their one spelling, got another")
        return found

    @classmethod
    def _read(cls, reader: Reader) -> ReleasedStatistics:
        noise_sd, reports, count = reader.double(), reader.number("Q"), reader.number("I")
        nodes, total, offsets, blocks = [], [], [0], []
        for _ in range(count):  # each takes bytes that must be there
            nodes.append(parse_context(reader.blob()))
            total.append(reader.number("q"))
            entries = reader.number("I")
            blocks.append(np.frombuffer(reader.raw(24 * entries), ">i8").astype(np.int64).reshape(3, entries))
            offsets.append(offsets[-1] + entries)
        reader.end()
        cells = np.concatenate(blocks, axis=1) if blocks else np.zeros((3, 0), np.int64)
        return cls(
            tuple(nodes), np.array(total, np.int64), np.array(offsets, np.int64), cells[0], cells[1], cells[2],
            noise_sd, reports,
        )  # fmt: skip

    # Rates

    def cells(
        self, hierarchy: Hierarchy, nodes: Sequence[Node], campaigns: Sequence[int]
    ) -> tuple[Floats, Floats, Floats]:
        """(nodes, campaigns) clicks and impressions as they were released, or sums of them for a coarser node;
        0 of 0 where nothing was. And (nodes, 1) how many contexts each is a sum of."""
        clicks, shown = np.zeros((len(nodes), len(campaigns))), np.zeros((len(nodes), len(campaigns)))
        summed = np.zeros((len(nodes), 1))
        wanted = np.array(campaigns, np.int64)
        places = {levels: self._places(hierarchy, levels) for levels in {node.levels for node in nodes}}
        for row, node in enumerate(nodes):
            for place in places[node.levels].get(node, ()):
                start, end = self.offsets[place : place + 2].tolist()
                at = start + np.searchsorted(self.campaign[start:end], wanted)
                there = np.flatnonzero(at < end)
                there = there[self.campaign[at[there]] == wanted[there]]
                clicks[row, there] += self.clicks[at[there]]
                shown[row, there] += self.shown[at[there]]
                summed[row] += 1
        return clicks, shown, summed

    def _places(self, hierarchy: Hierarchy, levels: Levels) -> dict[Node, list[int]]:
        """Which of the contexts lie in each node of some levels."""
        found: dict[Node, list[int]] = {}
        for place, node in enumerate(self.nodes):
            above = node_above(hierarchy, node, levels)
            if above is not None:
                found.setdefault(above, []).append(place)
        return found

    def rate_book(
        self, hierarchy: Hierarchy, *, version: str, default: FixedRates = NOTHING_COUNTED
    ) -> CountedRates:
        """Rates along the hierarchy; contexts of another hierarchy than this are refused."""
        nodes = self._context_nodes(hierarchy)
        counts = self.counts(nodes)
        return CountedRates(nodes, {BidEvent.CLICK: counts}, self.campaigns, version=version, default=default)

    def _context_nodes(self, hierarchy: Hierarchy) -> ContextNodes:
        known = hierarchy.levels()
        if self.levels not in known:
            raise BadInput(f"statistics: expected contexts at levels of the hierarchy, got {self.levels}")
        names = [each.name for each in hierarchy.attributes]
        columns = {
            name: [_value(attribute, node.values[place]) for node in self.nodes]
            for place, (name, attribute) in enumerate(zip(names, hierarchy.attributes, strict=True))
        }
        kept = [each for each in known if is_coarser(each, self.levels)]
        return ContextNodes.of(hierarchy, columns, kept)

    def counts(self, nodes: ContextNodes) -> Counts:
        """By level, from the one that was counted up, with ads in the order of `campaigns`.

        A coarser context's counts are sums, whose noise is that of as many counts as it has contexts below: a
        level is taken to have that of its largest sum throughout, which draws its rates a little further
        towards their parents than need be.
        """
        if nodes.count(self.levels) != len(self.nodes):
            raise BadInput("statistics: expected different contexts of the hierarchy, got two that are one")
        levels = tuple(each for each in nodes.hierarchy.levels() if each in set(nodes.levels))
        ad = np.searchsorted(np.array(self.campaigns, np.int64), self.campaign)
        row = np.repeat(np.arange(len(self.nodes)), np.diff(self.offsets))
        by_level = {
            each: self._level(each, nodes.of_row(each).astype(np.int64), nodes.count(each), ad, row)
            for each in levels
        }
        parent = {
            (finer, coarser): nodes.parent(finer, coarser).astype(np.int64)
            for finer in levels
            for coarser in next_coarser(finer, levels)
        }
        return Counts(levels, by_level, parent, nodes)

    def _level(self, levels: Levels, node: Integers, nodes: int, ad: Integers, row: Integers) -> LevelCounts:
        ads = len(self.campaigns)
        key, entry = np.unique(node[row] * ads + ad, return_inverse=True)
        offsets = np.zeros(nodes + 1, np.int64)
        np.cumsum(np.bincount(key // max(ads, 1), minlength=nodes), out=offsets[1:])
        summed = int(np.bincount(node, minlength=nodes).max())

        def total(of: Integers, at: Integers, size: int) -> Floats:
            return np.bincount(at, of.astype(np.float64), minlength=size).astype(np.float64)

        return LevelCounts(
            levels,
            nodes,
            ads,
            total(self.total, node, nodes),
            offsets,
            key % max(ads, 1),
            total(self.clicks, entry, len(key)),
            shown=total(self.shown, entry, len(key)),
            noise_sd=self.noise_sd * math.sqrt(summed),
        )


def _value(attribute: Attribute, said: str) -> object:
    """A value that says this at the level where it was said, and what lies above it at coarser ones."""
    tree = attribute.tree if isinstance(attribute, Steps) else None
    if isinstance(attribute, SetOf):
        tree = attribute.of.tree
        if said not in (ANYTHING, NONE):
            return tuple(said.split(BETWEEN))
        return () if said == NONE else (tree.root,)
    if tree is None:
        raise BadInput(
            f"statistics: expected attributes that are trees, got {attribute.name}: cells of places do not "
            "tell what lies above them"
        )
    return tree.root if said == ANYTHING else said
