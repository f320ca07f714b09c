"""Deliver: candidate sets by lazy greedy beside naive ones and submodlib's, their quality, how time grows."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from tacit.deliver.server.selection import IncrementalSelection
from tacit.deliver.server.values import ContextValues
from tacit.kernels.greedy import lazy_greedy
from tacit_lab.bench.deliver_peers import (
    Instance,
    Maker,
    market_instance,
    naive_compiled,
    naive_numpy,
    sparse_instance,
    submodlib_maker,
    uniform_instance,
)
from tacit_lab.bench.measurement import (
    Contestant,
    Measurement,
    SuiteProgress,
    milliseconds,
    processor_model,
    take_turns,
)

MOST_RISE = 1.1
"""Of what each value of the table takes, from the smallest table to any larger one: 1 is linear growth."""

Size = tuple[int, int]  # ads, contexts


def greedy_growth(
    by_ads: Sequence[Size], by_contexts: Sequence[Size], markets: int, k: int, rounds: int
) -> list[Measurement]:
    """Over several markets of each size, since two of a size differ by half in how many ads are read twice."""
    how = f"k = {k}; means of {markets} markets, of each the least of {rounds} interleaved turns, 1 thread"
    measured = []
    for name, sizes in (("ads", by_ads), ("contexts", by_contexts)):
        seconds, evaluations = dict.fromkeys(sizes, 0.0), dict.fromkeys(sizes, 0.0)
        for seed in range(1, markets + 1):
            instances = {size: market_instance(*size, seed) for size in sizes}
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


ADS, CONTEXTS, SIZES = 14, 30, (2, 3, 4, 5)
QUALITY_BAR = 0.98


def quality(count: int) -> list[Measurement]:
    """Greedy over the best set, and the bound over it, on a number of instances of either kind.

    The bar is for a market. Where values are uniform no ad is better than others, and more is left to choice.
    """
    return [
        *_quality("market", market_instance, count, QUALITY_BAR),
        *_quality("uniform", uniform_instance, count, None),
    ]


def _quality(name: str, maker: Maker, count: int, bar: float | None) -> list[Measurement]:
    shares, bounds = [], []
    for seed in range(count):
        instance, k = maker(ADS, CONTEXTS, seed), SIZES[seed % len(SIZES)]
        best = brute_force(instance, k)
        picked = lazy_greedy(instance.values, instance.weight, k, certify=True)
        assert picked.bound is not None
        shares.append(float(picked.gains.sum()) / best)
        bounds.append(picked.bound / best)
    settings = (
        f"{count} instances ({name}) of {ADS} ads x {CONTEXTS} contexts, k of {', '.join(map(str, SIZES))}, "
        f"all sets tried; greedy over best: mean {np.mean(shares):.4f}, equal in "
        f"{np.mean(np.array(shares) > 1 - 1e-9):.0%}; bound over best: mean {np.mean(bounds):.3f}; guaranteed: "
        f"1 - 1/e = {1 - 1 / np.e:.3f}"
    )
    return [
        Measurement(f"greedy_over_best_min_{name}", min(shares), "x", bar, settings=settings),
        Measurement(f"bound_over_best_min_{name}", min(bounds), "x", 1 - 1e-9, settings=settings),
    ]


def brute_force(instance: Instance, k: int) -> float:
    """What the best k ads earn."""
    sets = np.array(list(combinations(range(len(instance.values)), k)))
    best = instance.values[sets].astype(np.float64).max(axis=1)  # (sets, contexts)
    return float((best @ instance.weight).max())


K = 50
NUMPY_BAR, SUBMODLIB_BAR = 50.0, 10.0


@dataclass(frozen=True)
class DeliverScale:
    """How much of everything; tests take less. Bars in milliseconds go by the number of ads.

    Tables that grow are larger than the caches from the first on. Where contexts grow, the weights of one row
    are larger than half the nearest cache: below that each value is cheaper, however the work grows.
    """

    bars_ms: tuple[tuple[int, float], ...] = ((10_000, 20.0), (100_000, 150.0))
    contexts: int = 1000
    by_ads: tuple[Size, ...] = ((20_000, 1000), (40_000, 1000), (80_000, 1000))
    by_contexts: tuple[Size, ...] = ((10_000, 2000), (10_000, 4000), (10_000, 8000))
    markets: int = 6
    sparse_ads: int = 1_000_000
    instances: int = 200
    rounds: int = 9


FULL = DeliverScale()


def run(progress: SuiteProgress, scale: DeliverScale = FULL) -> list[Measurement]:
    parts: list[Callable[[], list[Measurement]]] = [partial(beside_peers, scale)]
    parts += [partial(choice_speed, scale, ads, bar) for ads, bar in scale.bars_ms]
    parts += [
        partial(greedy_growth, scale.by_ads, scale.by_contexts, scale.markets, K, scale.rounds),
        partial(sparse_speed, scale),
        partial(update_speed, scale),
    ]
    parts.append(partial(quality, scale.instances))
    return [measured for part in progress(parts, "deliver") for measured in part()]


def choice_speed(scale: DeliverScale, ads: int, bar: float) -> list[Measurement]:
    """A choice of k from a table that was never seen: every value read, checked and bounded in this time."""
    measured = []
    for name, maker in (("market", market_instance), ("uniform", uniform_instance)):
        instance = maker(ads, scale.contexts, 1)
        seconds = take_turns(
            {
                "choice": Contestant(partial(_ours, instance)),
                "choice and bound": Contestant(partial(_ours, instance, certify=True)),
            },
            scale.rounds,
        )
        settings = (
            f"{ads:,} ads x {scale.contexts:,} contexts, float32, k = {K}, {_describe_maker(maker)}; processor "
            f"milliseconds (wall): {milliseconds(seconds)}; {_describe_turns(scale)}"
        )
        asked = bar if maker is market_instance else None
        value = 1000 * seconds["choice"].processor
        measured.append(Measurement(f"greedy_{ads}_{name}_ms", value, "ms", asked, False, settings))
        del instance
        gc.collect()
    return measured


def beside_peers(scale: DeliverScale) -> list[Measurement]:
    """The same instance, the same revenue."""
    ads = scale.bars_ms[0][0]
    instance = market_instance(ads, scale.contexts, 1)
    contestants: dict[str, Contestant] = {
        "tacit": Contestant(partial(_ours, instance)),
        "naive compiled": Contestant(partial(naive_compiled, instance, K), every=4),
        "naive numpy": Contestant(partial(naive_numpy, instance, K), every=4),
    }
    revenue = {
        "tacit": _ours(instance),
        "naive compiled": naive_compiled(instance, K)[1],
        "naive numpy": naive_numpy(instance, K)[1],
    }
    make = submodlib_maker(instance, K)
    if make is not None:
        choose = make()
        revenue["submodlib"] = choose()[1]
        contestants["submodlib"] = Contestant(choose, every=2)
        contestants["submodlib with its object"] = Contestant(lambda: make()(), every=4)
    apart = max(revenue.values()) / min(revenue.values()) - 1
    seconds = take_turns(contestants, scale.rounds)
    settings = (
        f"{ads:,} ads x {scale.contexts:,} contexts, k = {K}, {_describe_maker(market_instance)}; revenues "
        f"differ by a share of {apart:.1g}; processor milliseconds (wall): {milliseconds(seconds)}; "
        f"{_describe_turns(scale)}"
    )
    bars = {"naive numpy": NUMPY_BAR, "submodlib": SUBMODLIB_BAR}
    measured = []
    for peer in ("naive numpy", "naive compiled", "submodlib", "submodlib with its object"):
        name = f"greedy_vs_{peer.replace(' ', '_')}"
        if peer not in seconds:
            absent = "not measured: submodlib does not import"
            measured.append(Measurement(name, math.nan, "x", settings=absent))
            continue
        ratio = seconds[peer].processor / seconds["tacit"].processor
        measured.append(Measurement(name, ratio, "x", bars.get(peer), settings=settings))
    measured.append(Measurement("revenues_apart", apart, "share", 1e-5, False, settings))
    return measured


def sparse_speed(scale: DeliverScale) -> list[Measurement]:
    """Ads that bid on few contexts, as sparse values."""
    entries = 20
    values, weight = sparse_instance(scale.sparse_ads, scale.contexts, entries, 1)
    seconds = take_turns({"choice": Contestant(lambda: lazy_greedy(values, weight, K))}, scale.rounds)
    settings = (
        f"{scale.sparse_ads:,} ads with {entries} of {scale.contexts:,} contexts each, k = {K}; processor "
        f"milliseconds (wall): {milliseconds(seconds)}; {_describe_turns(scale)}"
    )
    value = 1000 * seconds["choice"].processor
    return [Measurement("greedy_sparse_ms", value, "ms", settings=settings)]


def update_speed(scale: DeliverScale) -> list[Measurement]:
    """A hundredth of the ads change, then a choice: from what is kept, and from nothing."""
    ads = scale.bars_ms[0][0]
    instance, changed = (
        market_instance(ads, scale.contexts, 1),
        market_instance(max(1, ads // 100), scale.contexts, 2),
    )
    everything = ContextValues(instance.weight, instance.values, np.arange(ads, dtype=np.int64))
    kept, some = IncrementalSelection(everything), np.arange(len(changed.values), dtype=np.int64) * 100 % ads

    def follow() -> None:
        kept.update(some, changed.values)
        kept.select(K, certify=False)

    turns = {"kept": Contestant(follow), "anew": Contestant(partial(_ours, instance))}
    seconds = take_turns(turns, scale.rounds)
    settings = (
        f"{len(some):,} of {ads:,} ads replaced, then k = {K} chosen; processor milliseconds (wall): "
        f"{milliseconds(seconds)}; {_describe_turns(scale)}"
    )
    ratio = seconds["anew"].processor / seconds["kept"].processor
    return [Measurement("update_and_choose_vs_anew", ratio, "x", settings=settings)]


def _ours(instance: Instance, certify: bool = False) -> float:
    picked = lazy_greedy(instance.values, instance.weight, K, certify=certify)
    return float(picked.gains.sum())


def _describe_maker(maker: Maker) -> str:
    return (maker.__doc__ or "").split(":")[0].split(".")[0].strip().lower()


def _describe_turns(scale: DeliverScale) -> str:
    return f"1 thread of {processor_model()}, medians of up to {scale.rounds} interleaved turns"
