"""TOML, read one way; every refusal is one line."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from tacit.errors import BadInput

MOST_BYTES = 2**24  # what a person writes is far shorter; the reader takes many times as much memory
ZERO = re.compile(rb"\\u0000|\\U00000000")


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """The file's own words; `what` says what was looked for, and the caller where."""
    try:
        with Path(path).open("rb") as file:
            return parse_toml(file.read(MOST_BYTES + 1))
    except OSError as problem:
        raise BadInput(f"expected {what} here, got {(problem.strerror or 'nothing').lower()}") from None


def parse_toml(content: bytes) -> dict[str, Any]:
    """The same of a file's content."""
    if len(content) > MOST_BYTES:
        raise BadInput(f"expected TOML of at most {MOST_BYTES} bytes, got more")
    if ZERO.search(content):
        raise BadInput("expected TOML without the character zero, which no path and no name can have, got one")
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise BadInput("expected TOML, got a file that is no text") from None
    except tomllib.TOMLDecodeError as problem:
        raise BadInput(f"expected TOML, got {problem}") from None
    except RecursionError:
        raise BadInput("expected TOML, got lists or tables within one another beyond all use") from None
    except ValueError:  # Python's own limits: digits of a number, years of a date
        raise BadInput("expected TOML, got a number or a date that nothing here can be") from None
