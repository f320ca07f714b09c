"""The benchmark of training defaults: what it tries, what it says where files are missing, and, where real
samples are at hand, that the defaults keep what docs/train.md says."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tacit.data.columns import Columns
from tacit.data.logs.definition import find_log
from tacit.data.preparation import hashing_encoder, prepare
from tacit.data.reading.reader import LogReader
from tacit.entropy import Simulation
from tacit.train.estimator import Estimator
from tacit.train.evaluation.measures import auc
from tacit.train.examples import Examples
from tacit.train.methods import DpSgd
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.settings import PrivateLearning
from tacit_lab.bench import defaults
from tacit_lab.bench.measurement import ON_REQUEST, SUITES, USUAL
from tests.support.training_examples import learnable


def sample(name: str) -> Path:
    folder = os.environ.get("TACIT_DATA")
    if not folder:
        pytest.skip("TACIT_DATA is not set: the defaults were not measured on real samples")
    if not (Path(folder) / name).is_file():
        pytest.skip(f"TACIT_DATA has no {name}")
    return Path(folder)


def test_one_thing_is_changed_at_a_time() -> None:
    plan = DpSgd(3, "1e-6").plan(learnable())
    ways = defaults.variants(plan, defaults.TUNED)
    assert list(ways) == ["defaults", *defaults.TUNED]
    usual = ways["defaults"]
    for way in defaults.TUNED:
        changed = [name for name, value in vars(ways[way]).items() if value != getattr(usual, name)]
        assert len(changed) == 1
    assert ways["rate x 2"].rate == 2 * plan.phases[0].schedule.rate
    assert ways["batch / 4"].batch == 512


def test_without_samples_it_says_so(tmp_path: Path) -> None:
    (missing,) = defaults.run(lambda items, _: items)
    assert math.isnan(missing.value)
    assert "--data names no folder" in missing.settings
    (absent,) = defaults.measure_sample("adkdd_102k", tmp_path, tmp_path)
    assert absent.settings == "not measured: the folder has no criteo_adkdd21.csv.gz"
    assert ON_REQUEST == ("defaults",)
    assert not set(ON_REQUEST) & set(USUAL)
    assert set(SUITES) == set(ON_REQUEST) | set(USUAL)


def test_ten_thousand_real_rows_teach_something_and_are_predicted_as_they_happen(tmp_path: Path) -> None:
    """With one batch of everybody and ten steps AUC was .62, and predictions .7 of what happens or less."""
    file = sample("criteo_display_10k.tsv") / "criteo_display_10k.tsv"
    log = find_log("criteo-display")
    prepare(LogReader(log, str(file)), hashing_encoder(log, 4000, 4000), tmp_path / "log")
    columns = Columns.open(tmp_path / "log")
    train, *tests = (Examples.of(columns, part) for part in ("train", "validation", "test"))
    method = DpSgd(3, "1e-5", learning=PrivateLearning(epochs=60))  # fewer than would be chosen, for time
    model = Estimator(FactorizationMachine(4), method, source=Simulation(1), simulated=True).fit(train)
    predicted = np.concatenate([model.predict(part) for part in tests])
    happened = np.concatenate([part.labels for part in tests])
    assert 0.67 < auc(happened, predicted) < 0.75
    assert 0.85 < predicted.mean() / happened.mean() < 1.15  # 2,000 rows: chance alone is 4%
    assert model.calibration is not None
    assert model.calibration.predicted is not None
    assert model.calibration.predicted < 1 - 4 * model.calibration.spread  # too low before, beyond noise


@pytest.mark.slow
@pytest.mark.parametrize("name", ["display_10k", "adkdd_102k"])
def test_defaults_are_close_to_tuned_settings(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = sample(defaults.SAMPLES[name].file)
    few = replace(defaults.SAMPLES[name], tuned=("rate x 2", "clip norm 12"))
    monkeypatch.setitem(defaults.SAMPLES, name, few)
    below, off = defaults.measure_sample(name, data, tmp_path, epsilons=(3,), seeds=1)
    assert below.holds, below.settings
    assert off.holds, off.settings
