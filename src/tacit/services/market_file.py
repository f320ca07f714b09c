"""A market as an operator writes it down: who may be charged, and which ads compete in which contexts, in TOML.

    epoch_seconds = 600          # for which a menu and its token keys are offered
    report_seconds = 3600        # after an epoch's end, in which its impressions can still be reported
    epsilon = 1.0                # what one private choice may spend of a device's privacy, in whole millionths
    smallest_cohort = 20         # reports of a menu that leave the proxy together, at least
    reserve_micros = 0           # the least public score, bid x rate, that takes part
    method = "trunc"             # how devices plan: trunc, top, rr or floors
    attributes = ["city", "topic"]        # names of the contexts' attributes, for reading

    [[campaign]]
    number = 1
    advertiser = "Bean & Leaf"
    budget_micros = 50_000_000   # what it may be charged in all; without the key: no limit

    [[menu]]                     # for each context that is offered
    levels = [1, 1]
    values = ["North", "Food"]
    ads = [
        { campaign = 1, bid_micros = 400_000, rate = 0.031 },     # its bid for a click, and the chance of one
    ]

Ads are ranked by bid x rate and priced by the next one's, per impression. The file is read for each epoch:
what is changed in it counts from the next one that is opened. A budget counts when its campaign is first
seen; afterwards the operator changes it (POST /billing/campaigns).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from tacit import expect
from tacit.bill.protocol.menus import MOST_MICROS, PricedMenu
from tacit.bill.server.store import AdStore, Campaign
from tacit.config import ConfigTable, error_prefix, read_toml
from tacit.deliver.protocol.plans import PlanMethod
from tacit.deliver.protocol.priced_menus import price_list
from tacit.deliver.protocol.prices import BillingEvent, Rules, SecondPrice
from tacit.deliver.server.candidates import price_menu
from tacit.display import brief
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Node
from tacit.services.problems import LOG

COMMON = ("epoch_seconds", "report_seconds", "epsilon", "smallest_cohort", "reserve_micros", "method")
"""Keys of every market; menus are listed with those below, or made of campaigns (`ads.campaign_menus`)."""

LISTED = ("attributes", "campaign", "menu")
TOP = (*COMMON, *LISTED)
MOST_EPOCH_SECONDS = 7 * 86_400
MOST_REPORT_SECONDS = 21 * 86_400
MOST_LEVEL = 255
Found = TypeVar("Found", bound=Hashable)


@dataclass(frozen=True)
class MarketAd:
    """An ad of a campaign in one context: what it bids for a click, and the public chance of one."""

    campaign: int
    bid_micros: int
    rate: float

    @property
    def most_micros(self) -> int:
        """The most that one impression can cost it: its public score."""
        return math.ceil(self.bid_micros * self.rate)


@dataclass(frozen=True)
class MarketMenu:
    """The ads that compete in one context."""

    node: Node
    ads: tuple[MarketAd, ...]


@dataclass(frozen=True)
class MarketTerms:
    """What every market says: how long menus are offered and reported, and what a choice may spend."""

    epoch_seconds: int
    report_seconds: int
    epsilon: Fraction
    smallest_cohort: int
    reserve_micros: int
    method: PlanMethod


def read_terms(top: ConfigTable) -> MarketTerms:
    return MarketTerms(
        epoch_seconds=top.whole("epoch_seconds", at_least=1, at_most=MOST_EPOCH_SECONDS),
        report_seconds=top.whole("report_seconds", at_most=MOST_REPORT_SECONDS),
        epsilon=expect.positive("epsilon", top.needed("epsilon", "a number")),
        smallest_cohort=top.whole("smallest_cohort", at_least=1, at_most=2**32 - 1),
        reserve_micros=top.whole("reserve_micros", 0, at_most=MOST_MICROS),
        method=PlanMethod(top.one_of("method", [str(each) for each in PlanMethod], "trunc")),
    )


@dataclass(frozen=True)
class Market(MarketTerms):
    """All that is offered, and who pays. `priced` makes an epoch's menus of it."""

    campaigns: tuple[Campaign, ...]
    menus: tuple[MarketMenu, ...]

    def __repr__(self) -> str:
        return brief(self, contexts=len(self.menus), campaigns=len(self.campaigns))

    def priced(
        self,
        epoch: int,
        left_micros: Mapping[int, int] | None = None,
        without: Mapping[Node, frozenset[int]] | None = None,
    ) -> list[PricedMenu]:
        """The menus of an epoch, for both lanes; none for a context in which nobody can pay.

        `left_micros` is what campaigns have left, where they have a limit: whoever cannot pay for one
        impression at its own public score, the most that it can cost, is left out. `without` leaves campaigns
        out of some contexts besides.
        """
        left = {} if left_micros is None else left_micros
        found: list[PricedMenu] = []
        for menu in self.menus:
            out = frozenset() if without is None else without.get(menu.node, frozenset())
            can_pay = (ad for ad in menu.ads if left.get(ad.campaign, MOST_MICROS) >= max(1, ad.most_micros))
            ads = [ad for ad in can_pay if ad.campaign not in out]
            if any(ad.bid_micros * ad.rate >= self.reserve_micros for ad in ads):
                personal = self._price(MarketMenu(menu.node, tuple(ads)), epoch)
                found += [personal, personal.public_lane()]
        return found

    def _price(self, menu: MarketMenu, epoch: int) -> PricedMenu:
        ranked = price_menu(
            menu.node,
            [ad.campaign for ad in menu.ads],
            [ad.bid_micros for ad in menu.ads],
            [ad.rate for ad in menu.ads],
            Rules(SecondPrice(BillingEvent.IMPRESSION), reserve_micros=self.reserve_micros),
        )
        return price_list(
            ranked,
            epoch=epoch,
            epsilon=self.epsilon,
            smallest_cohort=self.smallest_cohort,
            reserve_micros=self.reserve_micros,
            method=self.method,
        )


