"""A small log that is not made up, as far as tacit knows, and configurations to train on it."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from tacit.cli import main
from tacit.privacy.ledger.rules import Reservation
from tacit.store.ledger import LedgerStore

Told = pytest.CaptureFixture[str]
LEDGER = {"path": "ledger.sqlite", "scope": "shop"}

ROWS = 600
SCHEMA = """\
name = "shop"
bins = { public = 40, sensitive = 30 }
[columns.site]
role = "public"
[columns.age]
role = "sensitive"
kind = "whole"
[columns.visitor]
role = "user"
[columns.second]
role = "time"
kind = "whole"
[columns.bought]
role = "label"
kind = "flag"
"""
LABELS = {"epochs": 2, "batch": 64, "rate": 0.05}
DESCENT = {"epochs": 2, "batch": 60, "clip_norm": 1.0, "optimizer": "sgd", "recalibrate": False}


def prepared(
    folder: Path, *, labels: int = 2, seed: int = 5, select: tuple[str, str, str] | None = None
) -> Path:
    """A prepared log; with more than two `labels`, its labels are not 0 or 1. `select` is the epsilon and delta
    of a private vocabulary, and the ledger that pays for it."""
    draw = np.random.default_rng(seed)
    rows = ["site,age,visitor,second,bought"]
    for index in range(ROWS):
        site, age = draw.integers(0, 8), draw.integers(18, 80)
        bought = int(draw.random() < (0.2 + 0.08 * site)) if labels == 2 else draw.integers(0, labels)
        rows.append(f"s{site},{age},v{draw.integers(0, 200)},{index * 1000},{bought}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shop.csv").write_text("\n".join(rows) + "\n")
    schema = SCHEMA if labels == 2 else SCHEMA.replace('"flag"', '"whole"')
    if select is not None:  # the buckets of a number are public; categories have to be selected
        schema = schema.replace('"sensitive"\nkind = "whole"', '"sensitive"')
    (folder / "shop.toml").write_text(schema)
    arguments = ["prepare", str(folder / "shop.csv"), "--schema", str(folder / "shop.toml")]
    if select is not None:
        arguments += ["--sensitive-vocabulary", "--scope", "shop", "--select-epsilon", select[0]]
        arguments += ["--select-delta", select[1], "--ledger", select[2]]
    assert main(["data", *arguments, "--out", str(folder / "log"), "--json"]) == 0
    return folder / "log"


def called_synthetic(log: Path) -> Path:
    """The same log, as if tacit had made it up."""
    manifest = json.loads((log / "columns.json").read_text())
    (log / "columns.json").write_text(json.dumps({**manifest, "synthetic": True}))
    return log


def written(path: Path, tables: Mapping[str, Any]) -> Path:
    """A configuration file."""
    lines = [f"{key} = {_toml(value)}" for key, value in tables.items() if not isinstance(value, Mapping)]
    for name, table in tables.items():
        if isinstance(table, Mapping):
            lines += [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
    path.write_text("\n".join(lines) + "\n")
    tomllib.loads(path.read_text())
    return path


def _toml(value: Any) -> str:
    return json.dumps(value)


def granted(
    path: Path,
    relation: str,
    epsilon: str,
    *,
    scope: str = "shop",
    unit: str = "impression",
    delta: str = "1e-4",
    more: tuple[str, ...] = (),
) -> None:
    arguments = ["--scope", scope, "--unit", unit, "--relation", relation, "--epsilon", epsilon, *more]
    assert main(["ledger", "grant", "--ledger", str(path), *arguments, "--delta", delta, "--json"]) == 0


def ready(place: Path, log: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Told) -> Path:
    """A folder with the log and a ledger that has room for epsilon 8 on both lines. Calibrations are remembered
    in `home`."""
    monkeypatch.setenv("HOME", str(home))
    shutil.copytree(log, place / "log")
    granted(place / "ledger.sqlite", "replace-one", "8")
    granted(place / "ledger.sqlite", "replace-label", "8", delta="0")
    capsys.readouterr()
    return place


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("shop"))


@pytest.fixture
def place(tmp_path: Path, log: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Told) -> Path:
    return ready(tmp_path, log, home, monkeypatch, capsys)


def failing(*_: object, **__: object) -> NoReturn:
    """In place of a step that writes: it fails."""
    raise OSError("no disk")


def dp_sgd(place: Path, key: str = "model-1", **changes: Any) -> Path:
    said: dict[str, Any] = {
        "data": "log", "out": "model", "model": {"name": "fm", "dim": 4},
        "privacy": {"method": "dp-sgd", "epsilon": 4, "delta": 1e-5},
        "descent": DESCENT, "ledger": {**LEDGER, "key": key},
    }  # fmt: skip
    return written(place / "dp-sgd.toml", said | changes)


def label_dp(place: Path, out: str = "model", **changes: Any) -> Path:
    said: dict[str, Any] = {
        "data": "log", "out": out, "model": {"name": "logistic"},
        "privacy": {"method": "label-dp", "epsilon": 2}, "labels": LABELS,
        "ledger": {**LEDGER, "secret": "flips.secret"},
    }  # fmt: skip
    return written(place / "label-dp.toml", said | changes)


def told(capsys: Told, *arguments: object) -> Any:
    assert main([*map(str, arguments), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys: Told, *arguments: object, code: int = 2) -> str:
    assert main([*map(str, arguments)]) == code
    said = capsys.readouterr()
    assert said.err.count("\n") == 1, said.err
    return said.err


def reservations(place: Path) -> dict[str, Reservation]:
    store = LedgerStore.open_existing(place / "ledger.sqlite")
    return dict(store.verify().ledger.reservations)


def spent(place: Path) -> float:
    history = LedgerStore.open_existing(place / "ledger.sqlite").verify()
    return sum(float(account.used.budget.epsilon) for account in history.ledger.accounts.values())
