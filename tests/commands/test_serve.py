"""`tacit serve`: it teaches, says where it listens in one line, ends when asked, and refuses in one line."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tacit.cli import main
from tacit.gather.protocol import credentials
from tacit.gather.protocol.credentials import SealingKey
from tacit.services.ads.campaign_menus import read_campaign_market
from tacit.services.billing_settings import AdServerSettings
from tacit.services.http_clients import LinkFailed, fetch, open_client
from tacit.services.settings import load_settings
from tacit.services.signatures import Party
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.gather_server import SqlServerStore
from tacit.store.ledger import LedgerStore
from tests.support.service_certificates import a_certificate
from tests.support.service_processes import free_ports
from tests.support.service_worlds import a_round

TACIT = [sys.executable, "-m", "tacit.cli"]


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    proxy, server = free_ports(2)
    ports = ["--proxy-port", str(proxy), "--server-port", str(server)]
    assert main(["serve", "keys", "--out", str(tmp_path / "trial"), *ports]) == 0
    capsys.readouterr()
    return tmp_path / "trial"


@contextmanager
def serving(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the line that it says first."""
    process = subprocess.Popen(
        [*TACIT, "serve", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_a_party_says_where_it_listens_and_ends_when_asked(folder: Path) -> None:
    url = load_settings(folder / "server.toml", Party.SERVER).other.url
    with serving("proxy", TACIT_PROXY_SETTINGS=str(folder / "proxy.toml")) as (process, line):
        assert line == f"tacit proxy listens on {url}\n"
        assert httpx.get(f"{url}/healthz", trust_env=False).json()["status"] == "ok"
        os.kill(process.pid, signal.SIGTERM)
        out, errors = process.communicate(timeout=20)
    assert (process.returncode, out, errors) == (0, "", "")


def test_tls_by_a_certificate_in_the_settings(folder: Path) -> None:
    a_certificate(folder / "server.crt", folder / "server.key")
    a_certificate(folder / "other.crt", folder / "other.key")
    settings = folder / "server.toml"
    text = settings.read_text().replace("# certificate", "certificate").replace("# private_key", "private_key")
    settings.write_text(text)
    with serving("server", str(settings)) as (process, line):
        url = line.split()[-1]
        assert url.startswith("https://127.0.0.1:")
        with open_client(folder / "server.crt", 5) as client:
            assert fetch(client, client.build_request("GET", f"{url}/healthz")).status == 200
        with open_client(folder / "other.crt", 5) as client, pytest.raises(LinkFailed, match="ConnectError"):
            fetch(client, client.build_request("GET", f"{url}/healthz"))
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(20) == 0


def test_keys_tells_what_comes_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "keys", "--out", str(tmp_path / "a")]) == 0
    said = capsys.readouterr().out
    assert f"tacit serve proxy {tmp_path / 'a' / 'proxy.toml'}" in said
    assert main(["serve", "keys", "--out", str(tmp_path / "b"), "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert {Path(each).name for each in files} == {path.name for path in (tmp_path / "b").iterdir()}


def test_an_empty_set_has_nothing_made_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("full", "empty"):
        assert main(["serve", "keys", "--out", str(tmp_path / name), *(["--empty"] * (name == "empty"))]) == 0
    assert "tacit ads keys make operator --settings" in capsys.readouterr().out
    names = [{path.name for path in (tmp_path / name).iterdir()} for name in ("full", "empty")]
    assert names[0] - names[1] == {"campaigns.toml", "creatives.toml", "exchange.secret"}
    settings = load_settings(tmp_path / "empty" / "server.toml", Party.SERVER)
    assert isinstance(settings.billing, AdServerSettings)
    assert not settings.billing.synthetic
    assert read_campaign_market(settings.billing.market).campaigns is None


@pytest.mark.parametrize("party", ["proxy", "server"])
def test_status_lists_rounds(folder: Path, capsys: pytest.CaptureFixture[str], party: str) -> None:
    path, keys = folder / f"{party}.toml", [SealingKey.generate(), SealingKey.generate()]
    settings = load_settings(path, Party(party))
    store = (SqlProxyStore if party == "proxy" else SqlServerStore).open(settings.gathered)
    round = a_round(*keys)
    store.open_round(round.digest, round.task, round.level, round.to_bytes())
    assert main(["serve", "status", str(path), "--json"]) == 0
    [shown] = json.loads(capsys.readouterr().out)
    waiting = 0 if party == "proxy" else None
    assert (shown["task"], shown["phase"], shown["waiting"], shown["accepted"]) == ("trial", "open", waiting, 0)
    assert shown["needs"] == "a grant of epsilon 7200, delta 0 on scope clicks"
    LedgerStore.open(settings.ledger).grant(round.line, round.promise.cost)
    assert main(["serve", "status", str(path)]) == 0
    said = capsys.readouterr().out
    assert round.digest.hex() in said
    assert "2027-01-15 08:10:00 UTC" in said
    assert "a grant" not in said


def test_enrol_gives_a_device_all_that_it_needs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, name = str(folder / "proxy.toml"), "0123456789abcdef" * 2
    assert main(["serve", "enrol", path, name, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    enrolment = load_settings(folder / "proxy.toml", Party.PROXY).secrets["enrolment"]
    assert told["key"] == credentials.issue_device_key(enrolment, bytes.fromhex(name)).hex()
    keys = [
        load_settings(folder / f"{party}.toml", party).secrets["sealing"]
        for party in (Party.PROXY, Party.SERVER)
    ]
    public = [SealingKey.from_bytes(key).public.hex() for key in keys]
    assert [told["proxy_key"], told["server_key"]] == public
    assert main(["serve", "enrol", path]) == 0
    first, second = capsys.readouterr().out, (main(["serve", "enrol", path]), capsys.readouterr().out)[1]
    assert first.splitlines()[0] != second.splitlines()[0], "two devices of one name"
    assert main(["serve", "enrol", path, "nobody"]) == 2
    assert "DEVICE: expected 32 hexadecimal digits, got 6 characters" in capsys.readouterr().err


def test_a_second_process_on_a_store_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = load_settings(folder / "proxy.toml", Party.PROXY).gathered
    with Path(f"{store}.serving").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as a running proxy does
        assert main(["serve", "proxy", str(folder / "proxy.toml")]) == 2
    assert "store.gathered: expected a store that nobody else serves" in capsys.readouterr().err


def test_refusals_are_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pair.secret").chmod(0o644)
    cases = [
        (["serve", "proxy", str(folder / "nowhere.toml")], "expected settings here, got no such file"),
        (["serve", "proxy", str(folder / "proxy.toml")], "secrets.pair: expected a file that only its owner"),
        (["serve", "keys", "--out", str(folder)], "keys are never written over"),
        (
            ["serve", "keys", "--out", str(folder / "new"), "--proxy-port", "0"],
            "--proxy-port: expected 1 to 65535",
        ),
    ]
    for arguments, message in cases:
        assert main(arguments) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("tacit serve: ")
        assert message in said.err
        assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('host = "127.0.0.1"', 'host = "127.0.0.999"', "listen.host: expected a certificate"),
        ('gathered = "proxy.sqlite"', 'gathered = "mysql://a/b"', "store.gathered: "),
        ('gathered = "proxy.sqlite"', 'gathered = "nowhere/proxy.sqlite"', "store.gathered: "),
        ('ledger = "proxy-ledger.sqlite"', 'ledger = "mysql://a/b"', "store.ledger: "),
        ('questions = "questions"', 'questions = "pair.secret"', "store.questions: "),
    ],
)
def test_trouble_is_said_with_its_key(
    folder: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    path = folder / "proxy.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert main(["serve", "proxy", str(path)]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_a_port_in_use_is_said_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", load_settings(folder / "proxy.toml", Party.PROXY).listen.port)):
        assert main(["serve", "proxy", str(folder / "proxy.toml")]) == 2
    assert "listen: expected a free place to listen on, got 127.0.0.1:" in capsys.readouterr().err


def test_without_the_extra_it_says_which(folder: Path) -> None:
    script = (
        "import sys; sys.modules['uvicorn'] = None; from tacit.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", script, "serve", "proxy", str(folder / "proxy.toml")]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    said = "tacit serve: expected uvicorn to be installed: pip install 'tacit[serve]'\n"
    assert (found.returncode, found.stdout, found.stderr) == (2, "", said)
