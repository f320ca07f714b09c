"""Charges of a simulated market, block by block into one file: every line public, in whole micros."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from tacit.bill.charges import charge
from tacit.deliver.auction.candidates import AuctionBlock
from tacit.deliver.auction.market import Arm, show_block
from tacit.deliver.auction.rules import Charged
from tacit.privacy.randomness import Words
from tacit.schema.impressions import Impressions

SCHEMA = pa.schema(
    [
        ("campaign", pa.int64()),
        ("price_micros", pa.int64()),
        ("due_on", pa.string()),
        ("public_rank", pa.int64()),
        ("price_set_by", pa.int64()),
        ("rule", pa.string()),
    ]
)


@dataclass(frozen=True)
class Written:
    file: Path
    lines: int
    campaigns: int
    total_micros: int


def write_charges(blocks: Iterable[AuctionBlock], arm: Arm, words: Words, file: Path) -> Written:
    """Draw every choice once and write what it is charged; the file appears whole or not at all."""
    building = file.with_name(f".{file.name}")
    due_on = "impression" if arm.rules.price.charged is Charged.IMPRESSION else "event"
    owed: dict[int, int] = {}
    lines = 0
    try:
        with _writer(building, file.suffix) as writer:
            for block in blocks:
                shown = show_block(block, arm, words)
                for campaign, amount in charge(shown).by_campaign.items():
                    owed[campaign] = owed.get(campaign, 0) + amount
                writer.write_table(_table(shown, due_on))
                lines += len(shown)
        building.replace(file)
    finally:
        building.unlink(missing_ok=True)
    return Written(file, lines, len(owed), sum(owed.values()))


def _table(shown: Impressions, due_on: str) -> pa.Table:
    texts = [np.full(len(shown), text) for text in (due_on, shown.rule)]
    columns = (shown.campaign, shown.price_micros, texts[0], shown.rank + 1, shown.setter, texts[1])
    return pa.table(
        [pa.array(column.tolist() if column.dtype.kind == "U" else column) for column in columns], schema=SCHEMA
    )


def _writer(place: Path, suffix: str) -> pq.ParquetWriter | pa_csv.CSVWriter:
    if suffix == ".csv":
        return pa_csv.CSVWriter(place, SCHEMA)
    return pq.ParquetWriter(place, SCHEMA)
