"""Charges of a simulated market, block by block into one file: every line public, in whole micros."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from tacit import private
from tacit.bill.charges import charge
from tacit.commands.places import check_writable, in_words
from tacit.commands.simulate_config import ChargesAsked, Logged, SimulationConfig
from tacit.deliver.auction.candidates import AuctionBlock
from tacit.deliver.auction.logs import opened
from tacit.deliver.auction.market import Arm, show_block
from tacit.errors import BadInput
from tacit.privacy.randomness import Words
from tacit.schema.impressions import DUE_ON, Impressions, rule_for, set_by

NAME = "charges.file"


@dataclass(frozen=True)
class Owed:
    """What one campaign was shown, and what its lines come to if all fall due."""

    campaign: int
    impressions: int
    total_micros: int

    @property
    def mean_price_micros(self) -> float:
        return self.total_micros / self.impressions


@dataclass(frozen=True)
class Written:
    """A file of charges and what it adds up to, by campaign, who owes most first."""

    file: Path
    owed: tuple[Owed, ...]

    @property
    def lines(self) -> int:
        return sum(each.impressions for each in self.owed)

    @property
    def campaigns(self) -> int:
        return len(self.owed)

    @property
    def total_micros(self) -> int:
        return sum(each.total_micros for each in self.owed)


def check_place(asked: ChargesAsked, config: Path, log: Path | None, *, overwrite: bool) -> None:
    """Refuse, before any work, a file that is not ours to write: an input, one that is there, or no place."""
    file = asked.file
    for what, other in (("the configuration", config), ("the market's own log", log)):
        if other is not None and file.exists() and other.exists() and file.samefile(other):
            raise BadInput(f"{NAME}: expected a new file, got {file}, which is {what}")
    if file.exists() and not (overwrite and file.is_file()):
        raise BadInput(f"{NAME}: expected a new file, got {file}, which exists; say --overwrite")
    check_writable(NAME, file)
    if not file.parent.is_dir():
        raise BadInput(
            f"{NAME}: expected a place in a folder that exists, got {file}: make {file.parent} first"
        )
    try:  # some folders that say yes take no files
        with _building(file).open("xb"):
            pass
        _building(file).unlink()
    except FileExistsError:
        pass  # left by a run that was killed; it will be replaced
    except OSError as problem:
        raise BadInput(f"{NAME}: expected a place that can be written, got {in_words(problem)}") from None


def write_charges(
    blocks: Iterable[AuctionBlock], arm: Arm, words: Words, file: Path, auction_type: pa.DataType
) -> Written:
    """Draw every choice once and write what it is charged; the file appears whole or not at all."""
    building, schema = _building(file), _schema(auction_type)
    owed: dict[int, int] = {}
    times: Counter[int] = Counter()
    try:
        private.opened(building, "wb").close()  # who is shown what is its owner's: made so, and then written to
        with _writer(building, file.suffix, schema) as writer:
            for block in blocks:
                shown = show_block(block, arm, words)
                for campaign, amount in charge(shown).by_campaign.items():
                    owed[campaign] = owed.get(campaign, 0) + amount
                writer.write_table(_table(shown, schema))
                numbers, counts = np.unique(shown.campaign, return_counts=True)
                times.update(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))
        building.replace(file)
    finally:
        building.unlink(missing_ok=True)
    each = (Owed(campaign, times[campaign], amount) for campaign, amount in owed.items())
    return Written(file, tuple(sorted(each, key=lambda line: (-line.total_micros, line.campaign))))


def auction_type(config: SimulationConfig) -> pa.DataType:
    """Of auction ids: as the log has them, or numbers."""
    if not isinstance(config.market, Logged):
        return pa.int64()
    with opened(config.market.path) as file:
        kind = file.schema_arrow.field(config.market.names.auction).type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


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
    named = pa.array([set_by(setter) for setter in setters.tolist()], pa.string())
    codes = pa.array(shown.due_on)
    columns = (
        pa.array(shown.auction, schema.field("auction").type),
        shown.campaign,
        shown.price_micros,
        pa.array(DUE_ON).take(codes),
        shown.rank + 1,
        named.take(pa.array(which)),
        pa.array([rule_for(shown.rule, due) for due in DUE_ON]).take(codes),
    )
    return pa.table([pa.array(column) for column in columns], schema=schema)


def _building(file: Path) -> Path:
    return file.with_name(f".{file.name}")


def _writer(place: Path, suffix: str, schema: pa.Schema) -> pq.ParquetWriter | pa_csv.CSVWriter:
    if suffix == ".csv":
        return pa_csv.CSVWriter(place, schema)
    return pq.ParquetWriter(place, schema)
