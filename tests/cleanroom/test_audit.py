"""The room's part of the audit: every claim holds, every twin is caught, and so is a room that is broken."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tacit.audit import CATALOGUES
from tacit.cleanroom import audit
from tacit.cleanroom.attacks.defended_room import Protection
from tacit.cleanroom.protocol.modes import Mode
from tacit.cleanroom.protocol.requests import StatisticRequest
from tacit.cleanroom.room.party import Room
from tacit.cleanroom.room.store import _Transaction
from tacit.entropy import Simulation
from tacit.privacy.audit.case import AuditCase


@pytest.mark.parametrize("case", audit.cases(), ids=lambda case: case.name)
def test_every_claim_holds_and_a_tenth_less_noise_is_caught(case: AuditCase) -> None:
    verdict = case.verdict(Simulation(f"few {case.name}"), audit.FEW_TRIALS)
    assert verdict.sees, f"claimed {case.claimed}, caught at {verdict.caught_at} with {verdict.weak_bound}"
    assert verdict.is_kept, f"claimed {case.claimed}, found {verdict.bound}"
    assert verdict.bound > 0.5 * case.claimed, "the event is one that tells: the bound is not idle"
    assert verdict.twin_caught, f"claimed {case.claimed}, the twin's bound is {verdict.twin_bound}"


def test_a_room_that_counts_each_task_by_itself_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    (case,) = [case for case in audit.cases() if "two tasks" in case.name]
    asked: list[str] = []  # the task that is being asked about

    def statistic(room: Room, request: StatisticRequest, *given: Any, **named: Any) -> Any:
        asked.append(request.task)
        return honest_statistic(room, request, *given, **named)

    honest_statistic = Room.statistic
    monkeypatch.setattr(Room, "statistic", statistic)
    for name in ("has_releases_left", "count"):
        honest = getattr(_Transaction, name)
        monkeypatch.setattr(
            _Transaction,
            name,
            lambda kept, release, *given, honest=honest: honest(kept, f"{release} {asked[-1]}", *given),
        )
    assert case.look(Fraction(1), audit.FEW_TRIALS, Simulation("by task")) > case.claimed


def test_the_audit_command_has_these_cases() -> None:
    assert audit.__name__ in CATALOGUES


def test_a_record_is_read_as_often_as_agreed_and_more_often_where_counts_are_lost() -> None:
    thrice = Protection(Mode.NOISED, releases_per_record=3)
    for forgets, answers in ((False, 3), (True, 5)):
        platform = audit.AuditingPlatform(thrice, (audit.by_metric,) * 5, forgets=forgets)
        given = platform.answers(1, 300, Simulation(0))
        assert len(given) == answers
        assert all(each.shape == (300,) for each in given)


def test_a_statistic_is_released_once_and_a_metric_is_one() -> None:
    once = audit.AuditingPlatform(Protection(Mode.STATISTIC), (audit.by_metric, audit.by_statistic))
    assert len(once.answers(1, 300, Simulation(0))) == 1


def test_looks_say_about_what_the_label_is() -> None:
    """300 records, noise of 1.54: the mean of 300 lies within 6 standard deviations of the label."""
    for label in (0, 1):
        platform = audit.AuditingPlatform(Protection(Mode.NOISED), (audit.by_step,))
        (given,) = platform.answers(label, 300, Simulation(label))
        assert abs(np.mean(given) - label) < 6 * 1.54 / np.sqrt(300)
