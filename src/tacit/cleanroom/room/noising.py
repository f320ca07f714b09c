"""Noise on a grid, drawn from what it is added to: the same question about the same labels, the same answer."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.room.clipping import rounding_of_sum
from tacit.cleanroom.room.gaussian import gaussian_steps
from tacit.cleanroom.room.geometric import laplace_steps
from tacit.cleanroom.wire.agreement import Terms
from tacit.cleanroom.wire.blocks import Layout
from tacit.cleanroom.wire.modes import Noise
from tacit.cleanroom.wire.refusals import Refusal
from tacit.cleanroom.wire.requests import Purpose, StatisticRequest
from tacit.entropy import Keyed
from tacit.errors import RoomRefused
from tacit.privacy.randomness import Source

Doubles = NDArray[np.float64]

STATISTIC_GRID = 2.0**-30
"""Features and weights of cells are multiples of it, so that sums over up to 2^22 rows are exact."""

FINEST = 2.0**-20  # what the grid may add to a step's sensitivity, in clipping norms
COARSEST = 2.0**-10
"""What rounding and the grid may add to a sensitivity, as a share of it; beyond, a request is refused. So the
grid that suits twice the sensitivity without them suits the final one."""

_EXACT_BITS = 51  # sums stay below 2^51 steps of the grid, and so does noise, but next to never
_FARTHEST = {Noise.GAUSSIAN: 16.0, Noise.LAPLACE: 256.0}  # deviations or scales that noise hardly ever exceeds
_UP = 1 + 2.0**-40


@dataclass(frozen=True)
class Reach:
    """How far replacing one record's labels can move a sum that lies on a grid, in the noise's norm."""

    sensitivity: float
    grid: float


def reach_of_step(
    terms: Terms, layout: Layout, rows: int, *, slabs: int, largest: int, several: bool = True
) -> Reach:
    """The reach of a sum of clipped derivatives times slopes, computed in float64 and put on a grid.

    The rows came in so many slabs, each summed by itself: an entry is a sum of at most `largest` products in
    each. `several`: an example may be a sum of several pairs.

    Guarantee:  for any derivatives and logits that are sent, and any two sets of labels that differ in one
                record, the two sums on the grid differ by at most `sensitivity`: in L2, or in L1 for Laplace.
    Neighbours: replace label, for one record; it takes part in the batch once.
    Assumes:    `clipping.kept_shares`, so that the exact sums differ by at most clip_norm (the slopes p - y of
                two labels differ by 1); `clipping.rounding_of_sum` for each of the two computed sums; putting
                a number on the grid moves it by at most half a step, so two move apart by at most a step in
                each of the D entries: sqrt(D) steps in L2, D in L1.
    Source:     that rounding belongs to the sensitivity: Casacuberta, Shoemate, Vadhan, Wagaman 2022 (arXiv
                2207.10635).
    """
    clip, entries = terms.clip_norm, layout.parameters
    # An entry of a slab's sum: products and a sum over its pairs, chunk by chunk, of at least a pair each. Then
    # one more addition for each slab.
    operations = 3 * largest + slabs + 8
    rounding = rounding_of_sum(operations, rows, several, clip)
    across = math.sqrt(entries) if terms.noise is Noise.GAUSSIAN else float(entries)
    coarse = _power_above(2 * rows * clip * 2.0**-_EXACT_BITS)
    grid = max(_power_below(FINEST * clip / across), coarse, _grid_for_noise(terms, 2 * clip))
    _refuse_coarse(2 * rounding + across * grid, clip)
    return Reach((clip * _UP + 2 * rounding + across * grid) * _UP, grid)


def reach_of_statistic(terms: Terms, request: StatisticRequest) -> Reach:
    """The reach of a sum of labels times (cells, features), by default without any rounding.

    Guarantee:  any two sets of labels that differ in one record have sums on the grid that differ by at most
                `sensitivity` in L2: |phi_i| <= sqrt(indices weight^2 + 1). A metric's differ by at most 1 in
                one cell, so in L1 too.
    Neighbours: replace label, for one record; it takes part once.
    Assumes:    each row's cells are distinct, as decoders see to; `aggregating` clips features to a norm of 1
                and puts them and the weights on a grid, towards zero, before they are added: sums are exact.
                Where noise is so large that it needs a coarser grid, a step in each entry is added.
    Source:     the triangle inequality; a label is 0 or 1.
    """
    norm = math.sqrt(request.indices * request.cell_weight**2 + (1 if request.features else 0))
    grid = max(STATISTIC_GRID, _grid_for_noise(terms, 2 * norm))
    is_exact = grid == STATISTIC_GRID or (request.purpose is Purpose.METRIC and grid <= 1)
    rounding = 0.0 if is_exact else math.sqrt(request.cells + request.features) * grid
    _refuse_coarse(rounding, norm)
    return Reach((norm + rounding) * _UP, grid)


def on_grid(sums: Doubles, grid: float) -> Doubles:
    """Each number as the nearest multiple of the grid, a power of two."""
    snapped: Doubles = np.rint(sums / grid) * grid + 0.0  # no -0.0: whether a zero has a sign would tell
    return snapped


def noise_source(secret: bytes, asked: bytes, sums: Doubles) -> Keyed:
    """The stream that decides this release's noise: of the secret, all that was asked, and the sums themselves.

    With the sums in it, two sets of labels get unrelated noise; without them, whoever asked the same before and
    after a label changed would see exactly what changed.
    """
    spelled = hashlib.sha256(sums.astype("<f8").tobytes()).digest()
    return Keyed(secret, b"tacit room, noise\n" + hashlib.sha256(asked).digest() + spelled)


def noise_scale(reach: Reach, terms: Terms) -> Fraction:
    """The deviation of Gaussian noise, or the scale of Laplace noise, that the terms ask for."""
    return Fraction(terms.noise_multiplier) * Fraction(reach.sensitivity)


def noise_stddev(reach: Reach, terms: Terms) -> float:
    """The noise's standard deviation, which the platform is told."""
    return float(noise_scale(reach, terms)) * (math.sqrt(2) if terms.noise is Noise.LAPLACE else 1.0)


