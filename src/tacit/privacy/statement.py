"""What a result promises, made from its releases: as JSON for machines and as a page in plain English."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tacit import expect
from tacit.display import html_table
from tacit.errors import BadInput
from tacit.privacy.accounting import accountant
from tacit.privacy.budget import Budget, format_rounded_up
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.releases import (
    Composed,
    FlippedLabels,
    GaussianStatistic,
    Leaf,
    LocalChoice,
    NoisyLabels,
    Release,
    ShuffledChoice,
    SkellamCounts,
    SplitLabels,
    SubsampledGaussian,
    leaves,
)
from tacit.privacy.units import Relation, Unit, UnitKind

PER_RECORD = (FlippedLabels, SubsampledGaussian, LocalChoice, ShuffledChoice)
"""Kinds that speak of one record, unless they are grouped. What a device chooses by is all that it holds: for
the unit device, one choice made on it speaks of the whole."""

TRAINED_ON = (FlippedLabels, SplitLabels, NoisyLabels, SubsampledGaussian, GaussianStatistic)
ELSEWHERE = {
    UnitKind.USER_PUBLISHER: "at other publishers",
    UnitKind.USER_ADVERTISER: "with other advertisers",
}

ACCOUNTANT = "privacy loss distributions (PLD), rounded up"


@dataclass(frozen=True)
class PrivacyStatement:
    """The promise that travels with a result. Make it with `PrivacyStatement.of`."""

    unit: Unit
    relation: Relation
    epsilon: float
    delta: float
    mechanisms: tuple[str, ...]
    sampler: str
    accountant: str
    not_protected: tuple[str, ...]

    @classmethod
    def of(
        cls,
        releases: Sequence[Release],
        *,
        unit: Unit,
        relation: Relation,
        delta: expect.Number = 0,
        also_not_protected: Sequence[str] = (),
        whole_units: bool = False,
    ) -> PrivacyStatement:
        """The statement for all of `releases` together; `whole_units` says that they have taken all records of
        a unit as one, clipped or flipped together.

        Guarantee:  (epsilon, delta)-DP for everything in `releases`, epsilon rounded up.
        Neighbours: `relation`, for one `unit`. Every release must speak of that unit (see `Grouped`).
        Assumes:    the releases are all that left, and each is what it says.
        Source:     `accounting.accountant`; with delta = 0, basic composition of pure epsilons.
        """
        releases = expect.several("releases", releases, Release)
        if not isinstance(unit, Unit):
            raise BadInput(f"expected unit to be a Unit, got {unit!r}")
        if not releases:
            raise BadInput("expected at least one release to state, got none")
        relation = Relation(relation)
        whole = releases[0] if len(releases) == 1 else Composed(tuple(releases))
        exact_delta = expect.probability("delta", delta, zero=True)
        if exact_delta:
            epsilon = accountant.epsilon(whole, delta=exact_delta, relation=relation)
        else:
            epsilon = accountant.pure_epsilon(whole, relation=relation)
        parts = [leaf for release in releases for leaf in leaves(release)]
        every = [leaf.release for leaf in parts]
        return cls(
            unit=unit,
            relation=relation,
            epsilon=epsilon,
            delta=float(exact_delta),
            mechanisms=tuple(release.words for release in releases),
            sampler=_sampler(every),
            accountant=ACCOUNTANT if exact_delta else "basic composition of pure epsilons, rounded up",
            not_protected=(
                *_not_protected(parts, unit, relation, whole_units=whole_units),
                *also_not_protected,
            ),
        )

    def __repr__(self) -> str:
        return f"PrivacyStatement({self.headline})"

    @property
    def headline(self) -> str:
        """The promise in one line."""
        epsilon, delta = format_rounded_up(self.epsilon), format_rounded_up(self.delta, 3)
        return f"({epsilon}, {delta})-DP per {self.unit}, {self.relation} neighbours"

    def _repr_html_(self) -> str:
        rows = [
            ["neighbours", self.relation.plain.format(unit=self.unit)],
            *([_once("mechanism", at), mechanism] for at, mechanism in enumerate(self.mechanisms)),
            ["sampler", self.sampler],
            ["accountant", self.accountant],
            *([_once("not protected", at), gap] for at, gap in enumerate(self.not_protected)),
        ]
        return html_table(self.headline, ["", ""], rows)

    @property
    def budget(self) -> Budget:
        return Budget(expect.exact("epsilon", self.epsilon), expect.exact("delta", self.delta))

    def guarantee(self, *, sensitive_features: bool) -> Guarantee:
        """What the ledger is asked for; say whether any sensitive feature was read."""
        return Guarantee(self.budget, self.unit, self.relation, sensitive_features)

    def as_json(self) -> dict[str, Any]:
        """The unit in words, which do not say from which second its windows are counted: that is beside it."""
        window = self.unit.window
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "unit": str(self.unit),
            "window_origin": None if window is None else window.origin,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> PrivacyStatement:
        """The statement that `as_json` stored, such as the one beside a saved model."""
        expect.kind("record", record, Mapping)
        for name in ("mechanisms", "not_protected"):
            if not all(isinstance(words, str) for words in record[name]):
                raise BadInput(f"expected {name} of a statement as texts, got others")
        return cls(
            unit=Unit.of(record["unit"], origin=record.get("window_origin") or 0),
            relation=Relation(record["relation"]),
            epsilon=record["epsilon"],
            delta=record["delta"],
            mechanisms=tuple(record["mechanisms"]),
            sampler=record["sampler"],
            accountant=record["accountant"],
            not_protected=tuple(record["not_protected"]),
        )

    def as_text(self, what: str = "What was released") -> str:
        """A page that a person who is not an engineer can read. It is about releases that were made, unless
        `what` says otherwise."""
        epsilon, delta = format_rounded_up(self.epsilon), format_rounded_up(self.delta, 3)
        changed = self.relation.plain.format(unit=self.unit)
        factor = format_rounded_up(math.exp(self.epsilon), 3) if self.epsilon < 300 else "astronomically many"
        concluded = f"Whatever somebody concludes from {what[0].lower()}{what[1:]}, they would have concluded"
        meaning = (
            f"Take a dataset in which {changed}. {concluded} "
            f"from that one too, at most {factor} times (e^{epsilon}) less or more often"
            + (f", up to a remainder of probability {delta}." if self.delta else ".")
        )
        window = self.unit.window
        lines = [
            f"{what} is ({epsilon}, {delta})-differentially private per {self.unit}.",
            *([f"Windows of {window} are counted from second {window.origin} on."] if window else []),
            "",
            textwrap.fill(meaning, 100),
            "",
            "Mechanisms:",
            *(f"  - {mechanism}" for mechanism in self.mechanisms),
            f"Sampler: {self.sampler}.",
            f"Accountant: {self.accountant}.",
            "",
            "Not protected:",
            *(f"  - {gap}" for gap in self.not_protected),
        ]
        return "\n".join(lines)


def _once(words: str, place: int) -> str:
    return "" if place else words


def _sampler(releases: Sequence[Release]) -> str:
    shares = {r.sampling_probability for r in releases if isinstance(r, SubsampledGaussian)}
    if shares - {1.0}:
        return "Poisson: every record joins every batch independently; other samplers void the accounting"
    return "none: every record takes part"


def _speaks_of_one_record(leaf: Leaf, unit: Unit) -> bool:
    if unit.kind is UnitKind.DEVICE and isinstance(leaf.release, LocalChoice):
        return False
    return isinstance(leaf.release, PER_RECORD) and leaf.group == 1


def _not_protected(parts: Sequence[Leaf], unit: Unit, relation: Relation, *, whole_units: bool) -> list[str]:
    gaps = []
    releases = [leaf.release for leaf in parts]
    if unit.kind is UnitKind.IMPRESSION:
        gaps.append("a person with several impressions: their promises add up")
    elif not whole_units and any(_speaks_of_one_record(leaf, unit) for leaf in parts):
        gaps.append(f"a {unit.kind} with several records, unless they were clipped or flipped as a whole")
    if unit.kind is UnitKind.DEVICE:
        gaps.append("a person with several devices: each has a promise of its own, and they add up")
    if unit.window is not None:
        gaps.append(f"what several windows of {unit.window} tell together: each window is promised by itself")
    if unit.ad_tech is not None:
        gaps.append(f"what ad-techs other than {unit.ad_tech} release about the same people")
    if relation in (Relation.REPLACE_LABEL, Relation.REPLACE_ONE):
        gaps.append("public features, and that a record exists at all")
    if relation is Relation.REPLACE_LABEL:
        gaps.append("any feature: only labels are private here")
    if relation is Relation.ZERO_OUT:
        gaps.append("who took part, and how many")
    if unit.kind in ELSEWHERE:
        gaps.append(f"the same person {ELSEWHERE[unit.kind]}: each pair is promised by itself")
    if any(isinstance(release, TRAINED_ON) for release in releases):
        gaps.append("hyper-parameters that were tuned on the same private data, unless listed above")
    if any(isinstance(release, SubsampledGaussian | GaussianStatistic) for release in releases):
        gaps.append("floating-point traces of Gaussian noise: it is sampled in finite precision")
    if any(isinstance(release, SkellamCounts) for release in releases):
        gaps.append("against servers that collude, or more parties leaving out their noise than was stated")
    if any(isinstance(release, ShuffledChoice) for release in releases):
        gaps.append("anything the shuffler itself sees; reports of other menus or mechanisms do not hide these")
    gaps.append("what follows about a group of people from the result: that is what it was made to tell")
    return gaps
