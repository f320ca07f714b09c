"""`tacit sweep`: which trainings it makes, that what is done stays done, who pays, and what people are told."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import types
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tacit.cli import main
from tacit.data.generators.worlds import world
from tacit.data.logs.definition import find_log
from tacit.data.preparation import hashing_encoder, prepare
from tacit.data.reading.reader import LogReader
from tacit.data.synthetic import LogDestination, write_log
from tacit.errors import BadInput
from tacit.privacy.budget import Budget
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit_lab.studies.sweep.frontier import TriedPoint, best_points, composed_cost
from tacit_lab.studies.sweep.grid import Sweep, parse_sweep
from tacit_lab.studies.sweep.runs import Engine, SweepRun, map_with_engine

BASE: dict[str, Any] = {
    "data": "log",
    "model": {"name": "fm", "dim": 2},
    "privacy": {"method": "label-dp", "unit": "user"},
    "labels": {"epochs": 1, "batch": 256},
}
PLACE = Path("somewhere/sweep.toml")
USER = Unit(UnitKind.USER)


@pytest.fixture(scope="module")
def prepared_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    log = find_log("criteo-attribution")
    file = folder / "log.parquet"
    write_log(world(log.name, 5, rows=4_000), 4_000, log.layouts[0], LogDestination.at(file), {})
    prepare(LogReader(log, file), hashing_encoder(log, 200, 1), folder / "log")
    return folder / "log"


def configured(folder: Path, log: Path, sweep: str, more: str = "") -> Path:
    place = folder / "config.toml"
    place.write_text(
        f"""data = "{log}"
