"""What is left of the published noise when users round their shares of it, and what whole-numbered shares
give.

A user's share of N(0, sigma^2) among 116,432 users is far below one half, so it rounds to nothing; rounded
down it is 0 or -1. Laws of the sums are exact: of one rounded share, and its N-th convolution power by FFT.
One count that changes by m is looked at, so that a delta found here is a lower bound for that of a whole
run. The promise is (1, .01) for m = 4, by corollary 4.3 (sigma^2 = 6 h m^2 ln(4/delta) / epsilon^2) or by
the last line of its proof, which has half of it.

Appendix A.2 says with which probability beta a click-through rate stays within bounds of alpha clicks, by a
Gaussian tail bound. It is held against the exact chance, in cells of low and middling rates: sums of Skellam
shares are the stated noise without rounding.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import ndtr
from scipy.stats import norm

from tacit.arrays import Floats
from tacit.gather.estimate.plan import paper_variance
from tacit.gather.estimate.published_noise import (
    PublishedNoise,
    beta_of_cell,
    both_within,
    gaussian_bound,
    paper_bound,
)
from tacit.gather.protocol.noise import UserNoise
from tacit.privacy.noise.distributions import Skellam
from tacit.privacy.noise.shares import SkellamShares
from tacit_lab.studies.contexts.setting import PAPER
from tacit_lab.studies.gather.setting import write_outcome
from tacit_lab.studies.plotting import Mechanism, Panel, Series
from tacit_lab.studies.report import ONE_SEED, Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import every

NAME = "gather-noise"
USERS, EVENTS, EPSILON, DELTA = 116_432, 4, 1.0, 0.01
LEVELS = (1, 2)
WITHOUT_ROUNDING = "delta of a run without rounding"
EXACT = "exact arithmetic: only a bug could change it"
ALPHAS = (1, 2, 3, 4)  # in standard deviations of the noise
CELLS = ((1_000, 99_000), (1_000, 9_000), (1_000, 1_000))  # clicks and no clicks: rates of 1%, 10% and 50%
FAINTEST = 1e-12  # below that, deltas are those of rounding and of what a law leaves out


M13 = Claim(
    "M13", "theorem 4.1, corollary 4.3", "Count's noise gives its stated guarantee", "δ .01 at ε 1, for example"
)
M14 = Claim(
    "M14",
    "appendix A.2",
    "estimates are (α, β)-accurate at the printed β",
    "β = 1 − 3/(2πα) s exp(−α²/2s²), s the noise's deviation",
)
T12 = Claim(
    "T12", "corollary 4.3, rounded shares", "Skellam shares of the same variance keep the stated guarantee"
)


@dataclass(frozen=True, eq=False)
class SumLaw:
    """The law of the noise in a count: P(lowest), P(lowest + 1), ..."""

    lowest: int
    pmf: Floats

    @property
    def mean(self) -> float:
        return float(self.pmf @ self.values)

    @property
    def sd(self) -> float:
        return math.sqrt(max(float(self.pmf @ (self.values - self.mean) ** 2), 0.0))

    @property
    def values(self) -> Floats:
        return self.lowest + np.arange(len(self.pmf), dtype=np.float64)

    def none(self) -> float:
        """The chance of no noise at all, its mean aside."""
        return float(self.pmf.max())

    def delta(self, epsilon: float, change: int) -> float:
        """The least delta at which a count that changes by so much is (epsilon, delta)-DP."""
        with_unit = np.r_[np.zeros(change), self.pmf]
        without = np.r_[self.pmf, np.zeros(change)]
        rate = math.exp(epsilon)
        pairs = ((with_unit, without), (without, with_unit))
        return max(float(np.maximum(one - rate * other, 0.0).sum()) for one, other in pairs)


def rounded_shares(sd_share: float, users: int, *, down: bool) -> SumLaw:
    """The sum of rounded normal shares. Their own law is cut where its tails are below 1e-18."""
    reach = max(2, math.ceil(9 * sd_share) + 1)
    values = np.arange(-reach, reach + 1, dtype=np.float64)
    low = values if down else values - 0.5
    share = ndtr((low + 1) / sd_share) - ndtr(low / sd_share)
    share = np.where(low > 0, norm.sf(low / sd_share) - norm.sf((low + 1) / sd_share), share)
    share /= share.sum()
    mean, variance = users * float(share @ values), users * float(share @ values**2 - (share @ values) ** 2)
    width = 1 << math.ceil(math.log2(40 * math.sqrt(variance) + 64))
    wrapped = np.zeros(width)
    np.add.at(wrapped, values.astype(np.int64) % width, share)
    pmf = np.maximum(np.fft.irfft(np.fft.rfft(wrapped) ** users, width), 0.0)
    lowest = round(mean) - width // 2
    return SumLaw(lowest, np.roll(pmf, -(lowest % width)))


def skellam_shares(variance: float) -> SumLaw:
    half = Skellam(Fraction(math.ceil(variance))).masses
    return SumLaw(1 - len(half), np.r_[half[:0:-1], half])


def gaussian_delta(sd: float, sensitivity: float) -> float:
    """Of one Gaussian release at the promised epsilon: Balle, Wang 2018 (arXiv 1805.06530), theorem 8."""
    near, far = sensitivity / (2 * sd), EPSILON * sd / sensitivity
    return float(ndtr(near - far) - math.exp(EPSILON) * ndtr(-near - far))


NEAREST, DOWN, SKELLAM = "shares rounded to nearest", "shares rounded down", "Skellam shares"
SCHEMES: dict[str, Callable[[float], SumLaw]] = {
    NEAREST: lambda variance: rounded_shares(math.sqrt(variance / (USERS - 1)), USERS, down=False),
    DOWN: lambda variance: rounded_shares(math.sqrt(variance / (USERS - 1)), USERS, down=True),
    SKELLAM: skellam_shares,
}


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    asked.refuse_data("it is about noise alone")
    found = {
        (scheme, levels): law(_stated_variance(levels)) for levels in LEVELS for scheme, law in SCHEMES.items()
    }
    table = [{"noise": scheme, "levels": levels, **_figures(law)} for (scheme, levels), law in found.items()]
    table += [row for levels in LEVELS for row in _accuracy_rows(levels)]
    whole = {half: max(_whole_run(levels, half=half) for levels in LEVELS) for half in (False, True)}
    rows = [
        (scheme, str(levels), *(f"{figure:.4g}" for figure in _figures(law).values()))
        for (scheme, levels), law in found.items()
    ]
    return write_outcome(
        NAME,
        asked,
        began=began,
        seeds=ONE_SEED,
        data=f"no data: {USERS:,} users, m = {EVENTS}, ε {EPSILON:g}, δ {DELTA:g} promised",
        parameters={
            "users": USERS,
            "events": EVENTS,
            WITHOUT_ROUNDING: {"corollary": whole[False], "proof": whole[True]},
        },
        table=table,
        columns=("noise", "levels", "mean", "sd", "chance of no noise", "δ of one count"),
        rows=rows,
        panels=[
            Panel(
                f"{levels} level{'s' * (levels > 1)}",
                [_line(scheme, found[scheme, levels]) for scheme in SCHEMES],
            )
            for levels in LEVELS
        ],
        axes=Axes("ε", "log10 of one count's δ", share_y=True),
    )


FIGURES = ("mean", "sd", "chance of none", "delta of one count")
BETA, PRINTED = "beta of the cell", "printed beta"
Found = Mapping[tuple[str, int], Mapping[str, float]]  # by noise and levels, these figures


def _figures(law: SumLaw) -> dict[str, float]:
    return dict(zip(FIGURES, (law.mean, law.sd, law.none(), law.delta(EPSILON, EVENTS)), strict=True))


def _accuracy_rows(levels: int) -> Iterator[dict[str, Any]]:
    """How often a rate keeps the bounds of alpha clicks, and how often it should, with everybody there."""
    noise = UserNoise(SkellamShares(Fraction(math.ceil(_stated_variance(levels))), USERS, Fraction(0)))
    law, sd = PublishedNoise.of(noise, USERS), math.sqrt(noise.published_variance(USERS))
    for ratio in ALPHAS:
        alpha = ratio * sd
        promised = {
            PRINTED: paper_bound(noise_sd=sd, alpha=alpha, parties=USERS, away=0),
            "beta by two tail bounds": gaussian_bound(sd, alpha),
            "both counts within alpha": both_within(law, alpha),
        }
        for clicks, no_clicks in CELLS:
            beta = beta_of_cell(law, alpha, clicks, no_clicks)
            cell = {"alpha in sd": ratio, "clicks": clicks, "no clicks": no_clicks, BETA: beta}
            yield {"noise": SKELLAM, "levels": levels, **cell, **promised}


def _line(scheme: str, law: SumLaw) -> Series:
    epsilons = [each / 4 for each in range(13)]
    deltas = [math.log10(max(law.delta(epsilon, EVENTS), FAINTEST)) for epsilon in epsilons]
    return Series(scheme, epsilons, deltas, mechanism=Mechanism.OURS if scheme == SKELLAM else Mechanism.COUNT)


def _whole_run(levels: int, *, half: bool) -> float:
    """The delta of a run without rounding, by the corollary or by its proof's last line."""
    variance = _stated_variance(levels) / (2 if half else 1)
    return gaussian_delta(math.sqrt(variance), math.sqrt(2 * levels) * EVENTS)


