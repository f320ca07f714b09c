"""Metrics through the room: AUC, calibration and log loss from positives in bins of the platform's scores.

The room tells how many positives fall into each bin: of labels that were flipped once (exact counts, free), or
of true labels with Gaussian noise (paid for). Either way there is an unbiased stand-in for the positives of
each bin whose variance is known:

    flipped with keep probability q:   c = (told - (1 - q) n) / (2q - 1),   variance n q (1 - q) / (2q - 1)^2
    noise of standard deviation s:     c = told,                            variance s^2

AUC is a ratio of sums over pairs of bins, a pair in the same bin counting half. Within a bin the stand-ins for
positives, c, and for negatives, n - c, depend on one another: E[c (n - c)] is too small by the variance of c,
which is added back. Intervals hold both the sampling of rows and the noise of the room. Source: DeLong, DeLong,
Clarke-Pearson 1988 (Biometrics 44); with flips: Menon, van Rooyen, Ong, Williamson 2015.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from tacit import expect
from tacit.arrays import Floats
from tacit.cleanroom.platform.steps import Tokens, statistic_slabs
from tacit.cleanroom.protocol.requests import Purpose, RoomLink, StatisticRequest
from tacit.cleanroom.protocol.terms import Terms
from tacit.errors import BadInput, RoomError
from tacit.train.evaluation.intervals import LEVEL, IntervalScale, MeasuredValue, symmetric_interval

BINS = 64
LEAST_STANDARD_ERRORS = 3  # both classes must be this far from empty: every ratio divides by them


@dataclass(frozen=True, eq=False)
class ScoreBins:
    """Rows in bins of their logit, from low to high; everything here is the platform's own."""

    cell: NDArray[np.int32]  # (rows,): each row's bin
    rows: Floats  # (bins,)
    predicted: Floats  # (bins,): summed probabilities
    predicted_squares: Floats  # (bins,)
    logits: Floats  # (bins,): summed
    softplus: float  # summed over all rows: the part of log loss that needs no label

    @classmethod
    def of(cls, logits: NDArray[np.floating], bins: int = BINS) -> ScoreBins:
        """At most `bins` bins of about as many rows; equal logits share a bin."""
        bins = expect.whole("bins", bins, at_least=1)
        z = np.asarray(logits, np.float64)
        if z.ndim != 1 or not len(z) or not np.isfinite(z).all():
            raise BadInput("expected at least one finite logit for each row, got none or another")
        _, place, counts = np.unique(z, return_inverse=True, return_counts=True)
        middle = np.cumsum(counts) - counts / 2  # a score goes where the middle of its rows belongs
        _, bin_of_distinct = np.unique(np.minimum(middle * bins // len(z), bins - 1), return_inverse=True)
        cell = bin_of_distinct[place]
        p = expit(z)

        def summed(what: Floats | None = None) -> Floats:
            return np.bincount(cell, what).astype(np.float64)

        return cls(
            cell.astype(np.int32),
            summed(),
            summed(p),
            summed(p * p),
            summed(z),
            float(np.logaddexp(0, z).sum()),
        )

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class BinPositives:
    """What the room told of the positives in each bin, and how it changed them."""

    told: Floats  # (bins,)
    keep: float = 1.0  # the probability that a label was left as it is
    noise_stddev: float = 0.0

    def __post_init__(self) -> None:
        if not 0.5 < self.keep <= 1:
            raise BadInput(f"expected keep in (1/2, 1], got {self.keep!r}")


@dataclass(frozen=True)
class RoomMetrics:
    """None where the classes do not stand out from the noise: no figure is better than a wild one."""

    rows: int
    positives: MeasuredValue  # of these very rows: its interval holds the room's noise alone
    auc: MeasuredValue | None
    calibration: MeasuredValue | None  # summed predictions over positives: above 1, the model promises too much
    log_loss: MeasuredValue

    def as_json(self) -> dict[str, Any]:
        figures = ("positives", "auc", "calibration", "log_loss")
        found = {name: getattr(self, name) for name in figures}
        return {"rows": self.rows, **{name: each and each.as_json() for name, each in found.items()}}


def compute_metrics(bins: ScoreBins, positives: BinPositives, level: float = LEVEL) -> RoomMetrics:
    """All figures of one answer."""
    if positives.told.shape != bins.rows.shape:
        raise BadInput(f"expected positives of {len(bins)} bins, got {positives.told.shape}")
    table = _Table.of(bins, positives)
    return RoomMetrics(
        int(bins.rows.sum()),
        _interval(float(table.count.sum()), float(table.noise.sum()), level),
        _auc(table, level) if table.stands_out else None,
        _calibration(bins, table, level) if table.stands_out else None,
        _log_loss(bins, table, level),
    )


@dataclass(frozen=True, eq=False)
class _Table:
    """Bins with stand-ins for their positives."""

    rows: Floats
    count: Floats  # unbiased for the positives of each bin
    told: Floats
    keep: float
    noise: Floats  # the variance of `count`, given the true labels

    @classmethod
    def of(cls, bins: ScoreBins, positives: BinPositives) -> _Table:
        q, n, told = positives.keep, bins.rows, positives.told.astype(np.float64)
        count = (told - (1 - q) * n) / (2 * q - 1)
        noise = n * q * (1 - q) / (2 * q - 1) ** 2 + (positives.noise_stddev / (2 * q - 1)) ** 2
        return cls(n, count, told, q, noise)

    @property
    def stands_out(self) -> bool:
        least = LEAST_STANDARD_ERRORS * math.sqrt(float(self.noise.sum()))
        total = float(self.count.sum())
        return min(total, float(self.rows.sum()) - total) > least

    def variance_of(self, negative: Floats, positive: Floats) -> float:
        """Of a sum in which a row of bin b adds about `positive[b]` if its label is 1 and `negative[b]` if not.

        A told label of 1 stands for q / (2q - 1) positives and -(1 - q) / (2q - 1) negatives. Squares of what
        rows add are summed over the told counts, and what was added to those as noise follows.
        """
        move = (positive - negative) / (2 * self.keep - 1)
        if_told_1 = negative + self.keep * move
        if_told_0 = negative - (1 - self.keep) * move
        sampled = self.told @ if_told_1**2 + (self.rows - self.told) @ if_told_0**2
        gaussian = self.noise - self.rows * self.keep * (1 - self.keep) / (2 * self.keep - 1) ** 2
        return max(float(sampled), 0.0) + float(np.maximum(gaussian, 0.0) @ (positive - negative) ** 2)


def _auc(table: _Table, level: float) -> MeasuredValue:
    a, b = table.count, table.rows - table.count
    negatives_below = np.cumsum(b) - b / 2
    positives_above = a.sum() - np.cumsum(a) + a / 2
    # A row never meets itself, and what is noise in a is the opposite noise in b.
    ordered = float(a @ negatives_below + table.noise.sum() / 2)
    pairs = float(a.sum() * b.sum() + table.noise.sum())
    found = ordered / pairs
    variance = table.variance_of(
        (positives_above - found * a.sum()) / pairs, (negatives_below - found * b.sum()) / pairs
    )
    return _interval(found, variance, level, IntervalScale.LOGIT)


def _calibration(bins: ScoreBins, table: _Table, level: float) -> MeasuredValue:
    positives = float(table.count.sum())
    found = float(bins.predicted.sum()) / positives
    mean = bins.predicted / bins.rows
    variance = table.variance_of(mean / positives, (mean - found) / positives)
    # Predictions differ within a bin, too.
    variance += float((bins.predicted_squares - bins.predicted * mean).sum()) / positives**2
    return _interval(found, variance, level, IntervalScale.LOG)


def _log_loss(bins: ScoreBins, table: _Table, level: float) -> MeasuredValue:
    """The mean of softplus(z) - y z, each row's z in the second term being its bin's mean."""
    rows, mean = float(bins.rows.sum()), bins.logits / bins.rows
    found = (bins.softplus - float(table.count @ mean)) / rows
    base = np.logaddexp(0, mean) - found
    return _interval(found, table.variance_of(base / rows, (base - mean) / rows), level)


def _interval(
    value: float, variance: float, level: float, scale: IntervalScale = IntervalScale.PLAIN
) -> MeasuredValue:
    """The normal interval: there are many rows, and the room's noise has a variance that is known."""
    within = float(expect.probability("level", level))
    return symmetric_interval(value, float(ndtri((1 + within) / 2)) * math.sqrt(variance), level, scale)


UNJOINED_DEVIATIONS = 2.0


def refuse_unjoined(positives: MeasuredValue, predicted: float, rows: int, least_share: float) -> None:
    """Refuse labels that are surely not those of these records.

    A record that the room does not know counts as 0, so that records which the parties name differently all
    have a label, and none a conversion. What the room let out anyway tells: `positives`, whose interval holds
    its noise alone, against what the model predicts. No more is asked, and of no single record.
    """
    deviation = (positives.high - positives.low) / (2 * float(ndtri((1 + positives.level) / 2)))
    if positives.value + UNJOINED_DEVIATIONS * deviation < least_share * predicted:
        raise RoomError(
            f"expected at least {least_share:g} of the {predicted:,.0f} positives that the model predicts for "
            f"{rows:,} records, got {positives.value:,.0f} (noise: {deviation:,.0f}): do both parties name "
            "records by the same ids and the same token key? plan.least_share = 0 learns from them all the same"
        )


def flipped_positives(told: float, rows: int, keep: float) -> MeasuredValue:
    """The positives among records of whose flipped labels `told` are 1; the interval is of the flips."""
    spread = rows * keep * (1 - keep) / (2 * keep - 1) ** 2
    return _interval((told - (1 - keep) * rows) / (2 * keep - 1), spread, LEVEL)


def noised_positives(told: float, noise_stddev: float) -> MeasuredValue:
    """The positives of a count that has Gaussian noise."""
    return _interval(told, noise_stddev**2, LEVEL)


def ask_metrics(
    logits: NDArray[np.floating],
    tokens: Tokens,
    link: RoomLink,
    terms: Terms,
    *,
    task: str,
    run: str,
    number: int,
    bins: int = BINS,
) -> RoomMetrics:
    """AUC, calibration and log loss of these rows.

    Where labels are flipped it costs nothing. In the other modes it is a release of its own: one of those that
    each of these records has.
    """
    if len(logits) != len(tokens):
        raise BadInput(f"expected a logit for each of {len(tokens)} records, got {len(logits)}")
    score_bins = ScoreBins.of(logits, bins)
    cells = score_bins.cell[:, None]
    request = StatisticRequest(
        agreement=terms.digest,
        run=run,
        number=number,
        task=task,
        purpose=Purpose.METRIC,
        rows=len(tokens),
        cells=len(score_bins),
        indices=1,
        cell_weight=1.0,
        features=0,
    )
    answer = link.statistic(request, statistic_slabs(tokens, cells, np.empty((len(tokens), 0), np.float32)))
    keep = terms.keep if terms.mode.flips else 1.0
    return compute_metrics(score_bins, BinPositives(answer.sums, keep, answer.noise_stddev))
