"""The person's own clicks, kept on the device, and the rates that they make of the server's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.deliver.client.here import Here
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Levels, Node, is_coarser

Floats = NDArray[np.float64]

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
class History:
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
        object.__setattr__(self, "levels", tuple(tuple(each) for each in self.levels))
        expect.whole("most", self.most, at_least=1)
        object.__setattr__(self, "strength", float(expect.positive("strength", self.strength)))
        for coarser, finer in pairwise(self.levels):
            if coarser == finer or len(coarser) != len(finer) or not is_coarser(coarser, finer):
                raise BadInput(f"levels: expected each finer than the one before, got {finer} after {coarser}")

    def __len__(self) -> int:
        return len(self._requests)

    def with_click(self, ad: int, here: Here) -> History:
        """The history after a click on this ad."""
        return self._with(_Request(expect.whole("ad", ad, at_least=0), self._nodes(here)))

    def without_click(self, here: Here) -> History:
        """The history after a request at which nothing was clicked."""
        return self._with(_Request(None, self._nodes(here)))

    def rates(self, ads: Sequence[int], here: Here, server: Floats) -> Floats:
        """The person's own rate of each ad, given the server's for the exact context; (ads,).

        From coarse to fine, p = (clicks on the ad + strength x p above) / (requests + strength), with the
        server's rate above the coarsest level. So without a history it is the server's.
        """
        rates = np.array(server, dtype=np.float64)
        if rates.shape != (len(ads),):
            raise BadInput(f"expected a rate of the server for each of {len(ads)} ads, got {rates.shape}")
        for levels in self.levels:
            seen = self._seen.get(here.at(levels))
            if seen is None:
                continue
            clicks = np.fromiter(map(seen.clicks.get, ads, repeat(0)), np.float64, len(ads))
            rates = (clicks + self.strength * rates) / (seen.requests + self.strength)
        return np.minimum(rates, 1.0)  # rounding may pass 1

    def _nodes(self, here: Here) -> tuple[Node, ...]:
        return tuple(here.at(levels) for levels in self.levels)

    def _with(self, request: _Request) -> History:
        requests, seen = (*self._requests, request), dict(self._seen)
        _count(seen, request, 1)
        if len(requests) > self.most:
            _count(seen, requests[0], -1)
            requests = requests[1:]
        return History(self.levels, self.most, self.strength, requests, seen)


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
