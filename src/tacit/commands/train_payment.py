"""Who pays for a training: reserved before the first step, committed once the model is there."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import BadInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.commands.train_plan import Planned
    from tacit.privacy.allocation import Allocation
    from tacit.privacy.ledger.guarantee import Guarantee
    from tacit.privacy.mechanisms.memoised import FlipKey
    from tacit.privacy.units import Window
    from tacit.store.ledger import LedgerStore, Request
    from tacit.train.configuration_values import LedgerPlace, Privacy
    from tacit.train.examples import Examples


@dataclass(frozen=True, eq=False)
class Payment:
    """What a training costs, one request for each line: a unit with a time window has one a window.

    With `drawn_once` the release is the noisy labels themselves. They are the same whenever they are asked for,
    so a training that finds them paid for goes on without paying.
    """

    store: LedgerStore
    requests: tuple[Request, ...]
    drawn_once: bool

    @property
    def keys(self) -> list[str]:
        return [request.key for request in self.requests]

    def check(self) -> str:
        """Whether it could be reserved, in words; raises what reserving would raise. Nothing is written."""
        from tacit.privacy.ledger.rules import cost_on

        ledger, new = self.store.verify().ledger, 0
        for request in self.requests:
            amount = cost_on(request.line, request.cost)
            change = ledger.reserve(request.key, request.line, amount, request.purpose)
            ledger, new = ledger.after(change), new + bool(change.events)
        return "there is room" if new else "reserved or paid for already"

    def reserve(self, *, begun: bool) -> str:
        """Set it aside; in words, what that meant. `begun`: a run of ours was interrupted and goes on."""
        from tacit.privacy.ledger.rules import State

        made = self.store.reserve_all(self.requests)
        committed = [each.key for each in made if each.state is State.COMMITTED]
        earlier = [each.key for each in made if each.resumed]
        if self.drawn_once:
            if len(committed) == len(made):
                return "paid for before: the same noisy labels, read again"
            return "reserved before: the same noisy labels" if earlier else "reserved"
        if begun and not committed:
            return "reserved before, by the run that goes on" if earlier else "reserved"
        if earlier:
            for each in made:
                if not each.resumed:
                    self.store.abort(each.key)
            what = "a release was made" if committed else "another run has begun"
            raise BadInput(
                f"ledger.key: expected a key that the ledger does not know, got {earlier[0]}, under which "
                f"{what}; name another, or see tacit ledger settle --help"
            )
        return "reserved"

    def commit(self) -> None:
        self.store.commit_all(self.keys)

    def give_back(self) -> None:
        """Nothing left, and nothing ever will."""
        for key in self.keys:
            self.store.abort(key)

    def as_json(self) -> dict[str, Any]:
        return {"lines": [str(request.line) for request in self.requests], "keys": self.keys}


def payment_for(planned: Planned) -> Payment | None:
    """What the plan costs, and on which lines; None where nobody has to pay."""
    config, charge = planned.config, planned.plan.charge
    if config.ledger.path is None or charge is None:
        return None
    privacy = config.privacy
    if privacy.method == "label-dp":
        return label_payment(planned.noisy_labels, config.ledger, planned.examples, charge)
    cost = charge
    if planned.examples.selection is None:
        cost = aimed(charge, privacy)
    purpose = f"train by {privacy.method}"
    return _payment(config.ledger, planned.examples, cost, str(config.ledger.key), purpose, drawn_once=False)


def label_payment(labels: NoisyLabels, ledger: LedgerPlace, examples: Examples, charge: Guarantee) -> Payment:
    """What it costs to flip labels once; nothing if the ledger knows these flips already."""
    assert ledger.scope is not None, "checked when the configuration was read"
    purpose = f"flip labels by {labels.spelled}"
    cost = aimed(charge, labels.privacy)
    return _payment(ledger, examples, cost, labels.key(ledger.scope), purpose, drawn_once=True)


@dataclass(frozen=True, eq=False)
class NoisyLabels:
    """Labels that are flipped once and read for ever: all that their law and their draws depend on."""

    privacy: Privacy
    spelled: str
    flips: FlipKey
    secret: bytes

    def key(self, scope: str) -> str:
        """Their name in the ledger."""
        from tacit.train.secret_file import secret_name

        privacy, cap = self.privacy, self.privacy.cap
        assert privacy.epsilon is not None
        facts = [*self.flips.fields, repr(privacy.unit), str(cap.impressions), cap.choice, cap.split]
        facts += [str(Fraction(privacy.epsilon)), self.spelled, secret_name(self.secret)]
        digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]
        return f"{scope}/labels/{digest}"

    def refuse_changed(self, payment: Payment, secret_path: Path, targets: Labelled) -> None:
        """Flips that were paid for must still be of the labels that they were drawn from."""
        from tacit.train.secret_file import FlipRegister

        register, key = FlipRegister(secret_path, self.secret), payment.keys[0]
        if all(payment.store.reservation(each) is None for each in payment.keys):
            register.remember(key, targets.labels, targets.records)
        elif not register.holds(key, targets.labels, targets.records):
            raise BadInput(
                "labels.version: expected a higher one for labels that have changed since they were flipped, "
                f"got {self.flips.version}; a new version is a new release, and is paid for"
            )


@dataclass(frozen=True, eq=False)
class Labelled:
    """The true labels of the rows that a cap keeps."""

    labels: NDArray[Any]
    records: NDArray[Any]

    @classmethod
    def of(cls, examples: Examples, allocation: Allocation) -> Labelled:
        return cls(examples.labels[allocation.kept], examples.key("row")[allocation.kept])


def aimed(charge: Guarantee, privacy: Privacy) -> Guarantee:
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
    ledger: LedgerPlace, examples: Examples, cost: Guarantee, key: str, purpose: str, *, drawn_once: bool
) -> Payment:
    from tacit.privacy.ledger.lines import Series
    from tacit.store.ledger import LedgerStore, Request

    assert ledger.scope is not None, "checked when the configuration was read"
    assert ledger.path is not None, "nobody pays without a ledger"
    series = Series(ledger.scope, cost.unit, ledger.relation or cost.relation)
    store = LedgerStore.open_existing(ledger.path, witness=ledger.witness)
    if cost.unit.window is None:
        return Payment(store, (Request(key, series.line(None), cost, purpose),), drawn_once)
    each = [
        Request(f"{key}/{index}", series.line(index), cost, purpose)
        for index in _windows(examples, cost.unit.window)
    ]
    return Payment(store, tuple(each), drawn_once)


def _windows(examples: Examples, window: Window) -> list[int]:
    """The time windows that the examples lie in; times are public here, or planning would have refused."""
    import numpy as np

    times = np.asarray(examples.key("time"), np.int64)
    found: list[int] = np.unique((times - window.origin) // window.seconds).tolist()
    return found
