"""An upper bound on E(X_1 + ... + X_n)+ for independent X with one finite law, by FFT on a tilted grid.

Three steps, and each can only raise the result:
1. Each value is split between its two neighbours on a grid so that its mean stays: (.)+ is convex.
2. The law is tilted by e^(lambda x), which moves the sum's mass to where it is positive, so that the FFT errs
   relative to the answer and not to one. E(S)+ = M(lambda)^n E_tilted[e^(-lambda S) S+].
3. The transform is cyclic. What wraps around from below only adds; what wraps from above is bounded by Chernoff
   and added, and so is an allowance for the rounding of the transform.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Floats = NDArray[np.float64]

_FEWEST_CELLS, _MOST_CELLS = 2**10, 2**17
_CELLS_PER_STDDEV = 24
_STDDEVS = 7.5
# The error of one Fourier coefficient of a pmf: a fast transform of 2^17 points errs by at most a few units in
# the last place (2^-53) for each of its 17 levels; 2^-45 leaves room for the exponentials of the tilt.
_COEFFICIENT_ERROR = 2.0**-45


def mean_positive_part(values: Floats, masses: Floats, count: int) -> float:
    """Never below E(X_1 + ... + X_count)+, where P(X = values[i]) = masses[i] and E X <= 0.

    The values must be at or above the true ones and the masses right to a few units in the last place.
    """
    highest, lowest = float(values.max()), float(values.min())
    if highest <= 0:
        return 0.0
    tilt = _centring_tilt(values, masses)
    stddev = _tilted_stddev(values, masses, tilt)
    step, cells = _grid(highest, lowest, stddev, count)
    places, split = _split(values, masses, step)
    on_grid = places.astype(np.float64) * step
    log_mgf = float(logsumexp(tilt * on_grid, b=split))
    tilted = split * np.exp(tilt * on_grid - log_mgf)

    pmf = np.bincount(places % cells, weights=tilted, minlength=cells)
    coefficients = np.fft.rfft(pmf)
    sizes, angles = np.abs(coefficients), np.angle(coefficients)
    summed = np.fft.irfft(sizes**count * np.exp(1j * ((count * angles) % (2 * math.pi))), cells)
    sums = np.arange(cells // 2) * step
    weights = sums * np.exp(-tilt * sums)
    found = float(weights @ np.maximum(summed[: cells // 2], 0.0))
    # |x^n - y^n| <= n |x - y| max(|x|, |y|)^(n-1) for each coefficient; a cell gets the mean over all of them.
    spread = 2 * float(np.sum((sizes + _COEFFICIENT_ERROR) ** (count - 1))) / cells
    error = (count + 2) * _COEFFICIENT_ERROR * spread
    inside = math.exp(count * (log_mgf + _COEFFICIENT_ERROR)) * (found + error * float(weights.sum()))
    if count * int(places.max()) < cells // 2:
        return inside
    return inside + _above(on_grid, split, count, tilt, stddev, top=cells // 2 * step)


def _centring_tilt(values: Floats, masses: Floats) -> float:
    """The lambda >= 0 at which the tilted mean is about zero: any lambda gives a bound, this one a good one."""
    highest = float(values.max())

    def mean(tilt: float) -> float:
        return float(np.sum(masses * values * np.exp(tilt * (values - highest))))

    low, high = 0.0, 1 / highest
    if mean(low) >= 0:
        return 0.0
    while mean(high) < 0 and high * highest < 500:
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) < 0 else (low, middle)
    return low


def _tilted_stddev(values: Floats, masses: Floats, tilt: float) -> float:
    weights = masses * np.exp(tilt * (values - values.max()))
    weights = weights / weights.sum()
    mean = float(weights @ values)
    return math.sqrt(max(float(weights @ (values - mean) ** 2), float(values.max()) ** 2 * 1e-12))


def _grid(highest: float, lowest: float, stddev: float, count: int) -> tuple[float, int]:
    """Step and number of cells: the whole range of the sum where that is small, else its bulk on both sides."""
    bulk = max(_STDDEVS * stddev * math.sqrt(count), 20 * (highest - lowest))
    half = 1.125 * min(bulk, count * max(highest, -lowest))
    wanted = 2 * half * _CELLS_PER_STDDEV / stddev
    cells = 2 ** math.ceil(math.log2(min(max(wanted, _FEWEST_CELLS), _MOST_CELLS)))
    return 2 * half / cells, cells


def _split(values: Floats, masses: Floats, step: float) -> tuple[NDArray[np.int64], Floats]:
    """The law on the grid with the same mean; the values are first raised by more than the split can round."""
    scaled = values / step
    scaled = scaled + (np.abs(scaled) + 1) * 2.0**-48
    below = np.floor(scaled)
    share = scaled - below
    places = np.concatenate([below, below + 1]).astype(np.int64)
    return places, np.concatenate([masses * (1 - share), masses * share])


def _above(values: Floats, masses: Floats, count: int, tilt: float, stddev: float, *, top: float) -> float:
    """Chernoff: E[S; S >= top] <= (top + 1/(e mu)) e^(-mu top) M(mu)^count, for any mu > 0."""
    bounds = []
    for further in (0.0, 1.0, 2.0, 4.0, 8.0):
        mu = tilt + further / (stddev * math.sqrt(count))
        if mu > 0:
            log_mgf = float(logsumexp(mu * values, b=masses)) + _COEFFICIENT_ERROR
            bounds.append((top + 1 / (math.e * mu)) * math.exp(min(count * log_mgf - mu * top, 700.0)))
    return min(bounds)
