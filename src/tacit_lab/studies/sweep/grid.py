"""Which trainings a sweep makes: the cross product of the lists in a configuration's [sweep] table.

    [sweep]
    epsilon = [1, 4, 8]                 # privacy.epsilon; likewise method, k, unit, cap, split, delta and so on
    model = ["fm", {name = "mlp", common_layers = [128, 64]}]
    descent.clip_norm = [1, 5]          # any other key, by its table
    seeds = 3                           # repetitions of each training

Where `method` is one of the lists, keys that a method does not read are left out for it; where `unit` is,
the cap is left out for impressions, which need none. Trainings that come out the same are done once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from tacit.config import ConfigTable, error_prefix
from tacit.errors import BadInput
from tacit.train.config import KEYS, TrainingConfig
from tacit.train.config_file import parse_config

SWEEP = "sweep"
SHORT = ("method", "epsilon", "delta", "k", "unit", "cap", "cap_choice", "split", "public_tower")
LONG = ("privacy", "labels", "descent", "statistic")  # tables whose keys can be swept by their full name
OWN = ("seeds", "part", "promise")
CAPPING = ("cap", "cap_choice", "split")
NOT_OURS = (SWEEP, "out", "run", "export", "checkpoint")
MOST_RUNS = 100_000

Setting = tuple[str, Any]


@dataclass(frozen=True)
class SweepAxis:
    """A list in [sweep]: the key that it is for, and its values."""

    name: str  # as it is shown: epsilon, descent.clip_norm, model
    table: str
    key: str | None  # None: the whole table
    values: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class SweepPoint:
    """One training of the sweep: what is special about it, and the whole configuration in words."""

    settings: tuple[Setting, ...]
    said: Mapping[str, Any]
    config: TrainingConfig

    def __getitem__(self, name: str) -> Any:
        return dict(self.settings).get(name)

    @property
    def spelled(self) -> str:
        """All that the training depends on."""
        return json.dumps(self.said, sort_keys=True, default=str)


@dataclass(frozen=True, eq=False)
class Sweep:
    """What [sweep] asks for. `part` is where runs are measured; None leaves it to the log.

    A sweep promises nothing: its seeds are known, and its figures are exact. `nothing_promised` says that
    whoever asks for it on people's data knows that.
    """

    axes: tuple[SweepAxis, ...]
    points: tuple[SweepPoint, ...]
    seeds: int
    part: str | None
    nothing_promised: bool


def parse_sweep(record: Mapping[str, Any], place: Path) -> Sweep:
    """The sweep that a configuration's words describe; every training is checked before any is made."""
    if SWEEP not in record:
        raise BadInput("sweep: expected a table [sweep] with lists, such as epsilon = [1, 4, 8], got none")
    table = ConfigTable(record[SWEEP], SWEEP, (*SHORT, "model", *LONG, *OWN))
    axes = tuple(_axes(record[SWEEP]))
    if not axes:
        raise BadInput("sweep: expected at least one list, such as epsilon = [1, 4, 8], got none")
    seeds = table.whole("seeds", 1, at_least=1)
    count = math.prod(len(axis.values) for axis in axes)
    if count * seeds > MOST_RUNS:
        raise BadInput(f"sweep: expected at most {MOST_RUNS:,} runs, got {count * seeds:,}")
    base = {key: value for key, value in record.items() if key not in NOT_OURS}
    for key in ("model", *KEYS):
        if not isinstance(base.get(key, {}), Mapping):
            raise BadInput(f"{key}: expected a table [{key}], got {base[key]!r}")
    nothing = "promise" in table and table.one_of("promise", ("nothing",)) == "nothing"
    return Sweep(axes, _points(base, axes, place), seeds, table.optional_text("part"), nothing)


