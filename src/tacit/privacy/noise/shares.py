"""Noise that nobody knows: each party adds a share, and servers make up for shares that never came.

Of the agreed parties, some do not answer and some answer without noise, unseen. The second kind is covered by a
stated fraction `silent`: shares are sized so that those of the others alone add up to the whole law. The first
kind is visible, and each of two servers, independently, adds the *whole* missing part: a server knows its own
noise, so only what the other one adds protects against it.

All laws here are exact: shares are whole-numbered and add up without rounding. A rounded Gaussian share would
not; with a hundred thousand parties it rounds to zero for nearly all of them, and the sum carries no noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.noise.distributions import Polya, Skellam

Law = TypeVar("Law", Skellam, Polya)


class _Shares(ABC, Generic[Law]):
    """The counting that both kinds have in common. One share is 1 / `noisy` of the whole law."""

    parties: int
    silent: Fraction

    @abstractmethod
    def part(self, fraction: Fraction) -> Law:
        """That part of the whole law, 0 < fraction <= 1."""

    @property
    def noisy(self) -> int:
        """How many of the agreed parties add their share for sure, if all answer."""
        return self.parties - math.floor(self.silent * self.parties)

    @property
    def share(self) -> Law:
        """What each party adds to each of its counts."""
        return self.part(Fraction(1, self.noisy))

    def missing_law(self, answered: int) -> Law | None:
        """What *each* server adds to each count, independently, if this many parties answered; or nothing."""
        missing = self._missing_shares(answered)
        return self.part(Fraction(missing, self.noisy)) if missing else None

    def total_variance(self, answered: int) -> float:
        """The variance of a published count if nobody was silent: all shares, and what both servers added."""
        return float(self.share.variance) * (answered + 2 * self._missing_shares(answered))

    def _missing_shares(self, answered: int) -> int:
        if expect.whole("answered", answered, at_least=0) > self.parties:
            raise BadInput(f"expected answered <= parties = {self.parties}, got {answered}")
        # Never more than the whole law, which servers add alone where no more answered than may be silent.
        return min(self.parties - answered, self.noisy)

    def _check_parties(self) -> None:
        expect.whole("parties", self.parties, at_least=1)
        object.__setattr__(self, "silent", expect.probability("silent", self.silent, zero=True))


@dataclass(frozen=True)
class SkellamShares(_Shares[Skellam]):
    """Shares of Skellam(variance): each party adds Skellam(variance / noisy).

    Guarantee:  against one server, at least that of `Skellam(variance)` on each count, by PLD from its masses.
    Neighbours: the contribution of one party set to zero (zero-out): the set of parties is agreed and public.
    Assumes:    the servers do not collude, and each adds `missing_law(answered)`; at most the fraction `silent`
                of the agreed parties leaves its noise out, tells a server, or draws it from another law.
    Source:     Agarwal, Kairouz, Liu 2021 (arXiv 2110.04995): sums of Skellam are Skellam.
    """

    variance: Fraction
    parties: int
    silent: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", expect.positive("variance", self.variance))
        self._check_parties()

    def part(self, fraction: Fraction) -> Skellam:
        return Skellam(self.variance * fraction)


@dataclass(frozen=True)
class PolyaShares(_Shares[Polya]):
    """Shares of DiscreteLaplace(scale): each party adds Polya(scale, 1 / noisy).

    Guarantee:  against one server, pure epsilon-DP, epsilon = sensitivity / scale, where sensitivity bounds the
                L1 distance between the counts of two neighbours.
    Neighbours: the contribution of one party set to zero (zero-out): the set of parties is agreed and public.
    Assumes:    the servers do not collude, and each adds `missing_law(answered)`; at most the fraction `silent`
                of the agreed parties leaves its noise out, tells a server, or draws it from another law.
    Source:     Goryczka, Xiong 2017 (doi 10.1109/TDSC.2015.2484326), the distributed geometric mechanism.
    """

    scale: Fraction
    parties: int
    silent: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", expect.positive("scale", self.scale))
        self._check_parties()

    def part(self, fraction: Fraction) -> Polya:
        return Polya(self.scale, fraction)
