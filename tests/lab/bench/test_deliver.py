"""The deliver suite at toy size: contestants choose sets of the same revenue, and figures come out whole."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from importlib.util import find_spec

import numpy as np
import pytest

from tacit.kernels.greedy import lazy_greedy
from tacit_lab.bench import deliver
from tacit_lab.bench.deliver import brute_force, rises
from tacit_lab.bench.deliver_peers import (
    Maker,
    market_instance,
    naive_compiled,
    naive_numpy,
    sparse_instance,
    submodlib_maker,
    uniform_instance,
)
from tacit_lab.bench.measurement import Item, processor_model

SUBMODLIB = find_spec("submodlib") is not None  # of the bench extra: without it a peer's figure is not measured
TOY = deliver.DeliverScale(
    bars_ms=((300, 20.0), (500, 150.0)),
    contexts=60,
    by_ads=((200, 60), (400, 60)),
    by_contexts=((200, 60), (200, 120)),
    markets=2,
    sparse_ads=500,
    instances=8,
    rounds=2,
)


def plain(items: Sequence[Item], label: str) -> Iterable[Item]:  # noqa: ARG001
    return items


def test_the_suite_runs_and_names_every_bar() -> None:
    measured = {m.name: m for m in deliver.run(plain, TOY)}
    bars = {
        "greedy_300_market_ms": 20.0,
        "greedy_500_market_ms": 150.0,
        "greedy_vs_naive_numpy": 50.0,
        "greedy_over_best_min_market": 0.98,
        "greedy_time_a_value_rise_by_ads": 1.1,
        "greedy_time_a_value_rise_by_contexts": 1.1,
    }
    assert {name: measured[name].bar for name in bars} == bars
    beside = measured["greedy_vs_submodlib"]
    assert beside.bar == 10.0 or (not SUBMODLIB and math.isnan(beside.value))
    assert all(m.value > 0 or math.isnan(m.value) for m in measured.values() if m.name != "revenues_apart")
    assert measured["revenues_apart"].holds
    assert measured["bound_over_best_min_market"].holds
    assert measured["bound_over_best_min_uniform"].holds


@pytest.mark.parametrize("maker", [market_instance, uniform_instance])
def test_contestants_reach_the_same_revenue(maker: Maker) -> None:
    instance = maker(200, 50, 1)
    ours = lazy_greedy(instance.values, instance.weight, 10).gains.sum()
    assert math.isclose(naive_numpy(instance, 10)[1], ours, rel_tol=1e-5)
    assert math.isclose(naive_compiled(instance, 10)[1], ours, rel_tol=1e-12)
    make = submodlib_maker(instance, 10)
    if make is not None:
        assert math.isclose(make()()[1], ours, rel_tol=1e-5)


def test_instances_are_what_they_say() -> None:
    one, again, other = market_instance(50, 40, 1), market_instance(50, 40, 1), market_instance(50, 40, 2)
    np.testing.assert_array_equal(one.values, again.values)
    assert (one.values != other.values).any()
    assert math.isclose(one.weight.sum(), 1.0)
    assert one.values.min() > 0.0
    values, weight = sparse_instance(30, 40, 5, 1)
    assert values.shape == (30, 40)
    assert (np.diff(values.offsets) == 5).all()
    assert math.isclose(weight.sum(), 1.0)


def test_brute_force_finds_a_planted_set() -> None:
    instance = uniform_instance(8, 6, 1)
    instance.values[[2, 5]] = 0.0
    instance.values[2, :3] = instance.values[5, 3:] = 2.0
    assert math.isclose(brute_force(instance, 2), 2.0)


def test_growth_beyond_linear_misses_its_bar() -> None:
    linear = {(100, 10): 1.0, (200, 10): 2.0, (400, 10): 4.3}
    looks = {(100, 10): 100, (200, 10): 200, (400, 10): 400}
    assert rises("ads", linear, looks, "")[0].holds
    worse = {(100, 10): 1.0, (200, 10): 2.5, (400, 10): 6.0}
    more = {(100, 10): 100, (200, 10): 500, (400, 10): 2000}
    time, reads = rises("ads", worse, more, "")
    assert not time.holds
    assert reads.value == 6.0 / 2.0


def test_the_machine_is_named() -> None:
    assert processor_model(["vendor_id: x", "model name\t: Some Processor 3"]) == "Some Processor 3"
    assert processor_model([])
    assert processor_model()
