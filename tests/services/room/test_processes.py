"""Two real processes, killed in the middle and started again: the run goes on; nothing is released twice."""

from __future__ import annotations

import re
import shutil
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tacit.cleanroom.in_process import InProcessRoom
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.platform.training import train_adapter
from tacit.cleanroom.protocol.agreement import Agreement
from tacit.cleanroom.protocol.modes import Mode, Signer
from tacit.cleanroom.protocol.requests import LabelsRequest
from tacit.cleanroom.protocol.signatures import private_key
from tacit.cli import main
from tacit.entropy import Entropy
from tacit.services.room import platform_run, trial
from tacit.services.room.agreement_file import read_agreement
from tacit.services.room.operation import open_room
from tacit.services.room.remote_room import terms_in_force
from tacit.services.room.settings import load_platform_settings, load_room_settings
from tacit.services.settings import read_secret_file
from tests.support.room_network import NOW, channel
from tests.support.room_processes import Launcher, Running, running
from tests.support.service_processes import free_ports

ROWS, EPOCHS, BATCH = 2_000, 2, 32


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One trial, whose log and model all tests copy."""
    folder = tmp_path_factory.mktemp("rooms") / "trial"
    trial.make_trial(
        folder, rows=ROWS, mode=Mode.AGGREGATE, epsilon=Fraction(3), port=1, seed=1, now=NOW, entropy=Entropy()
    )
    return folder


def a_trial(made: Path, folder: Path, mode: Mode) -> Path:
    """A copy with an agreement of its own, on a free port, with many small steps."""
    shutil.copytree(made, folder)
    terms = read_agreement("agreement", folder / "room/agreement.json").in_force
    delta = Fraction(1, 10**6) if mode is Mode.NOISED else Fraction(0)
    releases = EPOCHS if mode is Mode.NOISED else 1
    agreement = Agreement.propose(
        replace(terms, mode=mode, delta=delta, releases_per_record=releases, smallest_batch=BATCH)
    )
    for role in Signer:
        secret = read_secret_file("signing", folder / str(role) / f"{role}.signing")
        agreement = agreement.sign(role, private_key(secret))
    (port,) = free_ports(1)
    for path in (folder / "room", folder / "platform"):
        (path / "agreement.json").write_bytes(agreement.to_bytes())
        (settings,) = path.glob(f"{path.name}.toml")
        text = settings.read_text().replace("port = 1", f"port = {port}").replace(':1"', f':{port}"')
        settings.write_text(re.sub("batch = .*", f"batch = {BATCH}\nepochs = {EPOCHS}", text))
    return folder


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    started = Launcher()
    yield started
    started.end()


def undisturbed(folder: Path) -> NDArray[np.float32]:
    """The adapter of the same run in this process, from a copy of the same folders, which nobody interrupts."""
    copy = folder.with_name(f"{folder.name}-undisturbed")
    shutil.copytree(folder, copy)
    settings = load_platform_settings(copy / "platform/platform.toml")
    room = open_room(load_room_settings(copy / "room/room.toml"))
    link, ready = InProcessRoom(room, "platform", lambda: NOW), platform_run.prepare_run(settings)
    train_adapter(
        ready.model, settings.adapter, ready.examples["train"], ready.tokens["train"], link, ready.plan,
        run=settings.run,
    )  # fmt: skip
    return ready.model.adapter_values(settings.adapter)


def saved_adapter(folder: Path) -> NDArray[np.float32]:
    model = ConversionModel.load(folder / "platform/model.safetensors")
    return model.load_adapter(folder / "platform/adapter.safetensors").values


def killed_and_resumed(processes: Running, *, one_by_one: bool) -> dict[str, Any]:
    """Kill the room, then the trainer, then both, or both alone; each goes on where it was."""
    processes.serve()
    processes.train()
    processes.wait_for_receipts(5)
    if one_by_one:
        processes.kill("serve")
        processes.serve()
        processes.wait_for_receipts(processes.receipts() + 4)
        processes.kill("train")
        processes.train()
        processes.wait_for_receipts(processes.receipts() + 4)
    processes.kill("train")
    processes.kill("serve")
    processes.train()  # before its room: it waits
    processes.serve()
    return processes.finish("train")


def sql(folder: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{folder / 'room/room.sqlite'}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("mode", "one_by_one"),
    [
        (Mode.AGGREGATE, True),
        pytest.param(Mode.NOISED, False, marks=pytest.mark.slow),
        pytest.param(Mode.NOISED, True, marks=pytest.mark.slow),
    ],
)
def test_killed_and_started_again(
    launcher: Launcher,
    made: Path,
    tmp_path: Path,
    mode: Mode,
    one_by_one: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    torch.set_num_threads(1)
    folder = a_trial(made, tmp_path / "trial", mode)
    expected = undisturbed(folder)
    with running(launcher, folder) as processes:
        record = killed_and_resumed(processes, one_by_one=one_by_one)
        assert main(["room", "status", str(processes.platform_settings)]) == 0
        assert processes.ask_to_end("serve") == 0
        said = processes.out("serve").splitlines()
        assert len(said) == (3 if one_by_one else 2)
        for line in said:
            assert re.fullmatch(r"tacit room: room listens on 127\.0\.0\.1:\d+ for platform", line)
        assert "Traceback" not in processes.err("serve") + processes.err("train")
    assert main(["room", "status", str(folder / "room/room.toml"), "--json"]) == 0
    capsys.readouterr()

    np.testing.assert_array_equal(saved_adapter(folder), expected)
    assert np.abs(expected).max() > 0
    steps = record["steps"]
    assert steps > 20
    audit = record["audit"]
    assert (audit["holds"], audit["receipts"]) == (True, processes.receipts())
    assert audit["entries"] > audit["receipts"]
    assert record["epsilon_left"] == 0
    answered = sql(folder, "SELECT run, count(*), count(DISTINCT number) FROM room_answered GROUP BY run")
    counts = sql(folder, "SELECT min(used), max(used), sum(used) FROM room_counts")
    if mode is Mode.NOISED:
        assert [each[1:] for each in answered] == [(steps, steps)]  # each step was released once
        assert counts == [(EPOCHS, EPOCHS, record["examples"])]  # and no record more often than it may
    else:
        assert not answered  # flips are the same for ever: there is nothing to count
        assert counts[0] == (None,) * 3


@pytest.mark.slow
def test_a_finished_run_asks_for_nothing_more(launcher: Launcher, made: Path, tmp_path: Path) -> None:
    """And a room that is asked to end does not wait for ever for a caller who stalls."""
    folder = a_trial(made, tmp_path / "trial", Mode.RELEASE)
    with (folder / "room/room.toml").open("a") as settings_file:
        settings_file.write("\n[pace]\nfinish_seconds = 1\n")
    with running(launcher, folder) as processes:
        processes.serve()
        processes.train()
        first = processes.finish("train")
        (folder / "train.out").unlink()
        processes.train()
        assert processes.finish("train")["bytes_sent"] == first["bytes_sent"]
        settings, ended = load_platform_settings(processes.platform_settings), Event()

        def stalling() -> Iterator[bytes]:
            yield LabelsRequest(terms_in_force(settings).digest, "stalled", "conversion", 100).to_bytes()
            ended.wait(30)

        with channel(settings.address, settings.identity) as stranger:
            calls = [stranger.stream_stream("/tacit.Room/Labels")(stalling(), timeout=30) for _ in range(3)]
            time.sleep(0.5)
            assert all(call.is_active() for call in calls)  # none is refused: they are waited for
            began = time.monotonic()
            assert processes.ask_to_end("serve") == 0
            assert time.monotonic() - began < 8  # far below the 30 seconds that a stream may stand still
            ended.set()
    assert first["audit"]["holds"]
