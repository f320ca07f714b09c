"""The line that shows how far a training is: where somebody sees it, once it has taken a while."""

from __future__ import annotations

import io
import sys
from importlib.machinery import ModuleSpec

import numpy as np
import pandas as pd
import pytest

from tacit.train.classifier import Classifier
from tacit.train.job import progress_line
from tacit.train.job.progress_line import shown_progress
from tacit.train.methods import DpSgd
from tacit.train.plan import Plan
from tacit.train.steps import RunProgress
from tests.support.training_examples import learnable


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def plan() -> Plan:
    return DpSgd(epsilon=1, delta=1e-5).plan(learnable())


def go(plan: Plan, *, after_seconds: float = 0.0) -> bool:
    """Show a whole run; whether anybody watched."""
    steps = plan.phases[0].schedule.steps
    with shown_progress(plan, after_seconds=after_seconds) as watch:
        if watch is None:
            return False
        for step in range(1, steps + 1):
            watch(
                RunProgress(
                    phase=0, phase_name="dp-sgd", step=step, steps=steps, examples=10.0 * step, loss=None
                )
            )
    return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Within the test: pytest puts its own stderr back between a fixture and its test."""
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def test_a_terminal_sees_steps_and_epsilon(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    assert go(plan)
    steps = plan.phases[0].schedule.steps
    assert f"{steps:,}/{steps:,}" in terminal.getvalue()
    assert "ε ≤ 1" in terminal.getvalue()


def test_what_is_soon_over_shows_nothing(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    assert go(plan, after_seconds=60)
    assert terminal.getvalue() == ""


def test_a_pipe_is_not_watched(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not go(plan)
    assert isinstance(sys.stderr, io.StringIO)
    assert sys.stderr.getvalue() == ""


def test_a_notebook_is_watched_where_it_has_widgets(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr(progress_line, "find_spec", lambda _: None)
    assert not go(plan)
    monkeypatch.setattr(progress_line, "find_spec", lambda name: ModuleSpec(name, None))
    assert go(plan, after_seconds=60)


def test_a_fit_is_shown_once_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    frame = pd.DataFrame({"site": ["a", "b"] * 500, "clicked": np.arange(1000) % 2})
    model = Classifier("logistic", method="label-dp", public=["site"], sensitive=[], random_state=1)
    quick = model.fit(frame, "clicked").predict_proba(frame[["site"]])
    assert terminal.getvalue() == ""
    monkeypatch.setattr(progress_line, "PATIENCE_SECONDS", 0.0)
    watched = model.fit(frame, "clicked").predict_proba(frame[["site"]])
    assert "labels" in terminal.getvalue()
    assert (watched == quick).all(), "watching changes nothing"
