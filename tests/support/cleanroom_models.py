"""Small conversion models of every architecture, and rows for them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import torch

from tacit.cleanroom.model.adapters import Adapter
from tacit.cleanroom.model.examples import Batch, ConversionExamples
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.model.settings import Bitwise, ModelSettings, Vectorwise

torch.set_num_threads(1)  # tests run beside each other: more threads than cores wait for one another

SMALL: dict[str, Any] = {
    "fields": (5, 7, 11),
    "numbers": 2,
    "sequence_tables": (6, 4),
    "positions": 5,
    "dim": 4,
    "width": 8,
    "heads": 2,
    "hidden": 3,
    "tower": (6, 4),
    "tasks": ("conversion", "cart"),
}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    **{f"{one} {two}": {"bitwise": one, "vectorwise": two} for one, two in product(Bitwise, Vectorwise)},
    "two layers, full cross": {"hidden": 0, "sequence_layers": 2},
    "mixed vectors": {"bitwise": Bitwise.MLP, "hidden": 0, "vectors": 3, "numbers": 0},
    "no sequence, no hidden tower": {"sequence_tables": (), "tower": ()},
    "shared table": {"shared": True, "interactions": 1},
    "one vector": {"fields": (9,), "numbers": 0, "sequence_tables": ()},
}


def small_model(seed: int = 1, **settings: Any) -> ConversionModel:
    """With tables and biases that are not small, so that every path matters."""
    model = ConversionModel(ModelSettings(**{**SMALL, **settings}), seed=seed)
    draw = torch.Generator().manual_seed(seed + 100)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw), alpha=0.3)
    return model


def trained(adapter: Adapter, seed: int = 5) -> Adapter:
    """The adapter with both matrices away from zero."""
    draw = np.random.default_rng(seed)
    adapter.set_values(draw.normal(0, 0.3, adapter.layout.parameters).astype(np.float32))
    return adapter


def some_rows(settings: ModelSettings, rows: int, *, seed: int = 3, advertisers: int = 1) -> ConversionExamples:
    """Uniform rows of advertisers 0, 1, ...; lengths from nothing to all positions."""
    draw = np.random.default_rng(seed)
    parts = len(settings.sequence_tables)
    sequences = np.zeros((rows, settings.positions, parts), np.int32)
    for part, size in enumerate(settings.sequence_tables):
        sequences[..., part] = draw.integers(0, size, (rows, settings.positions))
    lengths = draw.integers(0, settings.positions, rows, endpoint=True) if parts else np.zeros(rows, np.int64)
    return ConversionExamples(
        np.stack([draw.integers(0, size, rows) for size in settings.fields], axis=1),
        draw.normal(size=(rows, settings.numbers)).astype(np.float32),
        sequences,
        lengths,
        draw.integers(0, advertisers, rows),
        np.arange(rows, dtype=np.uint64),
        {task: draw.integers(0, 2, rows).astype(np.uint8) for task in settings.tasks},
        settings.fields,
        settings.sequence_tables,
        settings.shared,
    )


def a_batch(model: ConversionModel, rows: int, *, seed: int = 3, advertisers: int = 1) -> Batch:
    return some_rows(model.settings, rows, seed=seed, advertisers=advertisers).batch(slice(None))
