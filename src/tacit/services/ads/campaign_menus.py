"""Menus of the campaigns in the store, as a `MenuSource`, from a market.toml without menus of its own:

    epoch_seconds = 600                # epoch_seconds to method are as in any market (`market_file`)
    report_seconds = 3600
    epsilon = 1.0
    smallest_cohort = 20
    reserve_micros = 100
    contexts = "contexts.toml"         # the hierarchy, relative to this file
    levels = [[1, 1], [2, 2]]          # each node of these levels gets a menu
    campaigns = "campaigns.toml"       # may be left out: what is read while the store has no campaign at all,
    creatives = "creatives.toml"       # and their ads, tables [[creative]] with campaign, title, text, address

    [menus]                            # all of it may be left out
    candidates = 8                     # k: ads of a menu, at most
    price_per_ad_micros = 0            # alpha: what an ad must add to be sent, per request
    cutoff = 1.0                       # gamma: ads with a score below (1 - gamma) x the best are not sent
    ctr_floor = 0.0                    # a click rate below which an ad takes no part
    finer_rates = 32                   # rates of contexts below that a menu may hold
    default_rate = 0.01                # of a click, where nothing is known; default_conversion_rate = 0.001
    exclude = ["IAB25"]                # categories that are shown nowhere
    exclusions = [{ levels = [1, 1], values = ["North", "Food"], categories = ["IAB8-5"] }]
    bytes_per_ad = 2_000               # all three, or none: k is what the network has room for,
    free_bytes_per_second = 50_000_000 # `candidates` at most
    requests_per_second = 2_000

The file is read again for each epoch; of the store only what changed since the last one. A campaign without a
creative has nothing to show, and is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit import expect
from tacit.bill.protocol.menus import CONTEXT_BYTES, PricedMenu, context_bytes
from tacit.bill.server.store import AdStore
from tacit.config import ConfigTable, error_prefix, read_toml
from tacit.deliver.campaigns.campaign import AdCampaign, CampaignStatus, expect_name
from tacit.deliver.campaigns.creatives import Creative, CreativeKind, check_creative
from tacit.deliver.campaigns.files import read_campaign_file
from tacit.deliver.campaigns.store import MACHINE, MOST_PER_PAGE, Author, CampaignStore
from tacit.deliver.protocol.packs import is_excluded
from tacit.deliver.server.competition import MenuRules
from tacit.deliver.server.market import MenuMarket
from tacit.deliver.server.rate_book import FixedRates, RateBook
from tacit.deliver.server.selection import candidates_for_load
from tacit.display import brief
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Hierarchy, Levels, Node, load_hierarchy
from tacit.schema.contexts.listed import ListedNodes, list_nodes
from tacit.services.background import Reading
from tacit.services.epochs import MenuSource
from tacit.services.market_file import COMMON, LISTED, MarketFile, MarketTerms, read_terms
from tacit.services.problems import LOG

MOST_CONTEXTS = 10_000
"""Menus of an epoch, in each lane: each needs a token key of its own, and a line in the directory."""

MANY = 2_000  # changes, from which on everything is read again
TOP = (*COMMON, "contexts", "levels", "campaigns", "creatives", "menus")
CREATIVE = ("campaign", "title", "text", "address")
LOAD = ("bytes_per_ad", "free_bytes_per_second", "requests_per_second")
MENUS = (
    "candidates", "price_per_ad_micros", "cutoff", "ctr_floor", "finer_rates", "default_rate",
    "default_conversion_rate", "exclude", "exclusions", *LOAD,
)  # fmt: skip

RatesOf = Callable[[Hierarchy, FixedRates], Callable[[], RateBook]]
"""Of a market's contexts and its default rates, who is asked for the book of rates before each epoch."""


def only_defaults(hierarchy: Hierarchy, default: FixedRates) -> Callable[[], RateBook]:  # noqa: ARG001
    return lambda: default


@dataclass(frozen=True)
class CampaignMarket:
    """A market.toml whose menus are made of campaigns."""

    terms: MarketTerms
    hierarchy: Hierarchy
    nodes: tuple[Node, ...]
    rules: MenuRules
    default: FixedRates
    campaigns: Path | None = None
    creatives: Path | None = None


def read_campaign_market(path: Path) -> CampaignMarket:
    """What is wrong is said in one line, with the key."""
    with error_prefix(str(path)):
        return _parse(read_toml(path, "a market"), path.parent)


