"""A round for a population of devices, and the keys and secrets that its parties need."""

from __future__ import annotations

from dataclasses import dataclass, field

from tacit.gather.estimate.planning import Law, NoiseBy, RunPlan, plan
from tacit.gather.estimate.rounds import Task
from tacit.gather.simulate.population import Population
from tacit.gather.wire.checking import check_hash
from tacit.gather.wire.contribution import Contribution
from tacit.gather.wire.rounds import Round
from tacit.gather.wire.sealing import KEY_BYTES, SealingKey
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


def run_for(
    population: Population,
    *,
    epsilon: float,
    by: NoiseBy | None = None,
    law: Law | None = None,
    silent: float | None = None,
    proof: bool = False,
) -> RunPlan:
    """A run of one round over the population, with noise for (epsilon, usual delta), chosen unless named.

    `silent` is the share of devices that may leave their noise out, where users add it. With proofs servers do.
    """
    return plan(
        contribution=Contribution(population.events, population.each, population.totals_only),
        levels=1,
        parties=population.devices,
        epsilon=epsilon,
        by=NoiseBy.SERVERS if proof else by,
        law=law,
        silent=silent,
    )


def round_for(
    population: Population,
    keys: Keys,
    run: RunPlan | None = None,
    *,
    epsilon: float = 1.0,
    proof: bool = False,
    smallest_batch: int = 1,
    task: str = "simulated",
) -> Round:
    """The one round of the run, which asks each device of the population for its counts; by default of the run
    that is chosen for this epsilon."""
    shared = Task(
        task,
        population.devices,
        smallest_batch,
        "simulation",
        keys.proxy.public,
        keys.server.public,
        SKEW,
        check_hash(keys.check_key) if proof else None,
    )
    found = run_for(population, epsilon=epsilon, proof=proof) if run is None else run
    return shared.round(found, population.cells, level=0, opens=OPENS, closes=CLOSES)
