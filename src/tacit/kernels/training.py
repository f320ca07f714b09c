"""The loops of training over embedding tables: checked here, done in C++ or by their NumPy twins.

A table is float32 with a row for each value of each field: column 0 the linear weight, the others the
embedding. Ids are int32 and name rows. Arrays are contiguous, changed in place, and do not overlap. In the
shapes below, a table has R rows of W = 1 + D columns, and a batch B examples of F fields. Nothing here is
random, and nothing is private by itself: clipping, noise and their accounting are the callers'.

A step of SGD over the rows that a batch touches; `velocity` and `pulls` start as zeros:

    gather_ids(public, sensitive, rows, offset, ids)
    touched = buffer[: touch(ids, stamps, step, buffer)]
    fm_forward(table, ids, 0, logits, sums, squares)
    fm_scatter(table, ids, 0, coefficients, sums, velocity, pulls)     # coefficients: residuals, clipped
    apply_rows(table, velocity, touched, rate, momentum, pulls)

Optimizers over the whole table gather without pulls, and `sgd_block` and its like go over it in blocks.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats, Floats32, Ids
from tacit.errors import BadInput
from tacit.kernels.backend import load_kernel
from tacit.kernels.checks import ANY, expect_apart, expect_array, expect_below, flat_ids


def fm_forward(
    table: Floats32, ids: Ids, first_trained: int, logits: Floats32, sums: Floats32, squares: Floats32
) -> None:
    """The factorization machine's logits (B), without bias, and what their gradients need.

    `sums` (B, D) gets S, the sum of an example's embeddings; `squares` (B) the squared norm of the logit's
    gradient in the rows of the fields from `first_trained` on. A row that m of those fields share counts as
    what it is, m^2 (|S - v|^2 + 1). It is a sum of squares throughout, so it errs by a small part of itself and
    never through cancellation.
    """
    width = _expect_table("table", table)
    batch = _expect_batch(ids, first_trained, len(table))
    expect_array("logits", logits, np.float32, (batch,), writable=True)
    expect_array("sums", sums, np.float32, (batch, width - 1), writable=True)
    expect_array("squares", squares, np.float32, (batch,), writable=True)
    _kernel("interactions").fm_forward(table, ids, first_trained, logits, sums, squares)


def fm_scatter(
    table: Floats32,
    ids: Ids,
    first_trained: int,
    coefficients: Floats32,
    sums: Floats32,
    into: Floats32,
    pulls: Floats32 | None = None,
) -> None:
    """into[r] += c_i (1, S_i - table[r, 1:]) for each example i and field from `first_trained` on that names r.

    With c_i the derivative of example i's loss in its logit, clipped where it must be, this adds the batch's
    gradient to `into` (R, W), which may be a velocity. With `pulls` (R) it is a third faster and leaves a part
    undone: it adds c_i (1, S_i) to into[r] and c_i to pulls[r], and `apply_rows` takes off
    pulls[r] * table[r, 1:], once a row. Until then the table must not change.
    """
    width = _expect_table("table", table)
    batch = _expect_batch(ids, first_trained, len(table))
    expect_array("coefficients", coefficients, np.float32, (batch,))
    expect_array("sums", sums, np.float32, (batch, width - 1))
    expect_array("into", into, np.float32, table.shape, writable=True)
    expect_apart("table", table, "into", into)
    if pulls is not None:
        expect_array("pulls", pulls, np.float32, (len(table),), writable=True)
    _kernel("interactions").fm_scatter(table, ids, first_trained, coefficients, sums, into, pulls)


def fm_group_squares(
    table: Floats32,
    ids: Ids,
    first_trained: int,
    residuals: Floats32,
    sums: Floats32,
    groups: NDArray[np.int64],
    squares: Floats,
) -> None:
    """The squared norm of each group's gradient sum in the rows of the fields from `first_trained` on.

    `groups` (B), rising, says to which of the groups 0..G-1 an example belongs; `squares` (G) gets 0 for those
    that no example has. A group's gradient of row r is (c, A - c v), with c = sum residual_i and A = sum
    residual_i S_i over the places where its examples read r, repeats included. Gradients of a group may nearly
    cancel, so all of it is in double precision, in which a product of two float32 is exact.
    """
    width = _expect_table("table", table)
    batch = _expect_batch(ids, first_trained, len(table))
    expect_array("residuals", residuals, np.float32, (batch,))
    expect_array("sums", sums, np.float32, (batch, width - 1))
    expect_array("groups", groups, np.int64, (batch,))
    expect_array("squares", squares, np.float64, (ANY,), writable=True)
    expect_below("groups", groups, len(squares))
    if (groups[1:] < groups[:-1]).any():
        raise BadInput("expected rising groups, got one that is lower than the one before it")
    _kernel("interactions").fm_group_squares(table, ids, first_trained, residuals, sums, groups, squares)


def gather_ids(
    public: Ids, sensitive: Ids | None, rows: NDArray[np.int64], sensitive_offset: int, out: Ids
) -> None:
    """The ids of the examples `rows` (B): the public fields, then the sensitive ones + `sensitive_offset`."""
    if sensitive is None:
        sensitive = np.empty((len(public), 0), dtype=np.int32)
    expect_array("public ids", public, np.int32, (ANY, ANY))
    expect_array("sensitive ids", sensitive, np.int32, (len(public), ANY))
    expect_array("rows", rows, np.int64, (ANY,))
    expect_array("out", out, np.int32, (len(rows), public.shape[1] + sensitive.shape[1]), writable=True)
    expect_below("rows", rows, len(public))
    if not 0 <= sensitive_offset < 2**31:
        raise BadInput(f"expected sensitive_offset in 0..2^31-1, got {sensitive_offset}")
    _kernel("rows").gather_ids(public, sensitive, rows, sensitive_offset, out)


def take_rows(table: Floats32, ids: Ids, out: Floats32) -> None:
    """out[..., :] = table[ids[...]], for ids of any shape."""
    width = _expect_table("table", table)
    expect_array("out", out, np.float32, (*ids.shape, width), writable=True)
    _kernel("rows").take_rows(table, flat_ids("ids", ids, len(table)), out.reshape(ids.size, width))


def add_rows(into: Floats32, ids: Ids, values: Floats32) -> None:
    """into[ids[...]] += values[..., :], for ids of any shape; a row that is named twice gets both."""
    width = _expect_table("into", into, writable=True)
    expect_array("values", values, np.float32, (*ids.shape, width))
    _kernel("rows").add_rows(into, flat_ids("ids", ids, len(into)), values.reshape(ids.size, width))


def touch(ids: Ids, stamps: Ids, step: int, rows: Ids) -> int:
    """List the ids whose stamp (R) is not `step`, each once and rising; stamp them; say how many they are.

    `rows` has room for all the ids, or for all the rows of the table.
    """
    flat = flat_ids("ids", ids, len(stamps))
    expect_array("stamps", stamps, np.int32, (ANY,), writable=True)
    expect_array("rows", rows, np.int32, (ANY,), writable=True)
    if len(rows) < min(len(flat), len(stamps)):
        raise BadInput(f"expected room for {min(len(flat), len(stamps))} rows, got {len(rows)}")
    count: int = _kernel("rows").touch(flat, stamps, step, rows)
    return count


def apply_rows(
    weights: Floats32, gathered: Floats32, rows: Ids, rate: float, keep: float, pulls: Floats32 | None = None
) -> None:
    """Complete what `fm_scatter` gathered in the distinct `rows`, and step.

    First gathered[r, 1:] -= pulls[r] * weights[r, 1:], and pulls[r] is cleared; without pulls (a gradient from
    `add_rows`), what was gathered is complete. Then weights[r] -= rate * gathered[r] and gathered[r] *= keep,
    which is the momentum of a velocity, or 0 to clear a gradient.
    """
    _expect_table("weights", weights, writable=True)
    expect_array("gathered", gathered, np.float32, weights.shape, writable=True)
    expect_apart("weights", weights, "gathered", gathered)
    if pulls is not None:
        expect_array("pulls", pulls, np.float32, (len(weights),), writable=True)
    _kernel("rows").apply_rows(weights, gathered, flat_ids("rows", rows, len(weights)), rate, keep, pulls)


def catch_up(
    weights: Floats32,
    velocity: Floats32 | None,
    rows: Ids | range,
    since: Ids,
    first_open: int,
    now: int,
    decay: Floats32,
    drift: Floats32,
    factors: Floats32,
    normals: Floats32 | None,
) -> None:
    """Bring rows that were last up to date at step since[r] up to step `now`, and set since[r] = now.

    What happened to an untouched row depends only on when it was last touched: entry since[r] - first_open of
    `decay`, `drift` (K) and `factors` (K, 3) tells it, K >= now - first_open. With a velocity v and normals
    x, y (2, n, W), coordinate by coordinate,

        w += drift v + factor_1 x + factor_2 y,    v = decay v + factor_0 x;

    without a velocity and with normals x (n, W), w += factor_0 x. Without normals there is no noise. `rows` are
    n distinct ids, or a range for a stretch of the table; rows with since[r] = now stay as they are. If any
    row's since is outside first_open..now, all are refused.
    """
    height, width = len(weights), _expect_table("weights", weights, writable=True)
    if velocity is not None:
        expect_array("velocity", velocity, np.float32, weights.shape, writable=True)
        expect_apart("weights", weights, "velocity", velocity)
    expect_array("since", since, np.int32, (height,), writable=True)
    expect_array("decay", decay, np.float32, (ANY,))
    expect_array("drift", drift, np.float32, decay.shape)
    expect_array("factors", factors, np.float32, (len(decay), 3))
    if not first_open <= now <= first_open + len(decay):
        raise BadInput(f"expected now within {len(decay)} steps of first_open={first_open}, got {now}")
    if normals is not None:
        shape = (len(rows), width) if velocity is None else (2, len(rows), width)
        expect_array("normals", normals, np.float32, shape)
    if not isinstance(rows, range):
        start, listed = 0, flat_ids("rows", rows, height)
    elif rows.step == 1 and (not rows or (rows[0] >= 0 and rows[-1] < height)):
        start, listed = rows.start, None
    else:
        raise BadInput(f"expected a range of step 1 within {height} rows, got {rows}")
    state = (weights, velocity, listed, start, len(rows), since, first_open, now)
    try:
        _kernel("rows").catch_up(*state, decay, drift, factors, normals)
    except ValueError:
        raise BadInput(f"expected every row's since in {first_open}..{now}, got one outside") from None


def never_closer_to_zero(factors: NDArray[np.float64]) -> Floats32:
    """Noise factors in float32, rounded away from zero: rounding may only add noise."""
    nearest = factors.astype(np.float32)
    further = np.nextafter(nearest, np.copysign(np.float32(np.inf), nearest))
    return np.where(np.abs(nearest) < np.abs(factors), further, nearest)


def sgd_block(weights: Floats32, velocity: Floats32, rate: float, momentum: float = 0.0) -> None:
    """A step of SGD over a flat block: w -= rate * v for a velocity that has gathered the gradient, and
    v *= momentum for the next step.
    """
    _expect_block(weights, velocity=velocity)
    _kernel("blocks").sgd_block(weights, velocity, rate, momentum)


def adam_block(
    weights: Floats32,
    first: Floats32,
    second: Floats32,
    gradient: Floats32,
    *,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    correction1: float,
    correction2: float,
    shrink: float = 0.0,
    width: int = 0,
) -> None:
    """A step of Adam (Kingma and Ba, arXiv:1412.6980) over a flat block; clears the gathered gradient.

    g = gradient; m = beta1 m + (1 - beta1) g; s = beta2 s + (1 - beta2) g^2;
    w -= rate (m / correction1) / (sqrt(s / correction2) + epsilon). A `shrink` is an L2 penalty on embeddings:
    the block is of whole rows, `width` entries each, and g += shrink * w for all but the first entry of a row.
    """
    _expect_block(weights, first=first, second=second, gradient=gradient)
    state = (weights, first, second, gradient)
    settings = (rate, beta1, beta2, epsilon, correction1, correction2)
    _kernel("blocks").adam_block(*state, *settings, shrink, _row_width(shrink, width, len(weights)))


def yogi_block(
    weights: Floats32,
    first: Floats32,
    second: Floats32,
    gradient: Floats32,
    *,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    correction1: float,
    correction2: float,
    shrink: float = 0.0,
    width: int = 0,
) -> None:
    """The same with s = s - (1 - beta2) sign(s - g^2) g^2 (Yogi: Zaheer and others, NeurIPS 2018)."""
    _expect_block(weights, first=first, second=second, gradient=gradient)
    state = (weights, first, second, gradient)
    settings = (rate, beta1, beta2, epsilon, correction1, correction2)
    _kernel("blocks").yogi_block(*state, *settings, shrink, _row_width(shrink, width, len(weights)))


def rmsprop_block(
    weights: Floats32,
    second: Floats32,
    gradient: Floats32,
    *,
    rate: float,
    decay: float,
    epsilon: float,
    shrink: float = 0.0,
    width: int = 0,
) -> None:
    """The same with s = decay s + (1 - decay) g^2 and w -= rate g / (sqrt(s) + epsilon)."""
    _expect_block(weights, second=second, gradient=gradient)
    settings = (rate, decay, epsilon, shrink, _row_width(shrink, width, len(weights)))
    _kernel("blocks").rmsprop_block(weights, second, gradient, *settings)


def _kernel(name: str) -> ModuleType:
    return load_kernel(f"_{name}", "reference_training")


def _expect_table(name: str, table: Floats32, *, writable: bool = False) -> int:
    """Its columns, one at least."""
    expect_array(name, table, np.float32, (ANY, ANY), writable=writable)
    if not table.shape[1]:
        raise BadInput(f"expected {name} with at least one column, got none")
    return int(table.shape[1])


def _expect_batch(ids: Ids, first_trained: int, height: int) -> int:
    """Its examples."""
    expect_array("ids", ids, np.int32, (ANY, ANY))
    expect_below("ids", ids, height)
    if not 0 <= first_trained <= ids.shape[1]:
        raise BadInput(f"expected first_trained in 0..{ids.shape[1]}, got {first_trained}")
    return len(ids)


def _expect_block(weights: Floats32, **changed: Floats32) -> None:
    expect_array("weights", weights, np.float32, (ANY,), writable=True)
    for name, array in changed.items():
        expect_array(name, array, np.float32, weights.shape, writable=True)


def _row_width(shrink: float, width: int, entries: int) -> int:
    """The width that a penalty goes by; 0 where there is none, for one plain loop."""
    if shrink == 0:
        return 0
    if width < 1 or entries % width:
        raise BadInput(f"expected a block of whole rows to shrink, got {entries} entries for width={width}")
    return width
