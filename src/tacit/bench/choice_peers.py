"""Peers that choose one candidate privately, a call a request."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable

Loop = Callable[[list[float]], object]

PEERS = ("opendp", "diffprivlib")


def opendp_loop(epsilon: float) -> Loop | None:
    """OpenDP's noisy maximum under pure DP: exponential noise, scores of sensitivity 1 that may move apart."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return None
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
    loop: Loop = dp.m.make_noisy_max(*space, dp.max_divergence(), scale=2 / epsilon)
    return loop


def diffprivlib_loop(epsilon: float) -> Loop | None:
    """diffprivlib's permute-and-flip, which is made anew for every request's scores."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            mechanism = importlib.import_module("diffprivlib.mechanisms").PermuteAndFlip
        except ImportError:  # also where its scikit-learn is too new for it
            return None

    def loop(scores: list[float]) -> object:
        return mechanism(epsilon=epsilon, sensitivity=1.0, utility=scores).randomise()

    return loop
