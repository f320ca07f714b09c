"""A small town of groups and places, made-up logs of it, and runs over them, for tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from tacit.entropy import Simulation
from tacit.gather.estimate.plan import CountNoiseLaw, RunPlan, plan_run
from tacit.gather.estimate.top_down import public_nodes
from tacit.gather.protocol.promises import Contribution
from tacit.gather.protocol.rounds import Question
from tacit.gather.simulate.runs import SimulatedCount, SimulatedResult
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Sequence
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import Tree

LEAF, GROUP, ROOT = (0,), (1,), (2,)
GROUPS, EACH = 8, 6
PLACES = [[f"g{group}p{place}" for place in range(EACH)] for group in range(GROUPS)]
TREE = Tree.of_paths([f"g{group}>{place}" for group, places in enumerate(PLACES) for place in places])
TOWN = Sequence([Steps("place", TREE)], [LEAF, GROUP, ROOT])
NAMES = [place for places in PLACES for place in places]


@cache
def town() -> ContextNodes:
    return public_nodes(TOWN, {"place": NAMES})


@cache
def run_plan(events: int = 4, each: int | None = None, epsilon: int = 20, levels: int = 3) -> RunPlan:
    """Pure noise: planned in no time, and its law has tails that a normal threshold would miss."""
    bound = Contribution(events, each)
    return plan_run(
        contribution=bound, levels=levels, parties=100_000, epsilon=epsilon, law=CountNoiseLaw.DISCRETE_LAPLACE
    )


@dataclass(frozen=True)
class Log:
    place: list[str]
    device: np.ndarray
    ad: np.ndarray
    clicked: np.ndarray
    devices: int

    @classmethod
    def drawn(cls, rng: np.random.Generator, rows: int, devices: int, ads: int, groups: int = GROUPS) -> Log:
        """Places of the first groups only; rates differ by ad and place."""
        place = rng.integers(0, groups * EACH, rows)
        ad = rng.integers(0, ads, rows)
        rate = 0.05 + 0.9 * rng.beta(1, 6, (GROUPS * EACH, ads))
        return cls(
            [NAMES[each] for each in place],
            rng.integers(0, devices, rows),
            ad,
            rng.random(rows) < rate[place, ad],
            devices,
        )

    def count(self, run: RunPlan, seed: str = "run", nodes: ContextNodes | None = None) -> SimulatedCount:
        return SimulatedCount.of(
            town() if nodes is None else nodes,
            {"place": self.place},
            self.device,
            self.ad,
            self.clicked,
            devices=self.devices,
            plan=run,
            entropy=Simulation(seed),
        )


def silently(count: SimulatedCount) -> Callable[[Question], SimulatedResult]:
    """Exact sums that claim to be noisy: to look at what is asked, not at the noise."""
    return lambda question: replace(count(question), values=count.exact(question))
