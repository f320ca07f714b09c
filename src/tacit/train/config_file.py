"""Reads a training from one TOML file: data, privacy, how it learns, and who pays.

data = "display"               # what `tacit data prepare` wrote; paths are relative to this file
out = "model"

[model]
name = "fm"

[privacy]                      # all that moves the guarantee is in here
method = "hybrid"
epsilon = 8
delta = 1e-6

Unknown keys are refused, and so are keys that the chosen method would ignore, and values that mean nothing: an
epsilon out of bounds, or settings that the chosen mechanism does not read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from tacit import expect
from tacit.config import ConfigTable, error_prefix, read_toml
from tacit.errors import BadInput
from tacit.privacy.units import Cap, CapChoice, Relation, Split, Unit, UnitKind, Window
from tacit.train.config import (
    DP_SGD_METHODS,
    KEYS,
    METHODS,
    OPTIMIZER_KEYS,
    PRIVATE_METHODS,
    CheckpointSettings,
    LabelSettings,
    LedgerSettings,
    PrivacySettings,
    RunSettings,
    TrainingConfig,
    keys_for,
    refuse_ignored,
)
from tacit.train.labels.config import STATISTIC, read_reporting
from tacit.train.models.architectures import ARCHITECTURES, expect_method, make_architecture
from tacit.train.models.model import Architecture
from tacit.train.settings import Learning, PrivateLearning, Speed
from tacit.train.sgd import optimizers
from tacit.train.sgd.descent import NoiseForm
from tacit.train.sgd.optimizers import Decay, Optimizer
from tacit.train.statistic.method import NoisyStatistic
from tacit.train.statistic.model import FieldFactors
from tacit.train.statistic.offset import BesideStatistic
from tacit.train.statistic.release import StatisticPrior

TABLES = ("model", *KEYS)
TOP = ("data", "part", "out", *TABLES)
TYPES = {
    **dict.fromkeys(("epochs", "rate", "penalty", "clip_norm", "start_rate", *OPTIMIZER_KEYS), "a number"),
    **dict.fromkeys(("decay", "optimizer"), "a text in quotes"),
    "batch": "a whole number",
}
SHAPES = {
    **dict.fromkeys(("public_layers", "common_layers", "layers", "attention", "history"), "a list"),
    **dict.fromkeys(("dim", "length"), "a whole number"),
    "start": "a number",
}
LEAST_EPSILON, MOST_EPSILON = Fraction(1, 10_000), 1000  # beyond them accounting takes minutes, for no use


def load_config(path: str | Path) -> TrainingConfig:
    """The training that a TOML file describes."""
    path = expect.path("path", path)
    place = Path(path)
    with error_prefix(str(path)):
        record = read_config(place)
        if "sweep" in record:
            raise BadInput(f"expected one training, got a [sweep] of many: run it with tacit sweep {path}")
        return parse_config(record, place)


def read_config(path: str | Path) -> dict[str, Any]:
    """The file's own words."""
    return read_toml(path, "a training configuration")


def parse_config(record: Mapping[str, Any], place: Path, *, also: Collection[str] = ()) -> TrainingConfig:
    """The training that these words describe. Paths are relative to the folder of `place`; tables named in
    `also` belong to somebody else and are passed over."""
    ours = {key: value for key, value in record.items() if key not in also}
    folder = place.resolve().parent
    top = ConfigTable(ours, "", TOP)

    def table(name: str) -> ConfigTable:
        return ConfigTable.under(ours, name, keys_for(name), folder)

    method = table("privacy").one_of("method", METHODS)
    for name in KEYS:
        refuse_ignored(name, _table(ours, name), method)
    run = read_run(table("run"))
    privacy = read_privacy(table("privacy"), method)
    if method == "hybrid":
        device = "device" in _table(ours, "export")
        tells = _tells_statistic(privacy, _table(ours, "labels"), device=device)
        privacy = replace(privacy, tells=tells)
        if not privacy.tells and ours.get("statistic"):
            raise BadInput(
                'statistic: expected only where labels are told by one, by labels.mechanism = "statistic" or '
                'k = "auto" alone, got flipped labels'
            )
    descent = table("descent")
    if method in DP_SGD_METHODS and privacy.k not in (0, "auto") and "start_rate" in descent:
        raise BadInput("descent.start_rate: expected none where noisy labels give the start, got one")
    ledger = read_ledger(table("ledger"))
    if run.simulated is not None and ours.get("ledger"):
        raise BadInput("ledger: expected no such table with run.simulated, which reserves nothing, got one")
    export = table("export")
    statistic = read_statistic(table("statistic"))
    if method == "statistic" and "model" in ours:
        raise BadInput("model: expected no such table with method statistic, which brings its own, got one")
    model = FieldFactors(statistic.rank) if method == "statistic" else read_model(_table(ours, "model"))
    with error_prefix("privacy.method"):
        expect_method(model, method)
    return TrainingConfig(
        place=place,
        data=folder / _path(top, "data", "the folder of a prepared log"),
        part=top.text("part", "train"),
        out=folder / _path(top, "out", "the folder that the model is written to"),
        model=model,
        privacy=privacy,
        labels=read_labels(table("labels"), privacy),
        plain=read_plain(descent) if method == "plain" else Learning(),
        descent=read_descent(descent) if method in DP_SGD_METHODS else PrivateLearning(),
        statistic=statistic,
        speed=read_speed(table("speed")),
        ledger=ledger,
        keeping=read_checkpoint(table("checkpoint")),
        run=run,
        onnx=export.optional_file("onnx"),
        device=export.optional_file("device"),
        said=ours,
    )


