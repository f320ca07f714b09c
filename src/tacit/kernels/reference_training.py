"""The kernels of training in NumPy: slow, obvious, and what the tests hold the compiled ones to.

The arguments are those of the compiled functions, already checked; `training` says what they mean.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]


def fm_forward(
    table: Floats, ids: Ids, first_trained: int, logits: Floats, sums: Floats, squares: Floats
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
    table: Floats,
    ids: Ids,
    first_trained: int,
    coefficients: Floats,
    sums: Floats,
    into: Floats,
    pulls: Floats | None,
) -> None:
    trained = ids[:, first_trained:]
    gradient = np.ones((*trained.shape, table.shape[1]), dtype=into.dtype)
    gradient[:, :, 1:] = sums[:, None]
    if pulls is None:
        gradient[:, :, 1:] -= table[trained, 1:]
    else:
        np.add.at(pulls, trained, coefficients[:, None])
    np.add.at(into, trained, coefficients[:, None, None] * gradient)


def gather_ids(open: Ids, hidden: Ids, rows: NDArray[np.int64], offset: int, out: Ids) -> None:
    out[:, : open.shape[1]] = open[rows]
    out[:, open.shape[1] :] = hidden[rows] + np.int32(offset)


def take_rows(table: Floats, ids: Ids, out: Floats) -> None:
    out[:] = table[ids]


def add_rows(into: Floats, ids: Ids, values: Floats) -> None:
    np.add.at(into, ids, values)


def touch(ids: Ids, stamps: Ids, step: int, rows: Ids) -> int:
    listed = np.unique(ids[stamps[ids] != step])
    rows[: len(listed)] = listed
    stamps[listed] = step
    return len(listed)


def apply_rows(
    weights: Floats, gathered: Floats, rows: Ids, rate: float, keep: float, pulls: Floats | None
) -> None:
    if pulls is not None:
        gathered[rows, 1:] -= pulls[rows, None] * weights[rows, 1:]
        pulls[rows] = 0
    weights[rows] -= np.float32(rate) * gathered[rows]
    gathered[rows] = gathered[rows] * np.float32(keep) if keep else 0


def catch_up(
    weights: Floats,
    velocity: Floats | None,
    rows: Ids | None,
    start: int,
    count: int,
    since: Ids,
    first_open: int,
    now: int,
    decay: Floats,
    drift: Floats,
    factors: Floats,
    normals: Floats | None,
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


def sgd_block(weights: Floats, velocity: Floats, rate: float, momentum: float) -> None:
    weights -= np.float32(rate) * velocity
    velocity *= np.float32(momentum)


def adam_block(
    weights: Floats,
    first: Floats,
    second: Floats,
    gradient: Floats,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    correction1: float,
    correction2: float,
    shrink: float,
    width: int,
) -> None:
    g = _taken(weights, gradient, shrink, width)
    second[:] = np.float32(beta2) * second + np.float32(1 - beta2) * np.square(g)
    _step(weights, first, second, g, rate, beta1, epsilon, correction1, correction2)


def yogi_block(
    weights: Floats,
    first: Floats,
    second: Floats,
    gradient: Floats,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    correction1: float,
    correction2: float,
    shrink: float,
    width: int,
) -> None:
    g = _taken(weights, gradient, shrink, width)
    second -= np.float32(1 - beta2) * np.sign(second - np.square(g)) * np.square(g)
    _step(weights, first, second, g, rate, beta1, epsilon, correction1, correction2)


def rmsprop_block(
    weights: Floats,
    second: Floats,
    gradient: Floats,
    rate: float,
    decay: float,
    epsilon: float,
    shrink: float,
    width: int,
) -> None:
    g = _taken(weights, gradient, shrink, width)
    second[:] = np.float32(decay) * second + np.float32(1 - decay) * np.square(g)
    weights -= np.float32(rate) * g / (np.sqrt(second) + np.float32(epsilon))


def _taken(weights: Floats, gradient: Floats, shrink: float, width: int) -> Floats:
    """The gathered gradient with its penalty; the gathering starts anew."""
    taken = gradient.copy()
    gradient[:] = 0
    if width:
        taken.reshape(-1, width)[:, 1:] += np.float32(shrink) * weights.reshape(-1, width)[:, 1:]
    return taken


def _step(
    weights: Floats,
    first: Floats,
    second: Floats,
    gradient: Floats,
    rate: float,
    beta1: float,
    epsilon: float,
    correction1: float,
    correction2: float,
) -> None:
    first[:] = np.float32(beta1) * first + np.float32(1 - beta1) * gradient
    mean, square = first / np.float32(correction1), second / np.float32(correction2)
    weights -= np.float32(rate) * mean / (np.sqrt(square) + np.float32(epsilon))
