"""One table of a settings file, read key by key; every refusal is one line that names the key.

Apart from `train.configuration.table`, which brings along what training needs: a service starts in a second.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tacit import expect
from tacit.errors import BadInput


def read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as problem:
        raise BadInput(f"expected settings here, got {(problem.strerror or 'nothing').lower()}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise BadInput(f"expected TOML, got {problem}") from None


class Section:
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
