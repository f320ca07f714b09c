"""Whole rounds, audited as the server sees them: real devices, a real proxy, and what it hands over.

Every cell of a round is a trial of its own: noise is drawn for each. One device has a 1 in all of them, or next
door a 0. What the server knows of a cell is the sum of both shares with the proxy's noise, before its own.
Where users add noise, one of them tells the server its share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np

from tacit.arrays import Integers
from tacit.entropy import Simulation
from tacit.gather.client.reporter import make_upload
from tacit.gather.protocol.credentials import SealingKey, issue_device_key
from tacit.gather.protocol.groups import Group
from tacit.gather.protocol.messages import ReportSet
from tacit.gather.protocol.noise import RoundNoise, ServerNoise, UserNoise
from tacit.gather.protocol.promises import Promise
from tacit.gather.protocol.releases import sum_shares
from tacit.gather.protocol.rounds import CHECK_BYTES, DIGEST_BYTES, MOST_CELLS, Round
from tacit.gather.proxy.party import Proxy
from tacit.gather.server.party import Server
from tacit.gather.simulate.memory import MemoryProxyStore, MemoryServerStore
from tacit.memory_ledger import MemoryLedger
from tacit.privacy.audit.case import AuditCase, AuditDraws, claimed_epsilon, discrete_law, empirical_case
from tacit.privacy.audit.catalogue import most_revealing_count
from tacit.privacy.noise.distributions import DiscreteGaussian, Skellam
from tacit.privacy.noise.exact_sampler import SymmetricLaw
from tacit.privacy.noise.shares import SkellamShares
from tacit.privacy.randomness import Source
from tacit.privacy.releases import DiscreteGaussianCounts, NoisyCounts, SkellamCounts
from tacit.privacy.units import Relation

PARTIES, ANSWERED = 4, 3
DELTA = 0.01
OPENS, CLOSES = 1_000, 2_000
VARIANCE = Fraction(4)


def cases() -> list[AuditCase]:
    """Weaker noise is given to the real devices and the real proxy, by the round."""
    return [
        _case(
            "a gathered count, as its server sees it, noise by servers",
            lambda variance: DiscreteGaussianCounts((1,), Relation.ZERO_OUT, variance),
            lambda variance: ServerNoise(DiscreteGaussian(variance)),
            DiscreteGaussian,
        ),
        _case(
            f"a gathered count, noise by {PARTIES} users of whom {PARTIES - ANSWERED} is away and one tells",
            lambda variance: SkellamCounts((1,), Relation.ZERO_OUT, variance),
            lambda variance: UserNoise(SkellamShares(variance, PARTIES, Fraction(1, PARTIES))),
            Skellam,
        ),
    ]


def _case(
    name: str,
    release: Callable[[Fraction], NoisyCounts],
    noise: Callable[[Fraction], RoundNoise],
    left: Callable[[Fraction], SymmetricLaw],
) -> AuditCase:
    def claimed_at(share: Fraction) -> float:
        return claimed_epsilon(release(VARIANCE * share**2), Relation.ZERO_OUT, DELTA)

    claimed = claimed_at(Fraction(1))
    at_least = most_revealing_count(release(VARIANCE), 1, claimed)

    def draws(share: Fraction, neighbour: bool, trials: int, source: Source) -> AuditDraws:
        """The event: what the server sees of the count is large."""
        sizes = [min(MOST_CELLS, trials - start) for start in range(0, trials, MOST_CELLS)]
        count, added = 0 if neighbour else 1, noise(VARIANCE * share**2)
        seen = np.concatenate([_server_view(added, cells, count, source) for cells in sizes])
        return AuditDraws(seen >= at_least, seen - count)

    law = discrete_law(lambda share: left(VARIANCE * share**2), claimed_at)
    return empirical_case(name, Relation.ZERO_OUT, claimed, delta=DELTA, draws=draws, law=law)


def _server_view(noise: RoundNoise, cells: int, count: int, source: Source) -> Integers:
    proxy_key, server_key = (SealingKey.from_bytes(source.bytes(32)) for _ in range(2))  # their noise is fresh
    secret, check_key = source.bytes(32), source.bytes(32)
    round = replace(_round(noise, cells), proxy_key=proxy_key.public, server_key=server_key.public)
    ledger, store = MemoryLedger(), MemoryServerStore()
    ledger.grant(round.line, round.cost)
    proxy = Proxy(proxy_key, MemoryProxyStore(), ledger, enrolment_secret=secret, check_key=check_key)
    server = Server(server_key, store, ledger, check_key=check_key)
    proxy.open_round(round)
    server.open_round(round)
    seeds = [source.bytes(32).hex() for _ in range(ANSWERED)]
    uploads = []
    for place, seed in enumerate(seeds):
        device, values = place.to_bytes(16, "little"), np.full(cells, count if place == 0 else 0)
        # Not by a `Reporter`, which would refuse a device with so many events.
        upload = make_upload(
            round, values, device=device, key=issue_device_key(secret, device), entropy=Simulation(seed)
        )
        uploads.append(upload.to_bytes())
    proxy.take(uploads, OPENS)
    while (job := proxy.next_job(round.digest)) is not None:
        proxy.take_reply(server.job(job.to_bytes(), OPENS))
    agreed = ReportSet.from_bytes(server.agree(proxy.agreement(round.digest, CLOSES).to_bytes(), CLOSES))
    share = round.group.from_bytes(proxy.noisy_share(round.digest, agreed).share, cells)
    seen = round.group.lift(round.group.add(share, sum_shares(round, store.totals(round.digest))))
    law = noise.device_law  # the first that a device draws is its noise: the last one tells
    return seen if law is None else seen - law.sample_array(cells, Simulation(seeds[-1]).words)


def _round(noise: RoundNoise, cells: int) -> Round:
    return Round(
        task="audit",
        level=0,
        cells=cells,
        question=bytes(DIGEST_BYTES),
        group=Group.RING64,
        opens=OPENS,
        closes=CLOSES,
        skew=0,
        parties=PARTIES,
        smallest_batch=1,
        noise=noise,
        bounds=None,
        scope="audit",
        promise=Promise(events=1, each=1, levels=1, epsilon=Fraction(10), delta=Fraction(str(DELTA))),
        check=bytes(CHECK_BYTES),
        proxy_key=bytes(32),
        server_key=b"\1" * 32,
    )
