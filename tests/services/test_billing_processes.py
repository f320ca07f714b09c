"""Ad server and proxy as processes of their own, over real sockets: killed, restarted, on both stores."""

from __future__ import annotations

import fcntl
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from sqlalchemy import make_url

from tacit.cli import main
from tacit.entropy import Entropy
from tacit.services.billing_clients import HttpAdChannel, HttpBillingOperator
from tacit.services.http_clients import LinkFailed, open_client
from tacit.services.settings import load_parties, load_settings
from tacit.services.signatures import Party
from tests.support.billing_fleets import Fleet, change, charges, wait_until
from tests.support.ledger_places import administer
from tests.support.listed_market import LISTED_MARKET
from tests.support.service_certificates import a_certificate
from tests.support.service_processes import Launcher, Parties, some_parties

EPOCH_SECONDS = 600


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    made = Launcher(tmp_path_factory.mktemp("launcher"))
    yield made
    made.end()


@pytest.fixture
def parties(launcher: Launcher, tmp_path: Path) -> Iterator[Parties]:
    with some_parties(launcher, tmp_path / "trial", "look_every_ms = 30", billing=True) as made:
        market = made.folder / "market.toml"
        head, *menus = LISTED_MARKET.split("[[menu]]")
        market.write_text(
            "[[menu]]".join([head, menus[0], menus[3]])  # HERE and THERE: keys take long to draw
            .replace("epoch_seconds = 60 ", f"epoch_seconds = {EPOCH_SECONDS} ")
            .replace("smallest_cohort = 5 ", "smallest_cohort = 3 ")
        )
        change(made, Party.PROXY, "hold_seconds = 2 ", "hold_seconds = 0 ")
        with (made.folder / "server.toml").open("a") as settings:
            settings.write("\n[pace]\nlook_every_ms = 30\n")
        yield made


def operator(parties: Parties, client: httpx.Client) -> HttpBillingOperator:
    secret = parties.settings(Party.SERVER).secrets["operator"]
    return HttpBillingOperator(parties.calls(client, Party.OPERATOR, Party.SERVER, secret))


def assert_nothing_private_was_said(parties: Parties) -> None:
    """No traceback, address, nonce, key or secret in what either party wrote."""
    for party in (Party.PROXY, Party.SERVER):
        said = parties.out(party) + parties.err(party)
        assert "Traceback" not in said
        assert "unexpected" not in said
        assert "127.0.0.1" not in parties.err(party)
        assert not re.search("[0-9a-f]{32}", said)
        for secret in parties.settings(party).secrets.values():
            assert secret.hex() not in said


def drive_through_restarts(parties: Parties, launcher: Launcher, count: int) -> None:
    """Impressions while both parties are killed, in the middle of an epoch and over its end; then the bill."""
    with httpx.Client(timeout=5, trust_env=False) as client, ThreadPoolExecutor(6) as pool:
        parties.start(Party.SERVER, Party.PROXY)
        fleet = Fleet(parties, client)
        head = fleet.wait_for_epoch()
        visits = [pool.submit(fleet.visit, number) for number in range(count)]
        for party in (Party.PROXY, Party.SERVER):
            parties.kill(party)
            parties.start(party)
        for each in visits:
            each.result()
        assert fleet.wait_for_epoch().to_bytes() == head.to_bytes(), "an epoch that is out never changes"
        launcher.pass_seconds(EPOCH_SECONDS)
        assert fleet.wait_for_epoch().epoch > head.epoch
        list(pool.map(fleet.visit, range(count)))
        parties.kill(Party.SERVER)
        parties.start(Party.SERVER)
        launcher.pass_seconds(2 * EPOCH_SECONDS + 600)  # all cohorts leave, however small
        wait_until(lambda: charges(parties)[0] == 2 * count)
        assert charges(parties) == (len(fleet.prices), sum(fleet.prices))
        status = operator(parties, client).status()
        assert (status["impressions"], status["charged_micros"]) == charges(parties)
        invoices = operator(parties, client).close_invoices()
        assert sum(each["total_micros"] for each in invoices) == sum(fleet.prices)
        settled = [device.settle(parties.clock()) for device in fleet.devices]
        assert not sum(each.waiting for each in settled)
    for party in (Party.PROXY, Party.SERVER):
        assert parties.ask_to_end(party) == 0
    assert_nothing_private_was_said(parties)


