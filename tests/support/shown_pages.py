"""Pages of Markdown, followed as a reader would: Python, console blocks and files, in order, in one folder.

- A `python` block runs in the page's one namespace, and prints what the next block shows, if it is `text`.
- A `console` block is a terminal: lines of `$ tacit ...` run, and the lines below each are what it printed, on
  stdout and stderr; where none are shown, none are compared. `...` stands for what varies: alone on a line for
  any lines, inside a line for any characters. A command ends with exit code 0, or else the next one is
  `$ echo $?` and shows the code. One that ends in `> FILE` prints to the file, one that ends in `&` goes on in
  the background until the page ends.
- A block with a file's name behind its language (`toml train.toml`) is that file.
- Ports 8471 to 8490 stand for free ones of this machine.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from tacit.cli import main
from tests.support.service_processes import free_ports

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>\w[^\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
PORT = re.compile(r"\b84(?:7[1-9]|8[0-9]|90)\b")
TACIT = [sys.executable, "-m", "tacit.cli"]
EXIT_CODE = "echo $?"
PATIENCE_SECONDS = 60
SERVING = ("listens on", "Ctrl-C ends")
"""What a service prints once it can be reached."""


class WrongPage(AssertionError):
    """The page shows something else than what happens, with the line of the page."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file that it is, if any, its text, and the line where it begins."""

    language: str
    file: str
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """One line typed into a terminal, and what the page shows below it."""

    words: str
    shown: str
    line: int


def blocks_of(page: str) -> list[Block]:
    """The fenced blocks of a page, in order; those inside of lists without their indentation."""
    found = []
    for match in FENCE.finditer(page):
        language, _, file = match["info"].partition(" ")
        found.append(
            Block(
                language,
                file.strip(),
                _without_indent(match["text"], match["indent"]),
                page.count("\n", 0, match.start()) + 1,
            )
        )
    return found


def _without_indent(text: str, indent: str) -> str:
    return "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True))


def commands_of(block: Block) -> list[Command]:
    """What a console block types and shows."""
    commands: list[Command] = []
    lines = iter(enumerate(block.text.splitlines(), block.line + 1))
    for number, line in lines:
        if line.startswith("$ "):
            words = line[2:]
            while words.endswith("\\"):
                words = words[:-1] + next(lines)[1].strip()
            commands.append(Command(words, "", number))
        elif commands:
            last = commands[-1]
            commands[-1] = Command(last.words, f"{last.shown}{line}\n", last.line)
        else:
            raise WrongPage(f"line {number}: expected a console block to begin with '$ ', got {line!r}")
    return commands


def agrees(shown: str, printed: str) -> bool:
    """Whether this was shown: but for `...`, blanks at the ends of lines, and blank lines around it."""
    pattern = ""
    for line in _tidy(shown).splitlines():
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*"
        else:
            pattern += r"[^\n]*".join(re.escape(part) for part in line.split("...")) + r"\n"
    return re.fullmatch(pattern, _tidy(printed)) is not None


def _tidy(text: str) -> str:
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join(lines).strip("\n") + "\n" if any(lines) else ""


