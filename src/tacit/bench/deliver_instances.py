"""Ads by contexts, made up: what each ad is worth in each context, and how likely contexts are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.greedy import Csr

Floats = NDArray[np.float64]

BLOCK = 2000  # ads made at a time, so that making them takes little more room than they do
TOPICS = 30


@dataclass(frozen=True, eq=False)
class Instance:
    values: NDArray[np.float32]  # (ads, contexts)
    weight: Floats  # (contexts,)


Maker = Callable[[int, int, int], Instance]


def market(ads: int, contexts: int, seed: int) -> Instance:
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


def uniform(ads: int, contexts: int, seed: int) -> Instance:
    """Independent uniform values: the gains of all ads are alike, which is hard on those who bound them."""
    draws = np.random.default_rng((seed, ads, contexts))
    return Instance(draws.random((ads, contexts), dtype=np.float32), np.full(contexts, 1 / contexts))


def sparse(ads: int, contexts: int, entries: int, seed: int) -> tuple[Csr, Floats]:
    """Each ad has bids for some contexts only."""
    draws = np.random.default_rng((seed, ads, contexts))
    stride = contexts // entries
    context = np.arange(entries) * stride + draws.integers(stride, size=(ads, entries))
    bid = np.exp(0.8 * draws.standard_normal(ads))
    value = bid[:, None] * 0.02 * np.exp(draws.standard_normal((ads, entries)))
    offsets = np.arange(ads + 1, dtype=np.int64) * entries
    flat = value.astype(np.float32).reshape(-1)
    return Csr(offsets, context.astype(np.int32).reshape(-1), flat, contexts), _zipf(contexts, draws)


def _zipf(contexts: int, draws: np.random.Generator) -> Floats:
    weight: Floats = draws.permutation(1 / np.arange(1.0, contexts + 1))
    weight /= weight.sum()
    return weight
