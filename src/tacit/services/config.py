"""Reads one table of a settings file key by key; every refusal is one line that names the key.

Unlike a `tacit.config.ConfigTable` it knows the folder that paths are relative to, and a text is required
unless it has a default.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from tacit import expect
from tacit.errors import BadInput, TacitError


@contextlib.contextmanager
def blame_key(key: str) -> Iterator[None]:
    """Say which setting it was that led to trouble."""
    try:
        yield
    except TacitError as trouble:
        raise BadInput(f"{key}: {trouble}") from None
    except OSError as problem:
        raise BadInput(f"{key}: {problem.filename or ''}: {(problem.strerror or '').lower()}") from None


class SettingsTable:
    """The table [name] of a file, which may say nothing but `allowed`; its paths are relative to `folder`."""

    def __init__(self, record: Mapping[str, Any], name: str, allowed: Collection[str], folder: Path) -> None:
        found = record.get(name, {}) if name else record
        if not isinstance(found, Mapping):
            raise BadInput(f"{name}: expected a table [{name}], got {found!r}")
        self._name, self._found, self._folder = name, found, folder
        for key in found:
            if key not in allowed:
                raise BadInput(expect.unknown_key(self._path(key), key, allowed))

    def _path(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key

    def given(self) -> dict[str, Any]:
        """All that it says, for a record that checks it itself."""
        return dict(self._found)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._found.get(key, default)
        if not isinstance(value, str) or not value.strip():
            got = "no such key" if value is None else repr(value)
            raise BadInput(f"{self._path(key)}: expected a text in quotes, got {got}")
        return value

    def flag(self, key: str) -> bool:
        value = self._found.get(key, False)
        if not isinstance(value, bool):
            raise BadInput(f"{self._path(key)}: expected true or false, got {value!r}")
        return value

    def whole(self, key: str, *, at_most: int, default: int | None = None) -> int:
        if key not in self._found and default is None:
            raise BadInput(f"{self._path(key)}: expected a whole number, got no such key")
        value = expect.whole(self._path(key), self._found.get(key, default), at_least=0)
        if value > at_most:
            raise BadInput(f"{self._path(key)}: expected at most {at_most}, got {value}")
        return value

    def file(self, key: str) -> Path:
        return self._folder / self.text(key)

    def file_if_any(self, key: str) -> Path | None:
        return self.file(key) if key in self._found else None

    def place(self, key: str) -> str:
        """A path, or a URL as it is."""
        spelled = self.text(key)
        return spelled if "://" in spelled else str(self._folder / spelled)
