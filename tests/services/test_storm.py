"""A thousand slow connections against the services as they run: honest callers keep 95% of their requests."""

from __future__ import annotations

import ssl
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tacit.services.rounds import AnnouncedRound
from tacit.services.signatures import Party
from tests.support.service_certificates import a_certificate
from tests.support.service_processes import Launcher, Parties, some_parties
from tests.support.service_worlds import GRANTED, a_round
from tests.support.storms import Slow, Storm, Target, asked, slowly_asked, storming

STRANGERS, SECONDS, LEAST_EACH = 1_000, 8, 10  # honest callers ask so long, and so often on any machine
HERE, THERE = "127.0.0.1", ("127.0.0.2", "127.0.0.3")


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    made = Launcher(tmp_path_factory.mktemp("launcher"))
    yield made
    made.end()


def honest_answers(target: Target, address: str, path: str) -> Counter[int]:
    """What four callers at a time are told, on a new connection each time."""
    end = time.monotonic() + SECONDS

    def ask(_number: int) -> Counter[int]:
        found: Counter[int] = Counter()
        while time.monotonic() < end or found.total() < LEAST_EACH:
            found[asked(target, address, path)] += 1
            time.sleep(0.02)
        return found

    with ThreadPoolExecutor(4) as callers:
        return sum(callers.map(ask, range(4)), Counter())


def with_tls(folder: Path, party: Party) -> ssl.SSLContext:
    a_certificate(folder / f"{party}.crt", folder / f"{party}.key")
    settings = folder / f"{party}.toml"
    spelled = settings.read_text()
    for key in ("certificate", "private_key"):
        spelled = spelled.replace(f"# {key}", key)
    settings.write_text(spelled)
    return ssl.create_default_context(cafile=str(folder / f"{party}.crt"))


def an_open_round(parties: Parties) -> str:
    """Its digest, in hexadecimal."""
    now = parties.clock()
    round = a_round(*parties.public(), opens=now, closes=now + 3_600)
    parties.grant(round, GRANTED)
    with httpx.Client(trust_env=False) as client:
        parties.operator(client).open_round(AnnouncedRound(round))
    return round.digest.hex()


def storm_on(target: Target, kind: Slow, address: str, path: str, told: int = 200) -> None:
    """Honest callers are `told` the same as on a quiet day."""
    assert asked(target, address, path) == told
    storm = Storm(target, kind, STRANGERS, THERE, again_seconds=2)
    with storming(storm, most_seconds=60):
        answers = honest_answers(target, address, path)
    print(f"{kind}; honest at {address}: {dict(answers)}; strangers: {storm.made} made, {dict(storm.ends)}")
    assert answers.total() >= 4 * LEAST_EACH
    assert answers[told] >= 0.95 * answers.total()
    assert storm.made >= STRANGERS
    assert storm.ends["reset"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("address", [HERE, THERE[0]], ids=["apart", "same address"])
@pytest.mark.parametrize("kind", [kind for kind in Slow if kind is not Slow.HANDSHAKE])
def test_a_storm_on_the_proxy(launcher: Launcher, tmp_path: Path, kind: Slow, address: str) -> None:
    with some_parties(launcher, tmp_path) as parties:
        parties.start(Party.SERVER, Party.PROXY)
        digest, port = an_open_round(parties), int(parties.urls[Party.PROXY].rpartition(":")[2])
        upload = f"/rounds/{digest}/reports/{'00' * 16}"
        storm_on(Target(port, short="/rounds", long="/rounds", upload=upload), kind, address, "/rounds")


@pytest.mark.slow
@pytest.mark.parametrize("address", [HERE, THERE[0]], ids=["apart", "same address"])
@pytest.mark.parametrize("kind", list(Slow))
def test_a_storm_on_the_server(launcher: Launcher, tmp_path: Path, kind: Slow, address: str) -> None:
    with some_parties(launcher, tmp_path) as parties:
        tls = with_tls(tmp_path, Party.SERVER) if kind is Slow.HANDSHAKE else None
        parties.start(Party.SERVER)
        port = int(parties.urls[Party.SERVER].rpartition(":")[2])
        # Of a round that nobody opened: looked up in the store, and within every limit, which /healthz is not.
        result = f"/rounds/{'00' * 32}/result"
        target = Target(port, long="/healthz", upload="/jobs", method="POST", tls=tls)
        storm_on(target, kind, address, result, told=404)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in Slow if kind is not Slow.HANDSHAKE])
def test_a_storm_from_a_thousand_addresses_on_the_proxy(launcher: Launcher, tmp_path: Path, kind: Slow) -> None:
    """Twenty devices on slow links share one address, and each stranger has one to itself."""
    with some_parties(launcher, tmp_path) as parties:
        parties.start(Party.SERVER, Party.PROXY)
        digest, port = an_open_round(parties), int(parties.urls[Party.PROXY].rpartition(":")[2])
        target = Target(port, short="/rounds", upload=f"/rounds/{digest}/reports/{'00' * 16}")
        addresses = tuple(f"127.1.{number // 250}.{number % 250 + 1}" for number in range(STRANGERS))
        storm = Storm(target, kind, STRANGERS, addresses, again_seconds=1)
        with storming(storm, most_seconds=60), ThreadPoolExecutor(20) as devices:
            time.sleep(2)
            answers = Counter(devices.map(lambda _: slowly_asked(target, HERE, 0.3), range(400)))
    print(f"{kind}; devices: {dict(answers)}; strangers: {storm.made} made, {dict(storm.ends)}")
    assert storm.made >= STRANGERS
    read_and_judged = (
        sum(count for status, count in answers.items() if status in range(400, 500)) - answers[408]
    )
    assert read_and_judged >= 0.95 * answers.total(), "five bytes are no report; who hears so was heard out"
