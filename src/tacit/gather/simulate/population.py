"""Simulated devices: which are there, what they counted, how some cheat; and the round and keys for them.

Devices come in blocks, each drawn from a seed of its own, so that any process can make any block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.gather.estimate.plan import (
    CountNoiseLaw,
    NoiseBy,
    NoiseOption,
    RunPlan,
    noise_options,
    plan_run,
)
from tacit.gather.estimate.top_down import GatherTask
from tacit.gather.protocol.credentials import DEVICE_BYTES, SealingKey
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.promises import Contribution
from tacit.gather.protocol.rounds import Round, check_key_hash
from tacit.privacy.randomness import Source
from tacit.sealing import KEY_BYTES

SHIFT = 1_000_000
"""What a device that lies adds to the first count."""


class Behaviour(expect.Choice):
    """What a device does."""

    HONEST = "honest"
    REPLAY = "replay"  # sends somebody else's sealed parts and report id as its own
    DUPLICATE = "duplicate"  # sends a good report, and another one
    FORGED = "forged"  # a good report under a tag that is not the device's
    WRONG_LENGTH = "wrong-length"  # a vector one element short
    GARBAGE = "garbage"  # random bytes where sealed parts should be
    NO_NOISE = "no-noise"  # honest counts without the device's share of the noise
    OUT_OF_RANGE = "out-of-range"  # counts that no honest device has; a proof of it cannot be made
    LATE = "late"  # a good report after the round closed


MISBEHAVIOURS = tuple(each for each in Behaviour if each is not Behaviour.HONEST)
_REFUSED = {
    Behaviour.REPLAY: MessageVerdict.REPLAYED,
    Behaviour.DUPLICATE: MessageVerdict.DUPLICATE,
    Behaviour.FORGED: MessageVerdict.FORGED,
    Behaviour.WRONG_LENGTH: MessageVerdict.MALFORMED,
    Behaviour.GARBAGE: MessageVerdict.UNOPENABLE,
    Behaviour.LATE: MessageVerdict.TOO_LATE,
}


def expected_refusal(behaviour: Behaviour, *, proof: bool) -> MessageVerdict:
    """What should become of the bad upload; ACCEPTED where nothing can be seen in it."""
    if behaviour is Behaviour.OUT_OF_RANGE and proof:
        return MessageVerdict.OUT_OF_RANGE
    return _REFUSED.get(behaviour, MessageVerdict.ACCEPTED)


@dataclass(frozen=True, eq=False)
class DeviceBlock:
    """Some devices: consecutive ones, from number `first`."""

    first: int
    present: NDArray[np.bool_]  # (devices,)
    behaviour: NDArray[np.uint8]  # (devices,) index into Behaviour
    touched: NDArray[np.int64]  # (devices, 2 events, or events): the cells that each event adds one to
    cells: int
    each: int

    def __len__(self) -> int:
        return len(self.present)

    def device(self, row: int) -> bytes:
        """The name of a device."""
        return (self.first + row).to_bytes(DEVICE_BYTES, "big")

    def behaves(self, row: int) -> Behaviour:
        return _BEHAVIOURS[int(self.behaviour[row])]

    def values(self, row: int) -> NDArray[np.int64]:
        """(cells,) what the device counted, at most `each` in a cell."""
        return np.minimum(np.bincount(self.touched[row], minlength=self.cells), self.each).astype(np.int64)

    def total(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """(cells,) the sum over some devices."""
        keys = (np.arange(len(rows))[:, None] * self.cells + self.touched[rows]).ravel()
        found, times = np.unique(keys, return_counts=True)
        weights = np.minimum(times, self.each)
        return np.bincount(found % self.cells, weights, minlength=self.cells).astype(np.int64)


_BEHAVIOURS = tuple(Behaviour)


@dataclass(frozen=True)
class Population:
    """Simulated devices, `devices` of them, each with `events` events.

    An event adds one to a total and to a click or no-click, or with `totals_only` to a total alone. A share
    `away` of all devices is not there. `misbehaving` are shares of those that are, by what they do.
    `at_a_time` devices make a block: enough to share the cost of a commit, few enough to keep memory small.
    """

    devices: int
    cells: int
    events: int = 4
    each: int = 1
    away: float = 0.0
    misbehaving: Mapping[Behaviour, float] = field(default_factory=dict)
    seed: int = 1
    at_a_time: int = 500
    totals_only: bool = False

    def __post_init__(self) -> None:
        expect.whole("devices", self.devices, at_least=1)
        expect.whole("cells", self.cells, at_least=2)
        expect.whole("events", self.events, at_least=1)
        expect.whole("each", self.each, at_least=1)
        expect.whole("at_a_time", self.at_a_time, at_least=1)
        expect.probability("away", self.away, zero=True)
        for behaviour, share in self.misbehaving.items():
            if Behaviour(behaviour) is Behaviour.HONEST:
                raise BadInput("expected ways to misbehave, got honest")
            expect.probability(f"share of {behaviour}", share, zero=True, one=True)
        if sum(self.misbehaving.values()) > 1 + 1e-9:
            raise BadInput(f"expected shares that add up to at most 1, got {sum(self.misbehaving.values()):g}")

    @property
    def blocks(self) -> int:
        return -(-self.devices // self.at_a_time)

    @property
    def totals(self) -> int:
        """How many of the cells are totals; the others are clicks and no-clicks."""
        return self.cells if self.totals_only else max(1, self.cells // 3)

    def block(self, number: int) -> DeviceBlock:
        first = number * self.at_a_time
        size = min(self.at_a_time, self.devices - first)
        words = Simulation(f"devices {self.seed} block {number}").words(size * (2 + 2 * self.events))
        uniform = (words.astype(np.float64) / 2.0**64).clip(max=1 - 2.0**-53).reshape(size, -1)
        # Squared: some cells are met much more often than others, as contexts and ads are.
        skewed = uniform[:, 2:] ** 2
        totals = (skewed[:, : self.events] * self.totals).astype(np.int64)
        clicks = self.totals + (skewed[:, self.events :] * (self.cells - self.totals)).astype(np.int64)
        touched = totals if self.totals_only else np.concatenate((totals, clicks), axis=1)
        shares = np.array([self.misbehaving.get(each, 0.0) for each in MISBEHAVIOURS])
        edges = np.concatenate(([0.0], np.cumsum(shares)))  # below the first edge of a kind, then honest
        kind = np.searchsorted(edges, uniform[:, 1], side="right")
        behaviour = np.where(kind <= len(MISBEHAVIOURS), kind, 0).astype(np.uint8)
        return DeviceBlock(
            first,
            uniform[:, 0] >= self.away,
            behaviour,
            touched,
            self.cells,
            self.each,
        )


def misbehaviour_shares(malicious: float, *, noise_by_users: bool) -> dict[Behaviour, float]:
    """A share of devices that cheat, as many in each way; noise is left out only where users add it."""
    ways = [each for each in MISBEHAVIOURS if noise_by_users or each is not Behaviour.NO_NOISE]
    return {each: malicious / len(ways) for each in ways} if malicious else {}


OPENS, CLOSES, SKEW = 1_000_000, 1_003_600, 60  # seconds; a simulated round lasts an hour


@dataclass(frozen=True)
class SimulationKeys:
    """What the parties of a simulation hold, all in one place: outside of one nobody may have this."""

    enrolment_secret: bytes = field(repr=False)
    check_key: bytes = field(repr=False)
    proxy: SealingKey
    server: SealingKey

    @classmethod
    def draw(cls, entropy: Source) -> SimulationKeys:
        """All from one source: the parties' noise follows from their keys, and with a seed it comes again."""
        secrets = entropy.bytes(32), entropy.bytes(32)
        return cls(*secrets, *(SealingKey.from_bytes(entropy.bytes(KEY_BYTES)) for _ in range(2)))


