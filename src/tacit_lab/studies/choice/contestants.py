"""The mechanisms that choice studies compare, each an arm of a market at an epsilon, with its look in
figures.

`Forecasts` are public forecasts of blocks, made once for all arms that plan by them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tacit.deliver.auction.blocks import Offers
from tacit.deliver.auction.choices import (
    GREEDY,
    NON_PERSONALISED,
    ChoiceRule,
    Greedy,
    NonPersonalised,
    PlannedRule,
    TopChoiceRule,
)
from tacit.deliver.auction.market import Arm, MarketResults, measure
from tacit.deliver.auction.noisy_choices import NoisyMaxRule
from tacit.deliver.auction.planned_choices import BlockForecast, forecast_block
from tacit.deliver.protocol.factor_laws import Spread
from tacit.deliver.protocol.prices import Rules
from tacit.kernels.auctions import EMPTY
from tacit.privacy.choice.noise import Noise
from tacit_lab.studies.choice.markets import StudyMarket
from tacit_lab.studies.figure_style import Mechanism


class Forecasts:
    """Forecasts at every step of a ladder, kept by all that they are made of: nothing is planned twice."""

    def __init__(self, ladder: Sequence[float]) -> None:
        self.ladder = tuple(ladder)
        self._known: dict[tuple[Spread, bytes], BlockForecast] = {}

    def of(self, offers: Offers, prior: Spread) -> BlockForecast:
        read = (offers.offsets, offers.score, offers.rows == EMPTY)
        key = prior, hashlib.sha256(b"".join(column.tobytes() for column in read)).digest()
        if key not in self._known:
            self._known[key] = forecast_block(offers, prior, self.ladder)
        return self._known[key]

    def evenly(self, offers: Offers, prior: Spread, epsilon: float) -> TopChoiceRule:
        """The same epsilon, one of the ladder, for every request."""
        return self.of(offers, prior).rule(np.full(offers.count, float(epsilon)))


EPSILONS = (0.5, 1, 2, 3, 4, 5, 6, 8, 10)
WIDE = 1.0
"""The clipping bound of the comparisons with one bound, in median best public scores."""

Make = Callable[[StudyMarket, float], ChoiceRule]


@dataclass(frozen=True)
class ChoiceContestant:
    name: str
    look: Mechanism
    make: Make

    def at(self, epsilon: float) -> str:
        """The name of its arm at an epsilon."""
        return f"{self.name} at {epsilon:g}"


def clipped_snm(bound: float, noise: Noise = Noise.EXPONENTIAL, name: str = "") -> ChoiceContestant:
    """Noisy max on scores clipped at `bound` median best public scores around the public ones."""

    def make(market: StudyMarket, epsilon: float) -> ChoiceRule:
        return NoisyMaxRule(epsilon, noise, clip_micros=bound * market.unit_micros)

    return ChoiceContestant(name or f"SNM, bound {bound:g}", Mechanism.SNM, make)


def scaled_snm(
    noise: Noise = Noise.EXPONENTIAL, name: str = "SNM scaled", *, calibrated: bool = False
) -> ChoiceContestant:
    return ChoiceContestant(
        name, Mechanism.SNM, lambda _, epsilon: NoisyMaxRule(epsilon, noise, calibrated=calibrated)
    )


RR = ChoiceContestant("RR", Mechanism.RR, lambda _, epsilon: TopChoiceRule(epsilon))
SCALED = scaled_snm()
CLIPPED = clipped_snm(WIDE, name="SNM clipped")


def planned_trunc(
    epsilons: Sequence[float], name: str = "trunc, matched prior", prior: Spread | None = None
) -> ChoiceContestant:
    """trunc(k, m), planned for each request from public scores; all epsilons of a block are planned at once.

    By default with the market's own spread, which nobody knows beforehand; or with the `prior` that is given.
    """
    forecasts = Forecasts(epsilons)

    def make(market: StudyMarket, epsilon: float) -> ChoiceRule:
        return PlannedRule(lambda offers: forecasts.evenly(offers, prior or Spread(market.spread), epsilon))

    return ChoiceContestant(name, Mechanism.OURS, make)


def run_contest(
    market: StudyMarket,
    contestants: Sequence[ChoiceContestant],
    epsilons: Sequence[float],
    rules: Rules | None = None,
    more: Mapping[str, Arm] | None = None,
) -> MarketResults:
    """Everybody at every epsilon and the two ends, on the same auctions."""
    public = rules or Rules()
    arms = {NON_PERSONALISED: Arm(NonPersonalised(), public), GREEDY: Arm(Greedy(), public), **(more or {})}
    for contestant in contestants:
        for epsilon in epsilons:
            arms[contestant.at(epsilon)] = Arm(contestant.make(market, epsilon), public)
    return measure(market.blocks, arms)