def _stated_variance(levels: int) -> float:
    return paper_variance(levels=levels, events=EVENTS, epsilon=EPSILON, delta=DELTA)


def judge(kept: ResultFiles) -> list[Finding]:
    found = {
        (str(row["noise"]), int(row["levels"] or 0)): {name: float(row[name] or 0) for name in FIGURES}
        for row in kept.rows
        if row.get(BETA) is None
    }
    accuracy = [row for row in kept.rows if row.get(BETA) is not None]
    whole = kept.settings["parameters"][WITHOUT_ROUNDING]
    return [_as_stated(found, whole), _as_accurate(accuracy), _skellam(found)]


def _as_stated(found: Found, whole: Mapping[str, float]) -> Finding:
    off = found[DOWN, LEVELS[-1]]
    return Finding(
        M13,
        f"with shares rounded to nearest and rounded down, a count that changes by m has δ <= {DELTA:g} at ε 1 "
        "and noise of mean 0 and the stated variance, within 10%",
        f"nearest δ {_worst(found, NEAREST):.4g}; down δ {_worst(found, DOWN):.2g}, mean {off['mean']:,.0f}, "
        f"sd {off['sd']:.0f} for {math.sqrt(_stated_variance(LEVELS[-1])):.0f}; "
        f"never rounded δ {whole['corollary']:.2g} by the corollary, {whole['proof']:.2g} by its proof",
        every(_keeps(figures, levels) for (scheme, levels), figures in found.items() if scheme != SKELLAM),
        why=EXACT,
    )


