"""Progress of long work: what is being done, and how far it is."""

from __future__ import annotations

from collections.abc import Callable

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
