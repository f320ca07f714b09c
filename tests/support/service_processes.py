"""Both parties as processes of their own, on free ports of this machine; every one is ended by its id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tacit.entropy import Entropy
from tacit.gather.protocol.credentials import SealingKey
from tacit.gather.protocol.rounds import Round
from tacit.privacy.budget import Budget
from tacit.services import trial
from tacit.services.http_clients import HttpOperator, SignedClient
from tacit.services.settings import PartySettings, load_settings, read_secret_file
from tacit.services.signatures import ExchangeKeys, Party
from tacit.store.ledger import LedgerStore
from tests.support.repository import ROOT

PATIENCE_SECONDS = 30


def free_ports(count: int) -> list[int]:
    """Ports that nobody listened on a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def clock_of(ahead: Path) -> Callable[[], int]:
    """Whole seconds now, and as many more as the file says."""
    return lambda: int(time.time()) + int(ahead.read_text())


class Launcher:
    """The process that all others are forked from; see `service_launcher`, or another such module."""

    def __init__(self, folder: Path, module: str = "tests.support.service_launcher") -> None:
        self._ahead, self._seconds = folder / "seconds-ahead", 0
        self.pass_seconds(0)
        self.clock = clock_of(self._ahead)
        command = [sys.executable, "-m", module, str(self._ahead)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self.told("ready") == 0

    def pass_seconds(self, seconds: int) -> None:
        """Now, for all processes at once."""
        self._seconds += seconds
        new = self._ahead.with_suffix(".new")
        new.write_text(str(self._seconds))
        new.replace(self._ahead)

    def told(self, *words: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate(timeout=PATIENCE_SECONDS)


class Parties:
    """Processes by party, and what they said."""

    def __init__(self, launcher: Launcher, folder: Path, pace: str, *, billing: bool = False) -> None:
        proxy_port, server_port = free_ports(2)
        trial.write_trial(
            folder, proxy_port=proxy_port, server_port=server_port, entropy=Entropy(), billing=billing
        )
        self.folder = folder
        with (folder / "proxy.toml").open("a") as settings:
            settings.write(f"\n[pace]\n{pace}\n")
        self.urls = {
            Party.PROXY: f"http://127.0.0.1:{proxy_port}",
            Party.SERVER: f"http://127.0.0.1:{server_port}",
        }
        self._running: dict[Party, int] = {}
        self._launcher, self.clock = launcher, launcher.clock

    def settings(self, party: Party) -> PartySettings:
        return load_settings(self.folder / f"{party}.toml", party)

    def grant(self, round: Round, budget: Budget) -> None:
        for party in (Party.PROXY, Party.SERVER):
            LedgerStore.open(self.settings(party).ledger).grant(round.line, budget)

    def start(self, *parties: Party) -> None:
        """Start, and wait until each has said that it listens."""
        before = {party: self.out(party).count("\n") for party in parties}
        for party in parties:
            places = (self.folder / f"{party}.toml", self._said(party, "out"), self._said(party, "err"))
            self._running[party] = self._launcher.told("start", party, *places)
        end = time.monotonic() + PATIENCE_SECONDS
        while any(self.out(party).count("\n") == lines for party, lines in before.items()):
            assert time.monotonic() < end, [self.err(party) for party in parties]
            time.sleep(0.005)

    def kill(self, party: Party) -> None:
        """As a power cut would: nothing is said, nothing is put in order."""
        assert self._end(party, signal.SIGKILL) == -signal.SIGKILL

    def ask_to_end(self, party: Party) -> int:
        return self._end(party, signal.SIGTERM)

    def _end(self, party: Party, how: signal.Signals) -> int:
        process = self._running.pop(party)
        os.kill(process, how)
        return self._launcher.told("wait", process)

    def end(self) -> None:
        for party in list(self._running):
            self._end(party, signal.SIGKILL)

    def _said(self, party: Party, kind: str) -> Path:
        return self.folder / f"{party}.{kind}"

    def out(self, party: Party) -> str:
        place = self._said(party, "out")
        return place.read_text() if place.exists() else ""

    def err(self, party: Party) -> str:
        return self._said(party, "err").read_text()

    def public(self) -> list[SealingKey]:
        """Both sealing keys, of which the public halves are everybody's."""
        parties = (Party.PROXY, Party.SERVER)
        return [SealingKey.from_bytes(self.settings(party).secrets["sealing"]) for party in parties]

    def calls(self, client: httpx.Client, caller: Party, called: Party, secret: bytes) -> SignedClient:
        exchange = ExchangeKeys.between(secret, caller=caller, called=called)
        return SignedClient(client, self.urls[called], exchange, entropy=Entropy(), clock=self.clock)

    def operator(self, client: httpx.Client) -> HttpOperator:
        secret = read_secret_file("operator", self.folder / "operator.secret")
        return HttpOperator(self.calls(client, Party.OPERATOR, Party.SERVER, secret))


@contextmanager
def some_parties(
    launcher: Launcher, folder: Path, pace: str = "", *, billing: bool = False
) -> Iterator[Parties]:
    parties = Parties(launcher, folder, pace, billing=billing)
    try:
        yield parties
    finally:
        parties.end()
