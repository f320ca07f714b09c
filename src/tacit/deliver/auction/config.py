"""A simulated market in one TOML file: where its auctions come from, its public rules, and who chooses how.

`load_simulation` reads the file, `build_arms` makes of it what `measure` compares. A log streams by itself
(`AuctionLog.blocks`); made-up auctions come from a generator that the caller has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tacit import expect
from tacit.config import ConfigTable, error_prefix, read_toml
from tacit.deliver.auction.blocks import BidEvent
from tacit.deliver.auction.choices import (
    GREEDY,
    NON_PERSONALISED,
    ChoiceRule,
    Greedy,
    NonPersonalised,
    TopChoiceRule,
)
from tacit.deliver.auction.learning_choices import LearningRule
from tacit.deliver.auction.logs import MICROS, AuctionLog, AuctionLogColumns
from tacit.deliver.auction.market import Arm
from tacit.deliver.auction.noisy_choices import NoisyMaxRule
from tacit.deliver.auction.planned_choices import planned_rule
from tacit.deliver.protocol.factor_laws import Spread
from tacit.deliver.protocol.prices import PRICES, BillingEvent, Rules, SecondPrice
from tacit.deliver.protocol.priors import DEFAULT_PRIOR
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.choice.noise import Noise

GENERATED = ("display", "search")
NOISES = ("gumbel", "exponential", "laplace")
MECHANISMS: dict[str, tuple[str, ...]] = {
    "rr": ("kept", "top"),
    "trunc": ("spread", "prior", "learning_seed"),
    **dict.fromkeys(NOISES, ("clip", "calibrated")),
}
"""Mechanisms, and the keys that each reads beside name, epsilon and gamma."""

TOP = ("market", "columns", "auction", "choice", "charges")
MARKET = ("log", "generated", "auctions", "seed", "campaigns", "popularity")
LEAST_CAMPAIGNS = 40  # the most candidates that a made-up auction has, all of different campaigns
COLUMNS = (
    "auction", "campaign", "bid", "bid_kind", "click", "conversion", "private_click", "private_conversion",
    "true_click", "user", "private", "bids_for",
)  # fmt: skip
AUCTION = ("price", "charged", "reserve_micros", "gamma", "empty_worth_micros")
CHOICE = (
    "name",
    "mechanism",
    "epsilon",
    "gamma",
    *dict.fromkeys(key for keys in MECHANISMS.values() for key in keys),
)
CHARGES = ("file", "choice", "seed", "not_private")
MOST_SPREAD = 10
LEARNT, ASSUMED = PRIORS = ("learnt", "assumed")
"""Where the prior of a planned choice comes from: the reports of earlier auctions, or nowhere."""


@dataclass(frozen=True)
class GeneratedMarket:
    """Made-up auctions, like those of display or of search ads, of campaigns with weights 1 / rank^popularity.

    It says what is wanted; who has a generator makes them (`generated_blocks`).
    """

    kind: str
    auctions: int = 20_000
    seed: int = 1
    campaigns: int = 200
    popularity: float = 1.0


@dataclass(frozen=True)
class Chooser:
    """One way to choose, at one epsilon."""

    name: str
    mechanism: str
    epsilon: float
    gamma: float | None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ChargesConfig:
    """Where to write charges, for whom; choices are drawn from a seed, or from the system's entropy."""

    file: Path
    chooser: str
    seed: int | None


@dataclass(frozen=True)
class SimulationConfig:
    """A market, its public rules, who chooses how, and the charges to write, if any."""

    market: AuctionLog | GeneratedMarket
    rules: Rules
    choosers: tuple[Chooser, ...]
    charges: ChargesConfig | None


def load_simulation(path: str | Path) -> SimulationConfig:
    """The simulation that a TOML file describes; paths in it are relative to its folder."""
    path = expect.path("path", path)
    place = Path(path)
    with error_prefix(str(path)):
        return parse_simulation(read_toml(place, "a simulation's configuration"), place.resolve().parent)


def parse_simulation(record: Mapping[str, Any], folder: Path) -> SimulationConfig:
    ConfigTable(record, "", TOP)
    rules = _rules(ConfigTable.under(record, "auction", AUCTION))
    market = _market(record, folder)
    choosers = _choosers(record.get("choice", []), getattr(market, "seed", GeneratedMarket.seed))
    charges = _charges(record, folder, choosers)
    if charges is not None and isinstance(market, AuctionLog) and market.names.campaign is None:
        raise BadInput("columns.campaign: expected the name of a column, for charges, got no such key")
    return SimulationConfig(market, rules, choosers, charges)


