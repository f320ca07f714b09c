"""What reports of private choices say about the prior: a posterior over laws, for nothing.

A report is the public rank of what a device chose by a law that its menu names. Under a law of private scores
each rank has a chance, the mean of the choice's exact pmf over that law's scenarios. Reports are private
already, so that what the server makes of them costs nothing more.

The laws that are compared come from five families (`LAWS`). A most likely spread within one family would be a
trap: ranks say who wins, not by how much, and where the family is wrong the fit can fall so low that nothing is
asked any more, and nothing learnt. So the whole posterior is used, and the default keeps a quarter of the
scenarios, and more as long as reports are few.

    evidence = PriorEvidence().learn([ReportedRanks(menu.public_scores, plan.law, counts)])
    menu = replace(menu, prior=evidence.prior())
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.protocol.factor_laws import (
    FewLiked,
    HeavyTails,
    IndependentFactors,
    SomeKnown,
    Spread,
    factors_at,
)
from tacit.deliver.protocol.forecasts import check_public_scores
from tacit.deliver.protocol.priors import DEFAULT_PRIOR, Favourite, LearntPrior, Mixture, ScorePrior
from tacit.display import brief
from tacit.errors import BadInput
from tacit.privacy.choice.choice import ChoiceLaw, private_ranking
from tacit.privacy.choice.slate_response import TopSlates
from tacit.privacy.choice.slates import PrivateSlate, all_slates
from tacit.privacy.choice.top_choice import TopChoice
from tacit.privacy.mechanisms.randomized_response import WHOLE

VERSION = 1
"""Of the laws that are compared: evidence about others cannot be added up with this."""

FAMILIES: tuple[tuple[ScorePrior, ...], ...] = (
    tuple(Spread(s) for s in (0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, 1.25, 1.5, 1.8, 2.2)),
    tuple(HeavyTails(s) for s in (0.1, 0.2, 0.35, 0.5, 0.65, 0.8)),
    tuple(FewLiked(p, times) for p in (0.03, 0.1, 0.25, 0.5) for times in (3.0, 10.0, 30.0)),
    tuple(SomeKnown(p, sigma) for p in (0.1, 0.25, 0.5) for sigma in (0.6, 1.2, 2.0)),
    tuple(Favourite(p, strength) for p in (0.1, 0.2, 0.35, 0.5, 0.75, 1.0) for strength in (0.3, 1.0)),
)
LAWS: tuple[ScorePrior, ...] = tuple(law for family in FAMILIES for law in family)
_FAMILY_SIZE = np.array([len(family) for family in FAMILIES for _ in family], np.float64)

DEFAULT_SHARE = 0.25  # of the scenarios, however much was learnt
HORIZON = 20_000  # reports: evidence is kept of about so many of the last ones
SHRINKAGE = 200  # reports of other groups that a group starts with; and that all weigh as much as the default
LEAST_WEIGHT = 1 / (len(FAMILIES) * max(map(len, FAMILIES)) + 4)  # of the posterior; less is left out of menus
LEARNING_SCENARIOS = 512
LEAST_SLATE_SCENARIOS, SLATES_AT_ONCE = 64, 2**16  # of many slates fewer scenarios are looked at
LEAST_CHANCE = 1e-12
SUMS_TO_ONE = 1e-6
MOST_COUNT = 2**53 - 1
ALL = ""
"""The group of those who form none."""


@dataclass(frozen=True, eq=False)
class ReportedRanks:
    """How often each candidate of one menu was reported, all chosen by one law.

    public  the menu's public scores, best first
    law     of the choice (`plan.law`), or of a slate; its exact pmf is what is learnt by
    counts  by public rank; for slates by their numbers in `all_slates`
    group   of contexts that learn together
    """

    public: Floats
    law: ChoiceLaw | PrivateSlate
    counts: Integers
    group: str

    def __init__(
        self, public: ArrayLike, law: ChoiceLaw | PrivateSlate, counts: ArrayLike, group: str = ALL
    ) -> None:
        scores = check_public_scores(public)
        if not hasattr(law, "pmf") or not hasattr(law, "candidates"):
            raise BadInput(f"expected the law that was chosen by, with its pmf, got {type(law).__name__}")
        if law.candidates != len(scores):
            raise BadInput(
                f"expected a law of the menu's {len(scores)} candidates, got one of {law.candidates}"
            )
        try:
            given = np.asarray(counts)
        except ValueError:
            raise BadInput("expected a whole count for each rank of the menu, got lists") from None
        slots = getattr(law, "slots", None)
        outcomes = len(scores) if slots is None else len(all_slates(law.candidates, slots))
        if given.shape != (outcomes,) or given.dtype.kind not in "iu":
            raise BadInput(
                f"expected a whole count for each of {outcomes} ranks of the menu, got {given.dtype} of shape "
                f"{given.shape}"
            )
        if (given < 0).any() or (given > MOST_COUNT).any() or sum(given.tolist()) > MOST_COUNT:
            raise BadInput(f"expected counts >= 0, together at most {MOST_COUNT}, got others")
        if isinstance(law, TopChoice) and given[law.kept :].any():
            rank = law.kept + int(np.flatnonzero(given[law.kept :])[0])
            raise BadInput(f"expected reports of the {law.kept} candidates that the law keeps, got rank {rank}")
        check_group(group)
        for name, value in (
            ("public", scores), ("law", law), ("counts", given.astype(np.int64)), ("group", group)
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def digest(self) -> str:
        """Of menu, law, group and counts: the same reports again, or others."""
        law = (
            type(self.law).__name__,
            self.law.epsilon,
            getattr(self.law, "kept", None),
            getattr(self.law, "top", None),
        )
        parts = self.public.tobytes(), repr(law).encode(), self.group.encode(), self.counts.tobytes()
        return hashlib.sha256(b"".join(len(part).to_bytes(8) + part for part in parts)).hexdigest()

    def __repr__(self) -> str:
        return brief(self, group=self.group, candidates=len(self.public), reports=int(self.counts.sum()))


@dataclass(frozen=True, eq=False)
class GroupEvidence:
    """Log-likelihoods of `LAWS`, up to a constant, by reports that count as `reports`."""

    log_likelihood: Floats
    reports: float


class WeighedReports(NamedTuple):
    """Log-likelihoods of `LAWS` by some reports of one group."""

    group: str
    log_likelihood: Floats
    reports: int


@dataclass(frozen=True, eq=False)
class PriorEvidence:
    """What all reports so far say about the prior, by group of contexts. A value: learning makes another.

    Guarantee:  computing it releases nothing: it is post-processing of reports that were paid for on their
                devices, of public menus and of public laws.
    Neighbours: those of each report's own choice.
    Assumes:    reports were made by the laws that they are handed in with. A device that lies moves the
                log-likelihood of one law against another by at most its law's epsilon per report, and
                `horizon` bounds how many reports count at all; a quarter of the scenarios
                stay the default's.
    Source:     post-processing (Dwork, Roth 2014, proposition 2.1); other groups' evidence by a power prior
                (Ibrahim, Chen 2000); the mixture with the default is ours.

    horizon  older evidence fades as new comes in, so that about this many reports count: tastes drift
    """

    groups: Mapping[str, GroupEvidence] = field(default_factory=dict)
    horizon: int = HORIZON

    def __post_init__(self) -> None:
        if expect.whole("horizon", self.horizon, at_least=1) > MOST_COUNT:
            raise BadInput(f"expected a horizon of at most {MOST_COUNT} reports, got more")

    def __repr__(self) -> str:
        return brief(self, groups=len(self.groups), reports=round(self.reports), horizon=self.horizon)

    @property
    def reports(self) -> float:
        """How many reports count, of all groups together."""
        return sum(each.reports for each in self.groups.values())

    def learn(self, reported: ReportedRanks | Iterable[ReportedRanks]) -> PriorEvidence:
        """The evidence after these reports. All are looked at before one counts."""
        return self.add(weigh(reported))

    def add(self, weighed: Iterable[WeighedReports]) -> PriorEvidence:
        """The evidence with what reports were found to say."""
        groups = dict(self.groups)
        for each in weighed:
            before = groups.get(each.group, GroupEvidence(np.zeros(len(LAWS)), 0.0))
            total, known = before.reports + each.reports, before.log_likelihood + each.log_likelihood
            fades = min(1.0, self.horizon / total)
            groups[each.group] = GroupEvidence(fades * (known - known.max()), fades * total)
        return PriorEvidence(groups, self.horizon)

    def forget(self, share: float) -> PriorEvidence:
        """The evidence with this share of it taken away: where tastes are known to have changed, say."""
        left = 1 - float(expect.probability("share", share, zero=True, one=True))
        groups = {
            name: GroupEvidence(left * each.log_likelihood, left * each.reports)
            for name, each in self.groups.items()
        }
        return PriorEvidence(groups, self.horizon)

    def posterior(self, group: str = ALL) -> Floats:
        """The weight of each of `LAWS` for a group: its own reports, and those of others as a few."""
        own = self.groups.get(group, GroupEvidence(np.zeros(len(LAWS)), 0.0))
        others = [each for name, each in self.groups.items() if name != group]
        elsewhere = sum(each.reports for each in others)
        known = own.log_likelihood.copy()
        if elsewhere:
            known += min(1.0, SHRINKAGE / elsewhere) * np.sum([each.log_likelihood for each in others], axis=0)
        weights = np.exp(known - known.max()) / _FAMILY_SIZE
        found: Floats = weights / weights.sum()
        return found

    def prior(self, group: str = ALL) -> LearntPrior:
        """What to plan by, for a menu: the default, and more and more of what the posterior holds likely."""
        own = self.groups.get(group)
        if not self.reports:
            return LearntPrior(Mixture(((1.0, DEFAULT_PRIOR),)), group, 0.0)
        weights = self.posterior(group)
        likely = np.flatnonzero(weights >= min(LEAST_WEIGHT, weights.max()))
        likely = likely[np.argsort(-weights[likely], kind="stable")]
        held = weights[likely] / weights[likely].sum()
        reports = 0.0 if own is None else own.reports
        # A flat posterior is a worse guess than the default: few reports leave most to the latter.
        known = reports + min(SHRINKAGE, self.reports - reports)
        learnt = (1 - DEFAULT_SHARE) * known / (known + SHRINKAGE)
        parts = (
            (round(learnt * float(weight), 4), LAWS[at])
            for weight, at in zip(held, likely.tolist(), strict=True)
        )
        return LearntPrior(Mixture(((round(1 - learnt, 4), DEFAULT_PRIOR), *parts)), group, round(reports, 1))

    def as_json(self) -> dict[str, Any]:
        """To be kept: `of_json` reads it back."""
        groups = {
            name: {"reports": each.reports, "log_likelihood": each.log_likelihood.tolist()}
            for name, each in self.groups.items()
        }
        return {"version": VERSION, "horizon": self.horizon, "groups": groups}

    @classmethod
    def of_json(cls, record: Mapping[str, Any]) -> PriorEvidence:
        """Evidence that was kept; of another version it is refused, since it speaks of other laws."""
        version = record.get("version") if isinstance(record, Mapping) else record
        if type(version) is not int or not isinstance(record, Mapping) or version != VERSION:
            raise BadInput(f"evidence: expected version {VERSION}, got {version!r}")
        groups = {}
        try:
            for name, kept in record["groups"].items():
                known, reports = np.asarray(kept["log_likelihood"], np.float64), float(kept["reports"])
                groups[str(name)] = GroupEvidence(known, reports)
            horizon = record["horizon"]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise BadInput("evidence: expected its groups and horizon, got others") from None
        for name, each in groups.items():
            known = each.log_likelihood
            if known.shape != (len(LAWS),) or not np.isfinite(known).all() or not 0 <= each.reports < np.inf:
                raise BadInput(f"evidence: expected {len(LAWS)} finite figures for group {name!r}, got others")
        return cls(groups, horizon)


def weigh(reported: ReportedRanks | Iterable[ReportedRanks]) -> tuple[WeighedReports, ...]:
    """What reports say of each law, whatever is known already: the slow part of learning, for whoever must not
    hold up others meanwhile."""
    several = check_reports(reported)
    # A law that reads nothing private tells nothing.
    telling = (each for each in several if each.counts.any() and _tells(each.law))  # type: ignore[arg-type]
    return tuple(
        WeighedReports(each.group, log_chances(each.law, each.public) @ each.counts, int(each.counts.sum()))
        for each in telling
    )


def check_group(group: str) -> str:
    """The name of a group, as text that can be stored."""
    expect.kind("group", group, str)
    try:
        group.encode()
    except UnicodeEncodeError:
        raise BadInput("expected a group's name as Unicode text, got half of a character") from None
    return group


def check_reports(reported: ReportedRanks | Iterable[ReportedRanks]) -> tuple[ReportedRanks, ...]:
    """One menu's reports, or those of several; anything else is refused."""
    if isinstance(reported, ReportedRanks):
        return (reported,)
    expect.kind("reports", reported, Iterable)
    several = tuple(reported)
    for each in several:
        if not isinstance(each, ReportedRanks):
            raise BadInput(f"expected reported ranks, got {type(each).__name__}")
    return several


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


@lru_cache(maxsize=4096)
def _tells(law: ChoiceLaw | PrivateSlate) -> bool:
    """Whether a law reads anything private; to work out its exact epsilon takes as long as a report does."""
    return law.epsilon > 0


def _is_slate(law: object) -> bool:
    return hasattr(law, "slots")
