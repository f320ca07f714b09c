"""Where progress may also be written: TensorBoard or MLflow. They are told what the progress line shows.

Under DP-SGD that is steps, the examples they read in expectation, and epsilon: never the size of a batch or the
loss on private examples. A phase on noisy labels shows its loss too, which is on labels that are noisy already.
`plain` training promises nothing, and its loss is on true labels and all features: it tells about private
examples, and what is logged leaves, so send it only to where the data itself may go.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from tacit.errors import BadInput
from tacit.train.configuration.values import Watching
from tacit.train.run import Progress


class Sink(Protocol):
    def tell(self, step: int, figures: dict[str, float]) -> None: ...


def figures_of(progress: Progress, epsilon: float | None) -> dict[str, float]:
    """What may be shown of a step, by name."""
    shown = {"expected_examples": progress.examples}
    if epsilon is not None:
        shown["epsilon"] = epsilon
    if progress.loss is not None:
        shown["loss"] = progress.loss
    return {f"{progress.phase_name}/{name}": value for name, value in shown.items()}


@contextmanager
def opened(watching: Watching) -> Iterator[tuple[Sink, ...]]:
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
