"""Report-noisy-max as a private choice: add noise to scores of a public range, and choose the largest.

First from doubles to whole numbers: every candidate gets a public floor and a public cap, whole numbers out
of 2^64 whose ratio is at most e^epsilon. Weights are forced between them after all floating-point work, for
every input, so nothing that doubles do can break the guarantee. A floor is at least one word: no candidate
that was possible becomes impossible. Where signals are within 100 of each other, doubles are off by a
relative 2^-45 at most, and forcing them into their bounds moves them by no more; whole words and floors
move a probability by less than 2^-64; what then lacks to 2^64, or is too much, goes to the candidate that
has the most room for it. So no probability moves by more than 2^-44 + a 2^-63. Privacy rests on none of
this.

Then what a noisy maximum really spends: its exact worst case over all inputs, and the rate that spends as
asked. With the noise held fixed, raising a candidate's own score can only make it win, and raising
another's can only make it lose. So its chance is largest with its own score at the top of its range and all
others at the bottom of theirs, and smallest at the reverse: no pair of inputs tells more about it than
these two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from tacit import expect
from tacit.arrays import Floats
from tacit.errors import BadInput, SelfCheckFailed
from tacit.privacy.budget import exp_rounded_down, log_rounded_up
from tacit.privacy.choice.choice import check_scores, choose_by_weights
from tacit.privacy.choice.noise import Noise
from tacit.privacy.choice.scores import ScoreRule
from tacit.privacy.mechanisms.randomized_response import WHOLE
from tacit.privacy.randomness import WordSource

LARGEST_CORRECTION = 1e-7
"""Of all words, this share may be moved to mend rounding; more means that the law is another."""

WIDER = Fraction(1, 2**46)
"""Extremes in doubles may be off by this share of themselves: floors and caps leave room for it."""


@dataclass(frozen=True)
class WeightBounds:
    """Between `floors` and `caps`, one of each per candidate, lie the weights of every input.

    Guarantee:  weights in these bounds are epsilon-DP, epsilon = max ln(cap / floor), in whole numbers.
    Neighbours: any two vectors of private scores of one request.
    Assumes:    floors and caps come from public data; words are independent and exactly uniform.
    Source:     the definition of pure LDP; floors and caps as in `Floors`.
    """

    floors: tuple[int, ...]
    caps: tuple[int, ...]

    def __post_init__(self) -> None:
        ordered = all(1 <= low <= high for low, high in zip(self.floors, self.caps, strict=True))
        if not ordered or not sum(self.floors) <= WHOLE <= sum(self.caps):
            raise BadInput("expected a larger epsilon, got one that whole numbers out of 2^64 cannot keep")

    @classmethod
    def around(cls, log_least: Floats, log_most: Floats, epsilon: Fraction | None) -> WeightBounds:
        """The tightest around these extremes; with an epsilon, no ratio passes e^epsilon."""
        spare = WHOLE - len(log_least) + 1  # every other candidate keeps a word at least
        odds = None if epsilon is None else exp_rounded_down(epsilon)
        floors, caps = [], []
        for least, most in zip(np.exp(log_least).tolist(), np.exp(log_most).tolist(), strict=True):
            floor = min(max(1, math.ceil(Fraction(least) * (1 - WIDER) * WHOLE)), spare)
            cap = min(max(floor, math.ceil(Fraction(most) * (1 + WIDER) * WHOLE)), spare)
            floors.append(floor)
            caps.append(cap if odds is None else min(cap, math.floor(odds * floor)))
        return cls(tuple(floors), tuple(caps))

    @cached_property
    def epsilon(self) -> float:
        return log_rounded_up(max(Fraction(cap, low) for low, cap in zip(self.floors, self.caps, strict=True)))

    def weights(self, pmf: Floats) -> NDArray[np.uint64]:
        """Whole numbers in the bounds that sum to 2^64, next to the law; pmf (n, a), a >= 2."""
        floors, caps = np.array(self.floors, np.uint64), np.array(self.caps, np.uint64)
        words = np.ldexp(np.minimum(pmf, 1 - 2.0**-53), 64).astype(np.uint64)
        weights: NDArray[np.uint64] = np.clip(words, floors, caps)
        roughly = np.ldexp(weights.astype(np.float64).sum(axis=1), -64)
        if not np.all(np.abs(roughly - 1) <= LARGEST_CORRECTION):
            raise SelfCheckFailed("expected probabilities that sum to one within their bounds, got others")
        # Sums wrap around at 2^64, which is where they should end: what is seen is the excess, of either sign.
        excess = weights.sum(axis=1, dtype=np.uint64).view(np.int64)
        for _ in self.floors:  # each turn uses up one candidate's room, or ends it; one turn is the rule
            rows = np.flatnonzero(excess)
            if not rows.size:
                break
            self._mend(weights, excess, rows, floors, caps)
        if np.any(excess):
            raise SelfCheckFailed("expected room between floors and caps, got none")
        return weights

    @staticmethod
    def _mend(
        weights: NDArray[np.uint64],
        excess: NDArray[np.int64],
        rows: NDArray[np.intp],
        floors: NDArray[np.uint64],
        caps: NDArray[np.uint64],
    ) -> None:
        """Move these rows' excess off, or onto, the candidate with the most room for it."""
        some = weights[rows]
        over = excess[rows] > 0
        room = np.where(over[:, None], some - floors, caps - some)  # (rows, a)
        place = room.argmax(axis=1)
        step = np.minimum(room[np.arange(len(rows)), place], np.abs(excess[rows]).astype(np.uint64))
        weights[rows, place] = np.where(over, weights[rows, place] - step, weights[rows, place] + step)
        excess[rows] -= np.where(over, step.astype(np.int64), -step.astype(np.int64))


