"""Noisy-max choices for blocks of auctions: what top-m randomized response is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.auction.blocks import Offers
from tacit.errors import BadInput
from tacit.kernels.choices import choose_by_pmf, flip_pmf, softmax_pmf
from tacit.privacy.choice.noise import Noise, ragged_pmf, unit_nodes
from tacit.privacy.choice.noisy_max import calibrated_rate
from tacit.privacy.choice.scores import Scaled
from tacit.privacy.randomness import WordSource


@dataclass(frozen=True)
class NoisyMaxRule:
    """The largest of rate x score + noise, for measuring only: it promises nothing, and may not be shown.

    Without `clip_micros` scores are scaled into [0, 1] by each request's own best and worst; with it they stay
    within `clip_micros` of the public score. The rate is epsilon / (2 sensitivity), which spends less than
    epsilon; `calibrated` takes the largest that spends no more, for scaled scores. That is so of the law in
    real numbers. Choices are drawn from it in doubles, where chances of few words are rounded up and the
    likeliest gets all that is left over; so `epsilon` is what was asked, no bound on what a draw tells. What a
    device shows goes through `NoisyMax` in `privacy.choice`, whose whole numbers keep epsilon exactly.
    """

    measured_only: ClassVar[bool] = True

    epsilon_asked: float
    noise: Noise = Noise.EXPONENTIAL
    clip_micros: float | None = None
    calibrated: bool = False

    def __post_init__(self) -> None:
        expect.positive("epsilon", self.epsilon_asked)
        object.__setattr__(self, "noise", Noise(self.noise))
        if self.clip_micros is not None:
            expect.positive("clip_micros", self.clip_micros)
            if self.calibrated:
                raise BadInput("expected calibrated noise for scaled scores only, got a clipping bound")

    def epsilon(self, offers: Offers) -> Floats:
        """What was asked; see above."""
        return np.where(offers.sizes > 1, float(self.epsilon_asked), 0.0)

    def pmf(self, offers: Offers, scores: Floats) -> Floats:
        signals = _scaled(offers.offsets, scores) if self.clip_micros is None else self._clipped(offers, scores)
        rates = self._rates(offers)
        if self.noise is Noise.GUMBEL:
            return softmax_pmf(offers.offsets, signals, rates)
        if self.noise is Noise.EXPONENTIAL:
            return flip_pmf(offers.offsets, signals, rates, unit_nodes)
        some = np.concatenate([offers.offsets[:1], offers.offsets[1:][offers.sizes > 0]])
        return ragged_pmf(self.noise, signals * np.repeat(rates, offers.sizes), some)

    def choose(self, offers: Offers, scores: Floats, words: WordSource) -> Integers:
        return choose_by_pmf(offers.offsets, self.pmf(offers, scores), words(offers.count))

    def _clipped(self, offers: Offers, scores: Floats) -> Floats:
        low, high = self._ends(offers)
        # Large scores would lose digits times the rate.
        origin = np.repeat(_largest(offers, high), offers.sizes)
        return np.clip(scores, low, high) - origin

    def _ends(self, offers: Offers) -> tuple[Floats, Floats]:
        """The public range of each score, as doubles hold it."""
        bound = float(self.clip_micros or 0)
        low, high = offers.score - bound, offers.score + bound
        if not np.all(high > offers.score):
            raise BadInput("expected a clip_micros that a double can add to the public scores, got another")
        return low, high

    def _rates(self, offers: Offers) -> Floats:
        sizes = offers.sizes
        if self.clip_micros is not None:
            low, high = self._ends(offers)
            return float(self.epsilon_asked) / 2 / _largest(offers, high - low)
        if not self.calibrated:
            return np.full(len(sizes), float(self.epsilon_asked) / 2)
        by_size = np.zeros(int(sizes.max(initial=0)) + 1)
        for size in np.flatnonzero(np.bincount(sizes)).tolist():
            by_size[size] = _calibrated(self.noise, size, float(self.epsilon_asked)) if size > 1 else 1.0
        return by_size[sizes]


def _largest(offers: Offers, values: Floats) -> Floats:
    """The largest of each auction; 1 where it has no candidates."""
    some = offers.sizes > 0  # reduceat would read the next auction for an empty one
    largest = np.ones(offers.count)
    if some.any():
        largest[some] = np.maximum.reduceat(values, offers.offsets[:-1][some])
    return largest


def _scaled(offsets: Integers, scores: Floats) -> Floats:
    """What `Scaled` does to a request, for ragged auctions at once: size by size takes four times as long."""
    sizes = np.diff(offsets)
    starts = offsets[:-1][sizes > 0]  # reduceat would read the next auction for an empty one
    if not len(starts):
        return scores.copy()
    least, most = np.minimum.reduceat(scores, starts), np.maximum.reduceat(scores, starts)
    width = most - least
    shape = sizes[sizes > 0]
    below, by = np.repeat(least, shape), np.repeat(np.where(width > 0, width, 1.0), shape)
    fractions: Floats = (scores - below) / by
    return np.clip(fractions, 0.0, 1.0)


@lru_cache(maxsize=4096)
def _calibrated(noise: Noise, size: int, epsilon: float) -> float:
    return float(calibrated_rate(noise, Scaled(size), epsilon))
