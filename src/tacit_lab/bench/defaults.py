"""Training defaults beside tuned settings, on real samples: AUC, and predictions beside what happened.

It reads published logs, of which tacit brings no copy, from a folder that is named; a sample that is not
there is left out, and said. Settings are tuned on the test rows themselves, one change at a time from the
defaults, which flatters the tuned ones.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tacit.data.columns import Columns
from tacit.data.logs import definition
from tacit.data.logs.definition import find_log
from tacit.data.preparation import hashing_encoder, prepare
from tacit.data.reading.reader import LogReader
from tacit.entropy import Simulation
from tacit.store.calibration_cache import CalibrationCache
from tacit.train.estimator import Estimator
from tacit.train.evaluation.measures import auc
from tacit.train.examples import Examples
from tacit.train.methods import DpSgd
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.plan import Plan, PrivatePhase
from tacit.train.settings import PrivateLearning
from tacit.train.sgd.optimizers import Sgd
from tacit_lab.bench.measurement import Measurement, SuiteProgress

EPSILONS = (1, 3, 8)
MODEL = FactorizationMachine(dim=16)
WITHIN, CALIBRATED = 0.005, 0.1
TUNED = ("rate / 2", "rate x 2", "batch / 4", "clip norm 2", "clip norm 12", "SGD")
ADKDD_FIELDS, ADKDD_PUBLIC = 19, 10


@dataclass(frozen=True)
class PublishedSample:
    """A published file, as which log it is read, how many of its training rows are taken, and with how many
    seeds. `test_parts` are what is measured on."""

    file: str
    log: str
    delta: str
    rows: int | None = None
    seeds: int = 2
    tuned: tuple[str, ...] = TUNED
    test_parts: tuple[str, ...] = ("test",)


SAMPLES = {
    "display_10k": PublishedSample(
        "criteo_display_10k.tsv", "criteo-display", "1e-5", test_parts=("validation", "test")
    ),
    "search_24k": PublishedSample("criteo_search_219_partners.parquet", "criteo-search", "1e-6", rows=24_000),
    "adkdd_102k": PublishedSample("criteo_adkdd21.csv.gz", "adkdd", "1e-6"),
    "search_5.9M": PublishedSample(
        "criteo_search_219_partners.parquet", "criteo-search", "1e-7", seeds=1, tuned=("rate / 2", "rate x 2")
    ),
}


@dataclass(frozen=True)
class DefaultsQuality:
    """Means over seeds."""

    auc: float
    calibration: float


def run(progress: SuiteProgress, data: str | None = None) -> list[Measurement]:
    """`data` is the folder of published samples."""
    if not data:
        words = "not measured: --data names no folder with the published samples"
        return [Measurement("default_auc_below_tuned", float("nan"), "AUC", settings=words)]
    measured = []
    with tempfile.TemporaryDirectory() as folder:
        for name in progress(tuple(SAMPLES), "training on samples"):
            measured.extend(measure_sample(name, Path(data), Path(folder)))
    return measured


def measure_sample(
    name: str, data: Path, folder: Path, epsilons: tuple[int, ...] = EPSILONS, seeds: int | None = None
) -> list[Measurement]:
    """Two figures for each epsilon: how far the defaults are below the best that was tried, and how far off
    their predictions are."""
    sample = SAMPLES[name]
    if not (data / sample.file).is_file():
        words = f"not measured: the folder has no {sample.file}"
        return [Measurement(f"{name}_default_auc_below_tuned", float("nan"), "AUC", settings=words)]
    train, test = examples_of(sample, data, folder)
    memory = CalibrationCache(folder / "answers.sqlite")
    measured = []
    for epsilon in epsilons:
        count = seeds or sample.seeds
        plan = DpSgd(epsilon, sample.delta).plan(train, memory=memory)
        found = {
            way: train_and_measure(DpSgd(epsilon, sample.delta, learning=learning), train, test, memory, count)
            for way, learning in variants(plan, sample.tuned).items()
        }
        best = max(found, key=lambda way: found[way].auc)
        default = found["defaults"]
        words = (
            f"{name}, epsilon {epsilon}: {len(train):,} training rows, FM of dim {MODEL.dim}, {count} seeds; "
            f"AUC {default.auc:.4f} by the defaults, {found[best].auc:.4f} by {best}, best of {len(found)}; "
            f"predicted {default.calibration:.3f} of what happened"
        )
        below, off = found[best].auc - default.auc, abs(default.calibration - 1)
        measured += [
            Measurement(f"{name}_epsilon_{epsilon}_auc_below_tuned", below, "AUC", WITHIN, False, words),
            Measurement(f"{name}_epsilon_{epsilon}_off_calibration", off, "share", CALIBRATED, False, words),
        ]
    return measured


def variants(plan: Plan, tuned: tuple[str, ...]) -> Mapping[str, PrivateLearning]:
    """The defaults, and one change to them at a time."""
    (phase,) = plan.phases
    assert isinstance(phase, PrivatePhase)
    chosen, rate = PrivateLearning(), phase.schedule.rate
    changed = {
        "rate / 2": replace(chosen, rate=rate / 2),
        "rate x 2": replace(chosen, rate=rate * 2),
        "batch / 4": replace(chosen, batch=max(1, phase.learning.batch // 4)),
        "clip norm 2": replace(chosen, clip_norm=2.0),
        "clip norm 12": replace(chosen, clip_norm=12.0),
        "SGD": replace(chosen, optimizer=Sgd(0.9)),
    }
    return {"defaults": chosen} | {way: changed[way] for way in tuned}


def train_and_measure(
    method: DpSgd, train: Examples, test: tuple[Examples, ...], memory: CalibrationCache, seeds: int
) -> DefaultsQuality:
    aucs, ratios = [], []
    labels = np.concatenate([part.labels for part in test])
    for seed in range(1, seeds + 1):
        model = Estimator(MODEL, method, source=Simulation(f"defaults {seed}"), simulated=True)
        model.fit(train, model.plan(train, memory))
        predicted = np.concatenate([model.predict(part) for part in test])
        aucs.append(auc(labels, predicted))
        ratios.append(float(predicted.mean(dtype=np.float64) / labels.mean()))
    return DefaultsQuality(float(np.mean(aucs)), float(np.mean(ratios)))


def examples_of(sample: PublishedSample, data: Path, folder: Path) -> tuple[Examples, tuple[Examples, ...]]:
    """Prepared as `tacit data prepare` does; a sample of fewer rows takes them by a fixed draw."""
    place = folder / sample.log
    if not place.exists():
        log = definition.load_log(_adkdd(folder)) if sample.log == "adkdd" else find_log(sample.log)
        prepare(LogReader(log, str(data / sample.file)), hashing_encoder(log, 100_000, 50_000), place)
    columns = Columns.open(place)
    train = Examples.of(columns, "train")
    if sample.rows is not None:
        chosen = np.random.default_rng(1).choice(len(train), sample.rows, replace=False)
        train = train.subset(np.sort(chosen))
    return train, tuple(Examples.of(columns, part) for part in sample.test_parts)


def _adkdd(folder: Path) -> Path:
    """Hashed fields without names: the first half is called public here."""
    lines = ['name = "adkdd"', "[columns.click]", 'role = "label"', 'kind = "flag"']
    for field in range(ADKDD_FIELDS):
        lines += [f"[columns.hash_{field}]", f'role = "{"public" if field < ADKDD_PUBLIC else "sensitive"}"']
    path = folder / "adkdd.toml"
    path.write_text("\n".join(lines) + "\n")
    return path
