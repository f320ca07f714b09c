"""Rounds, versions and the ledger in the console, of statistics that devices really answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tacit.deliver.campaigns.access import AccessRole
from tacit.deliver.campaigns.versions import VersionKind
from tacit.privacy.budget import Budget
from tacit.schema.contexts.hierarchy import load_hierarchy
from tacit.services.ads.rate_models import model_version
from tacit.services.ads.versions import contexts_of
from tacit.services.signatures import Party
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.models.saving import save
from tests.services.ads.test_rate_models import a_model
from tests.support.ad_campaigns import BY
from tests.support.billing_services import HERE, liking
from tests.support.browsers import a_browser, needs_chromium, served
from tests.support.statistics_worlds import EPSILON, EVERY_SECONDS, LINE, OPEN_SECONDS, StatisticsWorld

DEVICES = 3


class RoundsWorld(StatisticsWorld):
    """`while_open`: what the console said of rounds while the second one was open."""

    operator_key: str
    while_open: list[dict[str, Any]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoundsWorld]:
    """A round that was released, one that is closed and cannot be paid for; a version of statistics and two of
    models."""
    made = RoundsWorld(tmp_path_factory.mktemp("rounds"))
    try:
        made.operator_key = made.key(AccessRole.OPERATOR)
        made.wait_for_epoch()
        made.rounds.look()
        _answer(made)
        made.now += OPEN_SECONDS + 60
        made.wait_for_result()
        made.rounds.look()
        made.now += EVERY_SECONDS - OPEN_SECONDS
        made.wait_for_epoch()
        made.rounds.look()
        _answer(made)
        made.while_open = read(made, "rounds")["rounds"]
        _use_up(made)
        made.now += EVERY_SECONDS
        made.wait_until(lambda: read(made, "rounds")["rounds"][0]["phase"] == "agreed")
        _add_models(made)
        yield made
    finally:
        made.end()


def _answer(world: StatisticsWorld) -> None:
    for number in range(DEVICES):
        device = world.asking_device(number)
        device.show(HERE, liking, world.now)
        assert world.counting_device(number, device).join(charging=True, wifi=True)


def _use_up(world: StatisticsWorld) -> None:
    """Promise the rest of the ad server's line to something else."""
    ledger = world.ledgers[Party.SERVER]
    account = ledger.account(LINE)
    assert account is not None
    ledger.reserve("the rest", LINE, Budget.of(account.remaining.epsilon_nanos / 1e9), "another release")


def _add_models(world: StatisticsWorld) -> None:
    hierarchy = load_hierarchy(contexts_of(world.running.settings))
    private = {"epsilon": 2.0, "delta": 0.0, "unit": "impression"}
    for name, start, statement in (("monday", 0.1, private), ("tuesday", 0.2, None)):
        save(world.folder / name, a_model(FactorizationMachine(dim=2, start=start), statement=statement))
        version = model_version(world.folder / name, hierarchy, VersionKind.MODEL)
        world.running.versions.add(version, BY, use=statement is not None)


def read(world: RoundsWorld, view: str) -> Any:
    answer = world.get(f"/ads/console/{view}", world.operator_key)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_rounds_have_their_phases_and_what_they_wait_for(world: RoundsWorld) -> None:
    opened, _ = world.while_open
    assert (opened["phase"], opened["is_settled"], opened["needs"]) == ("open", False, None)
    closed, released = read(world, "rounds")["rounds"]
    assert (released["phase"], released["is_settled"], released["needs"]) == ("released", True, None)
    assert closed["digest"] == opened["digest"]
    assert (closed["phase"], closed["is_settled"]) == ("agreed", False)
    assert [each["accepted"] for each in (closed, released)] == [DEVICES, DEVICES]
    assert closed["needs"].startswith("a grant of epsilon")
    alerts = read(world, "overview")["alerts"]
    assert any(closed["task"] in each["says"] for each in alerts)


def test_what_was_released_is_paid_from_the_line(world: RoundsWorld) -> None:
    [line] = read(world, "ledger")["lines"]
    assert line["spent_nanos"] == pytest.approx(EPSILON * 1e9)
    assert line["left_nanos"] == 0
    assert line["limit_nanos"] == line["spent_nanos"] + line["reserved_nanos"]


def test_versions_say_what_they_are_made_of_and_promise(world: RoundsWorld) -> None:
    versions = {each["name"]: each for each in read(world, "versions")["versions"]}
    released = read(world, "rounds")["rounds"][-1]
    statistics = versions.pop(released["task"])
    assert (statistics["kind"], statistics["in_use"], statistics["reports"]) == ("statistics", True, DEVICES)
    assert statistics["epsilon"] == pytest.approx(released["epsilon"])
    assert statistics["unit"] == "device"
    assert {name: (each["in_use"], each["epsilon"]) for name, each in versions.items()} == {
        "monday": (True, 2.0),
        "tuesday": (False, None),
    }


@pytest.mark.slow
@needs_chromium
def test_they_are_shown_in_a_browser(world: RoundsWorld) -> None:
    with served(world) as url, a_browser() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{url}/console")
        page.fill("#key", world.operator_key)
        page.click("button[type=submit]")
        page.wait_for_selector(".view")
        shown = {}
        for view in ("rounds", "models", "ledger"):
            page.evaluate("view => { location.hash = `#/${view}` }", view)
            page.wait_for_selector(f'.view[data-key="{view}"]')
            shown[view] = page.inner_text("main")
        assert page.locator("tbody tr").count() == 1
    for words in ("released", "overdue", "a grant of epsilon", "menu-rates"):
        assert words in shown["rounds"]
    for words in ("monday", "click model", "in use", "kept", f"{DEVICES} reports", "none"):
        assert words in shown["models"]
    assert "menu rates" in shown["ledger"]
