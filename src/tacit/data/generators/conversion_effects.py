"""The law of the conversion log's labels: effects that advertisers share, and how far each goes its own way.

The logit of a click on an ad of advertiser a is base_a + 1.3 L + .3 F + .7 S, each part standardised over the
law of the rows (for each advertiser by itself) and cut at +-4:

    L = sum over fields f of gain_af e_af[v_f]
    F = sum over pairs of fields f, g of the products u_af[v_f] . u_ag[v_g], vectors of four
    S = sum over actions t of .85^t w[action] (M_a[topic, ad's topic] + q[item]), t = 0 being the most recent

Shared effects e, u, M, q are N(0, 1), w = .4, .7, 1, 1.6. An advertiser of shift d in [0, 1] has

    e_a = sqrt(1 - d^2) e + d e',    u_a likewise,       e', u' of its own: N(0, 1)       (world "value" only)
    gain_af = exp(spread d n_af),    n_af ~ N(0, 1);     spread 1 in world "value", 3 in world "lowrank"
    M_a = M + d A B^T / sqrt(2),     A, B: 32 x 2 of N(0, 1).

So in world "lowrank" an advertiser differs by a few numbers a field and a rank-2 matrix, which low-rank
adapters can follow; in world "value" also in every single value, which only new embeddings can. Other labels of
the same click have the logit own base + slope (logit - base_a) + noise N(0, 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from tacit import expect
from tacit.data.generators.action_sequences import ITEMS, LONGEST, TOPICS, Sequences
from tacit.data.generators.fields import CUT, VECTOR, Ranks
from tacit.data.generators.generated import generator

WEIGHTS = (1.3, 0.3, 0.7)
FADE = 0.85
ACTION_WEIGHTS = np.array([0.4, 0.7, 1.0, 1.6])
SHARED, OWN = 2_001, 2_002  # places among the seed's streams

Reals = NDArray[np.float64]


class Kind(expect.Choice):
    """What sets an advertiser apart; see the module."""

    VALUE = "value"
    LOWRANK = "lowrank"


@dataclass(frozen=True)
class Clicks:
    """What the labels depend on. The first of the fields is the ad's topic."""

    advertiser: NDArray[np.int64]
    ranks: Ranks
    sequences: Sequences


@dataclass(frozen=True)
class Effects:
    """Every advertiser's effects, from their shifts."""

    seed: int
    values: tuple[int, ...]  # how many each field has
    shifts: tuple[float, ...]
    kind: Kind

    def parts(self, clicks: Clicks) -> Reals:
        """L, F and S of each click as its advertiser has them: (3, rows)."""
        rows = len(clicks.advertiser)
        linear, squares, vectors = np.zeros(rows), np.zeros(rows), np.zeros((rows, VECTOR))
        for field, ranks in enumerate(clicks.ranks):
            at = clicks.advertiser * sum(self.values) + sum(self.values[:field]) + ranks
            linear += self._tables.linear[at]
            carried = self._tables.vectors[at]
            vectors += carried
            squares += np.einsum("rk,rk->r", carried, carried)
        pairs = 0.5 * (np.einsum("rk,rk->r", vectors, vectors) - squares)
        return np.stack([linear, pairs, self._recent(clicks)])

    def _recent(self, clicks: Clicks) -> Reals:
        past = clicks.sequences
        weight = np.where(past.counts, FADE ** np.arange(LONGEST) * ACTION_WEIGHTS[past.action], 0.0)
        cell = (clicks.advertiser[:, None] * TOPICS + past.topic) * TOPICS + clicks.ranks[0][:, None]
        liking = self._tables.matrix[cell] + self._tables.item[past.item]
        recent: Reals = np.einsum("rt,rt->r", weight, liking)
        return recent

    @cached_property
    def _tables(self) -> _Tables:
        draw = generator(self.seed, SHARED)
        total = sum(self.values)
        shared = draw.standard_normal((total, 1 + VECTOR))
        matrix = draw.standard_normal((TOPICS, TOPICS))
        item = draw.standard_normal(ITEMS)
        effects, matrices = [], []
        for advertiser, shift in enumerate(self.shifts):
            own = generator(self.seed, OWN, advertiser)
            gains = np.exp(
                (1 if self.kind is Kind.VALUE else 3) * shift * own.standard_normal(len(self.values))
            )
            left, right = own.standard_normal((2, TOPICS, 2))
            mixed = shared
            if self.kind is Kind.VALUE:
                mixed = np.sqrt(1 - shift**2) * shared + shift * own.standard_normal(shared.shape)
            scale = np.ones_like(shared)
            scale[:, 0] = np.repeat(gains, self.values)
            effects.append(scale * mixed)
            matrices.append(matrix + shift * left @ right.T / np.sqrt(2))
        every = np.concatenate(effects)
        return _Tables(every[:, 0].copy(), every[:, 1:].copy(), np.stack(matrices).ravel(), item)


