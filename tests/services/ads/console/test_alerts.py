"""Alerts: each from what it is about and from nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tacit.services.ads.console.alerts import HEALTH, Runbook, Situation, Urgency, find_alerts
from tests.support.repository import ROOT

CALM = Situation(now=1_000, health=dict.fromkeys(HEALTH, True), open_until=1_500, epoch_seconds=600)


def test_every_runbook_is_in_the_operators_page() -> None:
    headings = set((ROOT / "docs/operations.md").read_text().splitlines())
    assert {f"### {each}" for each in Runbook} <= headings


def kinds(**changes: Any) -> list[str]:
    return [each.kind for each in find_alerts(replace(CALM, **changes))]


def test_where_all_is_well_there_is_none() -> None:
    assert find_alerts(CALM) == []


@pytest.mark.parametrize(
    ("changes", "kind", "calm"),
    [
        ({"open_until": None}, "no-epoch", {"open_until": 1_400}),
        ({"open_until": 1_149}, "epoch-cover", {"open_until": 1_150}),
        ({"open_until": 2_801}, "clock", {"open_until": 2_800}),
        ({"spent": {3: "Two Wheels"}}, "budget-spent", {"spent": {}}),
        ({"held_micros": 1}, "held", {"held_micros": 0}),
        ({"out_of_tokens": (1, 10)}, "tokens", {"out_of_tokens": (0, 10)}),
        ({"overdue": {"clicks, level 0": 601}}, "round-overdue", {"overdue": {"clicks, level 0": 600}}),
        ({"small_cohorts": (1, 9)}, "small-cohorts", {"small_cohorts": (0, 9)}),
        ({"nearly_spent": ["clicks"]}, "ledger", {"nearly_spent": []}),
        ({"notices": (2, 1_300)}, "notices", {"notices": (2, 1_301)}),
        ({"over_share": {3: "Two Wheels"}}, "over-share", {"over_share": {}}),
        ({"health": {"store": False}}, "health-store", {"health": {"store": True}}),
        ({"health": {"some_new_check": False}}, "health-some_new_check", {"health": {}}),
    ],
)
def test_each_is_told_of_from_its_bound_on(changes: Any, kind: str, calm: Any) -> None:
    assert kinds(**changes) == [kind]
    assert kinds(**calm) == []


def test_what_is_broken_comes_first_and_says_what_to_do() -> None:
    found = find_alerts(
        replace(CALM, held_micros=5, spent={1: "A", 2: "B", 3: "C", 4: "D"}, health={"billing_disk": False})
    )
    assert [each.urgency for each in found] == [Urgency.NOW, Urgency.SOON, Urgency.SOON]
    assert found[0].runbook is Runbook.DISK
    assert "1 (A), 2 (B), 3 (C) and 1 more" in found[1].says
    for each in found:
        assert each.says.endswith(".")
        assert each.do.endswith(".")
