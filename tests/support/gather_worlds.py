"""A proxy, a server and devices in one process, for tests: every upload can be bent, every draw is recorded."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from tacit.entropy import Simulation
from tacit.errors import Refused
from tacit.gather.protocol.credentials import PartyRole, SealingKey, issue_device_key, report_tag, seal
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.groups import Group
from tacit.gather.protocol.messages import Job, JobEntry, JobReply, ReportSet
from tacit.gather.protocol.noise import ServerNoise
from tacit.gather.protocol.promises import Promise
from tacit.gather.protocol.releases import content_hash, draw_party_noise, noise_words, sum_shares
from tacit.gather.protocol.rounds import Round, check_key_hash, report_binding
from tacit.gather.protocol.sharing import sharing_scheme
from tacit.gather.protocol.uploads import Upload
from tacit.gather.proxy.party import Proxy, drive
from tacit.gather.proxy.store import ProxyPhase
from tacit.gather.server.party import Server
from tacit.gather.simulate.memory import MemoryProxyStore, MemoryServerStore
from tacit.memory_ledger import MemoryLedger
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.rules import ReservationState
from tacit.privacy.noise.distributions import Skellam
from tacit.privacy.randomness import Source

OPENS, CLOSES, SKEW = 10_000, 20_000, 60
DURING, AFTER = 15_000, CLOSES + SKEW
ENROLMENT, CHECK = b"enrolment".ljust(32, b"."), b"check".ljust(32, b".")
PROXY_KEY, SERVER_KEY = SealingKey.from_bytes(b"p" * 32), SealingKey.from_bytes(b"s" * 32)
LAW = Skellam(Fraction(4))
PROMISE = Promise(events=10, each=9, levels=2, epsilon=Fraction(64), delta=Fraction(1, 10**9))
ROWS = [[1, 2, 3], [4, 5, 6], [0, 0, 9], [1, 0, 1]]

PLAIN_ROUND = Round(
    task="clicks",
    level=0,
    cells=3,
    question=bytes(32),
    group=Group.RING64,
    opens=OPENS,
    closes=CLOSES,
    skew=SKEW,
    parties=40,
    smallest_batch=3,
    noise=ServerNoise(LAW),
    bounds=None,
    scope="devices",
    promise=PROMISE,
    check=bytes(32),
    proxy_key=PROXY_KEY.public,
    server_key=SERVER_KEY.public,
)


def a_round(**changes: Any) -> Round:
    checked = {"check": check_key_hash(CHECK)} if changes.get("bounds") else {}
    return replace(PLAIN_ROUND, **(checked | changes))


def name(number: int) -> bytes:
    """The device, or the report, with this number."""
    return number.to_bytes(16, "big")


def an_upload(
    round: Round,
    device: int,
    values: NDArray[np.int64] | list[int],
    entropy: Source,
    /,
    *,
    report: int | None = None,
    plains: tuple[bytes, bytes] | None = None,
    proxy_key: bytes = PROXY_KEY.public,
    server_key: bytes = SERVER_KEY.public,
    proxy_role: PartyRole = PartyRole.PROXY,
    server_role: PartyRole = PartyRole.SERVER,
    proxy_bound: bytes | None = None,
    server_bound: bytes | None = None,
    signed_as: int | None = None,
    **changes: bytes,
) -> Upload:
    """What a device sends, and every way in which it can be wrong."""
    report_id = name(1000 + device if report is None else report)
    bound = report_binding(round.digest, report_id)
    for_proxy, for_server = plains or sharing_scheme(round).split(np.asarray(values, np.int64), bound, entropy)
    upload = Upload(
        round.digest,
        report_id,
        name(device),
        seal(for_proxy, proxy_key, role=proxy_role, binding=proxy_bound or bound),
        seal(for_server, server_key, role=server_role, binding=server_bound or bound),
        bytes(32),
    )
    key = issue_device_key(ENROLMENT, name(device if signed_as is None else signed_as))
    return replace(replace(upload, tag=report_tag(key, upload.signed_bytes)), **changes)


class Recorded(SealingKey):
    """A key that remembers what noise was derived from it. (Names for the ledger are, too.)"""

    def __init__(self, private: X25519PrivateKey) -> None:
        super().__init__(private)
        self.drawn: list[bytes] = []

    def derive(self, label: bytes) -> bytes:
        if b" noise " in label:
            self.drawn.append(label)
        return super().derive(label)


def noise_of(round: Round, agreed: ReportSet, role: PartyRole, store: Any) -> NDArray[np.int64]:
    """The noise that a party with this store adds to this set of reports."""
    key = PROXY_KEY if role is PartyRole.PROXY else SERVER_KEY
    content = content_hash(round, agreed.ids_hash, sum_shares(round, store.totals(round.digest)))
    return round.group.lift(draw_party_noise(round, agreed.count, noise_words(key, role, round, content)))


@dataclass
class World:
    """Both parties over memory stores, and the link between them. `restart` rebuilds them from the stores."""

    round: Round
    seed: str = "world"
    limit: str = "1000"
    proxy_store: Any = field(default_factory=MemoryProxyStore)
    server_store: Any = field(default_factory=MemoryServerStore)
    proxy_ledger: Any = field(default_factory=MemoryLedger)
    server_ledger: Any = field(default_factory=MemoryLedger)
    check_key: bytes = CHECK
    server_now: int | None = None  # the server's clock, where it is another

    def __post_init__(self) -> None:
        self.devices = Simulation(f"{self.seed} devices")
        self.proxy_key = Recorded.from_bytes(PROXY_KEY.to_bytes())
        self.server_key = Recorded.from_bytes(SERVER_KEY.to_bytes())
        self.now = DURING
        self.restart()
        self.proxy.open_round(self.round)
        self.server.open_round(self.round)
        if self.limit:
            for ledger in (self.proxy_ledger, self.server_ledger):
                ledger.grant(self.round.line, Budget.of(self.limit, "1e-6"))

    def restart(self) -> None:
        self.proxy = Proxy(
            self.proxy_key,
            self.proxy_store,
            self.proxy_ledger,
            enrolment_secret=ENROLMENT,
            check_key=self.check_key,
        )
        self.server = Server(self.server_key, self.server_store, self.server_ledger, check_key=self.check_key)

    @property
    def digest(self) -> bytes:
        return self.round.digest

    @property
    def noise(self) -> NDArray[np.int64]:
        """What both parties add to the reports that are accepted."""
        agreed = self.proxy.accepted_set(self.digest)
        return noise_of(self.round, agreed, PartyRole.PROXY, self.proxy_store) + noise_of(
            self.round, agreed, PartyRole.SERVER, self.server_store
        )

    def upload(self, device: int, values: list[int], /, **bent: Any) -> bytes:
        return an_upload(self.round, device, values, self.devices, **bent).to_bytes()

    def report(self, rows: NDArray[np.int64] | list[list[int]]) -> None:
        """Devices 0, 1, ... report these rows."""
        taken = self.proxy.take([self.upload(each, list(row)) for each, row in enumerate(rows)], DURING)
        assert not any(taken)

    def drive(self, now: int = AFTER, most: int = 500) -> ProxyPhase:
        self.now = now
        return drive(self.proxy, self, self.digest, now, most=most)

    def job(self, body: bytes) -> bytes:
        return self.server.job(body, self._server_time)

    def agree(self, body: bytes) -> bytes:
        return self.server.agree(body, self._server_time)

    def share(self, body: bytes) -> bytes:
        return self.server.share(body, self._server_time)

    @property
    def _server_time(self) -> int:
        return self.now if self.server_now is None else self.server_now


def refusal(call: Any, *arguments: Any) -> MessageVerdict:
    """Why the call is refused."""
    with pytest.raises(Refused) as refused:
        call(*arguments)
    return MessageVerdict(refused.value.reason)


def entries(world: World, *devices: int, **bent: Any) -> tuple[JobEntry, ...]:
    """What a proxy that checks nothing hands on for these devices."""
    uploads = [an_upload(world.round, each, ROWS[each % 4], world.devices, **bent) for each in devices]
    return tuple(JobEntry(each.report_id, each.sealed_server) for each in uploads)


def verdicts(world: World, job: Job, now: int = DURING) -> list[MessageVerdict]:
    """What the server says of each report of a job."""
    return [
        MessageVerdict(code) for code in JobReply.from_bytes(world.server.job(job.to_bytes(), now)).verdicts
    ]


def states(world: World) -> tuple[ReservationState | None, ReservationState | None]:
    """What the proxy's and the server's ledger say of the round."""
    proxy = world.proxy_ledger.reservation(f"{world.round.key}/proxy")
    server = world.server_ledger.reservation(f"{world.round.key}/server")
    return (proxy.state if proxy else None), (server.state if server else None)


def expect_exact(world: World, rows: list[list[int]] | NDArray[np.int64]) -> None:
    """The result, less the noise that each party drew once, is the sum of these rows."""
    result = world.server.result(world.digest, AFTER)
    assert (len(world.proxy_key.drawn), len(world.server_key.drawn)) == (1, 1)
    assert result.count == len(rows)
    np.testing.assert_array_equal(result.values - world.noise, np.sum(rows, axis=0))
    assert states(world) == (ReservationState.COMMITTED, ReservationState.COMMITTED)
