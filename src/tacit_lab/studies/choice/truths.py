"""How far private scores may truly be from public ones, in eighteen laws; menus of three markets; and ratios
that devices count.

A law of factors is given by the means of its equally likely strata, scaled to a mean of one: that list is the
law itself, people are drawn from it, and `ObservedRatios` of it is the true prior.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy import stats
from scipy.special import expit, ndtri

from tacit.arrays import Floats, Integers
from tacit.data.generators.markets import Market
from tacit.data.generators.worlds import seeded_generator
from tacit.deliver.protocol.factor_laws import SCENARIOS, ObservedRatios
from tacit.entropy import Simulation
from tacit.gather.estimate.plan import CountNoiseLaw, RunPlan, plan_run
from tacit.gather.protocol.promises import Contribution
from tacit_lab.studies.choice.reports import ReportingMenus

MOST_CANDIDATES = 15
FINER = 16  # points within a stratum, whose mean stands for it
_AT = (np.arange(SCENARIOS * FINER) + 0.5) / (SCENARIOS * FINER)
_STREAM = 33

DISPLAY, SEARCH, EIGHT = "display-like", "search-like", "8 near ties"
MARKETS = (DISPLAY, SEARCH, EIGHT)


def _law(values: Floats) -> Floats:
    means = np.sort(values).reshape(SCENARIOS, FINER).mean(axis=1)
    found: Floats = means / means.mean()
    return found


def _lognormal(sigma: float, at: Floats = _AT) -> Floats:
    found: Floats = np.exp(sigma * ndtri(at) - sigma**2 / 2)
    return found


def _log_laplace(scale: float) -> Floats:
    found: Floats = np.exp(scale * stats.laplace.ppf(_AT))
    return found


def _few(share: float, times: float) -> Floats:
    return np.where(1 - share < _AT, times, 1.0)


def _some(share: float, sigma: float) -> Floats:
    known = round(share * len(_AT))
    own = _lognormal(sigma, (np.arange(known) + 0.5) / known)
    return np.concatenate([np.ones(len(_AT) - known), own])


TRUTHS: dict[str, Floats] = {
    **{f"lognormal {sigma:g}": _law(_lognormal(sigma)) for sigma in (0.1, 0.3, 0.6, 1.0, 1.5, 2.2)},
    **{f"Pareto {tail:g}": _law((1 - _AT) ** (-1 / tail)) for tail in (1.5, 3.0)},
    **{f"log-Laplace {scale:g}": _law(_log_laplace(scale)) for scale in (0.4, 0.7)},
    "log-t(3) 0.3": _law(np.exp(0.3 * np.clip(stats.t.ppf(_AT, 3), -6, 6))),
    "gamma 0.5": _law(stats.gamma.ppf(_AT, 0.5)),
    **{
        f"{share:g} liked x{times:g}": _law(_few(share, times))
        for share, times in ((0.5, 3.0), (0.2, 8.0), (0.05, 20.0), (0.25, 1000.0))
    },
    **{
        f"{share:g} known, lognormal {sigma:g}": _law(_some(share, sigma))
        for share, sigma in ((0.25, 1.0), (0.1, 1.5))
    },
}


def true_prior(truth: str) -> ObservedRatios:
    return ObservedRatios(tuple(TRUTHS[truth].tolist()), "made up")


@cache
def public_menus(market: str, count: int, seed: int) -> tuple[Floats, ...]:
    """Public scores, best first, in units of the best: of 2 to 15 candidates."""
    if market == EIGHT:
        drawn = seeded_generator(seed, _STREAM, 0).uniform(0.5, 1.0, (count, 8))
        return tuple(np.sort(each)[::-1] / each.max() for each in drawn)
    auctions = next(iter(_market(market).auctions(20 * count, seed)))
    found: list[Floats] = []
    for start, end in zip(auctions.offsets[:-1].tolist(), auctions.offsets[1:].tolist(), strict=True):
        if 2 <= end - start <= MOST_CANDIDATES and len(found) < count:
            scores = np.sort(auctions.bid[start:end] * auctions.server[start:end])[::-1]
            found.append(scores / scores[0])
    return tuple(found)


def menus_under(market: str, truth: str, count: int, people: int, seed: int) -> ReportingMenus:
    """Menus of a market, and people whose factors follow a truth. Those who are measured meet every stratum
    as often, candidate by candidate: so the public best is worth exactly its public score."""
    law, menus = TRUTHS[truth], public_menus(market, count, seed)
    draws = seeded_generator(seed, _STREAM, 1, MARKETS.index(market), list(TRUTHS).index(truth))
    whole = np.repeat(law, max(1, people // len(law)))
    factor = np.column_stack([draws.permutation(whole) for _ in range(MOST_CANDIDATES)])
    others = law[draws.integers(len(law), size=(people, MOST_CANDIDATES))]
    return ReportingMenus(
        menus,
        [public * others[:, : len(public)] for public in menus],
        [public * factor[:, : len(public)] for public in menus],
    )


def market_menus(market: str, count: int, people: int, seed: int) -> tuple[ReportingMenus, list[Floats]]:
    """Requests of a made-up market with its own law of private scores, in money; and further people, to plan
    on by who knows that law."""
    made, draws = _market(market), seeded_generator(seed, _STREAM, 2, MARKETS.index(market))
    auctions = next(iter(made.auctions(20 * count, seed)))
    menus: list[Floats] = []
    reporting: list[Floats] = []
    measured: list[Floats] = []
    known: list[Floats] = []
    for start, end in zip(auctions.offsets[:-1].tolist(), auctions.offsets[1:].tolist(), strict=True):
        if 2 <= end - start <= MOST_CANDIDATES and len(menus) < count:
            score = auctions.bid[start:end] * auctions.server[start:end]
            order = start + np.argsort(-score, kind="stable")
            shape = (3, people, end - start)
            device = expit(auctions.eta[order] + made.user_spread * draws.standard_normal(shape))
            menus.append(auctions.bid[order] * auctions.server[order])
            for part, some in zip((reporting, measured, known), auctions.bid[order] * device, strict=True):
                part.append(some)
    return ReportingMenus(menus, reporting, measured), known


def _market(name: str) -> Market:
    return Market.taobao_like() if name == DISPLAY else Market.search_like()


BIN_WIDTH, MOST_BINS = 0.25, 8  # of ln(private / public), to either side: winsorised at e^-2 and e^2
COUNTED_EPSILON, DEVICES = 0.25, 5_000


@cache
def counting_plan(devices: int) -> RunPlan:
    """The round in which each device adds one to one bin."""
    return plan_run(
        contribution=Contribution(1, totals_only=True),
        levels=1,
        parties=devices,
        epsilon=COUNTED_EPSILON,
        law=CountNoiseLaw.DISCRETE_LAPLACE,
    )


def ratios_of_menus(menus: ReportingMenus, devices: int, draws: np.random.Generator) -> Floats:
    """ln(private / public) of one candidate of one request for each device, all candidates' share taken out."""
    found = []
    asked = np.bincount(draws.integers(len(menus.public), size=devices), minlength=len(menus.public))
    for public, people, number in zip(menus.public, menus.reporting, asked.tolist(), strict=True):
        scores = people[draws.integers(len(people), size=number)]
        found.append(log_ratios(public, scores, draws.integers(len(public), size=number)))
    return np.concatenate(found)


