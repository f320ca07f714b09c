"""Two processes over a real network, on SQLite, killed again and again: the sum is exact for the agreed set."""

from __future__ import annotations

import itertools
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

from service_processes import Launcher, Parties, some_parties
from service_worlds import a_round
from tacit.entropy import Entropy, Simulation
from tacit.errors import NotYet, Refused
from tacit.gather.client.reporting import MemoryOutbox, Reporter
from tacit.gather.wire import credentials
from tacit.gather.wire.closing import Result
from tacit.gather.wire.noise import ServerNoise
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.rounds import Round
from tacit.gather.wire.uploads import Upload, upload_bytes
from tacit.privacy.budget import Budget
from tacit.privacy.noise.discrete_gaussian import DiscreteGaussian
from tacit.services.announcing import Announced
from tacit.services.linking import HttpLink, HttpRounds, LinkFailed, result_of
from tacit.services.signing import Party
from tacit.services.uploading import HttpUploads, PublicKeys
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.gather_server import SqlServerStore
from tacit.store.ledger import LedgerStore

DEVICES, CELLS, STEP = 40, 50, 1_000

# Each server adds a discrete Gaussian of variance parameter 4, so both together are subgaussian with 8, and a
# cell is off by more than 20 with probability at most 2 exp(-20^2 / 16) = 3e-11. One report more or less
# changes most cells by at least STEP.
NOISE, MOST_OFF = ServerNoise(DiscreteGaussian(Fraction(4))), 20


def counts(device: int) -> NDArray[np.int64]:
    """Every device another row, of whole thousands."""
    return STEP * ((np.arange(CELLS, dtype=np.int64) * (device + 1)) % 7)


def rounds_closing_at(parties: Parties, *times: int) -> list[Round]:
    plain = a_round(*parties.public(), cells=CELLS, largest=10 * STEP, noise=NOISE, skew=0, smallest_batch=5)
    opens = int(time.time())
    return [replace(plain, level=level, opens=opens, closes=closes) for level, closes in enumerate(times)]


class Device:
    """A device with its own outbox; what became of its reports."""

    def __init__(self, parties: Parties, client: httpx.Client, number: int) -> None:
        self.number, self.outbox = number, MemoryOutbox()
        self.accepted, self.refusals = set[int](), set[Refusal]()
        self.name = Simulation(f"device {number}").bytes(16)
        key = credentials.issue(parties.settings(Party.PROXY).secrets["enrolment"], self.name)
        public = PublicKeys(*(key.public for key in parties.public()))
        self.uploads = HttpUploads(
            client, parties.urls[Party.PROXY], Reporter(self.name, key, Simulation(number), self.outbox),
            public, entropy=Simulation(number), sleep=time.sleep, attempts=40, first_pause_seconds=0.02,
        )  # fmt: skip

    def report(self) -> None:
        for announced in self.uploads.rounds():
            try:
                self.uploads.report(announced.round, counts(self.number))
                self.accepted.add(announced.round.level)
            except Refused as refused:
                self.refusals.add(refused.reason)

    def report_id(self, round: Round) -> bytes | None:
        kept = self.outbox.find(round.digest)
        return None if kept is None else Upload.from_bytes(kept).report_id


def wait_for_result(client: httpx.Client, parties: Parties, round: Round) -> Result:
    end = time.monotonic() + 30
    while True:
        try:
            return result_of(client, parties.urls[Party.SERVER], round.digest)
        except (NotYet, LinkFailed):
            assert time.monotonic() < end, "there never was a result"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    made = Launcher()
    yield made
    made.end()


