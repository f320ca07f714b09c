"""What a training of one's own module will do and promise, and how it is paid for: from public numbers
alone."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Protocol

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy import calibration
from tacit.privacy.accounting import accountant
from tacit.privacy.budget import Budget, format_rounded_up
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.ledger.lines import Line
from tacit.privacy.ledger.rules import Reservation
from tacit.privacy.releases import SubsampledGaussian
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit.train.config_file import check_epsilon

VERSION = 1
KEPT = {
    "plan": Mapping, "simulated": bool, "steps": int, "name": str, "token": str, "module": Mapping,
    "optimizer": Mapping,
}  # fmt: skip
"""What a state of a run has of each name, and of what kind."""
BELIEVED = "a {0} with several records: that a record is all of a {0} was said, and not checked; see users="


@dataclass(frozen=True)
class ModulePlan:
    """DP-SGD by numbers that everybody may know: Poisson samples of `batch` of `records` on average.

    Guarantee:  (epsilon, delta)-DP for the weights after every step, all steps together, as `statement` says.
    Neighbours: `relation`, for one record of the dataset, which is one `unit`; or `by_user`, for all of a unit.
    Assumes:    `records`, and what follows from it, is public; see `run.PrivateRun` for what is asked of a
                module.
    Source:     Abadi et al. 2016 (arXiv 1607.00133), algorithm 1; accounted for by `privacy.accounting`.
    """

    records: int
    batch: int
    steps: int
    clip_norm: float
    noise_multiplier: float
    delta: float
    unit: Unit
    relation: Relation
    asked: float | None = None  # the epsilon that noise was chosen for
    by_user: bool = False  # whether samples are of whole units, `records` of them, with one record each

    @classmethod
    def of(
        cls,
        records: int,
        batch: int,
        epochs: float,
        *,
        clip_norm: float,
        epsilon: float | None,
        noise_multiplier: float | None,
        delta: float,
        unit: Unit | UnitKind | str | None,
        relation: Relation | str,
        by_user: bool = False,
    ) -> ModulePlan:
        """From a target epsilon, or from noise in units of the clip norm."""
        if (epsilon is None) == (noise_multiplier is None):
            both = "both" if epsilon is not None else "neither"
            raise BadInput(f"expected either epsilon or noise_multiplier, got {both}")
        for key, value in (
            ("noise_multiplier", noise_multiplier),
            ("max_grad_norm", clip_norm),
            ("delta", delta),
            ("epochs", epochs),
        ):
            expect.not_text(key, value)
        clip_norm = float(expect.positive("max_grad_norm", clip_norm))
        delta = float(expect.probability("delta", delta))
        steps = max(1, math.ceil(expect.positive("epochs", epochs) * records / batch))
        unit = Unit.of((UnitKind.USER if by_user else UnitKind.IMPRESSION) if unit is None else unit)
        if by_user and unit.kind is UnitKind.IMPRESSION:
            raise BadInput("expected a unit such as user beside users, got impression, which is one record")
        relation, share = Relation.named("relation", relation), min(1.0, batch / records)
        if epsilon is not None:
            expect.not_text("epsilon", epsilon)
            asked = check_epsilon("epsilon", epsilon)
            noise_multiplier = calibration.noise_multiplier(
                epsilon=epsilon, delta=delta, relation=relation, sampling_probability=share, steps=steps
            )
            epsilon = float(asked)
        assert noise_multiplier is not None
        noise = SubsampledGaussian(noise_multiplier, share, steps).noise_multiplier
        return cls(records, batch, steps, clip_norm, noise, delta, unit, relation, epsilon, by_user)

    @property
    def sampling_probability(self) -> float:
        return min(1.0, self.batch / self.records)

    @property
    def release(self) -> SubsampledGaussian:
        return self.release_after(self.steps)

    def release_after(self, steps: int) -> SubsampledGaussian:
        return SubsampledGaussian(self.noise_multiplier, self.sampling_probability, steps)

    def epsilon_after(self, steps: int) -> float:
        """What that many steps tell, at the plan's delta."""
        if steps == 0:
            return 0.0
        return _accounted(self.release_after(steps), self.delta, self.relation)

    def statement(self) -> PrivacyStatement:
        believed = self.unit.kind is not UnitKind.IMPRESSION and not self.by_user
        return PrivacyStatement.of(
            [self.release],
            unit=self.unit,
            relation=self.relation,
            delta=self.delta,
            also_not_protected=(BELIEVED.format(self.unit.kind),) if believed else (),
            whole_units=True,
        )

    def cost(self) -> Guarantee:
        """What a ledger is asked for: the epsilon that was aimed for, which is the same on every machine."""
        charge = self.statement().guarantee(sensitive_features=True)
        if self.asked is None or charge.budget.epsilon > Fraction(self.asked):
            return charge
        budget = Budget.of(expect.exact("epsilon", self.asked), charge.budget.delta)
        return Guarantee(budget, charge.unit, charge.relation, charge.sensitive_features)

    def as_json(self) -> dict[str, Any]:
        """All that decides what is released, to be compared when a run goes on."""
        return {
            "records": self.records, "batch": self.batch, "steps": self.steps, "clip_norm": self.clip_norm,
            "noise_multiplier": self.noise_multiplier, "delta": self.delta, "unit": str(self.unit),
            "relation": str(self.relation),
        } | ({"by_user": True} if self.by_user else {})  # fmt: skip

    def __str__(self) -> str:
        epsilon, delta = format_rounded_up(self.epsilon_after(self.steps)), format_rounded_up(self.delta, 3)
        whose = f"{self.unit.kind}s" if self.by_user else "records"
        each = ", one record each" if self.by_user else ""
        return (
            f"DP-SGD: {self.steps} steps over Poisson samples of {self.batch:,} of {self.records:,} {whose} on "
            f"average{each}\n"
            f"  clipped to norms of {self.clip_norm:g}, noise multiplier {self.noise_multiplier:.4g}\n"
            f"  ({epsilon}, {delta})-DP per {self.unit}, {self.relation} neighbours"
        )


