"""The noise in published counts: its law, which contexts stand out from it, and how far a rate may be off.

The law is that of the noise of all parties together.

Which contexts have enough support to look below them is decided on noisy totals, so on released numbers only.
A fixed threshold of a few events expands nearly half of all empty contexts, as noise alone exceeds it: at a
standard deviation of 34, a threshold of 2 expands 48%. Calibrated to the noise it expands as few as one
likes. What is asked next gets noise of its own, so counts of children are without bias, however the parents
were chosen. The totals that decided are not: given that it passed, a total's noise is positive in the mean.
`LargestTotals` asks a stated number of questions instead, and no count is ever held against a threshold.

Accuracy: with n = clicks + no-clicks, an estimate is (alpha, beta)-accurate if with probability at least beta

    (clicks - alpha) / (n + 2 alpha)  <=  estimate  <=  (clicks + alpha) / (n - 2 alpha).

It is where both counts carry noise of at most alpha, if n > 2 alpha and rates are cut to [0, 1]. (Uncut they
need clicks >= alpha too: a negative numerator grows with its denominator.)

Source: Hardt and Nath, CCS 2012, appendix A.2, for accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.signal import convolve

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.errors import BadInput
from tacit.gather.protocol.noise import ServerNoise, UserNoise
from tacit.privacy.noise.distributions import DiscreteLaplace, Skellam
from tacit.privacy.noise.exact_sampler import SymmetricLaw
from tacit.privacy.noise.shares import SkellamShares
from tacit.privacy.randomness import WordSource

LEFT_OUT = 2.0**-62  # more than the chance of what a law's masses leave out
DIRECT = 2**14  # masses up to which laws are added up without FFT, which is only right to 1e-16 in all


@dataclass(frozen=True)
class PublishedNoise:
    """A sum of independent symmetric laws; at least one."""

    parts: tuple[SymmetricLaw, ...]

    @classmethod
    def of(cls, noise: ServerNoise | UserNoise, answered: int) -> PublishedNoise:
        """All of the noise in a count if `answered` devices did, and none left its share out."""
        return _published_noise(noise, expect.whole("answered", answered, at_least=0))

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

    def sample(self, n: int, words: WordSource) -> Integers:
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
def _published_noise(noise: ServerNoise | UserNoise, answered: int) -> PublishedNoise:
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


class SupportRule(Protocol):
    """Chooses the nodes to look below; deterministic, and by its arguments alone."""

    def expand(self, totals: Floats, noise: PublishedNoise) -> NDArray[np.bool_]:
        """(nodes,) whether to ask about a node's children next."""


@dataclass(frozen=True)
class AboveNoise:
    """Nodes whose total is above what noise alone gives to `false_expansions` of them, if all were empty."""

    false_expansions: float = 0.1

    def __post_init__(self) -> None:
        expect.positive("false_expansions", self.false_expansions)

    def expand(self, totals: Floats, noise: PublishedNoise) -> NDArray[np.bool_]:
        above: NDArray[np.bool_] = totals > support_threshold(noise, max(len(totals), 1), self.false_expansions)
        return above


@dataclass(frozen=True)
class LargestTotals:
    """The `most` nodes with the largest totals; the first of equals. How much is asked is known beforehand."""

    most: int

    def __post_init__(self) -> None:
        expect.whole("most", self.most, at_least=1)

    def expand(self, totals: Floats, noise: PublishedNoise) -> NDArray[np.bool_]:  # noqa: ARG002
        chosen = np.zeros(len(totals), np.bool_)
        chosen[np.argsort(-totals, kind="stable")[: self.most]] = True
        return chosen


def support_threshold(noise: PublishedNoise, nodes: int, false_expansions: float) -> int:
    """The least total that at most `false_expansions` of `nodes` empty nodes exceed in the mean, exactly."""
    expected = float(expect.positive("false_expansions", false_expansions))
    share = expected / expect.whole("nodes", nodes, at_least=1)
    return noise.threshold(share) if share < 0.5 else 0