def plan_for_population(
    population: Population,
    *,
    epsilon: float,
    by: NoiseBy | None = None,
    law: CountNoiseLaw | None = None,
    silent: float | None = None,
    proof: bool = False,
) -> RunPlan:
    """A run of one round over the population, with noise for (epsilon, default delta), chosen unless named.

    `silent` is the share of devices that may leave their noise out, where users add it. With proofs servers do.
    """
    return plan_run(
        contribution=Contribution(population.events, population.each, population.totals_only),
        levels=1,
        parties=population.devices,
        epsilon=epsilon,
        by=NoiseBy.SERVERS if proof else by,
        law=law,
        silent=silent,
    )


def round_for_population(
    population: Population,
    keys: SimulationKeys,
    run: RunPlan | None = None,
    *,
    epsilon: float = 1.0,
    proof: bool = False,
    smallest_batch: int = 1,
    task: str = "simulated",
) -> Round:
    """The one round of the run, which asks each device of the population for its counts; by default of the run
    that is chosen for this epsilon."""
    shared = GatherTask(
        task,
        population.devices,
        smallest_batch,
        "simulation",
        keys.proxy.public,
        keys.server.public,
        SKEW,
        check_key_hash(keys.check_key) if proof else None,
    )
    found = plan_for_population(population, epsilon=epsilon, proof=proof) if run is None else run
    return shared.round(found, population.cells, level=0, opens=OPENS, closes=CLOSES)


@dataclass(frozen=True)
class PlannedSimulation:
    """One round over devices of which some cheat, with its noise, and the laws that it could have had."""

    population: Population
    keys: SimulationKeys
    run: RunPlan
    options: tuple[NoiseOption, ...]  # every law, the least noise first
    round: Round


def plan_simulation(
    honest: Population,
    entropy: Source,
    *,
    epsilon: float,
    malicious: float = 0.0,
    by: NoiseBy | None = None,
    law: CountNoiseLaw | None = None,
    silent: float | None = None,
    proof: bool = False,
    smallest_batch: int = 1,
) -> PlannedSimulation:
    """A share `malicious` of the devices cheats, as many in each way that is open to them.

    Where devices add noise and nothing is said of how many may leave it out, those that cheat may.
    """
    if proof and by is NoiseBy.USERS:
        raise BadInput("by: expected servers with proof, got users: a proof covers counts without noise")
    stated = malicious if silent is None and by is NoiseBy.USERS else silent
    run = plan_for_population(honest, epsilon=epsilon, by=by, law=law, silent=stated, proof=proof)
    shares = misbehaviour_shares(malicious, noise_by_users=run.by is NoiseBy.USERS)
    population, keys = replace(honest, misbehaving=shares), SimulationKeys.draw(entropy)
    options = noise_options(
        contribution=run.contribution, levels=1, parties=honest.devices, epsilon=epsilon, silent=stated
    )
    round = round_for_population(population, keys, run, proof=proof, smallest_batch=smallest_batch)
    return PlannedSimulation(population, keys, run, options, round)
