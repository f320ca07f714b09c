"""Trials of priors on made-up requests: regret under many truths, shares over requests served, fake reports.

A trial is a value that a process can be handed; `measure_trial` gives its rows. Scores of trials under truths
are in units of the public best, so that gains are parts of its score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.data.generators.worlds import seeded_generator
from tacit.deliver.protocol.factor_laws import Spread
from tacit.privacy.choice.top_choice import best_top_plan
from tacit_lab.studies.choice.reports import (
    COUNTED,
    DEFAULT,
    NOISES,
    OLD,
    PUBLISHED,
    PUBLISHED_GAMMA,
    REPORTS,
    RESPONSE,
    TRUE,
    FakeReports,
    ReportingMenus,
    learnt_priors,
)
from tacit_lab.studies.choice.truths import (
    DEVICES,
    EIGHT,
    MARKETS,
    TRUTHS,
    counted_prior,
    market_menus,
    menus_under,
    ratios_of_menus,
    true_prior,
)

LEARNT_AT = (100, 400, 1_500, 5_000)
"""Requests served: a prior is learnt anew at each, and the last is what regret is measured after."""
OLD_PRIOR = Spread(0.3)
FARMS = tuple(FakeReports(share, lowest) for lowest in (True, False) for share in (0.1, 0.3))
_STREAM = 35

Row = dict[str, Any]
Sizes = dict[str, list[tuple[int, int]]]  # by arm: (k, m) of each menu


@dataclass(frozen=True)
class PriorTrial:
    """Of what, on which market, at which epsilon; menus, people and truths say how much work it is."""

    part: str  # REGRET, SERVED or FAKES
    market: str
    epsilon: float
    seed: int
    menus: int
    people: int
    truths: tuple[str, ...]
    served: tuple[int, ...]

    @property
    def labels(self) -> Row:
        return {"part": self.part, "setting": self.market, "epsilon": self.epsilon, "seed": self.seed}

    def draws(self, truth: str = "", more: int = 0) -> np.random.Generator:
        """Streams of their own for every truth, and the same ones at every epsilon."""
        number = list(TRUTHS).index(truth) if truth else len(TRUTHS)
        return seeded_generator(self.seed, _STREAM, MARKETS.index(self.market), number, more)


REGRET, SERVED, FAKES = "regret", "served", "fakes"


def measure_trial(trial: PriorTrial) -> list[Row]:
    return {REGRET: _regret, SERVED: _served, FAKES: _fakes}[trial.part](trial)


def _regret(trial: PriorTrial) -> list[Row]:
    """Gains and regrets after all requests were served, in percent of the public best's score."""
    rows: list[Row] = []
    fixed: Sizes = {}
    for truth in trial.truths:
        menus = menus_under(trial.market, truth, trial.menus, trial.people, trial.seed)
        fixed = fixed or _fixed_sizes(menus, trial.epsilon)
        gains = {**_unlearnt(menus, trial.epsilon, fixed), **_learnt(trial, menus, truth)}
        best = menus.planned_gain(true_prior(truth), trial.epsilon)
        for arm, gain in {**gains, TRUE: best}.items():
            figures = {"gain_percent": 100 * gain, "regret_percent": 100 * (best - gain)}
            rows.append({**trial.labels, "truth": truth, "arm": arm, **figures})
    return rows


def _fixed_sizes(menus: ReportingMenus, epsilon: float) -> Sizes:
    """Plans by priors that are assumed: the same for all truths."""
    return {arm: menus.planned_sizes(prior, epsilon) for arm, prior in ((OLD, OLD_PRIOR), (DEFAULT, Spread()))}


def _unlearnt(menus: ReportingMenus, epsilon: float, fixed: Sizes) -> dict[str, float]:
    """What is gained by who learns nothing."""
    return {
        **{arm: menus.top_gain(sizes, epsilon) for arm, sizes in fixed.items()},
        RESPONSE: menus.response_gain(epsilon),
        PUBLISHED: menus.cut_gain(PUBLISHED_GAMMA, epsilon),
        **{arm: menus.noisy_gain(noise, epsilon) for arm, noise in NOISES.items()},
    }


def _learnt(trial: PriorTrial, menus: ReportingMenus, truth: str) -> dict[str, float]:
    return {REPORTS: _after(trial, menus, truth), COUNTED: _counted(trial, menus, truth)}


def _counted(trial: PriorTrial, menus: ReportingMenus, truth: str = "") -> float:
    """The gain by the prior of one round in which devices counted."""
    draws = trial.draws(truth, 1)
    prior = counted_prior(ratios_of_menus(menus, DEVICES, draws), draws)
    return menus.planned_gain(prior, trial.epsilon)


def _after(trial: PriorTrial, menus: ReportingMenus, truth: str, fakes: FakeReports | None = None) -> float:
    """The gain by the prior that all reports taught."""
    priors = learnt_priors(menus, trial.epsilon, trial.served, trial.draws(truth), fakes)
    *_, (_, last) = priors
    return menus.planned_gain(last, trial.epsilon)


def _served(trial: PriorTrial) -> list[Row]:
    """Shares of the greedy gain, where private scores follow the market's own law."""
    menus, known = market_menus(trial.market, trial.menus, trial.people, trial.seed)
    sizes = [(plan.kept, plan.top) for plan in (best_top_plan(people, trial.epsilon) for people in known)]
    gains: list[tuple[str, int | None, float]] = [
        (arm, None, gain)
        for arm, gain in _unlearnt(menus, trial.epsilon, _fixed_sizes(menus, trial.epsilon)).items()
    ]
    gains.append((COUNTED, None, _counted(trial, menus)))
    gains.append((TRUE, None, menus.top_gain(sizes, trial.epsilon)))
    for requests, prior in learnt_priors(menus, trial.epsilon, trial.served, trial.draws()):
        gains.append((REPORTS, requests, menus.planned_gain(prior, trial.epsilon)))
    return [
        {**trial.labels, "arm": arm, "requests": requests}
        | {"share": gain / menus.greedy_gain, "gain_percent": 100 * gain / menus.public_best}
        for arm, requests, gain in gains
    ]


def _fakes(trial: PriorTrial) -> list[Row]:
    """What farms of fakes cost: the gain without them less that with them, in percent of the public best's."""
    rows = []
    for truth in trial.truths:
        menus = menus_under(EIGHT, truth, trial.menus, trial.people, trial.seed)
        honest = _after(trial, menus, truth)
        for farm in FARMS:
            loss = 100 * (honest - _after(trial, menus, truth, farm))
            rows.append({**trial.labels, "truth": truth, "arm": str(farm), "loss_percent": loss})
    return rows
