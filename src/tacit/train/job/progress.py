"""What a run shows while it trains: epsilon spent so far, and logs for TensorBoard or MLflow.

Under DP-SGD that is steps, the expected number of examples read, and epsilon: never the size of a batch or the
loss on private examples. A phase on noisy labels also shows its loss, which is on labels that are noisy
already. `plain` training promises nothing, and its loss is on true labels and all features: it tells about
private examples, and what is logged leaves, so send it only to where the data itself may go.

Epsilon is looked up at some steps only, and is never less than the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from tacit.errors import BadInput
from tacit.privacy.accounting.accountant import coarse_epsilon
from tacit.privacy.releases import Composed, Release, SubsampledGaussian
from tacit.train.config import RunSettings
from tacit.train.plan import LabelPhase, Phase, Plan, PrivatePhase
from tacit.train.steps import RunProgress

LOOKS = 20  # in a phase of DP-SGD; each takes some 50 ms
GRIDS_PER_EPSILON = 500
TOLD_TO_SINKS = 200  # times in a phase


class Spending:
    """Epsilon after n steps, at the plan's delta: an upper bound that ends at the statement's epsilon.

    `before` is what was released earlier and is used here, such as a vocabulary. Between two looks the later
    one is shown.
    """

    def __init__(self, plan: Plan, before: tuple[Release, ...] = ()) -> None:
        self._plan, self._before = plan, before
        self._look = cache(self._epsilon)

    @classmethod
    def of(cls, plan: Plan) -> Spending:
        """With the vocabulary of the plan's examples, if it was chosen from data."""
        selection = plan.examples.selection
        return cls(plan, () if selection is None else (selection.release,))

    def after(self, phase: int, steps: int) -> float | None:
        """Once `steps` steps of this phase are done; None where nothing is promised."""
        if self._plan.statement is None:
            return None
        chosen = self._plan.phases[phase]
        if not isinstance(chosen, PrivatePhase):
            return self._look(0)  # labels are noisy from the start, and reading them again is free
        every = max(1, -(-chosen.schedule.steps // LOOKS))
        return self._look(min(-(-steps // every) * every, chosen.schedule.steps))

    def _epsilon(self, steps: int) -> float:
        statement = self._plan.statement
        assert statement is not None
        gaussian = [each for each in self._plan.releases if isinstance(each, SubsampledGaussian)]
        others = [each for each in self._plan.releases if not isinstance(each, SubsampledGaussian)]
        if not gaussian or steps == gaussian[0].steps:
            return statement.epsilon
        parts = (*self._before, *others)
        if steps:
            taken = SubsampledGaussian(gaussian[0].noise_multiplier, gaussian[0].sampling_probability, steps)
            parts = (*parts, taken)
        if not parts:
            return 0.0
        found = coarse_epsilon(
            Composed(parts),
            delta=statement.delta,
            relation=statement.relation,
            grid=statement.epsilon / GRIDS_PER_EPSILON,
        )
        return min(found, statement.epsilon)


class Sink(Protocol):
    def tell(self, step: int, figures: dict[str, float]) -> None: ...


def progress_figures(progress: RunProgress, epsilon: float | None) -> dict[str, float]:
    """What may be shown of a step, by name."""
    shown = {"expected_examples": progress.examples}
    if epsilon is not None:
        shown["epsilon"] = epsilon
    if progress.loss is not None:
        shown["loss"] = progress.loss
    return {f"{progress.phase_name}/{name}": value for name, value in shown.items()}


def phase_name(phase: Phase) -> str:
    """For people: without noisy labels, a phase on labels is plain training."""
    return "training" if isinstance(phase, LabelPhase) and phase.labelling is None else phase.name


class SinkLog:
    """Tells sinks what may be shown of a run, some hundreds of times in a phase; and `then` of every step."""

    def __init__(
        self, plan: Plan, sinks: tuple[Sink, ...], then: Callable[[RunProgress], None] | None = None
    ) -> None:
        self._plan, self._sinks, self._then, self._spending = plan, sinks, then, Spending.of(plan)

    def __call__(self, progress: RunProgress) -> None:
        if progress.step == progress.steps or progress.step % max(1, progress.steps // TOLD_TO_SINKS) == 0:
            named = replace(progress, phase_name=phase_name(self._plan.phases[progress.phase]))
            figures = progress_figures(named, self._spending.after(progress.phase, progress.step))
            for sink in self._sinks:
                sink.tell(progress.step, figures)
        if self._then is not None:
            self._then(progress)


@contextmanager
def open_sinks(watching: RunSettings) -> Iterator[tuple[Sink, ...]]:
    """The sinks that were asked for; they are closed when the block ends."""
    with ExitStack() as stack:
        sinks: list[Sink] = []
        if watching.tensorboard is not None:
            sinks.append(stack.enter_context(_tensorboard(watching.tensorboard)))
        if watching.mlflow is not None:
            sinks.append(stack.enter_context(_mlflow(watching.mlflow)))
        yield tuple(sinks)


class _TensorBoard:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def tell(self, step: int, figures: dict[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)


class _MlFlow:
    def __init__(self, mlflow: Any) -> None:
        self._mlflow = mlflow

    def tell(self, step: int, figures: dict[str, float]) -> None:
        self._mlflow.log_metrics(figures, step=step)


@contextmanager
def _tensorboard(folder: Path) -> Iterator[Sink]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise BadInput(
            "run.tensorboard: expected tensorboard and torch, got none: pip install 'tacit[track]'"
        ) from None
    writer = SummaryWriter(str(folder))
    try:
        yield _TensorBoard(writer)
    finally:
        writer.close()


@contextmanager
def _mlflow(uri: str) -> Iterator[Sink]:
    try:
        mlflow = import_module("mlflow")
    except ImportError:
        raise BadInput("run.mlflow: expected mlflow, got none: pip install 'tacit[track]'") from None
    mlflow.set_tracking_uri(uri)
    with mlflow.start_run():
        yield _MlFlow(mlflow)