def _as_accurate(rows: Sequence[Mapping[str, Any]]) -> Finding:
    kept = [(float(row[BETA]), float(row[PRINTED])) for row in rows]
    times = [(1 - beta) / (1 - printed) for beta, printed in kept]
    seen = "nothing"
    if times:
        worst = times.index(max(times))
        row, (beta, printed) = rows[worst], kept[worst]
        rate = int(row["clicks"]) / (int(row["clicks"]) + int(row["no clicks"]))
        seen = (
            f"the printed β is kept in {sum(each <= 1 for each in times)} of {len(times)} cases; at a rate of "
            f"{rate:.0%} and α = {row['alpha in sd']} sd the bounds fail with {1 - beta:.2g}, "
            f"{1 - printed:.2g} printed"
        )
    return Finding(
        M14,
        "at α of 1 to 4 standard deviations, in cells with 1,000 clicks and rates of 1%, 10% and 50%, the "
        "chance that a rate keeps both bounds is at least the printed β, for one and two levels",
        seen,
        every(beta >= printed for beta, printed in kept),
        why=EXACT,
    )


def _skellam(found: Found) -> Finding:
    return Finding(
        T12,
        f"a count that changes by m has δ <= {DELTA:g} at ε 1 and noise of mean 0 and the stated variance, "
        "within 10%, for one and two levels",
        f"δ {_worst(found, SKELLAM):.2g}",
        every(_keeps(found[SKELLAM, levels], levels) for levels in LEVELS),
        why=EXACT,
    )


def _worst(found: Found, scheme: str) -> float:
    return max(found[scheme, levels]["delta of one count"] for levels in LEVELS)


def _keeps(figures: Mapping[str, float], levels: int) -> bool:
    stated = abs(figures["mean"]) < 1 and abs(figures["sd"] ** 2 / _stated_variance(levels) - 1) < 0.1
    return stated and figures["delta of one count"] <= DELTA


STUDY = Study(
    NAME,
    "Noise in rounded shares",
    PAPER,
    "theorem 4.1, corollary 4.3, appendix A.2",
    (M13, M14, T12),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 0.1},
    {StudyScale.TOY: 1, StudyScale.SMALL: 1, StudyScale.FULL: 1},
    run,
    judge,
)
