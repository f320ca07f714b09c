"""How the time and the work of a choice grow as tables do."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Mapping, Sequence

from tacit.bench.deliver_instances import Instance, market
from tacit.bench.measurement import Measurement
from tacit.kernels.greedy import lazy_greedy

MOST_RISE = 1.1
"""Of what each value of the table takes, from the smallest table to any larger one: 1 is linear growth."""

Size = tuple[int, int]  # ads, contexts


def growth(
    by_ads: Sequence[Size], by_contexts: Sequence[Size], markets: int, k: int, rounds: int
) -> list[Measurement]:
    """Over several markets of each size, since two of a size differ by half in how many ads are read twice."""
    how = f"k = {k}; means of {markets} markets, of each the least of {rounds} interleaved turns, 1 thread"
    measured = []
    for name, sizes in (("ads", by_ads), ("contexts", by_contexts)):
        seconds, evaluations = dict.fromkeys(sizes, 0.0), dict.fromkeys(sizes, 0.0)
        for seed in range(1, markets + 1):
            instances = {size: market(*size, seed) for size in sizes}
            least, looked = _least_seconds(instances, k, rounds)
            for size in sizes:
                seconds[size] += least[size] / markets
                evaluations[size] += looked[size] / markets
            del instances
            gc.collect()
        measured += rises(name, seconds, evaluations, how)
    return measured


def rises(
    name: str, seconds: Mapping[Size, float], evaluations: Mapping[Size, float], how: str
) -> list[Measurement]:
    """The most that a value of a larger table takes, over what one of the smallest takes."""
    nanoseconds = {size: 1e9 * taken / math.prod(size) for size, taken in seconds.items()}
    looks = {size: 1 + count / size[0] for size, count in evaluations.items()}  # the first reading is one
    smallest = min(nanoseconds, key=math.prod)
    listed = ", ".join(f"{a:,} x {c:,}: {nanoseconds[a, c]:.2f}, {looks[a, c]:.3f}" for a, c in nanoseconds)
    settings = (
        "a market's ads x contexts: processor nanoseconds for each value, and how often an ad's values are "
        f"read: {listed}; {how}"
    )
    figures = (
        ("time_a_value", max(nanoseconds.values()), nanoseconds[smallest], MOST_RISE),
        ("looks_an_ad", max(looks.values()), looks[smallest], None),
    )
    return [
        Measurement(f"greedy_{what}_rise_by_{name}", most / least, "x", bar, False, settings)
        for what, most, least, bar in figures
    ]


def _least_seconds(
    instances: Mapping[Size, Instance], k: int, rounds: int
) -> tuple[dict[Size, float], dict[Size, int]]:
    """In turns; the least, since what others do on the machine only ever adds."""
    seconds = dict.fromkeys(instances, math.inf)
    evaluations = {}
    for _ in range(rounds):
        for size, instance in instances.items():
            start = time.process_time()
            evaluations[size] = lazy_greedy(instance.values, instance.weight, k).evaluations
            seconds[size] = min(seconds[size], time.process_time() - start)
    return seconds, evaluations
