"""Studies: every one at toy size for real, their rules and their cache."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.cli import main
from tacit.data.columns import Columns
from tacit.data.synthetic import mark_path
from tacit.errors import BadInput
from tacit.privacy.calibration import CalibrationMemory
from tacit.train.evaluation.measures import expected_auc
from tacit.train.methods import Hybrid, Plain
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.settings import Learning
from tacit_lab.studies import verdicts
from tacit_lab.studies.logs import (
    Frequent,
    Hashed,
    KnownDomain,
    ReadyLog,
    Selected,
    StudyLog,
    is_made_up,
    log_folder,
)
from tacit_lab.studies.published import published_file
from tacit_lab.studies.registry import load_study
from tacit_lab.studies.results import read_table
from tacit_lab.studies.runs import LabelledTask, Runs, TrainingTask, record_name, run_tasks
from tacit_lab.studies.study import Claim, Finding, StudyRequest, StudyScale
from tests.support.toy_studies import prepare_study_log, toy_studies

SMALL_LOG = StudyLog("display-small", 1_500, 7, public=Hashed(500), sensitive=Hashed(500))
PLAIN = Plain(Learning(epochs=1, batch=256))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all toy runs: they share logs, trainings and calibrations."""
    return tmp_path_factory.mktemp("reproduced")


@pytest.fixture(scope="module")
def cache(folder: Path) -> Path:
    return StudyRequest(folder).cache


@dataclass(frozen=True)
class Counting:
    """A task that leaves a trace each time it is really done."""

    log: StudyLog
    trace: Path
    fails: bool = False

    def measure(self, ready: ReadyLog, memory: CalibrationMemory) -> dict[str, Any]:
        del memory
        with self.trace.open("a") as trace:
            trace.write("done\n")
        if self.fails:
            raise BadInput("expected a task that works, got this one")
        return {"rows": ready.columns.rows}


@pytest.mark.parametrize("name", toy_studies("semi-sensitive"))
def test_every_study_runs_at_toy_size_and_says_what_it_is(name: str, folder: Path) -> None:
    chosen = load_study(name)
    outcome = chosen.outcome(StudyRequest(folder, StudyScale.TOY, seeds=1, processes=1))

    assert {finding.claim for finding in outcome.findings} == set(chosen.claims)
    assert chosen.findings(folder) == outcome.findings, "what lies in the folder is enough to judge"
    assert all(finding.holds is None for finding in outcome.findings), "toy figures decide nothing"
    assert all(finding.rule and finding.seen for finding in outcome.findings)
    assert "synthetic" in outcome.note
    assert "1 seed" in outcome.note
    assert all(len(row) == len(outcome.columns) for row in outcome.rows)
    assert {file.suffix for file in outcome.files} == {".csv", ".svg", ".png", ".json"}
    assert all(file.stat().st_size > 100 for file in outcome.files)
    table = read_table(folder, name)
    if name != "semi-sensitive-accounting":  # which trains nothing
        assert set(table["seed"]) == {1}
        assert all(isinstance(loss, float) and 0 < loss < 1 for loss in table["auc_loss"])
    assert json.loads((folder / f"{name}.json").read_text())["synthetic"] is True
    assert chosen.minutes[StudyScale.SMALL] > 0


def test_a_study_that_ran_before_trains_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, asked = (
        load_study("semi-sensitive-hashing"),
        StudyRequest(folder, StudyScale.TOY, seeds=1, processes=1),
    )
    first = chosen.outcome(asked)
    monkeypatch.setattr(TrainingTask, "measure", lambda *_: pytest.fail("was done before"))
    assert [list(row) for row in chosen.run(asked).rows] == [list(row) for row in first.rows]


