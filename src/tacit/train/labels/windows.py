"""Labels that are reported more than once: early, so that a model can learn today, and again when final.

A label of 1 arrives with a delay. Report j is a flip of whether it had arrived by delay j, so an early 1 means
a final 1, and an early 0 means little. Of all converted labels the share `arrived[j]` is there by delay j. That
share is public; among the converted it does not depend on the features. A label that is reported twice is paid
for twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.allocation import Allocation
from tacit.privacy.mechanisms.memoisation import FlipKey
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.releases import Composed, Release
from tacit.train.examples import Examples
from tacit.train.labels.mechanism import BINARY, Classes, Correction, shares
from tacit.train.targets import Targets

Answers = tuple[int, ...]
MOST_REPORTS = 8
MOST_DELAY = 100 * 365 * 86_400  # seconds
LEAST_ARRIVED = Fraction(1, 1_000_000)  # of what so few arrive, an early report tells nothing
MOST_SECONDS = 2**62  # of a log's clock, on either side of 0


@dataclass(frozen=True)
class RepeatedReports:
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

    def unbiased_target(self, answers: Answers, base_rate: Fraction) -> Fraction:
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


@dataclass(frozen=True)
class ReportingWindows:
    """When a label is reported, as seconds after its impression, and what each report may spend.

    `shares` are shares of the unit's epsilon, 1 in all. `arrived` is, of the conversions that come
    within the last delay, the share that is there by each delay; it is public (or estimated from the reports
    themselves: base rates of early and final targets, divided). `base_rate` is a public guess of how many
    convert; it decides how reports are weighed, never what they are on average.

    >>> ReportingWindows((86_400, 30 * 86_400), ("1/4", "3/4"), ("0.6", 1)).shares
    (Fraction(1, 4), Fraction(3, 4))
    """

    delays: tuple[int, ...]
    shares: tuple[Fraction, ...]
    arrived: tuple[Fraction, ...]
    base_rate: Fraction = Fraction(1, 20)

    def __post_init__(self) -> None:
        object.__setattr__(self, "delays", expect.several("delays", self.delays))
        delays = tuple(expect.whole("delay", delay, at_least=0) for delay in self.delays)
        object.__setattr__(self, "delays", delays)
        if not 1 <= len(delays) <= MOST_REPORTS or any(a >= b for a, b in pairwise(delays)):
            raise BadInput(f"expected 1..{MOST_REPORTS} delays, each longer than the last, got {delays}")
        if delays[-1] > MOST_DELAY:
            raise BadInput(
                f"expected delays of at most {MOST_DELAY} seconds, a hundred years, got a longer one"
            )
        parts = tuple(expect.positive("share of epsilon", share) for share in self.shares)
        object.__setattr__(self, "shares", parts)
        if len(parts) != len(delays) or sum(parts) != 1:
            raise BadInput(
                f"expected {len(delays)} shares of epsilon that sum to 1, got {', '.join(map(str, parts))}"
            )
        arrived = tuple(expect.probability("arrived", share, one=True) for share in self.arrived)
        object.__setattr__(self, "arrived", arrived)
        if len(arrived) != len(delays) or arrived[-1] != 1 or any(a > b for a, b in pairwise(arrived)):
            raise BadInput(
                f"expected {len(delays)} arrived shares that rise to 1, got {', '.join(map(str, arrived))}"
            )
        if arrived[0] < LEAST_ARRIVED:
            raise BadInput(f"expected arrived shares of at least {LEAST_ARRIVED}, got a smaller one")
        object.__setattr__(self, "base_rate", expect.probability("base_rate", self.base_rate))

    def release(self, allocation: Allocation, epsilon: expect.Number) -> Release:
        """What all reports together give away: a label reported twice spends twice."""
        whole = expect.positive("epsilon", epsilon)
        return Composed(tuple(allocation.release(whole * share) for share in self.shares))

    def key(self, key: FlipKey, report: int) -> FlipKey:
        """The key of a report's flips. By its delay, not its number, which may be another in another plan."""
        return replace(key, task=f"{key.task}, {self.delays[report]} seconds after the impression")

    def labels(self, seconds_to_conversion: ArrayLike, report: int) -> NDArray[np.int64]:
        """The labels as they stood at a report: 1 where the conversion had come. Negative: it never came."""
        seconds: NDArray[Any] = np.asarray(seconds_to_conversion)
        if seconds.dtype.kind not in "iu":
            raise BadInput(f"expected whole seconds to conversion, got dtype {seconds.dtype}")
        return ((seconds >= 0) & (seconds <= self.delays[report])).astype(np.int64)

    def closed_reports(self, time: NDArray[np.int64], now: int) -> NDArray[np.int64]:
        """How many reports of each row there are, from the time of its impression."""
        return np.searchsorted(np.array(self.delays), now - time, side="right").astype(np.int64)


