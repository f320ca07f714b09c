"""What somebody meets who trains for the first time: refused before the work, with what to do about it."""

from __future__ import annotations

import errno
import importlib
import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tacit
from tacit.cli import main
from tacit.errors import BadInput
from tacit.files import check_folder, check_writable, explain_os_error
from tacit.train.job import progress
from tacit.train.models import device_export, onnx_export
from tests.support.repository import ROOT
from tests.support.training_logs import (  # fmt: skip
    LABELS,
    LEDGER,
    Told,
    called_synthetic,
    dp_sgd,
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

SIMULATED: dict[str, Any] = {"ledger": {}, "run": {"simulated": 7}}
TRIAL = "on made-up data, [run] simulated = 1 (a seed) in place of [ledger] makes a trial that costs nothing"


def plain(place: Path, **changes: Any) -> Path:
    said = {"data": "log", "out": "model", "model": {"name": "logistic"}, "privacy": {"method": "plain"}}
    return written(place / "plain.toml", said | changes)


def printed(capsys: Told, *arguments: object) -> str:
    """What people are told, without its line breaks."""
    assert main([*map(str, arguments)]) == 0, capsys.readouterr().err
    return " ".join(capsys.readouterr().out.split())


# Who pays


@pytest.mark.parametrize("method", ["dp-sgd", "label-dp"])
@pytest.mark.parametrize("lacking", ["ledger", "line"])
def test_the_command_that_is_named_grants_what_is_missing(
    place: Path, capsys: Told, method: str, lacking: str
) -> None:
    ledger = {**LEDGER, "scope": "it's new", **({"path": "a b.sqlite"} if lacking == "ledger" else {})}
    if method == "dp-sgd":
        config = dp_sgd(place, ledger={**ledger, "key": "k"})
    else:
        window = {"method": method, "epsilon": 1.5, "unit": "user", "window_days": 2, "window_origin": 7}
        config = label_dp(place, privacy=window, ledger={**ledger, "secret": "s"})
    said = refused(capsys, "train", config, "--dry-run")
    assert ("[ledger] path: there is no ledger at" if lacking == "ledger" else "no budget was granted") in said
    assert "--ledger names another place" not in said, "tacit train has no such option"
    assert TRIAL not in said, "these data are not made up"
    command = shlex.split(said[said.index("tacit ledger grant") :])
    assert main(command[1:]) == 0
    capsys.readouterr()
    assert told(capsys, "train", config, "--dry-run")["room"] == "there is room"
    told(capsys, "train", config)


def test_trials_on_made_up_data_are_shown_the_way(place: Path, capsys: Told) -> None:
    called_synthetic(place / "log")
    said = refused(capsys, "train", label_dp(place, ledger={}))
    assert "ledger.secret: expected the path" in said
    assert TRIAL in said
    assert TRIAL in refused(capsys, "train", dp_sgd(place, ledger={**LEDGER, "path": "none", "key": "k"}))
    assert "expected a seed, such as 1, got true" in refused(
        capsys, "train", dp_sgd(place, **SIMULATED | {"run": {"simulated": True}})
    )
    told(capsys, "train", label_dp(place, **SIMULATED))


def test_a_lost_ledger_is_not_begun_anew(place: Path, capsys: Told) -> None:
    (place / "ledger.sqlite").unlink()
    said = refused(capsys, "train", dp_sgd(place))
    assert "the ledger was lost" in said
    assert "tacit ledger grant" not in said


# Simulations, in words


def test_a_simulation_says_what_it_would_have_been(place: Path, capsys: Told) -> None:
    called_synthetic(place / "log")
    page = printed(capsys, "train", dp_sgd(place, **SIMULATED))
    expected = r"\(3\.99\d*, 1e-05\)-DP per impression, replace-one neighbours"
    assert re.search(f"nothing: simulated, not private; .* As if {expected}", page)
    for path in (place / "dp-sgd.toml", place / "model"):
        page = printed(capsys, "explain", path)
        assert "Simulated, not private. The noise of this training comes from a seed" in page
        assert re.search(f"the same training would be {expected}", page)


def test_a_plain_simulation_claims_no_noise(place: Path, capsys: Told) -> None:
    called_synthetic(place / "log")
    pages = [printed(capsys, "train", plain(place, run={"simulated": 3}))]
    pages += [printed(capsys, "explain", path) for path in (place / "plain.toml", place / "model")]
    pages += [printed(capsys, "evaluate", place / "model", place / "log")]
    for page in pages:
        assert "noise comes from" not in page
        assert "noise of this training" not in page
        assert "noise was simulated" not in page
        assert "the same training would be" not in page
    assert "This training has no noise at all" in pages[1]


# The plan


def test_the_plan_says_what_a_step_really_reads(place: Path, capsys: Told) -> None:
    large = {"epochs": 2, "batch": 5000}
    said = printed(capsys, "train", dp_sgd(place, descent={**large, "optimizer": "sgd"}), "--dry-run")
    assert "2 steps of all 476 examples (batch 5,000 is more than there are), sgd" in said
    by_user = {"method": "label-dp", "epsilon": 2, "unit": "user", "cap": 1}
    record = told(capsys, "explain", label_dp(place, privacy=by_user, labels=large))
    labels = record["phases"][0]["noisy_labels"]["labels"]
    said = printed(capsys, "explain", place / "label-dp.toml")
    assert f"2 steps of all {labels} examples (batch 5,000 is more than there are), adam" in said
    assert "16 steps of 60 examples on average" in printed(capsys, "train", dp_sgd(place), "--dry-run")


def test_a_handful_of_rows_is_remarked(place: Path, capsys: Told) -> None:
    assert told(capsys, "train", dp_sgd(place), "--dry-run")["few"].startswith("476 examples are too few")
    assert "Warning: 476 examples are too few" in printed(capsys, "explain", place / "dp-sgd.toml")
    assert told(capsys, "train", plain(place), "--dry-run")["few"] is None, "which needs no noise"


def test_enough_rows_are_not_remarked(place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.train.job.planned_training.FEW", 476)
    assert told(capsys, "train", dp_sgd(place), "--dry-run")["few"] is None


def test_plain_training_is_called_so(place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    names: set[str] = set()

    class Sink:
        def tell(self, _: int, figures: dict[str, float]) -> None:
            names.update(name.split("/")[0] for name in figures)

    @contextmanager
    def opened(_: object) -> Iterator[tuple[Sink]]:
        yield (Sink(),)

    monkeypatch.setattr(progress, "open_sinks", opened)
    record = told(capsys, "train", plain(place))
    assert [phase["name"] for phase in record["phases"]] == ["training"]
    assert names == {"training"}
    told(capsys, "train", label_dp(place, "noisy"))
    assert names == {"training", "labels"}


def test_a_sweep_is_recognised(place: Path, capsys: Told) -> None:
    config = dp_sgd(place, sweep={"epsilon": [1, 2]})
    for command in ("train", "explain"):
        said = refused(capsys, command, config)
        assert f"run it with tacit sweep {config}" in said
        assert "did you mean" not in said


# Places to write to


def test_places_are_looked_at_before_the_training(place: Path, capsys: Told) -> None:
    (place / "file").write_text("mine")
    (place / "folder").mkdir()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"out": "file/model"}, "out: expected a place below a folder, got .*: .*file is a file"),
        ({"out": "file"}, "out: expected a folder for the model, got .*file, which is a file"),
        ({"export": {"onnx": "file/model.onnx"}}, "export.onnx: expected a place below a folder"),
        ({"export": {"onnx": "folder"}}, "export.onnx: expected a file, got .*, which is a folder"),
        ({"export": {"onnx": "file"}}, "expected a new file for export.onnx, got .*; say --overwrite"),
        ({"export": {"onnx": "model/m.onnx"}}, "export.onnx: expected a file outside of the model's folder"),
        ({"export": {"device": "file"}}, "expected a new file for export.device, got .*; say --overwrite"),
        ({"run": {"tensorboard": "file"}}, "run.tensorboard: expected a folder"),
        ({"privacy": {"method": "hybrid", "epsilon": 4, "delta": 1e-5, "k": 0.5}, "labels": LABELS,
          "ledger": {**LEDGER, "key": "k", "secret": "file/s"}}, "ledger.secret: expected a place below"),
    ]  # fmt: skip
    for changes, expected in cases:
        said = refused(capsys, "train", dp_sgd(place, **changes))
        assert re.search(expected, said), said
    assert "which is a file" in refused(capsys, "train", dp_sgd(place, out="file"), "--overwrite")
    assert spent(place) == 0
    assert not reservations(place)
    assert (place / "file").read_text() == "mine"


