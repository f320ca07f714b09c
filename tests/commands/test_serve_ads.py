"""`tacit serve` alone, `ads`, `visit` and `rotate`: they run, teach, and refuse in one line."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tacit.cli import main
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.services import demonstration, trial
from tacit.services.settings import load_parties
from tests.support.service_processes import free_ports

TACIT = [sys.executable, "-m", "tacit.cli"]


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """`tacit serve --json`, in a session of its own, and what it said first."""
    process = subprocess.Popen(
        [*TACIT, "serve", "--json", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = ""
        while not said.endswith("}\n"):
            line = process.stdout.readline()
            assert line, process.communicate()
            said += line
        yield process, json.loads(said)
    finally:
        if process.poll() is None:
            process.terminate()  # it ends what it started
        process.communicate(timeout=30)


def test_serve_alone_runs_both_parties_and_devices_can_visit_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, ports = tmp_path / "demo", free_ports(2)
    trial.write_trial(folder, proxy_port=ports[0], server_port=ports[1], entropy=Entropy(), billing=True)
    market = folder / "market.toml"
    market.write_text(
        market.read_text()
        .replace("smallest_cohort = 5", "smallest_cohort = 1")
        .replace("levels = [[1, 1], [2, 2]]", "levels = [[1, 1]]")
    )
    proxy = folder / "proxy.toml"
    proxy.write_text(proxy.read_text().replace("hold_seconds = 2 ", "hold_seconds = 0 "))
    with serving("--out", str(folder)) as (process, said):
        assert said == {
            "folder": str(folder), "made": False, "ads": f"http://127.0.0.1:{ports[1]}",
            "page": f"http://127.0.0.1:{ports[1]}/", "console": f"http://127.0.0.1:{ports[1]}/console",
            "proxy": f"http://127.0.0.1:{ports[0]}",
        }  # fmt: skip
        assert main(["serve", "visit", str(folder), "--devices", "4", "--visits", "2", "--json"]) == 0
        seen = json.loads(capsys.readouterr().out)
        assert seen["lanes"] == {"public": 2, "personal": 6}, "one of four did not agree"
        assert (seen["epsilon"], seen["reports"], seen["settled"], seen["waiting"]) == (6.0, 8, 8, 0)
        assert sum(seen["batches"]) == 8
        assert main(["bill", "status", str(folder / "server.toml"), "--json"]) == 0
        charged = sum(each["charged_micros"] for each in json.loads(capsys.readouterr().out)["campaigns"])
        assert charged == seen["price_micros"]
        assert main(["serve", "visit", str(folder / "parties.toml"), "--devices", "2", "--visits", "1"]) == 0
        told = capsys.readouterr().out
        for words in ("What 2 devices showed", "What each party saw", "2 reports left in batches"):
            assert words in told
        assert main(["serve", "rotate", str(folder / "server.toml")]) == 0
        assert "with 8 menus, until" in capsys.readouterr().out
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
        out, errors = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in errors
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()  # nobody listens any more


@pytest.mark.slow
def test_a_party_that_ends_takes_the_other_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, ports = tmp_path / "demo", free_ports(2)
    trial.write_trial(folder, proxy_port=ports[0], server_port=ports[1], entropy=Entropy(), billing=True)
    (folder / "market.toml").write_text("nonsense")
    assert main(["serve", "--out", str(folder)]) == 2
    assert "expected ads of" in capsys.readouterr().err
    socket.create_server(("127.0.0.1", ports[0])).close()


def test_a_folder_is_made_once_with_ports_that_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(demonstration, "PROXY_PORT", taken.getsockname()[1])
        assert demonstration.prepare_folder(tmp_path / "demo", None, None, Entropy())
        made = load_parties(tmp_path / "demo" / "parties.toml")
        ports = {int(party.url.rpartition(":")[2]) for party in (made.proxy, made.server)}
        assert len(ports) == 2
        assert taken.getsockname()[1] not in ports
    assert not demonstration.prepare_folder(tmp_path / "demo", None, None, Entropy())
    with pytest.raises(BadInput, match=r"expected no port for .*demo, which is there already"):
        demonstration.prepare_folder(tmp_path / "demo", 1234, None, Entropy())
    with (
        socket.create_server(("127.0.0.1", min(ports))),
        pytest.raises(BadInput, match=rf"demo: expected port {min(ports)} of its settings to be free"),
    ):
        demonstration.prepare_folder(tmp_path / "demo", None, None, Entropy())
    given = free_ports(2)
    with (
        socket.create_server(("127.0.0.1", given[0])),
        pytest.raises(BadInput, match=rf"--proxy-port: expected a free port, got {given[0]}, which is in use"),
    ):
        demonstration.prepare_folder(tmp_path / "other", given[0], given[1], Entropy())
    assert not (tmp_path / "other").exists(), "refused before anything is made"
    demonstration.prepare_folder(tmp_path / "other", given[0], given[1], Entropy())
    assert load_parties(tmp_path / "other" / "parties.toml").proxy.url == f"http://127.0.0.1:{given[0]}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--proxy-port", "0"), "--proxy-port: expected 1 to 65535, got 0"),
        (("--out", "demo", "--server-port", "65536"), "--server-port: expected 1 to 65535, got 65536"),
        (("visit", "nowhere"), "nowhere: expected settings here, got no such file"),
        (("visit", "demo", "--devices", "0"), "--devices: expected 1 to 10000, got 0"),
        (("visit", "demo", "--visits", "10001"), "--visits: expected 1 to 10000, got 10001"),
        (("rotate", "nowhere"), "nowhere: expected settings here, got no such file"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    tmp_path: Path,
    words: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["serve", *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_where_nobody_listens_it_is_said_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, ports = tmp_path / "demo", free_ports(2)
    trial.write_trial(folder, proxy_port=ports[0], server_port=ports[1], entropy=Entropy(), billing=True)
    assert main(["serve", "visit", str(folder)]) == 2
    assert f"expected an answer from the proxy at http://127.0.0.1:{ports[0]}" in capsys.readouterr().err
    assert main(["serve", "rotate", str(folder / "server.toml")]) == 2
    assert f"expected an answer from the server at http://127.0.0.1:{ports[1]}" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["ads", "visit", "rotate"])
def test_help_teaches(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["serve", action, "--help"])
    assert end.value.code == 0
    assert len(capsys.readouterr().out) > 600
