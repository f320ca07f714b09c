"""Mechanism of noised sums: clips derivatives, bounds how far a label moves a sum, adds noise on a grid.

The noise is drawn from the room's secret, the question and the sum itself: the same question about the same
labels has the same answer, and other labels get unrelated noise.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tacit.arrays import Floats
from tacit.cleanroom.protocol.derivatives import BlockDerivatives
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.layout import ParameterLayout
from tacit.cleanroom.protocol.modes import NoiseLaw
from tacit.cleanroom.protocol.requests import Purpose, StatisticRequest
from tacit.cleanroom.protocol.row_derivatives import Derivatives, ExampleDerivatives, RowDerivatives
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.room.noise_samplers import gaussian_steps, laplace_steps
from tacit.entropy import KeyedEntropy
from tacit.errors import RoomRefused
from tacit.privacy.randomness import Source

CANCELLING = 64.0
"""How many times the clipping norm the pairs of one example may add up to, each taken by itself. Honest pairs
add up to a few times their sum's norm; crafted ones that cancel are scaled down, because what rounding leaves
of them is as large as the pairs are."""

MOST_WRITTEN = 2**32
"""Pairs times parameters of one slab's sequences that are written out for their absolute norms: seconds."""

_UNIT = 2.0**-53  # the relative error of one operation in float64
_UP = 1 + 2.0**-40  # more than what rounding takes from the few operations below


def clip_factors(derivatives: Derivatives, clip_norm: float, noise: NoiseLaw) -> Floats:
    """A factor in (0, 1] for each example, (n,): factor times derivative has a norm of at most `clip_norm`.

    The norm is over all blocks together: L2 for Gaussian noise, L1 for Laplace. A slab that would take too long
    is refused.

    Guarantee:  for every example, factor |d| <= clip_norm and factor s <= 64 clip_norm, in exact arithmetic on
                the decoded numbers, where s adds up the norms of the example's pairs (s = |d| for one pair).
    Neighbours: no label is looked at: the factors are the same in both.
    Assumes:    finite derivatives of at most 2^32 in size, as the decoders see to.
    Source:     norms of outer products: Goodfellow 2015 (arXiv 1510.01799). A computed norm of several pairs
                misses the true one by at most `_slack` times s, which is added to it (Higham, Accuracy and
                Stability of Numerical Algorithms, 2nd edition, section 3.1: inner products).
    """
    if noise is NoiseLaw.LAPLACE and sum(map(_count_written_out, derivatives.values())) > MOST_WRITTEN:
        said = f"with Laplace noise, expected at most {MOST_WRITTEN} pairs x parameters of sequences in a slab"
        raise RoomRefused(RoomRefusal.OVERSIZED, f"{said}, got more: send fewer examples in each")
    first = next(iter(derivatives.values()))
    norms, spread, slack = (np.zeros(len(first)) for _ in range(3))
    for each in derivatives.values():
        norm, pairs = _norms(each, noise)
        norms += norm
        spread += pairs
        slack += _slack(each) * pairs
    if noise is NoiseLaw.GAUSSIAN:  # so far these were squares
        norms, spread = np.sqrt(norms + slack), np.sqrt(spread)
    else:
        norms = norms + slack
    norms, spread = norms * _UP, spread * _UP
    largest = np.maximum(np.maximum(norms, spread / CANCELLING), clip_norm)
    shares: Floats = clip_norm / (largest * _UP)
    return np.where(largest > clip_norm, shares, 1.0)


def _norms(derivatives: ExampleDerivatives, noise: NoiseLaw) -> tuple[Floats, Floats]:
    """The norm of each example and the sum over its pairs' norms, both (n,); squared for Gaussian noise.

    Of rows of an embedding both are the norm: each comes once per example, so that none cancels another.
    """
    gaussian = noise is NoiseLaw.GAUSSIAN
    norms = derivatives.squared_norms() if gaussian else derivatives.absolute_norms()
    if isinstance(derivatives, RowDerivatives) or derivatives.single:
        return norms, norms
    return norms, derivatives.triangle_norms() ** 2 if gaussian else derivatives.triangle_absolute_norms()


def _count_written_out(derivatives: ExampleDerivatives) -> int:
    if isinstance(derivatives, RowDerivatives):
        return 0
    counts = derivatives.factors.counts
    return int(counts[counts > 1].sum(dtype=np.int64)) * derivatives.block.parameters


