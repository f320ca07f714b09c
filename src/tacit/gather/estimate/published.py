"""The law of the noise in a published count: that of all parties together, and how far out it reaches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from scipy.signal import convolve

from tacit import expect
from tacit.gather.wire.noise import ServerNoise, UserNoise
from tacit.privacy.noise.discrete_laplace import DiscreteLaplace
from tacit.privacy.noise.shares import SkellamShares
from tacit.privacy.noise.skellam import Skellam
from tacit.privacy.noise.symmetric import SymmetricLaw
from tacit.privacy.randomness import Words
from tacit.schema.statistics import Floats, Integers

LEFT_OUT = 2.0**-62  # more than the chance of what a law's masses leave out
DIRECT = 2**14  # masses up to which laws are added up without FFT, which is only right to 1e-16 in all


@dataclass(frozen=True)
class PublishedNoise:
    """A sum of independent symmetric laws; at least one."""

    parts: tuple[SymmetricLaw, ...]

    @classmethod
    def of(cls, noise: ServerNoise | UserNoise, answered: int) -> PublishedNoise:
        """All of the noise in a count if so many devices answered, and none left its share out."""
        return _published(noise, expect.whole("answered", answered, at_least=0))

    def outside(self, alpha: float) -> float:
        """P(|X| > alpha), rounded up."""
        return min(2 * self.above(alpha), 1.0) if alpha >= 0 else 1.0

    def above(self, threshold: float) -> float:
        """P(X > threshold), rounded up; for thresholds >= 0."""
        place = math.floor(expect.at_least_zero("threshold", threshold)) + 1
        seen = float(self._tails[place]) if place < len(self._tails) else 0.0
        return seen + len(self.parts) * LEFT_OUT

    def threshold(self, probability: float) -> int:
        """The least whole number >= 0 that noise exceeds with at most this probability."""
        chance = float(expect.probability("probability", probability))
        return int(np.searchsorted(-self._tails[1:], -(chance - len(self.parts) * LEFT_OUT)))

    def pmf(self, reach: int) -> Floats:
        """(2 reach + 1,) P(X = x) for x from -reach to reach."""
        padded = np.zeros(reach + 1)
        padded[: len(self.masses)] = self.masses[: reach + 1]
        both: Floats = np.r_[padded[:0:-1], padded]
        return both

    def sample(self, n: int, words: Words) -> Integers:
        """Exact draws, each part by itself."""
        drawn: Integers = np.sum([part.sample_array(n, words) for part in self.parts], axis=0, dtype=np.int64)
        return drawn

    @cached_property
    def masses(self) -> Floats:
        """P(X = 0), P(X = 1), ... as far as the parts' go."""
        found = np.ones(1)
        for part in self.parts:
            one = np.r_[part.masses[:0:-1], part.masses]
            method = "direct" if max(len(one), len(found)) <= DIRECT else "fft"
            found = np.maximum(convolve(found, one, method=method), 0.0)
        half: Floats = found[len(found) // 2 :]
        return half

    @cached_property
    def _tails(self) -> Floats:
        """P(X >= 0), P(X >= 1), ..."""
        tails: Floats = np.cumsum(self.masses[::-1])[::-1]
        return tails


@lru_cache(maxsize=16)
def _published(noise: ServerNoise | UserNoise, answered: int) -> PublishedNoise:
    if isinstance(noise, ServerNoise):
        return PublishedNoise((noise.law, noise.law))
    shares, both = noise.shares, 2
    missing = min(shares.parties - answered, shares.noisy)
    noise.server_law(answered)  # refuses more answers than parties
    wholes = Fraction(answered + both * missing, shares.noisy)  # of the law
    if isinstance(shares, SkellamShares):
        return PublishedNoise((Skellam(shares.variance * wholes),))
    rest = wholes - math.floor(wholes)
    parts: list[SymmetricLaw] = [DiscreteLaplace(shares.scale)] * math.floor(wholes)
    return PublishedNoise((*parts, *((shares.part(rest),) if rest else ())))
