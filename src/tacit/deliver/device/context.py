"""The device's exact context, the one node of it that the server was told, and its person's click history.

Context and history stay on the device. The history turns the server's rates into the person's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise, repeat
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tacit import expect
from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Hierarchy, Levels, Node, is_coarser


@dataclass(frozen=True, eq=False)
class DeviceContext:
    """The device's own nodes, finest first as `Hierarchy.path` lists them, and the one it disclosed.

    The disclosed node is public: it went out with the request, and no differential privacy covers it. The
    others stay on the device, so they are not in the text of this object either.
    """

    path: tuple[Node, ...] = field(repr=False)
    disclosed: Node

    def __post_init__(self) -> None:
        expect.several("path", self.path, Node)
        expect.kind("disclosed", self.disclosed, Node)
        if self._by_levels.get(self.disclosed.levels) != self.disclosed:
            raise BadInput("expected to disclose a node of the device's own context, got another")

    @classmethod
    def of(cls, hierarchy: Hierarchy, context: Sequence[Any], levels: Levels) -> DeviceContext:
        """Disclose the context at these levels."""
        expect.having("hierarchy", hierarchy, "path", "a hierarchy of contexts")
        return cls(hierarchy.path(context), hierarchy.at(context, levels))

    def at(self, levels: Levels) -> Node:
        """The device's node at these levels."""
        found = self._by_levels.get(levels)
        if found is None:
            raise BadInput(f"expected levels of the device's hierarchy, got {levels}")
        return found

    def finest(self, nodes: Iterable[Node]) -> Node | None:
        """The finest of these nodes that the device is in, if there is one; of a lattice, the path's first."""
        mine = [node for node in nodes if self._by_levels.get(node.levels) == node]
        return min(mine, key=self.path.index) if len(mine) > 1 else next(iter(mine), None)

    @cached_property
    def below(self) -> tuple[Node, ...]:
        """The device's nodes below the disclosed one, from coarse to fine."""
        places = _below(tuple(self._by_levels), self.disclosed.levels)
        return tuple(self.path[place] for place in places)

    @cached_property
    def _by_levels(self) -> dict[Levels, Node]:
        return {node.levels: node for node in self.path}


@lru_cache(maxsize=1024)
def _below(levels: tuple[Levels, ...], disclosed: Levels) -> tuple[int, ...]:
    finer = (place for place, each in enumerate(levels) if each != disclosed and is_coarser(disclosed, each))
    return tuple(finer)[::-1]


STRENGTH = 4.0
"""Requests of the person's own that weigh as much as all that is known from the level above."""


class _Request(NamedTuple):
    ad: int | None  # what was clicked
    nodes: tuple[Node, ...]


class _Seen(NamedTuple):
    requests: int
    clicks: Mapping[int, int]  # by ad


_NEVER = _Seen(0, MappingProxyType({}))


@dataclass(frozen=True, eq=False)
class ClickHistory:
    """The last `most` requests of one person at some levels, the coarsest first, with what was clicked.

    It never changes: `with_click` and `without_click` give another. It is private, whole: nothing of it is in
    its text, and whatever is computed from it may leave only through a private choice.

    Where only clicks are entered, rates are shares of the person's clicks; enter requests without one too where
    the server's rates are clicks on impressions, or the person's own rates come out too high.
    """

    levels: tuple[Levels, ...]
    most: int = 1000
    strength: float = STRENGTH
    _requests: tuple[_Request, ...] = field(default=(), repr=False)
    _seen: Mapping[Node, _Seen] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", expect.several("levels", self.levels))
        object.__setattr__(self, "levels", tuple(tuple(each) for each in self.levels))
        expect.whole("most", self.most, at_least=1)
        object.__setattr__(self, "strength", float(expect.positive("strength", self.strength)))
        for coarser, finer in pairwise(self.levels):
            if coarser == finer or len(coarser) != len(finer) or not is_coarser(coarser, finer):
                raise BadInput(f"levels: expected each finer than the one before, got {finer} after {coarser}")

    def __len__(self) -> int:
        return len(self._requests)

    def with_click(self, ad: int, context: DeviceContext) -> ClickHistory:
        """The history after a click on this ad."""
        return self._with(_Request(expect.whole("ad", ad, at_least=0), self._nodes(context)))

    def without_click(self, context: DeviceContext) -> ClickHistory:
        """The history after a request at which nothing was clicked."""
        return self._with(_Request(None, self._nodes(context)))

    def rates(self, ads: Sequence[int], context: DeviceContext, server: Floats) -> Floats:
        """The person's own rate of each ad, given the server's for the exact context; (ads,).

        From coarse to fine, p = (clicks on the ad + strength x p above) / (requests + strength), with the
        server's rate above the coarsest level. So without a history it is the server's.
        """
        rates = np.array(server, dtype=np.float64)
        if rates.shape != (len(ads),):
            raise BadInput(f"expected a rate of the server for each of {len(ads)} ads, got {rates.shape}")
        for levels in self.levels:
            seen = self._seen.get(context.at(levels))
            if seen is None:
                continue
            clicks = np.fromiter(map(seen.clicks.get, ads, repeat(0)), np.float64, len(ads))
            rates = (clicks + self.strength * rates) / (seen.requests + self.strength)
        return np.minimum(rates, 1.0)  # rounding may pass 1

    def _nodes(self, context: DeviceContext) -> tuple[Node, ...]:
        return tuple(context.at(levels) for levels in self.levels)

    def _with(self, request: _Request) -> ClickHistory:
        requests, seen = (*self._requests, request), dict(self._seen)
        _count(seen, request, 1)
        if len(requests) > self.most:
            _count(seen, requests[0], -1)
            requests = requests[1:]
        return ClickHistory(self.levels, self.most, self.strength, requests, seen)


def _count(seen: dict[Node, _Seen], request: _Request, by: int) -> None:
    """Enter or forget a request. Counts of a node are replaced, not changed: older histories hold them too."""
    for node in request.nodes:
        requests, clicks = seen.get(node, _NEVER)
        if request.ad is not None:
            changed = {**clicks, request.ad: clicks.get(request.ad, 0) + by}
            if not changed[request.ad]:
                del changed[request.ad]
            clicks = changed
        if requests + by:
            seen[node] = _Seen(requests + by, clicks)
        else:
            del seen[node]