@cache
def _accounted(release: SubsampledGaussian, delta: float, relation: Relation) -> float:
    return accountant.epsilon(release, delta=delta, relation=relation)


def check_kept(state: object, plan: ModulePlan, *, simulated: bool, paid: bool) -> None:
    """BadInput unless this is what a run of the same plan has kept, whole."""
    if not isinstance(state, Mapping):
        raise BadInput(f"expected the state of a run, got {type(state).__name__}")
    if state.get("version") != VERSION:
        raise BadInput(f"expected a state of version {VERSION}, got {state.get('version')!r}")
    for key, kind in KEPT.items():
        if not isinstance(state.get(key), kind):
            raise BadInput(f"expected a state with its {key}, got {type(state.get(key)).__name__} for it")
    own, kept = {**plan.as_json(), "simulated": simulated}, {**state["plan"], "simulated": state["simulated"]}
    for key, value in own.items():
        if kept.get(key) != value:
            raise BadInput(f"expected a state of the same plan, {key} = {value}, got {key} = {kept.get(key)}")
    if not 0 <= state["steps"] <= plan.steps:
        raise BadInput(f"expected at most {plan.steps} steps, which were planned, got {state['steps']}")
    if bool(state["token"]) != paid:
        words = "that was paid for, got one without a payment" if paid else "without a ledger, got a paid one"
        raise BadInput(f"expected a state of a run {words}")


class RunLedger(Protocol):
    """A ledger that pays for a run: `tacit.store`'s, or `tacit.MemoryLedger` for trials."""

    def reserve(self, key: str, line: Line, cost: Guarantee | Budget, purpose: str) -> Reservation: ...
    def claim(self, key: str, attempt: str, *, after: Collection[str] = ()) -> Reservation: ...
    def make(self, key: str, attempt: str, release: str) -> Reservation: ...
    def commit(self, key: str, attempt: str | None = None) -> Reservation: ...


@dataclass(frozen=True, eq=False)
class RunPayment:
    """The cost of one run on one line: reserved before the first step, made and spent after the last.

    Of the copies of a run one goes on: whoever does takes the reservation up by a new token in exchange for the
    one that was kept with the weights (`claim`), and a copy presents one that is exchanged already.
    """

    ledger: RunLedger
    key: str
    line: Line

    @classmethod
    def of(
        cls, ledger: RunLedger | None, name: str | None, line: Line | None, *, simulated: bool
    ) -> RunPayment | None:
        """Who pays, said whole or not at all."""
        if ledger is None:
            if name is not None or line is not None:
                raise BadInput("expected a ledger to pay with, got a name or a line alone")
            return None
        for verb in ("reserve", "claim", "make", "commit"):
            if not callable(getattr(ledger, verb, None)):
                raise BadInput(f"expected a ledger such as LedgerStore, got {type(ledger).__name__}")
        if name is None or line is None:
            raise BadInput("expected a name and a line to pay from with a ledger, got none")
        expect.kind("name", name, str)
        expect.kind("line", line, Line)
        if simulated:
            raise BadInput("expected no ledger for a simulation, got one: nothing is released")
        return cls(ledger, name, line)

    def reserve(self, plan: ModulePlan, run: str) -> None:
        """Set aside for this run alone: what another one reserved under the same name is refused."""
        self.ledger.reserve(self.key, self.line, plan.cost(), f"train a torch module by DP-SGD, run {run}")

    def claim(self, token: str, after: Collection[str] = ()) -> None:
        self.ledger.claim(self.key, token, after=after)

    def spend(self, token: str, release: str) -> None:
        """These weights, by their digest, and no others leave."""
        self.ledger.make(self.key, token, release)
        self.ledger.commit(self.key, token)
