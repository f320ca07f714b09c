"""A round for a population of devices, and the keys and secrets that its parties need."""

from __future__ import annotations

from dataclasses import dataclass, field

from tacit.gather.estimate.planning import NoiseBy, plan
from tacit.gather.simulate.population import Population
from tacit.gather.wire.checking import check_hash
from tacit.gather.wire.contribution import Contribution
from tacit.gather.wire.groups import Group
from tacit.gather.wire.rounds import CHECK_BYTES, DIGEST_BYTES, Round
from tacit.gather.wire.sealing import KEY_BYTES, SealingKey
from tacit.gather.wire.validity.bounds import Bounds
from tacit.privacy.randomness import Source

OPENS, CLOSES, SKEW = 1_000_000, 1_003_600, 60  # seconds; a simulated round lasts an hour


@dataclass(frozen=True)
class Keys:
    """What the parties of a simulation hold, all in one place: outside of one nobody may have this."""

    enrolment_secret: bytes = field(repr=False)
    check_key: bytes = field(repr=False)
    proxy: SealingKey
    server: SealingKey

    @classmethod
    def drawn(cls, entropy: Source) -> Keys:
        """All from one source: the parties' noise follows from their keys, and with a seed it comes again."""
        secrets = entropy.bytes(32), entropy.bytes(32)
        return cls(*secrets, *(SealingKey.from_bytes(entropy.bytes(KEY_BYTES)) for _ in range(2)))


def round_for(
    population: Population,
    keys: Keys,
    *,
    epsilon: float,
    by: NoiseBy = NoiseBy.SERVERS,
    silent: float = 0.0,
    proof: bool = False,
    smallest_batch: int = 1,
    task: str = "simulated",
) -> Round:
    """One round that asks each device of the population for its counts, with noise for (epsilon, usual delta).

    `silent` is the share of devices that may leave their noise out, where users add it.
    """
    found = plan(
        contribution=Contribution(population.events, population.each),
        levels=1,
        parties=population.devices,
        epsilon=epsilon,
        by=by,
        silent=silent,
    )
    return Round(
        task=task,
        level=0,
        cells=population.cells,
        question=bytes(DIGEST_BYTES),
        group=Group.FIELD64 if proof else Group.RING64,
        opens=OPENS,
        closes=CLOSES,
        skew=SKEW,
        parties=population.devices,
        smallest_batch=smallest_batch,
        noise=found.noise,
        bounds=Bounds(population.each, 2 * population.events) if proof else None,
        scope="simulation",
        promise=found.promise,
        check=check_hash(keys.check_key) if proof else bytes(CHECK_BYTES),
        proxy_key=keys.proxy.public,
        server_key=keys.server.public,
    )
