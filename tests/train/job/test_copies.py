"""One payment, one model, however often a run's checkpoint folder is copied, restored or started."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tacit.cli import main
from tacit.files import record_digest
from tacit.train.config_file import load_config
from tacit.train.job import run, training_job
from tacit.train.job.checkpoints import Checkpoints, checkpoint_folder
from tacit.train.job.payment import Payment
from tacit.train.job.planned_training import plan_training
from tacit.train.plan import LabelPhase
from tacit.train.steps import Run
from tests.support.training_examples import fail_at
from tests.support.training_logs import (
    DESCENT,
    LABELS,
    LEDGER,
    Told,
    dp_sgd,
    failing,
    granted,
    label_dp,
    refused,
    reservations,
    spent,
    told,
    written,
)
from tests.support.training_logs import home as home  # a fixture, as the next two
from tests.support.training_logs import log as log
from tests.support.training_logs import place as place

LESS_LIKELY = ("note_made", "make", "put_in_place", "commit")
TAKEN = "another process took up what is reserved as model-1"


def interrupted(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


def config(place: Path, where: str = "", **changes: Any) -> Path:
    """The one training, in a folder of its own below the ledger's."""
    folder = place / where
    folder.mkdir(exist_ok=True)
    ledger = {**LEDGER, "path": str(place / "ledger.sqlite"), "key": "model-1"}
    if changes.get("privacy", {}).get("method") == "hybrid":
        ledger["secret"] = str(place / "flips.secret")
    said: dict[str, Any] = {
        "data": str(place / "log"),
        "ledger": ledger,
        "checkpoint": {"every_steps": 3},
        **changes,
    }
    if changes.get("privacy", {}).get("method") == "statistic":
        del said["checkpoint"]
        said |= {"out": "model"}
        return written(folder / "statistic.toml", said)
    return dp_sgd(folder, **said)


def copied(place: Path, where: str, **changes: Any) -> Path:
    """The same run's folder once more, and a configuration that goes on from it."""
    made = config(place, where, **changes)
    shutil.copytree(checkpoint_folder(place / "model"), checkpoint_folder(made.parent / "model"))
    return made


def models(place: Path) -> list[Path]:
    """Those that are in their places."""
    return sorted(path for path in place.rglob("model/weights.safetensors") if ".checkpoint" not in str(path))


def stopped(place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch, step: int = 10) -> Path:
    """A run that ended after `step` steps, with a checkpoint kept."""
    with monkeypatch.context() as patch:
        fail_at(patch, step, OSError("the disk is full"))
        assert "go on with: tacit train" in refused(capsys, "train", config(place))
    return config(place)


