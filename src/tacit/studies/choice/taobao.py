"""A prepared Taobao log as a market: its auctions, what the server and the device think of each candidate, and
what was clicked.

As in Appendix E.1 of the study of private recommendations: the rows of one user at one time_stamp are the
candidates of one auction; a bid is in proportion to the item's price; the reserve is the lowest bid; the server
predicts without the person's features and the device with them; a click is the logged one.

    market = LoggedMarket.of(Columns.open("taobao"), server=load("fnn"), device=load("din"))
    for auctions in market.blocks(): ...

Only the bids and the order of the part's rows are held; features are read block by block. A part that is cut by
time may cut the auctions of its first and last second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.data.columns import Columns
from tacit.data.generators.markets import AUCTIONS_PER_BLOCK, offsets_of
from tacit.errors import BadInput
from tacit.schema.columns import Role
from tacit.train.examples import Examples
from tacit.train.models.model import Part
from tacit.train.models.saving import Saved
from tacit.train.targets import Head

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class LoggedAuctions:
    """Some auctions, ragged: auction i has the candidates offsets[i] to offsets[i + 1], in the log's order.

    bid     currency units a click
    server  the probability of a click without the person's features
    device  the same with them
    click   whether the logged impression was clicked
    """

    offsets: Integers
    bid: Floats
    server: Floats
    device: Floats
    click: NDArray[np.bool_]

    @property
    def count(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, eq=False)
class LoggedMarket:
    """Make it with `of`. `without_bid` rows, whose ad has no price, are in no auction."""

    examples: Examples
    server: Saved
    device: Saved
    reserve: float  # currency units a click
    without_bid: int
    _bid: NDArray[np.float64] = field(repr=False)  # of the examples
    _order: Integers = field(repr=False)  # places in the examples, auction by auction
    _offsets: Integers = field(repr=False)

    @classmethod
    def of(cls, columns: Columns, *, server: Saved, device: Saved, part: str = "test") -> LoggedMarket:
        """Both models must have the log's encoder; the server's may not read sensitive features."""
        _expect_models(columns, server, device)
        examples = Examples.of(columns, part)
        auction, bids = columns.key(Role.AUCTION), columns.key(Role.PRICE)
        if auction is None or bids is None:
            raise BadInput(f"{columns.folder}: expected auctions and bids, got a log without them")
        key, bid = examples.at.of(auction), np.asarray(examples.at.of(bids), np.float64)
        bidding = np.flatnonzero(~np.isnan(bid))
        if not len(bidding):
            raise BadInput(f"{columns.folder}: expected candidates with a bid in part {part}, got none")
        order, offsets = _auctions(key[bidding])
        return cls(
            examples=examples,
            server=server,
            device=device,
            reserve=float(bid[bidding].min()),
            without_bid=len(bid) - len(bidding),
            _bid=bid,
            _order=bidding[order],
            _offsets=offsets,
        )

    @property
    def count(self) -> int:
        """Auctions in all."""
        return len(self._offsets) - 1

    def blocks(self, auctions: int = AUCTIONS_PER_BLOCK) -> Iterator[LoggedAuctions]:
        """All auctions once, by their first row in the log, so many at a time."""
        at_once = expect.whole("auctions", auctions, at_least=1)
        for first in range(0, self.count, at_once):
            offsets = self._offsets[first : first + at_once + 1]
            places = self._order[offsets[0] : offsets[-1]]
            rows = self.examples.subset(places)
            yield LoggedAuctions(
                offsets - offsets[0],
                self._bid[places],
                self.server.predict(rows).astype(np.float64),
                self.device.predict(rows).astype(np.float64),
                rows.labels.astype(np.bool_),
            )


def _auctions(key: NDArray[np.uint64]) -> tuple[Integers, Integers]:
    """Rows of the same key together, groups by their first row: an order, and where groups begin in it."""
    by_key = np.argsort(key, kind="stable")
    sorted_key = key[by_key]
    starts = np.flatnonzero(np.append(True, sorted_key[1:] != sorted_key[:-1]))
    sizes = np.diff(np.append(starts, len(key)))
    as_logged = np.argsort(by_key[starts])  # stable sorting puts a group's first row first
    sizes = sizes[as_logged]
    offsets = offsets_of(sizes)
    within = np.arange(len(key)) - np.repeat(offsets[:-1], sizes)
    return by_key[np.repeat(starts[as_logged], sizes) + within], offsets


def _expect_models(columns: Columns, server: Saved, device: Saved) -> None:
    for name, model in (("server", server), ("device", device)):
        if model.encoder.digest != columns.encoder.digest:
            raise BadInput(f"{name}: expected a model of the encoder of {columns.folder}, got another")
        if model.head is not Head.LOGISTIC:
            raise BadInput(f"{name}: expected a model of probabilities, got a {model.head} head")
    if server.part is not Part.TRUNCATED:
        raise BadInput(f"server: expected a model without sensitive features, such as fnn, got {server.part}")
