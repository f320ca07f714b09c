"""How near greedy choice and its bound come to the best set, where all sets can be tried."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from tacit.bench.deliver_instances import Instance, Maker, market, uniform
from tacit.bench.measurement import Measurement
from tacit.kernels.greedy import lazy_greedy

ADS, CONTEXTS, SIZES = 14, 30, (2, 3, 4, 5)
QUALITY_BAR = 0.98


def quality(count: int) -> list[Measurement]:
    """Greedy over the best set, and the bound over it, on so many instances of either kind.

    The bar is for a market. Where values are uniform no ad is better than others, and more is left to choice.
    """
    return [*_quality("market", market, count, QUALITY_BAR), *_quality("uniform", uniform, count, None)]


def _quality(name: str, maker: Maker, count: int, bar: float | None) -> list[Measurement]:
    shares, bounds = [], []
    for seed in range(count):
        instance, k = maker(ADS, CONTEXTS, seed), SIZES[seed % len(SIZES)]
        best = brute_force(instance, k)
        picked = lazy_greedy(instance.values, instance.weight, k, certify=True)
        assert picked.bound is not None
        shares.append(float(picked.gains.sum()) / best)
        bounds.append(picked.bound / best)
    settings = (
        f"{count} instances ({name}) of {ADS} ads x {CONTEXTS} contexts, k of {', '.join(map(str, SIZES))}, "
        f"all sets tried; greedy over best: mean {np.mean(shares):.4f}, equal in "
        f"{np.mean(np.array(shares) > 1 - 1e-9):.0%}; bound over best: mean {np.mean(bounds):.3f}; guaranteed: "
        f"1 - 1/e = {1 - 1 / np.e:.3f}"
    )
    return [
        Measurement(f"greedy_over_best_min_{name}", min(shares), "x", bar, settings=settings),
        Measurement(f"bound_over_best_min_{name}", min(bounds), "x", 1 - 1e-9, settings=settings),
    ]


def brute_force(instance: Instance, k: int) -> float:
    """What the best k ads earn."""
    sets = np.array(list(combinations(range(len(instance.values)), k)))
    best = instance.values[sets].astype(np.float64).max(axis=1)  # (sets, contexts)
    return float((best @ instance.weight).max())
