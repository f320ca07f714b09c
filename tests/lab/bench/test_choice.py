"""The choice suite at toy size: contestants do the same work, and the figures come out whole."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from importlib.util import find_spec

import numpy as np
import pytest

from tacit.entropy import Entropy
from tacit_lab.bench import choice, choice_market
from tacit_lab.bench.choice_market import CAMPAIGNS, AuctionWork, auctions_in_numpy, charge_auctions
from tacit_lab.bench.measurement import Item

OPENDP = find_spec("opendp") is not None  # of the bench extra: without it a peer's figure is not measured
TOY = choice.ChoiceScale(
    rows=2000,
    auction_rows=4000,
    block_auctions=300,
    peer_calls=3,
    growth_rows=(4000, 8000),
    rounds=2,
    plans=5,
    menus=5,
    reports=1000,
)


def plain(items: Sequence[Item], label: str) -> Iterable[Item]:  # noqa: ARG001
    return items


def test_the_suite_runs_and_names_every_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = {4000: {"nanoseconds": 10.0, "peak": 100.0}, 8000: {"nanoseconds": 11.0, "peak": 150.0}}
    monkeypatch.setattr(
        choice, "market_growth", lambda rows: choice_market.rises(rows, {r: [streams[r]] for r in rows})
    )
    measured = {m.name: m for m in choice.run(plain, TOY)}
    for size, bar in choice.CHOOSING_BARS.items():
        for name, asked in ((f"choose_ready_{size}", bar), (f"choose_cryptographic_{size}", 50)):
            beside = measured[f"{name}_vs_opendp"]
            assert beside.bar == asked or (not OPENDP and math.isnan(beside.value))
        assert measured[f"auctions_{size}_vs_numpy"].bar == 20
        assert measured[f"exact_{size}_vs_monte_carlo"].bar == 10_000
    assert all(m.value > 0 or math.isnan(m.value) for m in measured.values())
    assert measured["market_time_a_row_rise"].holds
    assert not measured["market_memory_rise"].holds


def test_a_stream_reports_time_and_memory() -> None:
    found = choice_market.stream(5000)
    assert found["nanoseconds"] > 0
    assert found["peak"] > 10


def test_contestants_bill_the_same_in_expectation() -> None:
    """Revenue of 20 runs each, an auction's price being at most a few currency units; 6.5 standard errors."""
    work, entropy, draws = AuctionWork.draw(6, 500), Entropy(), np.random.default_rng(1)
    mine = np.array([charge_auctions(work, entropy).total_micros for _ in range(20)], np.float64)
    theirs = np.array([auctions_in_numpy(work, draws).sum() for _ in range(20)], np.float64)
    error = math.hypot(mine.std(ddof=1), theirs.std(ddof=1)) / math.sqrt(20)
    assert abs(mine.mean() - theirs.mean()) < 6.5 * error
    assert error < 0.01 * mine.mean()
    parts = work.parts(120)
    assert sum(len(part.bid) for part in parts) == len(work.bid)
    assert max(int(part.campaign.max()) for part in parts) < CAMPAIGNS
