"""Both parties as child processes, from a folder of trial files: what `tacit serve` without an action runs."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tacit.deliver.campaigns.access import AccessRole, make_key
from tacit.deliver.campaigns.store import MACHINE, Author
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.files import write_new_files
from tacit.services.settings import load_parties, load_settings
from tacit.services.signatures import Party
from tacit.services.trial import write_trial
from tacit.store.billing_ads import SqlAdStore
from tacit.store.campaigns import SqlCampaignStore

COMMAND = (sys.executable, "-m", "tacit.cli", "serve")
PARTIES = {"ads": "server.toml", "proxy": "proxy.toml"}
PROXY_PORT, SERVER_PORT = 8471, 8472
KEY_FILE = "operator.key"
ENDING_SECONDS = 20
LOOK_SECONDS = 0.2


def prepare_folder(folder: Path, proxy_port: int | None, server_port: int | None, entropy: Entropy) -> bool:
    """Make the folder's files, unless they are there: then ports are those of its settings. Whether it did."""
    if (folder / "server.toml").exists():
        if proxy_port is not None or server_port is not None:
            raise BadInput(f"expected no port for {folder}, which is there already and says which, got one")
        parties = load_parties(folder / "parties.toml")
        for party in (parties.proxy, parties.server):
            port = urlsplit(party.url).port
            if port is not None and not _is_free(port):
                raise BadInput(f"{folder}: expected port {port} of its settings to be free, got one in use")
        return False
    ports = _free_ports(proxy_port, server_port)
    write_trial(folder, proxy_port=ports[0], server_port=ports[1], entropy=entropy, billing=True)
    _write_key(folder, entropy)
    return True


def has_page(folder: Path) -> bool:
    """Whether the ad server of a folder serves the page of a demonstration, at `/`."""
    return load_settings(folder / PARTIES["ads"], Party.SERVER).is_demonstration


def _write_key(folder: Path, entropy: Entropy) -> None:
    """An operator's access key, for the console and the API: known to the store, and spelled in a file."""
    now = int(time.time())
    spelled, kept = make_key(AccessRole.OPERATOR, None, entropy.bytes, now=now)
    with closing(SqlAdStore.open(folder / "ads.sqlite")) as store:
        SqlCampaignStore(store.database).add_key(kept, Author(MACHINE, now))
    write_new_files(folder, {KEY_FILE: (f"{spelled}\n".encode(), True)})


def _free_ports(proxy: int | None, server: int | None) -> tuple[int, int]:
    """As given; else the usual ones, where they are free, or any that are."""
    for name, port in (("--proxy-port", proxy), ("--server-port", server)):
        if port is not None and not _is_free(port):
            raise BadInput(f"{name}: expected a free port, got {port}, which is in use")
    ports = []
    for given, usual in ((proxy, PROXY_PORT), (server, SERVER_PORT)):
        ports.append(given if given is not None else usual if _is_free(usual) and usual not in ports else 0)
    held = [socket.create_server(("127.0.0.1", 0)) for port in ports if port == 0]
    free = iter([each.getsockname()[1] for each in held])
    for each in held:
        each.close()
    found = [port or next(free) for port in ports]
    return found[0], found[1]


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@contextmanager
def running_parties(folder: Path) -> Iterator[dict[str, tuple[subprocess.Popen[str], str]]]:
    """Both parties, each with the line in which it said where it listens; ended when this ends."""
    started: dict[str, subprocess.Popen[str]] = {}
    try:
        for party, file in PARTIES.items():
            command = [*COMMAND, party, str(folder / file)]
            # A group of their own: Ctrl-C is for us, and we ask them once.
            started[party] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0)
        found = {}
        for party, process in started.items():
            assert process.stdout is not None, "it is a pipe"
            line = process.stdout.readline().strip()
            if not line:
                raise BadInput(f"expected {party} of {folder} to listen, got an end: its own words are above")
            found[party] = process, line
        yield found
    finally:
        _end(started)


def wait_for_an_end(processes: dict[str, subprocess.Popen[str]]) -> str:
    """The party that ended by itself, if one ever does."""
    while True:
        for party, process in processes.items():
            if process.poll() is not None:
                return party
        time.sleep(LOOK_SECONDS)


def _end(processes: dict[str, subprocess.Popen[str]]) -> None:
    """As they were started: each is asked, and killed if it does not listen."""
    for process in processes.values():
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes.values():
        try:
            process.communicate(timeout=ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