def build_arms(config: SimulationConfig) -> dict[str, Arm]:
    """The two ends, and every choice that was asked for, all under the same public rules. Arms that learn know
    nothing yet."""
    expect.kind("config", config, SimulationConfig)
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
    given = chooser.settings
    if "spread" in given:
        return planned_rule(Spread(given["spread"]), chooser.epsilon)
    if given["prior"] == ASSUMED:
        return planned_rule(DEFAULT_PRIOR, chooser.epsilon)
    # One stream for each arm, from the beginning whenever arms are made.
    return LearningRule(
        chooser.epsilon, Simulation(f"simulated reports {given['learning_seed']}, {chooser.name}").words
    )


def _rr(chooser: Chooser) -> ChoiceRule:
    return TopChoiceRule(chooser.epsilon, chooser.settings.get("kept"), chooser.settings.get("top", 1))


def _noisy(chooser: Chooser) -> ChoiceRule:
    clip = chooser.settings.get("clip")
    return NoisyMaxRule(
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


def _market(record: Mapping[str, Any], folder: Path) -> AuctionLog | GeneratedMarket:
    table = ConfigTable.under(record, "market", MARKET, folder)
    if ("log" in table) == ("generated" in table):
        raise BadInput("market: expected either log or generated, got both or neither")
    if "generated" in table:
        if "columns" in record:
            raise BadInput("columns: expected no such table for a generated market, got one")
        auctions = table.whole("auctions", GeneratedMarket.auctions, at_least=2)
        seed = table.whole("seed", GeneratedMarket.seed)
        campaigns = table.whole("campaigns", GeneratedMarket.campaigns, at_least=LEAST_CAMPAIGNS)
        popularity = table.number("popularity")
        with error_prefix("market"):
            falls = expect.at_least_zero(
                "popularity", GeneratedMarket.popularity if popularity is None else popularity
            )
        return GeneratedMarket(table.one_of("generated", GENERATED), auctions, seed, campaigns, float(falls))
    for key in ("auctions", "seed", "campaigns", "popularity"):
        if key in table:
            raise BadInput(f"market.{key}: expected no such key for a log, got one")
    log = table.file("log")
    columns = ConfigTable.under(record, "columns", COLUMNS)
    return AuctionLog(log, _names(columns), columns.optional_text("bid_kind"))


def _names(table: ConfigTable) -> AuctionLogColumns:
    for key in ("auction", "bid", "click", "private_click"):
        table.needed(key, "the name of a column")
    if "bid_kind" in table and "bids_for" in table:
        raise BadInput("columns.bids_for: expected no such key where a column says it (bid_kind), got one")
    texts = {key: table.optional_text(key) for key in COLUMNS if key not in ("private", "bids_for", "bid_kind")}
    hidden = table.some("private").get("private", [])
    if not isinstance(hidden, list) or not all(isinstance(name, str) for name in hidden):
        raise BadInput("columns.private: expected a list of names, got another")
    bids_for = BidEvent(table.one_of("bids_for", tuple(BidEvent), BidEvent.CLICK))
    for key in ("conversion", "private_conversion") if bids_for is BidEvent.CONVERSION else ():
        table.needed(key, "the name of a column, as bids are for conversions")
    secret = {*hidden, *(texts[key] for key in ("private_click", "private_conversion", "true_click", "user"))}
    if "bid_kind" in table and table.text("bid_kind") in secret:
        raise BadInput("columns.bid_kind: expected a public column to price by, got one that is private")
    with error_prefix("columns"):
        return AuctionLogColumns(**texts, bids_for=bids_for, private=frozenset(hidden))  # type: ignore[arg-type]


def _rules(table: ConfigTable) -> Rules:
    if table.some("charged").get("charged") == BidEvent.CONVERSION:
        raise BadInput(
            "auction.charged: expected click (whatever a bid is for, conversions too, is then charged) or "
            "impression, got 'conversion'"
        )
    charged = BillingEvent(table.one_of("charged", tuple(BillingEvent), BillingEvent.CLICK))
    price = PRICES[table.one_of("price", tuple(PRICES), SecondPrice.word)](charged)
    gamma, empty = table.number("gamma", 1), table.number("empty_worth_micros")
    reserve = table.whole("reserve_micros", 0)
    with error_prefix("auction"):
        expect.probability("gamma", gamma or 0, zero=True, one=True)
        return Rules(price, reserve, float(gamma or 0), None if empty is None else float(empty))


def _choosers(given: Any, seed: int) -> tuple[Chooser, ...]:
    """`seed` is the market's own, from which simulated reports are drawn if they have none of their own."""
    if not isinstance(given, list):
        raise BadInput("choice: expected tables [[choice]], got another")
    found = [
        chooser
        for at, record in enumerate(given, start=1)
        for chooser in _chooser(record, f"choice {at}", seed)
    ]
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1 or name in (GREEDY, NON_PERSONALISED):
            raise BadInput(f"choice: expected a name for each that no other has, got {name!r} again")
    return tuple(found)


def _chooser(record: Any, path: str, seed: int) -> list[Chooser]:
    table = ConfigTable(record, path, CHOICE)
    mechanism = table.one_of("mechanism", tuple(MECHANISMS))
    for key in CHOICE[4:]:
        if key in table and key not in MECHANISMS[mechanism]:
            reads = _join_words(MECHANISMS[mechanism])
            raise BadInput(f"{path}.{key}: expected only keys that {mechanism} reads ({reads}), got {key!r}")
    asked = table.needed("epsilon", "a number, or a list of them")
    epsilons = asked if isinstance(asked, list) else [asked]
    if not epsilons:
        raise BadInput(f"{path}.epsilon: expected at least one number, got an empty list")
    gamma = table.number("gamma")
    if gamma is not None:
        expect.probability(f"{path}.gamma", gamma, zero=True, one=True)
    settings = _settings(table, path, mechanism, seed)
    name = table.text("name", mechanism)
    return [
        Chooser(
            name if len(epsilons) == 1 and "name" in table else f"{name} at {_short(epsilon)}",
            mechanism,
            float(expect.positive(f"{path}.epsilon", epsilon)),
            None if gamma is None else float(gamma),
            settings,
        )
        for epsilon in epsilons
    ]


def _settings(table: ConfigTable, path: str, mechanism: str, seed: int) -> dict[str, Any]:
    settings = table.some(*MECHANISMS[mechanism])
    if mechanism == "trunc":
        if "spread" in settings:
            for key in ("prior", "learning_seed"):
                if key in settings:
                    raise BadInput(
                        f"{path}.{key}: expected no such key beside spread, which fixes the prior, got one"
                    )
        else:
            settings["prior"] = table.one_of("prior", PRIORS, LEARNT)
            settings["learning_seed"] = table.whole("learning_seed", seed)
        if settings.get("prior") == ASSUMED and "learning_seed" in table:
            raise BadInput(f"{path}.learning_seed: expected no such key where the prior is assumed, got one")
    for key in ("kept", "top"):
        if key in settings:
            expect.whole(f"{path}.{key}", settings[key], at_least=1)
    if settings.get("top", 1) > settings.get("kept", settings.get("top", 1)):
        raise BadInput(f"{path}.top: expected at most kept = {settings['kept']}, got {settings['top']}")
    if "spread" in settings and expect.at_least_zero(f"{path}.spread", settings["spread"]) > MOST_SPREAD:
        raise BadInput(f"{path}.spread: expected at most {MOST_SPREAD}, got {settings['spread']}")
    if "clip" in settings:
        expect.positive(f"{path}.clip", settings["clip"])
    if table.flag("calibrated") and "clip" in settings:
        raise BadInput(f"{path}.calibrated: expected it for scaled scores only, got a clip beside it")
    return settings


def _charges(record: Mapping[str, Any], folder: Path, choosers: Collection[Chooser]) -> ChargesConfig | None:
    if "charges" not in record:
        return None
    table = ConfigTable(record["charges"], "charges", CHARGES, folder)
    table.needed("file", "a place ending in .parquet or .csv")
    file = table.file("file")
    if file.suffix not in (".parquet", ".csv"):
        raise BadInput(f"charges.file: expected a place ending in .parquet or .csv, got {file.name!r}")
    chosen = table.one_of("choice", (*(each.name for each in choosers), GREEDY, NON_PERSONALISED))
    not_private = table.flag("not_private")
    private = [each.name for each in choosers if each.mechanism not in NOISES] + [NON_PERSONALISED]
    if chosen == GREEDY and not not_private:
        raise BadInput(
            f"charges.choice: expected a private choice ({', '.join(private)}), got {GREEDY!r}: its lines are "
            f"each person's best ads; say not_private = true if that is meant"
        )
    if chosen != GREEDY and chosen not in private:
        raise BadInput(
            f"charges.choice: expected one that may be shown ({', '.join(private)}), got {chosen!r}, which is "
            f"for measuring only"
        )
    return ChargesConfig(file, chosen, table.optional_whole("seed", at_least=0))


def _short(epsilon: Any) -> str:
    return f"{epsilon:g}" if isinstance(epsilon, int | float) else str(epsilon)


def _join_words(words: Collection[str]) -> str:
    return ", ".join(words) or "none of its own"
