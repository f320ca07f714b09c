"""What the clean-room suite measures on: one model with an adapter that has begun to learn, made-up rows, a
room.

Weights and rows are drawn by seeds: sizes and speeds do not depend on what they say. The room is in this
process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.cleanroom.in_process import InProcessRoom, room_in_process
from tacit.cleanroom.model.derivatives import adapter_derivatives
from tacit.cleanroom.model.examples import Batch
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.model.settings import SPEED_SETTINGS, ModelSettings
from tacit.cleanroom.platform.steps import step_slabs
from tacit.cleanroom.protocol.answers import StepAnswer
from tacit.cleanroom.protocol.codecs import codec_named
from tacit.cleanroom.protocol.layout import ParameterLayout
from tacit.cleanroom.protocol.losses import Loss
from tacit.cleanroom.protocol.requests import StepRequest
from tacit.cleanroom.protocol.slabs import Slab
from tacit.cleanroom.protocol.tokens import TOKEN_BYTES
from tacit.data.generators.conversion_model import ACTION_FREQUENCIES, ITEMS, LONGEST, SHORTEST, TOPICS
from tacit.data.generators.conversions import FIELD_VALUES
from tacit.entropy import Simulation

ACTION_PARTS = {"topic": TOPICS, "item": ITEMS, "action": len(ACTION_FREQUENCIES)}
ADVERTISER, ADAPTER, TASK = 8, "measured", "conversion"
SMALL = ModelSettings(fields=FIELD_VALUES, sequence_tables=tuple(ACTION_PARTS.values()), tasks=(TASK,))
"""What the studies on the conversions log train."""

LENGTHS = {"short": (SHORTEST, LONGEST), "full": None}
"""Actions a row: those of the conversions log, or as many as the model reads."""


@dataclass(frozen=True)
class CleanroomScale:
    """How much of everything; tests take less."""

    model: ModelSettings = field(default_factory=lambda: SPEED_SETTINGS)
    rank: int = 32
    other_ranks: tuple[int, ...] = (1, 64)
    sized_rows: int = 39  # three of each length
    timed_rows: int = 256
    rounds: int = 7
    room_rounds: int = 25  # of a few hundredths of a second each
    growing_rows: tuple[int, ...] = (128, 256, 512)
    streamed_slabs: int = 52  # of `sized_rows` each
    log_rows: int = 180_000  # half of them the sensitive advertiser's
    tuned_rank: int = 8
    seeds: int = 3
    served_rows: int = 1024
    served_batch: int = 256
    served_small_rows: int = 8192  # of the small model, whose rows cost little
    served_small_batch: int = 1024
    served_turns: int = 3

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"model": self.model.as_json()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> CleanroomScale:
        """For a process of a part's own."""
        told: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in record.items()
        }
        return cls(**(told | {"model": ModelSettings.from_json(record["model"])}))

    @property
    def streamed_rows(self) -> int:
        return self.streamed_slabs * self.sized_rows

    @property
    def described(self) -> str:
        return model_text(self.model)


def model_text(model: ModelSettings) -> str:
    """A model in one line."""
    return (
        f"{len(model.fields)} fields x {model.dim}, {model.sequence_layers} transformer layers d={model.width} "
        f"T={model.positions + 1}, {model.interactions} interaction layers of {model.mixed_width}, tower "
        f"{'/'.join(map(str, (*model.tower, 1)))}"
    )


def make_model(settings: ModelSettings, rank: int) -> ConversionModel:
    """With an adapter whose matrices are all away from zero, as after some steps."""
    model = ConversionModel(settings, seed=1)
    adapter = model.add_adapter(ADAPTER, ADVERTISER, rank, seed=2)
    moved = Simulation("adapter").normal(adapter.layout.parameters, scale=0.01)
    adapter.set_values((adapter.values + moved).astype(np.float32))
    return model


