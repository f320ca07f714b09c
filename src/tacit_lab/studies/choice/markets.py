"""The auctions of the choice studies: two made-up markets, or a logged one, and parts and variants of them.

A prepared Taobao log is a market as in Appendix E.1 of Laro et al. 2023: the rows of one user at one
time_stamp are the candidates of one auction; a bid is in proportion to the item's price; the reserve is the
lowest bid; the server predicts without the person's features and the device with them; a click is the
logged one.

    market = LoggedMarket.of(Columns.open("taobao"), server=load("fnn"), device=load("din"))
    for auctions in market.blocks(): ...

Only the bids and the order of the part's rows are held; features are read block by block. A part that is
cut by time may cut the auctions of its first and last second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import tee
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.data.columns import Columns
from tacit.data.generators.markets import AUCTIONS_PER_BLOCK, Market, offsets_of
from tacit.deliver.auction.blocks import (
    AuctionBlock,
    AuctionNames,
    BidEvent,
    PublicCandidates,
    Rates,
    make_offers,
)
from tacit.deliver.auction.logs import generated_blocks
from tacit.deliver.protocol.prices import Rules
from tacit.errors import BadInput
from tacit.schema.columns import Role
from tacit.train.examples import Examples
from tacit.train.models.model import Part
from tacit.train.models.saving import SavedModel, load
from tacit.train.targets import Head
from tacit_lab.studies.study import StudyInputs, StudyRequest, StudyScale

PAPER = "Laro et al. 2023: differentially private, personalized recommendations (arXiv 2308.03735)"
OURS = "ours, beside Laro et al. 2023 (arXiv 2308.03735)"
UNIT, RELATION = "impression", "any private scores replaced"
SEEDS = {StudyScale.TOY: 1, StudyScale.SMALL: 1, StudyScale.FULL: 5}
AUCTIONS = {
    StudyScale.TOY: {"display-like": 400, "search-like": 150},
    StudyScale.SMALL: {"display-like": 20_000, "search-like": 4_000},
    StudyScale.FULL: {"display-like": 200_000, "search-like": 40_000},
}
LOG, SERVER, DEVICE = "taobao", "fnn", "din"
"""What `--data` must hold for the logged market: a prepared log, and two models that tacit train made of it."""


@dataclass(frozen=True, eq=False)
class StudyMarket:
    """Auctions that every arm of a study meets.

    spread  a public guess, on the low side, of how much private scores scatter around public ones (of logs)
    whole   the market that this is a part of: clipping bounds are the same in all parts
    """

    name: str
    spread: float
    blocks: tuple[AuctionBlock, ...]
    whole: StudyMarket | None = None

    @property
    def count(self) -> int:
        return sum(block.public.count for block in self.blocks)

    @cached_property
    def unit_micros(self) -> float:
        """The median of the auctions' best public scores: clipping bounds are multiples of it."""
        if self.whole is not None:
            return self.whole.unit_micros
        best = [
            offers.score[offers.offsets[:-1]]
            for offers in (make_offers(b.public, Rules()) for b in self.blocks)
        ]
        return float(np.median(np.concatenate(best)))


OF_REQUESTS = StudyInputs(
    ("taobao",), minutes={StudyScale.TOY: 0.5, StudyScale.SMALL: 5.0, StudyScale.FULL: 60.0}
)


def study_markets(asked: StudyRequest) -> list[StudyMarket]:
    """Both made-up markets, or the logged one; seeds are further samples of auctions, counted together."""
    if asked.data is not None:
        return [_logged_market(asked.data)]
    return list(_made_up_markets(asked.scale, asked.seeds))


@lru_cache(maxsize=1)  # studies that are run one after the other meet the same auctions
def _made_up_markets(scale: StudyScale, seeds: int) -> tuple[StudyMarket, ...]:
    makers = {"display-like": (Market.taobao_like(), 0.9), "search-like": (Market.search_like(), 0.33)}
    return tuple(
        StudyMarket(
            name,
            spread,
            tuple(
                block
                for seed in range(1, seeds + 1)
                for block in generated_blocks(market.auctions(AUCTIONS[scale][name], seed))
            ),
        )
        for name, (market, spread) in makers.items()
    )


def data_words(found: list[StudyMarket]) -> str:
    """What the auctions are, for a subtitle."""
    return " and ".join(f"{market.name} ({market.count:,} auctions)" for market in found)


