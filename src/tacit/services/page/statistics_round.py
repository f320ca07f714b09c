"""One simulated round of statistics, for the demonstration's page: how far an estimate is from the truth.

Devices, proxy and server run by their own code (`gather.simulate`), here and in memory: each device counts the
impressions it saw by topic, splits its counts between the two parties, and sends them; the parties check them,
add them up, and add noise. Some devices are away. Some cheat: they add a million to the first count, which
passes where nothing is proved, and is refused where reports carry a proof that counts are in range.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tacit import expect
from tacit.errors import BadInput

LABELS = (
    "Coffee", "Tea", "Running", "Cycling", "Cooking", "Gardening", "Cinema", "Music", "Travel", "Books",
    "Weather", "Chess",
)  # fmt: skip
"""Made-up topics, one per count."""

MOST_DEVICES, MOST_AWAY, MOST_CHEATS = 2_000, 0.95, 0.5
LEAST_EPSILON, MOST_EPSILON = 0.05, 20.0
EVENTS = 4  # impressions of each device
SMALLEST_BATCH = 100  # reports below which nothing is released
CONFIDENCE = 0.95  # of an interval, for each count
AT_ONCE = 250  # devices whose reports are judged together


@dataclass(frozen=True)
class RoundDials:
    """What can be set.

    devices  how many there are
    dropout  the share of them that is away
    cheats   the share of the others that adds a million to the first count
    epsilon  what the round promises each device
    proofs   whether each report proves that its counts are in range
    seed     who is away, who cheats, what was counted; and noise that comes again with it
    """

    devices: int = 1_000
    dropout: float = 0.1
    cheats: float = 0.0
    epsilon: float = 1.0
    proofs: bool = False
    seed: int = 1

    def __post_init__(self) -> None:
        if not SMALLEST_BATCH <= expect.integer("devices", self.devices) <= MOST_DEVICES:
            raise BadInput(f"expected {SMALLEST_BATCH} to {MOST_DEVICES} devices, got {self.devices}")
        for name, most in (("dropout", MOST_AWAY), ("cheats", MOST_CHEATS)):
            if expect.probability(name, getattr(self, name), zero=True) > most:
                raise BadInput(f"expected {name} <= {most:g}, got {getattr(self, name):g}")
        if not LEAST_EPSILON <= expect.positive("epsilon", self.epsilon) <= MOST_EPSILON:
            raise BadInput(f"expected epsilon from {LEAST_EPSILON:g} to {MOST_EPSILON:g}, got {self.epsilon:g}")
        if type(self.proofs) is not bool:
            raise BadInput("expected proofs to be true or false, got something else")
        if not 0 <= expect.integer("seed", self.seed) < 2**53:
            raise BadInput("expected a seed in 0..2^53-1, got another number")

    @classmethod
    def of(cls, record: Any) -> RoundDials:
        """From JSON: what is left out is as by default, what is unknown is refused."""
        if not isinstance(record, Mapping):
            raise BadInput("expected an object with devices, dropout, cheats, epsilon, proofs and seed")
        known = {each.name for each in fields(cls)}
        if more := sorted(str(key) for key in record.keys() - known):
            raise BadInput(f"expected {', '.join(sorted(known))}, got {more[0][:50]!r}")
        for name in ("dropout", "cheats", "epsilon"):
            if type(record.get(name, 0)) not in (int, float):
                raise BadInput(f"expected {name} as a number, got something else")
        return cls(**record)


class RoundDemonstration:
    """Runs one round at a time: who asks meanwhile is told to come again."""

    def __init__(self) -> None:
        self._running = threading.Lock()

    def run(self, dials: RoundDials) -> dict[str, Any] | None:
        """What came of the round; None where another one is running."""
        if not self._running.acquire(blocking=False):
            return None
        try:
            return simulate_round(dials)
        finally:
            self._running.release()


def simulate_round(dials: RoundDials) -> dict[str, Any]:
    """The round, as JSON: by topic the truth (of those who reported, as honest devices counted it), everybody's
    counts, the estimate, and an interval around it that holds the noise in 95 of 100 rounds."""
    # Loaded with the first round: a service that never runs one starts without SciPy.
    import numpy as np

    from tacit.entropy import Simulation
    from tacit.gather.estimate.plan import CountNoiseLaw, NoiseBy
    from tacit.gather.estimate.published_noise import PublishedNoise
    from tacit.gather.simulate.population import (
        Behaviour,
        Population,
        SimulationKeys,
        plan_for_population,
        round_for_population,
    )
    from tacit.gather.simulate.rounds import PartyStores, SimulatedRound

    began = time.perf_counter()
    population = Population(
        dials.devices,
        len(LABELS),
        events=EVENTS,
        each=1,
        away=dials.dropout,
        misbehaving={Behaviour.OUT_OF_RANGE: dials.cheats},
        seed=dials.seed,
        at_a_time=AT_ONCE,
        totals_only=True,
    )
    keys = SimulationKeys.draw(Simulation(f"demonstration's round {dials.seed}"))
    plan = plan_for_population(
        population,
        epsilon=dials.epsilon,
        by=NoiseBy.SERVERS,
        law=CountNoiseLaw.DISCRETE_LAPLACE,
        proof=dials.proofs,
    )
    asked = round_for_population(population, keys, plan, proof=dials.proofs, smallest_batch=SMALLEST_BATCH)
    parties = PartyStores.in_memory(asked)
    outcome = SimulatedRound(asked, population, keys, parties, clock=time.perf_counter).run()
    everybody = np.zeros(len(LABELS), np.int64)
    for number in range(population.blocks):
        block = population.block(number)
        everybody += block.total(np.arange(len(block), dtype=np.intp))
    noise = PublishedNoise.of(asked.noise, outcome.accepted)
    reach = noise.threshold((1 - CONFIDENCE) / 2)
    estimate = [] if outcome.released is None else outcome.released.tolist()
    return {
        "labels": list(LABELS),
        "truth": outcome.exact.tolist(),
        "everybody": everybody.tolist(),
        "estimate": estimate,
        "low": [each - reach for each in estimate],
        "high": [each + reach for each in estimate],
        "confidence": CONFIDENCE,
        "released": outcome.released is not None,
        "smallest_batch": SMALLEST_BATCH,
        "devices": outcome.devices,
        "dropped": outcome.devices - outcome.present,
        "accepted": outcome.accepted,
        "refused": sum(outcome.refused.values()),
        "refused_why": {reason.name: count for reason, count in sorted(outcome.refused.items())},
        "accepted_lies": outcome.lied,
        "epsilon": float(plan.epsilon),
        "delta": float(plan.delta),
        "noise": {"law": str(plan.law), "by": str(plan.by), "sd": plan.published_sd(outcome.accepted)},
        "bytes_uploaded": outcome.traffic.uploads,
        "statement": plan.statement.as_text("What the round released"),
        "seconds": time.perf_counter() - began,
    }
