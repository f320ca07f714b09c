"""Two ad servers on one PostgreSQL database behind a load balancer, and a proxy that knows that alone."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

import httpx
from sqlalchemy import URL, make_url

from tacit.services.signatures import Party
from tests.support.billing_fleets import change, wait_until
from tests.support.ledger_places import administer
from tests.support.listed_market import LISTED_MARKET
from tests.support.service_processes import PATIENCE_SECONDS, Launcher, Parties, free_ports, some_parties

EPOCH_SECONDS = 600
ASK_SECONDS = 0.05
OWNS = "this process does the work that one does for all"
PASSED_ON = ("content-type", "accept", "tacit-time", "tacit-nonce", "tacit-digest", "tacit-signature")


class Balancer(Protocol):
    """What the proxy knows as the ad server: `refused` are requests that no worker answered as it should."""

    refused: list[str]

    def ready(self) -> set[str]:
        """The workers that it sends requests to."""

    def end(self) -> None: ...


class LoadBalancer:
    """Hands each request to the next worker whose /readyz is well, and to another if it does not answer."""

    def __init__(self, port: int, workers: list[str]) -> None:
        self._workers, self._turn = workers, itertools.count()
        self._ready: set[str] = set()
        self.refused: list[str] = []  # what no worker answered, and what a worker that was ready failed at
        self._client = httpx.Client(timeout=5, trust_env=False)
        self._ended = threading.Event()
        balancer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                found = balancer.send(self.command, self.path, self.headers, body)
                self.send_response(found.status_code)
                for name in ("content-type", "tacit-signature"):
                    if name in found.headers:
                        self.send_header(name, found.headers[name])
                self.send_header("content-length", str(len(found.content)))
                self.end_headers()
                self.wfile.write(found.content)

            do_GET = do_POST = answer  # noqa: N815 (as the library calls them)

            def log_message(self, *_said: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._threads = [
            threading.Thread(target=self._server.serve_forever, args=(0.05,)),
            threading.Thread(target=self._look),
        ]
        for each in self._threads:
            each.start()

    def _look(self) -> None:
        while not self._ended.wait(ASK_SECONDS):
            for worker in self._workers:
                well = False
                with suppress(httpx.TransportError):
                    well = self._client.get(f"{worker}/readyz").status_code == 200
                (self._ready.add if well else self._ready.discard)(worker)

    def ready(self) -> set[str]:
        return set(self._ready)

    def send(self, method: str, path: str, headers: Any, body: bytes) -> httpx.Response:
        kept = {name: headers[name] for name in PASSED_ON if name in headers}
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            ready = sorted(self.ready())
            if not ready:
                time.sleep(ASK_SECONDS)
                continue
            worker = ready[next(self._turn) % len(ready)]
            try:
                found = self._client.request(method, f"{worker}{path}", headers=kept, content=body)
            except httpx.TransportError:  # killed, or gone before it was asked: another one answers
                self._ready.discard(worker)
                continue
            if found.status_code >= 400:
                self.refused.append(f"{method} {path} {found.status_code} {found.text[:200]}")
            return found
        self.refused.append(f"{method} {path}: nobody answered")
        return httpx.Response(503)

    def end(self) -> None:
        self._ended.set()
        self._server.shutdown()
        for each in self._threads:
            each.join()
        self._server.server_close()
        self._client.close()


class AdWorkers:
    """The proxy and two ad servers, `first` and `second`, each ended by its id."""

    def __init__(
        self,
        launcher: Launcher,
        parties: Parties,
        databases: URL,
        balance: Callable[[int, list[str]], Balancer] = LoadBalancer,
    ) -> None:
        self.parties, self._launcher, self._running = parties, launcher, dict[str, int]()
        folder, (balanced, other) = parties.folder, free_ports(2)
        first = parties.urls[Party.SERVER]
        self.urls = {"first": first, "second": f"http://127.0.0.1:{other}"}
        market = folder / "market.toml"
        head, *menus = LISTED_MARKET.split("[[menu]]")
        market.write_text(
            "[[menu]]".join([head, menus[0], menus[3]])  # HERE and THERE: keys take long to draw
            .replace("epoch_seconds = 60 ", f"epoch_seconds = {EPOCH_SECONDS} ")
            .replace("smallest_cohort = 5 ", "smallest_cohort = 3 ")
        )
        for key, name, before in (("store", "ads", "ads.sqlite"), ("gathered", "gathered", "server.sqlite")):
            administer(
                databases.render_as_string(hide_password=False), f"DROP DATABASE IF EXISTS workers_{name}"
            )
            administer(databases.render_as_string(hide_password=False), f"CREATE DATABASE workers_{name}")
            place = databases.set(database=f"workers_{name}").render_as_string(hide_password=False)
            change(parties, Party.SERVER, f'{key} = "{before}"', f'{key} = "{place}"')
        with (folder / "server.toml").open("a") as settings:
            settings.write("\n[pace]\nlook_every_ms = 30\ndrain_seconds = 1\n")
        port = first.rpartition(":")[2]
        change(parties, Party.PROXY, "hold_seconds = 2 ", "hold_seconds = 0 ")
        change(parties, Party.PROXY, f'"{first}"', f'"http://127.0.0.1:{balanced}"')
        shutil.copy(folder / "server.toml", folder / "first.toml")
        told = (folder / "server.toml").read_text().replace(f"port = {port}\n", f"port = {other}\n")
        (folder / "second.toml").write_text(told)
        known = (folder / "parties.toml").read_text()
        (folder / "parties.toml").write_text(known.replace(first, f"http://127.0.0.1:{balanced}"))
        self.balanced = f"http://127.0.0.1:{balanced}"
        self.balancer = balance(balanced, list(self.urls.values()))

    def start(self, worker: str, revisions: Path | None = None) -> None:
        """Start, and wait until the load balancer sends requests there."""
        said = [self.parties.folder / f"{worker}.{kind}" for kind in ("out", "err")]
        for each in said:
            each.unlink(missing_ok=True)
        words = [] if revisions is None else [revisions]
        settings = self.parties.folder / f"{worker}.toml"
        self._running[worker] = self._launcher.told("start", "ads", settings, *said, *words)
        wait_until(lambda: self.urls[worker] in self.balancer.ready())

    def ask_to_end(self, worker: str) -> int:
        return self._end(worker, signal.SIGTERM)

    def kill(self, worker: str) -> None:
        assert self._end(worker, signal.SIGKILL) == -signal.SIGKILL

    def _end(self, worker: str, how: signal.Signals) -> int:
        process = self._running.pop(worker)
        os.kill(process, how)
        return self._launcher.told("wait", process)

    def said(self, worker: str) -> str:
        return (self.parties.folder / f"{worker}.err").read_text()

    def owners(self) -> list[str]:
        return [worker for worker in self._running if OWNS in self.said(worker)]

    def end(self) -> None:
        for worker in list(self._running):
            self._end(worker, signal.SIGKILL)
        self.balancer.end()


@contextmanager
def some_workers(
    launcher: Launcher,
    folder: Path,
    server: str,
    balance: Callable[[int, list[str]], Balancer] = LoadBalancer,
) -> Iterator[AdWorkers]:
    with some_parties(launcher, folder, "look_every_ms = 30", billing=True) as parties:
        workers = AdWorkers(launcher, parties, make_url(server), balance)
        try:
            yield workers
        finally:
            workers.end()
