"""Runs of a sweep: each is trained, measured on held-out rows and dropped; a flat record stays.

Runs are done in processes of this machine with one thread each, or on a Ray cluster (`Engine`). Records are
named by the digest of all that a run depends on; refusals are not kept.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tacit.errors import BadInput, TacitError
from tacit.expect import Choice
from tacit_lab.studies.digests import TRAINING, digest, package_of
from tacit_lab.studies.processes import map_in_processes
from tacit_lab.studies.runs import Record, Records

__all__ = [
    "FIGURES", "REFUSED", "Engine", "Record", "SweepRecords", "SweepRun", "check_engine", "map_with_engine",
]  # fmt: skip

FIGURES = ("auc_loss", "log_loss", "calibration_ratio")
REFUSED = "refused"

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Choice):
    LOCAL = "local"
    RAY = "ray"


def map_with_engine(
    engine: Engine, work: Callable[[Item], Result], items: Sequence[Item], jobs: int
) -> Iterator[tuple[Item, Result]]:
    """Each item with what came of it, in the order in which they are done, at most `jobs` at a time."""
    if engine is Engine.RAY:
        return _on_ray(_ray(), work, items, jobs)
    return map_in_processes(work, items, jobs)


def check_engine(engine: Engine) -> None:
    """Refuse before any work what could not be done."""
    if engine is Engine.RAY:
        _ray()


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise BadInput("--engine: expected Ray to be installed, got none: pip install ray") from None


def _on_ray(
    ray: Any, work: Callable[[Item], Result], items: Sequence[Item], jobs: int
) -> Iterator[tuple[Item, Result]]:
    """Joins the cluster that Ray's own settings name, or starts one here. Its nodes must see the data."""
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    remote = ray.remote(num_cpus=1)(work)
    left = list(reversed(items))
    waiting: dict[Any, Item] = {}
    try:
        while left or waiting:
            while left and len(waiting) < jobs:
                item = left.pop()
                waiting[remote.remote(item)] = item
            (done, *_), _ = ray.wait(list(waiting), num_returns=1)
            yield waiting.pop(done), ray.get(done)
    finally:
        for reference in waiting:
            ray.cancel(reference)


@dataclass(frozen=True)
class SweepRun:
    """A training and its seed, as texts that any process can be handed.

    It is a study: everything random comes from the seed, so its figures promise nothing to anybody, and on
    people's data it must be told so (`nothing_promised`).
    """

    said: str  # the configuration, as JSON
    place: str  # of the configuration's file: paths are relative to it
    part: str
    seed: int
    data: str  # a digest of what the log's manifest says
    nothing_promised: bool = False

    @property
    def digest(self) -> str:
        """Of all that the figures depend on, the code included."""
        said = (self.said, self.part, str(self.seed), self.data)
        return digest(*said, packages=(*TRAINING, *package_of(self)))

    def measure(self) -> Record:
        """The figures; a refusal of this training is an answer too."""
        try:
            return self._measure()
        except TacitError as refusal:
            return {REFUSED: str(refusal)}

    def _measure(self) -> Record:
        from tacit.data.columns import Columns
        from tacit.entropy import Simulation
        from tacit.privacy.mechanisms.memoisation import SECRET_BYTES
        from tacit.store.calibration_cache import CalibrationCache, default_cache_path
        from tacit.train.config_file import parse_config
        from tacit.train.evaluation.report import evaluate
        from tacit.train.examples import Examples
        from tacit.train.job.planned_training import flip_key, method_from_config
        from tacit.train.job.run import run_training
        from tacit.train.method_choice import settle_method

        config = parse_config({**json.loads(self.said), "out": "unused"}, Path(self.place))
        columns = Columns.open(config.data)
        train, held_out = Examples.of(columns, config.part), Examples.of(columns, self.part)
        if not train.synthetic and not self.nothing_promised:
            raise BadInput('expected made-up data, or promise = "nothing", got people\'s data')
        config, _ = settle_method(config, train, int(time.time()))
        began = time.perf_counter()
        scope = config.ledger.scope or str(columns.manifest.get("log"))
        flips = flip_key(scope, columns, config.part, version=config.labels.version)
        secret = Simulation(f"secret {self.seed}").bytes(SECRET_BYTES) if config.privacy.flips_labels else None
        method = method_from_config(config, flips, now=int(time.time()))
        plan = method.plan(train, secret=secret, memory=CalibrationCache(default_cache_path()))
        trained = run_training(plan, config.model, secret=secret, seed=self.seed, speed=config.speed)
        predicted = trained.predict(held_out)
        found = evaluate(held_out.labels, predicted)
        return {
            **{name: getattr(found, name).value for name in FIGURES},
            "rows": len(held_out),
            "seconds": round(time.perf_counter() - began, 3),
        }


class SweepRecords:
    """A folder of records, one for each run that worked."""

    def __init__(self, folder: Path) -> None:
        self._records = Records(folder)

    def of(self, run: SweepRun) -> Record | None:
        """The record of a run; None if it is not done."""
        return self._records.of(run.digest)

    def keep(self, run: SweepRun, record: Record) -> None:
        """Refusals are not kept: whoever asks again may have changed what was refused."""
        if REFUSED not in record:
            self._records.keep(run.digest, record)
