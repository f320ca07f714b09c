"""The model of the generated conversion log: users' recent actions, and the effects that decide the labels.

Actions. Every user has an endless stream of actions that can be read at any time and is never stored. User u
has three topics of 32 and acts 2 to 17 times per day. Action number e is a hash of (key, u, e): its topic is
one of the user's three, or with probability .2 any of the 32; its item is one of 64; its kind is one of four,
of decreasing frequency. So two sequences of one user that were read a little apart overlap as they would in a
real log.

Labels. The logit of a click on an ad of advertiser a is base_a + 1.3 L + .3 F + .7 S, each part standardised
over the law of the rows (per advertiser) and clipped at +-4:

    L = sum over fields f of gain_af e_af[v_f]
    F = sum over pairs of fields f, g of the products u_af[v_f] . u_ag[v_g], vectors of four
    S = sum over actions t of .85^t w[action] (M_a[topic, ad's topic] + q[item]), t = 0 being the most recent

Shared effects e, u, M, q are N(0, 1), w = .4, .7, 1, 1.6. An advertiser of shift d in [0, 1] has

    e_a = sqrt(1 - d^2) e + d e',    u_a likewise,       e', u' of its own: N(0, 1)       (world "value" only)
    gain_af = exp(spread d n_af),    n_af ~ N(0, 1);     spread 1 in world "value", 3 in world "lowrank"
    M_a = M + d A B^T / sqrt(2),     A, B: 32 x 2 of N(0, 1).

So in world "lowrank" an advertiser differs by a few numbers per field and a rank-2 matrix, which low-rank
adapters can follow; in world "value" also in every single value, which only new embeddings can. Other labels
of the same click have the logit own base + slope (logit - base_a) + noise N(0, 1).
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
from tacit.arrays import Floats, Integers, Words
from tacit.data.generators.fields import CUT, VECTOR, Ranks
from tacit.data.generators.worlds import seeded_generator

TOPICS, ITEMS = 32, 64
SHORTEST, LONGEST = 4, 16
RANDOM_TOPIC = 0.2
ACTION_FREQUENCIES = (0.55, 0.25, 0.12, 0.08)
DAY = 86_400.0


GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class ActionSequences:
    """One sequence per row, the most recent action first; beyond its length a row's actions do not count."""

    length: Integers  # (rows,)
    topic: Integers  # (rows, LONGEST)
    item: Integers
    action: Integers

    @property
    def counts(self) -> NDArray[np.bool_]:
        counts: NDArray[np.bool_] = np.arange(LONGEST) < self.length[:, None]
        return counts


def recent_actions(key: int, user: Integers, second: Integers, length: Integers) -> ActionSequences:
    """The last `length` actions of each user before these seconds; `key`, below 2^63, is the world's."""
    about = _mix(np.full(1, key, dtype=np.uint64) + user.astype(np.uint64) * GOLDEN)
    a_day = 2 + _bits(about, 0, 4)
    phase = _bits(about, 4, 16) / 2**16
    happened = LONGEST + (a_day * (second / DAY) + phase).astype(np.int64)
    number = happened[:, None] - 1 - np.arange(LONGEST)
    event = _mix(about[:, None] + number.astype(np.uint64) * GOLDEN)

    step = 2 * _bits(about, 25, 4) + 1  # odd, so that the three topics differ
    favourite = _bits(about, 20, 5)[:, None] + (3 * _bits(event, 0, 16) >> 16) * step[:, None]
    anything = _bits(event, 16, 16) < RANDOM_TOPIC * 2**16
    kinds = np.cumsum(ACTION_FREQUENCIES)[:-1] * 2**16
    return ActionSequences(
        length=length,
        topic=np.where(anything, _bits(event, 32, 5), favourite % TOPICS),
        item=_bits(event, 37, 6),
        action=np.searchsorted(kinds, _bits(event, 43, 16), side="right"),
    )


def _mix(bits: Words) -> Words:
    """A bijection after which neighbours look unrelated: SplitMix64's last step (Steele et al. 2014)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _bits(word: Words, start: int, count: int) -> Integers:
    cut: Integers = ((word >> np.uint64(start)) & np.uint64(2**count - 1)).astype(np.int64)
    return cut


WEIGHTS = (1.3, 0.3, 0.7)
FADE = 0.85
ACTION_WEIGHTS = np.array([0.4, 0.7, 1.0, 1.6])
SHARED, OWN = 2_001, 2_002  # places among the seed's streams


class AdvertiserShift(expect.Choice):
    """How conversions of one advertiser differ from all others': the two worlds of the module's docstring."""

    VALUE = "value"
    LOWRANK = "lowrank"


@dataclass(frozen=True)
class ConversionClicks:
    """Clicks, with all that their labels depend on. The first of the fields is the ad's topic."""

    advertiser: NDArray[np.int64]
    ranks: Ranks
    sequences: ActionSequences


