"""Checkpoints come back as they were or not at all; watchers are told what may be shown."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.accounting import accountant
from tacit.privacy.releases import SubsampledGaussian
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit.train.config import CheckpointSettings, RunSettings
from tacit.train.examples import Examples
from tacit.train.job import progress
from tacit.train.job.checkpoints import Checkpoints, checkpoint_folder, training_digest
from tacit.train.job.progress import LOOKS, Spending
from tacit.train.methods import DpSgd, Hybrid, Plain
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.models.model import Model
from tacit.train.plan import Plan
from tacit.train.settings import Learning, PrivateLearning
from tacit.train.sgd.descent import GradientDescent
from tacit.train.sgd.optimizers import Adam, Optimizer, Sgd
from tacit.train.statistic import release
from tacit.train.statistic.method import NoisyStatistic
from tacit.train.statistic.model import FieldFactors
from tacit.train.statistic.offset import FIXED_TABLE
from tacit.train.steps import Mark, Run, RunProgress
from tests.support.training_examples import small_examples

SECRET = bytes(range(32))
NOTHING = CheckpointSettings(None, None)


class Memory:
    """Calibrations of this file, made once."""

    def __init__(self) -> None:
        self._known: dict[str, float] = {}

    def recall(self, question: str) -> float | None:
        return self._known.get(question)

    def keep(self, question: str, answer: float) -> None:
        self._known[question] = answer


MEMORY = Memory()


def hybrid(optimizer: Optimizer, penalty: float = 0.0) -> Hybrid:
    return Hybrid(
        4, "1e-5", k=0.5, label_learning=Learning(epochs=2, batch=8, rate=0.01),
        learning=PrivateLearning(
            epochs=2, batch=8, optimizer=optimizer, penalty=penalty, rate=0.1, recalibrate=False
        ),
    )  # fmt: skip


def run_of(plan: Plan, examples: Examples, seed: str) -> Run:
    model = FactorizationMachine(4).build(examples.sizes, Simulation("start").normal)
    return Run(plan, model, examples, Simulation(seed), SECRET, simulated=True)


class Snapshots:
    """A keeper that also remembers what it was given."""

    def __init__(self, checkpoints: Checkpoints, at: Mark) -> None:
        self._checkpoints, self._at = checkpoints, at
        self.seen: dict[str, Any] = {}

    def due(self, mark: Mark) -> bool:
        return mark == self._at

    def keep(self, mark: Mark, model: Model, descent: GradientDescent) -> None:
        self._checkpoints.keep(mark, model, descent)
        self.seen = state_of(model, descent)
        raise KeyboardInterrupt

    def stop_if_asked(self) -> None:
        self._checkpoints.stop_if_asked()

    def restore(self, model: Model, start: Any) -> tuple[Mark, GradientDescent | None]:
        return self._checkpoints.restore(model, start)


def state_of(model: Model, descent: GradientDescent) -> dict[str, Any]:
    state: dict[str, Any] = {name: array.copy() for name, array in {**model.tables, **model.dense}.items()}
    for name, update in {**descent.tables, **descent.dense}.items():
        state |= {f"{name} {what}": array.copy() for what, array in update.memory.items()}
        state[f"{name} steps"] = getattr(update, "steps", None)
    return state


@contextmanager
def claimed(
    out: Path, training: str = "this", keeping: CheckpointSettings = NOTHING, *, resume: bool
) -> Iterator[Checkpoints]:
    checkpoints = Checkpoints(out, training, keeping)
    checkpoints.claim(resume=resume)
    try:
        yield checkpoints
    finally:
        checkpoints.release()


@pytest.mark.parametrize(
    ("optimizer", "penalty", "at"),
    [
        (Sgd(0.9), 0.0, Mark(1, 3)),
        (Sgd(), 0.0, Mark(1, 2)),
        (Adam(), 0.0, Mark(1, 4)),
        (Sgd(0.5), 0.01, Mark(1, 10)),
        (Sgd(0.9), 0.0, Mark(0, 7)),
    ],
)
def test_a_run_goes_on_with_all_that_it_had(
    tmp_path: Path, optimizer: Optimizer, penalty: float, at: Mark
) -> None:
    examples = small_examples()
    plan = hybrid(optimizer, penalty).plan(examples, secret=SECRET, memory=MEMORY)
    with claimed(tmp_path / "model", resume=False) as checkpoints:
        keeper = Snapshots(checkpoints, at)
        with pytest.raises(KeyboardInterrupt):
            run_of(plan, examples, "first").go(keeper=keeper)
    kept = [path.name for path in checkpoint_folder(tmp_path / "model").glob("state-*")]
    assert len(kept) == 1
    with claimed(tmp_path / "model", resume=True) as again:
        assert (again.mark, again.run) == (at, checkpoints.run)
        run = run_of(plan, examples, "second")
        mark, descent = again.restore(run.model, run._descent)
        assert mark == at
        assert descent is not None
        state = state_of(run.model, descent)
        assert state.keys() == keeper.seen.keys()
        for name, value in keeper.seen.items():
            np.testing.assert_array_equal(state[name], value, err_msg=name)
        steps: list[RunProgress] = []
        model = run_of(plan, examples, "second").go(steps.append, again)
        assert np.isfinite(next(iter(model.tables.values()))).all()
    done = sum(phase.schedule.steps for phase in plan.phases[: at.phase]) + at.step
    assert len(steps) == plan.steps - done


def test_a_run_beside_a_statistic_that_goes_on_tells_it_no_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = small_examples()
    learning = PrivateLearning(epochs=2, batch=8, rate=0.1, optimizer=Sgd(0.9), recalibrate=False)
    method = Hybrid(4, "1e-5", k=0.5, statistic=NoisyStatistic(rank=0), learning=learning)
    plan, told = method.plan(examples, memory=MEMORY), []
    honest = release.release_statistic

    def noted(*given: Any, **named: Any) -> Any:
        told.append(honest(*given, **named))
        return told[-1]

    def beside(seed: str) -> Run:
        model = plan.trained_shape(FactorizationMachine(4)).build(examples.sizes, Simulation("start").normal)
        return Run(plan, model, examples, Simulation(seed), simulated=True)

    monkeypatch.setattr(release, "release_statistic", noted)
    with claimed(tmp_path / "model", resume=False) as checkpoints, pytest.raises(KeyboardInterrupt):
        beside("first").go(keeper=Snapshots(checkpoints, Mark(0, 3)))
    assert len(told) == 1
    with claimed(tmp_path / "model", resume=True) as again:
        model = beside("second").go(keeper=again)
    assert len(told) == 1
    fitted = NoisyStatistic(rank=0).fit(told[0], examples.public_ids, Simulation(1))
    fixed = FieldFactors(0).filled(examples.sizes, fitted)
    np.testing.assert_array_equal(model.tables[FIXED_TABLE], fixed.table)
    with claimed(tmp_path / "other", resume=False) as fresh:  # nothing was kept: it is told, by this run
        beside("third").go(keeper=fresh)
    assert len(told) == 2


@pytest.mark.parametrize("at", [Mark(0, 7), Mark(1, 3), Mark(1, 9)])
def test_a_run_that_goes_on_keeps_to_the_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: Mark
) -> None:
    """Rates fall over a phase: whoever goes on takes those of the steps that are left."""
    examples = small_examples()
    plan = hybrid(Sgd(0.9)).plan(examples, secret=SECRET, memory=MEMORY)
    rates: list[float] = []
    honest = GradientDescent.step

    def noted(self: GradientDescent, *given: Any) -> None:
        rates.append(given[3])
        honest(self, *given)

    monkeypatch.setattr(GradientDescent, "step", noted)
    with claimed(tmp_path / "model", resume=False) as checkpoints, pytest.raises(KeyboardInterrupt):
        run_of(plan, examples, "first").go(keeper=Snapshots(checkpoints, at))
    with claimed(tmp_path / "model", resume=True) as again:
        run_of(plan, examples, "second").go(keeper=again)
    planned = [phase.schedule.at(step) for phase in plan.phases for step in range(phase.schedule.steps)]
    assert rates == planned
    assert len(set(planned)) == len(planned), "no two steps have the same rate, else this test shows nothing"


def test_a_checkpoint_is_of_these_labels_and_of_these_people() -> None:
    examples = small_examples()
    plan = hybrid(Sgd(0.9)).plan(examples, secret=SECRET, memory=MEMORY)

    def named(given: Examples, identified: str = "rows", secret: str = "secret") -> str:
        return training_digest("configuration", Unit(UnitKind.USER), plan, given, identified, secret)

    label, users = np.array(examples.label), np.array(examples.keys["user"])
    label[17] ^= 1
    users[17] = users.max() + 1
    changed = [
        named(examples),
        named(replace(examples, label=label)),
        named(replace(examples, keys={**examples.keys, "user": users})),
        named(examples, identified="others"),
        named(examples, secret="another"),
    ]
    assert len(set(changed)) == len(changed)
    assert named(replace(examples, label=np.array(examples.label))) == changed[0]


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    examples = small_examples()
    plan = Plain(Learning(1, 8)).plan(examples)
    with claimed(tmp_path / "model", resume=False) as checkpoints, pytest.raises(KeyboardInterrupt):
        run_of(plan, examples, "first").go(keeper=Snapshots(checkpoints, Mark(0, 2)))
    folder = checkpoint_folder(tmp_path / "model")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    checkpoints.discard()
    assert not folder.exists()


def test_what_is_due() -> None:
    steps = Checkpoints(Path("x"), "this", CheckpointSettings(3, None))
    assert [steps.due(Mark(0, n)) for n in range(1, 4)] == [False, False, True]
    never = Checkpoints(Path("x"), "this", NOTHING)
    assert not any(never.due(Mark(0, n)) for n in range(100))
    never.ask_to_stop()
    assert never.due(Mark(0, 101))
    assert Checkpoints(Path("x"), "this", CheckpointSettings(None, 1e-9)).due(Mark(0, 1))


def test_a_run_that_trains_anew_on_all_examples_ends_when_asked_and_goes_on(tmp_path: Path) -> None:
    """What was held out has said when to end; the second training keeps no checkpoints."""
    examples = small_examples()
    plan = Plain(Learning(batch=8)).plan(examples)
    steps = plan.phases[0].schedule.steps

    with claimed(tmp_path / "model", resume=False) as checkpoints:

        def stop(reached: RunProgress) -> None:
            if reached.steps != steps:
                checkpoints.ask_to_stop()

        with pytest.raises(KeyboardInterrupt):
            run_of(plan, examples, "first").go(stop, checkpoints)
    seen: list[RunProgress] = []
    with claimed(tmp_path / "model", resume=True) as checkpoints:
        run_of(plan, examples, "second").go(seen.append, checkpoints)
    assert seen[-1].step == seen[-1].steps


def test_another_training_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    with claimed(tmp_path / "model", resume=False):
        pass
    before = (checkpoint_folder(tmp_path / "model") / "checkpoint.json").read_text()
    with pytest.raises(BadInput, match="expected a checkpoint of this configuration"):
        Checkpoints(tmp_path / "model", "other", NOTHING).claim(resume=True)
    with pytest.raises(BadInput, match=r"expected no checkpoint, got one at phase 1, step 0 .*--resume"):
        Checkpoints(tmp_path / "model", "this", NOTHING).claim(resume=False)
    assert (checkpoint_folder(tmp_path / "model") / "checkpoint.json").read_text() == before


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    with (
        claimed(tmp_path / "model", resume=False),
        pytest.raises(BadInput, match="expected no other run here, got one that is training"),
    ):
        Checkpoints(tmp_path / "model", "this", NOTHING).claim(resume=True)


@pytest.mark.parametrize("way", ["cut", "changed", "gone", "manifest", "no json"])
def test_torn_files_are_refused(tmp_path: Path, way: str) -> None:
    examples = small_examples()
    plan = Plain(Learning(1, 8)).plan(examples)
    with claimed(tmp_path / "model", resume=False) as checkpoints, pytest.raises(KeyboardInterrupt):
        run_of(plan, examples, "first").go(keeper=Snapshots(checkpoints, Mark(0, 2)))
    folder = checkpoint_folder(tmp_path / "model")
    (state,) = folder.glob("state-*")
    whole, manifest = state.read_bytes(), folder / "checkpoint.json"
    if way == "cut":
        state.write_bytes(whole[:-10])
    elif way == "changed":
        state.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    elif way == "gone":
        state.unlink()
    elif way == "manifest":
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"mark": [0, 1]}))
    else:
        manifest.write_text(manifest.read_text()[:-20])
    run = run_of(plan, examples, "second")
    with (
        pytest.raises(BadInput, match=r"torn|expected JSON"),
        claimed(tmp_path / "model", resume=True) as again,
    ):
        again.restore(run.model, run._descent)


def test_epsilon_so_far_rises_to_the_statement() -> None:
    examples = small_examples()
    plan = hybrid(Sgd(0.9)).plan(examples, secret=SECRET, memory=MEMORY)
    assert plan.statement is not None
    spending = Spending(plan)
    labels = spending.after(0, 1)
    assert labels == spending.after(0, plan.phases[0].schedule.steps)
    steps = plan.phases[1].schedule.steps
    shown = [spending.after(1, step) or 0.0 for step in range(1, steps + 1)]
    assert labels is not None
    assert 1.9 < labels <= shown[0]  # half of epsilon 4 went to the labels
    assert shown == sorted(shown)
    assert max(shown) == shown[-1] == plan.statement.epsilon
    assert Spending(Plain().plan(examples)).after(0, 1) is None


def test_epsilon_so_far_is_never_less_than_what_was_spent() -> None:
    """Between two looks the later one counts: every step against the accountant's own answer for it."""
    examples = small_examples(200)
    learning = PrivateLearning(epochs=2, batch=5, rate=0.1, recalibrate=False)
    plan = DpSgd(4, "1e-5", learning=learning).plan(examples, memory=MEMORY)
    spending, (release,) = Spending(plan), plan.releases
    assert isinstance(release, SubsampledGaussian)
    assert release.steps == 4 * LOOKS, "several steps between two looks, else this test shows nothing"
    for steps in (1, 4, 5, 37, 79):
        taken = SubsampledGaussian(release.noise_multiplier, release.sampling_probability, steps)
        spent = accountant.epsilon(taken, delta="1e-5", relation=Relation.REPLACE_ONE)
        shown = spending.after(0, steps)
        assert shown is not None
        assert spent <= shown, f"after {steps} steps {spent} was spent, {shown} shown"
        assert shown <= 4
    assert spending.after(0, 1) == spending.after(0, 4) != spending.after(0, 5)


