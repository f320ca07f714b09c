"""Progress of long work: what is being done, how far it is, and a bar for people who wait."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

Progress = Callable[[str, int, int], None]
"""`progress(label, done, total)`: called now and then, in rising order of `done` for each label."""

Count = Callable[[int], None]
"""`count(done)`: the same of work that has one label, and whose total only the caller knows."""


def no_progress(label: str, done: int, total: int) -> None:
    """Shows nothing: the default."""
    del label, done, total


def no_count(done: int) -> None:
    """Shows nothing: the default."""
    del done


PATIENCE_SECONDS, REFRESH_SECONDS = 2.0, 0.2
"""What takes less is not worth a bar in a program that did not ask for one; and how often a bar is drawn."""


@contextmanager
def patient_bar(label: str, total: int, measure: str) -> Iterator[Count]:
    """A bar on stderr for work that takes more than two seconds: how much is done, how fast, how long it takes.

    It is seen in a terminal, and in a notebook that has `ipywidgets`. Nobody draws but who counts: where the
    work pauses, so does the bar.
    """
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not (find_spec("ipywidgets") if console.is_jupyter else sys.stderr.isatty()):
        yield no_count
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=12), TextColumn("{task.fields[words]}"))
    bar = Bar(*columns, console=console, transient=True, auto_refresh=False)
    task = bar.add_task(label, total=total, words="")
    began, last, first = time.monotonic(), 0.0, -1

    def count(done: int) -> None:
        nonlocal last, first
        now = time.monotonic()
        first = done if first < 0 else first
        if now - began < PATIENCE_SECONDS or now - last < REFRESH_SECONDS:
            return
        last, pace = now, max(done - first, 1e-9) / (now - began)
        words = f"{pace:,.3g} {measure}/s  {_clock((total - done) / pace)} left" if done > first else ""
        bar.start()  # does nothing where it has
        bar.update(task, completed=done, description=f"{label} {done:,}/{total:,}", words=words, refresh=True)

    try:
        yield count
    finally:
        if bar.live.is_started:
            bar.stop()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
