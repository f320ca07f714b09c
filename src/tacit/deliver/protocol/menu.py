"""The menu that the server sends for a disclosed context: ads in public order, with bids, rates and prices.

>>> from tacit.deliver import SecondPrice
>>> node = Node((1,), ("Food",))
>>> cafe = Node((0,), ("Coffee",))
>>> columns = [400_000, 500_000], [0.03, 0.02], [333_333, 0], [7, RESERVE_PRICE]
>>> menu = Menu(node, [9, 7], *columns, price=SecondPrice(), finer={cafe: {9: 0.1}})
>>> menu.public_scores.tolist(), menu.size_bytes()
([12000.0, 10000.0], 80)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.protocol.prices import BillingEvent, PriceRule
from tacit.deliver.protocol.priors import DEFAULT_PRIOR, ScorePrior, check_candidates, prior_as_json
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.kernels.auctions import MOST_MICROS
from tacit.schema.contexts.hierarchy import Node, is_coarser
from tacit.schema.impressions import DUE_ON, NO_BIDDER, OWN_BID, RESERVE_PRICE, Impressions

NOTHING = -1
"""Among a menu's ads: showing nothing, where that is a candidate."""

MOST_AD = 2**63 - 1  # what an impression can hold: one that it cannot would fail only once it was drawn
BYTES_AN_AD = 8 + 8 + 4 + 8 + 2  # its number, its bid, a rate, its price, and the place of who set that
BYTES_A_FINER_RATE = 2 + 4  # its place among the ads, and the rate