@dataclass(frozen=True)
class AdvertiserEffects:
    """Every advertiser's effects, from their shifts."""

    seed: int
    values: tuple[int, ...]  # how many each field has
    shifts: tuple[float, ...]
    kind: AdvertiserShift

    def parts(self, clicks: ConversionClicks) -> Floats:
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

    def _recent(self, clicks: ConversionClicks) -> Floats:
        past = clicks.sequences
        weight = np.where(past.counts, FADE ** np.arange(LONGEST) * ACTION_WEIGHTS[past.action], 0.0)
        cell = (clicks.advertiser[:, None] * TOPICS + past.topic) * TOPICS + clicks.ranks[0][:, None]
        liking = self._tables.matrix[cell] + self._tables.item[past.item]
        recent: Floats = np.einsum("rt,rt->r", weight, liking)
        return recent

    @cached_property
    def _tables(self) -> _Tables:
        draw = seeded_generator(self.seed, SHARED)
        total = sum(self.values)
        shared = draw.standard_normal((total, 1 + VECTOR))
        matrix = draw.standard_normal((TOPICS, TOPICS))
        item = draw.standard_normal(ITEMS)
        effects, matrices = [], []
        for advertiser, shift in enumerate(self.shifts):
            own = seeded_generator(self.seed, OWN, advertiser)
            gains = np.exp(
                (1 if self.kind is AdvertiserShift.VALUE else 3) * shift * own.standard_normal(len(self.values))
            )
            left, right = own.standard_normal((2, TOPICS, 2))
            mixed = shared
            if self.kind is AdvertiserShift.VALUE:
                mixed = np.sqrt(1 - shift**2) * shared + shift * own.standard_normal(shared.shape)
            scale = np.ones_like(shared)
            scale[:, 0] = np.repeat(gains, self.values)
            effects.append(scale * mixed)
            matrices.append(matrix + shift * left @ right.T / np.sqrt(2))
        every = np.concatenate(effects)
        return _Tables(every[:, 0].copy(), every[:, 1:].copy(), np.stack(matrices).ravel(), item)


@dataclass(frozen=True)
class _Tables:
    """Effects by advertiser, field and value; the matrix by advertiser, topic of the action and of the ad."""

    linear: Floats
    vectors: Floats
    matrix: Floats
    item: Floats


@dataclass(frozen=True)
class LabelLaw:
    """One of a click's labels: its rate with each advertiser, and how it depends on the common signal."""

    name: str
    rates: tuple[float, ...]
    slope: float = 1.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        for rate in self.rates:
            expect.probability(f"rate of {self.name}", rate)

    def logits(self, signal: Floats, draw: np.random.Generator) -> Floats:
        """The label's logits without their base."""
        return self.slope * signal + (self.noise * draw.standard_normal(len(signal)) if self.noise else 0.0)


@dataclass(frozen=True)
class ConversionLaw:
    """The probabilities of the labels; a sample of clicks, whoever advertised, gives scales and bases."""

    effects: AdvertiserEffects
    labels: tuple[LabelLaw, ...]
    sample: ConversionClicks

    def signal(self, clicks: ConversionClicks) -> Floats:
        """The conversion's logit without its base."""
        means, spreads = self._moments
        parts = (self.effects.parts(clicks) - means[:, clicks.advertiser]) / spreads[:, clicks.advertiser]
        signal: Floats = np.asarray(WEIGHTS) @ np.clip(parts, -CUT, CUT)
        return signal

    def probabilities(self, clicks: ConversionClicks, draw: np.random.Generator) -> list[Floats]:
        """The probability of each label; `draw` gives the noise that some of them have."""
        signal = self.signal(clicks)
        return [
            expit(self._bases[index][clicks.advertiser] + label.logits(signal, draw))
            for index, label in enumerate(self.labels)
        ]

    def _as(self, advertiser: int) -> ConversionClicks:
        """The sample, had all of it been this advertiser's."""
        return ConversionClicks(
            np.full_like(self.sample.advertiser, advertiser), self.sample.ranks, self.sample.sequences
        )

    @cached_property
    def _moments(self) -> tuple[Floats, Floats]:
        """Means and spreads, each (3, advertisers)."""
        parts = [self.effects.parts(self._as(advertiser)) for advertiser in range(len(self.effects.shifts))]
        return np.stack([p.mean(1) for p in parts], 1), np.stack([p.std(1) for p in parts], 1)

    @cached_property
    def _bases(self) -> Sequence[Floats]:
        """The base of each label by advertiser, so that the mean probability over the sample is its rate."""
        signals = [self.signal(self._as(advertiser)) for advertiser in range(len(self.effects.shifts))]
        bases = []
        for index, label in enumerate(self.labels):
            draw = seeded_generator(self.effects.seed, SHARED, index)
            pairs = zip(signals, label.rates, strict=True)
            bases.append(np.array([_base(label.logits(signal, draw), rate) for signal, rate in pairs]))
        return bases


def _base(logits: Floats, rate: float) -> float:
    return float(brentq(lambda base: expit(base + logits).mean() - rate, -30, 30))