ROUNDING = 1e-9
"""By this share of it, doubles may put a worst case above what it is."""

FARTHEST_SIGNAL = 1e6
"""Signals are doubles: wider apart than this, their rounding would show in the probabilities."""


def log_extremes(noise: Noise, rule: ScoreRule, rate: float) -> tuple[Floats, Floats]:
    """ln of the smallest and of the largest chance that each candidate can have, whatever the private data."""
    expect.having("rule", rule, "low", "a rule of scores")
    low, high = rule.low, rule.high
    # Candidates with the same range have the same extremes: look at one of each kind.
    kinds, first, kind = np.unique(np.stack([low, high]), axis=1, return_index=True, return_inverse=True)
    count = kinds.shape[1]
    own = (np.arange(count), first)
    most, least = np.tile(low, (count, 1)), np.tile(high, (count, 1))
    most[own], least[own] = high[first], low[first]
    origin = high.max()
    signals = rate * (np.concatenate([least, most]) - origin)
    if not np.all(np.abs(signals) <= FARTHEST_SIGNAL):
        raise BadInput(
            f"expected scores within {FARTHEST_SIGNAL:g} times the noise of each other, got wider ones"
        )
    logs = noise.log_pmf(signals)
    return logs[:count][own][kind.ravel()], logs[count:][own][kind.ravel()]


def worst_case_epsilon(noise: Noise, rule: ScoreRule, rate: float) -> float:
    """The epsilon that the contest spends at this rate, to the precision of doubles."""
    least, most = log_extremes(noise, rule, rate)
    return max(0.0, float((most - least).max()))


def nominal_rate(rule: ScoreRule, epsilon: expect.Number) -> float:
    """epsilon / (2 Delta): enough noise for any number of candidates, and more than enough for few.

    Enough because of what `Noise` says of every noise in it.
    """
    return float(expect.positive("epsilon", epsilon) / 2) / rule.sensitivity


def calibrated_rate(noise: Noise, rule: ScoreRule, epsilon: expect.Number) -> float:
    """The largest rate at which the exact worst case is still at most epsilon, from public data alone.

    Found by bisection's faster kin, in logarithms, up or down from the nominal rate, and left on the safe side:
    the worst case there is at most epsilon, for any noise. It is the largest such rate where the worst case
    grows steadily with the rate, and never above what doubles can carry. A single candidate tells nothing at
    any rate, and gets the nominal one.
    """
    asked = float(expect.positive("epsilon", epsilon))
    low = nominal_rate(rule, epsilon)
    if rule.candidates == 1:
        return low

    def over(rate: float) -> float:
        return worst_case_epsilon(noise, rule, rate) - asked

    farthest = FARTHEST_SIGNAL / float(rule.high.max() - rule.low.min()) * (1 - 1e-12)
    high = low * (1 + 1e-9)  # where public scores differ the nominal rate often is the answer
    while over(low) > ROUNDING * asked:  # this noise is none of those that the nominal rate is for
        low, high = low / 2, low
    while over(high) <= 0:
        if high >= farthest:
            return farthest
        low, high = high, min(2 * high, farthest)
    rate = low if over(low) >= 0 else float(brentq(over, low, high, xtol=low * 1e-15, rtol=1e-15))
    step = 2.0**-51
    while over(rate) > 0:  # the root finder may end on either side
        rate, step = rate * (1 - step), 2 * step
    return rate


