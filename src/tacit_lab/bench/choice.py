"""Choice: private choices beside OpenDP's and diffprivlib's, auctions beside NumPy, laws beside draws, plans,
and priors learnt from reports.
"""

from __future__ import annotations

import importlib
import math
import time
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tacit.arrays import Floats
from tacit.deliver.auction.choices import TopChoiceRule
from tacit.deliver.auction.metrics import REACH
from tacit.deliver.protocol.factor_laws import SCENARIOS, Spread
from tacit.deliver.protocol.plans import Planner, plan_choice
from tacit.deliver.protocol.priors import ScorePrior
from tacit.deliver.server.prior_evidence import PriorEvidence, ReportedRanks
from tacit.deliver.server.report_chances import LAWS
from tacit.entropy import Entropy
from tacit.kernels.choices import TopLaws, choose_by_pmf, choose_top, expected, flip_pmf
from tacit.privacy.choice.noise import unit_nodes
from tacit_lab.bench.choice_market import (
    CUTOFF,
    EPSILON,
    RESERVE,
    AuctionWork,
    auctions_in_numpy,
    charge_auctions,
    market_growth,
)
from tacit_lab.bench.measurement import Contestant, Measurement, Seconds, SuiteProgress, take_turns

Loop = Callable[[list[float]], object]

PEERS = ("opendp", "diffprivlib")


def opendp_loop(epsilon: float) -> Loop | None:
    """OpenDP's noisy maximum under pure DP: exponential noise, scores of sensitivity 1 that may move apart."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return None
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
    loop: Loop = dp.m.make_noisy_max(*space, dp.max_divergence(), scale=2 / epsilon)
    return loop


def diffprivlib_loop(epsilon: float) -> Loop | None:
    """diffprivlib's permute-and-flip, which is made anew for every request's scores."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            mechanism = importlib.import_module("diffprivlib.mechanisms").PermuteAndFlip
        except ImportError:  # also where its scikit-learn is too new for it
            return None

    def loop(scores: list[float]) -> object:
        return mechanism(epsilon=epsilon, sensitivity=1.0, utility=scores).randomise()

    return loop


CANDIDATES, PLAN_EPSILON, SIGMA = 15, 3.0, 0.3
FRESH_BAR_MS, KEPT_BAR_US = 5.0, 50.0


def planning_speed(requests: int, rounds: int) -> list[Measurement]:
    """Different requests, one plan after another; what is made once for all requests is made before."""
    draws, prior = np.random.default_rng(15), Spread(SIGMA)
    public = np.sort(np.exp(0.5 * draws.standard_normal((requests, CANDIDATES))), axis=1)[:, ::-1]
    planner = Planner(prior, most=requests)
    for scores in public:
        planner.plan(scores, PLAN_EPSILON)
    seconds = take_turns(
        {
            "fresh": Contestant(
                lambda: [plan_choice(scores, prior, PLAN_EPSILON) for scores in public], requests
            ),
            "kept": Contestant(lambda: [planner.plan(scores, PLAN_EPSILON) for scores in public], requests),
        },
        rounds,
    )
    settings = (
        f"trunc(k, m) for {CANDIDATES} candidates with {SCENARIOS} scenarios, lognormal spread {SIGMA:g}, "
        f"epsilon {PLAN_EPSILON:g}; {requests} requests one by one, without the proof of the upper bound; "
        f"processor time, 1 thread, medians of up to {rounds} interleaved turns"
    )
    fresh, kept = 1e3 * seconds["fresh"].processor, 1e6 * seconds["kept"].processor
    return [
        Measurement("plan_15_ms", fresh, "ms", FRESH_BAR_MS, at_least=False, settings=settings),
        Measurement("plan_15_kept_us", kept, "us", KEPT_BAR_US, at_least=False, settings=settings),
    ]


LEARNT_BAR = 1.2
LEARNING_BAR_S, GROWTH_BAR = 10.0, 1.1
LEARNING_CANDIDATES, LEARNING_EPSILON = 8, 2.0