@dataclass(frozen=True, eq=False)
class Menu:
    """Ads for one node, the best first by public scores, each with one price: a price that followed the finer
    context would tell it. Columns have an entry per candidate, in this order, which is the public rank.

    node            the node that was disclosed
    ads             numbers >= 0, each once, which the bill knows as campaigns; NOTHING for showing nothing
    bid_micros      what an ad bids for a click, whole; 0 for an ad that does not want this node
    rates           the public chance of a click on each ad at `node`
    price_micros    what is charged if this candidate is shown; whole, 0 for nothing
    setter          who made the price: another ad, sent or not, or a code of the bill, such as NO_BIDDER
    price           the rule that priced them, and what the price is for: a click, or an impression
    ctr_floor       a rate below which nothing is better than an ad; 0 for no floor
    nothing_micros  what showing nothing is worth where it is a candidate, in micros per impression
    finer           rates at nodes below, of some ads: where the advertiser does not want a node, send 0
    prior           how far devices' scores may be from the public ones: what choices are planned by

    Everything is checked here and at once, finer rates of all nodes included. A refusal that came only on
    devices whose own node has a bad rate would tell the server where they are.
    """

    node: Node
    ads: tuple[int, ...]
    bid_micros: Integers
    rates: Floats
    price_micros: Integers
    setter: Integers
    price: PriceRule
    ctr_floor: float
    nothing_micros: float | None
    finer: Mapping[Node, Mapping[int, float]] = field(repr=False)
    prior: ScorePrior = field(repr=False)

    __repr__ = brief_repr

    def __init__(
        self,
        node: Node,
        ads: ArrayLike,
        bid_micros: ArrayLike,
        rates: ArrayLike,
        price_micros: ArrayLike,
        setter: ArrayLike,
        *,
        price: PriceRule,
        ctr_floor: float = 0.0,
        nothing_micros: float | None = None,
        finer: Mapping[Node, Mapping[int, float]] | None = None,
        prior: ScorePrior = DEFAULT_PRIOR,
    ) -> None:
        if not isinstance(price, PriceRule):
            raise BadInput(f"node {node}: expected a price rule of public data, got {type(price).__name__}")
        numbers = check_ads(node, ads, nothing=nothing_micros is not None)
        values: dict[str, Any] = {
            "node": node,
            "ads": numbers,
            "bid_micros": check_micros(node, numbers, bid_micros),
            "rates": check_rates(node, numbers, rates),
            "price_micros": check_micros(node, numbers, price_micros),
            "setter": _setters(node, numbers, setter),
            "price": price,
            "ctr_floor": check_floor(ctr_floor),
            "nothing_micros": nothing_micros,
            "finer": dict(finer or {}),
            "prior": prior,
        }
        prior_as_json(prior)  # what cannot be written could not be sent
        check_candidates(prior, len(numbers) - (NOTHING in numbers))
        for key, value in values.items():
            object.__setattr__(self, key, value)
        _ = self._tables  # read now, so that a bad entry is refused now
        self._expect_worth_of_nothing()
        if (np.diff(self.public_scores) > 0).any():
            raise BadInput(f"node {node}: expected the best public score first, got one that rises")
        wrong = self.price_micros > self.most_micros
        if wrong.any():
            raise BadInput(
                f"node {node}: expected prices up to the public worth, got ad {numbers[wrong.argmax()]} above"
            )

    def __len__(self) -> int:
        return len(self.ads)

    @property
    def name(self) -> str:
        """The disclosed node in words: all that a report says of its request."""
        return str(self.node)

    @property
    def charged(self) -> BillingEvent:
        return self.price.charged

    @cached_property
    def place(self) -> dict[int, int]:
        """Where each ad is in `ads`."""
        return {ad: place for place, ad in enumerate(self.ads)}

    @property
    def nothing_rank(self) -> int | None:
        """The public rank of showing nothing, where that is a candidate."""
        return self.place.get(NOTHING)

    @cached_property
    def public_scores(self) -> Floats:
        """Micros per impression at the public rates, falling."""
        return self.scores(self.rates)[0]

    @cached_property
    def most_micros(self) -> Integers:
        """What a price may not pass: the bid, or the public score of an impression, rounded down."""
        if self.charged is BillingEvent.CLICK:
            return self.bid_micros
        return np.floor(self.bid_micros * self.rates).astype(np.int64)

    def scores(self, rates: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """bid x rate for any rates (..., candidates), and which of them reach the floor and pay.

        What falls below the floor counts at the least bid, so that it is worth no more than nothing.
        """
        scores = self.bid_micros * rates
        reaches = np.ones(scores.shape, np.bool_)
        if self.ctr_floor:
            reaches = (rates >= self.ctr_floor) & (self.bid_micros > 0)
            scores = np.where(reaches, scores, np.minimum(self.bid_micros, least_bid(self.bid_micros)) * rates)
        if self.nothing_rank is not None:
            scores[..., self.nothing_rank] = self.nothing_micros
        return scores, reaches

    def rates_along(self, nodes: tuple[Node, ...]) -> Floats:
        """Each ad's rate at the last of these nodes that has one for it, else the public rate; (ads,)."""
        rates = self.rates.copy()
        for node in nodes:
            found = self._tables.get(node)
            if found is not None:
                places, values = found
                rates[places] = values
        return rates

    def impressions(self, ranks: Integers) -> Impressions:
        """What the bill is told where the candidates of these public ranks were shown; no row for nothing."""
        shown = np.asarray(ranks, np.int64)
        shown = shown[shown != self.nothing_rank] if self.nothing_rank is not None else shown
        return Impressions(
            campaign=np.array(self.ads, np.int64)[shown],
            price_micros=self.price_micros[shown],
            most_micros=self.most_micros[shown],
            rank=shown,
            setter=self.setter[shown],
            rule=str(self.price),
            due_on=np.full(len(shown), DUE_ON.index(self.charged), np.uint8),
            auction=np.full(len(shown), self.name),
        )

    def size_bytes(self, creative_bytes: int = 0) -> int:
        """About what this takes on the wire, with `creative_bytes` to show each ad; rates as 32 bits."""
        each = BYTES_AN_AD + expect.whole("creative_bytes", creative_bytes, at_least=0)
        finer = sum(_bytes_of(node) + BYTES_A_FINER_RATE * len(table) for node, table in self.finer.items())
        written = 0 if self.prior == DEFAULT_PRIOR else len(json.dumps(prior_as_json(self.prior)))
        return _bytes_of(self.node) + each * len(self) + finer + written

    def _expect_worth_of_nothing(self) -> None:
        if self.ctr_floor and self.nothing_micros is None:
            raise BadInput(f"node {self.node}: expected what nothing is worth beside a floor, got None")
        if self.nothing_micros is None:
            return
        object.__setattr__(
            self, "nothing_micros", float(expect.at_least_zero("nothing_micros", self.nothing_micros))
        )
        if self.nothing_micros > MOST_MICROS:  # what is a hair above it must be finite, on every device
            raise BadInput(f"node {self.node}: expected nothing to be worth at most 2^53 micros, got more")
        at = self.place[NOTHING]
        if self.bid_micros[at] or self.rates[at] or self.price_micros[at]:
            raise BadInput(f"node {self.node}: expected no bid, rate and price for showing nothing, got one")

    @cached_property
    def _tables(self) -> dict[Node, tuple[Integers, Floats]]:
        """`finer` by places in `ads`, as arrays."""
        for node in self.finer:
            if len(node.levels) != len(self.node.levels) or not is_coarser(self.node.levels, node.levels):
                raise BadInput(f"finer rates: expected nodes below {self.node}, got {node}")
            if node.levels == self.node.levels:
                raise BadInput(f"finer rates: expected nodes below {self.node}, got {node} beside it")
        tables = list(self.finer.values())
        place = self.place
        places = np.fromiter((place.get(ad, -1) for table in tables for ad in table), np.int64)
        values = _doubles("finer rates", list(chain.from_iterable(table.values() for table in tables)))
        if values.shape != places.shape:
            raise BadInput("finer rates: expected one number an ad, got others")
        ends = np.cumsum([len(table) for table in tables], dtype=np.int64)
        for wrong, expected in (
            (places < 0, "rates of ads that are sent, got another ad"),
            (~((values >= 0) & (values <= 1)), "a rate in [0, 1], got NaN or a value outside"),
        ):
            if wrong.any():
                at = int(np.searchsorted(ends, np.argmax(wrong), side="right"))
                raise BadInput(f"finer rates, node {list(self.finer)[at]}: expected {expected}")
        cuts = list(zip(np.split(places, ends[:-1]), np.split(values, ends[:-1]), strict=True))
        return dict(zip(self.finer, cuts if tables else [], strict=True))


@lru_cache(maxsize=256)  # reading a number exactly takes longer than all the rest of a choice
def check_floor(ctr_floor: float) -> float:
    """A rate below which nothing is better than an ad; 0 for no floor."""
    return float(expect.probability("ctr_floor", ctr_floor, zero=True, one=True))


def least_bid(bid_micros: Integers) -> int:
    """The least of those that pay at all; 0 where none does."""
    paying = bid_micros[bid_micros > 0]
    return int(paying.min()) if len(paying) else 0


def check_ads(node: Node, ads: ArrayLike, *, nothing: bool = False) -> tuple[int, ...]:
    """Numbers of ads, each once; with NOTHING among them where it is a candidate."""
    numbers = np.asarray(ads)
    whole = numbers.ndim == 1 and numbers.size and numbers.dtype.kind in "iu"
    least = NOTHING if nothing else 0
    if not whole or not least <= int(numbers.min()) <= int(numbers.max()) <= MOST_AD:
        raise BadInput(f"node {node}: expected at least one ad, as whole numbers in 0..2^63-1, got others")
    found: tuple[int, ...] = tuple(numbers.tolist())
    if nothing and NOTHING not in found:
        raise BadInput(f"node {node}: expected showing nothing among the candidates, got ads alone")
    if len(set(found)) < len(found):
        twice = next(ad for ad in found if found.count(ad) > 1)
        raise BadInput(f"node {node}: expected each ad once, got ad {twice} twice")
    return found


def check_micros(node: Node, ads: tuple[int, ...], micros: ArrayLike) -> Integers:
    """Whole micros, one for each ad."""
    given = np.asarray(micros)
    if given.shape != (len(ads),) or given.dtype.kind not in "iu":
        raise BadInput(
            f"node {node}: expected whole micros for each of {len(ads)} ads, got {given.dtype} {given.shape}"
        )
    wrong = (given < 0) | (given > MOST_MICROS)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise BadInput(f"node {node}, ad {ads[at]}: expected micros in 0..2^53, got {int(given[at])}")
    whole = given.astype(np.int64)
    whole.setflags(write=False)
    return whole


def check_rates(node: Node, ads: tuple[int, ...], rates: ArrayLike) -> Floats:
    """Chances of a click, one for each ad."""
    given = _doubles(f"node {node}: rates", rates)
    if given.shape != (len(ads),):
        raise BadInput(f"node {node}: expected a rate for each of {len(ads)} ads, got shape {given.shape}")
    wrong = ~((given >= 0) & (given <= 1))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise BadInput(f"node {node}, ad {ads[at]}: expected a rate in [0, 1], got {float(given[at])!r}")
    given.setflags(write=False)
    return given


def _setters(node: Node, ads: tuple[int, ...], setter: ArrayLike) -> Integers:
    given = np.asarray(setter)
    least = min(NO_BIDDER, RESERVE_PRICE, OWN_BID)
    if given.shape != (len(ads),) or given.dtype.kind not in "iu":
        raise BadInput(f"node {node}: expected who set each of {len(ads)} prices, an ad or a code, got others")
    wrong = (given < least) | (given > MOST_AD)  # before they become 64 bits with a sign, which would wrap
    if wrong.any():
        at = int(np.argmax(wrong))
        raise BadInput(
            f"node {node}, ad {ads[at]}: expected who set its price, an ad or a code, got {int(given[at])}"
        )
    whole = given.astype(np.int64)
    whole.setflags(write=False)
    return whole


def _doubles(name: str, values: ArrayLike) -> Floats:
    """All as doubles, or none: texts that could be read as numbers, and lists of them, are refused."""
    try:
        given = np.array(values)  # a copy
    except ValueError:
        raise BadInput(f"{name}: expected numbers, got lists") from None
    if given.size and given.dtype.kind not in "fiu":
        raise BadInput(f"{name}: expected numbers, got another kind")
    return given.astype(np.float64)


def _bytes_of(node: Node) -> int:
    """A byte for each level, and the values as text with one byte between them."""
    return sum(1 + 1 + len(value.encode()) for value in node.values)