class MarketFile:
    """The menus of a file, as a `MenuSource`: read again for each epoch, its new campaigns put into the store.

    A budget that the operator has changed stays as it is.
    """

    def __init__(self, path: Path, store: AdStore) -> None:
        self._path, self._store = path, store
        self._poor: frozenset[int] = frozenset()  # campaigns that were left out when we last looked
        self.refresh()

    def __repr__(self) -> str:
        return brief(self, path=str(self._path), market=self._market)

    @property
    def epoch_seconds(self) -> int:
        return self._market.epoch_seconds

    @property
    def report_seconds(self) -> int:
        return self._market.report_seconds

    def refresh(self) -> None:
        market = read_market(self._path)
        known = {each.campaign: each for each in self._store.campaigns()}
        for each in market.campaigns:
            before = known.get(each.campaign)
            if before is not None and before.advertiser != each.advertiser:
                raise BadInput(
                    f"{self._path}: expected campaign {each.campaign} to be paid by {before.advertiser!r}, as "
                    f"it always was, got {each.advertiser!r}"
                )
        new = [each for each in market.campaigns if each.campaign not in known]
        if new:
            self._store.put_campaigns(new)
        self._market = market

    def menus(
        self,
        epoch: int,
        opens: int,  # noqa: ARG002 (these menus are the same at all times)
        closes: int,  # noqa: ARG002
        left_micros: Mapping[int, int],
        without: Mapping[Node, frozenset[int]],
    ) -> list[PricedMenu]:
        self._tell_poor(left_micros)
        return self._market.priced(epoch, left_micros, without)

    def _tell_poor(self, left_micros: Mapping[int, int]) -> None:
        least: dict[int, int] = {}
        for ad in (ad for menu in self._market.menus for ad in menu.ads):
            least[ad.campaign] = min(ad.most_micros, least.get(ad.campaign, MOST_MICROS))
        poor = {number for number, left in left_micros.items() if left < max(1, least.get(number, 0))}
        for number in sorted(poor - self._poor):
            LOG.warning("campaign %d cannot pay for an impression: it is left out of the next epochs", number)
        self._poor = frozenset(poor)


def read_market(path: Path) -> Market:
    """The market of a file; whatever is wrong with it is said in one line, with the key."""
    with error_prefix(str(path)):
        return _parse(read_toml(path, "a market"))