def _axes(record: Mapping[str, Any]) -> list[SweepAxis]:
    axes: list[SweepAxis] = []
    for name, said in record.items():
        if name in OWN:
            continue
        if name == "model":
            axes.append(SweepAxis(name, name, None, _values(name, said)))
        elif name in SHORT:
            axes.append(SweepAxis(name, "privacy", name, _values(name, said)))
        else:
            for key, values in (
                ConfigTable(said, f"{SWEEP}.{name}", tuple(KEYS[name])).some(*KEYS[name]).items()
            ):
                shown = key if name == "privacy" else f"{name}.{key}"
                axes.append(SweepAxis(shown, name, key, _values(f"{name}.{key}", values)))
    twice = [axis.name for at, axis in enumerate(axes) if axis.name in [each.name for each in axes[:at]]]
    if twice:
        raise BadInput(f"{SWEEP}.{twice[0]}: expected one list, got two")
    return axes


def _values(name: str, said: Any) -> tuple[Any, ...]:
    if not isinstance(said, list) or not said:
        raise BadInput(f"{SWEEP}.{name}: expected a list of values to try, got {said!r}")
    if any(value in said[:at] for at, value in enumerate(said)):
        raise BadInput(f"{SWEEP}.{name}: expected every value once, got one twice")
    return tuple(said)


def _points(base: Mapping[str, Any], axes: Sequence[SweepAxis], place: Path) -> tuple[SweepPoint, ...]:
    points: dict[str, SweepPoint] = {}
    for values in product(*(axis.values for axis in axes)):
        said, settings = _point(base, axes, values)
        with error_prefix(f"{SWEEP}, {settings_words(settings)}"):
            point = SweepPoint(settings, said, parse_config({**said, "out": "unused"}, place))
        points.setdefault(point.spelled, point)
    return tuple(points.values())


def _point(
    base: Mapping[str, Any], axes: Sequence[SweepAxis], values: Sequence[Any]
) -> tuple[dict[str, Any], tuple[Setting, ...]]:
    said = deepcopy(dict(base))
    chosen = dict(zip([axis.name for axis in axes], values, strict=True))
    for axis, value in zip(axes, values, strict=True):
        if axis.key is None:
            said[axis.table] = _model(said.get(axis.table, {}), value)
        else:
            said[axis.table] = {**said.get(axis.table, {}), axis.key: value}
    unread = _unread(said, chosen)
    for table, key in unread:
        if key is None:
            del said[table]
        else:
            del said[table][key]
    gone = {axis.name for axis in axes if (axis.table, axis.key) in unread}
    return said, tuple((name, value) for name, value in chosen.items() if name not in gone)


def _unread(said: Mapping[str, Any], chosen: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Keys, or a whole table, that do not belong to this training, where the sweep tries several methods or
    units."""
    method, unit = said.get("privacy", {}).get("method"), said.get("privacy", {}).get("unit", "impression")
    found: list[tuple[str, str | None]] = []
    if "method" in chosen and method == "statistic" and "model" in said:
        found.append(("model", None))  # it brings its own
    if "method" in chosen and method == "hybrid" and "statistic" in said and not _tells_statistic(said):
        found.append(("statistic", None))
    if "method" in chosen:
        for table, keys in KEYS.items():
            found += [(table, key) for key in said.get(table, {}) if key in keys and method not in keys[key]]
    if "unit" in chosen and unit == "impression":
        found += [("privacy", key) for key in CAPPING if key in said["privacy"]]
    return list(dict.fromkeys(found))


def _tells_statistic(said: Mapping[str, Any]) -> bool:
    """Whether a Hybrid of these words may tell a statistic of labels (`config_file.parse_config`)."""
    labels = said.get("labels", {})
    return labels.get("mechanism") == "statistic" or (said["privacy"].get("k", "auto") == "auto" and not labels)


def _model(base: Mapping[str, Any], value: Any) -> Mapping[str, Any]:
    """A name keeps what [model] says of that model; a table says all of it."""
    if isinstance(value, Mapping):
        return dict(value)
    return dict(base) if base.get("name") == value else {"name": value}


def settings_words(settings: Sequence[Setting]) -> str:
    """What is special about a point, for people."""
    return ", ".join(f"{name} {value_words(value)}" for name, value in settings)


def value_words(value: Any) -> str:
    """A setting for people."""
    if isinstance(value, Mapping):
        rest = ", ".join(f"{key} {each}" for key, each in value.items() if key != "name")
        return f"{value.get('name')} ({rest})" if rest else str(value.get("name"))
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