def _slack(derivatives: ExampleDerivatives) -> float:
    """What rounding can add to or take from a norm of this block, in (squared) sums of its pairs' norms.

    Inner products of rows and cols entries, or the matrix written out, then a sum of pairs^2 terms or of all
    entries: each operation errs by 2^-53 of a partial sum, which is at most the sum of the pairs' norms. Rows
    are distinct, so that all that an example sends of them is no more than the matrix has.
    """
    block, pairs = derivatives.block, 1
    if isinstance(derivatives, BlockDerivatives):
        pairs = int(derivatives.factors.counts.max(initial=1))
    operations = block.rows + block.cols + block.parameters + pairs**2 + 16
    return 4 * operations * _UNIT


def sum_rounding_error(operations: int, rows: int, several: bool, clip_norm: float) -> float:
    """How far the computed sum of `rows` clipped derivatives can be from the exact one, in the same norm.

    An entry is a sum of products in float64 in some order: its error is at most 2^-53 for each operation,
    times the sum of the products' sizes. Over all entries that is at most the sum of the pairs' norms, which
    `clip_factors` bounds (slopes are within 1).
    """
    most = CANCELLING if several else 1.0
    return 2 * operations * _UNIT * rows * most * clip_norm


STATISTIC_GRID = 2.0**-30
"""Features and weights of cells are multiples of it, so that sums over up to 2^22 rows are exact."""

FINEST = 2.0**-20  # what the grid may add to a step's sensitivity, in clipping norms
COARSEST = 2.0**-10
"""What rounding and the grid may add to a sensitivity, as a share of it; beyond, a request is refused. So the
grid that suits twice the sensitivity without them suits the final one."""

_EXACT_BITS = 51  # sums stay below 2^51 steps of the grid, and so does noise, but next to never
# Deviations or scales that noise hardly ever exceeds.
_FARTHEST = {NoiseLaw.GAUSSIAN: 16.0, NoiseLaw.LAPLACE: 256.0}


@dataclass(frozen=True)
class GridSensitivity:
    """How far replacing one record's labels can move a sum that lies on a grid, in the noise's norm."""

    sensitivity: float
    grid: float


def step_sensitivity(
    terms: Terms, layout: ParameterLayout, rows: int, *, slabs: int, largest: int, several: bool = True
) -> GridSensitivity:
    """The reach of a sum of clipped derivatives times slopes, computed in float64 and put on a grid.

    The rows came in `slabs` slabs, each summed by itself: an entry is a sum of at most `largest` products
    in each. `several`: an example may be a sum of several pairs.

    Guarantee:  for any derivatives and logits that are sent, and any two sets of labels that differ in one
                record, the two sums on the grid differ by at most `sensitivity`: in L2, or in L1 for Laplace.
    Neighbours: replace label, for one record; it takes part in the batch once.
    Assumes:    `clip_factors`, so that the exact sums differ by at most clip_norm (the slopes p - y of two
                labels differ by 1); `sum_rounding_error` for each of the two computed sums; putting a number
                on the grid moves it by at most half a step, so two move apart by at most a step in each of
                the D entries: sqrt(D) steps in L2, D in L1.
    Source:     that rounding belongs to the sensitivity: Casacuberta, Shoemate, Vadhan, Wagaman 2022 (arXiv
                2207.10635).
    """
    clip, entries = terms.clip_norm, layout.parameters
    # An entry of a slab's sum: products and a sum over its pairs, chunk by chunk, of at least a pair each. Then
    # one more addition for each slab.
    operations = 3 * largest + slabs + 8
    rounding = sum_rounding_error(operations, rows, several, clip)
    across = math.sqrt(entries) if terms.noise is NoiseLaw.GAUSSIAN else float(entries)
    coarse = _power_above(2 * rows * clip * 2.0**-_EXACT_BITS)
    grid = max(_power_below(FINEST * clip / across), coarse, _grid_for_noise(terms, 2 * clip))
    _refuse_coarse(2 * rounding + across * grid, clip)
    return GridSensitivity((clip * _UP + 2 * rounding + across * grid) * _UP, grid)


