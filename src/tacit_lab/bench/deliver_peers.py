"""Instances of ads by contexts, made up, and other ways to choose k of the ads greedily.

An instance says what each ad is worth in each context, and how likely contexts are. Peers are the greedy
choice as it is written down, in NumPy or compiled, and submodlib's.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats
from tacit.kernels.greedy import SparseValues, gains_beside

BLOCK = 2000  # ads made at a time, so that making them takes little more room than they do
TOPICS = 30


@dataclass(frozen=True, eq=False)
class Instance:
    values: NDArray[np.float32]  # (ads, contexts)
    weight: Floats  # (contexts,)


Maker = Callable[[int, int, int], Instance]


def market_instance(ads: int, contexts: int, seed: int) -> Instance:
    """Lognormal bids, and click rates of about 2% that vary by ad, by whether the topics meet, and by pair."""
    draws = np.random.default_rng((seed, ads, contexts))
    bid = np.exp(0.8 * draws.standard_normal(ads))
    liking = -3.9 + 0.8 * draws.standard_normal(ads)
    topic, wanted = draws.integers(TOPICS, size=ads), draws.integers(TOPICS, size=contexts)
    values = np.empty((ads, contexts), np.float32)
    for first in range(0, ads, BLOCK):
        own = slice(first, min(first + BLOCK, ads))
        part = values[own]
        draws.standard_normal(dtype=np.float32, out=part)
        part *= 0.5
        part += liking[own, None].astype(np.float32)
        part += np.where(topic[own, None] == wanted, np.float32(1.5), np.float32(0))
        np.exp(-part, out=part)
        part += 1
        np.divide(bid[own, None].astype(np.float32), part, out=part)
    return Instance(values, _zipf(contexts, draws))


def uniform_instance(ads: int, contexts: int, seed: int) -> Instance:
    """Independent uniform values: the gains of all ads are alike, which is hard on those who bound them."""
    draws = np.random.default_rng((seed, ads, contexts))
    return Instance(draws.random((ads, contexts), dtype=np.float32), np.full(contexts, 1 / contexts))


def sparse_instance(ads: int, contexts: int, entries: int, seed: int) -> tuple[SparseValues, Floats]:
    """Each ad has bids for some contexts only."""
    draws = np.random.default_rng((seed, ads, contexts))
    stride = contexts // entries
    context = np.arange(entries) * stride + draws.integers(stride, size=(ads, entries))
    bid = np.exp(0.8 * draws.standard_normal(ads))
    value = bid[:, None] * 0.02 * np.exp(draws.standard_normal((ads, entries)))
    offsets = np.arange(ads + 1, dtype=np.int64) * entries
    flat = value.astype(np.float32).reshape(-1)
    return SparseValues(offsets, context.astype(np.int32).reshape(-1), flat, contexts), _zipf(contexts, draws)


def _zipf(contexts: int, draws: np.random.Generator) -> Floats:
    weight: Floats = draws.permutation(1 / np.arange(1.0, contexts + 1))
    weight /= weight.sum()
    return weight


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