def both_within(noise: PublishedNoise, alpha: float) -> float:
    """The beta of all cells with n > 2 alpha: the chance that neither count is off by more, by the law."""
    return (1 - noise.outside(float(expect.at_least_zero("alpha", alpha)))) ** 2


def beta_of_cell(noise: PublishedNoise, alpha: float, clicks: int, no_clicks: int) -> float:
    """The chance that the estimate of a cell with these true counts keeps both bounds, to rounding.

    More than `both_within`: noise beyond alpha may cancel, in one of the counts or between them. An estimate
    whose noisy n is not positive counts as off.
    """
    alpha = float(expect.positive("alpha", alpha))
    shown = expect.whole("clicks", clicks, at_least=0) + expect.whole("no_clicks", no_clicks, at_least=0)
    if shown <= 2 * alpha:
        raise BadInput(f"expected more than 2 alpha = {2 * alpha:g} impressions, got {shown}")
    reach = len(noise.masses) - 1
    mass = noise.pmf(reach)
    most = np.r_[0.0, np.cumsum(mass)]  # P(Y < y), from y = -reach on
    low = (clicks - alpha) / (shown + 2 * alpha)
    high = (clicks + alpha) / (shown - 2 * alpha)
    numerator = clicks + np.arange(-reach, reach + 1, dtype=np.float64)  # noisy clicks
    # numerator / d <= high and >= low, for the noisy n = d > 0; a rate below 0 is 0, and one above 1 is 1.
    least_d = np.where((numerator > 0) & (high < 1), numerator / high, 0.0)
    most_d = np.where(numerator > 0, numerator / low if low > 0 else np.inf, np.inf if low <= 0 else -np.inf)
    offset = numerator + no_clicks  # d = offset + y
    first = np.maximum(np.ceil(least_d - 1e-9), 1.0) - offset
    last = np.floor(most_d + 1e-9) - offset
    inside = most[_mass_place(last + 1, reach)] - most[_mass_place(first, reach)]
    return float(mass @ np.maximum(inside, 0.0))


def gaussian_bound(noise_sd: float, alpha: float) -> float:
    """A beta by the Gaussian tail bound for each of two counts; below 0 it says nothing.

    1 - 2 sqrt(2 / pi) (s / alpha) e^(-alpha^2 / 2 s^2), with s the published noise's standard deviation.
    """
    ratio = float(expect.positive("alpha", alpha)) / float(expect.positive("noise_sd", noise_sd))
    return 1 - 2 * math.sqrt(2 / math.pi) / ratio * math.exp(-(ratio**2) / 2)


def paper_bound(*, noise_sd: float, alpha: float, parties: int, away: float) -> float:
    """The appendix's beta as printed, for comparison: it promises too much.

    1 - 3 / (2 pi alpha) s' e^(-alpha^2 / 2s'^2), with s' = noise_sd sqrt(N / ((1 - t) N - 1)), t the fraction
    `away` that was planned for, and all N answering. A Gaussian tail bound has sqrt(2 / pi) = .80 for each of
    two counts, so 1.60 where this has .48. The two bounds themselves fail less often than either count strays,
    but still with .80 in large cells of a low rate (see `beta_of_cell`).
    """
    expect.whole("parties", parties, at_least=1)
    planned = (1 - float(expect.probability("away", away, zero=True))) * parties - 1
    if planned <= 0:
        raise BadInput(f"expected (1 - away) parties > 1, got {planned + 1:g}")
    sd = float(expect.positive("noise_sd", noise_sd)) * math.sqrt(parties / planned)
    ratio = float(expect.positive("alpha", alpha)) / sd
    return 1 - 3 / (2 * math.pi) / ratio * math.exp(-(ratio**2) / 2)


def _mass_place(y: Floats, reach: int) -> Integers:
    place: Integers = np.clip(y + reach, 0, 2 * reach + 1).astype(np.int64)
    return place
