"""A platform and a room that are small enough for tests: a toy model, one advertiser's rows, signed terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from tacit.cleanroom.in_process import InProcessRoom, room_in_process
from tacit.cleanroom.model.examples import ConversionExamples
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.model.settings import ModelSettings
from tacit.cleanroom.protocol.modes import Mode
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.room.store import MemoryRoomStore
from tacit.entropy import Simulation

torch.set_num_threads(1)  # tests run beside each other: more threads than cores wait for one another

ADVERTISER, NOW = 8, 1_800_000_000
TASK = "conversion"
SETTINGS = ModelSettings(
    fields=(7, 5), sequence_tables=(4, 5), positions=4, dim=4, width=8, hidden=8, interactions=1, tower=(8,),
    tasks=(TASK,),
)  # fmt: skip


def examples(rows: int, seed: int = 0) -> ConversionExamples:
    """Rows of one advertiser; labels hang on the first field and on the length of the sequence."""
    draw = np.random.default_rng(seed)
    fields = np.stack([draw.integers(0, size, rows) for size in SETTINGS.fields], axis=1)
    sequences = np.stack([draw.integers(0, size, (rows, 4)) for size in SETTINGS.sequence_tables], axis=2)
    lengths = draw.integers(1, 5, rows)
    logits = -1.5 + 0.5 * (fields[:, 0] - 3) + 0.4 * (lengths - 2)
    labels = (draw.random(rows) < expit(logits)).astype(np.uint8)
    return ConversionExamples(
        fields, np.zeros((rows, 0), np.float32), sequences, lengths, np.full(rows, ADVERTISER),
        np.arange(rows, dtype=np.uint64), {TASK: labels}, SETTINGS.fields, SETTINGS.sequence_tables,
    )  # fmt: skip


def tokens_of(rows: int) -> NDArray[np.uint8]:
    return np.frombuffer(Simulation("tokens").bytes(16 * rows), np.uint8).reshape(rows, 16)


def model(rank: int = 2, adapter: str = "shoes", seed: int = 1) -> ConversionModel:
    made = ConversionModel(SETTINGS, seed=seed)
    made.add_adapter(adapter, ADVERTISER, rank, seed=2)
    return made


@dataclass(frozen=True, eq=False)
class World:
    """Rows, their tokens, and a link to a room that has their labels."""

    examples: ConversionExamples
    tokens: NDArray[np.uint8]
    link: InProcessRoom

    @property
    def terms(self) -> Terms:
        return self.link.room.terms

    def most_releases(self) -> int:
        """How often the record that was released most was released."""
        store = self.link.room._store
        assert isinstance(store, MemoryRoomStore)
        counts: dict[Any, int] = store.everything()["counts"]  # type: ignore[index]
        return max(counts.values(), default=0)


def world(mode: Mode, rows: int = 600, **terms: Any) -> World:
    """A room that both have signed for, with small batches allowed."""
    data, tokens = examples(rows), tokens_of(rows)
    given: dict[str, Any] = {"smallest_batch": 32, "mode": mode} | terms
    link = room_in_process(
        tokens, data.labels(TASK)[:, None], source=Simulation("the room of a test"), now=NOW, **given
    )
    return World(data, tokens, link)
