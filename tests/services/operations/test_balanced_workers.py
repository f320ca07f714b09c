"""The load balancer of deploy/compose, for real: two ad servers behind HAProxy with our configuration."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from tacit.services.signatures import Party
from tests.support.ad_workers import AdWorkers, some_workers
from tests.support.billing_fleets import Fleet, wait_until
from tests.support.haproxies import CONFIGURATION, Haproxy, adapted
from tests.support.service_certificates import a_certificate
from tests.support.service_processes import Launcher

NORTH = {"context": ["1:North", "1:Food"]}


@pytest.fixture(scope="module")
def haproxy() -> str:
    found = shutil.which("haproxy") or shutil.which("/usr/sbin/haproxy")
    if found is None:
        pytest.skip("HAProxy is not installed here (apt-get install haproxy): its configuration is not tried")
    return found


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    made = Launcher(tmp_path_factory.mktemp("launcher"))
    yield made
    made.end()


@pytest.fixture(scope="module")
def workers(
    launcher: Launcher, tmp_path_factory: pytest.TempPathFactory, postgres_server: str, haproxy: str
) -> Iterator[AdWorkers]:
    folder = tmp_path_factory.mktemp("balanced")
    balance = partial(Haproxy, haproxy, folder)
    with some_workers(launcher, folder / "trial", postgres_server, balance) as made:
        made.parties.start(Party.PROXY)
        for worker in ("first", "second"):
            made.start(worker)
        yield made


def test_the_configuration_is_one_that_haproxy_takes(haproxy: str, tmp_path: Path) -> None:
    a_certificate(tmp_path / "server.crt", tmp_path / "server.crt.key")
    path = tmp_path / "haproxy.cfg"
    path.write_text(adapted(CONFIGURATION.read_text(), tmp_path, 1, 2, 4, ["http://127.0.0.1:3"] * 2))
    done = subprocess.run([haproxy, "-c", "-f", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stdout + done.stderr


def test_devices_are_served_by_whichever_worker_is_ready(workers: AdWorkers) -> None:
    assert isinstance(workers.balancer, Haproxy)
    with httpx.Client(timeout=10, trust_env=False) as client:
        fleet = Fleet(workers.parties, client)
        fleet.wait_for_epoch()
        fleet.visit(1)
        assert workers.ask_to_end("first") == 0  # it drains, and /readyz says so
        wait_until(lambda: workers.urls["first"] not in workers.balancer.ready())
        for _ in range(10):
            assert client.get(f"{workers.balanced}/menus", params=NORTH).status_code == 200
        fleet.visit(2)
        workers.kill("second")
        workers.start("first")
        assert client.get(f"{workers.balanced}/menus", params=NORTH).status_code == 200
        fleet.visit(3)
        workers.start("second")
        assert len(fleet.prices) >= 3


def test_a_killed_worker_costs_no_request(workers: AdWorkers) -> None:
    """Those that it would have got go to the other one, before it is known to be gone."""
    with httpx.Client(timeout=10, trust_env=False) as client:
        workers.kill("first")
        told = [client.get(f"{workers.balanced}/menus", params=NORTH).status_code for _ in range(20)]
        workers.start("first")
    assert set(told) == {200}


def test_it_ends_tls_by_its_certificate(workers: AdWorkers) -> None:
    balancer = workers.balancer
    assert isinstance(balancer, Haproxy)
    trust = ssl.create_default_context(cafile=str(balancer.folder / "server.crt"))
    with httpx.Client(verify=trust, trust_env=False) as client:
        url = f"https://127.0.0.1:{balancer.secured}"
        assert client.get(f"{url}/readyz").json() == {"status": "ready"}
        assert client.get(f"{url}/metrics").status_code == 404


def test_wrong_keys_are_limited_by_address(workers: AdWorkers) -> None:
    with httpx.Client(timeout=10, trust_env=False) as client:
        wrong = {"authorization": "Bearer no-key"}
        told = [client.get(f"{workers.balanced}/ads/whoami", headers=wrong).status_code for _ in range(70)]
        assert (told[0], told[59], told[-1]) == (401, 401, 429)
        assert client.get(f"{workers.balanced}/menus", params=NORTH).status_code == 200


def from_address(address: str) -> httpx.Client:
    """A client whose requests come from another address of this machine."""
    return httpx.Client(timeout=10, transport=httpx.HTTPTransport(local_address=address))


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("127.0.0.11", "/%61ds/whoami"), ("127.0.0.12", "/ads/advertisers/x%2Fy"),
        ("127.0.0.13", "/ads/%77hoami"), ("127.0.0.14", "/ads/advertisers/B%C3%A4cker%20%26%20S."),
    ],
)  # fmt: skip
def test_no_spelling_of_a_path_escapes_the_limit(workers: AdWorkers, address: str, path: str) -> None:
    """The worker decodes it, and asks for a key."""
    with from_address(address) as client:
        wrong = {"authorization": "Bearer no-key"}
        told = [client.get(f"{workers.balanced}{path}", headers=wrong).status_code for _ in range(70)]
    assert (told[0], told[59], told[-1]) == (401, 401, 429)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/metrics", 404), ("/%6detrics", 404), ("/%6D%65trics", 404), ("/metrics/", 404), ("/metrics%00", 400),
        ("/ads%2fwhoami", 400), ("/ads/%2E%2e/metrics", 400), ("/ads/whoami%", 400), ("/ads/whoami%4", 400),
        ("/ads/whoami%zz", 400), ("/ads/whoami%4g", 400), ("/%00ads/whoami", 400), ("/metrics#", 400),
        ("/readyz", 200),
    ],
)  # fmt: skip
def test_a_path_has_one_reading(workers: AdWorkers, path: str, status: int) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: ads\r\nConnection: close\r\n\r\n".encode()
    assert answered(workers.balanced, request).startswith(f"HTTP/1.1 {status} ".encode())


def answered(url: str, request: bytes) -> bytes:
    """What comes back to bytes that are sent as they are."""
    host, port = httpx.URL(url).host, httpx.URL(url).port
    with socket.create_connection((host, port or 80), timeout=10) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_a_connection_is_one_request_at_a_time(workers: AdWorkers) -> None:
    """Neither by asking for HTTP/2 nor by just speaking it does anybody get a hundred at once."""
    balancer = workers.balancer
    assert isinstance(balancer, Haproxy)
    trust = ssl.create_default_context(cafile=str(balancer.folder / "server.crt"))
    trust.set_alpn_protocols(["h2", "http/1.1"])
    settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    with (
        socket.create_connection(("127.0.0.1", balancer.secured), timeout=10) as plain,
        trust.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        assert connection.selected_alpn_protocol() == "http/1.1"
        connection.sendall(settings)
        assert connection.recv(9).startswith(b"HTTP/1.1 ")
    assert answered(workers.balanced, settings).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("host", "path", "table", "last"),
    [
        (1, "/menus", "keyless_requests", 6_000), (2, "/openapi.json", "keyless_requests", 6_000),
        (3, "/%6fpenapi.json", "keyless_requests", 6_000), (4, "/nothing", "keyless_requests", 6_000),
        (5, "/openrtb/notice/x", "notices", 60_000),
    ],
)  # fmt: skip
def test_whatever_needs_no_key_is_limited_by_address(
    workers: AdWorkers, host: int, path: str, table: str, last: int
) -> None:
    balancer = workers.balancer
    assert isinstance(balancer, Haproxy)
    for place, (before, limited) in enumerate([(last - 100, False), (last + 100, True)]):
        address = f"127.0.{place + 1}.{host}"
        said = balancer.command(f"set table {table} key ::ffff:{address} data.http_req_rate {before}")
        assert not said.strip()
        with from_address(address) as client:
            assert (client.get(f"{workers.balanced}{path}").status_code == 429) is limited


def test_a_network_of_ipv6_is_one_address(workers: AdWorkers) -> None:
    balancer = workers.balancer
    assert isinstance(balancer, Haproxy)

    def ask(address: str) -> bytes:
        relayed = f"PROXY TCP6 {address} 2001:db8::1 4000 8472\r\n"
        request = (
            "GET /ads/whoami HTTP/1.1\r\nHost: ads\r\nAuthorization: Bearer x\r\nConnection: close\r\n\r\n"
        )
        return answered(f"http://127.0.0.1:{balancer.relayed}", (relayed + request).encode())[9:12]

    told = [ask(f"2001:db8:0:7:{number:x}::1") for number in range(1, 71)]
    assert (told[0], told[59], told[-1]) == (b"401", b"401", b"429")
    assert ask("2001:db8:0:8::1") == b"401"
