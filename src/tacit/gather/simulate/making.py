"""The uploads of a block of devices: good ones by the client's own code, bad ones by changing good ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tacit.entropy import Simulation
from tacit.gather.client.memory import MemoryDevice
from tacit.gather.client.reporting import Reporter
from tacit.gather.simulate.population import SHIFT, Behaviour, Block, Population
from tacit.gather.wire.credentials import TAG_BYTES, issue, tag
from tacit.gather.wire.forms import form_of
from tacit.gather.wire.groups import Group
from tacit.gather.wire.rounds import REPORT_ID_BYTES, Round, binding
from tacit.gather.wire.sealing import Role, seal
from tacit.gather.wire.uploads import Upload
from tacit.privacy.randomness import Source

Clock = Callable[[], float]
"""Seconds from some moment on; a function that other processes can be sent."""


@dataclass(frozen=True)
class Devices:
    """All that it takes to make any block's uploads; small, and fit to be sent to another process."""

    round: Round
    population: Population
    enrolment_secret: bytes
    clock: Clock


@dataclass(frozen=True)
class Sent:
    """One upload: whose it is, and whether it is sent after the round closed."""

    row: int
    report_id: bytes
    data: bytes
    late: bool = False


@dataclass(frozen=True)
class Made:
    """What the devices of a block send, in this order, and how long making it took."""

    block: int
    sent: list[Sent]
    seconds: float


def make(devices: Devices, number: int) -> Made:
    """The uploads of one block. The same seed gives the same counts and cheats; seals differ every time."""
    began = devices.clock()
    block = devices.population.block(number)
    entropy = Simulation(f"uploads {devices.population.seed} block {number}")
    sent: list[Sent] = []
    victim: Upload | None = None  # whose report those who replay have seen; they come last
    replaying = []
    for row in np.flatnonzero(block.present).tolist():
        behaviour = block.behaves(row)
        if behaviour is Behaviour.REPLAY:
            replaying.append(row)
            continue
        device = _Device(devices, block, row, entropy)
        uploads = device.uploads(behaviour)
        if behaviour is Behaviour.HONEST:
            victim = victim or uploads[0]
        late = behaviour is Behaviour.LATE
        sent += [Sent(row, each.report_id, each.to_bytes(), late) for each in uploads]
    for row in replaying if victim else ():
        assert victim is not None
        copied = _Device(devices, block, row, entropy).signed(replace(victim, device=block.device(row)))
        sent.append(Sent(row, copied.report_id, copied.to_bytes()))
    return Made(number, sent, devices.clock() - began)


class _Device:
    def __init__(self, devices: Devices, block: Block, row: int, entropy: Source) -> None:
        self._round, self._entropy = devices.round, entropy
        self._device = block.device(row)
        self._key = issue(devices.enrolment_secret, self._device)
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
                return [self._by_hand(lambda plain: _shifted(plain, self._round.group))]
            case _:
                return [self._good()]

    def signed(self, upload: Upload) -> Upload:
        """With this device's tag: a cheat who is enrolled."""
        return replace(upload, tag=tag(self._key, replace(upload, tag=bytes(TAG_BYTES)).signed_bytes))

    def _good(self) -> Upload:
        """As the client's code makes it; every call is a device without a memory."""
        reporter = Reporter(
            self._device,
            self._key,
            self._entropy,
            MemoryDevice(),
            proxy_key=self._round.proxy_key,
            server_key=self._round.server_key,
            simulated=True,
        )
        return Upload.from_bytes(reporter.upload(self._round, self._values))

    def _by_hand(self, change: Callable[[bytes], bytes]) -> Upload:
        """Without noise, and with the proxy's plain part changed before it is sealed."""
        report_id = self._entropy.bytes(REPORT_ID_BYTES)
        bound = binding(self._round.digest, report_id)
        for_proxy, for_server = form_of(self._round).split(self._values, bound, self._entropy)
        sealed_proxy = seal(change(for_proxy), self._round.proxy_key, role=Role.PROXY, binding=bound)
        sealed_server = seal(for_server, self._round.server_key, role=Role.SERVER, binding=bound)
        blank = bytes(TAG_BYTES)
        return self.signed(
            Upload(self._round.digest, report_id, self._device, sealed_proxy, sealed_server, blank)
        )


def _shifted(plain: bytes, group: Group) -> bytes:
    """The first element of the proxy's part, `SHIFT` higher: without a proof, more in the first count."""
    first = (int.from_bytes(plain[: group.width], "little") + SHIFT) % group.modulus
    return first.to_bytes(group.width, "little") + plain[group.width :]
