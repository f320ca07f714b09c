"""`tacit serve open` and `result`: a round from its file to its counts, over two processes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tacit.cli import main
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.gather.client.reporter import MemoryDeviceStore, Reporter
from tacit.gather.protocol.rounds import Question
from tacit.services import launch, round_file, settings, trial
from tacit.services.http_clients import HttpUploads, PublicKeys
from tacit.services.rounds import AnnouncedRound, QuestionFiles
from tacit.services.settings import PartySettings, load_settings
from tacit.services.signatures import Party
from tacit.store.ledger import LedgerStore
from tests.support.service_processes import Launcher, Parties, free_ports, some_parties

ROUND = """\
task = "clicks by city"
scope = "clicks"
level = 0
cells = 4
hours = 0.01
parties = 100
smallest_batch = 3
epsilon = 50
events = 5
each = 2
levels = 2
noise = "servers"
skew = 0
"""
LASTS = 36  # 0.01 hours


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    made = Launcher(tmp_path_factory.mktemp("launcher"))
    yield made
    made.end()


@pytest.fixture
def running_parties(launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Parties]:
    monkeypatch.setattr(launch, "clock", launcher.clock)
    with some_parties(launcher, tmp_path / "trial", "look_every_ms = 30") as made:
        made.start(Party.SERVER, Party.PROXY)
        yield made


class Command:
    """`tacit serve`, with what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object) -> tuple[int, str]:
        self._capsys.readouterr()
        code = main(["serve", *map(str, words)])
        said = self._capsys.readouterr()
        return code, said.out + said.err

    def json(self, *words: object) -> tuple[int, dict[str, Any]]:
        code, said = self(*words, "--json")
        return code, json.loads(said)


