"""A market's file: menus are ranked and priced by public data, and what is wrong is said in one line."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from tacit.bill.protocol.menus import Lane, PricedMenu
from tacit.deliver.protocol.priced_menus import candidates_of
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Node, load_hierarchy
from tacit.schema.impressions import RESERVE_PRICE
from tacit.services import trial
from tacit.services.market_file import Market, read_market
from tests.support.listed_market import LISTED_MARKET

NORTH_FOOD = Node((1, 1), ("North", "Food"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "market.toml"
    place.write_text(LISTED_MARKET)
    return place


@pytest.fixture
def market(path: Path) -> Market:
    return read_market(path)


def menu_at(menus: Sequence[PricedMenu], node: Node, lane: Lane = Lane.PERSONAL) -> PricedMenu:
    [found] = [menu for menu in menus if (menu.node, menu.lane) == (node, lane)]
    return found


def test_the_demonstration_market_can_be_read_and_fits_its_contexts(market: Market, tmp_path: Path) -> None:
    (tmp_path / "contexts.toml").write_text(trial.CONTEXTS)
    hierarchy = load_hierarchy(tmp_path / "contexts.toml")
    assert (market.epsilon, market.smallest_cohort) == (Fraction(1), 5)
    assert {campaign.campaign: campaign.budget_micros for campaign in market.campaigns} == {
        1: 50_000_000, 2: 80_000_000, 3: None, 4: None,
    }  # fmt: skip
    offered = {menu.node for menu in market.menus}
    for city in ("Northport", "Millbridge", "Southwick", "Harbour"):
        for topic in ("Coffee", "Tea", "Running", "Cycling"):
            assert hierarchy.at((city, topic), (1, 1)) in offered
    assert hierarchy.at(("Harbour", "Tea"), (2, 2)) in offered


def test_menus_are_priced_by_the_next_public_score(market: Market) -> None:
    menus = market.priced(7)
    assert len(menus) == 2 * len(market.menus)
    menu = menu_at(menus, NORTH_FOOD)
    # Scores, bid x rate: 12,400 (campaign 1), 9,800 (4), 5,400 (2); the reserve is 100.
    assert [(entry.campaign, entry.price_micros, entry.setter) for entry in menu.entries] == [
        (1, 9_800, 4),
        (4, 5_400, 2),
        (2, 100, RESERVE_PRICE),
    ]
    assert (menu.epoch, menu.epsilon_micros, menu.smallest_cohort) == (7, 1_000_000, 5)
    assert menu.rule == "second price per impression"
    assert list(candidates_of(menu).ads) == [1, 4, 2]
    public = menu_at(menus, NORTH_FOOD, Lane.PUBLIC)
    assert (public.entries, public.epsilon_micros) == (menu.entries[:1], 0)
    assert str(menu.node) == "city North · topic Food"


def test_who_cannot_pay_for_an_impression_is_left_out(market: Market) -> None:
    """At its own public score, the most that one can cost it."""
    assert [entry.campaign for entry in menu_at(market.priced(7, {1: 12_400}), NORTH_FOOD).entries] == [1, 4, 2]
    menu = menu_at(market.priced(7, {1: 12_399}), NORTH_FOOD)
    assert [(entry.campaign, entry.price_micros) for entry in menu.entries] == [(4, 5_400), (2, 100)]
    for left in (0, -5):
        assert 1 not in {entry.campaign for menu in market.priced(7, {1: left}) for entry in menu.entries}


def test_a_context_in_which_nobody_can_pay_is_not_offered(market: Market) -> None:
    south_food = Node((1, 1), ("South", "Food"))  # of campaigns 1 and 4 alone
    assert south_food not in {menu.node for menu in market.priced(7, {1: 0, 4: 0})}
    assert market.priced(7, dict.fromkeys((1, 2, 3, 4), 0)) == []


def test_campaigns_are_left_out_of_some_contexts_alone(market: Market) -> None:
    menus = market.priced(7, {}, {NORTH_FOOD: frozenset({1, 2})})
    menu = menu_at(menus, NORTH_FOOD)
    assert [(entry.campaign, entry.price_micros) for entry in menu.entries] == [(4, 100)]
    others = [each for each in market.priced(7) if each.node != NORTH_FOOD]
    assert [each for each in menus if each.node != NORTH_FOOD] == others


def test_what_does_not_reach_the_reserve_takes_no_part(path: Path) -> None:
    path.write_text(path.read_text().replace("reserve_micros = 100", "reserve_micros = 6_000"))
    menu = menu_at(read_market(path).priced(7), NORTH_FOOD)
    assert [(entry.campaign, entry.price_micros) for entry in menu.entries] == [(1, 9_800), (4, 6_000)]
    assert menu.reserve_micros == 6_000


def test_menus_of_two_epochs_are_others(market: Market) -> None:
    earlier, later = ({menu.menu_id for menu in market.priced(epoch)} for epoch in (7, 8))
    assert not earlier & later
    assert {menu.menu_id for menu in market.priced(7)} == earlier


FIRST_AD = "{ campaign = 1, bid_micros = 400_000, rate = 0.031 }"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epoch_seconds = 60 ", "", "epoch_seconds: expected a whole number, got no such key"),
        ("epoch_seconds = 60 ", "epoch_seconds = 0 ", "expected epoch_seconds to be a whole number >= 1"),
        ("epoch_seconds = 60 ", "epoch_seconds = 604801 ", "epoch_seconds: expected at most 604800"),
        ("report_seconds = 600 ", "report_seconds = -1 ", "expected report_seconds to be a whole number >= 0"),
        ("epsilon = 1.0 ", "", "epsilon: expected a number, got no such key"),
        ("epsilon = 1.0 ", "epsilon = 0 ", "epsilon"),
        ("epsilon = 1.0 ", "epsilon = 0.0000001 ", "expected epsilon in whole millionths"),
        ("epsilon = 1.0 ", 'epsilon = "much" ', "epsilon"),
        ("smallest_cohort = 5 ", "smallest_cohort = 0 ", "smallest_cohort"),
        ("reserve_micros = 100 ", "reserve_micros = 1e6 ", "reserve_micros"),
        ("reserve_micros = 100 ", "reserve_micros = 50_000 ", "expected an ad that reaches the reserve"),
        ("reserve_micros = 100 ", 'method = "guess"\n', "method: expected one of trunc, top, rr, floors"),
        ("epoch_seconds = 60 ", "epoch = 60 ", "epoch: expected one of epoch_seconds, .*'epoch'"),
        ("number = 2\n", "number = 1\n", "campaign: expected each number once, got 1 twice"),
        ("number = 2\n", "", "campaign 2.number: expected a whole number, got no such key"),
        ('advertiser = "Bean & Leaf"', "", "campaign 1.advertiser: expected a text in quotes"),
        ("budget_micros = 50_000_000 ", "budget_micros = -1 ", "campaign 1.budget_micros"),
        ("budget_micros = 50_000_000 ", "budget = 5 ", "campaign 1.budget: .*did you mean 'budget_micros'"),
        ("levels = [1, 1]", "levels = [1]", "menu 1.values: expected a value for each of 2 attributes"),
        ("levels = [1, 1]", "levels = [1, 300]", "menu 1.levels: expected levels from 0 to 255, got 300"),
        ("levels = [1, 1]", "levels = 1", "menu 1.levels: expected a list of whole numbers, got 1"),
        ("levels = [1, 1]", "", "menu 1.levels: expected a list of whole numbers, got no such key"),
        ('values = ["North", "Food"]', 'values = ["North", 3]', "menu 1.values: expected a list of texts"),
        ('["North", "Sport"]', '["North", "Food"]', "menu: expected each context once, got .*Food twice"),
        ('["North", "Food"]', f'["{"N" * 200}", "Food"]', "expected a context of at most 160 bytes"),
        (FIRST_AD, FIRST_AD.replace("= 1,", "= 9,"), "menu 1.ads 1.campaign: expected the number"),
        (FIRST_AD, FIRST_AD.replace("0.031", "1.5"), "menu 1.ads 1.rate"),
        (FIRST_AD, FIRST_AD.replace("400_000", "-4"), "menu 1.ads 1.bid_micros"),
        (FIRST_AD, FIRST_AD.replace(", rate = 0.031", ""), "menu 1.ads 1.rate: expected a probability, got no"),
        (FIRST_AD, f"{FIRST_AD},\n{FIRST_AD}", "menu 1.ads: expected each campaign once"),
        (FIRST_AD, "3", "menu 1.ads 1: expected a table"),
        ("[[menu]]", "[menu]", "expected TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(path: Path, old: str, new: str, message: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(BadInput, match=message) as caught:
        read_market(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_market_needs_campaigns_and_menus(path: Path) -> None:
    path.write_text(LISTED_MARKET.partition("[[menu]]")[0])
    with pytest.raises(BadInput, match="menu: expected a list of tables, got none"):
        read_market(path)
    path.write_text("\n".join(LISTED_MARKET.splitlines()[:7]))
    with pytest.raises(BadInput, match="campaign: expected a list of tables, got none"):
        read_market(path)
    with pytest.raises(BadInput, match="expected a market here, got no such file"):
        read_market(path.with_name("nowhere.toml"))