def noised(sums: Doubles, reach: Reach, terms: Terms, source: Source) -> Doubles:
    """Sums on the grid plus noise on the grid.

    Guarantee:  one of the K releases of a record that `terms.statement` composes: Gaussian noise of
                noise_multiplier times the sensitivity, or pure epsilon / K by Laplace noise.
    Neighbours: replace label, for one record.
    Assumes:    `reach`; `gaussian.gaussian_steps`, `geometric.laplace_steps`. Sums are whole numbers of steps
                of the grid, below 2^51, and noise is drawn in whole steps: what they add up to is exact, and
                what floating point makes of that depends on nothing else.
    Source:     the Gaussian mechanism: Balle, Wang 2018 (arXiv 1805.06530), theorem 8; the Laplace mechanism:
                Dwork, McSherry, Nissim, Smith 2006; traces of noise in floating point: Mironov 2012 (CCS).
    """
    drawn = laplace_steps if terms.noise is Noise.LAPLACE else gaussian_steps
    steps = drawn(len(sums), noise_scale(reach, terms) / Fraction(reach.grid), source)
    total: Doubles = (np.rint(sums / reach.grid).astype(np.int64) + steps) * np.float64(reach.grid)
    return total


def _refuse_coarse(added: float, sensitivity: float) -> None:
    if added > COARSEST * sensitivity:
        said = f"expected rounding to add at most {COARSEST:g} of the sensitivity, got more"
        raise RoomRefused(Refusal.OVERSIZED, f"{said}: send fewer rows, pairs or parameters")


def _grid_for_noise(terms: Terms, sensitivity: float) -> float:
    """A grid on which noise for this sensitivity has fewer than 2^51 steps."""
    farthest = _FARTHEST[terms.noise] * terms.noise_multiplier * sensitivity
    return _power_above(farthest * 2.0**-_EXACT_BITS)


def _power_below(number: float) -> float:
    return 2.0 ** math.floor(math.log2(number))


def _power_above(number: float) -> float:
    return 2.0 ** math.ceil(math.log2(number))
