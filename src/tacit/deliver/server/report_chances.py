"""How likely each report is under each law of private scores that evidence compares.

A chance is the mean of a choice's exact pmf over a law's scenarios. For randomized response by rank only who is
among the private best counts, which two loops work out for all laws at once.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tacit.arrays import Floats, Integers
from tacit.deliver.protocol.factor_laws import (
    FewLiked,
    HeavyTails,
    IndependentFactors,
    SomeKnown,
    Spread,
    factors_at,
)
from tacit.deliver.protocol.priors import Favourite, ScorePrior
from tacit.errors import BadInput
from tacit.privacy.choice.choice import ChoiceLaw, private_ranking
from tacit.privacy.choice.slate_response import TopSlates
from tacit.privacy.choice.slates import PrivateSlate, all_slates
from tacit.privacy.choice.top_choice import TopChoice
from tacit.privacy.mechanisms.randomized_response import WHOLE

FAMILIES: tuple[tuple[ScorePrior, ...], ...] = (
    tuple(Spread(s) for s in (0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, 1.25, 1.5, 1.8, 2.2)),
    tuple(HeavyTails(s) for s in (0.1, 0.2, 0.35, 0.5, 0.65, 0.8)),
    tuple(FewLiked(p, times) for p in (0.03, 0.1, 0.25, 0.5) for times in (3.0, 10.0, 30.0)),
    tuple(SomeKnown(p, sigma) for p in (0.1, 0.25, 0.5) for sigma in (0.6, 1.2, 2.0)),
    tuple(Favourite(p, strength) for p in (0.1, 0.2, 0.35, 0.5, 0.75, 1.0) for strength in (0.3, 1.0)),
)
LAWS: tuple[ScorePrior, ...] = tuple(law for family in FAMILIES for law in family)
LEARNING_SCENARIOS = 512
LEAST_SLATE_SCENARIOS, SLATES_AT_ONCE = 64, 2**16  # of many slates fewer scenarios are looked at
LEAST_CHANCE = 1e-12
SUMS_TO_ONE = 1e-6


def log_chances(law: ChoiceLaw | PrivateSlate, public: Floats) -> Floats:
    """ln of how likely each outcome is under each of `LAWS`, (laws, outcomes), by the law's exact pmf."""
    return np.log(np.maximum(outcome_chances(law, public), LEAST_CHANCE))


