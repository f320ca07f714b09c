"""`tacit room train`: an adapter trained through the room, with its cost before and its promise after."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tacit.commands.output import print_json, print_table
from tacit.commands.room_keys import extra_installed

if TYPE_CHECKING:
    from tacit.cleanroom.platform.training import Progress
    from tacit.services.room.runs import Outcome
    from tacit.services.room.settings import PlatformSettings

EVERY_SECONDS = 10  # a line of progress where no terminal is


def run(args: argparse.Namespace) -> int:
    from tacit.services.room import settings

    found = settings.load_platform(args.settings)
    with extra_installed():
        from tacit.services.room import files, link_checks, naming, platform, runs

        ready = platform.ready(found)
    if (why := ready.terms.why_closed(int(time.time()))) is not None:
        print(f"the agreement is not open: {why}; its room refuses to start", file=sys.stderr, flush=True)
    if args.dry_run:
        return _show_cost(runs.cost(ready, found).as_json(), args)
    taken = f"expected a folder that no other run is using, got {found.folder}: wait for it, or name another"
    with files.alone(found.folder / ".running", "run.folder", taken), _watching() as (watch, waiting):
        with link_checks.link_to(found, ready.terms, waiting, patience=found.patience.at_first) as link:
            link_checks.described(link, ready.terms)
        with link_checks.link_to(found, ready.terms, waiting) as link:
            naming.exchange(link, found, ready.terms)
            outcome = runs.train(ready, link, found, watch)
            left = link_checks.described(link, ready.terms).remaining
            audit = link_checks.audited(link, found)
    record = {
        "run": found.run,
        "adapter": str(found.out),
        **outcome.as_json(),
        "epsilon_left": float(left.epsilon_left),
        "audit": audit,
    }
    if args.json:
        print_json(record)
    else:
        _show(record, outcome, found)
    return 0


def _show(record: dict[str, Any], outcome: Outcome, settings: PlatformSettings) -> None:
    rows = [
        ("mode", outcome.mode.words),
        ("steps", f"{outcome.steps:,}"),
        ("examples", f"{outcome.examples:,}"),
        ("sent", shown_bytes(outcome.bytes_sent)),
        ("received", shown_bytes(outcome.bytes_received)),
    ]
    for when, metrics in (("before", outcome.before), ("after", outcome.after)):
        if metrics is None:
            continue
        for name in ("auc", "calibration"):
            figure = getattr(metrics, name)
            shown = "not to be told from the noise" if figure is None else _interval(figure.as_json())
            rows.append((f"{name} {when}, on rows not trained on", shown))
    rows.append(
        ("promise", f"epsilon {outcome.statement.epsilon:g}, delta {outcome.statement.delta:g} a record")
    )
    rows.append(
        (
            "audit log",
            f"{record['audit']['entries']} entries hold, {record['audit']['receipts']} receipts found",
        )
    )
    print_table(f"Run {settings.run}", ("", "value"), rows)
    print(f"saved {settings.out}")


def _interval(figure: dict[str, Any]) -> str:
    numbers = [value for value in figure.values() if isinstance(value, int | float)]
    return f"{numbers[0]:.4f}" + (f" ({numbers[1]:.4f} to {numbers[2]:.4f})" if len(numbers) > 2 else "")


def _show_cost(cost: dict[str, Any], args: argparse.Namespace) -> int:
    if args.json:
        print_json(cost)
        return 0
    shown = {name: _figure(name, value) for name, value in cost.items() if value is not None}
    releases = shown.pop("releases")
    shown["releases a record"] = "unlimited (labels are flipped once)" if cost["mode"].flips else releases
    rows = [(name.replace("_", " "), value) for name, value in shown.items()]
    print_table("What the run would cost (nothing was asked of the room)", ("", "value"), rows)
    return 0


def _figure(name: str, value: Any) -> str:
    if name.startswith("bytes_"):
        return shown_bytes(value)
    return (
        f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
    )


def shown_bytes(count: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


Watch = Callable[["Progress"], None]


@contextmanager
def _watching() -> Iterator[tuple[Watch, Callable[[str], None]]]:
    """One live line on a terminal; elsewhere a line every few seconds, and the last."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("asking the room") as status:
            yield (
                lambda now: status.update(told(now)),
                lambda line: status.update(line),
            )
        return
    last = [0.0, 0.0]

    def say(line: str, clock: int, *, now_for_sure: bool = False) -> None:
        if now_for_sure or time.monotonic() - last[clock] >= EVERY_SECONDS:
            last[clock] = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    yield (
        lambda now: say(told(now), 0, now_for_sure=now.step == now.steps),
        lambda line: say(line, 1),
    )


def told(now: Progress) -> str:
    """A step in one line; the loss only where the mode lets it out."""
    spent, left = float(now.remaining.epsilon_spent), float(now.remaining.epsilon_left)
    loss = "" if now.loss is None else f", loss {now.loss.value:.4f}"
    return (
        f"step {now.step}/{now.steps}, sent {shown_bytes(now.bytes_sent)}, received "
        f"{shown_bytes(now.bytes_received)}, {now.examples_a_second:,.0f} examples a second, "
        f"epsilon {spent:g} paid, {left:g} left{loss}"
    )
