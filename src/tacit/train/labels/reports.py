"""Several noisy reports of one label, put together: what each list of answers says about the final label.

A label of 1 arrives with a delay. Report j is a flip of whether it had arrived by delay j, so an early 1 means
a final 1, and an early 0 means little. Of all converted labels the share `arrived[j]` is there by delay j. That
share is public; within the converted it does not depend on the features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod

import numpy as np

from tacit.privacy.mechanisms.randomized_response import RandomizedResponse

Answers = tuple[int, ...]


@dataclass(frozen=True)
class Reports:
    """The reports of one label so far: how each was flipped, and how many conversions were there by then."""

    responses: tuple[RandomizedResponse, ...]
    arrived: tuple[Fraction, ...]

    @property
    def answers(self) -> list[Answers]:
        """Every list of answers that can come; the first report is the first entry."""
        return list(product((0, 1), repeat=len(self.responses)))

    def likelihood(self, answers: Answers, label: int) -> Fraction:
        """The chance of these answers where the final label is 0 or 1."""
        if label == 0:
            return self._flips(answers, (0,) * len(answers))
        steps = [*self.arrived, Fraction(1)]
        total = Fraction(0)
        for since, share in enumerate(b - a for a, b in zip([Fraction(0), *steps], steps, strict=False)):
            seen = tuple(int(place >= since) for place in range(len(answers)))
            total += share * self._flips(answers, seen)
        return total

    def ratio(self, answers: Answers) -> Fraction:
        """How much likelier these answers are under a final label of 1 than under one of 0.

        All that they tell about the label is in this number.
        """
        return self.likelihood(answers, 1) / self.likelihood(answers, 0)

    def forward(self, answers: Answers) -> tuple[int, Fraction]:
        """One report, and the probability that it is true, which together say exactly what the answers say."""
        ratio = self.ratio(answers)
        return (1, ratio / (1 + ratio)) if ratio >= 1 else (0, 1 / (1 + ratio))

    def unbiased(self, answers: Answers, base_rate: Fraction) -> Fraction:
        """A target whose mean is the final label, with the least variance that a sum of the reports can have.

        Report j, turned into an unbiased estimate of "arrived by j" and divided by `arrived[j]`, has the final
        label as its mean; so has every weighting of them whose weights sum to 1.
        """
        return sum(
            (
                weight * (answer - response.lie) / (response.truth - response.lie) / share
                for weight, answer, response, share in zip(
                    self.weights(base_rate), answers, self.responses, self.arrived, strict=True
                )
            ),
            Fraction(0),
        )

    def weights(self, base_rate: Fraction) -> tuple[Fraction, ...]:
        """The weights of the reports; they sum to exactly 1, so that only variance hangs on the base rate."""
        shares = np.array([float(share) for share in self.arrived])
        flip = np.array([float(r.lie * r.truth / (r.truth - r.lie) ** 2) for r in self.responses])
        # Given a final 1, "arrived by i" and "arrived by j >= i" have the covariance a_i (1 - a_j).
        early, late = np.minimum.outer(shares, shares), np.maximum.outer(shares, shares)
        covariance = np.diag(flip / shares**2) + float(base_rate) * early * (1 - late) / np.outer(
            shares, shares
        )
        found = np.linalg.solve(covariance, np.ones(len(shares)))
        first = [Fraction(weight) for weight in (found / found.sum())[:-1].tolist()]
        return (*first, 1 - sum(first, Fraction(0)))

    def _flips(self, answers: Sequence[int], truths: Sequence[int]) -> Fraction:
        chances = (
            response.truth if answer == truth else response.lie
            for response, answer, truth in zip(self.responses, answers, truths, strict=True)
        )
        return prod(chances, start=Fraction(1))
