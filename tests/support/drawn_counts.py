"""Counts drawn from the models that estimates are made for: root -> groups -> contexts, or a lattice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tacit.arrays import Floats, Integers
from tacit.deliver.server.estimates import RateEstimator
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.counts import Counts, LevelCounts

CONTEXT: Levels = (0,)
GROUP: Levels = (1,)
ROOT: Levels = (2,)
CHAIN: tuple[Levels, ...] = (CONTEXT, GROUP, ROOT)

Draw = Callable[[np.random.Generator, Floats, Levels], Floats]


@dataclass(frozen=True)
class Noise:
    sd: float = 0.0
    totals: bool = False  # clicks and totals are counted, not clicks and no-clicks


EXACT = Noise()


def beta_children(strength: float) -> Draw:
    """Rates around the parents' as Shrinkage supposes."""

    def draw(rng: np.random.Generator, rate: Floats, _: Levels) -> Floats:
        rate = np.clip(rate, 1e-9, 1 - 1e-9)
        return rng.beta(strength * rate, strength * (1 - rate))

    return draw


def spread_children(spread: float) -> Draw:
    """Rates around the parents' with the same variance everywhere, as MomentShrinkage supposes."""

    def draw(rng: np.random.Generator, rate: Floats, _: Levels) -> Floats:
        strength = rate * (1 - rate) / spread - 1
        return rng.beta(strength * rate, strength * (1 - rate))

    return draw


def few(rng: np.random.Generator, shape: tuple[int, ...]) -> Integers:
    """Long-tailed sizes, many of them 0 to 5."""
    return np.floor(np.exp(rng.normal(1.5, 1.5, shape))).astype(np.int64)


def flat(rng: np.random.Generator, shape: tuple[int, ...]) -> Integers:
    return rng.integers(0, 400, shape)


def level_counts(
    levels: Levels, clicks: Integers, shown: Integers, noise: Noise, rng: np.random.Generator
) -> LevelCounts:
    """Every (node, ad) listed, with noise in each count."""
    nodes, ads = clicks.shape
    noisy: Floats = clicks + rng.normal(0, noise.sd, clicks.shape)
    total = np.asarray(shown[:, 0] + rng.normal(0, noise.sd, nodes), np.float64)
    others = shown - clicks + rng.normal(0, noise.sd, clicks.shape)
    return LevelCounts(
        levels,
        nodes,
        ads,
        total if noise.totals else np.asarray(shown.sum(1), np.float64),
        np.arange(nodes + 1) * ads,
        np.tile(np.arange(ads), nodes),
        noisy.ravel(),
        None if noise.totals else (noisy + others).ravel(),
        noise.sd,
    )


def drawn(
    rng: np.random.Generator,
    draw: Draw,
    mean: float,
    sizes: Callable[[np.random.Generator, tuple[int, ...]], Integers],
    noise: Noise = EXACT,
    *,
    groups: int = 10,
    each: int = 4,
    ads: int = 150,
) -> tuple[Counts, dict[Levels, Floats]]:
    """Counts, and the rates they were drawn with."""
    root = draw(rng, np.full((1, ads), mean), ROOT)
    group = draw(rng, np.repeat(root, groups, 0), GROUP)
    context = draw(rng, np.repeat(group, each, 0), CONTEXT)
    shown = sizes(rng, (groups * each, 1 if noise.totals else ads)) * np.ones((1, ads), np.int64)
    clicks = rng.binomial(shown, context)
    by_level: dict[Levels, LevelCounts] = {}
    for levels, below in zip(CHAIN, (1, each, groups), strict=True):
        clicks, shown = (part.reshape(-1, below, ads).sum(1) for part in (clicks, shown))
        by_level[levels] = level_counts(levels, clicks, shown, noise, rng)
    parent: dict[tuple[Levels, Levels], Integers] = {
        (CONTEXT, GROUP): np.repeat(np.arange(groups), each),
        (GROUP, ROOT): np.zeros(groups, np.int64),
    }
    return Counts(CHAIN, by_level, parent), {CONTEXT: context, GROUP: group, ROOT: root}


def everything(estimator: RateEstimator, counts: Counts, levels: Levels) -> tuple[Floats, Floats]:
    found = estimator.rates(counts, levels, np.arange(counts.at(levels).nodes), np.arange(counts.ads))
    return found.rate, found.variance