def learnt_planning_speed(requests: int, rounds: int) -> list[Measurement]:
    """Plans of different requests by a learnt prior, against a fixed one: none is remembered."""
    draws, fixed = np.random.default_rng(16), Spread()
    learnt = PriorEvidence().learn(_reports(200, 200)).prior()  # few, so that many laws are still likely
    measured = []
    for size in (8, 15):
        public = np.sort(np.exp(0.5 * draws.standard_normal((requests, size))), axis=1)[:, ::-1]

        def plan(prior: ScorePrior, public: Floats = public) -> None:
            for scores in public:
                plan_choice(scores, prior, PLAN_EPSILON)

        seconds = take_turns(
            {
                "learnt": Contestant(partial(plan, learnt), requests),
                "fixed": Contestant(partial(plan, fixed), requests),
            },
            rounds,
        )
        settings = (
            f"{requests} plans of {size} candidates at epsilon {PLAN_EPSILON:g} by a prior of "
            f"{len(learnt.mixture.parts)} laws, learnt from 200 reports, and by a lognormal one of spread 1; "
            f"microseconds: {_microseconds(seconds)}; processor time, 1 thread, medians of up to {rounds} "
            "interleaved turns"
        )
        ratio = seconds["learnt"].processor / seconds["fixed"].processor
        measured.append(
            Measurement(
                f"plan_{size}_learnt_vs_fixed", ratio, "x", LEARNT_BAR, at_least=False, settings=settings
            )
        )
    return measured


