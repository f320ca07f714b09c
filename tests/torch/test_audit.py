"""The audit sees a run that clips too little or adds too little noise, were its own checks silent."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tacit.audit import CATALOGUES
from tacit.entropy import Simulation
from tacit.privacy.audit.case import WHOLE, AuditCase
from tacit.torch import audit, gradients
from tacit.torch.run import PrivateRun
from tacit.train.sgd.monitor import NoiseMonitor, ReleaseMonitor

TRIALS = 20_000


@pytest.fixture
def case() -> AuditCase:
    (found,) = audit.cases()
    return found


@pytest.fixture
def without_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a run finds out about itself stops it."""
    monkeypatch.setattr(NoiseMonitor, "check_added", lambda *_: None)
    monkeypatch.setattr(NoiseMonitor, "close", lambda *_: None)
    monkeypatch.setattr(ReleaseMonitor, "check_clipped", lambda *_: None)
    monkeypatch.setattr(gradients.BookkeptGradients, "_check_norm", lambda *_: None)


def test_the_command_has_it() -> None:
    assert audit.__name__ in CATALOGUES


@pytest.mark.usefixtures("without_checks")
def test_an_honest_run_keeps_its_claim(case: AuditCase) -> None:
    assert case.look(WHOLE, TRIALS, Simulation(1)) <= case.claimed


@pytest.mark.usefixtures("without_checks")
def test_less_noise_is_caught(case: AuditCase, monkeypatch: pytest.MonkeyPatch) -> None:
    made = PrivateRun.__init__

    def quieter(self: PrivateRun, *given: Any, **named: Any) -> None:
        made(self, *given, **named)
        self._noise_stddev *= 0.7

    monkeypatch.setattr(PrivateRun, "__init__", quieter)
    assert case.look(WHOLE, TRIALS, Simulation(2)) > case.claimed


@pytest.mark.usefixtures("without_checks")
def test_gradients_that_are_clipped_too_late_are_caught(
    case: AuditCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(squares: torch.Tensor, monitor: ReleaseMonitor) -> tuple[torch.Tensor, torch.Tensor]:
        return squares.sqrt(), 1.5 * monitor.clip_norm / squares.sqrt() / monitor.expected_batch

    monkeypatch.setattr(gradients, "_clipped", late)
    assert case.look(WHOLE, TRIALS, Simulation(3)) > case.claimed


def test_with_its_checks_such_a_run_stops_by_itself(case: AuditCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "_clipped", lambda squares, _: (squares.sqrt(), torch.ones_like(squares)))
    verdict = case.verdict(Simulation(4), 2000)
    assert not verdict.is_kept
    assert verdict.bound == float("inf")


def test_without_torch_there_is_nothing_to_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "find_spec", lambda _: None)
    assert audit.cases() == []
