"""Training configurations: whatever is wrong in one is named in one line, before any data is read."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import BadInput
from tacit.privacy.units import CapChoice, Split, UnitKind, Window
from tacit.train.config import KEYS, METHODS
from tacit.train.config_examples import EXAMPLES
from tacit.train.config_file import load_config, parse_config, read_config
from tacit.train.labels.mechanism import Bins, Correction
from tacit.train.labels.randomizers import FlipLabels, LaplaceWithPrior
from tacit.train.labels.values import FlipEnds, best_bins
from tacit.train.methods import Hybrid, Plain
from tacit.train.models.architectures import Mlp
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.sgd.optimizers import Sgd, Yogi
from tacit.train.targets import Head
from tests.support.training_logs import written

BASE: dict[str, Any] = {"data": "log", "out": "model", "model": {"name": "fm"}}
HYBRID = {**BASE, "privacy": {"method": "hybrid", "epsilon": 8, "delta": 1e-6}}
LABEL_DP = {**BASE, "privacy": {"method": "label-dp", "epsilon": 2, "unit": "user"}}
STATISTIC = {"data": "log", "out": "model", "privacy": {"method": "statistic", "epsilon": 1, "delta": 1e-6}}
PLAIN = {**BASE, "privacy": {"method": "plain"}}


def changed(base: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """With one key set, or removed where the value is None."""
    table, _, key = path.rpartition(".")
    inside = {**(base.get(table, {}) if table else base), key: value}
    if value is None:
        del inside[key]
    return {**base, table: inside} if table else inside


def test_a_configuration_says_everything(tmp_path: Path) -> None:
    said = {
        **HYBRID,
        "privacy": {
            "method": "hybrid", "epsilon": "7/2", "delta": "1e-7", "unit": "user", "window_days": 7,
            "cap": 3, "cap_choice": "random", "split": "epsilon/K_i", "k": 0.25, "public_tower": "frozen",
        },
        "labels": {"mechanism": "laplace", "prior_rate": 0.1, "optimizer": "yogi", "beta1": 0.8, "version": 2},
        "descent": {"epochs": 1.5, "momentum": 0.5, "decay": "constant"},
        "ledger": {"path": "l.sqlite", "scope": "s", "key": "k", "secret": "f"},
        "checkpoint": {"every_steps": 7},
        "speed": {"noise": "dense"},
    }  # fmt: skip
    config = load_config(written(tmp_path / "a.toml", said))
    assert (config.data, config.out, config.part) == (tmp_path / "log", tmp_path / "model", "train")
    assert config.model == FactorizationMachine()
    privacy = config.privacy
    assert (privacy.epsilon, privacy.delta, privacy.k) == (Fraction(7, 2), Fraction(1, 10**7), 0.25)
    assert (privacy.unit.kind, privacy.unit.window) == (UnitKind.USER, Window.days(7))
    cap = privacy.cap
    assert (cap.impressions, cap.choice, cap.split) == (3, CapChoice.RANDOM, Split.BY_COUNT)
    assert privacy.frozen
    assert isinstance(config.labels.mechanism, LaplaceWithPrior)
    assert config.labels.learning.optimizer == Yogi(beta1=0.8)
    assert config.labels.version == 2
    assert config.descent.optimizer == Sgd(momentum=0.5)
    assert config.descent.epochs == 1.5
    assert config.ledger.secret == tmp_path / "f"
    assert config.ledger.path == str(tmp_path / "l.sqlite")
    assert (config.keeping.every_steps, config.keeping.every_minutes) == (7, None)


def test_values_are_reported_in_bins_or_by_the_ends(tmp_path: Path) -> None:
    place = tmp_path / "t.toml"
    bins = {"mechanism": "bins", "values": [0, 5, "1e2"], "edges": [1, 50]}
    assert parse_config({**LABEL_DP, "labels": bins}, place).labels.mechanism == FlipLabels(
        Bins((1.0, 50.0), (0.0, 5.0, 100.0))
    )
    ends = {"mechanism": "ends", "low": 0, "high": 0.5, "head": "poisson"}
    assert parse_config({**LABEL_DP, "labels": ends}, place).labels.mechanism == FlipEnds(0, 0.5, Head.POISSON)
    prior = {"mechanism": "bins", "values": [0, 1, 2, 9], "prior": [0.4, 0.3, 0.2, 0.1], "correction": "raw"}
    capped = changed(changed(LABEL_DP, "labels", prior), "privacy.cap", 2)
    found = parse_config(capped, place).labels  # two labels of a user share epsilon 2
    best = best_bins([0, 1, 2, 9], [0.4, 0.3, 0.2, 0.1], 1, correction=Correction.RAW)
    assert found.mechanism == FlipLabels(best, Correction.RAW)
    assert best != best_bins([0, 1, 2, 9], [0.4, 0.3, 0.2, 0.1], 2, correction=Correction.RAW)
    assert found.spelled == f"randomized-response in bins at {best.edges}"


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    place = written(tmp_path / "a" / "t.toml", PLAIN)
    monkeypatch.chdir(tmp_path)
    assert load_config("a/t.toml").data == load_config(place).data == tmp_path / "a" / "log"


def test_defaults_are_those_of_the_methods(tmp_path: Path) -> None:
    plain = parse_config(PLAIN, tmp_path / "t.toml")
    assert plain.plain == Plain().learning
    hybrid = parse_config(HYBRID, tmp_path / "t.toml")
    assert hybrid.descent == Hybrid(4, "1e-6").learning
    assert hybrid.labels.learning == Hybrid(4, "1e-6").label_learning
    sgd = parse_config({**HYBRID, "descent": {"momentum": 0.5}}, tmp_path / "t.toml")
    assert sgd.descent.optimizer == Sgd(momentum=0.5)  # which alone has one
    with pytest.raises(BadInput, match="descent: recalibrate: expected true or false, got 1"):
        parse_config({**HYBRID, "descent": {"recalibrate": 1}}, tmp_path / "t.toml")
    assert not plain.privacy.is_private
    assert hybrid.privacy.k == "auto"


def test_the_hybrid_tells_a_statistic_where_nothing_asks_for_flips(tmp_path: Path) -> None:
    def tells(**said: Any) -> bool:
        privacy = parse_config({**HYBRID, **said}, tmp_path / "t.toml").privacy
        assert privacy.flips_labels != privacy.tells or privacy.k == 0
        return privacy.tells

    asked = {"mechanism": "statistic"}
    assert tells()
    assert tells(statistic={"rank": 2})
    assert tells(privacy={**HYBRID["privacy"], "k": 0.2}, labels=asked)
    assert not tells(privacy={**HYBRID["privacy"], "k": 0.2})
    assert not tells(privacy={**HYBRID["privacy"], "public_tower": "frozen"})
    assert not tells(labels={"epochs": 2})
    assert not tells(export={"device": "model.tacit"})  # whose file holds no model beside another
    assert not tells(privacy={**HYBRID["privacy"], "k": 0})


def test_tables_of_others_are_passed_over(tmp_path: Path) -> None:
    said = {**HYBRID, "sweep": {"epsilon": [1, 2]}}
    assert parse_config(said, tmp_path / "t.toml", also=("sweep",)) == parse_config(HYBRID, tmp_path / "t.toml")
    with pytest.raises(BadInput, match="sweep: expected one of data, part, out"):
        parse_config(said, tmp_path / "t.toml")


def test_the_digest_is_of_what_a_run_depends_on(tmp_path: Path) -> None:
    place = tmp_path / "t.toml"
    digest = parse_config(HYBRID, place).digest
    for path, value in (("checkpoint.every_steps", 3), ("run.tensorboard", "runs"), ("export.onnx", "m.onnx")):
        assert parse_config(changed(HYBRID, path, value), place).digest == digest
    for path, value in (("privacy.epsilon", 7), ("descent.batch", 5), ("run.simulated", 1), ("part", "test")):
        assert parse_config(changed(HYBRID, path, value), place).digest != digest


@pytest.mark.parametrize("method", METHODS)
def test_printed_examples_are_configurations(tmp_path: Path, method: str) -> None:
    place = tmp_path / "t.toml"
    place.write_text(EXAMPLES[method])
    assert load_config(place).privacy.method == method
    place.write_text("\n".join(line.removeprefix("  ") for line in EXAMPLES["hybrid-short"].splitlines()))
    assert load_config(place).privacy.method == "hybrid"


@pytest.mark.parametrize("method", METHODS)
def test_an_example_shows_every_key_that_its_method_reads(method: str) -> None:
    tables, name = dict.fromkeys(KEYS, ""), ""
    for line in EXAMPLES[method].splitlines():
        if header := re.match(r"(?:# )?\[(\w+)\]", line):
            name = header[1]
        elif name in tables:
            tables[name] += f"{line}\n"
    meant = {
        f"{table}.{key}" for table, keys in KEYS.items() for key, readers in keys.items() if method in readers
    }
    shown = {
        f"{table}.{key}" for table in KEYS for key in KEYS[table] if re.search(rf"\b{key}\b", tables[table])
    }
    assert meant - shown == set()


def test_lists_become_layers(tmp_path: Path) -> None:
    said = {**PLAIN, "model": {"name": "mlp", "dim": 4, "public_layers": [], "common_layers": [8, 4]}}
    assert parse_config(said, tmp_path / "t.toml").model == Mlp(4, (), (8, 4))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (changed(HYBRID, "data", None), "data: expected the folder of a prepared log, got no such key"),
        (changed(HYBRID, "out", 3), "out: expected a text in quotes, got 3"),
        (changed(HYBRID, "modle", {}), "modle: expected one of .*, got .*'modle': did you mean 'model'"),
        (changed(HYBRID, "model", None), "model.name: expected one of fm, .*, din, got no such key"),
        (changed(HYBRID, "model", "fm"), "model: expected a table .model., got 'fm'"),
        (changed(HYBRID, "model.name", "ffm"), "expected one of fm, .*, got 'ffm': did you mean 'fm'"),
        (changed(HYBRID, "model.common_layers", [3]), "model.common_layers: expected one of name, dim, start"),
        (changed(HYBRID, "model.dim", "8"), "model.dim: expected a whole number, got '8'"),
        (changed(HYBRID, "model.dim", 0), "model: expected dim to be a whole number >= 1, got 0"),
        (changed(BASE, "privacy", {}), "privacy.method: expected one of plain, label-dp, dp-sgd, hybrid"),
        (BASE, "privacy.method: expected one of plain, .*, auto, got no such key"),
        (changed(HYBRID, "privacy.method", "hybird"), "got 'hybird': did you mean 'hybrid'"),
        (changed(HYBRID, "privacy.epsilonn", 3), "privacy.epsilonn: .*unknown key .*: did you mean 'epsilon'"),
        (changed(HYBRID, "privacy.epsilon", None), "privacy.epsilon: expected the epsilon to keep"),
        (changed(HYBRID, "privacy.epsilon", -1), "expected privacy.epsilon > 0, got"),
        (changed(HYBRID, "privacy.epsilon", 1e9), "privacy.epsilon: expected .* nothing would be promised"),
        (changed(HYBRID, "privacy.epsilon", 1e-7), "privacy.epsilon: expected .* nothing would be learned"),
        (changed(HYBRID, "privacy.epsilon", True), "expected privacy.epsilon to be a number, got True"),
        (changed(HYBRID, "privacy.delta", 1.5), "expected privacy.delta in .0, 1., got"),
        (changed(HYBRID, "privacy.delta", None), "privacy.delta: expected a delta, .*got no such key"),
        (changed(HYBRID, "privacy.k", "half"), 'privacy.k: expected a number from 0 to 1, or "auto", got'),
        (changed(HYBRID, "privacy.k", 2), "expected privacy.k in .0, 1., got 2"),
        (changed(HYBRID, "privacy.cap", 3), "privacy.cap: expected only with a unit of several rows"),
        (changed(HYBRID, "privacy.unit", "users"), "privacy.unit: .*got 'users': did you mean 'user'"),
        (changed(HYBRID, "privacy.window_origin", 3), "privacy.window_origin: expected only with window_days"),
        (changed(LABEL_DP, "privacy.delta", 1e-6), "privacy.delta: expected only with method dp-sgd, hybrid"),
        (changed(LABEL_DP, "privacy.k", 0.5), "privacy.k: expected only with method hybrid, got"),
        (changed(LABEL_DP, "descent.batch", 5), "descent.batch: expected only with method plain"),
        (changed(LABEL_DP, "labels.prior_rate", 0.1), "labels.prior_rate: expected only with mechanism prior"),
        (changed(LABEL_DP, "labels.mechanism", "prior"), "labels.prior_rate: expected a public guess"),
        (changed(LABEL_DP, "labels.correction", "posterior"), "labels.correction: expected one of forward"),
        (changed(LABEL_DP, "labels.epochs", 1.5), "labels: expected epochs to be a whole number >= 1, got 1.5"),
        (changed(LABEL_DP, "labels.momentum", 0.9), "labels.momentum: expected none with optimizer adam"),
        (changed(LABEL_DP, "labels.decay", "linear"), "labels.decay: expected one of constant, cosine, got"),
        (changed(LABEL_DP, "ledger.key", "x"), "ledger.key: expected only with method dp-sgd, hybrid"),
        (changed(PLAIN, "privacy.epsilon", 1), "privacy.epsilon: expected only with method label-dp"),
        (changed(STATISTIC, "model", {"name": "fm"}), "model: expected no such table with method statistic"),
        (changed(STATISTIC, "statistic.rank", -1), "statistic: expected rank to be a whole number >= 0"),
        (changed(STATISTIC, "statistic.rate", 2), "expected statistic.rate in .0, 1., got 2"),
        (changed(STATISTIC, "checkpoint.every_steps", 2), "checkpoint.every_steps: expected only with"),
        (changed(STATISTIC, "privacy.cap", 2), "privacy.cap: expected only with method label-dp, hybrid"),
        (changed(PLAIN, "statistic.rank", 2), "statistic.rank: expected only with method hybrid, statistic"),
        (
            changed(changed(HYBRID, "privacy.k", 0.5), "statistic.rank", 2),
            "statistic: expected only where labels are told by one",
        ),
        (
            changed(changed(HYBRID, "privacy.k", 1), "labels.mechanism", "statistic"),
            "privacy.k: expected a share between 0 and 1 for a statistic, got 1",
        ),
        (
            {**HYBRID, "labels": {"mechanism": "statistic", "epochs": 2}},
            "labels.epochs: expected only where labels are flipped, got mechanism statistic",
        ),
        (changed(PLAIN, "ledger.path", "l"), "ledger.path: expected only with method label-dp"),
        (changed(PLAIN, "descent.clip_norm", 1), "descent.clip_norm: expected only with method dp-sgd, hybrid"),
        (changed(PLAIN, "speed.noise", "lazy"), "speed.noise: expected only with method dp-sgd, hybrid"),
        (changed(HYBRID, "descent.rate", "fast"), "descent.rate: expected a number, got 'fast'"),
        (changed(HYBRID, "descent.momentum", 1.5), "descent: expected momentum in"),
        (changed(HYBRID, "ledger.scope", "x"), "ledger.path: expected the ledger that ledger.scope belongs to"),
        (changed(HYBRID, "ledger.path", "x"), "ledger.scope: expected the ledger's name for"),
        (changed(HYBRID, "run.simulated", "x"), "expected run.simulated to be a whole number >= 0, got 'x'"),
        (changed(HYBRID, "run.seed", 1), "run.seed: expected one of simulated, tensorboard, mlflow"),
        (changed(HYBRID, "checkpoint.every_minutes", 0), "expected checkpoint.every_minutes > 0, got 0"),
        (changed(HYBRID, "export.onx", "x"), "export.onx: expected one of onnx, device, got"),
        (
            {**HYBRID, "run": {"simulated": 1}, "ledger": {"path": "a", "scope": "b"}},
            "ledger: expected no such table with run.simulated",
        ),
        (
            {**changed(HYBRID, "privacy.k", 0.5), "descent": {"start_rate": 0.1}},
            "descent.start_rate: expected none where noisy labels give the start",
        ),
        (
            {**HYBRID, "privacy": {**HYBRID["privacy"], "k": 0, "public_tower": "frozen"}},
            "privacy.public_tower: expected fine-tuned where k is 0, got frozen",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, said: dict[str, Any], expected: str) -> None:
    with pytest.raises(BadInput, match=expected) as refusal:
        load_config(written(tmp_path / "t.toml", said))
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith(str(tmp_path / "t.toml"))


def test_files_that_are_no_toml(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected a training configuration here, got no such file"):
        load_config(tmp_path / "none.toml")
    (tmp_path / "torn.toml").write_text("data = [")
    with pytest.raises(BadInput, match=r"torn.toml: expected TOML, got"):
        load_config(tmp_path / "torn.toml")
    with pytest.raises(BadInput, match="expected a training configuration here, got is a directory"):
        read_config(tmp_path)
