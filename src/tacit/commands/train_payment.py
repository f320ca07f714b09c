"""Who pays for a training: reserved before the first step, committed once the model is there."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tacit.commands.train_granting import NO_PAYMENT, Asker, grant_command, open_paying_ledger, suggest_grant
from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.commands.train_flips import NoisyLabels
    from tacit.commands.train_plan import PlannedTraining
    from tacit.privacy.ledger.guarantee import Guarantee
    from tacit.privacy.ledger.rules import Reservation
    from tacit.store.ledger import LedgerStore, Request
    from tacit.train.config import LedgerSettings, PrivacySettings
    from tacit.train.examples import Examples


RUN = ", run "  # in a purpose, before the name of the run


@dataclass(frozen=True, eq=False)
class Payment:
    """What a training costs, one request for each line: a unit with a time window has one per window.

    With `drawn_once` the release is the noisy labels themselves. They are the same whenever they are asked for,
    so a training that finds them paid for goes on without paying, and several may: whoever has the secret is
    one `attempt` to the ledger, and makes them of the same labels (`reserve`), or is refused. Any other release
    is of one run: once that is known, the purpose names it (`of_run`), and what another run reserved under the
    same key is not taken. Of the copies of a run one goes on, the one that claims it.
    """

    store: LedgerStore
    requests: tuple[Request, ...]
    drawn_once: bool
    how_to_grant: str  # the command that opens its line
    attempt: str | None = None  # of labels that are drawn once: `NoisyLabels.attempt`

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
        from tacit.privacy.ledger.rules import cost_on

        ledger, new = self.store.around(self.requests), 0
        for request in self.requests:
            known = ledger.reservations.get(request.key)
            purpose = request.purpose
            if known is not None and known.purpose.startswith(f"{purpose}{RUN}"):
                purpose = known.purpose
            with suggest_grant(self.how_to_grant):
                cost = cost_on(request.line, request.cost)
                change = ledger.reserve(request.key, request.line, cost, purpose)
            ledger, new = ledger.after(change), new + bool(change.events)
        return "there is room" if new else "reserved or paid for already"

    def reserve(self, drawn_from: str | None = None) -> str:
        """Set it aside; in words, what that meant. Labels that are drawn once are made with it: `drawn_from` is
        a digest of what they are flips of, and of anything else they would be another release."""
        from tacit.privacy.ledger.rules import ReservationState

        if not self.drawn_once:
            self._refuse_other_runs()
        with suggest_grant(self.how_to_grant):
            made = self.store.reserve_all(self.requests)
        committed = [each for each in made if each.state is ReservationState.COMMITTED]
        earlier = any(each.resumed for each in made)
        if self.drawn_once:
            self._say_drawn(drawn_from)
            if len(committed) == len(made):
                return "paid for before: the same noisy labels, read again"
            return "reserved before: the same noisy labels" if earlier else "reserved"
        if committed:
            raise _taken(committed[0])
        return "reserved before, by the run that goes on" if earlier else "reserved"

    def _say_drawn(self, drawn_from: str | None) -> None:
        """Not of what was paid for before ledgers kept it."""
        assert self.attempt is not None, "labels that are drawn once have one"
        keys = self._keys_to_say()
        if keys and drawn_from is not None:
            self.store.make_all(keys, self.attempt, drawn_from)

    def _keys_to_say(self) -> list[str]:
        """Without those that were spent when ledgers did not keep who made what."""
        known = {key: self.store.reservation(key) for key in self.keys}
        return [key for key, each in known.items() if each is None or not each.predates_attempts]

    def refuse_unless_reserved(self) -> None:
        """For a model that was made: its own run has paid for it, or is about to."""
        if self.drawn_once:
            return
        for request in self.requests:
            known = self.store.reservation(request.key)
            if known is None or known.purpose != request.purpose:
                raise BadInput(
                    f"ledger.path: expected what this run reserved as {request.key}, got a ledger without it"
                )

    def _refuse_other_runs(self) -> None:
        """In words; in the same transaction as it reserves, the ledger refuses another purpose by itself."""
        from tacit.privacy.ledger.rules import cost_on

        for request in self.requests:
            known = self.store.reservation(request.key)
            if known is None or known.purpose == request.purpose:
                continue
            if (known.line, known.amount) == (request.line, cost_on(request.line, request.cost)):
                raise _taken(known)

    def claim(self, attempt: str, after: Collection[str]) -> None:
        """Take up what is reserved, so that no copy of this run does: see `Checkpoints.hold`."""
        self.store.claim_all(self.keys, attempt, after=after)

    def make(self, attempt: str, release: str) -> None:
        """The one-way step before a model is put in its place: this one, and no other."""
        self.store.make_all(self.keys, attempt, release)

    def commit(self, attempt: str | None = None) -> None:
        if not self.drawn_once:
            self.store.commit_all(self.keys, attempt)
            return
        self.store.commit_all(self._keys_to_say(), self.attempt)

    def give_back(self, attempt: str | None = None) -> None:
        """Nothing left, and nothing ever will."""
        self.store.abort_all(self.keys, attempt)

    def as_json(self) -> dict[str, Any]:
        return {"lines": [str(request.line) for request in self.requests], "keys": self.keys}


def _taken(known: Reservation) -> BadInput:
    happened = {
        "reserved": "another run has begun",
        "committed": "a release was made",
        "aborted": "a reservation was given back",
    }
    return BadInput(
        f"ledger.key: expected a key that the ledger does not know, got {known.key}, under which "
        f"{happened[known.state]}; name another, or see tacit ledger settle --help"
    )


def payment_for(planned: PlannedTraining) -> Payment | None:
    """What the plan costs, and on which lines; None where nobody has to pay."""
    config, charge = planned.config, planned.plan.charge
    if config.ledger.path is None or charge is None:
        return None
    asker = Asker("[ledger] path", NO_PAYMENT if planned.examples.synthetic else None)
    privacy = config.privacy
    if privacy.method == "label-dp":
        return label_payment(planned.noisy_labels, config.ledger, planned.examples, charge, asker)
    cost = charge
    if planned.examples.selection is None:
        cost = aimed(charge, privacy)
    purpose = f"train by {privacy.method}"
    store = open_paying_ledger(config.ledger, cost, asker)
    key = str(config.ledger.key)
    return _payment(store, config.ledger, planned.examples, cost, key, purpose, drawn_once=False)


def label_payment(
    labels: NoisyLabels,
    ledger: LedgerSettings,
    examples: Examples,
    charge: Guarantee,
    asker: Asker,
    refuse_sensitive: Callable[[str], None] | None = None,
) -> Payment:
    """What it costs to flip labels once; nothing if the ledger knows these flips already.

    What is made of flips and of sensitive features tells of these exactly, so where a line of the scope
    protects features it is refused, whichever line would pay.
    """
    assert ledger.scope is not None, "checked when the configuration was read"
    purpose = f"flip labels by {labels.spelled}"
    cost = aimed(charge, labels.privacy)
    store, key = open_paying_ledger(ledger, cost, asker), labels.key(ledger.scope)
    for line in _protecting_features(store, ledger.scope) if charge.sensitive_features else ():
        (refuse_sensitive or _refuse_sensitive)(line)
    paid = _payment(store, ledger, examples, cost, key, purpose, drawn_once=True)
    return replace(paid, attempt=labels.attempt)


def _protecting_features(store: LedgerStore, scope: str) -> list[str]:
    """The scope's lines whose promise covers more than labels."""
    from tacit.privacy.units import Relation

    return sorted(
        str(each)
        for each in store.series()
        if each.scope == scope and each.relation is not Relation.REPLACE_LABEL
    )


