"""Deliver: candidate sets by lazy greedy beside naive ones and submodlib's, their quality, how time grows."""

from __future__ import annotations

import gc
import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tacit.bench.deliver_growth import Size, growth
from tacit.bench.deliver_instances import Instance, Maker, market, sparse, uniform
from tacit.bench.deliver_peers import naive_compiled, naive_numpy, submodlib_maker
from tacit.bench.deliver_quality import quality
from tacit.bench.measurement import Measurement, Track
from tacit.bench.training_turns import Contestant, milliseconds, take_turns
from tacit.deliver.candidates.updates import Candidates
from tacit.deliver.candidates.values import ContextValues
from tacit.kernels.greedy import lazy_greedy

K = 50
NUMPY_BAR, SUBMODLIB_BAR = 50.0, 10.0


@dataclass(frozen=True)
class Scale:
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


FULL = Scale()


def run(track: Track, scale: Scale = FULL) -> list[Measurement]:
    parts: list[Callable[[], list[Measurement]]] = [partial(beside_peers, scale)]
    parts += [partial(speed, scale, ads, bar) for ads, bar in scale.bars_ms]
    parts += [
        partial(growth, scale.by_ads, scale.by_contexts, scale.markets, K, scale.rounds),
        partial(of_sparse, scale),
        partial(updating, scale),
    ]
    parts.append(partial(quality, scale.instances))
    return [measured for part in track(parts, "deliver") for measured in part()]


def speed(scale: Scale, ads: int, bar: float) -> list[Measurement]:
    """A choice of k from a table that was never seen: every value read, checked and bounded in this time."""
    measured = []
    for name, maker in (("market", market), ("uniform", uniform)):
        instance = maker(ads, scale.contexts, 1)
        seconds = take_turns(
            {
                "choice": Contestant(partial(_ours, instance)),
                "choice and bound": Contestant(partial(_ours, instance, certify=True)),
            },
            scale.rounds,
        )
        settings = (
            f"{ads:,} ads x {scale.contexts:,} contexts, float32, k = {K}, {_described(maker)}; processor "
            f"milliseconds (wall): {milliseconds(seconds)}; {_measured(scale)}"
        )
        asked = bar if maker is market else None
        value = 1000 * seconds["choice"].processor
        measured.append(Measurement(f"greedy_{ads}_{name}_ms", value, "ms", asked, False, settings))
        del instance
        gc.collect()
    return measured


def beside_peers(scale: Scale) -> list[Measurement]:
    """The same instance, the same revenue."""
    ads = scale.bars_ms[0][0]
    instance = market(ads, scale.contexts, 1)
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
        f"{ads:,} ads x {scale.contexts:,} contexts, k = {K}, {_described(market)}; revenues differ by a share "
        f"of {apart:.1g}; processor milliseconds (wall): {milliseconds(seconds)}; {_measured(scale)}"
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


def of_sparse(scale: Scale) -> list[Measurement]:
    """Ads that bid on few contexts, as sparse values."""
    entries = 20
    values, weight = sparse(scale.sparse_ads, scale.contexts, entries, 1)
    seconds = take_turns({"choice": Contestant(lambda: lazy_greedy(values, weight, K))}, scale.rounds)
    settings = (
        f"{scale.sparse_ads:,} ads with {entries} of {scale.contexts:,} contexts each, k = {K}; processor "
        f"milliseconds (wall): {milliseconds(seconds)}; {_measured(scale)}"
    )
    value = 1000 * seconds["choice"].processor
    return [Measurement("greedy_sparse_ms", value, "ms", settings=settings)]


def updating(scale: Scale) -> list[Measurement]:
    """A hundredth of the ads change, then a choice: from what is kept, and from nothing."""
    ads = scale.bars_ms[0][0]
    instance, changed = market(ads, scale.contexts, 1), market(max(1, ads // 100), scale.contexts, 2)
    everything = ContextValues(instance.weight, instance.values, np.arange(ads, dtype=np.int64))
    kept, some = Candidates(everything), np.arange(len(changed.values), dtype=np.int64) * 100 % ads

    def follow() -> None:
        kept.update(some, changed.values)
        kept.select(K, certify=False)

    turns = {"kept": Contestant(follow), "anew": Contestant(partial(_ours, instance))}
    seconds = take_turns(turns, scale.rounds)
    settings = (
        f"{len(some):,} of {ads:,} ads replaced, then k = {K} chosen; processor milliseconds (wall): "
        f"{milliseconds(seconds)}; {_measured(scale)}"
    )
    ratio = seconds["anew"].processor / seconds["kept"].processor
    return [Measurement("update_and_choose_vs_anew", ratio, "x", settings=settings)]


def _ours(instance: Instance, certify: bool = False) -> float:
    picked = lazy_greedy(instance.values, instance.weight, K, certify=certify)
    return float(picked.gains.sum())


def _described(maker: Maker) -> str:
    return (maker.__doc__ or "").split(":")[0].split(".")[0].strip().lower()


def _measured(scale: Scale) -> str:
    return f"1 thread of {processor()}, medians of up to {scale.rounds} interleaved turns"


def processor(lines: Sequence[str] | None = None) -> str:
    """The model of the processor, as the system has it."""
    if lines is None:
        source = Path("/proc/cpuinfo")
        lines = source.read_text().splitlines() if source.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