@dataclass(frozen=True)
class _Tables:
    """By advertiser, field and value; the matrix by advertiser, topic of the action and topic of the ad."""

    linear: Reals
    vectors: Reals
    matrix: Reals
    item: Reals


@dataclass(frozen=True)
class Label:
    """One of a click's labels: its rate with each advertiser, and how it hangs on the common signal."""

    name: str
    rates: tuple[float, ...]
    slope: float = 1.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        for rate in self.rates:
            expect.probability(f"rate of {self.name}", rate)

    def logits(self, signal: Reals, draw: np.random.Generator) -> Reals:
        """Without the base."""
        return self.slope * signal + (self.noise * draw.standard_normal(len(signal)) if self.noise else 0.0)


@dataclass(frozen=True)
class ConversionModel:
    """The probabilities of the labels; a sample of clicks, whoever advertised, gives scales and bases."""

    effects: Effects
    labels: tuple[Label, ...]
    sample: Clicks

    def signal(self, clicks: Clicks) -> Reals:
        """The conversion's logit without its base."""
        means, spreads = self._moments
        parts = (self.effects.parts(clicks) - means[:, clicks.advertiser]) / spreads[:, clicks.advertiser]
        signal: Reals = np.asarray(WEIGHTS) @ np.clip(parts, -CUT, CUT)
        return signal

    def probabilities(self, clicks: Clicks, draw: np.random.Generator) -> list[Reals]:
        """For each label; `draw` gives the noise that some of them have."""
        signal = self.signal(clicks)
        return [
            expit(self._bases[index][clicks.advertiser] + label.logits(signal, draw))
            for index, label in enumerate(self.labels)
        ]

    def _as(self, advertiser: int) -> Clicks:
        """The sample, had all of it been this advertiser's."""
        return Clicks(
            np.full_like(self.sample.advertiser, advertiser), self.sample.ranks, self.sample.sequences
        )

    @cached_property
    def _moments(self) -> tuple[Reals, Reals]:
        """Means and spreads, each (3, advertisers)."""
        parts = [self.effects.parts(self._as(advertiser)) for advertiser in range(len(self.effects.shifts))]
        return np.stack([p.mean(1) for p in parts], 1), np.stack([p.std(1) for p in parts], 1)

    @cached_property
    def _bases(self) -> Sequence[Reals]:
        """For each label, by advertiser: so that the mean probability over the sample is the label's rate."""
        signals = [self.signal(self._as(advertiser)) for advertiser in range(len(self.effects.shifts))]
        bases = []
        for index, label in enumerate(self.labels):
            draw = generator(self.effects.seed, SHARED, index)
            pairs = zip(signals, label.rates, strict=True)
            bases.append(np.array([_base(label.logits(signal, draw), rate) for signal, rate in pairs]))
        return bases


def _base(logits: Reals, rate: float) -> float:
    return float(brentq(lambda base: expit(base + logits).mean() - rate, -30, 30))