def _table(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = record.get(key, {})
    if not isinstance(value, Mapping):
        raise BadInput(f"{key}: expected a table [{key}], got {value!r}")
    return value


def _path(top: ConfigTable, key: str, what: str) -> str:
    top.needed(key, what)
    return top.text(key)


def read_model(record: Mapping[str, Any]) -> Architecture:
    # These two are no choice, but the results of method statistic and of the Hybrid beside one.
    names = tuple(kind.name for kind in ARCHITECTURES if kind not in (FieldFactors, BesideStatistic))
    every = {each.name for kind in ARCHITECTURES for each in fields(kind)}
    name = ConfigTable(record, "model", ("name", *sorted(every))).one_of("name", names)
    kind = next(kind for kind in ARCHITECTURES if kind.name == name)
    table = ConfigTable(record, "model", ("name", *(each.name for each in fields(kind))))
    table.check_types(SHAPES)
    with error_prefix("model"):
        return make_architecture(name, table.some(*(each.name for each in fields(kind))))


def read_privacy(table: ConfigTable, method: str) -> PrivacySettings:
    unit = _unit(table)
    if unit.kind is UnitKind.IMPRESSION:
        for key in ("cap", "cap_choice", "split"):
            if key in table:
                raise BadInput(f"privacy.{key}: expected only with a unit of several rows, got unit impression")
    cap = Cap(
        table.whole("cap", 1, at_least=1),
        CapChoice(table.one_of("cap_choice", tuple(CapChoice), "first")),
        Split(table.one_of("split", tuple(Split), "epsilon/K")),
    )
    if method not in PRIVATE_METHODS:
        return PrivacySettings(method, unit, cap)
    table.needed("epsilon", "the epsilon to keep, in all")
    epsilon = check_epsilon("privacy.epsilon", table.number("epsilon") or 0)
    delta = None
    if method != "label-dp":
        table.needed("delta", "a delta, such as one over the number of examples")
        delta = expect.probability("privacy.delta", table.number("delta") or 0)
    k: float | Literal["auto"] = {"label-dp": 1.0, "dp-sgd": 0.0}.get(method, _share(table))
    frozen = table.one_of("public_tower", ("fine-tuned", "frozen"), "fine-tuned") == "frozen"
    if frozen and k in (0, 1):
        raise BadInput(f"privacy.public_tower: expected fine-tuned where k is {k:g}, got frozen")
    return PrivacySettings(method, unit, cap, epsilon, delta, k, frozen)


def _tells_statistic(privacy: PrivacySettings, labels: Mapping[str, Any], *, device: bool) -> bool:
    """Whether the Hybrid tells a statistic of labels: where that is said, or where nothing is said of labels
    and nothing asks for flips. A device's file holds no model with another one beside it."""
    if labels.get("mechanism") != STATISTIC:
        return privacy.k == "auto" and not privacy.frozen and not device and not labels
    for key in labels:
        if key != "mechanism":
            raise BadInput(f"labels.{key}: expected only where labels are flipped, got mechanism {STATISTIC}")
    if privacy.k in (0, 1):
        raise BadInput(f"privacy.k: expected a share between 0 and 1 for a statistic, got {privacy.k:g}")
    if privacy.frozen:
        raise BadInput("privacy.public_tower: expected fine-tuned beside a statistic, got frozen")
    return True


def check_epsilon(name: str, said: expect.Number) -> Fraction:
    """An epsilon that means something, whoever asks for it."""
    epsilon = expect.positive(name, said)
    if not LEAST_EPSILON <= epsilon <= MOST_EPSILON:
        why = "nothing would be learned" if epsilon < 1 else "nothing would be promised"
        raise BadInput(
            f"{name}: expected {float(LEAST_EPSILON):g} to {MOST_EPSILON}, got {_short(epsilon)}: {why}"
        )
    return epsilon


def read_labels(table: ConfigTable, privacy: PrivacySettings) -> LabelSettings:
    table.check_types(TYPES)
    version, learning = table.whole("version", 0), _learning(table)
    each = None if privacy.epsilon is None else expect.exact("", privacy.epsilon) / privacy.cap.impressions
    how = read_reporting(table, each, label_dp=privacy.method in ("label-dp", "auto"), tells=privacy.tells)
    as_of = None if "as_of" not in table else expect.integer("labels.as_of", table.needed("as_of", ""))
    return LabelSettings(how.mechanism, how.spelled, learning, version, how.windows, as_of, how.words)


def read_plain(table: ConfigTable) -> Learning:
    return _learning(table)


def read_descent(table: ConfigTable) -> PrivateLearning:
    table.check_types(TYPES)
    keys = ("epochs", "batch", "clip_norm", "rate", "penalty", "start_rate", "recalibrate")
    # With a momentum and no name it is SGD, which alone has one.
    decay, optimizer = _decay(table), _optimizer(table, "sgd" if "momentum" in table else "adam")
    with error_prefix("descent"):
        return PrivateLearning(**table.some(*keys), decay=decay, optimizer=optimizer)


def read_statistic(table: ConfigTable) -> NoisyStatistic:
    table.check_types({"rank": "a whole number", "clip_norm": "a number", "most_pairs": "a whole number"})
    said = table.number("rate")
    prior = {} if said is None else {"rate": float(expect.probability("statistic.rate", said))}
    with error_prefix("statistic"):
        return NoisyStatistic(**table.some("rank", "clip_norm", "most_pairs"), prior=StatisticPrior(**prior))


def read_speed(table: ConfigTable) -> Speed:
    usual = Speed()
    form = table.one_of("noise", tuple(NoiseForm), usual.noise_form)
    return Speed(table.whole("microbatch", usual.microbatch, at_least=1), NoiseForm(form))


def read_ledger(table: ConfigTable) -> LedgerSettings:
    path = table.place("path") if "path" in table else None
    witness, secret = table.optional_file("witness"), table.optional_file("secret")
    for key in ("witness", "scope", "relation", "key"):
        if key in table and path is None:
            raise BadInput(f"ledger.path: expected the ledger that ledger.{key} belongs to, got no such key")
    relation = None
    if "relation" in table:
        relation = Relation(table.one_of("relation", ("replace-label", "replace-one")))
    if path is not None:
        table.needed("scope", "the ledger's name for these people's data")
    return LedgerSettings(
        path=path,
        witness=None if witness is None else str(witness),
        scope=table.optional_text("scope"),
        relation=relation,
        key=table.optional_text("key"),
        secret=secret,
    )


def read_checkpoint(table: ConfigTable) -> CheckpointSettings:
    steps, minutes = table.optional_whole("every_steps", at_least=1), table.number("every_minutes")
    if minutes is not None:
        expect.positive("checkpoint.every_minutes", minutes)
    if steps is not None and minutes is None:
        return CheckpointSettings(steps, None)
    return CheckpointSettings(
        steps, CheckpointSettings.every_minutes if minutes is None else float(expect.exact("", minutes))
    )


def read_run(table: ConfigTable) -> RunSettings:
    if isinstance(table.some("simulated").get("simulated"), bool):
        raise BadInput("run.simulated: expected a seed, such as 1, got true or false")
    seed = table.optional_whole("simulated", at_least=0)
    return RunSettings(seed, table.optional_file("tensorboard"), table.optional_text("mlflow"))


def _short(number: Fraction) -> str:
    """For people, however large it is."""
    return f"{float(number):g}" if number < 10**300 else "a number of more than 300 digits"


def _unit(table: ConfigTable) -> Unit:
    kind = UnitKind(table.one_of("unit", tuple(UnitKind), "impression"))
    days = table.optional_whole("window_days", at_least=1)
    if days is None:
        if "window_origin" in table:
            raise BadInput("privacy.window_origin: expected only with window_days, got it alone")
        return Unit(kind, ad_tech=table.optional_text("ad_tech"))
    origin = expect.integer("privacy.window_origin", table.some("window_origin").get("window_origin", 0))
    return Unit(kind, Window.days(days, origin=origin), table.optional_text("ad_tech"))


def _share(table: ConfigTable) -> float | Literal["auto"]:
    said = table.some("k").get("k", "auto")
    if said == "auto":
        return "auto"
    if isinstance(said, str):
        raise BadInput(f'privacy.k: expected a number from 0 to 1, or "auto", got {said!r}')
    return float(expect.probability("privacy.k", said, zero=True, one=True))


def _learning(table: ConfigTable) -> Learning:
    table.check_types(TYPES)
    decay, optimizer = _decay(table), _optimizer(table, "adam")
    with error_prefix(table.path):
        return Learning(**table.some("epochs", "batch", "rate", "penalty"), decay=decay, optimizer=optimizer)


def _decay(table: ConfigTable) -> Decay | None:
    return Decay(table.one_of("decay", tuple(Decay))) if "decay" in table else None


def _optimizer(table: ConfigTable, usual: str) -> Optimizer | None:
    """By name, with the settings that it knows; None where neither is said, and it is chosen for the data."""
    given = table.some(*OPTIMIZER_KEYS)
    if "optimizer" not in table and not given:
        return None
    name = table.one_of("optimizer", tuple(optimizers.OPTIMIZERS), usual)
    known = tuple(each.name for each in fields(optimizers.OPTIMIZERS[name]))
    settings: dict[str, Any] = {}
    for key, value in given.items():
        of_optimizer = key.removeprefix("optimizer_")
        if of_optimizer not in known:
            raise BadInput(f"{table.name(key)}: expected none with optimizer {name}, got {value!r}")
        settings[of_optimizer] = value
    with error_prefix(table.path):
        return optimizers.optimizer(name, settings)