def _logged_market(folder: Path) -> StudyMarket:
    lacking = [name for name in (LOG, SERVER, DEVICE) if not (folder / name).is_dir()]
    if lacking:
        raise BadInput(
            f"{folder}: expected folders {LOG} (tacit data prepare), {SERVER} and {DEVICE} (tacit train), "
            f"got no {', '.join(lacking)}"
        )
    columns = Columns.open(folder / LOG)
    name = "Taobao-like" if columns.synthetic else "Taobao"
    return StudyMarket(name, 0.3, tuple(_logged_blocks(folder, columns)))


def _logged_blocks(folder: Path, columns: Columns) -> Iterator[AuctionBlock]:
    log = LoggedMarket.of(columns, server=load(folder / SERVER), device=load(folder / DEVICE))
    logged, again = tee(log.blocks())
    for some, block in zip(logged, generated_blocks(again), strict=True):
        yield replace(block, truth=Rates(some.click.astype(np.float64)))


Which = NDArray[np.bool_]  # one per auction


def auctions_of_size(market: StudyMarket, least: int, most: int) -> StudyMarket:
    """The auctions with least to most candidates."""

    def is_kept(block: AuctionBlock) -> Which:
        sizes = np.diff(block.public.offsets)
        return (sizes >= least) & (sizes <= most)

    return _part(market, is_kept)


def half_of_auctions(market: StudyMarket, first: int) -> StudyMarket:
    """Half of the auctions: those at even places of their block (first = 0), or those at odd ones (1)."""
    return _part(market, lambda block: np.arange(block.public.count) % 2 == first)


def mix_rates(market: StudyMarket, alpha: float) -> StudyMarket:
    """Devices whose rates are alpha of their own and 1 - alpha of the server's: eq. 6 of the paper."""
    blocks = []
    for block in market.blocks:
        own, server = block.private, block.public.rates
        conversion = own.conversion
        if conversion is not None and server.conversion is not None:
            conversion = _between(conversion, server.conversion, alpha)
        blocks.append(replace(block, private=Rates(_between(own.click, server.click, alpha), conversion)))
    return replace(market, blocks=tuple(blocks), spread=alpha * market.spread, whole=market.whole or market)


def _between(own: Floats, server: Floats, alpha: float) -> Floats:
    return alpha * own + (1 - alpha) * server


def _part(market: StudyMarket, kept: Callable[[AuctionBlock], Which]) -> StudyMarket:
    blocks = tuple(_only(block, kept(block)) for block in market.blocks)
    return replace(market, blocks=blocks, whole=market.whole or market)


def _only(block: AuctionBlock, kept: Which) -> AuctionBlock:
    """Some auctions of a block, with all that is known of them."""
    public, sizes = block.public, np.diff(block.public.offsets)
    rows = np.repeat(kept, sizes)

    def of(rates: Rates) -> Rates:
        return Rates(rates.click[rows], None if rates.conversion is None else rates.conversion[rows])

    half = PublicCandidates(
        offsets_of(sizes[kept]),
        public.bid_micros[rows],
        of(public.rates),
        public.bids_for if isinstance(public.bids_for, BidEvent) else public.bids_for[rows],
        None if public.campaign is None else public.campaign[rows],
        AuctionNames(public.names.some(np.flatnonzero(kept))),
    )
    return AuctionBlock(
        half,
        of(block.private),
        None if block.truth is None else of(block.truth),
        None if block.user is None else block.user[kept],
    )


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
    server: SavedModel
    device: SavedModel
    reserve: float  # currency units a click
    without_bid: int
    _bid: NDArray[np.float64] = field(repr=False)  # of the examples
    _order: Integers = field(repr=False)  # places in the examples, auction by auction
    _offsets: Integers = field(repr=False)

    @classmethod
    def of(
        cls, columns: Columns, *, server: SavedModel, device: SavedModel, part: str = "test"
    ) -> LoggedMarket:
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
        """All auctions once, by their first row in the log, a block at a time."""
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


def _expect_models(columns: Columns, server: SavedModel, device: SavedModel) -> None:
    for name, model in (("server", server), ("device", device)):
        if model.encoder.digest != columns.encoder.digest:
            raise BadInput(f"{name}: expected a model of the encoder of {columns.folder}, got another")
        if model.head is not Head.LOGISTIC:
            raise BadInput(f"{name}: expected a model of probabilities, got a {model.head} head")
    if server.part is not Part.TRUNCATED:
        raise BadInput(f"server: expected a model without sensitive features, such as fnn, got {server.part}")