def test_a_task_is_done_once_and_a_failed_one_leaves_no_record(cache: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    task, broken = Counting(SMALL_LOG, trace), Counting(SMALL_LOG, trace, fails=True)
    tracked: list[tuple[str, int, int]] = []
    records = run_tasks(
        [task, task], cache, processes=1, progress=lambda *told: tracked.append(told), label="x"
    )
    assert [record["rows"] for record in records] == [1_500] * 2
    assert trace.read_text() == "done\n"
    assert tracked[-1] == ("x", 1, 1)
    with pytest.raises(BadInput, match="works"):
        run_tasks([task, broken], cache, processes=1)
    assert trace.read_text() == "done\n" * 2
    assert not (cache / "records" / f"{record_name(broken, log_folder(broken.log, cache))}.json").exists()


@pytest.mark.slow
def test_two_processes_give_what_one_gives(cache: Path, tmp_path: Path) -> None:
    tasks = [TrainingTask(SMALL_LOG, FactorizationMachine(2), PLAIN, seed) for seed in (1, 2)]
    alone = run_tasks(tasks, cache, processes=1)
    (tmp_path / "logs").symlink_to(cache / "logs")
    together = run_tasks(tasks, tmp_path, processes=2)
    assert [record["auc_loss"] for record in alone] == [record["auc_loss"] for record in together]
    assert alone[0]["auc_loss"] != alone[1]["auc_loss"]


def test_the_truth_of_a_log_is_that_of_its_rows(cache: Path) -> None:
    ready = prepare_study_log(SMALL_LOG, cache)
    assert ready.truth is not None
    label = np.asarray(ready.columns.label, np.float64)
    # Labels are drawn with these probabilities; 6 standard deviations of their sum: once in a billion.
    assert abs(np.sum(label - ready.truth)) < 6 * np.sqrt(np.sum(ready.truth * (1 - ready.truth)))
    # Correlations of 1,500 pairs have a standard error of 1/39; truth in another order correlates with nothing.
    assert np.corrcoef(label, ready.truth)[0, 1] > 0.3
    assert abs(np.corrcoef(label, np.roll(ready.truth, 1))[0, 1]) < 6 / 39
    assert 1 - expected_auc(ready.truth, ready.truth) < 0.25


@pytest.mark.parametrize(
    "sensitive", [KnownDomain(), KnownDomain(20), Selected(0, 8, "1e-6"), Hashed(64)], ids=repr
)
def test_each_encoding_gives_the_table_it_promises(
    sensitive: KnownDomain | Selected | Hashed, cache: Path
) -> None:
    encoder = prepare_study_log(
        replace(SMALL_LOG, public=Frequent(2), sensitive=sensitive), cache
    ).columns.encoder
    assert (encoder.selection is not None) == isinstance(sensitive, Selected)
    if isinstance(sensitive, Hashed):
        assert encoder.sensitive.size == 64
    elif sensitive == KnownDomain():
        assert encoder.sensitive.size == 28_612  # 28,592 values; a row for missing and one for others a field
    elif sensitive == KnownDomain(20):
        assert encoder.sensitive.size == 10 + 9 * 20 + 20
    else:
        assert 20 <= encoder.sensitive.size < 28_612


@pytest.mark.slow
def test_a_paid_selection_adds_noise_to_the_training(cache: Path) -> None:
    logs = [replace(SMALL_LOG, sensitive=Selected(0, 4, "5e-7")), SMALL_LOG]
    tasks = [TrainingTask(log, FactorizationMachine(2), Hybrid(8, "1e-6", 0.0), 1) for log in logs]
    paid, free = run_tasks(tasks, cache, processes=1)
    assert paid["noise_multiplier"] > free["noise_multiplier"]


def test_figures_come_by_seed_and_missing_ones_are_refused() -> None:
    runs = Runs([{"method": "a", "seed": 2, "loss": 3.0}, {"method": "a", "seed": 1, "loss": 2.0}])
    assert runs.figures("loss", method="a").tolist() == [2.0, 3.0]
    assert runs.percent_over("loss", {"method": "a"}, method="a").tolist() == [0.0, 0.0]
    with pytest.raises(BadInput, match="none"):
        runs.figures("loss", method="b")


def test_runs_carry_labels_and_records(folder: Path, tmp_path: Path) -> None:
    task = Counting(SMALL_LOG, tmp_path / "trace")
    runs = Runs.of([LabelledTask({"seed": 1}, task)], StudyRequest(folder, processes=1), "x")
    assert runs.table() == {"seed": [1], "rows": [1_500]}


def test_rules_hold_fail_or_stay_open() -> None:
    low, high = np.array([1.0, 1.1, 0.9]), np.array([2.0, 2.1, 1.9])
    noisy = np.array([0.5, 2.9, 2.0])
    assert verdicts.below(low, high) is True
    assert verdicts.below(high, low) is False
    assert verdicts.below(low, noisy) is None
    assert verdicts.below(low[:2], high[:2]) is None, "two seeds decide nothing"
    assert verdicts.no_better(low, high) is False
    assert verdicts.no_better(high, low) is True
    assert verdicts.no_better(low, noisy) is None, "few seeds are no proof of no difference"
    assert verdicts.no_better(np.tile(low, 2), np.tile(noisy, 2)) is True
    assert verdicts.at_most(low, 1.5) is True
    assert verdicts.at_most(high, 1.5) is False
    assert verdicts.every([True, None]) is None
    assert verdicts.every([True, None, False]) is False
    assert verdicts.every([True, True]) is True


def test_findings_have_the_names_that_all_checks_have() -> None:
    finding = Finding(Claim("S1", "figure 1", "words"), "rule", "seen", None)
    assert finding.as_json().keys() >= {"name", "value", "bar", "holds"}
    assert finding.verdict == "undecided"


def test_published_files_are_found_by_name_and_used(tmp_path: Path) -> None:
    assert (
        main(
            [
                "data",
                "generate",
                "criteo-search",
                "--rows",
                "1500",
                "--out",
                str(tmp_path / "criteo-search.tsv"),
            ]
        )
        == 0
    )
    file = published_file(tmp_path, "criteo-search")
    assert file.name == "criteo-search.tsv"
    ready = prepare_study_log(
        StudyLog("criteo-search", 0, 0, public=Hashed(100), sensitive=Hashed(100), file=file), tmp_path
    )
    assert ready.truth is None
    assert Columns.open(ready.columns.folder).rows == 1_500
    with pytest.raises(BadInput, match=r"criteo-display\.csv"):
        published_file(tmp_path, "criteo-display")
    for name, size in (
        ("criteo_display_10k.tsv", 9),
        ("Criteo-Display-1M.tsv.gz", 10),
        ("criteo_displays.tsv", 11),
    ):
        (tmp_path / name).write_bytes(bytes(size))
    assert published_file(tmp_path, "criteo-display").name == "Criteo-Display-1M.tsv.gz", "the largest extract"
    for name in ("criteo_display_10k.tsv", "Criteo-Display-1M.tsv.gz", "criteo_displays.tsv"):
        (tmp_path / name).unlink()
    asked = StudyRequest(tmp_path, StudyScale.TOY, seeds=2, data=tmp_path, processes=1)
    assert is_made_up(asked), "all that is there, where a study does not say what it used"
    (tmp_path / "visits.csv").write_text("of people\n")
    assert not is_made_up(asked)
    assert is_made_up(asked, [file])
    with pytest.raises(BadInput, match="--data"):
        load_study("semi-sensitive-size").outcome(asked)


@pytest.mark.parametrize(
    ("log", "name"), [("criteo-search", "semi-sensitive-search"), ("criteo-attribution", "label-dp-users")]
)
def test_a_file_that_was_made_up_is_called_so(log: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{log}.tsv"
    assert main(["data", "generate", log, "--rows", "3000", "--out", str(file)]) == 0
    for synthetic in (True, False):
        if not synthetic:
            mark_path(file).unlink()
        asked = StudyRequest(tmp_path / "out", StudyScale.TOY, seeds=1, data=tmp_path, processes=1)
        outcome = load_study(name).outcome(asked)
        record = json.loads((tmp_path / "out" / f"{name}.json").read_text())
        assert record["synthetic"] is ("synthetic" in outcome.note) is synthetic
        assert record["command"] == f"tacit reproduce {name} --scale toy --seeds 1 --data {tmp_path}"


def test_the_search_log_allows_the_studies_of_units_to_whoever_states_that_users_are_public(
    tmp_path: Path,
) -> None:
    """All of them at toy size, and what a file of clicks has for the semi-sensitive ones."""
    file = tmp_path / "criteo_search_some.parquet"
    assert main(["data", "generate", "criteo-search", "--rows", "3000", "--out", str(file)]) == 0
    asked = StudyRequest(tmp_path / "out", StudyScale.TOY, seeds=1, data=tmp_path, processes=1)
    units = load_study("label-dp-units")
    assert "--public-key user" in units.inputs.lacking(tmp_path, ())
    with pytest.raises(BadInput, match="--public-key user"):
        units.outcome(asked)
    stated = replace(asked, public_keys=("user",))
    assert units.inputs.lacking(tmp_path, stated.public_keys) == ""
    for name in ("label-dp-units", "label-dp-methods", "semi-sensitive-split", "semi-sensitive-clipping"):
        found = load_study(name).outcome(stated)
        assert "criteo_search_some.parquet" in found.note
        record = json.loads((stated.out / f"{name}.json").read_text())
        assert record["command"].endswith(f"--data {tmp_path} --public-key user")
    lacking = load_study("semi-sensitive-display").inputs.lacking(tmp_path, ())
    assert lacking == f"it needs criteo-display, which {tmp_path} has not"
    (tmp_path / "criteo_display_10k.tsv").write_text("a few rows")
    sample = load_study("semi-sensitive-display").inputs.lacking(tmp_path, ())
    assert sample == "it needs more than a sample, which criteo_display_10k.tsv is"
