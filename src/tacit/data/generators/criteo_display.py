"""A made-up Criteo Display log: clicks on ads, 13 integers and 26 categories.

The rows follow `fields.FieldModel` over the fields of `criteo_display_fields`; the label is a click with the
model's probability. Columns are those of the published file (`label`, `I1`-`I13`, `C1`-`C26`, missing values
empty), made up value for value: a category's name is a mix of its rank. Unlike the published rows, these come
in no order of time and do not drift.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count

import numpy as np
import pyarrow as pa

from tacit.data.generators import criteo_display_fields as published
from tacit.data.generators.counts import Counts
from tacit.data.generators.fields import Absence, Field, FieldModel, Ranks, Signal
from tacit.data.generators.generated import ROWS_PER_BATCH, Generated, first_rows, generator
from tacit.data.generators.tokens import lower_hex8
from tacit.data.generators.zipf import Zipf

ROWS = 1_101  # the place of the rows among a seed's streams


@dataclass(frozen=True)
class Layout:
    """Which columns the log has beside `label`, and where values are missing."""

    name: str
    fields: tuple[Field, ...]
    absences: tuple[Absence, ...] = ()


PUBLISHED = Layout("criteo-display", published.FIELDS, published.ABSENCES)

# Ten public and ten sensitive fields of 10 to 16,000 values in geometric steps; P1 and S1 are the smallest.
SMALL = Layout(
    "display-small",
    tuple(
        Field(f"{kind}{step + 1}", Zipf(round(10 * 1600 ** (step / 9))), group=step % 5)
        for kind in "PS"
        for step in range(10)
    ),
)


@dataclass(frozen=True)
class DisplayWorld:
    """A world of ads and visitors, clicked at 25.62%; the dials are those of `fields.Signal`."""

    seed: int
    rare_signal: float = 0.25
    shared: float = 0.6
    linear: float = 1.6
    interaction: float = 0.5
    rate: float = 0.2562
    tie: float = 0.6
    layout: Layout = field(default=PUBLISHED, repr=False)

    @classmethod
    def small(cls, seed: int, rare_signal: float = 0.25) -> DisplayWorld:
        """For studies: so few values that 400,000 rows teach most of them. `P*` are public, `S*` sensitive."""
        return cls(seed, rare_signal, layout=SMALL)

    @property
    def name(self) -> str:
        return self.layout.name

    def batches(self, rows: int) -> Iterator[Generated]:
        return first_rows(rows, map(self._block, count()))

    def side_tables(self) -> Mapping[str, pa.Table]:
        return {}

    @cached_property
    def model(self) -> FieldModel:
        """The law behind the rows, for studies."""
        signal = Signal(self.rate, self.rare_signal, self.shared, self.linear, self.interaction)
        return FieldModel(self.seed, self.layout.fields, signal, tie=self.tie, absences=self.layout.absences)

    def _block(self, index: int) -> Generated:
        draw = generator(self.seed, ROWS, index)
        ranks = self.model.ranks(draw, ROWS_PER_BATCH)
        probability = self.model.probabilities(ranks)
        label = (draw.random(ROWS_PER_BATCH) < probability).astype(np.int8)
        columns = {"label": pa.array(label), **self._columns(ranks, draw)}
        truth = pa.RecordBatch.from_pydict({"probability": probability})
        return Generated(pa.RecordBatch.from_pydict(columns), truth)

    def _columns(self, ranks: Ranks, draw: np.random.Generator) -> dict[str, pa.Array]:
        columns = {}
        for salt, (field_, values) in enumerate(zip(self.layout.fields, ranks, strict=True)):
            missing = values == field_.missing
            if isinstance(field_.law, Counts):
                numbers = field_.law.numbers(values, draw.random(len(values)))
                columns[field_.name] = pa.array(numbers, mask=missing)
            else:
                columns[field_.name] = lower_hex8(values, salt, missing)
        return columns
