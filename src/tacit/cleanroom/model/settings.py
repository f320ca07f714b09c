"""Settings of the conversion model: its sizes, and which layers it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tacit import expect
from tacit.errors import BadInput
from tacit.expect import Choice

MOST_WEIGHTS = 2**28  # settings may come from a file: a gigabyte at most


class Bitwise(Choice):
    """How an interaction layer mixes single numbers of all vectors."""

    CROSS = "cross"  # x0 * (W x + b), Wang et al. 2021 (DCN V2, arXiv:2008.13535)
    MLP = "mlp"


class Vectorwise(Choice):
    """How an interaction layer compares whole vectors."""

    FM = "fm"  # inner products of all pairs, compressed linearly
    ATTENTION = "attention"


@dataclass(frozen=True)
class ModelSettings:
    """Sizes of a model; the weights are drawn by a seed.

    `fields` has the number of values of each categorical field, `sequence_tables` those of each part of an
    action (topic, item, ...), `positions` the most actions that are read. With `shared`, all fields number
    their values together and read one table (as hashed columns do); so do all parts of an action, in another.
    A model reads examples of the `encoder` of this digest only; empty, it does not ask.
    """

    fields: tuple[int, ...]
    numbers: int = 0
    sequence_tables: tuple[int, ...] = ()
    shared: bool = False
    positions: int = 16
    dim: int = 12  # of a field's vector
    width: int = 32  # of the sequence transformer
    heads: int = 2
    sequence_layers: int = 1
    interactions: int = 2
    bitwise: Bitwise = Bitwise.CROSS
    vectorwise: Vectorwise = Vectorwise.FM
    hidden: int = 32  # inner width of the bit-wise module; 0: a full matrix (cross), as wide as its input (mlp)
    vectors: int = 0  # mixtures of the vectors that interaction layers work on; 0: the vectors themselves
    tower: tuple[int, ...] = (64, 32)
    tasks: tuple[str, ...] = ("conversion", "cart", "engaged")
    encoder: str = ""

    def __post_init__(self) -> None:
        for name in ("fields", "sequence_tables", "tower", "tasks"):
            value = getattr(self, name)
            if isinstance(value, str) or not isinstance(value, tuple | list):
                raise BadInput(f"expected {name} as a list, got {value!r}")
            object.__setattr__(self, name, tuple(value))
        for name in ("fields", "sequence_tables", "tower"):
            for value in getattr(self, name):
                expect.whole(f"each of {name}", value, at_least=1)
        for name in ("positions", "dim", "width", "heads", "interactions"):
            expect.whole(name, getattr(self, name), at_least=1)
        for name in ("numbers", "sequence_layers", "hidden", "vectors"):
            expect.whole(name, getattr(self, name), at_least=0)
        object.__setattr__(self, "bitwise", Bitwise(self.bitwise))
        object.__setattr__(self, "vectorwise", Vectorwise(self.vectorwise))
        if not self.fields:
            raise BadInput("expected at least one of fields, got none")
        if not isinstance(self.shared, bool):
            raise BadInput(f"expected shared to be true or false, got {self.shared!r}")
        if self.width % self.heads:
            raise BadInput(f"expected heads to divide width={self.width}, got {self.heads}")
        if not self.tasks or len(set(self.tasks)) != len(self.tasks):
            raise BadInput(f"expected distinct tasks, at least one, got {self.tasks}")
        for task in self.tasks:
            if not isinstance(task, str) or not task.isidentifier():
                raise BadInput(f"expected each of tasks to be a plain word, got {task!r}")
        if not isinstance(self.encoder, str):
            raise BadInput(f"expected encoder as a text, got {self.encoder!r}")
        if self._weights > MOST_WEIGHTS:
            raise BadInput(f"expected settings of at most {MOST_WEIGHTS} weights, got more")

    @property
    def table_rows(self) -> int:
        return max(self.fields) if self.shared else sum(self.fields)

    @property
    def sequence_rows(self) -> int:
        return max(self.sequence_tables, default=0) if self.shared else sum(self.sequence_tables)

    @property
    def has_sequence(self) -> bool:
        return bool(self.sequence_tables) and self.sequence_layers > 0

    @property
    def projected_vectors(self) -> int:
        """Vectors that enter the interaction layers: fields, numbers, and two that sum up the sequence."""
        return len(self.fields) + self.numbers + 2 * self.has_sequence

    @property
    def mixtures(self) -> int:
        return self.vectors or self.projected_vectors

    @property
    def mixed_width(self) -> int:
        """Numbers that interaction layers and towers read."""
        return self.mixtures * self.dim

    @property
    def _weights(self) -> int:
        """At least as many as there are, roughly."""
        tables = self.table_rows * self.dim + (self.sequence_rows + self.positions) * self.width
        sequence = 12 * self.width**2 * max(self.sequence_layers, 1)
        inner = self.mixed_width + self.hidden + self.mixtures**2
        towers = sum((self.mixed_width, *self.tower)) ** 2 * len(self.tasks)
        return tables + sequence + 2 * inner * self.mixed_width * self.interactions + towers

    def as_json(self) -> dict[str, Any]:
        record = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in record.items()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> ModelSettings:
        known = [field.name for field in fields(cls)]
        for key in record:
            if key not in known:
                raise BadInput(expect.unknown_key("model settings", key, known))
        if "fields" not in record:
            raise BadInput("expected model settings with fields, got none")
        return cls(**record)


# The model that byte counts and speeds are compared on: about 10 million weights in adapted layers.
SPEED_SETTINGS = ModelSettings(
    fields=(1000,) * 40,
    sequence_tables=(1000, 1000),
    positions=63,  # 64 with the token of the ad
    dim=64,
    width=128,
    heads=4,
    sequence_layers=2,
    interactions=3,
    hidden=0,
    vectors=16,
    tower=(512, 256),
    tasks=("conversion",),
)
