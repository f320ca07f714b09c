"""Configuration of a run: TOML files, and tables that are read key by key.

Every refusal of a file or a table is one line that names the key with its path.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tacit import expect
from tacit.errors import BadInput, TacitError

MOST_TOML_BYTES = 2**24  # what a person writes is far shorter; the reader takes many times as much memory
ZERO_CHARACTER = re.compile(rb"\\u0000|\\U00000000")


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """The file's own words; `what` says what was looked for, and the caller where."""
    path = expect.path("path", path)
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
    """A table of a TOML file, read key by key: what is not allowed, or not what it should be, is refused.

    `record` is what the file says under `path` ("" for the top), and `allowed` all that it may say. Files that
    it names are relative to `folder`.
    """

    def __init__(self, record: Any, path: str, allowed: Collection[str], folder: Path | None = None) -> None:
        if not isinstance(record, Mapping):
            raise BadInput(f"{path}: expected a table [{path}], got {record!r}")
        self.path, self._record, self._folder = path, record, Path() if folder is None else folder
        for key in record:
            if key not in allowed:
                raise BadInput(expect.unknown_key(self.name(key), key, allowed))

    @classmethod
    def under(
        cls, record: Mapping[str, Any], path: str, allowed: Collection[str], folder: Path | None = None
    ) -> Self:
        """The table [path] of a file's record; an empty one where there is none."""
        return cls(record.get(path, {}), path, allowed, folder)

    def name(self, key: str) -> str:
        """The key with its path."""
        return f"{self.path}.{key}" if self.path else key

    def __contains__(self, key: str) -> bool:
        return key in self._record

    def needed(self, key: str, why: str) -> Any:
        if key not in self._record:
            raise BadInput(f"{self.name(key)}: expected {why}, got no such key")
        return self._record[key]

    def text(self, key: str, default: str | None = None) -> str:
        """A text; without a default there must be one."""
        value = self._record.get(key, default)
        if not isinstance(value, str) or not value.strip():
            got = "no such key" if value is None else repr(value)
            raise BadInput(f"{self.name(key)}: expected a text in quotes, got {got}")
        return value

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if key in self._record else None

    def file(self, key: str) -> Path:
        """The path of a file, which there must be."""
        return self._folder / self.text(key)

    def optional_file(self, key: str) -> Path | None:
        return self.file(key) if key in self._record else None

    def place(self, key: str) -> str:
        """The path of a database's file, or its URL as it is."""
        spelled = self.text(key)
        return spelled if "://" in spelled else str(self._folder / spelled)

    def flag(self, key: str) -> bool:
        """True or false; false where nothing is said."""
        value = self._record.get(key, False)
        if not isinstance(value, bool):
            raise BadInput(f"{self.name(key)}: expected true or false, got {value!r}")
        return value

    def number(self, key: str, default: expect.Number | None = None) -> expect.Number | None:
        """A number as it was written; a text such as "1/32000000" is one too."""
        value: expect.Number | None = self._record.get(key, default)
        if value is not None:
            expect.exact(self.name(key), value)
        return value

    def whole(
        self, key: str, default: int | None = None, *, at_least: int = 0, at_most: int | None = None
    ) -> int:
        """A whole number; without a default there must be one."""
        if key not in self._record and default is None:
            raise BadInput(f"{self.name(key)}: expected a whole number, got no such key")
        value = expect.whole(self.name(key), self._record.get(key, default), at_least=at_least)
        if at_most is not None and value > at_most:
            raise BadInput(f"{self.name(key)}: expected at most {at_most}, got {value}")
        return value

    def optional_whole(self, key: str, *, at_least: int) -> int | None:
        return self.whole(key, at_least=at_least) if key in self._record else None

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

    def everything(self) -> dict[str, Any]:
        """All that it says, for a record that checks it itself."""
        return dict(self._record)

    def check_types(self, kinds: Mapping[str, str]) -> None:
        """Refuse a value of another kind (see `KINDS`) before it meets arithmetic."""
        for key, kind in kinds.items():
            value = self._record.get(key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, KINDS[kind])):
                raise BadInput(f"{self.name(key)}: expected {kind}, got {value!r}")


@contextmanager
def error_prefix(path: str) -> Iterator[None]:
    """A refusal from within is said with the path in front; trouble of other kinds stays what it is."""
    try:
        yield
    except BadInput as refusal:
        raise BadInput(f"{path}: {refusal}") from None


@contextmanager
def blame_key(key: str) -> Iterator[None]:
    """Any trouble with what a key names (a store, a file) is a refusal that names the key.

    Not for around a payment: what a ledger refuses must stay what it is.
    """
    try:
        yield
    except TacitError as trouble:
        raise BadInput(f"{key}: {trouble}") from None
    except OSError as problem:
        raise BadInput(f"{key}: {problem.filename or ''}: {(problem.strerror or '').lower()}") from None
