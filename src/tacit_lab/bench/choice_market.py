"""Auctions end to end, ours and in NumPy, and a market that streams: time per row and memory as logs grow.

Auctions are ranked, priced, cut, chosen by randomized response, and billed. `python -m
tacit_lab.bench.choice_market ROWS` measures one size of the market.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.arrays import Floats, Integers
from tacit.bill.charges import Charges, charge
from tacit.data.generators.markets import Market
from tacit.deliver.auction.blocks import AuctionBlock, PublicCandidates, Rates
from tacit.deliver.auction.choices import NonPersonalised, TopChoiceRule
from tacit.deliver.auction.logs import generated_blocks
from tacit.deliver.auction.market import Arm, measure, show_block
from tacit.deliver.protocol.prices import Rules
from tacit.entropy import Entropy
from tacit_lab.bench.measurement import Measurement

EPSILON, CUTOFF, RESERVE = 5.0, 0.8, 100
CAMPAIGNS = 1000


@dataclass(frozen=True)
class AuctionWork:
    """Auctions of `size` candidates each; public and private columns as flat arrays."""

    offsets: Integers
    bid: Integers
    server: Floats
    device: Floats
    campaign: Integers

    @classmethod
    def draw(cls, size: int, auctions: int) -> AuctionWork:
        """Lognormal bids around one currency unit, click rates around 5%, which devices know better."""
        draws = np.random.default_rng(size)
        total = size * auctions
        server = np.clip(0.05 * np.exp(0.5 * draws.standard_normal(total)), 0.0, 1.0)
        return cls(
            np.arange(auctions + 1, dtype=np.int64) * size,
            np.floor(1e6 * np.exp(0.8 * draws.standard_normal(total))).astype(np.int64),
            server,
            np.clip(server * np.exp(0.5 * draws.standard_normal(total)), 0.0, 1.0),
            draws.integers(CAMPAIGNS, size=total),
        )

    def parts(self, auctions: int) -> list[AuctionWork]:
        """The same in blocks of `auctions` auctions."""
        cuts = range(0, len(self.offsets) - 1, auctions)
        return [self._part(first, min(first + auctions, len(self.offsets) - 1)) for first in cuts]

    def _part(self, first: int, end: int) -> AuctionWork:
        rows = slice(self.offsets[first], self.offsets[end])
        offsets = self.offsets[first : end + 1] - self.offsets[first]
        return AuctionWork(offsets, self.bid[rows], self.server[rows], self.device[rows], self.campaign[rows])


def charge_auctions(work: AuctionWork, entropy: Entropy) -> Charges:
    """Through the library, its checks and the cryptographic words included."""
    public = PublicCandidates(work.offsets, work.bid, Rates(work.server), campaign=work.campaign)
    block = AuctionBlock(public, Rates(work.device))
    arm = Arm(TopChoiceRule(EPSILON), Rules(reserve_micros=RESERVE, cutoff=CUTOFF))
    return charge(show_block(block, arm, entropy.words))


def auctions_in_numpy(work: AuctionWork, draws: np.random.Generator) -> Integers:
    """The same rules over whole arrays, without checks, reasons or exact odds; what each campaign owes."""
    sizes = np.diff(work.offsets)
    score = work.bid * work.server
    auction = np.repeat(np.arange(len(sizes)), sizes)
    eligible = np.flatnonzero(score >= RESERVE)
    order = eligible[np.lexsort((-score[eligible], auction[eligible]))]
    ranked, owner = score[order], auction[order]
    first = np.r_[True, owner[1:] != owner[:-1]]
    last = np.r_[first[1:], True]
    due = np.where(last, RESERVE, np.r_[ranked[1:], 0.0])
    price = np.minimum(np.floor(due / work.server[order]), work.bid[order]).astype(np.int64)
    best = ranked[np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))]
    stays = ranked >= best * (1 - CUTOFF)
    order, owner, price = order[stays], owner[stays], price[stays]
    first = np.r_[True, owner[1:] != owner[:-1]]
    starts = np.flatnonzero(first)
    count = np.diff(np.r_[starts, len(order)])
    private = work.bid[order] * work.device[order]
    top = np.repeat(np.maximum.reduceat(private, starts), count)
    winners = np.flatnonzero(private == top)
    winner = winners[np.searchsorted(winners, starts)]  # the first of equals
    lies = draws.random(len(starts)) * (count - 1 + np.exp(EPSILON)) < count - 1
    other = starts + (draws.random(len(starts)) * np.maximum(count - 1, 1)).astype(np.int64)
    other += other >= winner
    chosen = np.where(lies, other, winner)
    owed = np.zeros(CAMPAIGNS, np.int64)
    np.add.at(owed, work.campaign[order[chosen]], price[chosen])
    return owed


MOST_RISE = 1.1
"""Of time a row and of memory, from the shortest log to any longer one."""

CANDIDATES = 4.2
"""What an auction of the Taobao-like market has on average."""

TURNS = 3


def market_growth(rows: Sequence[int]) -> list[Measurement]:
    """Each in processes of its own, in turns; the least time of each, the most memory."""
    found: dict[int, list[dict[str, float]]] = {size: [] for size in rows}
    for _ in range(TURNS):
        for size in rows:
            command = [sys.executable, "-m", "tacit_lab.bench.choice_market", str(size)]
            child = subprocess.run(command, capture_output=True, text=True, check=True)
            found[size].append(json.loads(child.stdout))
    return rises(rows, found)


def rises(rows: Sequence[int], found: Mapping[int, Sequence[Mapping[str, float]]]) -> list[Measurement]:
    """How much more a row of a longer log takes, and the whole of it holds."""
    nanoseconds = {size: min(one["nanoseconds"] for one in turns) for size, turns in found.items()}
    peaks = {size: max(one["peak"] for one in turns) for size, turns in found.items()}
    first = min(rows)
    settings = (
        "Taobao-like market, generated and measured block by block: non-personalised, and randomized response "
        f"at epsilon 5; processor nanoseconds a row: {_list_sizes(nanoseconds)}; peak megabytes of the process"
        f": {_list_sizes(peaks)}; least times and largest peaks of {TURNS} processes each, in turns"
    )
    return [
        Measurement(name, max(values.values()) / values[first], "x", MOST_RISE, False, settings)
        for name, values in (("market_time_a_row_rise", nanoseconds), ("market_memory_rise", peaks))
    ]


def stream(rows: int) -> dict[str, float]:
    """Measure about this number of rows, by this process itself."""
    arms = {"public": Arm(NonPersonalised()), "private": Arm(TopChoiceRule(5.0))}
    measure(generated_blocks(Market.taobao_like().auctions(1000, seed=1)), arms)  # imports and tables
    count = int(rows / CANDIDATES)
    start = time.process_time()
    measure(generated_blocks(Market.taobao_like().auctions(count, seed=1)), arms)
    taken = time.process_time() - start
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return {"nanoseconds": 1e9 * taken / rows, "peak": peak / 1024}


def _list_sizes(values: dict[int, float]) -> str:
    return ", ".join(f"{size:,} rows: {value:.0f}" for size, value in values.items())


if __name__ == "__main__":
    print(json.dumps(stream(int(sys.argv[1]))))
