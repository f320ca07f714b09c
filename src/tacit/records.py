"""JSON records, read one way; every refusal is one line, whatever was done to the file.

record = read_record(place)
with taken_apart(place, "a checkpoint"):
    steps = record["steps"] + 1
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tacit.errors import BadInput, TacitError

# What taking a record apart raises where a key is missing, or a value is of another kind or beyond all measure.
FAULTS = (
    KeyError, IndexError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError, MemoryError
)  # fmt: skip


def read_record(place: Path) -> Any:
    """What the file spells. Where there is none it raises FileNotFoundError: only the caller knows its name."""
    try:
        return parse_record(place.read_bytes())
    except BadInput as refusal:
        raise BadInput(f"{place}: {refusal}") from None


def parse_record(content: bytes | str) -> Any:
    """What these bytes spell, in JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):  # another text, other bytes, a number too long, a nest too deep
        raise BadInput("expected JSON, got something else") from None


@contextmanager
def taken_apart(place: object, what: str) -> Iterator[None]:
    """Refuse a record that lacks something, or has another kind of value, by its place and `what` it is."""
    try:
        yield
    except BadInput as refusal:
        raise BadInput(f"{place}: {refusal}") from None
    except TacitError:
        raise
    except KeyError as lacking:
        key = str(lacking.args[0] if lacking.args else "")[:60]
        raise BadInput(f"{place}: expected a whole record of {what}, got one without {key!r}") from None
    except FAULTS:
        raise BadInput(f"{place}: expected {what}, got one with a value of another kind") from None