def started_at_once(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Exit codes of runs that have all found their reservation before any of them goes on."""
    together, honest = threading.Barrier(len(runs), timeout=60), Payment.reserve

    def reserve(self: Payment) -> str:
        said = honest(self)
        together.wait()
        return said

    with monkeypatch.context() as patch, ThreadPoolExecutor(len(runs)) as threads:
        patch.setattr(Payment, "reserve", reserve)
        return list(threads.map(lambda each: main(["train", str(each), "--resume", "--json"]), runs))


def test_four_copies_of_one_run_make_one_model(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [stopped(place, capsys, monkeypatch), *(copied(place, where) for where in "abc")]
    codes = started_at_once(runs, monkeypatch)
    said = capsys.readouterr().err
    assert sorted(codes) == [0, 2, 2, 2]
    assert said.count(TAKEN) == said.count("\n") == 3
    assert len(models(place)) == 1
    assert spent(place) == 4
    assert str(reservations(place)["model-1"].state) == "committed"


def test_an_older_copy_is_refused_when_it_starts(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(place, capsys, monkeypatch, step=4)
    older = copied(place, "older")
    with monkeypatch.context() as patch:
        fail_at(patch, 5, OSError("the disk is full"))
        refused(capsys, "train", config(place), "--resume")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "go", failing)  # so that it cannot have trained
        assert TAKEN in refused(capsys, "train", older, "--resume")
    told(capsys, "train", config(place), "--resume")
    assert "under which a release was made" in refused(capsys, "train", older, "--resume")
    assert models(place) == [place / "model" / "weights.safetensors"]


def test_of_two_that_go_on_from_one_checkpoint_one_is_refused_at_its_next(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is made while the run trains, and starts: it takes over, and the run cannot keep another."""
    honest = Checkpoints.keep
    codes: list[int] = []

    def keep(self: Checkpoints, *arguments: Any) -> None:
        if self.mark.step == 6 and not codes:
            codes.append(2)  # only once: the copy keeps checkpoints too
            codes[0] = main(["train", str(copied(place, "copy")), "--resume", "--json"])
        honest(self, *arguments)

    monkeypatch.setattr(Checkpoints, "keep", keep)
    assert main(["train", str(config(place)), "--json"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "has made its release" in said
    assert codes == [0]
    assert models(place) == [place / "copy" / "model" / "weights.safetensors"]


@pytest.mark.parametrize("side", ["before", "after"])
def test_of_a_run_that_died_around_an_exchange_and_its_copies_one_goes_on(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    """Between the next token on the disk and the same in the ledger, on both sides."""
    honest, asked = Payment.claim, 0

    def claim(self: Payment, attempt: str, after: Collection[str]) -> None:
        nonlocal asked
        asked += 1
        if asked < 3 or side == "after":
            honest(self, attempt, after)
        if asked == 3:
            raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Payment, "claim", claim)
        refused(capsys, "train", config(place))
    runs = [config(place), copied(place, "a"), copied(place, "b")]
    assert sorted(started_at_once(runs, monkeypatch)) == [0, 2, 2]
    assert len(models(place)) == 1


@pytest.mark.parametrize(
    "moment", ["after make", *(pytest.param(each, marks=pytest.mark.slow) for each in LESS_LIKELY)]
)
def test_whatever_it_dies_of_after_training_there_is_one_model(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    stopped(place, capsys, monkeypatch)
    older, made = copied(place, "older"), Payment.make
    with monkeypatch.context() as patch:
        if moment == "after make":
            patch.setattr(Payment, "make", lambda *said: (made(*said), failing()))
        else:
            owner = {"note_made": Checkpoints, "put_in_place": run}.get(moment, Payment)
            patch.setattr(owner, moment, failing)
        assert "try again with --resume" in refused(capsys, "train", config(place), "--resume")
    assert len(models(place)) == (moment == "commit")
    staged = checkpoint_folder(place / "model") / "model" / "weights.safetensors"
    kept = staged.read_bytes() if staged.exists() else (place / "model" / "weights.safetensors").read_bytes()
    later = copied(place, "later")
    refused(capsys, "train", older, "--resume")
    told(capsys, "train", config(place), "--resume")
    if moment != "note_made":  # a model that was staged and not made is trained again, and nobody saw it
        assert (place / "model" / "weights.safetensors").read_bytes() == kept
    assert str(reservations(place)["model-1"].state) == "committed"
    refused(capsys, "train", older, "--resume")
    if moment not in ("note_made", "commit"):  # a copy with the staged model has the same model, and no other
        told(capsys, "train", later, "--resume")
        assert {path.read_bytes() for path in models(place)} == {kept}


def test_a_model_of_the_one_that_came_second_is_not_kept(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused when it had trained to its end: its model is gone, and was never in its place."""
    honest = Payment.make

    def late(self: Payment, attempt: str, release: str) -> None:
        monkeypatch.setattr(Payment, "make", honest)
        self.claim("somebody else", [attempt])
        honest(self, attempt, release)

    monkeypatch.setattr(Payment, "make", late)
    assert TAKEN in refused(capsys, "train", config(place))
    assert models(place) == []
    assert not (checkpoint_folder(place / "model") / "model").exists()
    assert TAKEN in refused(capsys, "train", config(place), "--resume")
    assert str(reservations(place)["model-1"].state) == "reserved"


def test_after_a_machine_is_lost_one_older_copy_goes_on(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(place, capsys, monkeypatch, step=4)
    older, oldest = copied(place, "older"), copied(place, "oldest")
    with monkeypatch.context() as patch:
        fail_at(patch, 5, OSError("the disk is full"))
        refused(capsys, "train", config(place), "--resume")
    assert "tacit ledger hand-over --help" in refused(capsys, "train", older, "--resume")
    hand_over = ["ledger", "hand-over", "model-1", "--machine-lost", "--ledger", place / "ledger.sqlite"]
    assert told(capsys, *hand_over)["freed"] == [True]
    runs = [config(place), older, oldest]
    assert sorted(started_at_once(runs, monkeypatch)) == [0, 2, 2]
    capsys.readouterr()
    assert len(models(place)) == 1
    assert "has made its release" in refused(capsys, *hand_over)


@pytest.mark.parametrize("method", ["statistic", "hybrid"])
def test_every_method_with_fresh_noise_is_made_once(
    place: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    granted(place / "ledger.sqlite", "replace-label", "8")
    changes: dict[str, Any] = {"privacy": {"method": method, "epsilon": 4, "delta": 1e-5}}
    if method == "hybrid":
        changes |= {"labels": LABELS}
        changes["privacy"] |= {"k": 0.5}
    stop: tuple[Any, str] = (training_job, "_fit_statistic") if method == "statistic" else (Run, "_batches")
    with monkeypatch.context() as patch:
        patch.setattr(*stop, interrupted)
        assert main(["train", str(config(place, **changes))]) == 130
    runs = [config(place, **changes), copied(place, "copy", **changes)]
    assert sorted(started_at_once(runs, monkeypatch)) == [0, 2]
    assert len(models(place)) == 1


def test_every_window_of_a_release_is_held(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = [
        "--scope",
        "shop",
        "--unit",
        "user",
        "--relation",
        "replace-one",
        "--epsilon",
        "4",
        "--delta",
        "1e-4",
    ]
    ledger = ["--ledger", str(place / "ledger.sqlite"), "--window-days", "4"]
    assert main(["ledger", "grant", *line, *ledger]) == 0
    privacy = {"method": "dp-sgd", "epsilon": 4, "delta": 1e-5, "unit": "user", "window_days": 4}
    with monkeypatch.context() as patch:
        patch.setattr(Run, "_batches", interrupted)
        assert main(["train", str(config(place, privacy=privacy))]) == 130
    runs = [config(place, privacy=privacy), copied(place, "copy", privacy=privacy)]
    assert sorted(started_at_once(runs, monkeypatch)) == [0, 2]
    made = [each for each in reservations(place).values() if each.key.startswith("model-1/")]
    assert len(made) == 2
    assert len({(each.attempt, each.release) for each in made}) == 1
    assert {str(each.state) for each in made} == {"committed"}


@pytest.mark.parametrize("made", [False, True])
def test_a_run_that_began_before_there_were_tokens_goes_on(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "hold", lambda *_: None)
        patch.setattr(Payment, "make", lambda *_: None)
        if made:
            patch.setattr(Payment, "commit", failing)
            refused(capsys, "train", config(place))
        else:
            stopped(place, capsys, patch)
    manifest = checkpoint_folder(place / "model") / "checkpoint.json"
    record = json.loads(manifest.read_text())
    assert record.pop("tokens") == []
    del record["release"]
    manifest.write_text(json.dumps(record | {"digest": record_digest(record)}))
    told(capsys, "train", config(place), "--resume")
    kept = reservations(place)["model-1"]
    assert (str(kept.state), kept.attempt is None) == ("committed", made)


def test_what_an_earlier_attempt_staged_takes_nobodys_place(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that was staged and never said to be made, put by hand where the one that was made waits."""
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "note_made", failing)
        refused(capsys, "train", config(place))
    staged = checkpoint_folder(place / "model") / "model"
    shutil.copytree(staged, place / "aside")
    with monkeypatch.context() as patch:
        patch.setattr(Payment, "make", failing)
        refused(capsys, "train", config(place), "--resume")
    copy = copied(place, "copy")
    shutil.rmtree(checkpoint_folder(copy.parent / "model") / "model")
    shutil.copytree(place / "aside", checkpoint_folder(copy.parent / "model") / "model")
    said = refused(capsys, "train", copy, "--resume")
    assert "expected the model that this run has made, got another" in said
    told(capsys, "train", config(place), "--resume")
    assert len(models(place)) == 1


def test_a_folder_without_its_tokens_places_nothing_that_the_ledger_refuses(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Payment, "make", failing)
        refused(capsys, "train", config(place))
    copy = copied(place, "copy")
    manifest = checkpoint_folder(copy.parent / "model") / "checkpoint.json"
    record = json.loads(manifest.read_text()) | {"tokens": []}
    del record["digest"]
    manifest.write_text(json.dumps(record | {"digest": record_digest(record)}))
    told(capsys, "train", config(place), "--resume")
    assert "another process took up what is reserved as model-1" in refused(capsys, "train", copy, "--resume")
    assert len(models(place)) == 1


@pytest.mark.slow
def test_two_processes_that_start_at_once(place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [stopped(place, capsys, monkeypatch), copied(place, "copy")]
    command = [sys.executable, "-m", "tacit.cli", "train", "--resume", "--json"]
    started = [
        subprocess.Popen([*command, str(each)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for each in runs
    ]
    said = [each.communicate(timeout=120)[1] for each in started]
    assert sorted(each.returncode for each in started) == [0, 2], said
    assert len(models(place)) == 1


@pytest.mark.slow
def test_a_storm_of_kills_and_copies_ends_in_one_model(place: Path, capsys: Told) -> None:
    """kill -9 at any moment, a copy of what is left each time; then all that is there goes on at once."""
    moments = random.Random(3)
    said: dict[str, Any] = {"descent": {**DESCENT, "epochs": 60}, "checkpoint": {"every_steps": 1}}
    command = [sys.executable, "-m", "tacit.cli", "train", "--resume", "--json"]
    runs = [config(place, **said)]
    for number in range(4):
        process = subprocess.Popen([*command, str(runs[0])], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        before = kept_at(place)
        while kept_at(place) == before and process.poll() is None:
            assert time.monotonic() < deadline, "the training never got that far"
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.3))
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        runs.append(copied(place, f"copy-{number}", **said))
    started = [subprocess.Popen([*command, str(each)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
               for each in moments.sample(runs, len(runs))]  # fmt: skip
    for each in started:
        each.communicate(timeout=240)
    assert sorted(each.returncode for each in started) == [0, *[2] * (len(runs) - 1)]
    assert len(models(place)) == 1
    assert spent(place) == 4
    assert str(reservations(place)["model-1"].state) == "committed"
    capsys.readouterr()


def kept_at(place: Path) -> list[str]:
    return sorted(path.name for path in checkpoint_folder(place / "model").glob("state-*.npz"))


# Noisy labels are drawn by a keyed function: the same release however often, and another with another key.


def test_copies_with_one_secret_read_the_same_noisy_labels(place: Path, capsys: Told) -> None:
    told(capsys, "train", label_dp(place))
    shutil.copytree(place, place / "copy", ignore=shutil.ignore_patterns("copy", "model", "ledger*"))
    ledger = {**LEDGER, "path": str(place / "ledger.sqlite"), "secret": "flips.secret"}
    copy = label_dp(place / "copy", ledger=ledger)
    assert told(capsys, "train", copy)["paid"].startswith("paid for before")
    assert spent(place) == 2

    def flips(config: Path) -> bytes:
        chosen = plan_training(load_config(str(config)), now=int(time.time()))
        (phase,) = chosen.plan.phases
        assert isinstance(phase, LabelPhase)
        assert phase.labelling is not None
        assert chosen.secret is not None
        examples, labelling = chosen.examples, phase.labelling
        rows, key = examples.key("row"), labelling.key
        made = labelling.mechanism.targets(
            examples.labels, rows, labelling.allocation, labelling.epsilon, key=key, secret=chosen.secret
        )
        return bytes(made.values.tobytes())

    assert flips(copy) == flips(label_dp(place))
    (place / "copy" / "flips.secret").write_bytes(bytes(range(32)))
    assert flips(copy) != flips(label_dp(place)), "with another secret they are another release"


def test_a_copy_with_another_secret_pays_or_is_refused(place: Path, capsys: Told) -> None:
    spend = {"method": "label-dp", "epsilon": 5}
    told(capsys, "train", label_dp(place, privacy=spend))
    (place / "flips.secret").unlink()
    assert "budget exceeded" in refused(capsys, "train", label_dp(place, "again", privacy=spend))
    assert spent(place) == 5
