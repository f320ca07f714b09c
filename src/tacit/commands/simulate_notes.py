"""What a reader of a simulation should know though it was no reason to refuse: said once, in one line each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from tacit.commands.simulate_config import Generated, SimulationConfig
from tacit.commands.simulate_output import counted
from tacit.deliver.auction.candidates import AuctionBlock
from tacit.deliver.auction.choices import GREEDY, NON_PERSONALISED
from tacit.deliver.auction.market import Results

REMEMBERED = 2**18
"""Auction ids that are kept in mind, the latest ones: an id further back than this is not recognised."""


class Returning:
    """Counts auctions whose id was seen shortly before: their rows do not lie together."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self.auctions = self.returned = 0
        self._remembered = remembered
        self._latest: deque[set[Any]] = deque()

    def watched(self, blocks: Iterable[AuctionBlock]) -> Iterator[AuctionBlock]:
        """The same blocks."""
        for block in blocks:
            if block.public.names.ids is not None:
                self._note(block.public.names.ids.tolist())
            yield block

    def _note(self, ids: list[Any]) -> None:
        different = set(ids)
        again: set[Any] = set()
        for earlier in self._latest:
            again |= different & earlier
        self.auctions += len(ids)
        self.returned += len(ids) - len(different) + len(again)
        self._latest.append(different)
        while len(self._latest) > 1 and sum(map(len, self._latest)) > self._remembered:
            self._latest.popleft()


def notes(config: SimulationConfig, results: Results, seen: Returning) -> list[str]:
    found = []
    if seen.returned and not isinstance(config.market, Generated):
        column = config.market.names.auction
        found.append(
            f"{seen.returned:,} of {counted(seen.auctions, 'auction')} have an id that came before: rows of an "
            f"auction must lie together, or each stretch counts as one; sort the log by {column}"
        )
    reserve = config.rules.reserve_micros
    if reserve and not any(results.mean(arm, "welfare") for arm in (NON_PERSONALISED, GREEDY)):
        found.append(f"nothing was shown: no public score reached auction.reserve_micros = {reserve:,}")
    if not config.choosers:
        found.append("no [[choice]] was asked for: these are the two ends alone")
    return found
