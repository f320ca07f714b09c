"""The kernels of training in NumPy: slow, obvious, and what the tests hold the compiled ones to.

The arguments are those of the compiled functions, already checked; `training` says what they mean.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats, Floats32, Ids


def fm_forward(
    table: Floats32, ids: Ids, first_trained: int, logits: Floats32, sums: Floats32, squares: Floats32
) -> None:
    rows = table[ids]  # (batch, fields, width)
    embeddings = rows[:, :, 1:]
    sums[:] = embeddings.sum(axis=1)
    pairs = np.square(sums).sum(axis=1) - np.square(embeddings).sum(axis=(1, 2))
    logits[:] = rows[:, :, 0].sum(axis=1) + 0.5 * pairs
    apart = np.square(sums[:, None] - embeddings[:, first_trained:]).sum(axis=2) + 1  # (batch, trained)
    trained = ids[:, first_trained:]
    # A row that m fields share has m times the gradient, so m^2 times the square: m for each of the fields.
    times = (trained[:, :, None] == trained[:, None, :]).sum(axis=2)
    squares[:] = (times * apart).sum(axis=1)


def fm_scatter(
    table: Floats32,
    ids: Ids,
    first_trained: int,
    coefficients: Floats32,
    sums: Floats32,
    into: Floats32,
    pulls: Floats32 | None,
) -> None:
    trained = ids[:, first_trained:]
    gradient = np.ones((*trained.shape, table.shape[1]), dtype=into.dtype)
    gradient[:, :, 1:] = sums[:, None]
    if pulls is None:
        gradient[:, :, 1:] -= table[trained, 1:]
    else:
        np.add.at(pulls, trained, coefficients[:, None])
    np.add.at(into, trained, coefficients[:, None, None] * gradient)


def fm_group_squares(
    table: Floats32,
    ids: Ids,
    first_trained: int,
    residuals: Floats32,
    sums: Floats32,
    groups: NDArray[np.int64],
    squares: Floats,
) -> None:
    squares[:] = 0
    trained = ids[:, first_trained:]
    if not trained.size:
        return
    example = np.repeat(np.arange(len(trained)), trained.shape[1])
    order = np.lexsort((trained.ravel(), groups[example]))  # stable: readers stay in their order
    group, row, example = groups[example][order], trained.ravel()[order], example[order]
    starts = np.flatnonzero(np.r_[True, (group[1:] != group[:-1]) | (row[1:] != row[:-1])])
    slopes = residuals[example].astype(np.float64)
    c = np.add.reduceat(slopes, starts)
    by_row = c * c
    for column in range(sums.shape[1]):  # all at once would be an array of (examples, fields, dim)
        a = np.add.reduceat(slopes * sums[example, column], starts)
        by_row += np.square(a - c * table[row[starts], 1 + column])
    np.add.at(squares, group[starts], by_row)


def gather_ids(open: Ids, hidden: Ids, rows: NDArray[np.int64], offset: int, out: Ids) -> None:
    out[:, : open.shape[1]] = open[rows]
    out[:, open.shape[1] :] = hidden[rows] + np.int32(offset)


def take_rows(table: Floats32, ids: Ids, out: Floats32) -> None:
    out[:] = table[ids]


def add_rows(into: Floats32, ids: Ids, values: Floats32) -> None:
    np.add.at(into, ids, values)


def touch(ids: Ids, stamps: Ids, step: int, rows: Ids) -> int:
    listed = np.unique(ids[stamps[ids] != step])
    rows[: len(listed)] = listed
    stamps[listed] = step
    return len(listed)


def apply_rows(
    weights: Floats32, gathered: Floats32, rows: Ids, rate: float, keep: float, pulls: Floats32 | None
) -> None:
    if pulls is not None:
        gathered[rows, 1:] -= pulls[rows, None] * weights[rows, 1:]
        pulls[rows] = 0
    weights[rows] -= np.float32(rate) * gathered[rows]
    gathered[rows] = gathered[rows] * np.float32(keep) if keep else 0


def catch_up(
    weights: Floats32,
    velocity: Floats32 | None,
    rows: Ids | None,
    start: int,
    count: int,
    since: Ids,
    first_open: int,
    now: int,
    decay: Floats32,
    drift: Floats32,
    factors: Floats32,
    normals: Floats32 | None,
) -> None:
    listed = np.arange(start, start + count) if rows is None else rows
    if np.any(since[listed] < first_open) or np.any(since[listed] > now):
        raise ValueError("expected rows that are open")
    behind = np.flatnonzero(since[listed] < now)
    late = listed[behind]
    open_step = since[late] - first_open
    since[late] = now
    factor = factors[open_step].T[:, :, None]  # (3, late, 1)
    if velocity is None:
        if normals is not None:
            weights[late] += factor[0] * normals[behind]
        return
    v = velocity[late]
    weights[late] += drift[open_step, None] * v
    velocity[late] = decay[open_step, None] * v
    if normals is not None:
        x, y = normals[:, behind]
        weights[late] += factor[1] * x + factor[2] * y
        velocity[late] += factor[0] * x


def sgd_block(weights: Floats32, velocity: Floats32, rate: float, momentum: float) -> None:
    weights -= np.float32(rate) * velocity
    velocity *= np.float32(momentum)


def adam_block(
    weights: Floats32,
    first: Floats32,
    second: Floats32,
    gradient: Floats32,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    correction1: float,
    correction2: float,
    shrink: float,
    width: int,
) -> None:
    g = _take_gradient(weights, gradient, shrink, width)
    second[:] = np.float32(beta2) * second + np.float32(1 - beta2) * np.square(g)
    _step(weights, first, second, g, rate, beta1, epsilon, correction1, correction2)


def yogi_block(
    weights: Floats32,
    first: Floats32,
    second: Floats32,
    gradient: Floats32,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    correction1: float,
    correction2: float,
    shrink: float,
    width: int,
) -> None:
    g = _take_gradient(weights, gradient, shrink, width)
    second -= np.float32(1 - beta2) * np.sign(second - np.square(g)) * np.square(g)
    _step(weights, first, second, g, rate, beta1, epsilon, correction1, correction2)


def rmsprop_block(
    weights: Floats32,
    second: Floats32,
    gradient: Floats32,
    rate: float,
    decay: float,
    epsilon: float,
    shrink: float,
    width: int,
) -> None:
    g = _take_gradient(weights, gradient, shrink, width)
    second[:] = np.float32(decay) * second + np.float32(1 - decay) * np.square(g)
    weights -= np.float32(rate) * g / (np.sqrt(second) + np.float32(epsilon))


def _take_gradient(weights: Floats32, gradient: Floats32, shrink: float, width: int) -> Floats32:
    """The gathered gradient with its penalty; the gathering starts anew."""
    taken = gradient.copy()
    gradient[:] = 0
    if width:
        taken.reshape(-1, width)[:, 1:] += np.float32(shrink) * weights.reshape(-1, width)[:, 1:]
    return taken


def _step(
    weights: Floats32,
    first: Floats32,
    second: Floats32,
    gradient: Floats32,
    rate: float,
    beta1: float,
    epsilon: float,
    correction1: float,
    correction2: float,
) -> None:
    first[:] = np.float32(beta1) * first + np.float32(1 - beta1) * gradient
    mean, square = first / np.float32(correction1), second / np.float32(correction2)
    weights -= np.float32(rate) * mean / (np.sqrt(square) + np.float32(epsilon))
