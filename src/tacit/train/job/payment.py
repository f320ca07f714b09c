"""Who pays for a training: reserved before the first step, committed once the model is there.

Any ledger will do that keeps what it is told (`TrainingLedger`); `tacit.store.ledger.LedgerStore` is one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.ledger.lines import Series
from tacit.privacy.ledger.requests import Request
from tacit.privacy.ledger.rules import Ledger, Reservation, ReservationState, cost_on
from tacit.privacy.units import Relation
from tacit.train.config import PrivacySettings
from tacit.train.examples import Examples, time_windows
from tacit.train.job.label_flips import LabelFlipRelease, LabelledRows
from tacit.train.job.planned_training import PlannedTraining
from tacit.train.plan import LabelPhase, Plan

RUN = ", run "  # in a purpose, before the name of the run
# Flips cost exactly what was aimed for; as a double it may come out one unit in the last place above.
_LAST_PLACES = Fraction(1, 2**40)


class TrainingLedger(Protocol):
    """A ledger that pays for trainings. What a method does to several keys happens to all of them or to none,
    and is on the disk when it returns."""

    def around(self, requests: Sequence[Request]) -> Ledger:
        """All that decides about these keys and lines: enough to see what reserving them would do."""
        ...

    def reserve_all(self, requests: Sequence[Request]) -> list[Reservation]:
        """Set aside what a release costs; again, the same reservations come back, marked `resumed`."""
        ...

    def reservation(self, key: str) -> Reservation | None:
        """What is reserved or settled under this key, if anything."""
        ...

    def claim_all(self, keys: Sequence[str], attempt: str, *, after: Collection[str] = ()) -> list[Reservation]:
        """Take reservations up by a token, in exchange for any of those before; raises ReservationTaken."""
        ...

    def make_all(self, keys: Sequence[str], attempt: str, release: str) -> list[Reservation]:
        """Say what was made, by its digest, before it leaves: once, and no other."""
        ...

    def commit_all(self, keys: Sequence[str], attempt: str | None = None) -> list[Reservation]:
        """The release left."""
        ...

    def abort_all(self, keys: Sequence[str], attempt: str | None = None) -> list[Reservation]:
        """The release never left, and never will."""
        ...

    def series(self) -> set[Series]:
        """Each that a line was opened of, or whose windows have a limit."""
        ...


@dataclass(frozen=True, eq=False)
class Payment:
    """What a training costs, one request for each line: a unit with a time window has one per window.

    With `drawn_once` the release is the noisy labels themselves. They are the same whenever they are asked for,
    so a training that finds them paid for goes on without paying, and several may: whoever has the secret is
    one `attempt` to the ledger, and makes them of the same labels (`reserve`), or is refused. Any other release
    is of one run: once that is known, the purpose names it (`of_run`), and what another run reserved under the
    same key is not taken. Of the copies of a run one goes on, the one that claims it.
    """

    ledger: TrainingLedger
    requests: tuple[Request, ...]
    drawn_once: bool = False
    attempt: str | None = None  # of labels that are drawn once: `LabelFlipRelease.attempt`
    labels: LabelFlipRelease | None = None  # where labels are flipped, whatever else is released

    @property
    def keys(self) -> list[str]:
        return [request.key for request in self.requests]

    def of_run(self, run: str) -> Payment:
        """The same, for this run alone."""
        if self.drawn_once:
            return self
        requests = [replace(each, purpose=f"{each.purpose}{RUN}{run}") for each in self.requests]
        return replace(self, requests=tuple(requests))

    def check(self) -> str:
        """Whether it could be reserved, in words; raises what reserving would raise. Nothing is written."""
        ledger, new = self.ledger.around(self.requests), 0
        for request in self.requests:
            known = ledger.reservations.get(request.key)
            purpose = request.purpose
            if known is not None and known.purpose.startswith(f"{purpose}{RUN}"):
                purpose = known.purpose
            cost = cost_on(request.line, request.cost)
            change = ledger.reserve(request.key, request.line, cost, purpose)
            ledger, new = ledger.apply(change), new + bool(change.events)
        return "there is room" if new else "reserved or paid for already"

    def expect_covers(self, plan: Plan) -> None:
        """BadInput unless this pays for all that the plan releases: its epsilon and delta, its unit, relation
        and features, every time window of its examples, and flips by its own key.

        Flips that are drawn once pay for one phase of labels and nothing else. An epsilon may be the one that
        was aimed for, as `charge_as_asked` writes it.
        """
        charge, labels = plan.charge, self.labels
        if charge is None or not self.requests:
            raise BadInput("expected a payment of what the plan costs, got one of nothing or a free plan")
        for cost in (each.cost for each in self.requests):
            if not isinstance(cost, Guarantee) or not _covers(cost, charge):
                raise BadInput(f"expected a payment of {charge}, as the plan costs, got one of {cost}")
        window = charge.unit.window
        windows = [None] if window is None else time_windows(plan.examples, window)
        if sorted(each.line.window for each in self.requests) != windows:  # type: ignore[type-var]
            raise BadInput("expected a request for each time window of the plan's examples, got others")
        flips = [each.labelling for each in plan.phases if isinstance(each, LabelPhase) and each.labelling]
        if self.drawn_once and (len(plan.phases) != 1 or not flips or plan.recalibration is not None):
            raise BadInput("expected a plan that flips labels and releases nothing else, got another")
        if labels is not None and any(each.key != labels.flips for each in flips):
            raise BadInput("expected flips by the key that is paid for, got another name, round or version")

    def reserve_for(self, plan: Plan) -> str:
        """Set it aside for this plan; labels to be flipped must be those that they were drawn from before."""
        drawn_from = None
        for phase in plan.phases:
            if self.labels is not None and isinstance(phase, LabelPhase) and phase.labelling is not None:
                noisy = phase.labelling
                behind = LabelledRows.of(plan.examples, noisy.allocation, noisy.mechanism)
                drawn_from = self.labels.refuse_changed(behind, paid_as=self.known_flips)
        return self.reserve(drawn_from) if self.drawn_once else self.reserve()

    @property
    def known_flips(self) -> str | None:
        """The key of flips that the ledger knows already."""
        known = self.drawn_once and any(self.ledger.reservation(key) is not None for key in self.keys)
        return self.keys[0] if known else None

    def reserve(self, drawn_from: str | None = None) -> str:
        """Set it aside; in words, what that meant. Labels that are drawn once are made with it: `drawn_from` is
        a digest of what they are flips of, and of anything else they would be another release."""
        if not self.drawn_once:
            self._refuse_other_runs()
        made = self.ledger.reserve_all(self.requests)
        committed = [each for each in made if each.state is ReservationState.COMMITTED]
        earlier = any(each.resumed for each in made)
        if self.drawn_once:
            self._say_drawn(drawn_from)
            if len(committed) == len(made):
                return "paid for before: the same noisy labels, read again"
            return "reserved before: the same noisy labels" if earlier else "reserved"
        if committed:
            raise _key_taken(committed[0])
        return "reserved before, by the run that goes on" if earlier else "reserved"

    def _say_drawn(self, drawn_from: str | None) -> None:
        """Not of what was paid for before ledgers kept it."""
        assert self.attempt is not None, "labels that are drawn once have one"
        keys = self._keys_to_say()
        if keys and drawn_from is not None:
            self.ledger.make_all(keys, self.attempt, drawn_from)

    def _keys_to_say(self) -> list[str]:
        """Without those that were spent when ledgers did not keep who made what."""
        known = {key: self.ledger.reservation(key) for key in self.keys}
        return [key for key, each in known.items() if each is None or not each.predates_attempts]

    def refuse_unless_reserved(self) -> None:
        """For a model that was made: its own run has paid for it, or is about to."""
        if self.drawn_once:
            return
        for request in self.requests:
            known = self.ledger.reservation(request.key)
            if known is None or known.purpose != request.purpose:
                raise BadInput(
                    f"ledger.path: expected what this run reserved as {request.key}, got a ledger without it"
                )

    def _refuse_other_runs(self) -> None:
        """In words; in the same transaction as it reserves, the ledger refuses another purpose by itself."""
        for request in self.requests:
            known = self.ledger.reservation(request.key)
            if known is None or known.purpose == request.purpose:
                continue
            if (known.line, known.amount) == (request.line, cost_on(request.line, request.cost)):
                raise _key_taken(known)

    def claim(self, attempt: str, after: Collection[str]) -> None:
        """Take up what is reserved, so that no copy of this run does: see `Checkpoints.hold`."""
        self.ledger.claim_all(self.keys, attempt, after=after)

    def make(self, attempt: str, release: str) -> None:
        """The one-way step before a model is put in its place: this one, and no other."""
        self.ledger.make_all(self.keys, attempt, release)

    def commit(self, attempt: str | None = None) -> None:
        if not self.drawn_once:
            self.ledger.commit_all(self.keys, attempt)
            return
        self.ledger.commit_all(self._keys_to_say(), self.attempt)

    def give_back(self, attempt: str | None = None) -> None:
        """Nothing left, and nothing ever will."""
        self.ledger.abort_all(self.keys, attempt)

    def as_json(self) -> dict[str, Any]:
        return {"lines": [str(request.line) for request in self.requests], "keys": self.keys}


def _covers(cost: Guarantee, charge: Guarantee) -> bool:
    same = (cost.unit, cost.relation, cost.sensitive_features) == (
        charge.unit, charge.relation, charge.sensitive_features,
    )  # fmt: skip
    aimed = Fraction(cost.budget.epsilon) * (1 + _LAST_PLACES)
    return same and charge.budget.epsilon <= aimed and charge.budget.delta <= cost.budget.delta


def _key_taken(known: Reservation) -> BadInput:
    happened = {
        "reserved": "another run has begun",
        "committed": "a release was made",
        "aborted": "a reservation was given back",
    }
    return BadInput(
        f"ledger.key: expected a key that the ledger does not know, got {known.key}, under which "
        f"{happened[known.state]}; name another, or see tacit ledger settle --help"
    )


def training_cost(planned: PlannedTraining) -> Guarantee | None:
    """What the ledger is asked for; None where nothing is."""
    charge, privacy = planned.plan.charge, planned.config.privacy
    if charge is None or (privacy.method != "label-dp" and planned.examples.selection is not None):
        return charge
    return charge_as_asked(charge, privacy)


def payment_for(planned: PlannedTraining, ledger: TrainingLedger | None) -> Payment | None:
    """What the plan costs, and on which lines; None where nobody has to pay."""
    config, cost = planned.config, training_cost(planned)
    if ledger is None or cost is None:
        return None
    who = config.ledger
    assert who.scope is not None, "checked when the configuration was read"
    if config.privacy.method == "label-dp":
        assert planned.plan.charge is not None
        return label_payment(
            ledger, planned.label_flips, planned.plan.charge, planned.examples, relation=who.relation
        )
    return release_payment(
        ledger, cost, planned.examples,
        scope=who.scope, key=str(who.key), purpose=f"train by {config.privacy.method}", relation=who.relation,
        labels=None if planned.secret is None else planned.label_flips,
    )  # fmt: skip


def release_payment(
    ledger: TrainingLedger,
    cost: Guarantee,
    examples: Examples,
    *,
    scope: str,
    key: str,
    purpose: str = "train",
    relation: Relation | None = None,
    labels: LabelFlipRelease | None = None,
) -> Payment:
    """A payment for one release, under a key of its own: what it costs on a line of this scope, or on one per
    time window. `relation` is that of the line, where it is wider than the cost's; `labels` are those that are
    flipped for this release, as in the Hybrid."""
    expect.kind("cost", cost, Guarantee)
    series = Series(scope, cost.unit, relation or cost.relation)
    if cost.unit.window is None:
        return Payment(ledger, (Request(key, series.line(None), cost, purpose),), labels=labels)
    each = [
        Request(f"{key}/{index}", series.line(index), cost, purpose)
        for index in time_windows(examples, cost.unit.window)
    ]
    return Payment(ledger, tuple(each), labels=labels)


def label_payment(
    ledger: TrainingLedger,
    labels: LabelFlipRelease,
    charge: Guarantee,
    examples: Examples,
    *,
    relation: Relation | None = None,
    refuse_sensitive: Callable[[str], None] | None = None,
) -> Payment:
    """What it costs to flip labels once; nothing if the ledger knows these flips already.

    What is made of flips and of sensitive features tells of these exactly, so where a line of the scope
    protects features it is refused, whichever line would pay.
    """
    for line in _protecting_features(ledger, labels.scope) if charge.sensitive_features else ():
        (refuse_sensitive or _refuse_sensitive)(line)
    paid = release_payment(
        ledger, charge_as_asked(charge, labels.privacy), examples,
        scope=labels.scope, key=labels.key, purpose=f"flip labels by {labels.spelled}", relation=relation,
        labels=labels,
    )  # fmt: skip
    return replace(paid, drawn_once=True, attempt=labels.attempt)


def refuse_reading_protected(ledger: TrainingLedger, scope: str, charge: Guarantee) -> None:
    """BadInput where a model of noisy labels reads sensitive features that a line of the scope protects."""
    if charge.sensitive_features and charge.relation is Relation.REPLACE_LABEL:
        for line in _protecting_features(ledger, scope):
            _refuse_sensitive(line)


def _protecting_features(ledger: TrainingLedger, scope: str) -> list[str]:
    """The scope's lines whose promise covers more than labels."""
    return sorted(
        str(each)
        for each in ledger.series()
        if each.scope == scope and each.relation is not Relation.REPLACE_LABEL
    )


def _refuse_sensitive(line: str) -> None:
    raise BadInput(
        f"ledger.scope: expected a model that reads public features alone, since line {line} protects the "
        "others, got one that reads sensitive ones: its weights would tell of them, flips or not"
    )


def charge_as_asked(charge: Guarantee, privacy: PrivacySettings) -> Guarantee:
    """The charge with the epsilon that was aimed for, where the accountant found no more than that.

    It is the same on every machine, while the last digits of a computed one are not; under one key the ledger
    takes one amount only.
    """
    assert privacy.epsilon is not None
    return charge_as_aimed(charge, privacy.epsilon)


def charge_as_aimed(charge: Guarantee, epsilon: expect.Number) -> Guarantee:
    """The charge with this epsilon, where it is no more than that but for the last digits."""
    aim = expect.exact("epsilon", epsilon)
    if charge.budget.epsilon > aim * (1 + _LAST_PLACES):
        return charge
    return replace(charge, budget=Budget.of(aim, charge.budget.delta))