def _parse(record: Mapping[str, Any]) -> Market:
    top = ConfigTable(record, "", TOP)
    campaigns = [_campaign(table) for table in _tables(record, "campaign", CAMPAIGN)]
    numbers = [each.campaign for each in campaigns]
    if len(twice := _repeated(numbers)):
        raise BadInput(f"campaign: expected each number once, got {twice[0]} twice")
    known = set(numbers)
    attributes = tuple(_texts(top, "attributes")) if "attributes" in top else ()
    market = Market(
        **vars(read_terms(top)),
        campaigns=tuple(campaigns),
        menus=tuple(_menu(table, attributes, known) for table in _tables(record, "menu", MENU)),
    )
    nodes = [menu.node for menu in market.menus]
    if len(again := _repeated(nodes)):
        raise BadInput(f"menu: expected each context once, got {again[0]} twice")
    for node in nodes:
        if len(node.levels) != len(nodes[0].levels):
            raise BadInput(f"menu: expected contexts of as many attributes, got {len(node.levels)} in {node}")
    for menu in market.menus:
        market._price(menu, 0)  # a context that cannot be priced is refused now, and not when its epoch opens
    return market


CAMPAIGN = ("number", "advertiser", "budget_micros")
MENU = ("levels", "values", "ads")
AD = ("campaign", "bid_micros", "rate")


def _campaign(table: ConfigTable) -> Campaign:
    budget = None
    if "budget_micros" in table:
        budget = table.whole("budget_micros", at_most=MOST_MICROS)
    return Campaign(table.whole("number", at_most=2**63 - 1), table.text("advertiser"), budget)


def _menu(table: ConfigTable, attributes: tuple[str, ...], campaigns: Collection[int]) -> MarketMenu:
    levels = table.needed("levels", "a list of whole numbers")
    if not isinstance(levels, list) or not levels:
        raise BadInput(f"{table.name('levels')}: expected a list of whole numbers, got {levels!r}")
    for level in levels:
        if not 0 <= expect.integer(f"each of {table.name('levels')}", level) <= MOST_LEVEL:
            raise BadInput(f"{table.name('levels')}: expected levels from 0 to {MOST_LEVEL}, got {level}")
    values = _texts(table, "values")
    if len(values) != len(levels) or len(attributes) not in (0, len(levels)):
        raise BadInput(
            f"{table.name('values')}: expected a value for each of {len(attributes) or len(levels)} "
            f"attributes, and a level, got {len(values)} and {len(levels)}"
        )
    ads = [_ad(each, campaigns) for each in _tables(table.some("ads"), "ads", AD, within=table.path)]
    if len({ad.campaign for ad in ads}) < len(ads):
        raise BadInput(f"{table.name('ads')}: expected each campaign once, got one twice")
    return MarketMenu(Node(tuple(levels), tuple(values), attributes), tuple(ads))


def _ad(table: ConfigTable, campaigns: Collection[int]) -> MarketAd:
    campaign = table.whole("campaign")
    if campaign not in campaigns:
        raise BadInput(f"{table.name('campaign')}: expected the number of a campaign above, got {campaign}")
    rate = expect.probability(table.name("rate"), table.needed("rate", "a probability"), zero=True, one=True)
    return MarketAd(campaign, table.whole("bid_micros", at_most=MOST_MICROS), float(rate))


def _tables(
    record: Mapping[str, Any], key: str, allowed: tuple[str, ...], *, within: str = ""
) -> list[ConfigTable]:
    """The tables of a list, which must have some; the first is called 1."""
    path = f"{within}.{key}" if within else key
    found = record.get(key)
    if not isinstance(found, list) or not found:
        got = "none" if found is None else "another value"
        raise BadInput(f"{path}: expected a list of tables, got {got}")
    return [ConfigTable(each, f"{path} {place}", allowed) for place, each in enumerate(found, start=1)]


def _repeated(values: Iterable[Found]) -> list[Found]:
    return [value for value, times in Counter(values).items() if times > 1]


def _texts(table: ConfigTable, key: str) -> list[str]:
    found = table.needed(key, "a list of texts")
    if not isinstance(found, list) or not all(isinstance(each, str) and each.strip() for each in found):
        raise BadInput(f"{table.name(key)}: expected a list of texts in quotes, got {found!r}")
    return found
