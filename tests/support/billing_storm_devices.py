"""Devices of a storm over billing as processes: several in each, with journals on disk, until they are killed.

Also the program that starts them and the parties: it loads all code once, and forks a process for each
(`service_launcher`). A line in, a line out:

    ready                           ->  0
    start PARTY SETTINGS OUT ERR    ->  the id of a party's process
    devices FOLDER FIRST COUNT ERR  ->  the id of a process with these devices
    wait PID                        ->  its exit code, negative for a signal

What a person sees is written down when it is rendered, line by line, in a file that outlives the process. What
devices are to do stands in the file `phase` of their folder: `storm`, `drain` (go on with what is under way,
and begin nothing) or `end`.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.journal import OPEN
from tacit.deliver.device.outcomes import ShownAd
from tacit.deliver.device.parties import PartyKeys
from tacit.entropy import Entropy
from tacit.errors import BillRefused
from tacit.services import billing_launch, launch
from tacit.services.billing_clients import HttpAdChannel
from tacit.store.device_journal import SqlDeviceJournal
from tests.support.billing_storm_checks import Sight
from tests.support.billing_storm_town import PLACES, MarkedRates, settings_of
from tests.support.service_launcher import start
from tests.support.service_processes import clock_of

SIGHTS, PHASE, PARTIES = "sights", "phase", "devices.json"
PAUSE_SECONDS, TIMEOUT_SECONDS = 0.02, 3.0


def address_of(number: int) -> str:
    """Where a device calls from: on this machine, and found wherever it was written down."""
    return f"127.71.93.{number + 1}"


def journal_path(folder: Path, number: int) -> Path:
    return folder / f"device-{number}.sqlite"


def status_path(folder: Path, first: int) -> Path:
    return folder / f"devices-{first}.status"


class StormDevice:
    """A device whose person is always looking."""

    def __init__(self, folder: Path, number: int, clock: Callable[[], int]) -> None:
        self.number, self._folder, self._clock = number, folder, clock
        told = json.loads((folder / PARTIES).read_text())
        keys = PartyKeys(*(bytes.fromhex(told[name]) for name in ("sealing", "server", "proxy")))
        client = httpx.Client(
            transport=httpx.HTTPTransport(local_address=address_of(number), trust_env=False),
            timeout=TIMEOUT_SECONDS, trust_env=False, headers={"connection": "close"},
        )  # fmt: skip
        entropy = Entropy()
        channel = HttpAdChannel(
            client, told["url"], entropy=entropy, sleep=time.sleep, attempts=2,
            first_pause_seconds=PAUSE_SECONDS,
        )  # fmt: skip
        self.journal = SqlDeviceJournal.open(journal_path(folder, number))
        self._device = AdDevice(settings_of(number), keys, self.journal, channel, entropy)
        self._sights = os.open(folder / SIGHTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with suppress(OSError):
            self._device.recover(clock())

    def live(self, phase: str) -> None:
        """Show an ad, if it may begin something, and go on with all that is under way."""
        with suppress(OSError):
            if phase == "storm":
                self._show()
            else:
                self._device.recover(self._clock())
            self._device.send_reports(self._clock())
            self._device.settle(self._clock())

    def _show(self) -> None:
        place = PLACES[self.number % 2].partition(">")[2]
        try:
            self._device.show((place,), MarkedRates(self.number), self._clock(), render=self._render)
        except BillRefused as refused:
            if refused.reason.name != "STALE_EPOCH":
                raise

    def _render(self, ad: ShownAd) -> None:
        os.write(self._sights, sight_line(Sight.of(f"device-{self.number}", ad)).encode())


def sight_line(sight: Sight) -> str:
    words = (sight.device, sight.nonce.hex(), sight.menu_id.hex(), sight.index, sight.price_micros)
    return " ".join(map(str, words)) + "\n"


def read_sights(folder: Path) -> list[Sight]:
    found, path = [], folder / SIGHTS
    for line in path.read_text().splitlines() if path.exists() else ():
        device, nonce, menu_id, index, price = line.split()
        found.append(Sight(device, bytes.fromhex(nonce), bytes.fromhex(menu_id), int(index), int(price)))
    return found


def run_devices(folder: Path, first: int, count: int, clock: Callable[[], int]) -> None:
    """Live until told to end, saying after every round in which phase it was, and what is under way."""
    devices = [StormDevice(folder, number, clock) for number in range(first, first + count)]
    rounds, parent = 0, os.getppid()
    while (phase := (folder / PHASE).read_text()) != "end" and os.getppid() == parent:
        for device in devices:
            device.live(phase)
        rounds += 1
        states = Counter(
            record.state.name for device in devices for record in device.journal.impressions(tuple(OPEN))
        )
        written = status_path(folder, first).with_suffix(".new")
        written.write_text(json.dumps({"phase": phase, "rounds": rounds, "now": clock(), **states}))
        written.replace(status_path(folder, first))
        time.sleep(PAUSE_SECONDS)


def fork_devices(folder: str, first: str, count: str, errors: str, clock: Callable[[], int]) -> int:
    process = os.fork()
    if process:
        return process
    for stream, path in ((0, os.devnull), (1, os.devnull), (2, errors)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), stream)
    code = 70
    try:
        run_devices(Path(folder), int(first), int(count), clock)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def serve() -> None:
    clock = clock_of(Path(sys.argv[1]))
    assert billing_launch.__name__, "loaded once, here, and not by every party"
    launch.clock = clock
    for line in sys.stdin:
        words: list[Any] = line.split()
        match words:
            case ["ready"]:
                print(0, flush=True)
            case ["start", party, settings, out, errors]:
                print(start(party, settings, out, errors), flush=True)
            case ["devices", folder, first, count, errors]:
                print(fork_devices(folder, first, count, errors, clock), flush=True)
            case ["wait", process]:
                print(os.waitstatus_to_exitcode(os.waitpid(int(process), 0)[1]), flush=True)


if __name__ == "__main__":  # and not when its docstrings are looked at for examples
    serve()