LIMIT_ROUNDING = 1e-8
"""Doubles may put a worst case this much above the limit; the whole numbers then keep the limit exactly."""


@dataclass(frozen=True)
class NoisyMax:
    """Choose the largest of rate x score + noise, by its exact law and from one word, not by drawing the noise.

    Guarantee:  pure epsilon-DP for the whole numbers that are sampled: each candidate's weight stays between a
                floor and a cap that are public, and epsilon = max ln(cap / floor) is at most `limit`, if given.
    Neighbours: any two vectors of private scores of this request.
    Assumes:    candidates, public scores, clipping bound and rate are public; one choice per request; words are
                independent and exactly uniform.
    Source:     Laro et al. 2023, algorithm 1; the laws in `noise`; floors and caps from `log_extremes`.
    """

    noise: Noise
    rule: ScoreRule
    rate: float
    limit: Fraction | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", Noise(self.noise))
        object.__setattr__(self, "rate", float(expect.positive("rate", self.rate)))
        if self.limit is not None:
            object.__setattr__(self, "limit", expect.positive("limit", self.limit))
            spent = worst_case_epsilon(self.noise, self.rule, self.rate)
            if spent > float(self.limit) + LIMIT_ROUNDING:
                raise BadInput(
                    f"expected a rate that spends at most {float(self.limit):g}, got one of {spent:g}"
                )

    @classmethod
    def nominal(cls, noise: Noise | str, rule: ScoreRule, epsilon: expect.Number) -> NoisyMax:
        """At the rate epsilon / (2 Delta), which spends less than epsilon; `epsilon` says how much."""
        return cls(Noise(noise), rule, nominal_rate(rule, epsilon), expect.positive("epsilon", epsilon))

    @classmethod
    def calibrated(cls, noise: Noise | str, rule: ScoreRule, epsilon: expect.Number) -> NoisyMax:
        """With as little noise as the exact worst case allows at this epsilon.

        >>> from tacit.privacy.choice import Scaled
        >>> ways = NoisyMax.nominal("gumbel", Scaled(4), 5), NoisyMax.calibrated("gumbel", Scaled(4), 5)
        >>> [round(way.epsilon, 2) for way in ways], round(ways[1].rate / ways[0].rate, 2)
        ([3.41, 5.0], 1.58)
        """
        noise = Noise(noise)
        return cls(noise, rule, calibrated_rate(noise, rule, epsilon), expect.positive("epsilon", epsilon))

    @property
    def candidates(self) -> int:
        return self.rule.candidates

    @cached_property
    def bounds(self) -> WeightBounds:
        """The public floors and caps of the weights; there are none to keep for a single candidate."""
        return WeightBounds.around(*log_extremes(self.noise, self.rule, self.rate), self.limit)

    @cached_property
    def epsilon(self) -> float:
        return 0.0 if self.candidates == 1 else self.bounds.epsilon

    def pmf(self, scores: ArrayLike) -> Floats:
        """In doubles: the law before it is rounded to whole numbers of words."""
        given = check_scores(scores, self.candidates)
        return self._pmf(given.reshape(-1, self.candidates)).reshape(given.shape)

    def weights(self, scores: ArrayLike) -> tuple[int, ...]:
        """For one request: how many of all 2^64 words choose each candidate."""
        given = check_scores(scores, self.candidates, axes=1)
        if self.candidates == 1:
            return (WHOLE,)
        return tuple(self.bounds.weights(self._pmf(given[None, :]))[0].tolist())

    def choose(self, scores: ArrayLike, words: WordSource) -> NDArray[np.int64]:
        """The candidate chosen for each request, from one word each; from none if there is only one."""
        given = check_scores(scores, self.candidates, axes=2)
        if self.candidates == 1:
            return np.zeros(len(given), np.int64)
        return choose_by_weights(self.bounds.weights(self._pmf(given)), words(len(given)))

    def _pmf(self, scores: Floats) -> Floats:
        """Chances for scores (n, a): relative to the top of the range, as in the worst case."""
        return self.noise.pmf(self.rate * (self.rule(scores) - self.rule.high.max()))