def _parse(record: Mapping[str, Any], folder: Path) -> CampaignMarket:
    for key in LISTED:
        if key in record:
            raise BadInput(f"{key}: expected none beside contexts, levels and [menus], got some")
    top = ConfigTable(record, "", TOP, folder)
    terms = read_terms(top)
    with error_prefix("contexts"):
        hierarchy = load_hierarchy(top.file("contexts"))
    nodes = tuple(list_nodes(hierarchy, _levels(top), MOST_CONTEXTS))
    for node in nodes:
        if len(context_bytes(node)) > CONTEXT_BYTES:
            raise BadInput(f"levels: expected contexts of at most {CONTEXT_BYTES} bytes, got {node}")
    table = ConfigTable.under(record, "menus", MENUS)
    rules = MenuRules(
        epsilon=terms.epsilon,
        smallest_cohort=terms.smallest_cohort,
        candidates=_candidates(table),
        price_per_ad=float(expect.at_least_zero(*_number(table, "price_per_ad_micros", 0))),
        ctr_floor=_chance(table, "ctr_floor", 0.0),
        cutoff=_chance(table, "cutoff", 1.0),
        reserve_micros=terms.reserve_micros,
        finer_rates=table.whole("finer_rates", 32, at_most=1_000),
        exclude=_categories(table, "exclude"),
        exclude_in=_exclusions(table, hierarchy),
        method=terms.method,
    )
    default = FixedRates(_chance(table, "default_rate", 0.01), _chance(table, "default_conversion_rate", 0.001))
    first = (top.optional_file(key) for key in ("campaigns", "creatives"))
    return CampaignMarket(terms, hierarchy, nodes, rules, default, *first)


def _levels(top: ConfigTable) -> list[Levels]:
    given = top.needed("levels", "a list of levels such as [[1, 1], [2, 2]]")
    if not isinstance(given, list) or not given or not all(isinstance(each, list) and each for each in given):
        raise BadInput(f"levels: expected a list of levels such as [[1, 1], [2, 2]], got {given!r}")
    found = [tuple(expect.integer("each of levels", level) for level in each) for each in given]
    if len(set(found)) < len(found):
        raise BadInput("levels: expected each once, got some twice")
    return found


def _number(table: ConfigTable, key: str, default: float) -> tuple[str, expect.Number]:
    found = table.number(key, default)
    assert found is not None, "there is a default"
    return table.name(key), found


def _chance(table: ConfigTable, key: str, default: float) -> float:
    return float(expect.probability(*_number(table, key, default), zero=True, one=True))


def _candidates(table: ConfigTable) -> int:
    """As many as are asked for, and as the network has room for."""
    most = table.whole("candidates", 8, at_least=1, at_most=250)
    given = [key for key in LOAD if key in table]
    if not given:
        return most
    if len(given) < len(LOAD):
        missing = next(key for key in LOAD if key not in table)
        raise BadInput(f"{table.name(missing)}: expected it beside {given[0]}, got no such key")
    size, free, requests = (_number(table, key, 0)[1] for key in LOAD)
    with error_prefix(table.path):
        return candidates_for_load(free, requests, size, most)


def _categories(table: ConfigTable, key: str) -> tuple[str, ...]:
    given = table.needed(key, "a list") if key in table else []
    if not isinstance(given, list):
        raise BadInput(f"{table.name(key)}: expected a list of categories in quotes, got {given!r}")
    return tuple(expect_name(table.name(key), each) for each in given)


def _exclusions(table: ConfigTable, hierarchy: Hierarchy) -> dict[Node, tuple[str, ...]]:
    given = table.needed("exclusions", "a list") if "exclusions" in table else []
    if not isinstance(given, list):
        raise BadInput(f"{table.name('exclusions')}: expected a list of tables, got another value")
    found: dict[Node, tuple[str, ...]] = {}
    everything = ListedNodes(hierarchy, list_nodes(hierarchy, hierarchy.levels()[-1:], 1))
    for place, each in enumerate(given, start=1):
        one = ConfigTable(each, f"{table.name('exclusions')} {place}", ("levels", "values", "categories"))
        levels, values = (one.needed(key, "a list") for key in ("levels", "values"))
        if not isinstance(levels, list) or not isinstance(values, list) or len(levels) != len(values):
            raise BadInput(f"{one.name('values')}: expected a value for each level, in lists, got others")
        node = Node(
            tuple(expect.integer(one.name("levels"), level) for level in levels),
            tuple(expect_name(one.name("values"), value) for value in values),
        )
        if not everything.overlapping(node).all():
            raise BadInput(f"{one.name('values')}: expected a context of the hierarchy, got {node}")
        one.needed("categories", "a list of categories")
        found[node] = (*found.get(node, ()), *_categories(one, "categories"))
    return found


