"""The mechanisms that are compared, each an arm of a market at an epsilon, with its look."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tacit.deliver.auction.choices import (
    GREEDY,
    NON_PERSONALISED,
    ChoiceRule,
    Greedy,
    NonPersonalised,
    Planned,
    TopOf,
)
from tacit.deliver.auction.market import Arm, Results, measure
from tacit.deliver.auction.noisy_choices import NoisyMaxOf
from tacit.deliver.auction.rules import Rules
from tacit.deliver.planning.prior import Spread
from tacit.privacy.choice.noise import Noise
from tacit.studies.choice.forecasts import Forecasts
from tacit.studies.choice.setting import StudyMarket
from tacit.studies.look import Mechanism

EPSILONS = (0.5, 1, 2, 3, 4, 5, 6, 8, 10)
WIDE = 1.0
"""The clipping bound of the comparisons with one bound, in median best public scores."""

Make = Callable[[StudyMarket, float], ChoiceRule]


@dataclass(frozen=True)
class Contestant:
    name: str
    look: Mechanism
    make: Make

    def at(self, epsilon: float) -> str:
        """The name of its arm at an epsilon."""
        return f"{self.name} at {epsilon:g}"


def clipped(bound: float, noise: Noise = Noise.EXPONENTIAL, name: str = "") -> Contestant:
    """Noisy max on scores clipped at so many median best public scores around the public ones."""

    def make(market: StudyMarket, epsilon: float) -> ChoiceRule:
        return NoisyMaxOf(epsilon, noise, clip_micros=bound * market.unit_micros)

    return Contestant(name or f"SNM, bound {bound:g}", Mechanism.SNM, make)


def scaled(
    noise: Noise = Noise.EXPONENTIAL, name: str = "SNM scaled", *, calibrated: bool = False
) -> Contestant:
    return Contestant(name, Mechanism.SNM, lambda _, epsilon: NoisyMaxOf(epsilon, noise, calibrated=calibrated))


RR = Contestant("RR", Mechanism.RR, lambda _, epsilon: TopOf(epsilon))
SCALED = scaled()
CLIPPED = clipped(WIDE, name="SNM clipped")


def planned(epsilons: Sequence[float], name: str = "trunc, planned") -> Contestant:
    """trunc(k, m), planned for each request from public scores; all epsilons of a block are planned at once."""
    forecasts = Forecasts(epsilons)

    def make(market: StudyMarket, epsilon: float) -> ChoiceRule:
        return Planned(lambda offers: forecasts.evenly(offers, Spread(market.spread), epsilon))

    return Contestant(name, Mechanism.OURS, make)


def contest(
    market: StudyMarket,
    contestants: Sequence[Contestant],
    epsilons: Sequence[float],
    rules: Rules | None = None,
    more: Mapping[str, Arm] | None = None,
) -> Results:
    """Everybody at every epsilon and the two ends, on the same auctions."""
    public = rules or Rules()
    arms = {NON_PERSONALISED: Arm(NonPersonalised(), public), GREEDY: Arm(Greedy(), public), **(more or {})}
    for contestant in contestants:
        for epsilon in epsilons:
            arms[contestant.at(epsilon)] = Arm(contestant.make(market, epsilon), public)
    return measure(market.blocks, arms)