@dataclass(frozen=True, eq=False)
class RepeatedFlips:
    """Randomized response on each kept label, once after each delay: what there is of it as of a time.

    `labels` that it takes are seconds to conversion, negative where none has come. `closed` is how many reports
    each example has by now. FORWARD puts all reports of a row into one likelihood, UNBIASED into one sum with
    the final label as its mean, RAW takes the last. Rows without a report yet have no target.

    Guarantee:  the labels of one unit and window are released with at most epsilon in total over all reports,
                how often and as of whatever times the targets are made.
    Neighbours: replace label, for one unit and window: all reports of its labels may change with it. Features,
                unit keys, times of impressions and the delay shares are the same in both datasets.
    Assumes:    what `noisy_targets.NoisyLabelling` assumes. Units of several impressions have closed time
                windows (open ones are refused), or the log is complete. A conversion that came within a delay
                is in the log once that delay is over.
    Source:     basic composition: Dwork, Roth 2014, theorem 3.16; the mixture over delays: Chapelle, KDD 2014.
    """

    windows: ReportingWindows
    closed: NDArray[np.int64]
    correction: Correction = Correction.FORWARD

    def __post_init__(self) -> None:
        object.__setattr__(self, "correction", Correction(self.correction))
        if self.correction is Correction.POSTERIOR:
            raise BadInput("expected raw, unbiased or forward correction of reports, got posterior")

    @classmethod
    def as_of(
        cls, windows: ReportingWindows, examples: Examples, now: int, correction: Correction
    ) -> RepeatedFlips:
        """What the examples' own times, which are public, say of the reports that there are."""
        if "time" not in examples.public_keys:
            raise BadInput("expected a public column 'time' for reports by delay, got none")
        if len(examples.delays) != len(examples):
            raise BadInput(f"expected seconds to conversion of {len(examples)} examples, got another number")
        if abs(expect.integer("now", now)) > MOST_SECONDS:
            raise BadInput("expected the time of reports as seconds of 62 bits, got a longer number")
        closed = windows.closed_reports(np.asarray(examples.key("time"), np.int64), now)
        if not closed.any():
            raise BadInput(f"expected at least one closed reporting window at now={now}, got none")
        return cls(windows, closed, correction)

    @property
    def classes(self) -> Classes:
        return BINARY

    def count(self, allocation: Allocation) -> int:
        """How many kept labels have been reported."""
        return int(np.count_nonzero(self.closed[allocation.kept]))

    def release(self, allocation: Allocation, epsilon: expect.Number) -> Release:
        return self.windows.release(allocation, epsilon)

    def check_shares(self, allocation: Allocation, epsilon: expect.Number) -> None:
        """Refuse an epsilon of which any report, of those to come too, would get too little to tell."""
        for part in self.windows.shares:
            shares(allocation, expect.positive("epsilon", epsilon) * part)

    def targets(
        self,
        labels: ArrayLike,
        records: ArrayLike,
        allocation: Allocation,
        epsilon: expect.Number,
        *,
        key: FlipKey,
        secret: bytes,
    ) -> Targets:
        self.check_shares(allocation, epsilon)
        windows, whole = self.windows, expect.positive("epsilon", epsilon)
        closed = self.closed[allocation.kept]
        most = int(closed.max(initial=0))
        code = np.zeros(len(allocation), np.int64)  # the answers, the first report in the highest place
        for report in range(most):
            flipped = allocation.flip(
                windows.labels(labels, report), records, whole * windows.shares[report],
                key=windows.key(key, report), secret=secret,
            )  # fmt: skip
            code = np.where(closed > report, 2 * code + flipped, code)
        values, keep = np.zeros(len(allocation), np.float32), np.ones(len(allocation), np.float32)
        for divisor in np.unique(allocation.divisor).tolist():
            for seen in range(1, most + 1):
                rows = (allocation.divisor == divisor) & (closed == seen)
                if not rows.any():
                    continue
                spent = [whole * share / divisor for share in windows.shares[:seen]]
                reports = RepeatedReports(
                    tuple(map(RandomizedResponse.for_epsilon, spent)), windows.arrived[:seen]
                )
                table = np.array([_target(reports, each, windows, self.correction) for each in reports.answers])
                values[rows], keep[rows] = table[code[rows]].T
        told = (closed > 0) & (keep > 0.5)  # at one half the answers cancel out and say nothing
        forward = self.correction is Correction.FORWARD
        return Targets(values[told], keep[told] if forward else None, allocation.kept[told].astype(np.int64))


def _target(
    reports: RepeatedReports, answers: Answers, windows: ReportingWindows, correction: Correction
) -> tuple[float, float]:
    if correction is Correction.FORWARD:
        value, keep = reports.forward(answers)
        return float(value), float(np.float32(float(keep)))
    if correction is Correction.UNBIASED:
        return float(reports.unbiased_target(answers, windows.base_rate)), 1.0
    return float(answers[-1]), 1.0