def import_first(market: CampaignMarket, store: CampaignStore, author: Author) -> int:
    """Put the file's campaigns and ads into a store that has no campaign yet; how many campaigns these are.

    All of it is read before anything is put. Done twice at once, it is done once.
    """
    if market.campaigns is None or store.campaigns(most=1):
        return 0
    filed = read_campaign_file(market.campaigns)
    creatives = [] if market.creatives is None else read_creatives(market.creatives)
    if not all(each.numbered for each in filed.campaigns):  # or two that begin at once would put each twice
        raise BadInput(f"{market.campaigns}: expected a number for each campaign, got one without")
    added = store.put_all(filed.advertisers, [(each.campaign, None) for each in filed.campaigns], author).added
    for creative, content in creatives:
        store.add_creative(creative, content, author)
    return len(added)


def read_creatives(path: Path) -> list[tuple[Creative, bytes]]:
    """Texts, in tables [[creative]]."""
    with error_prefix(str(path)):
        record = ConfigTable(read_toml(path, "creatives"), "", ("creative",))
        given = record.needed("creative", "tables [[creative]]")
        if not isinstance(given, list):
            raise BadInput("creative: expected tables [[creative]], got another value")
        found = []
        for place, each in enumerate(given, start=1):
            table = ConfigTable(each, f"creative {place}", CREATIVE)
            said = {"kind": CreativeKind.TEXT, **{key: table.text(key) for key in CREATIVE[1:] if key in table}}
            with error_prefix(f"creative {place}"):
                found.append(check_creative(said, table.whole("campaign"), lambda markup, _: markup))
        return found