def statistic_sensitivity(terms: Terms, request: StatisticRequest) -> GridSensitivity:
    """The reach of a sum of labels times (cells, features), by default without any rounding.

    Guarantee:  any two sets of labels that differ in one record have sums on the grid that differ by at most
                `sensitivity` in L2: |phi_i| <= sqrt(indices weight^2 + 1). A metric's differ by at most 1 in
                one cell, so in L1 too.
    Neighbours: replace label, for one record; it takes part once.
    Assumes:    each row's cells are distinct, as decoders see to; `sums.StatisticQuery` clips features to a
                norm of 1 and puts them and the weights on a grid, towards zero, before they are added: sums
                are exact. Where noise is so large that it needs a coarser grid, a step in each entry is
                added.
    Source:     the triangle inequality; a label is 0 or 1.
    """
    norm = math.sqrt(request.indices * request.cell_weight**2 + (1 if request.features else 0))
    grid = max(STATISTIC_GRID, _grid_for_noise(terms, 2 * norm))
    is_exact = grid == STATISTIC_GRID or (request.purpose is Purpose.METRIC and grid <= 1)
    rounding = 0.0 if is_exact else math.sqrt(request.cells + request.features) * grid
    _refuse_coarse(rounding, norm)
    return GridSensitivity((norm + rounding) * _UP, grid)


def round_to_grid(sums: Floats, grid: float) -> Floats:
    """Each number as the nearest multiple of the grid, a power of two."""
    snapped: Floats = np.rint(sums / grid) * grid + 0.0  # no -0.0: whether a zero has a sign would tell
    return snapped


def noise_source(secret: bytes, asked: bytes, sums: Floats) -> KeyedEntropy:
    """The stream that decides this release's noise: of the secret, all that was asked, and the sums themselves.

    With the sums in it, two sets of labels get unrelated noise; without them, a platform that asked the same
    before and after a label changed would see exactly what changed.
    """
    spelled = hashlib.sha256(sums.astype("<f8").tobytes()).digest()
    return KeyedEntropy(secret, b"tacit room, noise\n" + hashlib.sha256(asked).digest() + spelled)


def noise_scale(reach: GridSensitivity, terms: Terms) -> Fraction:
    """The deviation of Gaussian noise, or the scale of Laplace noise, that the terms ask for."""
    return Fraction(terms.noise_multiplier) * Fraction(reach.sensitivity)


def noise_stddev(reach: GridSensitivity, terms: Terms) -> float:
    """The noise's standard deviation, which the platform is told."""
    return float(noise_scale(reach, terms)) * (math.sqrt(2) if terms.noise is NoiseLaw.LAPLACE else 1.0)


def add_noise(sums: Floats, reach: GridSensitivity, terms: Terms, source: Source) -> Floats:
    """Sums on the grid plus noise on the grid.

    Guarantee:  one of the K releases of a record that `terms.statement` composes: Gaussian noise of
                noise_multiplier times the sensitivity, or pure epsilon / K by Laplace noise.
    Neighbours: replace label, for one record.
    Assumes:    `reach`; `noise_samplers.gaussian_steps`, `noise_samplers.laplace_steps`. Sums are whole
                numbers of steps of the grid, below 2^51, and noise is drawn in whole steps: what they add up
                to is exact, and what floating point makes of that depends on nothing else.
    Source:     the Gaussian mechanism: Balle, Wang 2018 (arXiv 1805.06530), theorem 8; the Laplace mechanism:
                Dwork, McSherry, Nissim, Smith 2006; traces of noise in floating point: Mironov 2012 (CCS).
    """
    drawn = laplace_steps if terms.noise is NoiseLaw.LAPLACE else gaussian_steps
    steps = drawn(len(sums), noise_scale(reach, terms) / Fraction(reach.grid), source)
    total: Floats = (np.rint(sums / reach.grid).astype(np.int64) + steps) * np.float64(reach.grid)
    return total


def noised_answer(
    sums: Floats, reach: GridSensitivity, terms: Terms, secret: bytes, asked: bytes
) -> tuple[Floats, float]:
    """The sums as they leave, on the grid and noised by the stream of `noise_source`; the noise's deviation."""
    snapped = round_to_grid(sums, reach.grid)
    noisy = add_noise(snapped, reach, terms, noise_source(secret, asked, snapped))
    return noisy, noise_stddev(reach, terms)


def _refuse_coarse(added: float, sensitivity: float) -> None:
    if added > COARSEST * sensitivity:
        said = f"expected rounding to add at most {COARSEST:g} of the sensitivity, got more"
        raise RoomRefused(RoomRefusal.OVERSIZED, f"{said}: send fewer rows, pairs or parameters")


def _grid_for_noise(terms: Terms, sensitivity: float) -> float:
    """A grid on which noise for this sensitivity has fewer than 2^51 steps."""
    farthest = _FARTHEST[terms.noise] * terms.noise_multiplier * sensitivity
    return _power_above(farthest * 2.0**-_EXACT_BITS)


def _power_below(number: float) -> float:
    return 2.0 ** math.floor(math.log2(number))


def _power_above(number: float) -> float:
    return 2.0 ** math.ceil(math.log2(number))