def test_a_place_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_writable("out", tmp_path / "not" / "yet" / "there")
    check_folder("--out", tmp_path)
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)
    with pytest.raises(BadInput, match=f"out: .*: {tmp_path} is not writable for you; choose another place"):
        check_writable("out", tmp_path / "not" / "yet" / "there")
    with pytest.raises(BadInput, match="--out: expected a place that can be written"):
        check_folder("--out", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_systems_errors_come_in_words(
    tmp_path: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path / "x"))
    said = f"{tmp_path}/x: permission denied; choose another place, or give yourself the right to it"
    assert explain_os_error(problem).startswith(said)
    assert explain_os_error(OSError("Disk A is gone")) == "Disk A is gone"

    def failing(_: object) -> int:
        raise problem

    monkeypatch.setattr("tacit.commands.data.run_list", failing)
    err = refused(capsys, "data", "list")
    assert err.startswith(f"tacit data: {said}")
    assert "Errno" not in err


def test_sweeps_and_studies_look_at_their_folder_first(place: Path, capsys: Told) -> None:
    (place / "file").write_text("mine")
    called_synthetic(place / "log")
    config = dp_sgd(place, ledger={}, sweep={"epsilon": [1]})
    assert "--out: expected a place below" in refused(capsys, "sweep", config, "--out", place / "file" / "x")
    assert "--out: expected a folder" in refused(capsys, "reproduce", "label-dp-users", "--out", place / "file")


