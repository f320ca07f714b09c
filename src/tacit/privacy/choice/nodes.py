"""Gauss-Legendre quadrature on [0, 1]."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray

from tacit.privacy.choice.choice import Floats

Long = NDArray[np.longdouble]


@cache
def unit_nodes(count: int) -> tuple[Floats, Floats]:
    """Nodes and weights on [0, 1]: exact for polynomials of degree below 2 `count`.

    NumPy's weights next to the ends are off by 1e-12 at 50 nodes, just where laws of many candidates have their
    mass. One more Newton step, in long doubles where the machine has them, leaves the last digit of a double.
    """
    nodes = leggauss(count)[0].astype(np.longdouble)
    value, slope = _legendre(nodes, count)
    nodes -= value / slope
    _, slope = _legendre(nodes, count)
    weights = 1 / ((1 - nodes**2) * slope**2)
    return ((1 + nodes) / 2).astype(np.float64), (weights / weights.sum()).astype(np.float64)


def _legendre(x: Long, degree: int) -> tuple[Long, Long]:
    """The Legendre polynomial of this degree and its derivative, by their recurrence."""
    before: Long = np.ones_like(x)
    value = x
    for n in range(2, degree + 1):
        before, value = value, ((2 * n - 1) * x * value - (n - 1) * before) / np.longdouble(n)
    return value, degree * (before - x * value) / (1 - x**2)
