"""TOML files, read one way; every refusal is one line."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from tacit.errors import BadInput


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """The file's own words; `what` says what was looked for, and the caller where."""
    try:
        with Path(path).open("rb") as file:
            return tomllib.load(file)
    except OSError as problem:
        raise BadInput(f"expected {what} here, got {(problem.strerror or 'nothing').lower()}") from None
    except UnicodeDecodeError:
        raise BadInput("expected TOML, got a file that is no text") from None
    except tomllib.TOMLDecodeError as problem:
        raise BadInput(f"expected TOML, got {problem}") from None
