"""Labels that are reported more than once: early, so that a model can learn today, and again when final."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.allocation import Allocation
from tacit.privacy.mechanisms.memoised import FlipKey
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.releases import Composed, Release
from tacit.privacy.units import Cap, Unit
from tacit.train.examples import Examples
from tacit.train.labels.mechanism import Correction, shares
from tacit.train.labels.noisy import NoisyTargets, allocation_of
from tacit.train.labels.reports import Reports
from tacit.train.targets import Targets

MOST_REPORTS = 8


@dataclass(frozen=True)
class ReportingWindows:
    """When a label is reported, as seconds after its impression, and what each report may spend.

    `shares` are shares of the unit's epsilon, at most 1 in all. `arrived` is, of the conversions that come
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
        delays = tuple(expect.whole("delay", delay, at_least=0) for delay in self.delays)
        object.__setattr__(self, "delays", delays)
        if not 1 <= len(delays) <= MOST_REPORTS or any(a >= b for a, b in pairwise(delays)):
            raise BadInput(f"expected 1..{MOST_REPORTS} delays, each longer than the last, got {delays}")
        parts = tuple(expect.positive("share of epsilon", share) for share in self.shares)
        object.__setattr__(self, "shares", parts)
        if len(parts) != len(delays) or sum(parts) > 1:
            raise BadInput(f"expected {len(delays)} shares of epsilon that sum to at most 1, got {self.shares}")
        arrived = tuple(expect.probability("arrived", share, one=True) for share in self.arrived)
        object.__setattr__(self, "arrived", arrived)
        if len(arrived) != len(delays) or arrived[-1] != 1 or any(a > b for a, b in pairwise(arrived)):
            raise BadInput(f"expected {len(delays)} arrived shares that rise to 1, got {self.arrived}")
        object.__setattr__(self, "base_rate", expect.probability("base_rate", self.base_rate))

    def release(self, allocation: Allocation, epsilon: expect.Number, reports: int | None = None) -> Release:
        """What the first so many reports give away (None: all): a label reported twice spends twice."""
        whole = expect.positive("epsilon", epsilon)
        parts = self.shares[: len(self.shares) if reports is None else reports]
        return Composed(tuple(allocation.release(whole * share) for share in parts))

    def key(self, key: FlipKey, report: int) -> FlipKey:
        """The key of a report's flips. By its delay, not its number, which may be another in another plan."""
        return replace(key, task=f"{key.task}, {self.delays[report]} seconds after the impression")

    def labels(self, seconds_to_conversion: ArrayLike, report: int) -> NDArray[np.int64]:
        """The labels as they stood at a report: 1 where the conversion had come. Negative: it never came."""
        seconds: NDArray[Any] = np.asarray(seconds_to_conversion)
        if seconds.dtype.kind not in "iu":
            raise BadInput(f"expected whole seconds to conversion, got dtype {seconds.dtype}")
        return ((seconds >= 0) & (seconds <= self.delays[report])).astype(np.int64)

    def closed(self, time: NDArray[np.int64], now: int) -> NDArray[np.int64]:
        """How many reports of each row there are, from the time of its impression."""
        return np.searchsorted(np.array(self.delays), now - time, side="right").astype(np.int64)


def targets_as_of(
    examples: Examples,
    windows: ReportingWindows,
    seconds_to_conversion: ArrayLike,
    unit: Unit,
    cap: Cap,
    epsilon: expect.Number,
    *,
    key: FlipKey,
    secret: bytes,
    now: int,
    correction: Correction = Correction.FORWARD,
) -> NoisyTargets:
    """For each row, the best target for its final label that the reports up to `now` allow.

    FORWARD puts all reports of a row into one likelihood, UNBIASED into one sum with the final label as its
    mean, RAW takes the last. Rows without a report yet have no target.

    Guarantee:  the labels of one unit and window are released with at most epsilon in total over all reports,
                how often and at whatever times this is called. `release` is what had been reported by `now`.
    Neighbours: replace label, for one unit and window: all reports of its labels may change with it. Features,
                unit keys, times of impressions and the delay shares are the same in both datasets.
    Assumes:    what `noisy.noisy_targets` assumes. Units of several impressions have closed time windows (open
                ones are refused), or the log is complete.
    Source:     basic composition: Dwork, Roth 2014, theorem 3.16; the mixture over delays: Chapelle, KDD 2014.
    """
    correction = Correction(correction)
    if correction is Correction.POSTERIOR:
        raise BadInput("expected raw, unbiased or forward correction of reports, got posterior")
    if "time" not in examples.public_keys:
        raise BadInput("expected a public column 'time' for reports by delay, got none")
    if len(np.asarray(seconds_to_conversion)) != len(examples):
        raise BadInput(f"expected seconds to conversion of {len(examples)} examples, got another number")
    allocation = allocation_of(examples, unit, cap, key=key, secret=secret, now=expect.integer("now", now))
    closed = windows.closed(np.asarray(examples.key("time"), np.int64)[allocation.kept], now)
    most = int(closed.max(initial=0))
    if most == 0:
        raise BadInput(f"expected at least one closed reporting window at now={now}, got none")
    records, whole = examples.key("row"), expect.positive("epsilon", epsilon)
    for part in windows.shares:  # all of them, so that a plan fails before its first report leaves
        shares(allocation, whole * part)
    code = np.zeros(len(allocation), np.int64)  # the answers, the first report in the highest place
    for report in range(most):
        flipped = allocation.flip(
            windows.labels(seconds_to_conversion, report), records, whole * windows.shares[report],
            key=windows.key(key, report), secret=secret,
        )  # fmt: skip
        code = np.where(closed > report, 2 * code + flipped, code)

    values, keep = np.zeros(len(allocation), np.float32), np.ones(len(allocation), np.float32)
    counts: dict[Fraction, int] = {}
    for divisor in np.unique(allocation.divisor).tolist():
        for seen in range(1, most + 1):
            rows = (allocation.divisor == divisor) & (closed == seen)
            if not rows.any():
                continue
            spent = [whole * share / divisor for share in windows.shares[:seen]]
            reports = Reports(tuple(map(RandomizedResponse.for_epsilon, spent)), windows.arrived[:seen])
            table = np.array([_target(reports, answers, windows, correction) for answers in reports.answers])
            values[rows], keep[rows] = table[code[rows]].T
            told_with = sum(spent, Fraction(0))
            counts[told_with] = counts.get(told_with, 0) + int(rows.sum())

    told = (closed > 0) & (keep > 0.5)  # at one half the answers cancel out and say nothing
    targets = Targets(
        values[told],
        keep[told] if correction is Correction.FORWARD else None,
        allocation.kept[told].astype(np.int64),
    )
    release = windows.release(allocation, whole, most)
    return NoisyTargets(targets, release, unit, cap, whole, len(targets) / len(examples), counts)


def _target(
    reports: Reports, answers: tuple[int, ...], windows: ReportingWindows, correction: Correction
) -> tuple[float, float]:
    if correction is Correction.FORWARD:
        value, keep = reports.forward(answers)
        return float(value), float(np.float32(float(keep)))
    if correction is Correction.UNBIASED:
        return float(reports.unbiased(answers, windows.base_rate)), 1.0
    return float(answers[-1]), 1.0