class FakeWriter:
    told: ClassVar[list[tuple[Any, ...]]] = []

    def __init__(self, folder: str) -> None:
        self.told.append(("open", folder))

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.told.append((name, value, step))

    def close(self) -> None:
        self.told.append(("close",))


def test_sinks_are_told_what_may_be_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    board = ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = FakeWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    logged: list[Any] = []

    @contextmanager
    def start_run() -> Iterator[None]:
        logged.append("begun")
        yield
        logged.append("ended")

    mlflow = SimpleNamespace(
        set_tracking_uri=logged.append,
        start_run=start_run,
        log_metrics=lambda f, step: logged.append((step, f)),
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    reached = RunProgress(0, "dp-sgd", 3, 10, 24.0, None)
    with progress.open_sinks(RunSettings(None, tmp_path, "file:x")) as both:
        for sink in both:
            sink.tell(reached.step, progress.progress_figures(reached, 1.5))
    figures = {"dp-sgd/expected_examples": 24.0, "dp-sgd/epsilon": 1.5}
    assert logged == ["file:x", "begun", (3, figures), "ended"]
    told = [("dp-sgd/expected_examples", 24.0, 3), ("dp-sgd/epsilon", 1.5, 3)]
    assert FakeWriter.told == [("open", str(tmp_path)), *told, ("close",)]
    with_loss = progress.progress_figures(RunProgress(0, "labels", 3, 10, 24.0, 0.5), None)
    assert with_loss == {"labels/expected_examples": 24.0, "labels/loss": 0.5}


def test_sinks_say_that_the_loss_of_a_plain_training_is_private() -> None:
    """It is told, and so it leaves: the words must not promise otherwise."""
    examples, seen = small_examples(), list[RunProgress]()
    run_of(Plain(Learning(1, 8)).plan(examples), examples, "plain").go(seen.append)
    assert any("labels/loss" in progress.progress_figures(each, None) for each in seen)
    words = " ".join((progress.__doc__ or "").split())
    assert "`plain` training promises nothing, and its loss is on true labels" in words
    assert "on private examples never come this way" not in words


@pytest.mark.parametrize(
    ("module", "watching", "key"),
    [
        ("torch.utils.tensorboard", RunSettings(None, Path("x"), None), "run.tensorboard"),
        ("mlflow", RunSettings(None, None, "x"), "run.mlflow"),
    ],
)
def test_a_sink_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, module: str, watching: RunSettings, key: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BadInput, match=rf"{key}: expected .*tacit\[track\]"), progress.open_sinks(watching):
        pass
