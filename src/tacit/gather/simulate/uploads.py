"""The uploads of blocks of devices: good ones by the client's own code, bad ones by changing good ones.

Blocks are made here or by other processes that are a few blocks ahead.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from tacit import expect
from tacit.entropy import Simulation
from tacit.errors import GatherError
from tacit.gather.client.reporter import MemoryDeviceStore, Reporter
from tacit.gather.protocol.credentials import TAG_BYTES, PartyRole, issue_device_key, report_tag, seal
from tacit.gather.protocol.groups import Group
from tacit.gather.protocol.rounds import REPORT_ID_BYTES, Round, report_binding
from tacit.gather.protocol.sharing import sharing_scheme
from tacit.gather.protocol.uploads import Upload
from tacit.gather.simulate.population import SHIFT, Behaviour, DeviceBlock, Population
from tacit.privacy.randomness import Source

Clock = Callable[[], float]
"""Seconds from some moment on; a function that other processes can be sent."""


@dataclass(frozen=True)
class UploadSettings:
    """All that it takes to make any block's uploads; small, and fit to be sent to another process."""

    round: Round
    population: Population
    enrolment_secret: bytes
    clock: Clock


@dataclass(frozen=True)
class SimulatedUpload:
    """One upload: whose it is, and whether it is sent after the round closed."""

    row: int
    report_id: bytes
    data: bytes
    late: bool = False


@dataclass(frozen=True)
class BlockUploads:
    """What the devices of a block send, in this order, and how long making it took."""

    block: int
    sent: list[SimulatedUpload]
    seconds: float


def make_uploads(devices: UploadSettings, number: int) -> BlockUploads:
    """The uploads of one block. The same seed gives the same counts and cheats; seals differ every time."""
    began = devices.clock()
    block = devices.population.block(number)
    entropy = Simulation(f"uploads {devices.population.seed} block {number}")
    sent: list[SimulatedUpload] = []
    victim: Upload | None = None  # whose report those who replay have seen; they come last
    replaying = []
    for row in np.flatnonzero(block.present).tolist():
        behaviour = block.behaves(row)
        if behaviour is Behaviour.REPLAY:
            replaying.append(row)
            continue
        device = _SimulatedDevice(devices, block, row, entropy)
        uploads = device.uploads(behaviour)
        if behaviour is Behaviour.HONEST:
            victim = victim or uploads[0]
        late = behaviour is Behaviour.LATE
        sent += [SimulatedUpload(row, each.report_id, each.to_bytes(), late) for each in uploads]
    for row in replaying if victim else ():
        assert victim is not None
        copied = _SimulatedDevice(devices, block, row, entropy).signed(
            replace(victim, device=block.device(row))
        )
        sent.append(SimulatedUpload(row, copied.report_id, copied.to_bytes()))
    return BlockUploads(number, sent, devices.clock() - began)


class _SimulatedDevice:
    def __init__(self, devices: UploadSettings, block: DeviceBlock, row: int, entropy: Source) -> None:
        self._round, self._entropy = devices.round, entropy
        self._device = block.device(row)
        self._key = issue_device_key(devices.enrolment_secret, self._device)
        self._values = block.values(row)

    def uploads(self, behaviour: Behaviour) -> list[Upload]:
        """What a device sends that behaves like this."""
        match behaviour:
            case Behaviour.DUPLICATE:
                return [self._good(), self._good()]
            case Behaviour.FORGED:
                good = self._good()
                return [replace(good, tag=bytes(each ^ 1 for each in good.tag))]
            case Behaviour.WRONG_LENGTH:
                good = self._good()
                return [self.signed(replace(good, sealed_proxy=good.sealed_proxy[: -self._round.group.width]))]
            case Behaviour.GARBAGE:
                good = self._good()
                sealed = [self._entropy.bytes(len(each)) for each in (good.sealed_proxy, good.sealed_server)]
                return [self.signed(replace(good, sealed_proxy=sealed[0], sealed_server=sealed[1]))]
            case Behaviour.NO_NOISE:
                return [self._by_hand(lambda plain: plain)]
            case Behaviour.OUT_OF_RANGE:
                return [self._by_hand(lambda plain: _shift_first_count(plain, self._round.group))]
            case _:
                return [self._good()]

    def signed(self, upload: Upload) -> Upload:
        """With this device's tag: a cheat who is enrolled."""
        return replace(upload, tag=report_tag(self._key, replace(upload, tag=bytes(TAG_BYTES)).signed_bytes))

    def _good(self) -> Upload:
        """As the client's code makes it; every call is a device without a memory."""
        reporter = Reporter(
            self._device,
            self._key,
            self._entropy,
            MemoryDeviceStore(),
            proxy_key=self._round.proxy_key,
            server_key=self._round.server_key,
            simulated=True,
        )
        return Upload.from_bytes(reporter.upload(self._round, self._values))

    def _by_hand(self, change: Callable[[bytes], bytes]) -> Upload:
        """Without noise, and with the proxy's plain part changed before it is sealed."""
        report_id = self._entropy.bytes(REPORT_ID_BYTES)
        bound = report_binding(self._round.digest, report_id)
        for_proxy, for_server = sharing_scheme(self._round).split(self._values, bound, self._entropy)
        sealed_proxy = seal(change(for_proxy), self._round.proxy_key, role=PartyRole.PROXY, binding=bound)
        sealed_server = seal(for_server, self._round.server_key, role=PartyRole.SERVER, binding=bound)
        blank = bytes(TAG_BYTES)
        return self.signed(
            Upload(self._round.digest, report_id, self._device, sealed_proxy, sealed_server, blank)
        )


def _shift_first_count(plain: bytes, group: Group) -> bytes:
    """The first element of the proxy's part, `SHIFT` higher: without a proof, more in the first count."""
    first = (int.from_bytes(plain[: group.width], "little") + SHIFT) % group.modulus
    return first.to_bytes(group.width, "little") + plain[group.width :]


AHEAD = 3
"""Blocks that each process may be ahead: what waits to be taken is all that memory grows by."""


def make_upload_blocks(devices: UploadSettings, processes: int) -> Iterator[BlockUploads]:
    """Every block of the population, in any order. Of `processes` one is this one; the others make uploads.

    This one does so too whenever it would have to wait for them.
    """
    others = expect.whole("processes", processes, at_least=1) - 1
    numbers = iter(range(devices.population.blocks))
    if not others or devices.population.blocks < 2:
        yield from (make_uploads(devices, number) for number in numbers)
        return
    # Not forked: threads of this process may hold locks that a copy of it would wait for.
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(others, spawn, initializer=_begin_worker, initargs=(devices,))
    try:
        with _ignore_interrupts():  # the terminal tells all of us, and this process decides
            waiting = deque(pool.submit(_make_in_worker, number) for number in islice(numbers, AHEAD * others))
        while waiting:
            number = next(numbers, None)
            if number is not None and not waiting[0].done():
                yield make_uploads(devices, number)
                continue
            if number is not None:
                waiting.append(pool.submit(_make_in_worker, number))
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise GatherError("expected every process to finish, got one that died") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Processes begun in here ignore Ctrl-C from their first moment on, imports included."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may change that
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_devices: UploadSettings | None = None  # in a worker: sent once, not with every block


def _begin_worker(devices: UploadSettings) -> None:
    global _devices
    _devices = devices


def _make_in_worker(number: int) -> BlockUploads:
    assert _devices is not None
    return make_uploads(_devices, number)
