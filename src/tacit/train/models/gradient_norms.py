"""Squared norms of gradients without the gradients: of embeddings by example, and of groups of examples.

A table row that an example reads twice gets the sum of both gradients. A linear layer's gradient, summed over a
group, has the squared norm sum_ij <d_i, d_j> (<a_i, a_j> + 1), with d_i the gradient of the layer's output for
example i and a_i its input; the one is the bias. Groups are for clipping each person as a whole. Their sums are
in double precision: the gradients of a group may nearly cancel, and what is left must not be understated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.arrays import Floats32, Ids
from tacit.errors import BadInput

REPEATS_AT_ONCE = 4096  # examples with repeats at once: (4096, fields, fields) is the largest array
CHUNK = 4096  # examples of groups at once, or one larger group
LARGEST_GRAM = 512  # in larger groups the summed gradient is smaller than the products of all pairs


def squared_lengths(rows: torch.Tensor) -> torch.Tensor:
    """|row|^2 of each row, without an array of squares."""
    norms: torch.Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms.square_()


def squared_norms_by_row(ids: Ids, gradients: torch.Tensor) -> torch.Tensor:
    """Each example's sum over the distinct rows it reads of |that row's gradient|^2.

    `ids` are (batch, fields); `gradients`, of each embedding as it was read, are (batch, fields * dim).
    """
    totals = squared_lengths(gradients)
    ordered = np.sort(ids, axis=1)
    repeating = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    for start in range(0, len(repeating), REPEATS_AT_ONCE):
        some = repeating[start : start + REPEATS_AT_ONCE]
        same = torch.from_numpy((ids[some][:, :, None] == ids[some][:, None, :]).astype(np.float32))
        places = torch.from_numpy(some)
        own = gradients[places].view(len(some), ids.shape[1], -1)  # (some, fields, dim)
        # sum over pairs f, g that read the same row of <gradient_f, gradient_g>
        totals[places] = (torch.bmm(same, own) * own).sum(dim=(1, 2))
    return totals


def grouped_squared_norms(
    residual: Floats32,
    groups: NDArray[np.int64],
    *,
    linear: Sequence[tuple[torch.Tensor, torch.Tensor]],
    embedded: Sequence[tuple[Ids, torch.Tensor]],
) -> Floats32:
    """One for each group 0, 1, ...; 0 for a number that no example has.

    `linear` holds each layer's output gradients (batch, width) and inputs (batch, inputs); `embedded` each
    table's ids (batch, fields) and the gradients of what was read (batch, fields * dim); for a unit of score.
    """
    if groups.shape != residual.shape or groups.dtype != np.int64 or (groups.size and groups.min() < 0):
        raise BadInput(
            f"expected {len(residual)} groups as int64 from 0 on, got {groups.dtype} of shape {groups.shape}"
        )
    totals = np.zeros(int(groups.max()) + 1 if groups.size else 0)
    for which, members in _chunks(groups):  # (n,), (n, size)
        places = torch.from_numpy(members)
        weights = torch.from_numpy(residual[members].astype(np.float64))[:, :, None]
        for gradients, inputs in linear:
            totals[which] += _linear(gradients[places] * weights, inputs[places].double())
        for ids, gradients in embedded:
            totals[which] += _embedded(ids[members], gradients[places] * weights)
    return np.maximum(totals, 0).astype(np.float32)


def _chunks(groups: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Some groups of one size at a time: their numbers, and the places of their examples (groups, size)."""
    numbers, sizes = np.unique(groups, return_counts=True)
    order = np.argsort(groups, kind="stable")
    starts = np.cumsum(sizes) - sizes
    for size in np.unique(sizes).tolist():
        same = np.flatnonzero(sizes == size)
        step = max(1, CHUNK // size)
        for start in range(0, len(same), step):
            some = same[start : start + step]
            yield numbers[some], order[starts[some][:, None] + np.arange(size)]


def _linear(gradients: torch.Tensor, inputs: torch.Tensor) -> NDArray[np.float64]:
    """(n, size, width) and (n, size, inputs) -> (n,)."""
    if gradients.shape[1] > LARGEST_GRAM:
        weights = torch.bmm(gradients.transpose(1, 2), inputs)  # (n, width, inputs)
        total = weights.square().sum(dim=(1, 2)) + gradients.sum(dim=1).square().sum(dim=1)
    else:
        pairs = torch.bmm(gradients, gradients.transpose(1, 2))  # (n, size, size)
        pairs *= torch.bmm(inputs, inputs.transpose(1, 2)) + 1
        total = pairs.sum(dim=(1, 2))
    squares: NDArray[np.float64] = total.numpy()
    return squares


def _embedded(ids: Ids, gradients: torch.Tensor) -> NDArray[np.float64]:
    """(n, size, fields) and (n, size, fields * dim) -> (n,): the sum over each group's distinct rows."""
    count, size, fields = ids.shape
    totals = np.zeros(count)
    if not ids.size:
        return totals
    group = np.repeat(np.arange(count, dtype=np.int64), size * fields)
    key = group * (int(ids.max()) + 1) + ids.reshape(-1)
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    rows = gradients.numpy().reshape(count * size * fields, -1)[order]
    sums = np.add.reduceat(rows, starts, axis=0)  # (distinct group and row, dim)
    np.add.at(totals, group[order][starts], np.square(sums).sum(axis=1))
    return totals
