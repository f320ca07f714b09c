"""A training in one TOML file: what is read, what is promised, how it learns, who pays.

data = "display"               # what `tacit data prepare` wrote; paths are relative to this file
out = "model"

[model]
name = "fm"

[privacy]                      # all that moves the guarantee is in here
method = "hybrid"
epsilon = 8
delta = 1e-6

Unknown keys are refused, and so are keys that the chosen method would ignore.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tacit.errors import BadInput
from tacit.toml import read_toml
from tacit.train.configuration import parts
from tacit.train.configuration.keys import DP_SGD, KEYS, METHODS, keys_for, refuse_ignored
from tacit.train.configuration.table import Table, said_under
from tacit.train.configuration.values import TrainingConfig
from tacit.train.models.abilities import expect_method
from tacit.train.settings import Learning, PrivateLearning
from tacit.train.statistic.field_machine import FieldFactors

TABLES = ("model", *KEYS)
TOP = ("data", "part", "out", *TABLES)


def load(path: str | Path) -> TrainingConfig:
    """The training that a TOML file describes."""
    place = Path(path)
    with said_under(str(path)):
        record = read(place)
        if "sweep" in record:
            raise BadInput(f"expected one training, got a [sweep] of many: run it with tacit sweep {path}")
        return parse(record, place)


def read(path: str | Path) -> dict[str, Any]:
    """The file's own words."""
    return read_toml(path, "a training configuration")


def parse(record: Mapping[str, Any], place: Path, *, also: Collection[str] = ()) -> TrainingConfig:
    """The training that these words describe. Paths are relative to the folder of `place`; tables named in
    `also` belong to somebody else and are passed over."""
    ours = {key: value for key, value in record.items() if key not in also}
    top = Table(ours, "", TOP)
    method = Table(_table(ours, "privacy"), "privacy", keys_for("privacy")).one_of("method", METHODS)
    for name in KEYS:
        refuse_ignored(name, _table(ours, name), method)
    folder = place.resolve().parent
    run = parts.watching(Table(_table(ours, "run"), "run", keys_for("run")), folder)
    privacy = parts.privacy(Table(_table(ours, "privacy"), "privacy", keys_for("privacy")), method)
    descent = Table(_table(ours, "descent"), "descent", keys_for("descent"))
    if method in DP_SGD and privacy.k not in (0, "auto") and "start_rate" in descent:
        raise BadInput("descent.start_rate: expected none where noisy labels give the start, got one")
    ledger = parts.ledger(Table(_table(ours, "ledger"), "ledger", keys_for("ledger")), folder)
    if run.simulated is not None and ours.get("ledger"):
        raise BadInput("ledger: expected no such table with run.simulated, which reserves nothing, got one")
    export = Table(_table(ours, "export"), "export", keys_for("export"))
    statistic = parts.statistic(Table(_table(ours, "statistic"), "statistic", keys_for("statistic")))
    if method == "statistic" and "model" in ours:
        raise BadInput("model: expected no such table with method statistic, which brings its own, got one")
    model = FieldFactors(statistic.rank) if method == "statistic" else parts.model(_table(ours, "model"))
    with said_under("privacy.method"):
        expect_method(model, method)
    return TrainingConfig(
        place=place,
        data=folder / _path(top, "data", "the folder of a prepared log"),
        part=top.text("part", "train") or "train",
        out=folder / _path(top, "out", "the folder that the model is written to"),
        model=model,
        privacy=privacy,
        labels=parts.labels(Table(_table(ours, "labels"), "labels", keys_for("labels"))),
        plain=parts.plain(descent) if method == "plain" else Learning(),
        descent=parts.descent(descent) if method in DP_SGD else PrivateLearning(),
        statistic=statistic,
        speed=parts.speed(Table(_table(ours, "speed"), "speed", keys_for("speed"))),
        ledger=ledger,
        keeping=parts.keeping(Table(_table(ours, "checkpoint"), "checkpoint", keys_for("checkpoint"))),
        run=run,
        onnx=folder / str(export.text("onnx")) if "onnx" in export else None,
        said=ours,
    )


def _table(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = record.get(key, {})
    if not isinstance(value, Mapping):
        raise BadInput(f"{key}: expected a table [{key}], got {value!r}")
    return value


def _path(top: Table, key: str, what: str) -> str:
    top.needed(key, what)
    return str(top.text(key))