class CampaignMenus:
    """A `MenuSource` of the campaigns in a store. It is asked by one thread at a time, in the background; what
    it is made of is put in place at once, when all of it was read."""

    def __init__(self, path: Path, campaigns: CampaignStore, rates: RatesOf = only_defaults) -> None:
        self._path, self._store, self._rates_of = path, campaigns, rates
        self._settings = read_campaign_market(path)
        self._market: MenuMarket | None = None  # until somebody asks: of several processes one opens epochs
        self._rates = rates(self._settings.hierarchy, self._settings.default)
        self._known: dict[int, AdCampaign] = {}  # those that have not ended,
        self._shown: set[int] = set()  # and those that have something to show
        self._revision, self._behind = 0, set[int]()
        self._told, self._seconds = frozenset[int](), 0.0
        self._places = ListedNodes(self._settings.hierarchy, self._settings.nodes)
        self._nowhere: dict[int, Node] = {}  # a context of a campaign's bid in which no menu is made

    def __repr__(self) -> str:
        return brief(self, path=str(self._path), contexts=len(self._settings.nodes), campaigns=len(self._known))

    @property
    def epoch_seconds(self) -> int:
        return self._settings.terms.epoch_seconds

    @property
    def report_seconds(self) -> int:
        return self._settings.terms.report_seconds

    def refresh(self) -> None:
        self._update(read_campaign_market(self._path))

    def _update(self, settings: CampaignMarket) -> MenuMarket:
        began = time.perf_counter()
        self._behind |= self._read_changes()  # until they are in the market, whatever happens on the way
        market, rates = self._market, self._rates
        if market is None or replace(settings, terms=self._settings.terms) != self._settings:
            rates = self._rates_of(settings.hierarchy, settings.default)
            self._places = ListedNodes(settings.hierarchy, settings.nodes)
            market = MenuMarket(self._places, settings.rules, rates())
            self._look_for_bids(self._known)
            market.change(each for number, each in self._known.items() if number in self._shown)
        else:
            taking = self._behind & self._known.keys() & self._shown
            self._look_for_bids(self._behind)
            market.use(rates())
            market.change([self._known[number] for number in sorted(taking)], self._behind - taking)
        self._settings, self._market, self._rates, self._behind = settings, market, rates, set()
        self._seconds = time.perf_counter() - began
        self._tell()
        return market

    def menus(
        self,
        epoch: int,
        opens: int,
        closes: int,
        left_micros: Mapping[int, int],
        without: Mapping[Node, frozenset[int]],
    ) -> list[PricedMenu]:
        market = self._update(self._settings) if self._market is None else self._market
        return market.menus(epoch, opens, closes, left_micros, without)

    def _read_changes(self) -> set[int]:
        """Bring what is known up to date; the campaigns that changed."""
        revision = self._store.revision()
        if revision == self._revision:
            return set()
        changed = self._changed_numbers(revision) if self._revision else None
        if changed is None:
            known = {each.number: each for each in self._store.ad_campaigns()}
            changed = known.keys() | self._known.keys()
            self._known, self._shown = known, {each.campaign for each in self._store.creatives()}
        else:
            for number in changed:
                stored = self._store.campaign(number)
                if stored is None or stored.campaign.status is CampaignStatus.ENDED:
                    self._known.pop(number, None)
                else:
                    self._known[number] = stored.campaign
                (self._shown.add if self._store.creatives(number) else self._shown.discard)(number)
        self._revision = revision
        return changed

    def _changed_numbers(self, revision: int) -> set[int] | None:
        """Campaigns that the trail names behind what was read; None where there are so many changes that all
        campaigns are read sooner."""
        found, after = set[int](), self._revision
        if revision - after > MANY:
            return None
        while True:
            page = self._store.changes(after=after)
            found |= {number for change in page if (number := change.campaign) is not None}
            if len(page) < MOST_PER_PAGE:
                return found
            after = page[-1].number

    def left_out(self) -> dict[str, frozenset[int]]:
        """Campaigns that have not ended and take part nowhere, by why."""
        active = {number for number, each in self._known.items() if each.status is CampaignStatus.ACTIVE}
        excluded = {
            number
            for number in active
            if is_excluded(self._known[number].categories, self._settings.rules.exclude)
        }
        return {
            "paused": frozenset(self._known.keys() - active),
            "excluded": frozenset(excluded),
            "no-creative": frozenset(active - excluded - self._shown),
        }

    def readings(self) -> list[Reading]:
        """For /metrics."""
        name, words = "tacit_campaigns_left_out", "Campaigns that take part in no menu, by why."
        return [
            Reading("tacit_menu_contexts", "Contexts that menus are made for.", len(self._settings.nodes)),
            Reading(
                "tacit_menu_campaigns",
                "Campaigns that menus are made of.",
                0 if self._market is None else len(self._market),
            ),
            Reading("tacit_menu_refresh_seconds", "How long reading and scoring took last.", self._seconds),
            *(Reading(name, words, len(out), {"reason": why}) for why, out in self.left_out().items()),
        ]

    def _look_for_bids(self, numbers: Iterable[int]) -> None:
        """Tell of campaigns that bid on a context without a menu: misspelt, or finer than all that have one."""
        for number in numbers:
            known, told = self._known.get(number), self._nowhere.pop(number, None)
            for bid in () if known is None else known.bids:
                if bid.node is not None and not self._places.inside(bid.node).any():
                    self._nowhere[number] = bid.node
                    if bid.node != told:
                        LOG.warning("campaign %d bids on %s: no menu is made there", number, bid.node)
                    break

    def _tell(self) -> None:
        bare = self.left_out()["no-creative"]
        for number in sorted(bare - self._told)[:10]:
            LOG.warning("campaign %d has no creative: it is left out of menus until it has one", number)
        self._told = bare


def has_campaign_menus(path: Path) -> bool:
    """Whether a market.toml's menus are made of campaigns, and not its own."""
    with error_prefix(str(path)):
        record = read_toml(path, "a market")
    return any(key in record for key in ("contexts", "levels", "menus"))


def open_market(
    path: Path, store: AdStore, campaigns: CampaignStore, rates: RatesOf = only_defaults, *, now: int
) -> MenuSource:
    """The menus of a market.toml: its own, or those of the campaigns in the store."""
    if has_campaign_menus(path):
        import_first(read_campaign_market(path), campaigns, Author(MACHINE, now))
        return CampaignMenus(path, campaigns, rates)
    return MarketFile(path, store)
