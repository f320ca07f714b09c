"""Planning one request, afresh and from a kept plan."""

from __future__ import annotations

import numpy as np

from tacit.bench.measurement import Measurement
from tacit.bench.training_turns import Contestant, take_turns
from tacit.deliver.planning.plan import plan_choice
from tacit.deliver.planning.planner import Planner
from tacit.deliver.planning.prior import SCENARIOS, Spread

CANDIDATES, EPSILON, SIGMA = 15, 3.0, 0.3
FRESH_BAR_MS, KEPT_BAR_US = 5.0, 50.0


def planning(requests: int, rounds: int) -> list[Measurement]:
    """Different requests, one plan after another; what is made once for all requests is made before."""
    draws, prior = np.random.default_rng(15), Spread(SIGMA)
    public = np.sort(np.exp(0.5 * draws.standard_normal((requests, CANDIDATES))), axis=1)[:, ::-1]
    planner = Planner(prior, most=requests)
    for scores in public:
        planner.plan(scores, EPSILON)
    seconds = take_turns(
        {
            "fresh": Contestant(lambda: [plan_choice(scores, prior, EPSILON) for scores in public], requests),
            "kept": Contestant(lambda: [planner.plan(scores, EPSILON) for scores in public], requests),
        },
        rounds,
    )
    settings = (
        f"trunc(k, m) for {CANDIDATES} candidates with {SCENARIOS} scenarios, lognormal spread {SIGMA:g}, "
        f"epsilon {EPSILON:g}; {requests} requests one by one, without the proof of the upper bound; processor "
        f"time, 1 thread, medians of up to {rounds} interleaved turns"
    )
    fresh, kept = 1e3 * seconds["fresh"].processor, 1e6 * seconds["kept"].processor
    return [
        Measurement("plan_15_ms", fresh, "ms", FRESH_BAR_MS, at_least=False, settings=settings),
        Measurement("plan_15_kept_us", kept, "us", KEPT_BAR_US, at_least=False, settings=settings),
    ]
