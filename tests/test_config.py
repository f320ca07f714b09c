"""A configuration table: what it gives, and the one line that refuses everything else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit.config import ConfigTable, blame_key, error_prefix
from tacit.errors import BadInput, LedgerError

STORE = {
    "path": "a.sqlite", "url": "postgresql://db/ads", "days": 30, "on": True, "rate": "1/3", "empty": " "
}  # fmt: skip


def table(folder: Path | None = None) -> ConfigTable:
    return ConfigTable.under({"store": STORE}, "store", (*STORE, "other"), folder)


def test_values_come_as_they_are_said_or_as_the_default() -> None:
    found = table(Path("/etc"))
    assert found.text("path") == found.optional_text("path") == "a.sqlite"
    assert found.text("other", "usual") == "usual"
    assert found.optional_text("other") is None
    assert found.file("path") == found.optional_file("path") == Path("/etc/a.sqlite")
    assert found.optional_file("other") is None
    assert found.place("path") == "/etc/a.sqlite"
    assert found.place("url") == "postgresql://db/ads"
    assert found.whole("days") == found.optional_whole("days", at_least=1) == 30
    assert found.whole("other", 7, at_most=7) == 7
    assert found.optional_whole("other", at_least=1) is None
    assert found.flag("on")
    assert not found.flag("other")
    assert found.number("rate") == "1/3"
    assert found.some("days", "other") == {"days": 30}
    assert found.everything() == STORE
    assert "days" in found
    assert "other" not in found
    assert table().file("path") == Path("a.sqlite")


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda: table().text("other"), "store.other: expected a text in quotes, got no such key"),
        (lambda: table().text("empty"), "store.empty: expected a text in quotes, got ' '"),
        (lambda: table().optional_text("days"), "store.days: expected a text in quotes, got 30"),
        (lambda: table().flag("days"), "store.days: expected true or false, got 30"),
        (lambda: table().whole("other"), "store.other: expected a whole number, got no such key"),
        (lambda: table().whole("on"), "expected store.on to be a whole number >= 0, got True"),
        (lambda: table().whole("days", at_most=29), "store.days: expected at most 29, got 30"),
        (
            lambda: table().optional_whole("days", at_least=31),
            "expected store.days to be a whole number >= 31, got 30",
        ),
        (lambda: ConfigTable.under({"store": 1}, "store", ()), "store: expected a table [store], got 1"),
        (
            lambda: ConfigTable.under({"store": {"pat": 1}}, "store", ("path", "url")),
            "store.pat: expected one of path, url, got the unknown key 'pat': did you mean 'path'?",
        ),
        (lambda: ConfigTable({"pat": 1}, "", ()), "pat: expected no keys here, got the unknown key 'pat'"),
    ],
)
def test_a_refusal_names_the_key(read: Callable[[], Any], words: str) -> None:
    with pytest.raises(BadInput) as refusal:
        read()
    assert str(refusal.value) == words


def test_trouble_is_said_under_a_key_only_where_that_is_meant() -> None:
    with pytest.raises(BadInput, match=r"^file\.toml: store: no$"), error_prefix("file.toml"):
        raise BadInput("store: no")
    with pytest.raises(LedgerError, match=r"^no$"), error_prefix("file.toml"):
        raise LedgerError("no")
    with pytest.raises(BadInput, match=r"^store\.ledger: no$"), blame_key("store.ledger"):
        raise LedgerError("no")
    with pytest.raises(BadInput, match=r"^store\.ledger: /x: no such file"), blame_key("store.ledger"):
        raise FileNotFoundError(2, "No such file or directory", "/x")
