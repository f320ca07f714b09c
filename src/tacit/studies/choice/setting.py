"""The markets of these studies: two made-up ones, or a logged one where files are given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tacit.data.generators.markets import Market
from tacit.deliver.auction.candidates import AuctionBlock, Rates
from tacit.deliver.auction.logs import generated_blocks
from tacit.deliver.auction.offers import offer
from tacit.deliver.auction.rules import Rules
from tacit.errors import BadInput
from tacit.studies.study import Asked, Scale

if TYPE_CHECKING:
    from tacit.data.columns import Columns

PAPER = "Laro et al. 2023: differentially private, personalized recommendations (arXiv 2308.03735)"
OURS = "ours, beside Laro et al. 2023 (arXiv 2308.03735)"
UNIT, RELATION = "impression", "any private scores replaced"
SEEDS = {Scale.TOY: 1, Scale.SMALL: 1, Scale.FULL: 5}
AUCTIONS = {
    Scale.TOY: {"display-like": 400, "search-like": 150},
    Scale.SMALL: {"display-like": 20_000, "search-like": 4_000},
    Scale.FULL: {"display-like": 200_000, "search-like": 40_000},
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
        best = [offers.score[offers.offsets[:-1]] for offers in (offer(b.public, Rules()) for b in self.blocks)]
        return float(np.median(np.concatenate(best)))


def markets(asked: Asked) -> list[StudyMarket]:
    """Both made-up markets, or the logged one; seeds are further samples of auctions, counted together."""
    if asked.data is not None:
        return [_logged(asked.data)]
    return list(_made_up(asked.scale, asked.seeds))


@lru_cache(maxsize=1)  # studies that are run one after the other meet the same auctions
def _made_up(scale: Scale, seeds: int) -> tuple[StudyMarket, ...]:
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


def _logged(folder: Path) -> StudyMarket:
    lacking = [name for name in (LOG, SERVER, DEVICE) if not (folder / name).is_dir()]
    if lacking:
        raise BadInput(
            f"{folder}: expected folders {LOG} (tacit data prepare), {SERVER} and {DEVICE} (tacit train), "
            f"got no {', '.join(lacking)}"
        )
    from tacit.data.columns import Columns

    columns = Columns.open(folder / LOG)
    name = "Taobao-like" if columns.synthetic else "Taobao"
    return StudyMarket(name, 0.3, tuple(_logged_blocks(folder, columns)))


def _logged_blocks(folder: Path, columns: Columns) -> Iterator[AuctionBlock]:
    from tacit.studies.choice.taobao import LoggedMarket
    from tacit.train.models.saving import load

    log = LoggedMarket.of(columns, server=load(folder / SERVER), device=load(folder / DEVICE))
    logged, again = tee(log.blocks())
    for some, block in zip(logged, generated_blocks(again), strict=True):
        yield replace(block, truth=Rates(some.click.astype(np.float64)))