def log_ratios(public: Floats, private: Floats, candidate: Integers) -> Floats:
    """Of one candidate of each request (requests, candidates), divided by that of all candidates together."""
    own = private[np.arange(len(private)), candidate] / public[candidate]
    found: Floats = np.log(np.maximum(own, 1e-12) / np.maximum(private.sum(axis=1) / public.sum(), 1e-12))
    return found


def counted_prior(ratios: Floats, draws: np.random.Generator) -> ObservedRatios:
    """The prior of a counted histogram: a device's ratio is one bin, both servers add noise to each bin, and of
    every count one standard deviation of the noise is taken away, down to 0."""
    plan = counting_plan(len(ratios))
    bins = np.clip(np.round(ratios / BIN_WIDTH), -MOST_BINS, MOST_BINS).astype(np.int64) + MOST_BINS
    words = Simulation(int(draws.integers(2**62))).words
    law = plan.noise.server_law(len(ratios))
    assert law is not None, "servers add it"
    noise = law.sample_array(2 * (2 * MOST_BINS + 1), words).reshape(2, -1).sum(axis=0)
    counts = np.bincount(bins, minlength=2 * MOST_BINS + 1) + noise
    weights = np.maximum(counts - plan.published_sd(len(ratios)), 0.0)
    if not weights.any():
        weights[MOST_BINS] = 1.0  # nothing stands out: no spread
    values = np.exp(BIN_WIDTH * np.arange(-MOST_BINS, MOST_BINS + 1))
    return ObservedRatios(tuple(values.tolist()), plan.statement, tuple(weights.tolist()))
