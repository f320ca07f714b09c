"""Configuration of a run: TOML files, and tables that are read key by key.

Every refusal of a file or a table is one line that names the key with its path.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tacit import expect
from tacit.errors import BadInput

MOST_TOML_BYTES = 2**24  # what a person writes is far shorter; the reader takes many times as much memory
ZERO_CHARACTER = re.compile(rb"\\u0000|\\U00000000")


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """The file's own words; `what` says what was looked for, and the caller where."""
    try:
        with Path(path).open("rb") as file:
            return parse_toml(file.read(MOST_TOML_BYTES + 1))
    except OSError as problem:
        raise BadInput(f"expected {what} here, got {(problem.strerror or 'nothing').lower()}") from None


def parse_toml(content: bytes) -> dict[str, Any]:
    """The same of a file's content."""
    if len(content) > MOST_TOML_BYTES:
        raise BadInput(f"expected TOML of at most {MOST_TOML_BYTES} bytes, got more")
    if ZERO_CHARACTER.search(content):
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


KINDS: dict[str, tuple[type, ...]] = {
    "a text in quotes": (str,),
    "a list": (list,),
    "a whole number": (int,),
    "a number": (int, float),
}


class ConfigTable:
    """`record` is what the file says under `path` ("" for the top), and `allowed` all that it may say."""

    def __init__(self, record: Any, path: str, allowed: Collection[str]) -> None:
        if not isinstance(record, Mapping):
            raise BadInput(f"{path}: expected a table [{path}], got {record!r}")
        self.path, self._record = path, record
        for key in record:
            if key not in allowed:
                raise BadInput(expect.unknown_key(self.name(key), key, allowed))

    def name(self, key: str) -> str:
        """The key with its path."""
        return f"{self.path}.{key}" if self.path else key

    def __contains__(self, key: str) -> bool:
        return key in self._record

    def needed(self, key: str, why: str) -> Any:
        if key not in self._record:
            raise BadInput(f"{self.name(key)}: expected {why}, got no such key")
        return self._record[key]

    def text(self, key: str, default: str | None = None) -> str | None:
        value = self._record.get(key, default)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise BadInput(f"{self.name(key)}: expected a text in quotes, got {value!r}")
        return value

    def number(self, key: str, default: expect.Number | None = None) -> expect.Number | None:
        """A number as it was written; a text such as "1/32000000" is one too."""
        value: expect.Number | None = self._record.get(key, default)
        if value is not None:
            expect.exact(self.name(key), value)
        return value

    def whole(self, key: str, default: int | None = None, *, at_least: int) -> int | None:
        value = self._record.get(key, default)
        return None if value is None else expect.whole(self.name(key), value, at_least=at_least)

    def one_of(self, key: str, words: Collection[str], default: str | None = None) -> str:
        """One of a few words; without a default there must be one."""
        value = self._record.get(key, default)
        if value is None:
            raise BadInput(f"{self.name(key)}: expected one of {', '.join(words)}, got no such key")
        if value not in words:
            raise BadInput(
                f"{self.name(key)}: expected one of {', '.join(words)}, got {value!r}"
                f"{expect.nearest(str(value), words)}"
            )
        return str(value)

    def some(self, *keys: str) -> dict[str, Any]:
        """Those of these keys that are there, for a record that checks them itself (see `error_prefix`)."""
        return {key: self._record[key] for key in keys if key in self._record}

    def checked_types(self, kinds: Mapping[str, str]) -> None:
        """Refuse a value of another kind (see `KINDS`) before it meets arithmetic."""
        for key, kind in kinds.items():
            value = self._record.get(key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, KINDS[kind])):
                raise BadInput(f"{self.name(key)}: expected {kind}, got {value!r}")


@contextmanager
def error_prefix(path: str) -> Iterator[None]:
    """A refusal from within is said with the path in front."""
    try:
        yield
    except BadInput as refusal:
        raise BadInput(f"{path}: {refusal}") from None
