"""Two processes over a real network, on SQLite, killed again and again: the sum is exact for the agreed set."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.entropy import Entropy, Simulation
from tacit.errors import NotYet, Refused
from tacit.gather.client.reporter import MemoryDeviceStore, Reporter
from tacit.gather.protocol import credentials
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.messages import RoundResult
from tacit.gather.protocol.noise import ServerNoise
from tacit.gather.protocol.promises import Promise
from tacit.gather.protocol.rounds import Round
from tacit.gather.protocol.uploads import Upload, upload_size
from tacit.privacy.budget import Budget
from tacit.privacy.noise.distributions import DiscreteLaplace
from tacit.services.http_clients import HttpLink, HttpRounds, HttpUploads, LinkFailed, PublicKeys
from tacit.services.rounds import AnnouncedRound
from tacit.services.signatures import Party
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.gather_server import SqlServerStore
from tacit.store.ledger import LedgerStore
from tests.support.service_processes import Launcher, Parties, some_parties
from tests.support.service_worlds import a_round, fetch_result

DEVICES, CELLS, STEP, LASTS = 40, 20, 1_000, 40
EVENTS, EACH = CELLS * 7 * STEP, 10 * STEP

# Each server adds discrete Laplace noise of scale 1: P(|noise| > 40) = 2 q^41 / (1 + q) < 3e-18, q = 1/e, so
# both together are off by more than 80 with less than 6e-18 a cell. One report more or less changes most cells
# by at least STEP.
NOISE, MOST_OFF = ServerNoise(DiscreteLaplace(Fraction(1))), 80
PROMISE = Promise(EVENTS, EACH, 2, Fraction(4 * EVENTS), Fraction(0))
GRANT = Budget.of(10**8)


def counts(device: int) -> NDArray[np.int64]:
    """Every device another row, of whole thousands."""
    return STEP * ((np.arange(CELLS, dtype=np.int64) * (device + 1)) % 7)


def some_rounds(parties: Parties, count: int) -> list[Round]:
    """Open from now, until LASTS seconds have passed."""
    now = parties.clock()
    plain = a_round(
        *parties.public(), cells=CELLS, noise=NOISE, promise=PROMISE, opens=now, closes=now + LASTS, skew=0,
        smallest_batch=5,
    )  # fmt: skip
    return [replace(plain, task=f"run {number}") for number in range(count)]


class Device:
    """A device with its own outbox; what became of its reports."""

    def __init__(self, parties: Parties, client: httpx.Client, number: int) -> None:
        self.number, self.outbox = number, MemoryDeviceStore()
        self.accepted, self.refusals = set[str](), set[MessageVerdict]()
        self.name = Simulation(f"device {number}").bytes(16)
        key = credentials.issue_device_key(parties.settings(Party.PROXY).secrets["enrolment"], self.name)
        public = PublicKeys(*(key.public for key in parties.public()))
        reporter = Reporter(
            self.name, key, Simulation(number), self.outbox,
            proxy_key=public.proxy, server_key=public.server, simulated=True,
        )  # fmt: skip
        self.uploads = HttpUploads(
            client, parties.urls[Party.PROXY], reporter, public,
            entropy=Simulation(number), sleep=lambda pause: time.sleep(min(pause, 0.2)), attempts=200,
            first_pause_seconds=0.02,
        )  # fmt: skip

    def report(self) -> None:
        for announced in self.uploads.rounds():
            try:
                self.uploads.report(announced.round, counts(self.number))
                self.accepted.add(announced.round.task)
            except Refused as refused:
                self.refusals.add(refused.reason)

    def report_id(self, round: Round) -> bytes | None:
        kept = self.outbox.find(round.digest)
        return None if kept is None else Upload.from_bytes(kept).report_id


def wait_for_result(client: httpx.Client, parties: Parties, round: Round) -> RoundResult:
    end = time.monotonic() + 30
    while True:
        try:
            return fetch_result(client, parties.urls[Party.SERVER], round.digest)
        except (NotYet, LinkFailed):
            assert time.monotonic() < end, "there never was a result"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    made = Launcher(tmp_path_factory.mktemp("launcher"))
    yield made
    made.end()


def test_killed_again_and_again_the_sum_is_exact_and_the_result_stays(
    launcher: Launcher, tmp_path: Path
) -> None:
    """Killed a fixed number of times: while reports come in and jobs go out, and, once the rounds have closed,
    while sets are agreed on and shares are on their way. Nothing waits for a clock: the rounds close when all
    reports are in."""
    pace = "look_every_ms = 30\njob_reports = 8"
    client = httpx.Client(timeout=5, trust_env=False)
    with client, some_parties(launcher, tmp_path / "trial", pace) as parties:
        rounds = some_rounds(parties, 2)
        parties.grant(rounds[0], GRANT)
        parties.start(Party.SERVER, Party.PROXY)
        for round in rounds:
            parties.operator(client).open_round(AnnouncedRound(round))
        devices = [Device(parties, client, number) for number in range(DEVICES)]
        chance = Simulation("kills")

        def kill(*order: Party) -> None:
            for party in order:
                time.sleep(chance.uniform_below(120) / 1000)
                parties.kill(party)
                parties.start(party)

        with ThreadPoolExecutor(9) as pool:
            killing = pool.submit(kill, Party.PROXY, Party.SERVER, Party.PROXY)
            list(pool.map(Device.report, devices))
            killing.result()
        launcher.pass_seconds(LASTS)
        kill(Party.SERVER, Party.PROXY, Party.SERVER)
        results = [wait_for_result(client, parties, round) for round in rounds]
        check(parties, devices, rounds, results)

        parties.kill(Party.SERVER)
        parties.start(Party.SERVER)
        again = [wait_for_result(client, parties, round) for round in rounds]
        assert [each.to_bytes() for each in again] == [each.to_bytes() for each in results]
        assert parties.ask_to_end(Party.PROXY) == 0
        assert parties.ask_to_end(Party.SERVER) == 0
        for party in (Party.PROXY, Party.SERVER):
            said = parties.out(party) + parties.err(party)
            assert "Traceback" not in said
            assert "unexpected" not in said
            assert not [device for device in devices if device.name.hex() in said]
            assert "127.0.0.1" not in parties.err(party)


def check(parties: Parties, devices: list[Device], rounds: list[Round], results: list[RoundResult]) -> None:
    """Both parties have the same set, which has every answered report; the sum is its own; all is paid once."""
    proxy_store = SqlProxyStore.open(parties.settings(Party.PROXY).gathered)
    server_store = SqlServerStore.open(parties.settings(Party.SERVER).gathered)
    for round, result in zip(rounds, results, strict=True):
        accepted = list(proxy_store.accepted_ids(round.digest))
        assert accepted == list(server_store.accepted_ids(round.digest))
        counted = [device for device in devices if device.report_id(round) in accepted]
        assert len(counted) == len(accepted) == result.count
        answered = {device.number for device in devices if round.task in device.accepted}
        assert answered == {device.number for device in counted} == set(range(DEVICES))
        off = result.values - sum(counts(device.number) for device in counted)
        assert np.abs(off).max() <= MOST_OFF
        assert off.any(), "there is no noise at all"
    assert not [reason for device in devices for reason in device.refusals]
    spent = sum((round.cost for round in rounds), Budget.NOTHING)
    for party in (Party.PROXY, Party.SERVER):
        ledger = LedgerStore.open(parties.settings(party).ledger)
        end = time.monotonic() + 10
        while (account := ledger.account(rounds[0].line)) is None or account.spent.budget != spent:
            assert time.monotonic() < end, "the proxy never heard of the release"
            time.sleep(0.02)
        assert account.reserved.budget == Budget.NOTHING


@pytest.fixture(scope="module")
def lone_proxy(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    with some_parties(launcher, tmp_path_factory.mktemp("lone") / "trial") as parties:
        parties.grant(some_rounds(parties, 1)[0], GRANT)
        parties.start(Party.PROXY)
        yield parties


@pytest.fixture
def opened(lone_proxy: Parties) -> tuple[Parties, Round]:
    """A round that the server opened at the proxy."""
    [round] = some_rounds(lone_proxy, 1)
    pair = lone_proxy.settings(Party.PROXY).secrets["pair"]
    round = replace(round, task=f"trial {Entropy().bytes(8).hex()}")
    with httpx.Client(trust_env=False) as client:
        HttpRounds(lone_proxy.calls(client, Party.SERVER, Party.PROXY, pair)).open_round(AnnouncedRound(round))
    return lone_proxy, round


def test_a_wrong_pair_secret_is_refused(lone_proxy: Parties) -> None:
    [round] = some_rounds(lone_proxy, 1)
    with httpx.Client(trust_env=False) as client, pytest.raises(LinkFailed, match="compare the secrets"):
        HttpRounds(lone_proxy.calls(client, Party.SERVER, Party.PROXY, bytes(32))).open_round(
            AnnouncedRound(round)
        )
    with httpx.Client(trust_env=False) as client, pytest.raises(LinkFailed, match="ConnectError"):
        HttpLink(lone_proxy.calls(client, Party.PROXY, Party.SERVER, bytes(32))).job(b"")


@pytest.mark.parametrize("says_its_length", [True, False])
def test_an_oversized_upload_is_refused_unread(opened: tuple[Parties, Round], says_its_length: bool) -> None:
    """One that says its length, before any of it is sent; one that does not, soon after it is too long."""
    parties, round = opened
    url = httpx.URL(parties.urls[Party.PROXY])
    length = "Content-Length: 10000000000" if says_its_length else "Transfer-Encoding: chunked"
    head = f"PUT /rounds/{round.digest.hex()}/reports/{'00' * 16} HTTP/1.1\r\nHost: proxy\r\n{length}\r\n\r\n"
    with socket.create_connection((url.host, url.port or 0), timeout=10) as connection:
        connection.sendall(head.encode())
        sent = 0
        while not says_its_length and sent <= upload_size(round):
            connection.sendall(b"3e8\r\n" + bytes(1000) + b"\r\n")
            sent += 1000
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 413 ")
        while chunk := connection.recv(65536):  # to the end, which comes by itself
            answer += chunk
        assert b"tacit:oversized" in answer