def test_killed_in_the_middle_of_an_epoch_charges_are_what_was_shown(
    parties: Parties, launcher: Launcher
) -> None:
    drive_through_restarts(parties, launcher, 12)


@pytest.mark.slow
def test_the_same_on_postgresql(parties: Parties, launcher: Launcher, postgres_server: str) -> None:
    url = make_url(postgres_server)
    for party, name, before in (
        (Party.SERVER, "ads", "ads.sqlite"),
        (Party.PROXY, "reports", "reports.sqlite"),
    ):
        administer(postgres_server, f"DROP DATABASE IF EXISTS served_{name}")
        administer(postgres_server, f"CREATE DATABASE served_{name}")
        place = url.set(database=f"served_{name}").render_as_string(hide_password=False)
        change(parties, party, f'store = "{before}"', f'store = "{place}"')
    drive_through_restarts(parties, launcher, 6)


def test_over_tls_by_certificates_in_the_settings(parties: Parties) -> None:
    folder = parties.folder
    for party, other in ((Party.PROXY, Party.SERVER), (Party.SERVER, Party.PROXY)):
        a_certificate(folder / f"{party}.crt", folder / f"{party}.key")
        for old, new in (
            ("# certificate", "certificate"),
            ("# private_key", "private_key"),
            ("# trust", "trust"),
        ):
            change(parties, party, old, new)
        change(parties, other, f"url = \"http://127.0.0.1:{parties.urls[party].rpartition(':')[2]}\"",
               f"url = \"https://127.0.0.1:{parties.urls[party].rpartition(':')[2]}\"")  # fmt: skip
    known = (folder / "parties.toml").read_text().replace("http://", "https://")
    for name in ("proxy", "server"):
        known = known.replace(f"[{name}]\n", f'[{name}]\ntrust = "{name}.crt"\n')
    (folder / "parties.toml").write_text(known)
    parties.start(Party.SERVER, Party.PROXY)
    with open_client(folder / "proxy.crt", 5) as client:
        fleet = Fleet(parties, client)
        fleet.wait_for_epoch()
        for number in (1, 3, 5):
            fleet.visit(number)
        wait_until(lambda: charges(parties)[0] == 3)
        assert charges(parties) == (3, sum(fleet.prices))
    with open_client(folder / "server.crt", 5) as client, pytest.raises(LinkFailed):
        HttpAdChannel(client, load_parties(folder / "parties.toml").proxy.url, entropy=Entropy(),
                      sleep=lambda _: None).head()  # fmt: skip


def test_an_ad_server_alone_says_once_what_it_waits_for(parties: Parties) -> None:
    parties.start(Party.SERVER)
    words = "the proxy did not countersign an epoch, will ask again: ConnectError"
    wait_until(lambda: words in parties.err(Party.SERVER))
    time.sleep(0.5)
    assert parties.err(Party.SERVER).count(words) == 1
    parties.start(Party.PROXY)
    with httpx.Client(timeout=5, trust_env=False) as client:
        Fleet(parties, client).wait_for_epoch()
    wait_until(lambda: "epochs are opened again" in parties.err(Party.SERVER))
    assert parties.ask_to_end(Party.SERVER) == 0


def test_a_second_process_on_a_billing_store_is_refused(
    parties: Parties, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = load_settings(parties.folder / "server.toml", Party.SERVER)
    assert settings.billing is not None
    with Path(f"{settings.billing.store}.serving").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as a running ad server does
        assert main(["serve", "ads", str(parties.folder / "server.toml")]) == 2
    assert "billing.store: expected a store that nobody else serves" in capsys.readouterr().err
