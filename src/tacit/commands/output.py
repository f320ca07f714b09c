"""How commands speak: a table for people, JSON for machines, progress on stderr."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tacit.errors import BadInput
from tacit.progress import Count, Progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn

Item = TypeVar("Item")


class Subparsers(Protocol):
    """What argparse hands out for adding commands."""

    def add_parser(self, name: str, **options: Any) -> argparse.ArgumentParser: ...


def add_action(
    actions: Subparsers, examples: str | None, name: str, does: str, about: str
) -> argparse.ArgumentParser:
    """One action of a command with several; the examples, if any, stand below its own help."""
    raw = argparse.RawDescriptionHelpFormatter
    return actions.add_parser(name, help=does, description=about, epilog=examples, formatter_class=raw)


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON for machines instead of a table")


EXTRAS = {"grpc": "room", "torch": "train", "starlette": "serve", "uvicorn": "serve", "httpx": "serve"}
"""Packages that commands need, and the extra of tacit that each comes with."""


@contextmanager
def extra_installed() -> Iterator[None]:
    """Say in one line which extra is missing."""
    try:
        yield
    except ImportError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise BadInput(f"expected {package} to be installed: pip install 'tacit[{EXTRAS[package]}]'") from None


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[str] = ()
) -> None:
    """A table with thin rules; the columns in `numbers` are right-aligned."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    # Piped output is for reading or grepping later: never fold it to the width of a terminal that is not there.
    # Names are shown as they are: [x] in one is no markup, and :x: no picture.
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False, emoji=False)
    with console.capture() as drawn:  # rich would end the process by itself on a closed pipe
        console.print(title, style="bold")  # not the table's own title, which folds to the table's width
        console.print(table)
    print(drawn.get(), end="")


def bars(*columns: ProgressColumn, transient: bool = True) -> RichProgress:
    """Progress bars on stderr, drawn only where it is a terminal; `transient` ones are gone afterwards."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=transient, disable=not sys.stderr.isatty())


def track_progress(items: Sequence[Item], label: str) -> Iterator[Item]:
    """Yield the items under a progress line on stderr; quiet when stderr is not a terminal."""
    with bars() as progress:
        task = progress.add_task(label, total=len(items))
        for item in items:
            yield item
            progress.advance(task)


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Count]:
    """A bar on stderr that is told how far the work is; quiet when stderr is not a terminal."""
    with bars() as progress:
        task = progress.add_task(label, total=total)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def spinner(label: str) -> Iterator[None]:
    """A sign of life on stderr for work without a known length."""
    from rich.console import Console

    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(label):
        yield


@contextmanager
def stage_bars() -> Iterator[Progress]:
    """A bar for each stage as it comes, told by its name, how much is done and of how much; none if piped."""
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with bars(*columns, transient=False) as progress:
        tasks: dict[str, TaskID] = {}

        def told(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(stage, total=total)
            progress.update(tasks[stage], completed=done, total=total)

        yield told