[model]
name = "fm"
dim = 2
[privacy]
method = "label-dp"
unit = "user"
[labels]
epochs = 1
batch = 256
{more}
[sweep]
{sweep}
"""
    )
    return place


def swept(**lists: Any) -> Sweep:
    return parse_sweep({**BASE, "sweep": lists}, PLACE)


# Which trainings


def test_a_sweep_is_the_product_of_its_lists() -> None:
    sweep = swept(epsilon=[1, 4], cap=[1, 2, 4], seeds=3)
    assert [(point["epsilon"], point["cap"]) for point in sweep.points] == [
        (epsilon, cap) for epsilon in (1, 4) for cap in (1, 2, 4)
    ]
    privacy = sweep.points[-1].config.privacy
    assert (privacy.epsilon, privacy.cap.impressions, sweep.seeds) == (4, 4, 3)


def test_any_key_can_be_swept_by_its_table() -> None:
    sweep = swept(epsilon=[1], labels={"rate": [0.1, 0.2]})
    assert [point.config.labels.learning.rate for point in sweep.points] == [0.1, 0.2]
    assert [point["labels.rate"] for point in sweep.points] == [0.1, 0.2]


def test_what_a_method_or_unit_does_not_read_is_left_out_once() -> None:
    sweep = swept(method=["plain", "label-dp"], unit=["impression", "user"], epsilon=[1, 4], cap=[1, 2])
    said = [dict(point.settings) for point in sweep.points]
    assert said[0] == {"method": "plain"}
    assert said[1:3] == [
        {"method": "label-dp", "unit": "impression", "epsilon": 1},
        {"method": "label-dp", "unit": "impression", "epsilon": 4},
    ]
    assert len(said) == 1 + 2 + 4


def test_models_come_by_name_or_whole() -> None:
    sweep = swept(epsilon=[1], model=["fm", "logistic", {"name": "fm", "dim": 5}])
    assert [getattr(point.config.model, "dim", None) for point in sweep.points] == [2, None, 5]


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        ({}, "at least one list"),
        ({"epsilon": 4}, "sweep.epsilon: expected a list"),
        ({"epsilon": []}, "sweep.epsilon: expected a list"),
        ({"epsilon": [1, 1]}, "every value once"),
        ({"epsilom": [1]}, "did you mean 'epsilon'"),
        ({"epsilon": [1], "labels": {"rates": [1]}}, "did you mean 'rate'"),
        ({"epsilon": [1], "privacy": {"epsilon": [2]}}, "expected one list, got two"),
        ({"epsilon": [1], "seeds": 0}, "sweep.seeds"),
        ({"epsilon": [0, 1]}, "epsilon 0: expected privacy.epsilon > 0"),
        ({"epsilon": [1], "k": [0.5]}, "privacy.k: expected only with method hybrid"),
        ({"epsilon": list(range(1, 102)), "cap": list(range(1, 1001))}, "at most 100,000 runs"),
        ({"epsilon": [1], "model": ["fmm"]}, "did you mean 'fm'"),
        ({"epsilon": [1], "promise": "something"}, "sweep.promise"),
    ],
)
def test_a_sweep_that_cannot_be_meant_is_refused_before_any_run(sweep: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as refusal:
        swept(**sweep)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "record", [BASE, {**BASE, "sweep": 3}, {**BASE, "privacy": 3, "sweep": {"epsilon": [1]}}]
)
def test_what_should_be_a_table_is_one(record: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="expected a table"):
        parse_sweep(record, PLACE)


# What it costs, and what is best


def test_all_runs_compose_by_unit_and_relation_exactly() -> None:
    sweep = parse_sweep(
        {
            **BASE,
            "privacy": {"delta": 1e-6},
            "sweep": {"method": ["plain", "label-dp", "dp-sgd"], "epsilon": [0.1, 0.2], "unit": ["user"]},
        },
        PLACE,
    )
    by_relation = {cost.relation: cost.budget for cost in composed_cost(sweep.points, seeds=3)}
    assert by_relation == {
        Relation.REPLACE_LABEL: Budget(Fraction(9, 10)),
        Relation.REPLACE_ONE: Budget(Fraction(9, 10), Fraction(6, 10**6)),
    }


def test_the_frontier_has_the_least_mean_of_each_epsilon() -> None:
    sweep = swept(epsilon=[1, 4], cap=[1, 2], seeds=2)
    losses = {(1, 1): (0.3, 0.2), (1, 2): (0.1, 0.35), (4, 1): (0.2, 0.2), (4, 2): (0.1, 0.1)}
    tried = [
        TriedPoint(point, [{"auc_loss": loss} for loss in losses[point["epsilon"], point["cap"]]])
        for point in sweep.points
    ]
    best = best_points(tried)
    assert [(each.tried.place, each.tried.point["cap"], each.among) for each in best] == [
        (("user", 1.0), 2, 2),
        (("user", 4.0), 2, 2),
    ]
    assert best[0].tried.figure("auc_loss").value == pytest.approx(0.225)
    assert not best[0].tried.has_interval, "two seeds that disagree tell little"


# What is done stays done


def records_of(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (out / "records").glob("[0-9a-f]*.json")}


@pytest.mark.slow
def test_only_what_is_missing_is_done_again(
    tmp_path: Path, prepared_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(tmp_path, prepared_log, 'method = ["plain", "label-dp"]\nepsilon = [1, 8]\nseeds = 2')
    command = ["sweep", str(config), "--jobs", "1", "--json"]
    assert main(command) == 0
    first = json.loads(capsys.readouterr().out)
    done = records_of(tmp_path / "config-sweep")
    assert (first["runs"], len(done), first["simulated"]) == (6, 6, True)
    assert [each["epsilon"] for each in first["frontier"]] == [None, 1, 8]
    assert first["composed"] == [{"unit": "user", "relation": "replace-label", "epsilon": 18.0, "delta": 0.0}]
    assert all(Path(path).stat().st_size for path in first["files"])

    lost, torn = list(done)[:2]
    (tmp_path / "config-sweep/records" / lost).unlink()
    (tmp_path / "config-sweep/records" / torn).write_text('{"auc_l')
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["frontier"] == first["frontier"], "a seed repeats its run"
    again = records_of(tmp_path / "config-sweep")
    assert {name for name in done if again[name] != done[name]} == {lost, torn}

    config.write_text(config.read_text().replace("seeds = 2", "seeds = 3"))
    assert main(["sweep", str(config), "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert len(records_of(tmp_path / "config-sweep")) == 9
    assert "Tuning on people's data spends budget: these 9 runs" in printed
    assert "(ε = 27, δ = 0) for user, replace-label" in printed


def test_a_killed_sweep_leaves_no_workers_and_goes_on(tmp_path: Path, prepared_log: Path) -> None:
    config = configured(tmp_path, prepared_log, "epsilon = [1, 2]\nseeds = 12\nlabels.epochs = [40]")
    command = [sys.executable, "-m", "tacit.cli", "sweep", str(config), "--json"]
    begun = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    out = tmp_path / "config-sweep"
    until(lambda: len(records_of(out)) >= 1)
    workers = children(begun.pid)
    begun.kill()
    begun.wait()
    done = records_of(out)
    assert 1 <= len(done) < 24
    until(lambda: not [worker for worker in workers if alive(worker)])

    config.write_text(config.read_text().replace("seeds = 12", "seeds = 1"))
    assert main(["sweep", str(config), "--json", "--jobs", "1"]) == 0
    after = records_of(out)
    assert {name: after[name] for name in done} == done


def until(holds: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def children(process: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue
        if f"PPid:\t{process}\n" in text:
            found.append(int(status.parent.name))
    return found


def alive(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def test_a_run_that_is_refused_does_not_stop_the_others(
    tmp_path: Path, prepared_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(tmp_path, prepared_log, "epsilon = [4]\ncap = [1, 5000]")
    assert main(["sweep", str(config), "--jobs", "1"]) == 1
    printed = capsys.readouterr().out
    assert "refused: epsilon 4, cap 5000: expected epsilon >= 0.001 for each label" in printed
    assert len(records_of(tmp_path / "config-sweep")) == 1
    config.write_text(config.read_text().replace("[1, 5000]", "[5000]"))
    assert main(["sweep", str(config), "--jobs", "1"]) == 2
    assert "refusals only" in capsys.readouterr().err


def test_every_method_can_be_swept(
    tmp_path: Path, prepared_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists = 'method = ["plain", "label-dp", "dp-sgd", "hybrid", "statistic"]\nepsilon = [8]'
    more = "[descent]\nepochs = 1\nbatch = 256\n[statistic]\nrank = 1"
    config = configured(tmp_path, prepared_log, lists, more)
    config.write_text(config.read_text().replace('unit = "user"', "delta = 1e-4\nk = 0.5"))
    assert main(["sweep", str(config), "--jobs", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["runs"], told["refused"]) == (5, [])
    rows = (tmp_path / "config-sweep/sweep-runs.csv").read_text().splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == ["plain", "label-dp", "dp-sgd", "hybrid", "statistic"]
    assert {each["relation"]: each["epsilon"] for each in told["composed"]} == {
        "replace-label": 16.0,
        "replace-one": 16.0,
    }


@pytest.mark.parametrize(
    ("part", "words"), [("tset", "got 'tset'"), ("train", "expected another part than is trained on")]
)
def test_runs_are_measured_on_rows_that_they_did_not_see(
    part: str, words: str, tmp_path: Path, prepared_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(tmp_path, prepared_log, f'epsilon = [1]\npart = "{part}"')
    assert main(["sweep", str(config), "--jobs", "1"]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "config-sweep").exists()


# Whose data


@pytest.fixture
def peoples_log(tmp_path: Path, prepared_log: Path) -> Path:
    """The same log, as if it were of people."""
    real = tmp_path / "people"
    real.mkdir()
    for file in prepared_log.iterdir():
        (real / file.name).write_bytes(file.read_bytes())
    manifest = json.loads((real / "columns.json").read_text())
    (real / "columns.json").write_text(json.dumps({**manifest, "synthetic": False}))
    return real


def test_on_peoples_data_a_sweep_must_be_told_that_it_promises_nothing(
    tmp_path: Path, peoples_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists = "epsilon = [1, 2]\nseeds = 2"
    config = configured(tmp_path, peoples_log, lists)
    assert main(["sweep", str(config), "--jobs", "1"]) == 2
    assert 'sweep.promise: expected "nothing" on data that is not made up' in capsys.readouterr().err
    assert not (tmp_path / "config-sweep").exists(), "nothing was run"

    config = configured(tmp_path, peoples_log, f'{lists}\npromise = "nothing"')
    assert main(["sweep", str(config), "--jobs", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert "nothing is promised to the people" in told["note"]
    assert [cost["epsilon"] for cost in told["composed"]] == [6], "two epsilons, two seeds: 2 (1 + 2)"


def test_a_run_on_peoples_data_is_refused_by_the_run_itself(peoples_log: Path) -> None:
    said = json.dumps({**BASE, "data": str(peoples_log), "privacy": {"method": "label-dp", "epsilon": 1}})
    record = SweepRun(said, str(PLACE), "test", 1, "").measure()
    assert "got people's data" in record["refused"]


# Where runs are done


def test_ray_is_asked_for_by_name_where_it_is_missing(
    tmp_path: Path, prepared_log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # what Python makes of a package that is not there
    config = configured(tmp_path, prepared_log, "epsilon = [1]")
    assert main(["sweep", str(config), "--engine", "ray"]) == 2
    assert "got none: pip install ray" in capsys.readouterr().err
    assert not (tmp_path / "config-sweep").exists()


class FakeRay(types.ModuleType):
    """As much of Ray as we use, one task after another."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.started, self.most, self.open = False, 0, 0

    def is_initialized(self) -> bool:
        return self.started

    def init(self, **_: Any) -> None:
        self.started = True

    def remote(self, num_cpus: int) -> Any:
        assert num_cpus == 1

        def made(work: Any) -> Any:
            def begin(item: Any) -> Any:
                self.open += 1
                self.most = max(self.most, self.open)
                return item, work(item)  # a reference need only be hashable

            return types.SimpleNamespace(remote=begin)

        return made

    def wait(self, references: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        assert num_returns == 1
        return references[-1:], references[:-1]

    def get(self, reference: Any) -> Any:
        self.open -= 1
        return reference[1]

    def cancel(self, reference: Any) -> None:
        raise AssertionError(f"nothing is left to cancel: {reference}")


def test_ray_does_every_item_once_and_no_more_than_jobs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    found = dict(map_with_engine(Engine.RAY, abs, [-3, -2, -1], 2))
    assert found == {-3: 3, -2: 2, -1: 1}
    assert (ray.started, ray.most) == (True, 2)


def test_processes_do_every_item() -> None:
    assert dict(map_with_engine(Engine.LOCAL, abs, [-3, -2, -1], 2)) == {-3: 3, -2: 2, -1: 1}
    assert not multiprocessing.active_children()


def test_a_worker_that_dies_is_said_in_one_line() -> None:
    with pytest.raises(BadInput, match="one that died"):
        list(map_with_engine(Engine.LOCAL, os._exit, [1, 2], 2))
    until(lambda: not multiprocessing.active_children(), 20)


def test_who_stops_listening_stops_the_workers() -> None:
    runs = map_with_engine(Engine.LOCAL, time.sleep, [0.0, 60.0, 60.0], 2)
    assert next(runs) == (0.0, None)
    runs.close()  # type: ignore[attr-defined]
    until(lambda: not multiprocessing.active_children(), 20)


def test_workers_leave_ctrl_c_to_their_parent() -> None:
    handlers = dict(map_with_engine(Engine.LOCAL, signal.getsignal, [signal.SIGINT, signal.SIGTERM], 2))
    assert handlers[signal.SIGINT] == signal.SIG_IGN