def test_killed_again_and_again_the_sum_is_exact_and_the_result_stays(
    launcher: Launcher, tmp_path: Path
) -> None:
    pace = "look_every_ms = 50\njob_reports = 8"
    client = httpx.Client(timeout=5, trust_env=False)
    with client, some_parties(launcher, tmp_path / "trial", pace) as parties:
        began = time.time()
        parties.start(Party.SERVER, Party.PROXY)
        first = int(time.time() + 3 + 3 * (time.time() - began))  # on a slow machine all takes longer
        rounds = rounds_closing_at(parties, first, first + 1, first + 2)
        parties.grant(rounds[0], Budget.of(5, "1e-5"))
        for round in rounds:
            parties.operator(client).open_round(Announced(round))
        devices = [Device(parties, client, number) for number in range(DEVICES)]
        chance, killed = Simulation("kills"), list[Party]()

        def kill_now_and_then() -> None:
            """While reports come in, jobs go out, sets are agreed on and shares are on their way."""
            for party in itertools.cycle([Party.PROXY, Party.SERVER, Party.SERVER, Party.PROXY]):
                if time.time() > rounds[-1].closes + 0.5:
                    return
                time.sleep(0.05 + chance.uniform_below(500) / 1000)
                parties.kill(party)
                killed.append(party)
                parties.start(party)

        with ThreadPoolExecutor(9) as pool:
            killing = pool.submit(kill_now_and_then)
            list(pool.map(Device.report, devices))
            killing.result()
            results = [wait_for_result(client, parties, round) for round in rounds]
        assert min(killed.count(Party.PROXY), killed.count(Party.SERVER)) >= 2
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


def check(parties: Parties, devices: list[Device], rounds: list[Round], results: list[Result]) -> None:
    """Both parties have the same set, which has every answered report; the sum is its own; all is paid once."""
    proxy_store = SqlProxyStore.open(parties.settings(Party.PROXY).gathered)
    server_store = SqlServerStore.open(parties.settings(Party.SERVER).gathered)
    for round, result in zip(rounds, results, strict=True):
        accepted = list(proxy_store.accepted_ids(round.digest))
        assert accepted == list(server_store.accepted_ids(round.digest))
        counted = [device for device in devices if device.report_id(round) in accepted]
        assert len(counted) == len(accepted) == result.count >= round.smallest_batch
        answered = {device.number for device in devices if round.level in device.accepted}
        assert answered <= {device.number for device in counted}, "an upload that was answered is lost"
        off = result.values - sum(counts(device.number) for device in counted)
        assert np.abs(off).max() <= MOST_OFF
        assert off.any(), "there is no noise at all"
    # On a slow machine a report may come too late, or be asked about again after its round has closed.
    assert {reason for device in devices for reason in device.refusals} <= {Refusal.TOO_LATE}
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
        parties.start(Party.PROXY)
        yield parties


@pytest.fixture
def opened(lone_proxy: Parties) -> tuple[Parties, Round]:
    """A round that the server opened at the proxy."""
    [round] = rounds_closing_at(lone_proxy, int(time.time()) + 600)
    pair = lone_proxy.settings(Party.PROXY).secrets["pair"]
    round = replace(round, task=f"trial {Entropy().bytes(8).hex()}")
    with httpx.Client(trust_env=False) as client:
        HttpRounds(lone_proxy.calls(client, Party.SERVER, Party.PROXY, pair)).open_round(Announced(round))
    return lone_proxy, round


def test_a_wrong_pair_secret_is_refused(lone_proxy: Parties) -> None:
    [round] = rounds_closing_at(lone_proxy, int(time.time()) + 600)
    with httpx.Client(trust_env=False) as client, pytest.raises(LinkFailed, match="compare the secrets"):
        HttpRounds(lone_proxy.calls(client, Party.SERVER, Party.PROXY, bytes(32))).open_round(Announced(round))
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
        while not says_its_length and sent <= upload_bytes(round):
            connection.sendall(b"3e8\r\n" + bytes(1000) + b"\r\n")
            sent += 1000
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 413 ")
        while chunk := connection.recv(65536):  # to the end, which comes by itself
            answer += chunk
        assert b"tacit:oversized" in answer