def outcome_chances(law: ChoiceLaw | PrivateSlate, public: Floats) -> Floats:
    """How likely each public rank, or each slate, is reported under each of `LAWS`, (laws, outcomes)."""
    if isinstance(law, TopChoice):
        # Only who is among the private best counts.
        low, high = law.low_weight / WHOLE, law.high_weight / WHOLE
        chances = np.zeros((len(LAWS), law.candidates))
        chances[:, : law.kept] = low + (high - low) * favoured_shares(public, law.kept, law.top)
        return chances
    count = LEARNING_SCENARIOS
    if _is_slate(law):
        slates = len(all_slates(law.candidates, law.slots))  # type: ignore[union-attr]
        count = max(LEAST_SLATE_SCENARIOS, min(count, SLATES_AT_ONCE // slates))
    drawn = np.stack([prior.scores(public[None], count)[:, 0].T for prior in LAWS])  # (laws, count, candidates)
    if _is_slate(law):
        return np.stack([_slate_chances(law, scores) for scores in drawn])  # type: ignore[arg-type]
    flat = np.asarray(law.pmf(drawn.reshape(-1, law.candidates)))
    if flat.dtype.kind != "f" or flat.shape != (len(LAWS) * count, law.candidates):
        raise BadInput(f"expected a law whose pmf has a chance for each candidate, got {type(law).__name__}")
    if not (flat.min(initial=0.0) >= 0 and np.abs(flat.sum(axis=1) - 1).max(initial=0.0) < SUMS_TO_ONE):
        raise BadInput(f"expected a law whose pmf sums to one, got {type(law).__name__}")  # NaN, too
    return np.asarray(flat.reshape(len(LAWS), count, -1).mean(axis=1))


def favoured_shares(public: Floats, kept: int, top: int) -> Floats:
    """How often each of the kept candidates is among the private best `top` of them under each of `LAWS`,
    (laws, kept), over their scenarios; ties go to the better public rank."""
    counts = np.zeros((len(LAWS), kept), np.int64)
    counts[_BY_FACTORS] = _best_by_factors(public[:kept], top)
    counts[_BY_FAVOURITE] = _best_by_favourites(public, kept, top)
    for at in np.flatnonzero(~(_BY_FACTORS | _BY_FAVOURITE)).tolist():  # any other law, by its scenarios
        drawn = LAWS[at].scores(public[None], LEARNING_SCENARIOS)[:kept, 0].T
        counts[at] = np.bincount(private_ranking(drawn)[:, :top].ravel(), minlength=kept)
    shares: Floats = counts / LEARNING_SCENARIOS
    return shares


_BY_FACTORS = np.array([isinstance(law, IndependentFactors) for law in LAWS])
_BY_FAVOURITE = np.array([isinstance(law, Favourite) for law in LAWS])


@lru_cache(maxsize=128)
def _factors_of_laws(place: int) -> Floats:
    """Factors of the candidate at one place, of all laws of independent factors: (laws x scenarios,)."""
    laws = [law for law in LAWS if isinstance(law, IndependentFactors)]
    return np.concatenate([factors_at(law, place, LEARNING_SCENARIOS) for law in laws])


def _best_by_factors(public: Floats, top: int) -> Integers:
    """In how many scenarios each candidate is among the best `top`: (laws of factors, candidates)."""
    size = len(public)
    scores = [public[place] * _factors_of_laws(place) for place in range(size)]
    small = np.uint8 if size < 2**8 else np.uint16
    if top == 1:
        # The first of the largest: one that comes later must be above all before it.
        largest, best = scores[0], np.zeros(len(scores[0]), small)
        for place in range(1, size):
            np.maximum(best, (scores[place] > largest) * small(place), out=best)
            largest = np.maximum(largest, scores[place])
        among = (best == place for place in range(size))
    else:
        before = np.zeros((size, len(scores[0])), small)  # how many are ranked before each
        for place in range(size):
            for later in range(place + 1, size):
                above = scores[later] > scores[place]
                before[place] += above
                before[later] += ~above
        among = (each < top for each in before)
    counts = [
        each.view(np.uint8).reshape(-1, LEARNING_SCENARIOS).sum(axis=1, dtype=np.uint16) for each in among
    ]
    return np.stack(counts, axis=1).astype(np.int64)


_FAVOURITES = [law for law in LAWS if isinstance(law, Favourite)]
_SHARES = sorted({law.share for law in _FAVOURITES})
_SHARE_OF = [_SHARES.index(law.share) for law in _FAVOURITES]
_STRENGTHS = np.array([[law.strength] for law in _FAVOURITES])
_HAVING = [round(share * LEARNING_SCENARIOS) for share in _SHARES]
_AT = [(np.arange(having) + 0.5) / having for having in _HAVING]


def _best_by_favourites(public: Floats, kept: int, top: int) -> Integers:
    """The same under each law of a favourite, (laws, kept). All but the favourite stay in public order, so that
    the best `top` are the public ones, except where a favourite from below takes the place of the last."""
    counts = np.zeros((len(_FAVOURITES), kept), np.int64)
    counts[:, :top] = LEARNING_SCENARIOS
    if top == kept:
        return counts
    known = np.ascontiguousarray(public[None].T)  # summed as `Favourite` does
    total = known.sum(axis=0)[0]
    ends = np.cumsum(known, axis=0)[top - 1 : kept, 0] / (total if total > 0 else 1.0)
    below = np.array([at.searchsorted(ends) for at in _AT])  # scenarios whose favourite is not after each
    if kept == len(public):
        below[:, -1] = _HAVING
    favourite = (below[:, 1:] - below[:, :-1])[_SHARE_OF]  # (laws, kept - top)
    others = public[top - 1 : kept] * (1 - _STRENGTHS)
    wins = np.where(others[:, 1:] + _STRENGTHS * total > others[:, :1], favourite, 0)
    counts[:, top:] = wins
    counts[:, top - 1] -= wins.sum(axis=1)
    return counts


def _slate_chances(law: PrivateSlate, scores: Floats) -> Floats:
    """The mean pmf over scenarios (scenarios, candidates)."""
    slates = all_slates(law.candidates, law.slots)
    if isinstance(law, TopSlates):  # looks at sums of scores
        often = np.bincount(law.favourites(scores).ravel(), minlength=len(slates)) / len(scores)
        chances: Floats = (law.low_weight + (law.high_weight - law.low_weight) * often) / WHOLE
        chances[0] += law.spare / WHOLE
        return chances
    # The others look at the private ranking alone: one pmf, of slates of ranks, does for all rankings.
    by_rank = law.pmf(np.arange(law.candidates, 0.0, -1.0))
    ranks = np.argsort(private_ranking(scores), axis=1)  # (scenarios, candidates)
    ranked = np.sort(ranks[:, slates], axis=2)  # (scenarios, slates, slots)
    base = law.candidates ** np.arange(law.slots - 1, -1, -1)
    return np.asarray(by_rank[np.searchsorted(slates @ base, ranked @ base)].mean(axis=0))


def _is_slate(law: object) -> bool:
    return hasattr(law, "slots")