# The export, which comes after the payment


def test_a_failed_export_says_that_the_model_is_paid_for(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dp_sgd(place, export={"onnx": "model.onnx"})
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place / "model.onnx"))

    def failing(*_: object, **__: object) -> None:
        raise full

    with monkeypatch.context() as patch:
        patch.setattr(onnx_export, "place_file", failing)
        said = refused(capsys, "train", config)
    assert "model.onnx: no space left on device; make room there" in said
    assert f"the model is there, {place / 'model'}, and what it costs is spent in the ledger as model-1" in said
    assert "reserved" not in said
    assert str(reservations(place)["model-1"].state) == "committed"
    weights = (place / "model" / "weights.safetensors").read_bytes()
    told(capsys, "train", config, "--resume")
    assert (place / "model.onnx").is_file()
    assert (place / "model" / "weights.safetensors").read_bytes() == weights
    assert spent(place) == 4


def test_what_cannot_be_exported_is_not_trained(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, module in (("onnx", onnx_export), ("device", device_export)):
        monkeypatch.setattr(module, "LARGEST_BYTES", 10)
        said = refused(capsys, "train", dp_sgd(place, export={key: "model.file"}))
        assert f"export.{key}: expected at most 10 bytes of weights" in said
    assert spent(place) == 0


# The command itself


def test_an_interruption_while_commands_load_is_one_line(capsys: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    assert main(["train", "x.toml"]) == 130
    assert capsys.readouterr().err == "tacit: interrupted\n"


def test_every_extra_that_is_named_exists() -> None:
    root = Path(tacit.__file__).parent
    project = ROOT / "pyproject.toml"
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    named = {extra for file in root.rglob("*.py") for extra in re.findall(r"tacit\[(\w+)\]", file.read_text())}
    assert named
    assert named <= extras.keys()


def test_what_is_no_configuration_is_called_so(place: Path, capsys: Told) -> None:
    assert "expected a training configuration here, got is a directory" in refused(
        capsys, "train", place / "log"
    )
