"""Labels for measuring that are flipped once, paid for once, and read as often as one likes."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit import expect
from tacit.commands.evaluate import reads_sensitive
from tacit.commands.train_flips import Labelled, NoisyLabels
from tacit.commands.train_payment import label_payment
from tacit.data.columns import Columns
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.privacy.mechanisms.memoised import SECRET_BYTES
from tacit.privacy.relations import Relation
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Cap, Unit, UnitKind
from tacit.train.configuration.configured import flip_key
from tacit.train.configuration.values import LedgerPlace, Privacy
from tacit.train.evaluation.outcomes import Outcomes
from tacit.train.examples import Examples
from tacit.train.labels.flips import FlipLabels
from tacit.train.labels.noisy import allocation_of
from tacit.train.secret_file import existing_secret, keep_secret

if TYPE_CHECKING:
    from tacit.commands.train_payment import Payment
    from tacit.privacy.allocation import Allocation
    from tacit.train.models.saving import Saved

RESPONSE = "randomized-response"
MADE_UP = "measured on flips of made-up labels: these figures are about nobody"
LABELS_ALONE = "the model reads sensitive features of these rows: what is promised here is for labels alone"


@dataclass(frozen=True, eq=False)
class Measured:
    """What the flips say of the rows that the cap keeps, and what that means for privacy, in words."""

    outcomes: Outcomes
    examples: Examples
    notes: tuple[str, ...]


def noisy_outcomes(args: argparse.Namespace, models: list[Saved], examples: Examples) -> Measured:
    """Flip the labels of these examples, or read flips that were paid for before."""
    if args.epsilon is None:
        raise BadInput("expected --epsilon for noisy labels, got none")
    ledger = _ledger(args, examples)
    cap = Cap(1 if args.cap is None else args.cap)
    privacy = Privacy(
        "label-dp", Unit(UnitKind(args.unit or "impression")), cap, expect.positive("--epsilon", args.epsilon)
    )
    columns = Columns.open(args.data)
    scope = ledger.scope or str(columns.manifest.get("log"))
    flips = flip_key(scope, columns, args.part, version=args.version or 0)
    kept = None if ledger.secret is None else existing_secret(ledger.secret)
    noisy = NoisyLabels(privacy, RESPONSE, flips, kept or Entropy().bytes(SECRET_BYTES))
    allocation = allocation_of(
        examples, privacy.unit, cap, key=flips, secret=noisy.secret, now=int(time.time())
    )
    labelled = Labelled.of(examples, allocation)  # refused here if they are not 0 or 1
    notes, payment = [MADE_UP], None
    if ledger.path is not None:
        sensitive = any(reads_sensitive(model) for model in models)
        payment = _payment(noisy, ledger, examples, allocation, labelled)
        paid = payment.reserve()
        notes = [f"measured on labels flipped at ε = {args.epsilon} per {privacy.unit}; ledger: {paid}"]
        notes += [LABELS_ALONE] if sensitive else []
    assert privacy.epsilon is not None
    targets = FlipLabels().targets(
        examples.labels, examples.key("row"), allocation, privacy.epsilon, key=flips, secret=noisy.secret
    )
    assert targets.rows is not None
    assert targets.keep is not None
    users = examples.key("user")[targets.rows] if "user" in examples.public_keys else None
    outcomes = Outcomes.of_flipped(targets.values, targets.keep.astype(np.float64), clusters=users)
    if payment is not None:
        payment.commit()
    return Measured(outcomes, examples.subset(targets.rows), tuple(notes))


def _payment(
    noisy: NoisyLabels, ledger: LedgerPlace, examples: Examples, allocation: Allocation, labelled: Labelled
) -> Payment:
    assert noisy.privacy.epsilon is not None
    assert ledger.secret is not None
    release = FlipLabels().release(allocation, noisy.privacy.epsilon)
    statement = PrivacyStatement.of(
        [release], unit=noisy.privacy.unit, relation=Relation.REPLACE_LABEL, delta=0
    )
    # The flips themselves read no feature; only what is measured with them may.
    payment = label_payment(noisy, ledger, examples, statement.guarantee(sensitive_features=False))
    keep_secret(ledger.secret, noisy.secret)
    noisy.refuse_changed(payment, ledger, labelled)
    return payment


def _ledger(args: argparse.Namespace, examples: Examples) -> LedgerPlace:
    """All of it, or on made-up data nothing."""
    given = {name: getattr(args, name) for name in ("ledger", "scope", "secret")}
    if examples.synthetic and all(value is None for value in (*given.values(), args.relation)):
        return LedgerPlace()
    for name, value in given.items():
        if value is None:
            raise BadInput(f"expected --{name} to pay for noisy labels, got none")
    relation = None if args.relation is None else Relation(args.relation)
    return LedgerPlace(args.ledger, args.witness, args.scope, relation, None, args.secret)
