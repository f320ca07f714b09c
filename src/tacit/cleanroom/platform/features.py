"""What one noisy statistic is asked about: how a row's logit would move, and which values its fields have.

Near its start an adapter with B = 0 moves a logit by <dz/dB, B>: linear in B, so a logistic model of these
derivatives is the adapter's first-order change, learned without a single step. Their principal directions over
the platform's own rows carry most of it in few numbers, and few numbers carry little noise. All of this is
public to the platform: no label is read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.cleanroom.model.derivatives import derivatives
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.platform.sending import Examples
from tacit.cleanroom.wire.blocks import Block
from tacit.errors import BadInput

Floats = NDArray[np.float32]

DIRECTIONS = 64
SAMPLED = 2048  # rows that the directions are found from
AT_ONCE = 2048
USUAL_LENGTH = 0.9  # the share of rows that keep their length; the others are shortened to 1


@dataclass(frozen=True, eq=False)
class Directions:
    """Where derivatives of B point: features of a row are its derivative along each, centred and scaled."""

    blocks: tuple[Block, ...]
    matrix: Floats  # (directions, parameters of the blocks)
    centre: Floats  # (directions,)
    scale: float

    def of(self, model: ConversionModel, adapter: str, task: str, examples: Examples) -> tuple[Floats, Floats]:
        """Logits (n,) and features (n, directions), each row's of norm at most 1."""
        logits, found = [], []
        for batch_logits, dense in _derivatives(model, adapter, task, examples, np.arange(len(examples))):
            along = (dense @ self.matrix.T - self.centre) * np.float32(self.scale)
            norms = np.linalg.norm(along, axis=1, keepdims=True)
            found.append(along / np.maximum(norms, 1))
            logits.append(batch_logits)
        return np.concatenate(logits), np.concatenate(found)


def principal_directions(
    model: ConversionModel, adapter: str, task: str, examples: Examples, count: int = DIRECTIONS
) -> Directions:
    """The directions in which derivatives of B differ most between rows.

    Rows are taken evenly over the examples. The Gram matrix of the centred derivatives is as large as the
    sample, whatever the adapter's size.
    """
    expect.whole("count", count, at_least=1)
    layout, values = model.adapter_layout(adapter), model.adapter_values(adapter)
    if any(part.any() for name, part in layout.split(values).items() if name.endswith(".B")):
        raise BadInput(f"adapter {adapter}: expected a fresh one, whose B is zero, got one that has learned")
    blocks = tuple(block for block in layout.blocks if block.name.endswith(".B"))
    rows = np.unique(np.linspace(0, len(examples) - 1, min(SAMPLED, len(examples))).astype(np.int64))
    dense = np.concatenate([part for _, part in _derivatives(model, adapter, task, examples, rows)])
    mean = dense.mean(axis=0, dtype=np.float64).astype(np.float32)
    dense -= mean
    gram = (dense @ dense.T).astype(np.float64)
    eigenvalues, vectors = np.linalg.eigh(gram)
    strongest = np.argsort(eigenvalues)[::-1][:count]
    strongest = strongest[eigenvalues[strongest] > 1e-7 * max(float(eigenvalues[-1]), 1e-30)]
    if not len(strongest):
        raise BadInput(
            f"adapter {adapter}: expected derivatives that differ between rows, got the same for all"
        )
    weights = vectors[:, strongest] / np.sqrt(eigenvalues[strongest])
    matrix = weights.T.astype(np.float32) @ dense  # (count, parameters), orthonormal
    lengths = np.linalg.norm(dense @ matrix.T, axis=1)
    scale = 1 / max(float(np.quantile(lengths, USUAL_LENGTH)), 1e-30)
    return Directions(blocks, matrix, matrix @ mean, scale)


@dataclass(frozen=True, eq=False)
class FieldCells:
    """A cell for each value that a field has here, one for its other values, and one that all rows share."""

    values: tuple[NDArray[np.int64], ...]  # of each field, sorted

    @classmethod
    def of(cls, fields: NDArray[np.integer]) -> FieldCells:
        return cls(tuple(np.unique(column).astype(np.int64) for column in fields.T))

    @property
    def count(self) -> int:
        return sum(len(values) + 1 for values in self.values) + 1

    @property
    def bias(self) -> int:
        """The cell of every row."""
        return self.count - 1

    def cells(self, fields: NDArray[np.integer]) -> NDArray[np.int32]:
        """(n, fields + 1)."""
        found = np.empty((len(fields), len(self.values) + 1), np.int32)
        start = 0
        for field, values in enumerate(self.values):
            place = np.searchsorted(values, fields[:, field])
            known = values[np.minimum(place, len(values) - 1)] == fields[:, field]
            found[:, field] = start + np.where(known, place, len(values))
            start += len(values) + 1
        found[:, -1] = self.bias
        return found


def fields_of(examples: Examples) -> NDArray[np.int64]:
    """The field values of all rows, in batches, as the model reads them."""
    rows = range(0, len(examples), AT_ONCE)
    return np.concatenate(
        [examples.batch(np.arange(at, min(at + AT_ONCE, len(examples)))).fields.numpy() for at in rows]
    )


def _derivatives(
    model: ConversionModel, adapter: str, task: str, examples: Examples, rows: NDArray[np.int64]
) -> Iterator[tuple[Floats, Floats]]:
    """Logits, and dz/dB written out: (some, parameters of all B)."""
    names = [block.name for block in model.adapter_layout(adapter).blocks if block.name.endswith(".B")]
    for start in range(0, len(rows), AT_ONCE):
        logits, found = derivatives(model, examples.batch(rows[start : start + AT_ONCE]), task, adapter)
        yield logits, np.concatenate([found[name].as_dense() for name in names], axis=1)