@pytest.fixture
def serve(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def grant_as_told(said: str, ledger: str) -> None:
    """Run the command that a refusal ends with."""
    words = said.partition("tacit ledger grant ")[2].split()
    words[words.index("--ledger") + 1] = ledger
    assert main(["ledger", "grant", *words]) == 0


def report(told: dict[str, Any], values: list[int]) -> None:
    """What a device does with what `tacit serve enrol` printed."""
    name, key, proxy, server = (
        bytes.fromhex(str(told[each])) for each in ("device", "key", "proxy_key", "server_key")
    )
    reporter = Reporter(name, key, Entropy(), MemoryDeviceStore(), proxy_key=proxy, server_key=server)
    with httpx.Client(trust_env=False) as client:
        uploads = HttpUploads(
            client, str(told["proxy_url"]), reporter, PublicKeys(proxy, server),
            entropy=Entropy(), sleep=lambda _: None,
        )  # fmt: skip
        for announced in uploads.rounds():
            uploads.report(announced.round, np.array(values))


def settled(serve: Command, server: Path, level: int) -> tuple[int, dict[str, Any]]:
    """What `tacit serve result` says once it is no longer "not yet"."""
    end = time.monotonic() + 30
    while (found := serve.json("result", server, "clicks by city", level))[1]["status"] == "not-yet":
        assert time.monotonic() < end, "it was never settled"
        time.sleep(0.02)
    return found


def test_from_a_file_to_counts(running_parties: Parties, launcher: Launcher, serve: Command) -> None:
    folder = running_parties.folder
    server, proxy, asked = folder / "server.toml", folder / "proxy.toml", folder / "round.toml"
    asked.write_text(ROUND)

    code, said = serve("open", server, asked, "--dry-run")
    assert code == 0
    assert "would open gather/clicks by city/0" in said
    assert not asked.with_suffix(".round").exists()

    code, said = serve("open", server, asked)  # neither ledger grants anything: each refusal says what to do
    assert (code, said.count("\n")) == (2, 1)
    assert "server: its ledger cannot pay for this round" in said
    grant_as_told(said, running_parties.settings(Party.SERVER).ledger)
    code, said = serve("open", server, asked)
    assert code == 2
    assert "proxy: its ledger cannot pay for this round" in said
    grant_as_told(said, running_parties.settings(Party.PROXY).ledger)
    code, opened = serve.json("open", server, asked)
    assert (code, opened["opened"], opened["cells"], opened["epsilon"]) == (0, True, 4, 50.0)
    code, again = serve.json("open", server, asked)  # the very same round
    assert (code, again) == (0, opened)

    for _ in range(3):
        _, told = serve.json("enrol", proxy)
        report(told, [2, 0, 1, 0])
    assert serve("result", server, "clicks by city", 0) == (1, "not yet: there is no result yet: come again\n")
    assert serve.json("result", server, opened["digest"])[1]["status"] == "not-yet"
    launcher.pass_seconds(LASTS)
    code, shown = settled(serve, server, 0)
    assert (code, shown["status"], shown["count"]) == (0, "released", 3)
    # Noise of standard deviation s on each count: beyond 12 s with less than 1e-20 by its discrete Gaussian.
    off = np.abs(np.array(shown["values"]) - [6, 0, 3, 0])
    assert off.max() <= 12 * float(shown["noise_variance"]) ** 0.5
    code, said = serve("result", server, opened["digest"])
    assert code == 0
    assert "3 reports; each count has noise of standard deviation" in said

    second = folder / "second.toml"
    second.write_text(ROUND.replace("level = 0", "level = 1").replace("cells = 4", "cells = 9"))
    assert serve("open", server, second)[0] == 0
    launcher.pass_seconds(LASTS)
    code, shown = settled(serve, server, 1)
    assert (code, shown["status"], shown["count"], shown["smallest"]) == (1, "too-few", 0, 3)
    code, said = serve("open", server, second)
    assert code == 2
    assert "expected a round that is still to close, got one that has closed" in said
    third = folder / "third.toml"
    third.write_text(ROUND.replace("level = 0", "level = 2"))
    code, said = serve("open", server, third)
    assert code == 2
    assert "expected a level below the 2 levels of the run, got 2" in said


def test_a_round_that_cannot_go_on_is_given_up_at_each_party(running_parties: Parties, serve: Command) -> None:
    folder = running_parties.folder
    server, proxy, asked = folder / "server.toml", folder / "proxy.toml", folder / "round.toml"
    asked.write_text(ROUND)
    for party in (Party.SERVER, Party.PROXY):
        grant_as_told(serve("open", server, asked)[1], running_parties.settings(party).ledger)
    assert serve("open", server, asked)[0] == 0
    _, told = serve.json("enrol", proxy)
    report(told, [2, 0, 1, 0])
    code, said = serve("stop", proxy, "clicks by town", 0)
    assert code == 2
    assert "expected a round of the proxy, got clicks by town 0: its tasks are clicks by city" in said
    code, stopped = serve.json("stop", proxy, "clicks by city", 0)
    assert (code, stopped["phase"]) == (0, "stopped")
    until = time.monotonic() + 30
    while "stopped" not in serve("status", proxy)[1] or _rounds_offered(told):
        assert time.monotonic() < until, "devices are still asked"
        time.sleep(0.02)
    code, said = serve("stop", proxy, "clicks by city", 0)
    assert (code, "expected clicks by city 0 to be open or closed, got stopped" in said) == (2, True)
    assert serve("stop", server, "clicks by city", 0) == (
        0, "clicks by city 0 is given up at the server: too-few, nothing of it will leave\n"
    )  # fmt: skip
    assert serve.json("result", server, "clicks by city", 0)[1]["status"] == "too-few"
    for party in (Party.SERVER, Party.PROXY):
        ledger = LedgerStore.open(running_parties.settings(party).ledger)
        assert [each.spent.epsilon_nanos for each in ledger.overview().accounts.values()] == [0]


def _rounds_offered(told: dict[str, Any]) -> list[AnnouncedRound]:
    keys = PublicKeys(bytes.fromhex(str(told["proxy_key"])), bytes.fromhex(str(told["server_key"])))
    reporter = Reporter(
        bytes.fromhex(str(told["device"])), bytes.fromhex(str(told["key"])), Entropy(), MemoryDeviceStore(),
        proxy_key=keys.proxy, server_key=keys.server,
    )  # fmt: skip
    with httpx.Client(trust_env=False) as client:
        uploads = HttpUploads(
            client, str(told["proxy_url"]), reporter, keys, entropy=Entropy(), sleep=lambda _: None
        )
        return list(uploads.rounds())


def test_a_server_that_does_not_answer_is_said_in_one_line(tmp_path: Path, serve: Command) -> None:
    proxy, server = free_ports(2)
    trial.write_trial(tmp_path / "trial", proxy_port=proxy, server_port=server, entropy=Entropy())
    settings, asked = tmp_path / "trial" / "server.toml", tmp_path / "round.toml"
    asked.write_text(ROUND)
    calls: list[tuple[object, ...]] = [
        ("open", settings, asked),
        ("result", settings, "clicks", 0),
        ("result", settings, "00" * 32),
    ]
    for words in calls:
        code, said = serve(*words)
        assert (code, said.count("\n")) == (2, 1)
        assert f"expected an answer from the server at http://127.0.0.1:{server}, got none: Connect" in said
    cases: list[tuple[tuple[object, ...], str]] = [
        (("result", settings, "clicks"), "expected a digest of 64 hexadecimal digits, or a task and a level"),
        (("open", settings, tmp_path / "none.toml"), "expected settings here, got no such file"),
        (("open", settings.with_name("proxy.toml"), asked), "expected a server's settings, got a proxy's"),
        (("open", settings, asked, "--parties", asked), "task: expected one of proxy, server, got the unknown"),
    ]
    for words, message in cases:
        code, said = serve(*words)
        assert (code, said.count("\n")) == (2, 1)
        assert message in said


TOTALS = Question((1,), np.array([3, 5]), np.zeros(3, np.int64), np.zeros(0, np.int64))


@pytest.fixture
def known(tmp_path: Path) -> tuple[PartySettings, settings.Parties]:
    trial.write_trial(tmp_path / "trial", proxy_port=1, server_port=2, entropy=Entropy())
    folder = tmp_path / "trial"
    return load_settings(folder / "server.toml", Party.SERVER), settings.load_parties(folder / "parties.toml")


def read(
    known: tuple[PartySettings, settings.Parties], path: Path, now: int = 1_000
) -> round_file.PlannedRound:
    return round_file.read_round_file(path, known[1], check=bytes(range(32)), now=now)


def test_what_a_file_says_is_what_is_asked(
    known: tuple[PartySettings, settings.Parties], tmp_path: Path
) -> None:
    path = tmp_path / "round.toml"
    path.write_text(ROUND)
    round = read(known, path).round
    assert (round.opens, round.closes, round.cells, round.question) == (1_000, 1_000 + LASTS, 4, bytes(32))
    assert (round.promise.events, round.promise.each, round.promise.levels) == (5, 2, 2)
    assert (round.proxy_key, round.server_key) == (known[1].proxy.public_key, known[1].server.public_key)
    assert (round.bounds, round.check) == (None, bytes(32))
    round.expect_promise_kept()
    path.write_text(ROUND + "proof = true\n")
    proving = read(known, path).round
    assert proving.bounds is not None
    assert (proving.bounds.each, proving.bounds.total, proving.check) == (2, 10, bytes(range(32)))
    path.write_text(ROUND.replace('"servers"', '"users"') + 'silent = 0.1\ndelta = 1e-5\nlaw = "skellam"\n')
    by_users = read(known, path).round
    assert by_users.noise.device_law is not None
    assert float(by_users.promise.delta) == 1e-5
    question = Question((1,), np.array([3, 5]), np.array([0, 1, 2]), np.array([7, 7]))
    (tmp_path / "question").write_bytes(question.to_bytes())
    path.write_text(ROUND.replace("cells = 4", 'question = "question"'))
    asked = read(known, path)
    assert (asked.round.cells, asked.announced.question) == (question.cells, question.to_bytes())
    (tmp_path / "question").write_bytes(TOTALS.to_bytes())
    path.write_text(ROUND.replace("cells = 4", 'question = "question"\ntotals_only = true'))
    totals = read(known, path)
    assert (totals.round.cells, totals.round.most_in_all) == (2, 5)
    assert totals.options[0].sd < asked.options[0].sd
    assert totals.plan.law is totals.options[0].law
    path.write_text(path.read_text() + 'law = "discrete-gaussian"\n')
    assert read(known, path).plan.law == "discrete-gaussian"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cells = 4", "", "cells: expected either cells or question, got both or neither"),
        ("cells = 4", 'cells = 4\nquestion = "q"', "cells: expected either cells or question"),
        ("cells = 4", 'question = "nowhere"', "question: expected a file at .*nowhere, got no such file"),
        (
            "cells = 4",
            'question = "round.toml"',
            "question: expected the bytes of a Question in ",
        ),
        ("cells = 4", "cells = 0", "expected cells to be a whole number >= 1, got 0"),
        ("hours = 0.01", "hours = 0", "expected hours > 0, got 0"),
        ("hours = 0.01", "hours = 1e9", "hours: expected at most"),
        ("epsilon = 50", "", "epsilon: expected a value, got no such key"),
        ("epsilon = 50", 'epsilon = "much"', "expected epsilon to be a finite number"),
        ("each = 2", "each = 6", "expected each <= events = 5, got 6"),
        ('"servers"', '"nobody"', "expected NoiseBy to be one of servers, users, got 'nobody'"),
        ("each = 2", 'law = "uniform"', "expected CountNoiseLaw to be one of discrete-gaussian, skellam"),
        ("each = 2", "totals_only = 1", "totals_only: expected true or false, got 1"),
        ("level = 0", "levle = 0", "levle: expected one of .*did you mean 'level'"),
        ("smallest_batch = 3", "smallest_batch = 101", "expected smallest_batch <= parties = 100, got 101"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_in_one_line(
    known: tuple[PartySettings, settings.Parties], tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = tmp_path / "round.toml"
    assert old in ROUND
    path.write_text(ROUND.replace(old, new))
    with pytest.raises(BadInput, match=message) as caught:
        read(known, path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def at_once(*calls: Any) -> list[Any]:
    """What they return, begun at the same moment in a thread each."""
    start = threading.Barrier(len(calls))

    def run(call: Any) -> Any:
        start.wait(10)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


def test_threads_of_one_process_keep_one_question(tmp_path: Path) -> None:
    questions = QuestionFiles(tmp_path / "questions")
    for number in range(1, 31):
        digest, question = bytes([number]) * 32, bytes([number]) * 100_000
        at_once(*[partial(questions.keep, digest, question)] * 4)
        assert questions.find(digest) == question
    assert len(list((tmp_path / "questions").iterdir())) == 30


def test_threads_of_one_process_open_one_round(
    known: tuple[PartySettings, settings.Parties], tmp_path: Path
) -> None:
    (tmp_path / "round.toml").write_text(ROUND)
    asked = [read(known, tmp_path / "round.toml", now=1_000 + number) for number in range(4)]
    folder = tmp_path / "rounds"
    folder.mkdir()
    for number in range(30):
        path = folder / f"round-{number}.toml"
        opened = at_once(*[partial(round_file.keep_round, each, path) for each in asked])
        assert len({each.round.digest for each in opened}) == 1
    assert {each.suffix for each in folder.iterdir()} == {".round"}


def test_what_was_opened_is_asked_for_again_and_nothing_else(
    known: tuple[PartySettings, settings.Parties], tmp_path: Path
) -> None:
    path = tmp_path / "round.toml"
    path.write_text(ROUND)
    first = round_file.keep_round(read(known, path, now=1_000), path)
    later = replace(first.round, opens=1_010, closes=1_010 + LASTS)
    again = round_file.keep_round(replace(first, announced=AnnouncedRound(later)), path)
    assert again.announced == first.announced
    assert {each.name for each in tmp_path.iterdir()} == {"trial", "round.toml", "round.round"}
    for other in (replace(later, cells=5), replace(later, closes=later.closes + 1), replace(later, skew=1)):
        with pytest.raises(BadInput, match="a round never changes; ask for another one in a file of its own"):
            round_file.keep_round(replace(first, announced=AnnouncedRound(other)), path)
    path.with_suffix(".round").write_bytes(b"something")
    with pytest.raises(BadInput, match="expected the round that was opened, got other bytes"):
        round_file.keep_round(first, path)


@pytest.mark.parametrize("secret", [":tr0ub4dor@127.0.0.1:1/ads", "@127.0.0.1:1/ads?password=tr0ub4dor"])
def test_a_grant_that_is_missing_is_told_without_the_ledgers_password(
    running_parties: Parties, tmp_path: Path, serve: Command, secret: str
) -> None:
    """The operator reads the server's settings, and is told how to grant what its ledger lacks."""
    settings, asked = (running_parties.folder / "server.toml").read_text(), tmp_path / "round.toml"
    asked.write_text(ROUND)
    mine = running_parties.folder / "operator.toml"
    place = f'ledger = "postgresql+psycopg://tacit{secret}"\nwitness = "w"'
    mine.write_text(settings.replace('ledger = "server-ledger.sqlite"', place))
    for more in ((), ("--json",)):
        code, said = serve("open", mine, asked, *more)
        assert code == 2
        assert "tr0ub4dor" not in said
        assert "tacit ledger grant --ledger 'postgresql+psycopg://tacit" in said
