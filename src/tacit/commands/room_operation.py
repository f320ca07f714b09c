"""`tacit room serve`, `train`, `runs` and `status`: a room at work, and a platform's run through it.

Training shows its cost before and its promise after; status shows the terms, what is left of the budget, and
whether the audit log holds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tacit.commands.output import extra_installed, print_json, print_table
from tacit.commands.room_setup import show_term
from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.cleanroom.platform.training import TrainingProgress, TrainingWatch
    from tacit.services.room.platform_run import CheckedRun


def run_serve(args: argparse.Namespace) -> int:
    with extra_installed():
        from tacit.services.room import operation
    from tacit.services.room import settings

    operation.run_room(settings.load_room_settings(args.settings))
    return 0


EVERY_SECONDS = 10  # a line of progress where no terminal is


def run_train(args: argparse.Namespace) -> int:
    from tacit.services.room import settings

    found = settings.load_platform_settings(args.settings)
    with extra_installed():
        from tacit.services.room import platform_run

        ready = platform_run.prepare_run(found)
    if (why := ready.terms.why_closed(int(time.time()))) is not None:
        print(f"the agreement is not open: {why}; its room refuses to start", file=sys.stderr, flush=True)
    if args.dry_run:
        return _show_cost(platform_run.estimate_cost(ready, found).as_json(), args)
    with _watch_run() as (watch, waiting):
        done = platform_run.train_through_room(ready, found, watch, waiting)
    if args.json:
        print_json(done.as_json())
    else:
        _show_outcome(done)
    return 0


def _show_outcome(done: CheckedRun) -> None:
    outcome, audit = done.outcome, done.audit
    rows = [
        ("mode", outcome.mode.words),
        ("steps", f"{outcome.steps:,}"),
        ("examples", f"{outcome.examples:,}"),
        ("sent", show_bytes(outcome.bytes_sent)),
        ("received", show_bytes(outcome.bytes_received)),
    ]
    if outcome.positives is not None:
        rows.append(("positives, as the room tells", _interval(outcome.positives.as_json(), "{:,.0f}")))
    for when, metrics in (("before", outcome.before), ("after", outcome.after)):
        if metrics is None:
            continue
        for name in ("auc", "calibration"):
            figure = getattr(metrics, name)
            shown = "not to be told from the noise" if figure is None else _interval(figure.as_json())
            rows.append((f"{name} {when}, on rows not trained on", shown))
    rows.append(
        ("promise", f"epsilon {outcome.statement.epsilon:g}, delta {outcome.statement.delta:g} per record")
    )
    rows.append(("audit log", f"{audit['entries']} entries hold, {audit['receipts']} receipts found"))
    print_table(f"Run {done.run}", ("", "value"), rows)
    print(f"saved {done.adapter}")


def _interval(figure: dict[str, Any], form: str = "{:.4f}") -> str:
    numbers = [form.format(value) for value in figure.values() if isinstance(value, int | float)]
    return numbers[0] + (f" ({numbers[1]} to {numbers[2]})" if len(numbers) > 2 else "")


def _show_cost(cost: dict[str, Any], args: argparse.Namespace) -> int:
    if args.json:
        print_json(cost)
        return 0
    shown = {name: _figure(name, value) for name, value in cost.items() if value is not None}
    releases = shown.pop("releases")
    shown["releases per record"] = "unlimited (labels are flipped once)" if cost["mode"].flips else releases
    rows = [(name.replace("_", " "), value) for name, value in shown.items()]
    print_table("What the run would cost (nothing was asked of the room)", ("", "value"), rows)
    return 0


def _figure(name: str, value: Any) -> str:
    if name.startswith("bytes_"):
        return show_bytes(value)
    return (
        f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
    )


def show_bytes(count: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


@contextmanager
def _watch_run() -> Iterator[tuple[TrainingWatch, Callable[[str], None]]]:
    """One live line on a terminal; elsewhere a line every few seconds, and the last."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("asking the room") as status:
            yield (
                lambda now: status.update(progress_line(now)),
                lambda line: status.update(line),
            )
        return
    last = [0.0, 0.0]

    def say(line: str, clock: int, *, now_for_sure: bool = False) -> None:
        if now_for_sure or time.monotonic() - last[clock] >= EVERY_SECONDS:
            last[clock] = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    yield (
        lambda now: say(progress_line(now), 0, now_for_sure=now.step == now.steps),
        lambda line: say(line, 1),
    )


