"""From a simulation's configuration to what runs: blocks of auctions, and an arm for everyone who chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tacit.commands.simulate_config import NOISES, Chooser, Generated, SimulationConfig
from tacit.commands.simulate_log import blocks_of, row_count
from tacit.data.generators.markets import Market
from tacit.deliver.auction.candidates import AuctionBlock
from tacit.deliver.auction.choices import GREEDY, NON_PERSONALISED, ChoiceRule, Greedy, NonPersonalised, TopOf
from tacit.deliver.auction.logs import MICROS, generated_blocks
from tacit.deliver.auction.market import Arm
from tacit.deliver.auction.noisy_choices import NoisyMaxOf
from tacit.deliver.planning.blocks import planned_rule
from tacit.deliver.planning.prior import LOW_SPREAD, Spread
from tacit.privacy.choice.noise import Noise

MARKETS = {"display": Market.taobao_like, "search": Market.search_like}


def rows_of(config: SimulationConfig) -> tuple[int, str]:
    """How much there is to go through, and in what unit; a log's columns are checked on the way."""
    if isinstance(config.market, Generated):
        return config.market.auctions, "auctions"
    return row_count(config.market), "rows"


def stream(config: SimulationConfig) -> Iterator[AuctionBlock]:
    """All auctions once; the same ones each time it is asked."""
    market = config.market
    if isinstance(market, Generated):
        auctions = MARKETS[market.kind]().auctions(market.auctions, market.seed)
        return generated_blocks(auctions, market.campaigns.numbers)
    return blocks_of(market)


def arms_of(config: SimulationConfig) -> dict[str, Arm]:
    """The two ends, and everyone who was asked for, all under the same public rules."""
    ends = {NON_PERSONALISED: Arm(NonPersonalised(), config.rules), GREEDY: Arm(Greedy(), config.rules)}
    asked = {
        each.name: Arm(
            MAKERS[each.mechanism](each),
            config.rules if each.gamma is None else replace(config.rules, cutoff=each.gamma),
        )
        for each in config.choosers
    }
    return {**ends, **asked}


def _trunc(chooser: Chooser) -> ChoiceRule:
    return planned_rule(Spread(chooser.settings.get("spread", LOW_SPREAD)), chooser.epsilon)


def _rr(chooser: Chooser) -> ChoiceRule:
    return TopOf(chooser.epsilon, chooser.settings.get("kept"), chooser.settings.get("top", 1))


def _noisy(chooser: Chooser) -> ChoiceRule:
    clip = chooser.settings.get("clip")
    return NoisyMaxOf(
        chooser.epsilon,
        Noise(chooser.mechanism),
        None if clip is None else float(clip) * MICROS,
        bool(chooser.settings.get("calibrated", False)),
    )


MAKERS: dict[str, Callable[[Chooser], ChoiceRule]] = {
    "rr": _rr,
    "trunc": _trunc,
    **dict.fromkeys(NOISES, _noisy),
}
"""How each of `MECHANISMS` is made; one that is not here is not made at all."""
