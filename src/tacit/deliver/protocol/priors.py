"""Priors of private scores: public laws of how far what a device knows differs from what everybody knows.

A plan is made of public scores and one of these, and of nothing else, so that server, device and anybody who
has the menu make the same plan. What a law promises does not hang on its prior: a wrong prior costs clicks,
and changes how many requests spend anything, never what one of them spends.

Most priors are laws of independent factors (`factor_laws`). `Favourite` is not: of some people one ad is all
that they want. `ContextRatios` has the scores of exact contexts. `Mixture` says that one of several laws holds,
nobody knows which, and `LearntPrior` is the one that reports of earlier choices speak for
(`deliver/server/prior_evidence.py`). Each can be written into a menu and read there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.protocol.factor_laws import (
    SCENARIOS,
    FewLiked,
    HeavyTails,
    IndependentFactors,
    ObservedRatios,
    SomeKnown,
    Spread,
    factors,
)
from tacit.errors import BadInput
from tacit.privacy.choice.choice import as_numbers

VERSION = 1
"""Of priors as they are written in menus: another one means another law for the same words."""

MOST_PARTS = 256  # of a mixture: a device reads it from a menu
MOST_NESTED = 4
"""Mixtures within each other, in a record."""


class ScorePrior(Protocol):
    """A public law of private scores, given the public ones."""

    def scores(self, public: Floats, count: int = SCENARIOS) -> Floats:
        """Private scores in `count` equally likely scenarios, (candidates, requests, count), for public scores
        (requests, candidates), best first."""

    def deviation(self, candidates: int) -> float:
        """About how far scores are from the public ones, as a share of these: what scenarios err by follows."""


@dataclass(frozen=True)
class Favourite:
    """A share of people has a favourite among the candidates, drawn in proportion to their public scores.

    The favourite takes `strength` of what all candidates together are worth, and the others keep the rest in
    their public proportions: so means are kept, and a candidate that few want is worth much to those who do.
    Of the other people the device knows nothing new. Visits of people to places look like this.
    """

    share: float
    strength: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", float(expect.probability("share", self.share, one=True)))
        object.__setattr__(self, "strength", float(expect.probability("strength", self.strength, one=True)))

    def __str__(self) -> str:
        return f"{self.share:.3g} of the people with a favourite that takes {self.strength:g} of all"

    def scores(self, public: Floats, count: int = SCENARIOS) -> Floats:
        at = self.places(count)
        scores = np.repeat(np.ascontiguousarray(public.T)[:, :, None], count, axis=2)
        scores[:, :, : len(at)] *= 1 - self.strength
        _add_favourites(scores, public, np.arange(len(at)), at, np.full(len(at), self.strength))
        return scores

    def places(self, count: int) -> Floats:
        """Of the scenarios of people who have a favourite, the first ones: where it is in the sum of all
        scores, as a share of it."""
        having = round(self.share * count)
        return (np.arange(having) + 0.5) / max(1, having)

    def deviation(self, candidates: int) -> float:
        del candidates
        return self.strength * math.sqrt(self.share)


@dataclass(frozen=True)
class ContextRatios:
    """Scores in the exact contexts below a disclosed node, from rates that were released, in place of a guess.

    ratios   rate in the context / public rate, (contexts, candidates), in the menu's public order
    weights  how likely each context is
    """

    ratios: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        table, weights = as_numbers("ratios", self.ratios), as_numbers("weights", self.weights)
        if table.ndim != 2 or not table.size or weights.shape != table.shape[:1]:
            raise BadInput(
                f"expected a weight and ratios for each context, got shapes {table.shape}, {weights.shape}"
            )
        for name, values in (("ratios", table), ("weights", weights)):
            if not np.isfinite(values).all() or values.min() < 0 or not values.sum() > 0:
                raise BadInput(f"expected finite {name} >= 0, not all 0, got others")
        object.__setattr__(self, "ratios", tuple(map(tuple, table.tolist())))
        object.__setattr__(self, "weights", tuple(weights.tolist()))

    def __str__(self) -> str:
        return f"released rates of {len(self.weights)} contexts"

    def scores(self, public: Floats, count: int = SCENARIOS) -> Floats:
        table = np.asarray(self.ratios)
        if public.shape[1] != table.shape[1]:
            raise BadInput(f"expected ratios of {public.shape[1]} candidates, got {table.shape[1]}")
        drawn = np.repeat(table, _shares(self.weights, count), axis=0)  # (count, candidates)
        scores: Floats = np.ascontiguousarray(public.T)[:, :, None] * np.ascontiguousarray(drawn.T)[:, None]
        return scores

    def deviation(self, candidates: int) -> float:
        del candidates
        table, weights = np.asarray(self.ratios), np.asarray(self.weights)
        return float(np.sqrt(((table - 1) ** 2).mean(axis=1) @ weights / weights.sum()))


@dataclass(frozen=True)
class Mixture:
    """One of several laws holds for a request, each with its weight: scenarios are shared out by weight."""

    parts: tuple[tuple[float, ScorePrior], ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = expect.several("parts of a mixture", self.parts)
        if not 1 <= len(parts) <= MOST_PARTS:
            raise BadInput(f"expected 1 to {MOST_PARTS} parts of a mixture, got {len(parts)}")
        for part in parts:
            if not isinstance(part, tuple) or len(part) != 2:
                raise BadInput("expected each part of a mixture to be a weight and a prior, got others")
        weights = [float(expect.at_least_zero("every weight of a mixture", weight)) for weight, _ in parts]
        if not math.isfinite(sum(weights)) or not sum(weights) > 0:
            raise BadInput("expected weights of a mixture with a positive sum, got others")
        for _, prior in parts:
            check_prior(prior)
        parts = tuple((weight, prior) for weight, (_, prior) in zip(weights, parts, strict=True))
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:  # asked for at every plan that is looked up
        return self._hash

    def __str__(self) -> str:
        whole = sum(weight for weight, _ in self.parts)
        shown = [(weight / whole, prior) for weight, prior in self.parts if weight / whole >= 0.005]
        return "; ".join(f"{share:.0%} {prior}" for share, prior in shown)

    def scores(self, public: Floats, count: int = SCENARIOS) -> Floats:
        candidates = public.shape[1]
        mixed = _mixed_scenarios(self, max(16, 1 << (candidates - 1).bit_length()), count)
        scores: Floats = np.ascontiguousarray(public.T)[:, :, None] * mixed.factors[:candidates, None]
        _add_favourites(scores, public, *mixed.favourites)
        for start, own, prior in mixed.others:
            scores[:, :, start : start + own] = prior.scores(public, own)
        return scores

    def deviation(self, candidates: int) -> float:
        return _mixed_deviation(self, candidates)


def _add_favourites(scores: Floats, public: Floats, scenarios: Integers, at: Floats, strength: Floats) -> None:
    """In these scenarios of scores (candidates, requests, scenarios) somebody is the favourite, who takes
    `strength` of the sum of all public scores: the one in whose share of that sum `at` lies."""
    if not len(at):
        return
    known = np.ascontiguousarray(public.T)  # (candidates, requests)
    total = known.sum(axis=0)
    ends = (np.cumsum(known, axis=0) / np.where(total > 0, total, 1.0))[:-1]
    if len(public) == 1:
        chosen = np.searchsorted(ends[:, 0], at, side="right")[None]  # (requests, scenarios)
    else:
        chosen = (ends[:, :, None] <= at).sum(axis=0)
    scores[chosen, np.arange(len(public))[:, None], scenarios] += strength * total[:, None]


@dataclass(frozen=True, eq=False)
class _MixedScenarios:
    """What is the same for all requests: factors, (candidates, scenarios), the scenarios with a favourite,
    where it is and how strong; and other parts, each with its first scenario and how many it has."""

    factors: Floats
    favourites: tuple[Integers, Floats, Floats]
    others: tuple[tuple[int, int, ScorePrior], ...]


@lru_cache(maxsize=128)
def _mixed_scenarios(mixture: Mixture, candidates: int, count: int) -> _MixedScenarios:
    table, others, start = np.ones((candidates, count)), [], 0
    favourites: list[tuple[Integers, Floats, Floats]] = [(np.arange(0), np.zeros(0), np.zeros(0))]
    for (_, prior), own in zip(mixture.parts, _shares([w for w, _ in mixture.parts], count), strict=True):
        if own and isinstance(prior, IndependentFactors) and prior.alike:
            table[:, start : start + own] = factors(prior, candidates, own).T
        elif own and type(prior) is Favourite:
            at = prior.places(own)
            table[:, start : start + len(at)] = 1 - prior.strength
            favourites.append((start + np.arange(len(at)), at, np.full(len(at), prior.strength)))
        elif own:
            others.append((start, own, prior))
        start += own
    table.setflags(write=False)
    where, at, strength = (np.concatenate(column) for column in zip(*favourites, strict=True))
    return _MixedScenarios(table, (where, at, strength), tuple(others))


@lru_cache(maxsize=1024)
def _mixed_deviation(mixture: Mixture, candidates: int) -> float:
    whole = sum(weight for weight, _ in mixture.parts)
    squares = (weight * prior.deviation(candidates) ** 2 for weight, prior in mixture.parts)
    return math.sqrt(sum(squares) / whole)


@dataclass(frozen=True)
class LearntPrior:
    """What reports of earlier choices speak for, mixed with the default; and what it was made of.

    Guarantee:  making it releases nothing: every report was paid for when it was made, and whatever is computed
                from reports, menus and laws tells no more than they do.
    Neighbours: those of each report's own choice.
    Assumes:    reports came from the laws that their menus name. Devices that lie move it: one report by at
                most its epsilon in the log-likelihood of a law, all of them never the default's quarter.
    Source:     post-processing (Dwork, Roth 2014, proposition 2.1); the posterior is ours.

    group    the group of contexts that it is for; "" for all
    reports  how many reports it rests on, older ones counted less
    """

    mixture: Mixture
    group: str
    reports: float

    def __post_init__(self) -> None:
        expect.kind("mixture", self.mixture, Mixture)
        expect.kind("group", self.group, str)
        object.__setattr__(self, "reports", float(expect.at_least_zero("reports", self.reports)))

    def __hash__(self) -> int:
        return hash(self.mixture)

    def __str__(self) -> str:
        about = f" about {self.group}" if self.group else ""
        return f"learnt from {self.reports:,.0f} reports{about}: {self.mixture}"

    @property
    def statement(self) -> str:
        return (
            f"made of {self.reports:,.0f} reports, each paid for on its device when it was made, and of public "
            "menus: nothing more was released"
        )

    def scores(self, public: Floats, count: int = SCENARIOS) -> Floats:
        return self.mixture.scores(public, count)

    def deviation(self, candidates: int) -> float:
        return self.mixture.deviation(candidates)


DEFAULT_PRIOR = Spread()
"""What is assumed where nobody has said or learnt anything."""


def check_prior(prior: ScorePrior) -> ScorePrior:
    """Refuse what is no prior."""
    if isinstance(prior, type) or not hasattr(prior, "scores") or not hasattr(prior, "deviation"):
        raise BadInput(f"expected a prior of the private scores, such as Spread(), got {prior!r}")
    return prior


def check_candidates(prior: ScorePrior, candidates: int) -> None:
    """Refuse a prior of another number of candidates, where it speaks of each of them."""
    match prior:
        case Mixture():
            for _, part in prior.parts:
                check_candidates(part, candidates)
            return None
        case LearntPrior():
            return check_candidates(prior.mixture, candidates)
        case Spread() if isinstance(prior.sigma, tuple):
            own = len(prior.sigma)
        case ContextRatios():
            own = len(prior.ratios[0])
        case _:
            return None
    if own != candidates:
        raise BadInput(f"expected a prior of {candidates} candidates, got one of {own}")
    return None


WRITTEN: dict[str, type[Any]] = {
    "lognormal": Spread,
    "log-laplace": HeavyTails,
    "few-liked": FewLiked,
    "some-known": SomeKnown,
    "favourite": Favourite,
    "ratios": ObservedRatios,
    "contexts": ContextRatios,
}
"""How laws are called in menus."""


def prior_as_json(prior: ScorePrior) -> dict[str, Any]:
    """A prior as it stands in a menu, so that anybody can plan as the device does."""
    return {"version": VERSION, **_record(prior, MOST_NESTED)}


def read_prior(record: Mapping[str, Any]) -> ScorePrior:
    """The prior that a menu has; of another version, or another law, it is refused by name."""
    if not isinstance(record, Mapping):
        raise BadInput(f"prior: expected a table, got {type(record).__name__}")
    version = record.get("version")
    if type(version) is not int or version != VERSION:
        raise BadInput(f"prior: expected version {VERSION}, got {version!r}")
    return _read({key: value for key, value in record.items() if key != "version"}, MOST_NESTED)


def _record(prior: ScorePrior, deeper: int) -> dict[str, Any]:
    if isinstance(prior, LearntPrior):
        return {
            "law": "learnt",
            "group": prior.group,
            "reports": prior.reports,
            **_parts(prior.mixture, deeper),
        }
    if isinstance(prior, Mixture):
        return {"law": "mixture", **_parts(prior, deeper)}
    if isinstance(prior, ObservedRatios):
        told = prior.statement if isinstance(prior.statement, str) else prior.statement.as_text("These ratios")
        weights = None if prior.weights is None else list(prior.weights)
        return {"law": "ratios", "values": list(prior.values), "weights": weights, "statement": told}
    for name, kind in WRITTEN.items():
        if type(prior) is kind:
            return {"law": name, **asdict(prior)}  # type: ignore[call-overload]
    raise BadInput(f"expected a prior that a menu can hold ({', '.join(WRITTEN)}), got {type(prior).__name__}")


def _parts(mixture: Mixture, deeper: int) -> dict[str, Any]:
    _refuse_deeper(deeper)
    return {"parts": [{"weight": weight, **_record(prior, deeper - 1)} for weight, prior in mixture.parts]}


def _refuse_deeper(deeper: int) -> None:
    if not deeper:
        raise BadInput(f"prior: expected at most {MOST_NESTED} mixtures within each other, got more")


def _read(record: Mapping[str, Any], deeper: int) -> ScorePrior:
    """`deeper` says how many mixtures may be within each other: a record is somebody else's."""
    if not isinstance(record, Mapping):
        raise BadInput(f"prior: expected a table, got {type(record).__name__}")
    law, given = record.get("law"), {key: value for key, value in record.items() if key != "law"}
    if not isinstance(law, str) or law not in (*WRITTEN, "mixture", "learnt"):
        raise BadInput(f"prior: expected a law of {', '.join((*WRITTEN, 'mixture', 'learnt'))}, got {law!r}")
    try:
        if law in WRITTEN:
            prior: ScorePrior = WRITTEN[law](**{key: _tuples(each) for key, each in given.items()})
            return prior
        _refuse_deeper(deeper)
        several = tuple(
            (part["weight"], _read({key: each for key, each in part.items() if key != "weight"}, deeper - 1))
            for part in given.pop("parts")
        )
        return LearntPrior(Mixture(several), **given) if law == "learnt" else Mixture(several, **given)
    except (KeyError, TypeError, AttributeError):
        raise BadInput(f"prior: expected the keys of the law {law!r}, got others") from None


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _shares(weights: ArrayLike, count: int) -> list[int]:
    """`count` scenarios in proportion to weights, by largest remainders, ties to the first."""
    wanted = np.asarray(weights, np.float64) / np.sum(weights) * count
    own = np.floor(wanted).astype(np.int64)
    left = count - int(own.sum())
    own[np.argsort(own - wanted, kind="stable")[:left]] += 1
    return [int(each) for each in own]
