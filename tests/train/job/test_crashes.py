"""Whatever ends a training, it is paid for once: failures, signals, kill -9, and going on from a checkpoint."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tacit.cli import main
from tacit.errors import SelfCheckFailed
from tacit.train.job.checkpoints import Checkpoints, checkpoint_folder
from tacit.train.job.payment import Payment
from tacit.train.models.saving import load
from tests.support.training_examples import fail_at
from tests.support.training_logs import (
    DESCENT,
    Told,
    dp_sgd,
    refused,
    reservations,
    spent,
    told,
)
from tests.support.training_logs import home as home  # a fixture, as the next two
from tests.support.training_logs import log as log
from tests.support.training_logs import place as place


def test_nothing_of_a_model_is_told_before_it_is_made(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How far off predictions were comes from noise that a run which goes on draws anew: told by the run that
    failed and by the one that made the model, it would have been drawn twice for one payment."""
    config = dp_sgd(place, descent={"epochs": 2, "batch": 60})
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "note_made", lambda _: no_space())
        said = refused(capsys, "train", config)
    assert "try again with --resume" in said
    assert "observed" not in said
    assert main(["train", str(config), "--resume"]) == 0
    assert capsys.readouterr().err.count("calibrated  ") == 1


def no_space() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_failed_self_check_leaves_the_reservation(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        fail_at(patch, 3, SelfCheckFailed("noise: expected noise, got none"))
        said = refused(capsys, "train", dp_sgd(place, checkpoint={"every_steps": 1}))
    assert "noise: expected noise, got none (what it costs stays reserved in the ledger as model-1" in said
    assert str(reservations(place)["model-1"].state) == "reserved"
    assert not checkpoint_folder(place / "model").exists()
    assert not (place / "model").exists()
    assert "under which another run has begun" in refused(capsys, "train", dp_sgd(place), "--resume")


def test_a_failure_before_the_first_step_gives_back(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        fail_at(patch, 0, OSError("the disk is gone"))
        said = refused(capsys, "train", dp_sgd(place))
    assert "the disk is gone (before the first step: nothing was spent" in said
    assert spent(place) == 0
    assert not checkpoint_folder(place / "model").exists()
    told(capsys, "train", dp_sgd(place, key="model-2"))


def test_a_later_failure_can_be_resumed(place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dp_sgd(place, checkpoint={"every_steps": 2})
    with monkeypatch.context() as patch:
        fail_at(patch, 5, OSError("the disk is full"))
        said = refused(capsys, "train", config)
    assert "the disk is full" in said
    assert "kept at phase 1, step 4; go on with: tacit train" in said
    assert "go on with --resume, or remove it" in refused(capsys, "train", config)
    other = dp_sgd(place, checkpoint={"every_steps": 2}, descent={**DESCENT, "clip_norm": 2.0})
    assert "expected a checkpoint of this configuration" in refused(capsys, "train", other, "--resume")
    config = dp_sgd(place, checkpoint={"every_steps": 3})  # which is no part of the training
    record = told(capsys, "train", config, "--resume")
    assert record["paid"] == "reserved before, by the run that goes on"
    assert spent(place) == 4
    assert str(reservations(place)["model-1"].state) == "committed"


def test_a_model_that_was_saved_before_the_crash_is_not_trained_again(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training once more would let out a second model for one payment."""
    with monkeypatch.context() as patch:
        patch.setattr(Payment, "commit", lambda *_: (_ for _ in ()).throw(OSError("no disk")))
        assert "try again with --resume" in refused(capsys, "train", dp_sgd(place))
    weights = (place / "model" / "weights.safetensors").read_bytes()
    assert str(reservations(place)["model-1"].state) == "reserved"
    told(capsys, "train", dp_sgd(place), "--resume")
    assert (place / "model" / "weights.safetensors").read_bytes() == weights
    assert str(reservations(place)["model-1"].state) == "committed"
    assert not checkpoint_folder(place / "model").exists()


LONG = {"epochs": 100, "batch": 60, "clip_norm": 1.0}


def begun(config: Path) -> subprocess.Popen[str]:
    """A training in another process that has kept at least one checkpoint."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tacit.cli", "train", str(config), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ),
    )  # fmt: skip
    folder, deadline = checkpoint_folder(config.parent / "model"), time.monotonic() + 60
    while not list(folder.glob("state-*.npz")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the training never got that far"
        time.sleep(0.005)
    return process


def test_a_killed_run_goes_on_and_is_paid_for_once(place: Path, capsys: Told) -> None:
    config = dp_sgd(place, descent=LONG, checkpoint={"every_steps": 5})
    process = begun(config)
    assert "expected no other run here, got one that is training" in refused(
        capsys, "train", config, "--resume"
    )
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert str(reservations(place)["model-1"].state) == "reserved"
    assert not (place / "model").exists()
    # Another run under the same key is refused while this one is not settled.
    assert "under which another run has begun" in refused(
        capsys, "train", dp_sgd(place, descent=LONG, out="other")
    )
    config = dp_sgd(place, descent=LONG, checkpoint={"every_steps": 500})
    record = told(capsys, "train", config, "--resume")
    assert record["paid"] == "reserved before, by the run that goes on"
    assert {key: str(each.state) for key, each in reservations(place).items()} == {"model-1": "committed"}
    assert spent(place) == 4
    assert load(place / "model").statement is not None
    assert not checkpoint_folder(place / "model").exists()


@pytest.mark.slow
def test_asked_to_end_it_keeps_and_says_how_to_go_on(place: Path, capsys: Told) -> None:
    config = dp_sgd(place, descent=LONG, checkpoint={"every_steps": 5})
    process = begun(config)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    assert process.returncode == 130, err
    assert out == ""
    assert err.count("\n") == 1
    assert f"go on with: tacit train {config} --resume" in err
    told(capsys, "train", dp_sgd(place, descent=LONG), "--resume")
    assert spent(place) == 4