def progress_line(now: TrainingProgress) -> str:
    """A step in one line; the loss only where the mode lets it out."""
    spent, left = float(now.remaining.epsilon_spent), float(now.remaining.epsilon_left)
    loss = "" if now.loss is None else f", loss {now.loss.value:.4f}"
    return (
        f"step {now.step}/{now.steps}, sent {show_bytes(now.bytes_sent)}, received "
        f"{show_bytes(now.bytes_received)}, {now.examples_a_second:,.0f} examples per second, "
        f"epsilon {spent:g} paid, {left:g} left{loss}"
    )


def run_runs(args: argparse.Namespace) -> int:
    from tacit.cleanroom.protocol.terms import format_time
    from tacit.services.room.operation import hand_back_run, held_runs
    from tacit.services.room.settings import load_room_settings

    settings, given = load_room_settings(args.settings), None
    if args.hand_back is not None:
        if args.hand_back not in held_runs(settings):
            raise BadInput(
                f"--hand-back: expected a run that began here, got {args.hand_back!r}; without it, all are "
                "listed"
            )
        given = hand_back_run(settings, args.hand_back, int(time.time()))
    found = held_runs(settings)
    if args.json:
        print_json({"runs": {name: vars(each) for name, each in found.items()}, "handed_back": given})
        return 0
    cells = [
        (
            name,
            f"{each.rows:,}",
            f"{each.releases}",
            format_time(each.begun),
            "handed back" if each.handed_back else "",
        )
        for name, each in found.items()
    ]
    columns = ("run", "records", "releases of each", "begun", "")
    print_table("Runs that set releases aside", columns, cells, numbers=columns[1:3])
    if given is not None:
        print(f"{args.hand_back}: {given:,} releases of single records are free again")
    return 0


HOLDS, BROKEN = 0, 1


def run_status(args: argparse.Namespace) -> int:
    with extra_installed():
        from tacit.services.room.status import read_status

    status = read_status(args.settings, _say_once())
    record = status.as_json(int(time.time()))
    if args.json:
        print_json(record)
    else:
        _show_status(record, status.as_text())
    return HOLDS if status.holds else BROKEN


def _say_once() -> Callable[[str], None]:
    said: list[str] = []

    def say(line: str) -> None:
        if not said:
            said.append(line)
            print(line, file=sys.stderr, flush=True)

    return say


def _show_status(record: dict[str, Any], page: str) -> None:
    terms, remaining, audit = record["terms"], record["remaining"], record["audit"]
    rows = [(key, show_term(key, value)) for key, value in terms.items()]
    closed = "" if record["closed"] is None else f" ({record['closed']})"
    print_table(f"Agreement {terms['name']}{closed}", ("term", "value"), rows)
    print(page)
    print()
    if remaining is not None:
        print(
            f"Budget: epsilon {remaining['epsilon_spent']} spent, {remaining['epsilon_left']} left; delta "
            f"{remaining['delta_spent']} spent, {remaining['delta_left']} left; "
            f"{remaining['releases_per_record']} releases per record."
        )
    else:
        print("Budget: nothing was ever granted here; the room grants it when it first opens.")
    if audit["holds"]:
        print(f"Audit log: {audit['entries']} entries, all in place; {audit['receipts']} receipts checked.")
    else:
        print(f"Audit log: DOES NOT HOLD. {audit['broken']}")
