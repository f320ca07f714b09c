"""Charges as one file, Parquet or CSV: a line per impression, written block by block, in whole micros.

Every line is public: auction, campaign, price and what it is due on, public rank, who set the price, the rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from tacit import expect, files
from tacit.bill.charges import charge
from tacit.errors import BadInput
from tacit.schema.impressions import DUE_ON, Impressions, price_rule_words, price_setter_words


@dataclass(frozen=True)
class CampaignBill:
    """What one campaign was shown, and what its lines come to if all fall due."""

    campaign: int
    impressions: int
    total_micros: int

    @property
    def mean_price_micros(self) -> float:
        return self.total_micros / self.impressions


@dataclass(frozen=True)
class ChargesFile:
    """A file of charges and what it adds up to, by campaign, the one that owes most first."""

    file: Path
    owed: tuple[CampaignBill, ...]

    @property
    def lines(self) -> int:
        return sum(each.impressions for each in self.owed)

    @property
    def campaigns(self) -> int:
        return len(self.owed)

    @property
    def total_micros(self) -> int:
        return sum(each.total_micros for each in self.owed)


def write_charges(impressions: Iterable[Impressions], file: Path, auction_type: pa.DataType) -> ChargesFile:
    """Write what impressions are charged as they come, one line each; the file appears whole or not at all.

    `file` ends in .parquet or .csv, and is for its owner alone. Impressions name their auctions, by ids of
    `auction_type`.
    """
    expect.kind("auction_type", auction_type, pa.DataType)
    building, schema = draft_of(file), _schema(auction_type)
    owed: dict[int, int] = {}
    times: Counter[int] = Counter()
    try:
        # Who is shown what is for the file's owner alone: made so, and then written to.
        files.open_private(building, "wb").close()
        with _writer(building, file.suffix, schema) as writer:
            for shown in impressions:
                for campaign, amount in charge(shown).by_campaign.items():
                    owed[campaign] = owed.get(campaign, 0) + amount
                writer.write_table(_table(shown, schema))
                numbers, counts = np.unique(shown.campaign, return_counts=True)
                times.update(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))
        building.replace(file)
    finally:
        building.unlink(missing_ok=True)
    each = (CampaignBill(campaign, times[campaign], amount) for campaign, amount in owed.items())
    return ChargesFile(file, tuple(sorted(each, key=lambda line: (-line.total_micros, line.campaign))))


def expect_place(name: str, file: Path, inputs: Mapping[str, Path | None], *, overwrite: bool) -> None:
    """Refuse, before any work, a file that is not ours to write: an input, one that is there, or no place.

    `name` is what messages call it, and `inputs` are files that it may never replace, by what they are.
    """
    for what, other in inputs.items():
        if other is not None and file.exists() and other.exists() and file.samefile(other):
            raise BadInput(f"{name}: expected a new file, got {file}, which is {what}")
    if file.exists() and not (overwrite and file.is_file()):
        raise BadInput(f"{name}: expected a new file, got {file}, which exists; say --overwrite")
    files.check_writable(name, file)
    if not file.parent.is_dir():
        raise BadInput(
            f"{name}: expected a place in a folder that exists, got {file}: make {file.parent} first"
        )
    try:  # some folders that say yes take no files
        with draft_of(file).open("xb"):
            pass
        draft_of(file).unlink()
    except FileExistsError:
        pass  # left by a run that was killed; it will be replaced
    except OSError as problem:
        said = files.explain_os_error(problem)
        raise BadInput(f"{name}: expected a place that can be written, got {said}") from None


def _schema(auction: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            ("auction", auction),
            ("campaign", pa.int64()),
            ("price_micros", pa.int64()),
            ("due_on", pa.string()),
            ("public_rank", pa.int64()),
            ("price_set_by", pa.string()),
            ("rule", pa.string()),
        ]
    )


def _table(shown: Impressions, schema: pa.Schema) -> pa.Table:
    assert shown.auction is not None
    setters, which = np.unique(shown.setter, return_inverse=True)
    named = pa.array([price_setter_words(setter) for setter in setters.tolist()], pa.string())
    codes = pa.array(shown.due_on)
    columns = (
        pa.array(shown.auction, schema.field("auction").type),
        shown.campaign,
        shown.price_micros,
        pa.array(DUE_ON).take(codes),
        shown.rank + 1,
        named.take(pa.array(which)),
        pa.array([price_rule_words(shown.rule, due) for due in DUE_ON]).take(codes),
    )
    return pa.table([pa.array(column) for column in columns], schema=schema)


def draft_of(file: Path) -> Path:
    """Where a file is written before it takes its place."""
    file = expect.path("file", file)
    return file.with_name(f".{file.name}")


def _writer(place: Path, suffix: str, schema: pa.Schema) -> pq.ParquetWriter | pa_csv.CSVWriter:
    if suffix == ".csv":
        return pa_csv.CSVWriter(place, schema)
    return pq.ParquetWriter(place, schema)