def _refuse_sensitive(line: str) -> None:
    raise BadInput(
        f"ledger.scope: expected a model that reads public features alone, since line {line} protects the "
        "others, got one that reads sensitive ones: its weights would tell of them, flips or not"
    )


def aimed(charge: Guarantee, privacy: PrivacySettings) -> Guarantee:
    """The charge with the epsilon that was aimed for, where the accountant found no more than that.

    It is the same on every machine, while the last digits of a computed one are not; under one key the ledger
    takes one amount only.
    """
    from tacit.privacy.budget import Budget

    assert privacy.epsilon is not None
    aim = Fraction(privacy.epsilon)
    # Flips cost exactly what was aimed for; as a double it may come out one unit in the last place above.
    if charge.budget.epsilon > aim * (1 + Fraction(1, 2**40)):
        return charge
    return replace(charge, budget=Budget.of(aim, charge.budget.delta))


def _payment(
    store: LedgerStore,
    ledger: LedgerSettings,
    examples: Examples,
    cost: Guarantee,
    key: str,
    purpose: str,
    *,
    drawn_once: bool,
) -> Payment:
    from tacit.privacy.ledger.lines import Series
    from tacit.store.ledger import Request

    assert ledger.scope is not None, "checked when the configuration was read"
    series = Series(ledger.scope, cost.unit, ledger.relation or cost.relation)
    command = grant_command(ledger, cost)
    if cost.unit.window is None:
        return Payment(store, (Request(key, series.line(None), cost, purpose),), drawn_once, command)
    from tacit.train.examples import time_windows

    each = [
        Request(f"{key}/{index}", series.line(index), cost, purpose)
        for index in time_windows(examples, cost.unit.window)
    ]
    return Payment(store, tuple(each), drawn_once, command)
