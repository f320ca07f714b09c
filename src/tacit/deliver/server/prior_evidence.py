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
from tacit.deliver.protocol.forecasts import check_public_scores
from tacit.deliver.protocol.priors import DEFAULT_PRIOR, LearntPrior, Mixture
from tacit.deliver.server.report_chances import FAMILIES, LAWS, log_chances
from tacit.display import brief
from tacit.errors import BadInput
from tacit.privacy.choice.choice import ChoiceLaw
from tacit.privacy.choice.slates import PrivateSlate, all_slates
from tacit.privacy.choice.top_choice import TopChoice

VERSION = 1
"""Of the laws that are compared: evidence about others cannot be added up with this."""

_FAMILY_SIZE = np.array([len(family) for family in FAMILIES for _ in family], np.float64)

DEFAULT_SHARE = 0.25  # of the scenarios, however much was learnt
HORIZON = 20_000  # reports: evidence is kept of about so many of the last ones
SHRINKAGE = 200  # reports of other groups that a group starts with; and that all weigh as much as the default
LEAST_WEIGHT = 1 / (len(FAMILIES) * max(map(len, FAMILIES)) + 4)  # of the posterior; less is left out of menus
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


@lru_cache(maxsize=4096)
def _tells(law: ChoiceLaw | PrivateSlate) -> bool:
    """Whether a law reads anything private; to work out its exact epsilon takes as long as a report does."""
    return law.epsilon > 0
