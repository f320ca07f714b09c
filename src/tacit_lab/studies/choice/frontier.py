"""How much of the greedy gain each mechanism has over epsilon, under what no mechanism can exceed.

Mechanisms are planned on one half of the draws and measured on the other. The bound is certified on the
measured half: it holds for every epsilon-LDP choice on exactly those scores, and from few draws it is too
high for others. With 400 draws per request (60 requests) the display-like ones were .060 below the bound. The
optimal floors, planned on the other half, did no better there, and at epsilon 2 the gap shrank with more
draws: hence 1,600, of 30 requests for the time it takes. Each seed has requests and draws of its own,
counted together.

What a user gets is beside: plans with the default prior, and with the one that reports of 10,000 requests
taught. The true prior, which nobody has, plans on draws of the measured law; nor does anybody have the cutoff
gamma that is best for all requests together, by which randomized response keeps candidates.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from tacit.arrays import Floats
from tacit.data.generators.markets import Market
from tacit.data.generators.worlds import seeded_generator
from tacit.deliver.protocol.plans import plan_choice
from tacit.deliver.protocol.priors import LearntPrior
from tacit.privacy.choice.choice import ChoiceLaw, Stakes, expected_score
from tacit.privacy.choice.noise import Noise
from tacit.privacy.choice.noisy_max import NoisyMax
from tacit.privacy.choice.optimal_floors import best_floors
from tacit.privacy.choice.scores import Clipped, Scaled
from tacit.privacy.choice.top_choice import TopChoice, best_top_plan
from tacit.train.evaluation.intervals import LEVEL, MeasuredValue
from tacit_lab.studies.choice.lifts import above_zero, interval_around, write_outcome
from tacit_lab.studies.choice.markets import OURS, SEEDS
from tacit_lab.studies.choice.reports import GAMMAS, ReportingMenus, learnt_priors, within
from tacit_lab.studies.plotting import Mechanism, Panel, Series, line_figure
from tacit_lab.studies.report import seeds_of
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import words
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import every, interval_within

T1 = Claim(
    "T1",
    "RR and SNM, and the bound for any mechanism",
    "trunc(k, m) planned with the true prior is as good as any private choice can be, and not below the "
    "paper's mechanisms",
)
T2 = Claim(
    "T2",
    "the non-personalised choice",
    "at epsilon 1 something does beat the non-personalised choice, planned with the true prior",
)

NAME = "choice-frontier"
EPSILONS = (0.5, 1, 2, 3, 4, 5, 6, 8)
DRAWS = {StudyScale.TOY: 60, StudyScale.SMALL: 3_000, StudyScale.FULL: 20_000}
REQUESTS = {StudyScale.TOY: 4, StudyScale.SMALL: 30, StudyScale.FULL: 1_000}
REQUEST_DRAWS = {StudyScale.TOY: 100, StudyScale.SMALL: 1_600, StudyScale.FULL: 6_400}
MOST_CANDIDATES = 15
BOUNDS = (0.03, 0.1, 0.3, 1.0)  # of the public best; the best of them on the planning half
WITHIN = 0.02  # of the greedy gain
LOWEST_DRAWN = -0.5
SERVED = (100, 300, 1_000, 3_000, 10_000)  # requests: the prior is learnt anew after each
RR, SCALED, CLIPPED, TRUNC, FLOORS = (
    "RR",
    "SNM scaled",
    "SNM clipped, best bound",
    "trunc, true prior",
    "floors, true prior",
)
CUT, LEARNT, DEFAULT = "RR, best gamma", "trunc, from reports", "trunc, default prior"
BOUND = "no mechanism above"
LOOKS = {
    CUT: Mechanism.RR,
    RR: Mechanism.RR,
    SCALED: Mechanism.SNM,
    CLIPPED: Mechanism.SNM,
    LEARNT: Mechanism.OURS,
    DEFAULT: Mechanism.OURS,
    TRUNC: Mechanism.OURS,
    FLOORS: Mechanism.OURS,
    BOUND: Mechanism.NON_PRIVATE,
}
PAPERS = (RR, SCALED, CLIPPED)
DRAWN = tuple(name for name in LOOKS if name != FLOORS)  # which are where trunc by the same prior is
USERS = f"{NAME}-display"  # a figure of the last setting alone: what one has, and what nobody can exceed
HELD = (  # a mechanism, and over whom; nobody is the public best
    *((name, "") for name in (*PAPERS, CUT, LEARNT, DEFAULT, TRUNC, FLOORS)),
    *((TRUNC, name) for name in PAPERS),
    (TRUNC, CUT),
    (FLOORS, TRUNC),
)
_STREAM = 32
Key = tuple[str, str, float]  # a mechanism, over whom, and epsilon


@dataclass(frozen=True, eq=False)
class ScoredRequest:
    """Public scores, best first, and private ones (draws, candidates): to plan on, and to measure on."""

    public: Floats
    planning: Floats
    measuring: Floats


def run(asked: StudyRequest) -> StudyOutcome:
    asked.refuse_data("the bound needs the law of private scores, which a log does not tell")
    began, scale = time.monotonic(), asked.scale
    panels, table, rows = [], [], []
    for at, (title, make) in enumerate(SETTINGS.items()):
        asked.progress(f"{NAME}: {title}", at, len(SETTINGS))
        shares = shares_of([request for seed in seeds_of(asked) for request in make(scale, seed)])
        panels.append(
            Panel(
                title,
                [_line(name, [shares[name, "", epsilon].value for epsilon in EPSILONS]) for name in DRAWN],
            )
        )
        table += [
            {"setting": title, "mechanism": name, "over": over or None, "epsilon": epsilon}
            | {"share_of_gain": found.value, "low": found.low, "high": found.high}
            for (name, over, epsilon), found in shares.items()
        ]
        rows += [
            (title, f"{epsilon:g}", *(f"{shares[name, '', epsilon].value:.3f}" for name in LOOKS))
            for epsilon in (1, 3, 5)
        ]
    outcome = write_outcome(
        NAME,
        asked,
        began=began,
        data=f"{DRAWS[scale] * asked.seeds:,} draws, or {REQUEST_DRAWS[scale]:,} for each of "
        f"{REQUESTS[scale] * asked.seeds:,} requests",
        parameters={"epsilons": list(EPSILONS), "bounds": list(BOUNDS), "not_drawn_below": LOWEST_DRAWN},
        table=table,
        columns=("scores", "epsilon", *LOOKS),
        rows=rows,
        draw=partial(_draw, panels),
    )
    return replace(outcome, files=[*outcome.files, asked.out / f"{USERS}.svg"])


def _draw(panels: Sequence[Panel], path: Path, subtitle: str) -> None:
    """All settings, and display-like requests alone."""
    last = panels[-1]
    few = Panel(last.title, [each for each in last.series if each.name not in (SCALED, TRUNC)])
    for some, place in ((panels, path), ([few], path.with_name(USERS))):
        line_figure(
            some,
            subtitle=subtitle,
            x_label="epsilon",
            y_label=f"share of the greedy gain (below {LOWEST_DRAWN:g} not drawn)",
            path=place,
            log_x_ticks=EPSILONS,
            share_y=True,
        )


def shares_of(requests: Sequence[ScoredRequest]) -> dict[Key, MeasuredValue]:
    """Each mechanism's part of the gain of all requests together, and by how much of it one is above another.

    Intervals are over draws, paired; requests, and the ends of the gain, are taken as they are. The bound has
    none: it is certified on these draws.
    """
    stakes = [Stakes.of(each.measuring) for each in requests]
    base, best = (sum(getattr(each, end) for each in stakes) for end in ("public_best", "private_best"))
    found: dict[Key, MeasuredValue] = {}
    menus = ReportingMenus(
        [each.public for each in requests],
        [each.planning for each in requests],
        [each.measuring for each in requests],
    )
    planning = replace(menus, measured=menus.reporting)
    for place, epsilon in enumerate(EPSILONS):
        gamma = max(GAMMAS, key=lambda each: planning.cut_gain(each, epsilon))
        *_, (_, learnt) = learnt_priors(menus, epsilon, SERVED, seeded_generator(1, _STREAM, 3, place))
        apart: dict[tuple[str, str], list[Floats]] = {pair: [] for pair in HELD}
        bound = -base
        for request in requests:
            scores = {"": request.measuring[:, 0]}  # the public best
            for name, law in _laws(request, epsilon, learnt, gamma).items():
                scores[name] = (law.pmf(request.measuring) * request.measuring).sum(axis=1)
            for name, over in HELD:
                apart[name, over].append(scores[name] - scores[over])
            bound += best_floors(request.measuring, epsilon).upper_bound
        for (name, over), several in apart.items():
            value = sum(float(each.mean()) for each in several)
            variance = sum(float(each.var(ddof=1)) / len(each) for each in several)
            found[name, over, epsilon] = interval_around(
                value / (best - base), math.sqrt(variance) / (best - base)
            )
        found[BOUND, "", epsilon] = interval_around(bound / (best - base), 0.0)
    return found


def _laws(request: ScoredRequest, epsilon: float, learnt: LearntPrior, gamma: float) -> dict[str, ChoiceLaw]:
    size = len(request.public)
    widths = [bound * float(request.public[0]) for bound in BOUNDS]
    public = tuple(request.public.tolist())
    clipped = [NoisyMax.nominal(Noise.EXPONENTIAL, Clipped(public, width), epsilon) for width in widths]
    return {
        CUT: TopChoice.for_epsilon(epsilon, size, within(request.public, gamma), 1),
        RR: TopChoice.for_epsilon(epsilon, size, size, 1),
        SCALED: NoisyMax.nominal(Noise.EXPONENTIAL, Scaled(size), epsilon),
        CLIPPED: max(clipped, key=lambda law: expected_score(law, request.planning)),
        LEARNT: plan_choice(request.public, learnt, epsilon).law,
        DEFAULT: plan_choice(request.public, None, epsilon).law,
        TRUNC: best_top_plan(request.planning, epsilon).mechanism(epsilon),
        FLOORS: best_floors(request.planning, epsilon).mechanism(),
    }


def _alike(scale: StudyScale, seed: int) -> list[ScoredRequest]:
    draws = seeded_generator(seed, _STREAM, 0)
    halves = [draws.random((DRAWS[scale], MOST_CANDIDATES)) for _ in range(2)]
    return [ScoredRequest(np.full(MOST_CANDIDATES, 0.5), *halves)]


def _informed_requests(scale: StudyScale, seed: int) -> list[ScoredRequest]:
    """Public scores spread as uniforms are, private ones around them by a factor of deviation .3."""
    draws = seeded_generator(seed, _STREAM, 1)
    public = np.sort(draws.random(MOST_CANDIDATES))[::-1]
    shape = (DRAWS[scale], MOST_CANDIDATES)
    halves = [public * np.exp(0.3 * draws.standard_normal(shape) - 0.045) for _ in range(2)]
    return [ScoredRequest(public, *halves)]


def _market(scale: StudyScale, seed: int) -> list[ScoredRequest]:
    """Requests of the display-like market with the true law of private scores given the public ones."""
    market, draws = Market.taobao_like(), seeded_generator(seed, _STREAM, 2)
    auctions = next(iter(market.auctions(20 * REQUESTS[scale], seed)))
    requests: list[ScoredRequest] = []
    for start, end in zip(auctions.offsets[:-1].tolist(), auctions.offsets[1:].tolist(), strict=True):
        if 2 <= end - start <= MOST_CANDIDATES and len(requests) < REQUESTS[scale]:
            score = auctions.bid[start:end] * auctions.server[start:end]
            order = start + np.argsort(-score, kind="stable")
            shape = (2, REQUEST_DRAWS[scale], end - start)
            device = expit(auctions.eta[order] + market.user_spread * draws.standard_normal(shape))
            public = auctions.bid[order] * auctions.server[order]
            requests.append(ScoredRequest(public, *(auctions.bid[order] * device)))
    return requests


SETTINGS: dict[str, Callable[[StudyScale, int], list[ScoredRequest]]] = {
    "15 alike, uniform": _alike,
    "15 with public scores": _informed_requests,
    "Display-like requests": _market,
}


def _line(name: str, shares: Sequence[float]) -> Series:
    drawn = [(e, share) for e, share in zip(EPSILONS, shares, strict=True) if share >= LOWEST_DRAWN]
    xs, ys = zip(*(drawn or [(EPSILONS[-1], LOWEST_DRAWN)]), strict=True)
    return Series(name, xs, ys, mechanism=LOOKS[name])


def judge(kept: ResultFiles) -> list[Finding]:
    found: dict[str, dict[Key, MeasuredValue]] = {}
    rows: Sequence[Mapping[str, Any]] = kept.rows
    for row in rows:
        key = row["mechanism"], row["over"] or "", row["epsilon"]
        share = MeasuredValue(row["share_of_gain"], row["low"], row["high"], LEVEL)
        found.setdefault(row["setting"], {})[key] = share
    return [each for setting, shares in found.items() for each in judge_setting(setting, shares)]


def judge_setting(setting: str, shares: Mapping[Key, MeasuredValue]) -> list[Finding]:
    behind = max(shares[BOUND, "", e].value - shares[TRUNC, "", e].value for e in EPSILONS)
    better = max((shares[FLOORS, TRUNC, e] for e in EPSILONS), key=lambda each: each.low)
    leads = [shares[TRUNC, name, e] for name in PAPERS for e in EPSILONS]
    cut = min((shares[TRUNC, CUT, e] for e in EPSILONS), key=lambda each: each.value)
    low, rival = shares[TRUNC, "", 1], max(shares[name, "", 1].value for name in PAPERS)
    return [
        Finding(
            T1,
            f"at every epsilon it is within {WITHIN:g} of the greedy gain of the bound for any mechanism on "
            "these draws, and not below RR, SNM scaled and SNM clipped at its best bound, 95% over draws; "
            f"fails where one of these is above it, or planned floors are by more than {WITHIN:g}",
            f"at most {behind:.3f} below the bound, {words(better, 3)} below floors; ahead of the paper's by "
            f"{words(min(leads, key=lambda each: each.low), 3)} at least, of RR with the gamma that is best in "
            f"hindsight by {words(cut, 3)}",
            every([_reaches_bound(behind, better), *(interval_within(lead, least=0) for lead in leads)]),
            where=setting,
        ),
        Finding(
            T2,
            "trunc(k, m) planned with the true prior has a share of the gain above 0 on draws that it was not "
            "planned on, 95% over draws",
            f"{words(low, 3)} of the gain; by the default prior {words(shares[DEFAULT, '', 1], 3)}, from "
            f"reports {words(shares[LEARNT, '', 1], 3)}; the paper's best {rival:.3f}, with the best gamma "
            f"{shares[CUT, '', 1].value:.3f}",
            above_zero(low),
            where=setting,
        ),
    ]


def _reaches_bound(behind: float, better: MeasuredValue) -> bool | None:
    """A bound from few draws is too high: that something is better is known only where something was."""
    if behind <= WITHIN:
        return True
    return False if better.low > WITHIN else None


STUDY = Study(
    NAME,
    "Share of the greedy gain over epsilon, under the bound for any mechanism",
    OURS,
    "beyond figure 3",
    (T1, T2),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.2, StudyScale.FULL: 100.0},
    SEEDS,
    run,
    judge,
)