def learning_speed(menus: int, reports: int) -> list[Measurement]:
    """A prior from many reports over many menus, and what memory it takes as there are more reports."""
    reported = _reports(menus, reports)
    PriorEvidence().learn(reported[:1])  # what is made once for all menus
    began = time.process_time()
    PriorEvidence().learn(reported)
    seconds = time.process_time() - began
    peaks = []
    for count in (reports // 100, reports):
        few = _reports(min(menus, 200), count)
        tracemalloc.start()
        PriorEvidence().learn(few)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    settings = (
        f"{reports:,} reports over {menus:,} menus of {LEARNING_CANDIDATES} candidates at epsilon "
        f"{LEARNING_EPSILON:g}, by menu and rank, under {len(LAWS)} laws; processor time, 1 thread, once; peak "
        f"of memory over {min(menus, 200)} menus: {peaks[1] / 2**20:.1f} MiB of {reports:,} reports, "
        f"{peaks[0] / 2**20:.1f} MiB of {reports // 100:,}"
    )
    return [
        Measurement("learn_prior_s", seconds, "s", LEARNING_BAR_S, at_least=False, settings=settings),
        Measurement("learn_prior_ns_per_report", 1e9 * seconds / reports, "ns", settings=settings),
        Measurement(
            "learn_prior_memory_growth", peaks[1] / peaks[0], "x", GROWTH_BAR, at_least=False, settings=settings
        ),
    ]


def _reports(menus: int, reports: int) -> list[ReportedRanks]:
    """Ranks that were reported of different menus, as many of each."""
    draws, size = np.random.default_rng(17), LEARNING_CANDIDATES
    found = []
    for number in np.diff(np.linspace(0, reports, menus + 1).astype(np.int64)).tolist():
        public = np.sort(np.exp(0.5 * draws.standard_normal(size)))[::-1]
        plan = plan_choice(public, Spread(), LEARNING_EPSILON)
        ranking = plan.law.pmf(public * draws.lognormal(-0.08, 0.4, (64, size))).mean(axis=0)
        found.append(ReportedRanks(public, plan.law, draws.multinomial(number, ranking / ranking.sum())))
    return found


ERROR = 1e-3
CHOOSING_BARS = {4: 1000.0, 15: 400.0, 100: 90.0}
CRYPTOGRAPHIC_BAR, AUCTIONS_BAR, EXACT_BAR = 50.0, 20.0, 10_000.0


@dataclass(frozen=True)
class ChoiceScale:
    """How much of everything; tests take less."""

    rows: int = 2**20  # candidates chosen among in one turn
    auction_rows: int = 2**22
    block_auctions: int = 2**16
    peer_calls: int = 200
    plans: int = 100
    menus: int = 2_000  # that reports are of
    reports: int = 1_000_000
    growth_rows: tuple[int, ...] = (2**20, 2**22, 2**24)
    rounds: int = 7


FULL = ChoiceScale()


def run(progress: SuiteProgress, scale: ChoiceScale = FULL) -> list[Measurement]:
    parts: list[Callable[[], list[Measurement]]] = []
    for size in CHOOSING_BARS:
        parts += [partial(part, scale, size) for part in (choice_speed, auction_speed, exact_speed)]
    parts.append(partial(planning_speed, scale.plans, scale.rounds))
    parts.append(partial(learnt_planning_speed, scale.plans, scale.rounds))
    parts.append(partial(learning_speed, scale.menus, scale.reports))
    parts.append(partial(market_growth, scale.growth_rows))
    return [measured for part in progress(parts, "choice") for measured in part()]


def choice_speed(scale: ChoiceScale, size: int) -> list[Measurement]:
    """One candidate of `size`, many requests: ours from ready words and from cryptographic ones."""
    requests, entropy = scale.rows // size, Entropy()
    offsets = np.arange(requests + 1, dtype=np.int64) * size
    scores = np.random.default_rng(size).random(requests * size)
    laws, words = _laws(size, requests), entropy.words(requests)
    rates = np.full(requests, EPSILON / 2)
    rows = scores.reshape(requests, size)[: scale.peer_calls].tolist()
    contestants: dict[str, Contestant] = {
        "ready": Contestant(partial(choose_top, offsets, scores, laws, words), requests),
        "cryptographic": Contestant(
            lambda: choose_top(offsets, scores, laws, entropy.words(requests)), requests
        ),
        "same law": Contestant(
            lambda: choose_by_pmf(
                offsets, flip_pmf(offsets, scores, rates, unit_nodes), entropy.words(requests)
            ),
            requests,
        ),
    }
    for name, loop in (("opendp", opendp_loop(EPSILON)), ("diffprivlib", diffprivlib_loop(EPSILON))):
        if loop is not None:
            contestants[name] = Contestant(partial(_run_loop, loop, rows), len(rows))
    seconds = take_turns(contestants, scale.rounds)
    settings = (
        f"{size} candidates, epsilon {EPSILON:g}; ours: {requests:,} requests at once by randomized response, "
        "from words that are ready, from cryptographic ones, or by permute-and-flip (same law); peers: noisy "
        f"maximum, one call a request; nanoseconds a choice: {_nanoseconds(seconds)}; {_rounds(scale)}"
    )
    measured = []
    for peer in PEERS:
        bars = {"ready": CHOOSING_BARS[size], "cryptographic": CRYPTOGRAPHIC_BAR} if peer == "opendp" else {}
        for way in ("ready", "cryptographic", "same law"):
            name = f"choose_{way.replace(' ', '_')}_{size}_vs_{peer}"
            if peer not in seconds:
                measured.append(
                    Measurement(name, math.nan, "x", settings=f"not measured: {peer} does not import")
                )
                continue
            ratio = seconds[peer].processor / seconds[way].processor
            measured.append(Measurement(name, ratio, "x", bars.get(way), settings=settings))
    return measured


def auction_speed(scale: ChoiceScale, size: int) -> list[Measurement]:
    """Rank, price, cut, choose and bill."""
    count, entropy, draws = scale.auction_rows // size, Entropy(), np.random.default_rng(1)
    work = AuctionWork.draw(size, count)
    blocks, small = work.parts(scale.block_auctions), work.parts(max(1, scale.block_auctions // size))
    seconds = take_turns(
        {
            "tacit": Contestant(lambda: [charge_auctions(block, entropy) for block in blocks], count),
            "numpy": Contestant(partial(auctions_in_numpy, work, draws), count),
            "numpy in small blocks": Contestant(
                lambda: [auctions_in_numpy(block, draws) for block in small], count
            ),
        },
        max(3, scale.rounds // 2),
    )
    settings = (
        f"{count:,} auctions of {size} candidates: rank, price, cutoff {CUTOFF:g}, reserve {RESERVE} micros, "
        f"randomized response at epsilon {EPSILON:g}, bill; ours in blocks of {scale.block_auctions:,} "
        "auctions with checks, reasons and cryptographic words; NumPy by lexsort over all rows at once, or in "
        f"blocks of {scale.block_auctions:,} rows, which stay in cache; nanoseconds an auction: "
        f"{_nanoseconds(seconds)}; {_rounds(scale)}"
    )
    ratios = {name: each.processor / seconds["tacit"].processor for name, each in seconds.items()}
    return [
        Measurement(f"auctions_{size}_vs_numpy", ratios["numpy"], "x", AUCTIONS_BAR, settings=settings),
        Measurement(
            f"auctions_{size}_vs_numpy_in_cache", ratios["numpy in small blocks"], "x", settings=settings
        ),
    ]


def exact_speed(scale: ChoiceScale, size: int) -> list[Measurement]:
    """The expected share of the best score under permute-and-flip, exactly, and by drawing."""
    requests = max(1, scale.rows // size // 4)
    offsets = np.arange(requests + 1, dtype=np.int64) * size
    draws = np.random.default_rng(size)
    scores = draws.random((requests, size))
    scores /= scores.max(axis=1, keepdims=True)
    flat, rates = scores.reshape(-1), np.full(requests, EPSILON / 2)
    values = np.stack([flat, flat**2], axis=1)

    def exactly() -> object:
        return expected(offsets, flip_pmf(offsets, flat, rates, unit_nodes), values[:, :1].copy())

    def one_draw() -> object:
        noise = draws.standard_exponential(scores.shape)
        chosen = np.argmax(scores * (EPSILON / 2) + noise, axis=1)
        return scores[np.arange(requests), chosen]

    seconds = take_turns(
        {"exact": Contestant(exactly, requests), "draw": Contestant(one_draw, requests)}, scale.rounds
    )
    moments = expected(offsets, flip_pmf(offsets, flat, rates, unit_nodes), values)
    needed = float(np.mean(moments[:, 1] - moments[:, 0] ** 2)) * (REACH / ERROR) ** 2
    ratio = needed * seconds["draw"].processor / seconds["exact"].processor
    settings = (
        f"expected share of the best of {size} uniform scores by permute-and-flip at epsilon {EPSILON:g}; "
        f"Monte Carlo needs {needed:,.0f} draws a request for +-{ERROR:g} (95%), drawn by NumPy for "
        f"{requests:,} requests at once; nanoseconds: {_nanoseconds(seconds)}; {_rounds(scale)}"
    )
    return [Measurement(f"exact_{size}_vs_monte_carlo", ratio, "x", EXACT_BAR, settings=settings)]


def _laws(size: int, requests: int) -> TopLaws:
    columns = TopChoiceRule(EPSILON).laws_by_size(size)
    assert columns is not None
    return TopLaws(np.full(requests, size, np.int64), *columns)


def _run_loop(loop: Loop, rows: list[list[float]]) -> None:
    for row in rows:
        loop(row)


def _nanoseconds(seconds: dict[str, Seconds]) -> str:
    return ", ".join(f"{name} {1e9 * each.processor:,.0f}" for name, each in seconds.items())


def _microseconds(seconds: dict[str, Seconds]) -> str:
    return ", ".join(f"{name} {1e6 * each.processor:,.0f}" for name, each in seconds.items())


def _rounds(scale: ChoiceScale) -> str:
    return f"processor time of 1 thread, medians of up to {scale.rounds} interleaved turns"
