"""One line that shows how far a training is: in a terminal, in a notebook, and nowhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from tacit.privacy.budget import format_rounded_up
from tacit.train.job.progress import Spending, phase_name
from tacit.train.plan import Plan
from tacit.train.steps import RunProgress

REFRESH_SECONDS = 0.2
PATIENCE_SECONDS = 2.0
"""What takes less is not worth a bar in a program that did not ask for one."""


@contextmanager
def shown_progress(plan: Plan, *, after_seconds: float = 0.0) -> Iterator[Callable[[RunProgress], None] | None]:
    """A line on stderr once the training has taken `after_seconds`; None where nobody would see it.

    It is seen in a terminal, and in a notebook that has `ipywidgets`.
    """
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not (find_spec("ipywidgets") if console.is_jupyter else sys.stderr.isatty()):
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=12), TextColumn("{task.fields[words]}"))
    bar = Bar(*columns, console=console, transient=True)
    task = bar.add_task("", total=1, words="")
    spending, pace, began, last = Spending.of(plan), _Pace(), time.monotonic(), 0.0

    def watch(progress: RunProgress) -> None:
        nonlocal last
        pace.see(progress)
        ended, now = progress.step == progress.steps, time.monotonic()
        if now - began < after_seconds or not (ended or now - last >= REFRESH_SECONDS):
            return
        last = now
        epsilon = spending.after(progress.phase, progress.step)
        words = pace.words(progress, epsilon, last_phase=progress.phase == len(plan.phases) - 1)
        name = phase_name(plan.phases[progress.phase])
        description = f"{name} {progress.step:,}/{progress.steps:,}"
        bar.update(task, total=progress.steps, completed=progress.step, description=description, words=words)
        bar.start()  # does nothing where it has

    try:
        if not after_seconds:
            bar.start()
        yield watch
    finally:
        if bar.live.is_started:
            bar.stop()


class _Pace:
    """How fast a phase goes, from the first step that was seen of it; and the last loss that there was."""

    def __init__(self) -> None:
        self._phase = -1
        self._loss: float | None = None
        self._since, self._step, self._examples = 0.0, 0, 0.0

    def see(self, progress: RunProgress) -> None:
        if progress.phase != self._phase:
            self._phase, self._since = progress.phase, time.monotonic()
            self._step, self._examples, self._loss = progress.step, progress.examples, None
        self._loss = self._loss if progress.loss is None else progress.loss

    def words(self, progress: RunProgress, epsilon: float | None, *, last_phase: bool) -> str:
        seconds = max(time.monotonic() - self._since, 1e-9)
        words = []
        if progress.step > self._step:
            words.append(f"{(progress.examples - self._examples) / seconds:,.0f} examples/s")
        if epsilon is not None:
            words.append(f"ε ≤ {format_rounded_up(epsilon, 3)}")
        if self._loss is not None:
            words.append(f"loss {self._loss:.4f}")
        if progress.step > self._step:
            left = (progress.steps - progress.step) * seconds / (progress.step - self._step)
            words.append(f"{_clock(left)} left{'' if last_phase else ' of this phase'}")
        return "  ".join(words)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