@dataclass
class PageRun:
    """A page being followed in the current folder; `real` starts a process for each command."""

    real: bool = False
    namespace: dict[str, object] = field(default_factory=lambda: {"__name__": "page"})
    _code: int = 0
    _last: str = ""
    _ports: dict[str, str] = field(default_factory=dict)
    _background: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def follow(self, page: str) -> None:
        """Do all that the page says; raises at the first thing that is not as shown."""
        found = blocks_of(page)
        try:
            for block, below in zip_longest(found, found[1:]):
                if block.file:
                    self._write(block, page)
                elif block.language == "python":
                    shown = below.text if below is not None and below.language == "text" else None
                    self._run_python(block, shown)
                elif block.language == "console":
                    self._run_console(block)
        finally:
            self._end_background()

    def _write(self, block: Block, page: str) -> None:
        """A file of the page, whose name the reader must be told by the lines above it."""
        above = "\n".join(page.splitlines()[max(0, block.line - 6) : block.line - 1])
        if block.file not in above:
            raise WrongPage(f"line {block.line}: expected the text above to name {block.file}")
        Path(block.file).write_text(self._with_free_ports(block.text))

    def _run_python(self, block: Block, shown: str | None) -> None:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(self._with_free_ports(block.text), f"line {block.line}", "exec"), self.namespace)
        if shown is not None and printed.getvalue() != shown:
            raise WrongPage(f"line {block.line}: expected to print\n{shown}got\n{printed.getvalue()}")

    def _run_console(self, block: Block) -> None:
        for command in commands_of(block):
            asked = command.words.strip() == EXIT_CODE
            if asked:
                printed, self._code = f"{self._code}\n", 0
            else:
                self._require_success(command.line)
                self._code, printed = self._run(command)
            if (command.shown.strip() or asked) and not agrees(command.shown, printed):
                raise WrongPage(
                    f"line {command.line}: $ {command.words}\nexpected\n{command.shown}got\n{printed}"
                )
            self._last = printed
        self._require_success(block.line)

    def _require_success(self, line: int) -> None:
        if self._code:
            raise WrongPage(f"line {line}: expected exit code 0 so far, got {self._code} after\n{self._last}")

    def _run(self, command: Command) -> tuple[int, str]:
        words = shlex.split(self._with_free_ports(command.words), comments=True)
        if words[:1] != ["tacit"]:
            raise WrongPage(f"line {command.line}: expected tacit or {EXIT_CODE}, got {words[:1]}")
        if words[-1] == "&":
            return 0, self._start(words[1:-1])
        file = words[-1] if words[-2:-1] == [">"] else None
        run = _run_process if self.real else _run_here
        if file is None:
            code, printed, _ = run(words[1:], together=True)
        else:
            code, kept, printed = run(words[1:-2], together=False)
            Path(file).write_text(kept)
        return code, self._with_shown_ports(printed)

    def _start(self, arguments: list[str]) -> str:
        """A service in the background; back with what it said once it says where it listens."""
        log = Path(f".background-{len(self._background)}.log")
        with log.open("w") as stream:
            process = subprocess.Popen([*TACIT, *arguments], stdout=stream, stderr=subprocess.STDOUT)
        self._background.append(process)
        until = time.monotonic() + PATIENCE_SECONDS
        while not any(words in log.read_text() for words in SERVING):
            if process.poll() is not None or time.monotonic() > until:
                raise WrongPage(f"expected tacit {shlex.join(arguments)} to serve, got {log.read_text()!r}")
            time.sleep(0.02)
        return self._with_shown_ports(log.read_text())

    def _end_background(self) -> None:
        for process in reversed(self._background):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._background):
            process.wait(timeout=PATIENCE_SECONDS)

    def _with_free_ports(self, text: str) -> str:
        lacking = sorted(set(PORT.findall(text)) - self._ports.keys())
        self._ports |= dict(zip(lacking, map(str, free_ports(len(lacking))), strict=True))
        return PORT.sub(lambda port: self._ports[port[0]], text)

    def _with_shown_ports(self, text: str) -> str:
        for shown, free in self._ports.items():
            text = re.sub(rf"\b{free}\b", shown, text)
        return text


def _run_here(arguments: list[str], *, together: bool) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, or both as one, of a command in this process."""
    out, complaints = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out if together else complaints):
        try:
            code = main(arguments)
        except SystemExit as end:  # argparse: help, or wrong usage
            code = int(end.code or 0)
    return code, out.getvalue(), complaints.getvalue()


def _run_process(arguments: list[str], *, together: bool) -> tuple[int, str, str]:
    """The same in a process of its own."""
    stderr = subprocess.STDOUT if together else subprocess.PIPE
    command = [*TACIT, *arguments]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    return done.returncode, done.stdout, done.stderr or ""
