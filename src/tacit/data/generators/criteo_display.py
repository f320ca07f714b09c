"""Generates a Criteo Display log: ad clicks, 13 integers and 26 categories; and a small variant for studies.

The rows follow `fields.FieldModel`; the label is a click with the model's probability. Columns are those of
the published file (`label`, `I1`-`I13`, `C1`-`C26`, missing values empty); every value is generated, and a
category's name is a hash of its rank. Unlike the published rows, these have no time order and do not drift.

Published: the numbers of values of C1-C26, over all 45.8 million rows. All else was measured on a public
sample of 10,000 rows, the head of the file. A Zipf law's exponent and shift are solved so that this many rows
show the sample's number of distinct values in the mean, and so that the most frequent value has its share.
Fields of at most 27 values have the shares themselves, with RARE for each value that the sample does not
show. The integers' laws were fitted by likelihood and then adjusted by hand towards the sample's quantiles
where that fit was off. Groups (which fields load on which common factor) are our own choice: identifiers that
go missing together are together, and so are the counts of what a visitor did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count

import numpy as np
import pyarrow as pa

from tacit.data.generators.distributions import Histogram, LogNormalCounts, Zipf
from tacit.data.generators.fields import Absence, Field, FieldLaw, FieldModel, Ranks, Signal, lower_hex8
from tacit.data.generators.worlds import ROWS_PER_BATCH, GeneratedRows, first_rows, seeded_generator

RARE = 1e-5


def _shares(values: int, *seen: float) -> Histogram:
    return Histogram(seen + (RARE,) * (values - len(seen)))


# LogNormalCounts(location, spread below the median, spread above it), all on the logarithmic scale.
INTEGERS: dict[str, tuple[FieldLaw, int]] = {
    "I1": (LogNormalCounts(0.15, 2.31, 1.57), 1),
    "I2": (LogNormalCounts(1.60, 0.69, 2.75, lowest=-2), 0),
    "I3": (LogNormalCounts(1.95, 1.20, 1.60), 3),
    "I4": (LogNormalCounts(1.58, 1.10, 1.09), 3),
    "I5": (LogNormalCounts(7.82, 3.80, 2.06), 1),
    "I6": (LogNormalCounts(3.75, 2.30, 1.60), 1),
    "I7": (LogNormalCounts(1.18, 1.78, 1.76), 1),
    "I8": (LogNormalCounts(2.05, 1.73, 1.10), 3),
    "I9": (LogNormalCounts(3.75, 2.06, 1.49), 1),
    "I10": (LogNormalCounts(0.00, 1.44, 0.50), 1),
    "I11": (LogNormalCounts(0.31, 0.50, 1.18), 1),
    "I12": (LogNormalCounts(-0.96, 1.39, 1.53), 1),
    "I13": (LogNormalCounts(1.71, 1.16, 1.20), 3),
}

# Zipf(values, exponent, shift)
CATEGORIES: dict[str, tuple[FieldLaw, int]] = {
    "C1": (Zipf(1_460, 1.967, 1.341), 4),
    "C2": (Zipf(583, 1.860, 6.657), 1),
    "C3": (Zipf(10_131_227, 1.033, 1.631), 0),
    "C4": (Zipf(2_202_608, 1.103, 1.702), 0),
    "C5": (Zipf(305, 2.630, 1.406), 4),
    "C6": (_shares(24, 0.5299, 0.2238, 0.1418, 0.0478, 0.0396, 0.0168, 0.0003), 4),
    "C7": (Zipf(12_517, 1.171, 24.73), 2),
    "C8": (Zipf(633, 2.297, 1.392), 2),
    "C9": (_shares(3, 0.8871, 0.1125, 0.0004), 4),
    "C10": (Zipf(93_145, 1.044, 0.302), 0),
    "C11": (Zipf(5_683, 1.285, 17.19), 2),
    "C12": (Zipf(8_351_593, 1.047, 1.823), 0),
    "C13": (Zipf(3_194, 1.284, 16.35), 2),
    "C14": (
        _shares(
            27, 0.3629, 0.3456, 0.1604, 0.0362, 0.0245, 0.0226, 0.0140, 0.0108, 0.0070, 0.0045, 0.0026, 0.0025,
            0.0012, 0.0008, 0.0007, 0.0006, 0.0006, 0.0006, 0.0005, 0.0005, 0.0004, 0.0003, 0.0001, 0.0001,
        ),
        3,
    ),
    "C15": (Zipf(14_992, 1.455, 24.43), 2),
    "C16": (Zipf(5_461_306, 1.082, 2.345), 0),
    "C17": (_shares(10, 0.4304, 0.1333, 0.1269, 0.0769, 0.0602, 0.0494, 0.0442, 0.0420, 0.0367), 4),
    "C18": (Zipf(5_652, 1.577, 11.33), 2),
    "C19": (Zipf(2_173, 1.124, 0.157), 3),
    "C20": (_shares(4, 0.3616, 0.3219, 0.3165), 3),
    "C21": (Zipf(7_046_547, 1.062, 2.043), 0),
    "C22": (_shares(18, 0.5259, 0.3839, 0.0374, 0.0319, 0.0182, 0.0022, 0.0006), 4),
    "C23": (
        _shares(
            15, 0.4515, 0.2024, 0.1045, 0.0724, 0.0605, 0.0406, 0.0315, 0.0141, 0.0107, 0.0049, 0.0045, 0.0024
        ),
        4,
    ),
    "C24": (Zipf(286_181, 1.234, 3.077), 0),
    "C25": (Zipf(105, 5.610, 11.55), 3),
    "C26": (Zipf(142_572, 1.148, 2.121), 3),
}  # fmt: skip

FIELDS = tuple(Field(name, law, group) for name, (law, group) in {**INTEGERS, **CATEGORIES}.items())
POSITION = {field.name: index for index, field in enumerate(FIELDS)}


def _absence(lean: float, **rates: float) -> Absence:
    """An absence from rates by field names that are joined with an underscore."""
    return Absence(
        tuple((POSITION[name], rate) for key, rate in rates.items() for name in key.split("_")), lean
    )


# Names joined here are missing in exactly the same rows of the sample; I5 is missing only where I1 is, and I7
# only where I6 is. Leans are those of a one-factor model of the other ties, rounded.
ABSENCES = (
    _absence(0.85, I5=0.049, I1_I10=0.448),
    _absence(0.85, I7_I9_I11=0.049, I6=0.251),
    _absence(0.40, I3=0.204),
    _absence(0.50, I4_I13=0.198),
    _absence(0.90, I8=0.001),
    _absence(0.45, I12=0.774),
    _absence(0.10, C3_C4_C12_C16_C21_C24=0.036),
    _absence(-0.10, C6=0.133),
    _absence(0.30, C19_C20_C25_C26=0.450),
    _absence(0.00, C22=0.818),
)


ROWS = 1_101  # the place of the rows among a seed's streams


@dataclass(frozen=True)
class DisplayColumns:
    """Which columns the log has beside `label`, and where values are missing."""

    name: str
    fields: tuple[Field, ...]
    absences: tuple[Absence, ...] = ()


PUBLISHED = DisplayColumns("criteo-display", FIELDS, ABSENCES)

# Ten public and ten sensitive fields of 10 to 16,000 values in geometric steps; P1 and S1 are the smallest.
SMALL = DisplayColumns(
    "display-small",
    tuple(
        Field(f"{kind}{step + 1}", Zipf(round(10 * 1600 ** (step / 9))), group=step % 5)
        for kind in "PS"
        for step in range(10)
    ),
)


@dataclass(frozen=True)
class DisplayWorld:
    """A world of ads and visitors, clicked at 25.62%; parameters as in `fields.Signal`."""

    seed: int
    rare_signal: float = 0.25
    shared: float = 0.6
    linear: float = 1.6
    interaction: float = 0.5
    rate: float = 0.2562
    tie: float = 0.6
    layout: DisplayColumns = field(default=PUBLISHED, repr=False)

    @classmethod
    def small(cls, seed: int, rare_signal: float = 0.25) -> DisplayWorld:
        """For studies: so few values that 400,000 rows teach most of them. `P*` are public, `S*` sensitive."""
        return cls(seed, rare_signal, layout=SMALL)

    @property
    def name(self) -> str:
        return self.layout.name

    def batches(self, rows: int) -> Iterator[GeneratedRows]:
        return first_rows(rows, map(self._block, count()))

    def side_tables(self) -> Mapping[str, pa.Table]:
        return {}

    @cached_property
    def model(self) -> FieldModel:
        """The law behind the rows, for studies."""
        signal = Signal(self.rate, self.rare_signal, self.shared, self.linear, self.interaction)
        return FieldModel(self.seed, self.layout.fields, signal, tie=self.tie, absences=self.layout.absences)

    def _block(self, index: int) -> GeneratedRows:
        draw = seeded_generator(self.seed, ROWS, index)
        ranks = self.model.ranks(draw, ROWS_PER_BATCH)
        probability = self.model.probabilities(ranks)
        label = (draw.random(ROWS_PER_BATCH) < probability).astype(np.int8)
        columns = {"label": pa.array(label), **self._columns(ranks, draw)}
        truth = pa.RecordBatch.from_pydict({"probability": probability})
        return GeneratedRows(pa.RecordBatch.from_pydict(columns), truth)

    def _columns(self, ranks: Ranks, draw: np.random.Generator) -> dict[str, pa.Array]:
        columns = {}
        for salt, (field_, values) in enumerate(zip(self.layout.fields, ranks, strict=True)):
            missing = values == field_.missing_rank
            if isinstance(field_.law, LogNormalCounts):
                numbers = field_.law.numbers(values, draw.random(len(values)))
                columns[field_.name] = pa.array(numbers, mask=missing)
            else:
                columns[field_.name] = lower_hex8(values, salt, missing)
        return columns
