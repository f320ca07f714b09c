"""Whoever may read a campaign sees how far over its budget it can go; operators read figures of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

from tacit.deliver.campaigns.access import AccessRole
from tacit.deliver.campaigns.store import MACHINE, Advertiser, Author
from tacit.services.ads.pacing_part import FIGURE_SECONDS, look_at_pacing
from tests.support.ad_campaigns import a_campaign
from tests.support.ads_services import AdsWorld
from tests.support.billing_services import HERE

SHARE = Fraction(1, 50)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdsWorld]:
    made = AdsWorld(Path(tmp_path_factory.mktemp("ads")))
    try:
        made.wait_for_epoch()
        made.show(3, HERE)
        made.bill(3)
        yield made
    finally:
        made.end()


def test_a_campaign_is_shown_with_what_is_out_and_what_it_can_be_over(world: AdsWorld) -> None:
    answer = world.get("/ads/pacing", world.key(AccessRole.VIEWER))
    assert answer.status_code == 200
    found = answer.json()
    assert (found["on"], found["share"], found["menus"], found["ran_out"]) == (True, 0.02, 10, 0)
    by_number = {each["campaign"]: each for each in found["campaigns"]}
    assert by_number.keys() == {1, 2, 3, 4}
    one, three = by_number[1], by_number[3]
    assert one["budget_micros"] == 50_000_000
    assert one["out_micros"] > 0
    spent = one["charged_micros"] + one["held_micros"] + one["out_micros"]
    assert one["bound_micros"] == max(0, spent - one["budget_micros"])
    assert one["bound_micros"] <= one["allowed_micros"] == 1_000_000
    assert one["bound_share"] == one["bound_micros"] / 50_000_000
    assert one["within"]
    assert one["contexts"] == 4
    assert one["daily_micros"] is None
    assert (three["budget_micros"], three["bound_micros"], three["within"]) == (None, None, None)
    assert sum(each["day_spent_micros"] for each in found["campaigns"]) == world.charged_micros()
    assert sum(each["charged_micros"] for each in found["campaigns"]) == world.charged_micros() > 0


def test_an_advertiser_sees_its_own(world: AdsWorld) -> None:
    world.running.campaigns.put_advertiser(Advertiser("Tea House"), Author(MACHINE, world.now))
    key = world.key(AccessRole.ADVERTISER_VIEWER, "Tea House")
    found = world.get("/ads/pacing", key).json()
    assert [each["campaign"] for each in found["campaigns"]] == [4]
    assert world.get("/ads/pacing").status_code == 401


def test_figures_tell_the_largest_bound(world: AdsWorld) -> None:
    look = look_at_pacing(world.running.pacer, lambda: world.now)
    found = {each.name: each.value for each in look()}
    assert 0 <= found["tacit_pacing_largest_bound_share"] <= SHARE
    assert found["tacit_pacing_over_share"] == 0
    assert found["tacit_pacing_out_micros"] > 0
    before = next(each for each in world.ads.campaigns() if each.campaign == 1)
    world.operator().set_budget(1, 1_000)
    look = look_at_pacing(world.running.pacer, lambda: world.now)
    found = {each.name: each.value for each in look()}
    assert found["tacit_pacing_over_share"] == 1
    assert found["tacit_pacing_largest_bound_share"] > 1
    shown = world.get("/ads/pacing", world.key(AccessRole.VIEWER)).json()["campaigns"][0]
    assert (shown["campaign"], shown["within"]) == (1, False)
    operator = world.key(AccessRole.OPERATOR)

    def alerts() -> list[dict[str, str]]:
        told = world.get("/ads/console/overview", operator).json()["alerts"]
        return [each for each in told if each["kind"] == "over-share"]

    (alert,) = alerts()
    assert f"1 ({before.advertiser})" in alert["says"]
    assert alert["runbook"] == "Over the share"
    world.operator().set_budget(1, before.budget_micros)
    world.now += FIGURE_SECONDS
    assert alerts() == []


BEAN = "Bean & Leaf"


@pytest.fixture
def bean(tmp_path: Path) -> Iterator[AdsWorld]:
    """An ad server of which an advertiser has handed a campaign of the market in."""
    made = AdsWorld(tmp_path)
    try:
        made.wait_for_epoch()
        made.running.campaigns.put_advertiser(Advertiser(BEAN), Author(MACHINE, made.now))
        made.running.campaigns.add_campaign(a_campaign(1, BEAN), Author(MACHINE, made.now))
        yield made
    finally:
        made.end()


def owed(world: AdsWorld, key: str) -> int:
    (mine,) = world.get("/ads/pacing", key).json()["campaigns"]
    return int(mine["charged_micros"] + mine["held_micros"] + mine["out_micros"])


def test_an_advertiser_pays_for_what_is_out_before_it_lowers_its_budget(bean: AdsWorld) -> None:
    """Or it could have an epoch's menus for nothing: raise, be offered, and take the money back."""
    key, operator = bean.key(AccessRole.ADVERTISER, BEAN), bean.key(AccessRole.OPERATOR)
    least = owed(bean, key)
    assert least > 0
    record = bean.get("/ads/campaigns/1", key).json()["campaign"]
    low = {**record, "budget_micros": least - 1}
    asked = [
        bean.ask("PATCH", "/ads/campaigns/1", key, json={"budget_micros": 0}),
        bean.ask("PUT", "/ads/campaigns/1", key, json=low),
        bean.post("/ads/import", key, json={"campaigns": [{"campaign": low}]}),
    ]
    assert [each.status_code for each in asked] == [409] * 3
    assert f"expected at least {least}" in asked[0].json()["detail"]
    assert bean.ask("PATCH", "/ads/campaigns/1", key, json={"budget_micros": least}).status_code == 200
    bean.show(3, HERE)
    bean.bill(3)
    assert bean.ads.held_micros() == {}
    assert owed(bean, key) <= least
    for budget in (None, least - 1):  # an operator may forgive
        assert (
            bean.ask("PATCH", "/ads/campaigns/1", operator, json={"budget_micros": budget}).status_code == 200
        )


def test_no_budget_is_lowered_while_menus_are_made_by_it(bean: AdsWorld) -> None:
    key = bean.key(AccessRole.ADVERTISER, BEAN)
    with ThreadPoolExecutor(1) as beside:
        with bean.keeper.turn():
            lower = {"budget_micros": 40_000_000}
            lowering = beside.submit(bean.ask, "PATCH", "/ads/campaigns/1", key, json=lower)
            assert bean.ask("PATCH", "/ads/campaigns/1", key, json={"daily_micros": 9}).status_code == 200
            with pytest.raises(TimeoutError):
                lowering.result(0.2)
        assert lowering.result(5).status_code == 200
