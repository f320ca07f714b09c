"""Parties that the billing suite asks: an ad server as a process, both in this one, a PostgreSQL of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from tacit.bill.in_process import BillingParties
from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.menus import Lane
from tacit.bill.protocol.offers import Offer, OfferRequest
from tacit.bill.protocol.tokens import blind, token_message
from tacit.entropy import Entropy
from tacit.errors import BillRefused
from tacit.schema.contexts.hierarchy import Node
from tacit.services.billing_clients import HttpAdChannel, HttpBatches
from tacit.services.http_clients import SignedClient, open_client
from tacit.services.launch import clock
from tacit.services.settings import load_parties, read_secret_file
from tacit.services.signatures import ExchangeKeys, Party
from tacit.services.trial import write_trial

PATIENCE_SECONDS = 60
NODE = Node((1, 1), ("North", "Food"))  # of the trial's market
SERVE = "import sys; from tacit.cli import main; sys.exit(main(sys.argv[1:]))"


class AskedServer:
    """An ad server and a proxy as processes, in a folder of their own, and signed calls as that proxy."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._entropy = folder, Entropy()
        ports = free_ports(2)
        write_trial(folder, proxy_port=ports[0], server_port=ports[1], entropy=self._entropy, billing=True)
        market = folder / "market.toml"
        market.write_text(market.read_text().replace("epoch_seconds = 60 ", "epoch_seconds = 86_400 "))
        campaigns = folder / "campaigns.toml"
        lines = campaigns.read_text().splitlines()
        limits = ("budget_micros", "daily_micros")  # without them, all tokens of a run can be paid for
        campaigns.write_text("\n".join(line for line in lines if not line.startswith(limits)) + "\n")
        settings = folder / "server.toml"
        settings.write_text(settings.read_text() + "\n[pacing]\nfirst_tokens = 1_000_000\n")
        self._running: list[subprocess.Popen[bytes]] = []
        self._client, self.port = open_client(None, 30), ports[1]

    def __enter__(self) -> Self:
        for party in ("proxy", "server"):
            command = [sys.executable, "-c", SERVE, "serve", "ads" if party == "server" else party]
            self._running.append(
                subprocess.Popen([*command, str(self._folder / f"{party}.toml")], stdout=subprocess.DEVNULL)
            )
        try:
            self._reach()
        except BaseException:
            self.__exit__()
            raise
        return self

    @property
    def process(self) -> int:
        """Of the ad server, while it runs."""
        return self._running[1].pid

    def _reach(self) -> None:
        known = load_parties(self._folder / "parties.toml")
        pair = read_secret_file("pair", self._folder / "pair.secret")
        exchange = ExchangeKeys.between(pair, caller=Party.PROXY, called=Party.SERVER)
        calls = SignedClient(self._client, known.server.url, exchange, entropy=self._entropy, clock=clock)
        self._calls, self._sealing = HttpBatches(calls), known.server.public_key
        channel = HttpAdChannel(self._client, known.proxy.url, entropy=self._entropy, sleep=time.sleep)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self._head = EpochHead.from_bytes(channel.head())
                break
            except (OSError, BillRefused):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        offer = self._ask(())
        assert offer.listed is not None
        self._key, self._menu_id = offer.listed.token_key, offer.listed.menu.menu_id
        message = token_message(self._entropy.bytes(32), self._menu_id)
        self._blinded = blind(self._key, message, self._entropy).blinded

    def _ask(self, blinded: tuple[bytes, ...], known: bytes = bytes(32), devices: int = 1) -> Offer:
        """The answer to one of several devices that ask for the same at once."""
        key = self._entropy.bytes(32)
        request = OfferRequest(self._head.epoch, Lane.PERSONAL, NODE, blinded, key, known)
        answers = self._calls.offers([request.sealed_to(self._sealing) for _ in range(devices)])
        return Offer.decrypted(answers[-1], key)

    def seconds_per_token(self, calls: int, devices: int, tokens: int) -> float:
        """The processor time of the ad server's process per token that it signs."""
        before = self._processor_seconds()
        for _ in range(calls):
            offer = self._ask((self._blinded,) * tokens, self._menu_id, devices)
            assert len(offer.signatures) == tokens
        return (self._processor_seconds() - before) / (calls * devices * tokens)

    def _processor_seconds(self) -> float:
        fields = Path(f"/proc/{self._running[1].pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __exit__(self, *_raised: object) -> None:
        self._client.close()
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait(PATIENCE_SECONDS)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


Answer = TypeVar("Answer")


class DistantParties:
    """A device's channel whose own work is not the device's: its processor time is taken apart."""

    def __init__(self, parties: BillingParties) -> None:
        self.parties, self.seconds = parties, 0.0

    def _apart(self, call: Callable[..., Answer], *arguments: bytes | int) -> Answer:
        began = time.process_time()
        try:
            return call(*arguments)
        finally:
            self.seconds += time.process_time() - began

    def head(self) -> bytes:
        return self._apart(self.parties.head)

    def offer(self, sealed: bytes) -> bytes:
        return self._apart(self.parties.offer, sealed)

    def report(self, report: bytes) -> None:
        self._apart(self.parties.report, report)

    def statement(self, nonce: bytes) -> bytes | None:
        return self._apart(self.parties.statement, nonce)

    def statements(self, epoch: int) -> list[bytes]:
        return self._apart(self.parties.statements, epoch)


@contextmanager
def temporary_postgres(databases: int) -> Iterator[list[str] | None]:
    """URLs of empty databases of a PostgreSQL that ends with this; None where its programs are not installed.

    It is durable as it comes: commits wait for the disk.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    if not found:
        yield None
        return
    programs, owner = found[0].parent, _owner()
    folder = Path(tempfile.mkdtemp(prefix="tacit-pg-"))  # sockets need a short path
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    options: dict[str, Any] = {"cwd": folder, "env": environment, **owner}
    try:
        if owner:
            os.chown(folder, owner["user"], owner["group"])
        initdb = [
            str(programs / "initdb"),
            "-D",
            str(folder / "data"),
            "-U",
            "tacit",
            "--auth=trust",
            "--encoding=UTF8",
        ]
        subprocess.run(initdb, check=True, capture_output=True, **options)
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", folder / "data", "-k", folder, "-c", "listen_addresses="],
                stdout=log, stderr=log, **options,
            )  # fmt: skip
        try:
            names = [f"bench_{number}" for number in range(databases)]
            for name in names:
                _create_database(programs, folder, name, options)
            yield [f"postgresql+psycopg://tacit@/{name}?host={folder}" for name in names]
        finally:
            server.send_signal(signal.SIGQUIT)
            server.wait(PATIENCE_SECONDS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _create_database(programs: Path, folder: Path, name: str, options: dict[str, Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    command = [str(programs / "createdb"), "-h", str(folder), "-U", "tacit", name]
    while subprocess.run(command, capture_output=True, check=False, **options).returncode:
        if time.monotonic() > deadline:
            raise TimeoutError("expected a PostgreSQL that answers, got none in a minute")
        time.sleep(0.1)


def _owner() -> dict[str, int]:
    """PostgreSQL refuses to run as root: as whom it runs instead."""
    if os.getuid() != 0:
        return {}
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = known.get("postgres") or known["nobody"]
    return {"user": entry.pw_uid, "group": entry.pw_gid}
