"""Charges of several blocks as one file: every line says its price and why, and the lines add up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tacit.bill.charges_file import write_charges
from tacit.deliver.auction.blocks import EVENT_CODES, AuctionBlock, PublicCandidates, Rates
from tacit.deliver.auction.choices import Greedy, NonPersonalised, TopChoiceRule
from tacit.deliver.auction.market import Arm, show_block
from tacit.deliver.protocol.prices import FirstPrice, Rules
from tacit.entropy import Simulation
from tacit.schema.impressions import DUE_ON
from tests.support.auction_blocks import smooth_block


def _two_kinds() -> AuctionBlock:
    """Two candidates, the privately best of public rank 2; bids for a click and for an impression."""
    kinds = np.array([EVENT_CODES[kind] for kind in EVENT_CODES][:2][::-1], np.uint8)
    public = PublicCandidates(
        np.array([0, 2]), np.array([1000, 200]), Rates(np.array([0.5, 0.5])), kinds, np.array([4, 5])
    )
    return AuctionBlock(public, Rates(np.array([0.1, 0.5])))


def test_charges_of_several_blocks_are_one_bill(tmp_path: Path) -> None:
    blocks, arm = [smooth_block(seed, 60) for seed in (1, 2, 3)], Arm(TopChoiceRule(2.0))
    place = tmp_path / "charges.parquet"
    words = Simulation("bill").words
    shown = [show_block(block, arm, words) for block in blocks]
    written = write_charges(iter(shown), place, pa.int64())
    table = pq.read_table(place)
    for column, name in (("price_micros", "price_micros"), ("campaign", "campaign")):
        expected = np.concatenate([getattr(each, name) for each in shown])
        np.testing.assert_array_equal(table[column].to_numpy(), expected)
    ranks = np.concatenate([each.rank for each in shown])
    np.testing.assert_array_equal(table["public_rank"].to_numpy(), ranks + 1)
    assert ranks.min() == 0 < ranks.max()
    campaigns = table["campaign"].to_numpy()
    assert len(np.unique(campaigns)) < sum(len(np.unique(each.campaign)) for each in shown), "some come again"
    assert written.lines == table.num_rows == 180
    assert written.campaigns == len(np.unique(campaigns))
    assert written.total_micros == int(table["price_micros"].to_numpy().sum())


def test_a_line_says_its_rank_from_1_and_what_it_is_due_on(tmp_path: Path) -> None:
    lines = []
    for rule in (NonPersonalised(), Greedy()):
        place = tmp_path / f"{type(rule).__name__}.parquet"
        arm = Arm(rule, Rules(FirstPrice()))
        write_charges([show_block(_two_kinds(), arm, Simulation(1).words)], place, pa.int64())
        lines += pq.read_table(place).to_pylist()
    public, private = lines
    assert (public["public_rank"], public["campaign"], public["due_on"]) == (1, 4, "click")
    assert (private["public_rank"], private["campaign"], private["due_on"]) == (2, 5, "impression")
    assert tuple(DUE_ON[code] for code in EVENT_CODES.values()) == tuple(EVENT_CODES)
