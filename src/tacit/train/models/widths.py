"""The widths of a net's layers, as a configuration file gives them."""

from __future__ import annotations

from typing import Any

from tacit import expect
from tacit.errors import BadInput


def widths(key: str, given: Any) -> tuple[int, ...]:
    """Whole numbers; a file holds them in a list."""
    if not isinstance(given, list | tuple):
        raise BadInput(f"expected {key} to be a list of widths, got {given!r}")
    return tuple(expect.whole(f"every width in {key}", width, at_least=1) for width in given)
