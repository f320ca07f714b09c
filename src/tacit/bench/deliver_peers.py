"""Other ways to choose k ads greedily: as it is written down, in NumPy or compiled, and submodlib's."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable

import numpy as np

from tacit.bench.deliver_instances import Instance
from tacit.kernels.greedy import gains_beside

Chosen = tuple[list[int], float]
"""The ads, and what they earn together."""


def naive_numpy(instance: Instance, k: int) -> Chosen:
    """Every round looks at every ad, in the precision of the values."""
    values, weight = instance.values, instance.weight.astype(np.float32)
    best, ads = np.zeros(values.shape[1], np.float32), []
    for _ in range(k):
        gains = np.maximum(values - best, 0) @ weight
        ads.append(int(np.argmax(gains)))
        best = np.maximum(best, values[ads[-1]])
    return ads, float(instance.weight @ best)


def naive_compiled(instance: Instance, k: int) -> Chosen:
    """Every round looks at every ad, by the loop that ours looks at few ads with."""
    values, weight = instance.values, instance.weight
    best, ads = np.zeros(values.shape[1]), []
    for _ in range(k):
        ads.append(int(np.argmax(gains_beside(values, weight, best))))
        best = np.maximum(best, values[ads[-1]])
    return ads, float(weight @ best)


def submodlib_maker(instance: Instance, k: int) -> Callable[[], Callable[[], Chosen]] | None:
    """submodlib's facility location with ads as ground set and contexts as what they represent.

    It knows no weights: they are in the values. Its own object is made by the first call, and its lazy greedy
    is the second, which may be called again.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = importlib.import_module("submodlib").FacilityLocationFunction
        except ImportError:
            return None
    kernel = np.ascontiguousarray((instance.values * instance.weight.astype(np.float32)).T)  # (contexts, ads)

    def make() -> Callable[[], Chosen]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that SciPy has moved
            contexts, ads = kernel.shape
            chooser = made(n=ads, mode="dense", separate_rep=True, n_rep=contexts, sijs=kernel)

        def choose() -> Chosen:
            rules = {"stopIfZeroGain": False, "stopIfNegativeGain": False, "show_progress": False}
            found = chooser.maximize(budget=k, optimizer="LazyGreedy", verbose=False, **rules)
            ads = [int(ad) for ad, _ in found]
            return ads, float(instance.weight @ instance.values[ads].max(axis=0))

        return choose

    return make
