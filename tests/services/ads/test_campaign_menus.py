"""Menus of the campaigns in the store: what is said of them, what is read again, and what is left out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tacit.bill.protocol.menus import Lane, PricedMenu
from tacit.deliver.campaigns.campaign import AdCampaign, BidEvent, CampaignStatus, ContextBid
from tacit.deliver.campaigns.creatives import check_creative
from tacit.deliver.campaigns.store import MACHINE, Advertiser, Author, StoredCampaign
from tacit.deliver.server.rate_book import FixedRates, RateBook
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Hierarchy, Node
from tacit.services import trial
from tacit.services.ads.campaign_menus import CampaignMenus, open_market, read_campaign_market
from tacit.services.market_file import MarketFile
from tacit.store.billing_ads import SqlAdStore
from tacit.store.campaigns import SqlCampaignStore
from tests.support.billing_services import MARKET as LISTED

ME = Author(MACHINE, 1_800_000_000)
NORTH_FOOD = Node((1, 1), ("North", "Food"))
MARKET = """\
epoch_seconds = 600
report_seconds = 3600
epsilon = 1.0
smallest_cohort = 5
reserve_micros = 100
contexts = "contexts.toml"
levels = [[1, 1], [2, 2]]

[menus]
candidates = 2
default_rate = 0.02
exclude = ["IAB25"]
"""


class CountingStore(SqlCampaignStore):
    """Counts what is read."""

    whole = single = 0

    def ad_campaigns(self) -> Sequence[AdCampaign]:
        self.whole += 1
        return super().ad_campaigns()

    def campaign(self, number: int) -> StoredCampaign | None:
        self.single += 1
        return super().campaign(number)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "contexts.toml").write_text(trial.CONTEXTS)
    (tmp_path / "market.toml").write_text(MARKET)
    return tmp_path


@pytest.fixture
def ads(folder: Path) -> Iterator[SqlAdStore]:
    store = SqlAdStore.open(folder / "ads.sqlite")
    yield store
    store.close()


@pytest.fixture
def store(ads: SqlAdStore) -> CountingStore:
    found = CountingStore(ads.database)
    found.put_advertiser(Advertiser("Bean & Leaf"), ME)
    return found


def bean(number: int, micros: int, node: Node | None = None) -> AdCampaign:
    return AdCampaign(number, "Bean & Leaf", f"Roast {number}", BidEvent.CLICK, (ContextBid(micros, node),))


def add(store: SqlCampaignStore, *campaigns: AdCampaign, shown: bool = True) -> None:
    for each in campaigns:
        store.add_campaign(each, ME)
        if shown:
            record = {"kind": "text", "title": each.title, "address": "https://bean.example"}
            store.add_creative(*check_creative(record, each.number, lambda markup, _: markup), ME)


def offered(source: CampaignMenus, node: Node = NORTH_FOOD) -> list[tuple[int, int]]:
    source.refresh()
    return entries(source.menus(7, 600, 1_200, {}, {}), node)


def entries(menus: list[PricedMenu], node: Node = NORTH_FOOD) -> list[tuple[int, int]]:
    return [
        (entry.campaign, entry.price_micros)
        for menu in menus
        if (menu.node, menu.lane) == (node, Lane.PERSONAL)
        for entry in menu.entries
    ]


def test_every_node_of_the_named_levels_has_a_menu_in_both_lanes(folder: Path, store: CountingStore) -> None:
    add(store, bean(1, 400_000), bean(2, 300_000), bean(3, 100_000, NORTH_FOOD))
    source = CampaignMenus(folder / "market.toml", store)
    assert (source.epoch_seconds, source.report_seconds) == (600, 3600)
    menus = source.menus(7, 600, 1_200, {}, {})
    assert [menu.lane for menu in menus] == [Lane.PERSONAL, Lane.PUBLIC] * 5
    assert {menu.epoch for menu in menus} == {7}
    assert entries(menus) == [(1, 6_000), (2, 2_000)]
    assert entries(menus, Node((2, 2), ("*", "*"))) == [(1, 6_000), (2, 100)]
    assert entries(source.menus(7, 600, 1_200, {1: 7_999}, {NORTH_FOOD: frozenset({2})})) == [(3, 100)]


def test_only_what_changed_is_read_again(folder: Path, store: CountingStore) -> None:
    add(store, *(bean(number, 100_000 + number) for number in range(1, 9)))
    source = CampaignMenus(folder / "market.toml", store)
    assert offered(source) == [(8, 2_000), (7, 2_000)]
    assert offered(source)
    assert (store.whole, store.single) == (1, 0)
    store.change_campaign(bean(3, 500_000), None, ME)
    store.change_campaign(replace(bean(8, 100_008), status=CampaignStatus.PAUSED), None, ME)
    store.change_campaign(replace(bean(7, 100_007), status=CampaignStatus.ENDED), None, ME)
    add(store, bean(9, 450_000))
    assert offered(source) == [(3, 9_000), (9, 2_000)]
    assert (store.whole, store.single) == (1, 4)
    [creative] = store.creatives(9)
    store.remove_creative(creative.number, ME)
    assert offered(source) == [(3, 2_000), (6, 2_000)]
    assert {why: set(out) for why, out in source.left_out().items()} == {
        "paused": {8}, "excluded": set(), "no-creative": {9},
    }  # fmt: skip


def test_a_bid_that_holds_in_no_menu_is_said_once(
    folder: Path, store: CountingStore, caplog: pytest.LogCaptureFixture
) -> None:
    everywhere = bean(1, 400_000)
    lost = ContextBid(500_000, Node((1, 1), ("North", "Fod")))
    add(store, replace(everywhere, bids=(*everywhere.bids, lost)))
    source = CampaignMenus(folder / "market.toml", store)
    with caplog.at_level(logging.WARNING):
        assert offered(source) == offered(source) == [(1, 100)]
        store.change_campaign(everywhere, None, ME)
        assert offered(source) == [(1, 100)]
        finer = ContextBid(500_000, Node((0, 0), ("Northport", "Coffee")))  # than any menu is
        store.change_campaign(replace(everywhere, bids=(*everywhere.bids, finer)), None, ME)
        assert offered(source) == [(1, 100)]
    assert [record.getMessage() for record in caplog.records] == [
        "campaign 1 bids on North · Fod: no menu is made there",
        "campaign 1 bids on Northport · Coffee: no menu is made there",
    ]


def test_a_campaign_without_a_creative_is_left_out_and_said_once(
    folder: Path, store: CountingStore, caplog: pytest.LogCaptureFixture
) -> None:
    add(store, bean(1, 400_000))
    add(store, bean(2, 500_000), shown=False)
    source = CampaignMenus(folder / "market.toml", store)
    with caplog.at_level(logging.WARNING):
        assert offered(source) == [(1, 100)]
        assert offered(source) == [(1, 100)]
    assert [record.getMessage() for record in caplog.records] == [
        "campaign 2 has no creative: it is left out of menus until it has one"
    ]
    figures = {(each.name, *each.labels.values()): each.value for each in source.readings()}
    assert figures["tacit_campaigns_left_out", "no-creative"] == 1
    assert figures["tacit_menu_contexts",] == 5
    assert figures["tacit_menu_campaigns",] == 1


def test_other_rates_make_other_menus(folder: Path, store: CountingStore) -> None:
    add(store, bean(1, 400_000), bean(2, 300_000))
    books: list[RateBook] = []

    def rates(hierarchy: Hierarchy, default: FixedRates) -> Callable[[], RateBook]:
        assert len(hierarchy.attributes) == 2
        books.append(default)
        return lambda: books[-1]

    source = CampaignMenus(folder / "market.toml", store, rates)
    assert offered(source) == [(1, 6_000), (2, 100)]
    books.append(FixedRates(0.01))
    assert offered(source) == [(1, 3_000), (2, 100)]


def test_a_changed_file_counts_and_a_wrong_one_changes_nothing(folder: Path, store: CountingStore) -> None:
    add(store, bean(1, 400_000), bean(2, 300_000), replace(bean(3, 900_000), categories=("IAB25-3",)))
    source = CampaignMenus(folder / "market.toml", store)
    assert offered(source) == [(1, 6_000), (2, 100)]
    (folder / "market.toml").write_text(MARKET.replace("exclude", "exclud"))
    with pytest.raises(BadInput, match="exclud"):
        source.refresh()
    assert entries(source.menus(8, 600, 1_200, {}, {})) == [(1, 6_000), (2, 100)]
    (folder / "market.toml").write_text(MARKET.replace('exclude = ["IAB25"]', "") + "cutoff = 0.1\n")
    assert offered(source) == [(3, 8_000)]
    (folder / "market.toml").write_text(MARKET.replace("epoch_seconds = 600", "epoch_seconds = 900"))
    source.refresh()
    assert source.epoch_seconds == 900


def test_a_market_file_with_menus_works_as_it_did(folder: Path, ads: SqlAdStore, store: CountingStore) -> None:
    assert isinstance(open_market(folder / "market.toml", ads, store, now=1), CampaignMenus)
    (folder / "market.toml").write_text(LISTED)
    assert isinstance(open_market(folder / "market.toml", ads, store, now=1), MarketFile)


def test_a_store_without_campaigns_gets_those_of_the_file_once(
    folder: Path, ads: SqlAdStore, store: CountingStore
) -> None:
    trial.write_trial(folder / "trial", proxy_port=1, server_port=2, entropy=Entropy(), billing=True)
    path = folder / "trial" / "market.toml"
    source = open_market(path, ads, store, now=ME.at)
    source.refresh()
    menus = source.menus(7, 600, 660, {}, {})
    assert len(menus) == 10
    everywhere = {menu.node.values: [entry.campaign for entry in menu.entries] for menu in menus[::2]}
    assert everywhere["North", "Food"][0] == 1
    assert everywhere["North", "Sport"][0] == 2
    assert everywhere["South", "Sport"][0] == 3
    assert everywhere["South", "Food"][0] == 4
    assert all(sorted(sent) == [1, 2, 3, 4] for sent in everywhere.values())
    revision = store.revision()
    store.change_campaign(replace(store.ad_campaigns()[0], status=CampaignStatus.PAUSED), None, ME)
    open_market(path, ads, store, now=ME.at)
    assert store.revision() == revision + 1, "nothing is read again"


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("campaigns.toml", "number = 3\n", "", "campaigns.toml: expected a number for each campaign"),
        ("creatives.toml", "campaign = 3\n", "", "creative 3.campaign: expected a whole number"),
        ("creatives.toml", "https://teahouse", "http://teahouse", "creatives.toml: creative 4"),
        ("creatives.toml", "[[creative]]", "[creative]", "creatives.toml: "),
    ],
)
def test_a_file_of_first_campaigns_that_is_wrong_puts_nothing(
    folder: Path, ads: SqlAdStore, store: CountingStore, name: str, old: str, new: str, said: str
) -> None:
    trial.write_trial(folder / "trial", proxy_port=1, server_port=2, entropy=Entropy(), billing=True)
    path = folder / "trial" / name
    path.write_text(path.read_text().replace(old, new, 1 if name == "campaigns.toml" else -1))
    with pytest.raises(BadInput, match=said):
        open_market(folder / "trial" / "market.toml", ads, store, now=ME.at)
    assert not store.campaigns()


def test_candidates_follow_from_the_load_of_the_network(folder: Path) -> None:
    load = "bytes_per_ad = 1_000\nfree_bytes_per_second = {}\nrequests_per_second = 100\n"
    for free, candidates in ((1_000_000, 2), (150_000, 1)):
        (folder / "market.toml").write_text(MARKET + load.format(free))
        assert read_campaign_market(folder / "market.toml").rules.candidates == candidates


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("levels = [[1, 1], [2, 2]]", "levels = [[1, 1], [7, 7]]", "expected levels among"),
        ("levels = [[1, 1], [2, 2]]", "levels = [[1, 1], [1, 1]]", "levels: expected each once"),
        ("levels = [[1, 1], [2, 2]]", "levels = []", "levels: expected a list of levels"),
        ("levels = [[1, 1], [2, 2]]", "", "levels: expected a list of levels"),
        ('contexts = "contexts.toml"', 'contexts = "nowhere.toml"', "contexts: .*nowhere.toml"),
        ("candidates = 2", "candidates = 0", "menus.candidates"),
        ("candidates = 2", "candidate = 2", "menus.candidate"),
        ("candidates = 2", "cutoff = 2", "menus.cutoff: expected a probability|cutoff"),
        ("candidates = 2", "bytes_per_ad = 2", "menus.free_bytes_per_second: expected it beside bytes_per_ad"),
        (
            "candidates = 2",
            "bytes_per_ad = 2\nfree_bytes_per_second = 1\nrequests_per_second = 9",
            "menus: expected room for one ad per request",
        ),
        ("candidates = 2", 'exclusions = [{ levels = [1, 1], values = ["North", "Fod"], categories = [] }]',
         "menus.exclusions 1.values: expected a context of the hierarchy"),
        ("[menus]", '[[campaign]]\nnumber = 1\n\n[menus]', "campaign: expected none beside contexts"),
        ("[menus]", 'attributes = ["city"]\n\n[menus]', "attributes: expected none beside contexts"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(folder: Path, old: str, new: str, said: str) -> None:
    path = folder / "market.toml"
    assert old in MARKET
    path.write_text(MARKET.replace(old, new))
    with pytest.raises(BadInput, match=said) as refused:
        read_campaign_market(path)
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)
