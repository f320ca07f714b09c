"""What the console reads: by views, and by what a key may see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tacit.deliver.campaigns.access import AccessRole
from tacit.deliver.campaigns.store import Advertiser
from tests.support.ad_campaigns import BEAN, BY, a_campaign
from tests.support.ads_services import AdsWorld
from tests.support.billing_services import HERE, START, THERE

SHOWN = 8


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdsWorld]:
    made = AdsWorld(tmp_path_factory.mktemp("console"))
    made.wait_for_epoch()
    made.running.campaigns.put_advertiser(Advertiser(BEAN), BY)
    made.running.campaigns.add_campaign(a_campaign(7), BY)
    made.show(5, HERE)
    made.show(3, THERE, first=10)
    made.bill(SHOWN)
    made.ads.close_invoices(made.now)
    yield made
    made.end()


@pytest.fixture(scope="module")
def operator(world: AdsWorld) -> str:
    return world.key(AccessRole.OPERATOR)


@pytest.fixture(scope="module")
def advertiser(world: AdsWorld) -> str:
    return world.key(AccessRole.ADVERTISER, BEAN)


def read(world: AdsWorld, view: str, key: str) -> Any:
    answer = world.get(f"/ads/console/{view}", key)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_overview_says_what_goes_on(world: AdsWorld, operator: str) -> None:
    told = read(world, "overview", operator)
    assert told["epoch"]["menus"] == 10
    assert told["epoch"]["opens"] <= told["now"] < told["epoch"]["closes"]
    assert told["charged_micros"] == world.charged_micros() == told["today"]["micros"]
    assert told["today"] == {"impressions": SHOWN, "micros": world.charged_micros(), "is_whole": True}
    assert [each["reports"] for each in told["series"]] == [SHOWN]
    assert told["series"][0]["opens"] == START
    assert told["alerts"] == []


def test_campaigns_are_those_of_the_key(world: AdsWorld, operator: str, advertiser: str) -> None:
    everybody = read(world, "campaigns", operator)["campaigns"]
    own = read(world, "campaigns", advertiser)["campaigns"]
    assert {each["advertiser"] for each in own} == {BEAN}
    assert {each["campaign"] for each in everybody} == {1, 2, 3, 4, 7}
    assert sum(each["charged_micros"] for each in everybody) == world.charged_micros()
    assert sum(each["recent_impressions"] for each in everybody) == SHOWN
    assert read(world, "campaigns?find=ROAST", operator)["all"] == 1
    told = {each["campaign"]: each for each in own}
    assert (told[7]["title"], told[7]["may_change"], told[1]["may_change"]) == ("Spring roast", True, False)


def test_an_advertiser_sees_nothing_of_others(world: AdsWorld, operator: str, advertiser: str) -> None:
    for view in ("cohorts", "ledger", "rounds", "verification"):
        assert world.get(f"/ads/console/{view}", advertiser).status_code == 403
    invoices = read(world, "invoices", operator)["invoices"]
    assert {each["advertiser"] for each in read(world, "invoices", advertiser)["invoices"]} <= {BEAN}
    others = next(each["number"] for each in invoices if each["advertiser"] != BEAN)
    unknown = world.get("/ads/console/invoices/999", advertiser)
    hidden = world.get(f"/ads/console/invoices/{others}", advertiser)
    assert (hidden.status_code, hidden.json()) == (404, unknown.json())
    overview = read(world, "overview", advertiser)
    assert "alerts" not in overview
    assert all("reports" not in each for each in overview["series"])
    for menu in read(world, "menus", advertiser)["menus"]:
        entries = read(world, f"menus/{menu['menu']}", advertiser)["entries"]
        assert {each["advertiser"] for each in entries} == {BEAN}


def test_menus_are_found_by_context_with_their_reasons(world: AdsWorld, operator: str) -> None:
    found = read(world, "menus?find=north", operator)
    assert {each["context"] for each in found["menus"]} == {"North · Food", "North · Sport"}
    personal = next(each for each in found["menus"] if each["lane"] == "personal")
    menu = read(world, f"menus/{personal['menu']}", operator)
    assert menu["epsilon"] == 1.0
    assert [each["index"] for each in menu["entries"]] == list(range(1, menu["size"] + 1))
    assert all(each["reason"] for each in menu["entries"])
    assert menu["prior"] == "factors lognormal with sigma 1"
    assert world.get(f"/ads/console/menus/{'0' * 64}", operator).status_code == 404
    assert world.get("/ads/console/menus/x", operator).status_code == 404


def test_cohorts_have_their_sizes_and_what_they_hide(world: AdsWorld, operator: str) -> None:
    found = read(world, "cohorts", operator)["cohorts"]
    assert sorted(sum(each["sizes"]) for each in found) == [3, 5]
    assert all(0 < each["central"] <= each["epsilon"] == 1.0 for each in found)
    assert not any(each["is_small"] for each in found)


def test_invoices_item_by_item(world: AdsWorld, operator: str) -> None:
    heads = read(world, "invoices", operator)["invoices"]
    assert sum(each["total_micros"] for each in heads) == world.charged_micros()
    assert [each["number"] for each in heads] == sorted((each["number"] for each in heads), reverse=True)
    for head in heads:
        invoice = read(world, f"invoices/{head['number']}", operator)
        assert sum(each["total_micros"] for each in invoice["items"]) == head["total_micros"]
    assert read(world, f"invoices?before={heads[-1]['number']}", operator)["invoices"] == []


def test_all_invoices_are_verified_once_at_a_time(world: AdsWorld, operator: str, advertiser: str) -> None:
    viewer = world.key(AccessRole.VIEWER)
    assert world.post("/ads/console/verification", advertiser).status_code == 403
    assert world.post("/ads/console/verification", viewer).status_code == 403
    begun = world.post("/ads/console/verification", operator)
    assert begun.status_code == 202, begun.text
    assert world.post("/ads/console/verification", operator).status_code == 409
    world.wait_until(lambda: not read(world, "verification", viewer)["running"])
    done = read(world, "verification", viewer)
    assert done["report"]["holds"], done
    assert done["report"]["charged"]["micros"] == world.charged_micros()
    assert world.post("/ads/console/verification", operator).status_code == 409  # it has just ended
    assert not list(Path("/tmp").glob("tacit-verification-*"))


def test_without_a_key_nothing_is_read(world: AdsWorld) -> None:
    for view in ("session", "overview", "campaigns", "menus", "cohorts", "ledger", "rounds", "invoices"):
        assert world.get(f"/ads/console/{view}").status_code == 401


def test_the_session_says_what_a_key_is_for(world: AdsWorld, operator: str, advertiser: str) -> None:
    told = read(world, "session", operator)
    assert told["role"] == "operator"
    assert [told[name] for name in ("changes", "sees_all", "synthetic")] == [True] * 3
    told = read(world, "session", advertiser)
    assert (told["advertiser"], told["sees_all"]) == (BEAN, False)
