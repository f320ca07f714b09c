"""The `tacit` command: parses, dispatches, and turns every refusal into one line and exit code 2."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from tacit import __version__, expect
from tacit.errors import TacitError
from tacit.threads import set_passive_waiting

COMMANDS = (
    "account", "ads", "audit", "bench", "bill", "claims", "contexts", "data", "device", "evaluate", "explain",
    "gather", "ledger", "quickstart", "reproduce", "room", "serve", "simulate", "sweep", "train",
)  # fmt: skip

OK, FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130


class Parser(argparse.ArgumentParser):
    """Argparse, but a wrong usage is one line that names the help page of the very command."""

    def error(self, message: str) -> NoReturn:
        said = expect.without_passwords(message)  # it may repeat what was typed
        self.exit(BAD_USAGE, f"{self.prog}: {said} (see {self.prog} --help)\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse does it, but a subcommand refuses its own unknown arguments.

        Argparse leaves them to the parser on top, whose help page says nothing about the subcommand."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def parser() -> argparse.ArgumentParser:
    """The whole grammar. Command modules import light here and heavy when they run."""
    top = Parser(
        prog="tacit",
        description="Advertising that learns what works, chooses well and bills exactly, "
        "without learning about people.",
        epilog="exit codes: 0 success, 1 a check failed, 2 wrong usage or bad input, 130 interrupted. "
        "Every command explains itself: tacit COMMAND --help.",
    )
    top.add_argument("--version", action="version", version=f"tacit {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"tacit.commands.{name}").add_parser(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that knows no ε still gets its table
    set_passive_waiting()  # before anything is loaded that has threads
    try:
        args = parser().parse_args(argv)
        with _ended_tidily():
            return _run(args)
    except KeyboardInterrupt:  # while commands were being loaded, or at the very end
        print("tacit: interrupted", file=sys.stderr)
        return INTERRUPTED


@contextmanager
def _ended_tidily() -> Iterator[None]:
    """Asked to end, we end as on Ctrl-C: what is half written goes, and what is there stays."""

    def end(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(args: argparse.Namespace) -> int:
    try:
        code = int(args.run(args))
        sys.stdout.flush()  # here, where a closed pipe is still ours to handle
        return code
    except TacitError as refusal:
        print(f"tacit {args.command}: {expect.without_passwords(str(refusal))}", file=sys.stderr)
        return BAD_USAGE
    except BrokenPipeError:  # `tacit audit | head` is no error; what is still buffered goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except (OverflowError, MemoryError) as limit:
        print(
            f"tacit {args.command}: these numbers are beyond what can be computed: {limit}",
            file=sys.stderr,
        )
        return BAD_USAGE
    except OSError as problem:  # a full disk, a folder that may not be written
        from tacit.files import explain_os_error

        print(f"tacit {args.command}: {expect.without_passwords(explain_os_error(problem))}", file=sys.stderr)
        return BAD_USAGE
    except KeyboardInterrupt:
        print(f"tacit {args.command}: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