def make_batch(settings: ModelSettings, rows: int, lengths: str, *, seed: int = 3) -> Batch:
    """Uniform values, and as many actions as `lengths` says."""
    draw = torch.Generator().manual_seed(seed)
    between = LENGTHS[lengths]
    most = settings.positions
    shortest, longest = (most, most) if between is None else (min(each, most) for each in between)
    columns = [torch.randint(0, values, (rows, 1), generator=draw) for values in settings.fields]
    parts = [
        torch.randint(0, values, (rows, settings.positions, 1), generator=draw)
        for values in settings.sequence_tables
    ]
    return Batch(
        torch.cat(columns, dim=1),
        torch.randn(rows, settings.numbers, generator=draw),
        torch.cat(parts, dim=2),
        torch.randint(
            min(shortest, settings.positions), min(longest, settings.positions) + 1, (rows,), generator=draw
        ),
        torch.full((rows,), ADVERTISER),
    )


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Rows as training reads them, a batch at a time."""

    all: Batch

    def __len__(self) -> int:
        return len(self.all)

    def batch(self, rows: NDArray[np.int64]) -> Batch:
        return self.all.rows(torch.from_numpy(rows))


@dataclass(frozen=True, eq=False)
class StepWork:
    """A batch on its way to the room, before any codec."""

    layout: ParameterLayout
    slab: Slab

    @classmethod
    def make(cls, model: ConversionModel, rows: int, lengths: str) -> StepWork:
        batch = make_batch(model.settings, rows, lengths)
        logits, found = adapter_derivatives(model, batch, TASK, ADAPTER)
        return cls(model.adapter_layout(ADAPTER), Slab(0, make_tokens(rows), logits, dict(found)))

    def __len__(self) -> int:
        return len(self.slab.logits)

    def only(self, *, sequences: bool) -> StepWork:
        """The blocks of the layers that are, or are not, applied at several positions."""
        blocks = tuple(block for block in self.layout.blocks if (block.positions > 1) == sequences)
        kept = {block.name: self.slab.blocks[block.name] for block in blocks}
        return StepWork(ParameterLayout(blocks), replace(self.slab, blocks=kept))

    def first(self, rows: int) -> StepWork:
        """The first examples alone."""
        slab = self.slab
        blocks = {name: each.rows(0, rows) for name, each in slab.blocks.items()}
        return StepWork(self.layout, Slab(0, slab.tokens[:rows], slab.logits[:rows], blocks))

    def messages(self, codec: str, per_slab: int | None = None) -> list[bytes]:
        """The slabs of a step as a platform sends them: of about four megabytes, or of a number of examples."""
        slab, chosen = self.slab, codec_named(codec)
        slabs = step_slabs(slab.tokens, slab.logits, slab.blocks, self.layout, chosen, run="bench", number=0)
        slabs.per_slab = per_slab or slabs.per_slab
        return list(slabs)

    def request(self, codec: str) -> StepRequest:
        return StepRequest("0" * 64, "bench", 0, TASK, Loss.FORWARD, codec, len(self), self.layout)


def make_tokens(rows: int) -> NDArray[np.uint8]:
    """As random as keyed tokens are, and all different."""
    return np.frombuffer(Simulation("tokens").bytes(rows * TOKEN_BYTES), np.uint8).reshape(rows, TOKEN_BYTES)


def held_room(tokens: NDArray[np.uint8], labels: NDArray[np.uint8], **agreed: Any) -> InProcessRoom:
    """With these labels (n,) of one task. Simulated: its secrets come from a seed."""
    return room_in_process(tokens, labels[:, None], source=Simulation("room"), **agreed)


@dataclass(eq=False)
class WatchedRoom:
    """The link to a held room, which notes how long its steps take: slabs are there before they begin."""

    held: InProcessRoom
    stopwatch: Callable[[], float] = time.perf_counter
    seconds: float = field(default=0.0, init=False)

    def step(self, request: StepRequest, slabs: Iterable[bytes]) -> StepAnswer:
        came = list(slabs)
        began = self.stopwatch()
        answer = self.held.step(request, came)
        self.seconds += self.stopwatch() - began
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.held, name)
