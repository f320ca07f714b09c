"""Labels for `tacit evaluate` that are flipped once, paid for once, and measured on as often as one likes.

Figures over flips are free only as far as everything else that they are made of is public. A model's prediction
is exact about the features that it reads, so a model of sensitive features is measured only where nobody
promised to protect features: by bisection, some ten crafted models would find a row's sensitive value.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit import expect
from tacit.commands.evaluate import add_ledger_standing, sensitive_columns_read
from tacit.commands.missing_line_help import Asker, grant_command, open_paying_ledger, suggest_grant
from tacit.config import error_prefix
from tacit.data.columns import Columns
from tacit.entropy import Entropy
from tacit.errors import BadInput, ReservationTaken, TacitError
from tacit.files import check_writable, explain_os_error
from tacit.privacy.mechanisms.memoisation import SECRET_BYTES
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Cap, Relation, Unit, UnitKind
from tacit.train.config import LedgerSettings, PrivacySettings
from tacit.train.config_file import check_epsilon
from tacit.train.evaluation.intervals import small_sample_factor
from tacit.train.evaluation.outcomes import LEAST_STANDARD_ERRORS, Outcomes
from tacit.train.examples import Examples
from tacit.train.job.label_flips import (
    LabelFlipRelease,
    LabelledRows,
    labels_changed,
    read_secret,
    write_secret,
)
from tacit.train.job.payment import Payment, charge_as_asked, label_payment
from tacit.train.job.plan import flip_key
from tacit.train.labels.mechanism import shares
from tacit.train.labels.noisy_targets import allocate_labels
from tacit.train.labels.randomizers import FlipLabels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.privacy.allocation import Allocation
    from tacit.train.models.saving import SavedModel
    from tacit.train.targets import Targets

RESPONSE = "randomized-response"
MADE_UP = "measured on flips of made-up labels: these figures are about nobody"
LABELS_ALONE = "the model reads sensitive features of these rows: what is promised here is for labels alone"


@dataclass(frozen=True, eq=False)
class LabelFlips:
    """Labels to be flipped, checked as far as public rows and epsilon allow; nothing is paid for yet."""

    noisy: LabelFlipRelease
    labelled: LabelledRows
    allocation: Allocation
    every: Examples
    ledger: LedgerSettings
    reads: Mapping[str, tuple[str, ...]]  # the sensitive columns that each model reads, by its place

    @property
    def examples(self) -> Examples:
        """The rows that the cap keeps, which are the ones that are measured on."""
        return self.every.subset(self.allocation.kept.astype(np.int64))

    @property
    def epsilon(self) -> expect.Number:
        assert self.noisy.privacy.epsilon is not None
        return self.noisy.privacy.epsilon

    def refuse_what_would_tell_nothing(self) -> None:
        """Before anything is paid for: no interval without two rows (or users), nor where even classes of half
        of the rows each, which stand out best, would not stand out from the flips.

        Where rows count singly and all flips have one law, no reports whatever would; by users, or with shares
        of different sizes, it is what to expect.
        """
        users = _users(self.examples)
        groups, what = (len(self.allocation), "rows") if users is None else (len(np.unique(users)), "users")
        if groups < 2:
            raise BadInput(f"expected at least two {what} for an interval, got {groups}; nothing was spent")
        flips = [
            (int(np.count_nonzero(rows)), float(RandomizedResponse.for_epsilon(each, 2).truth))
            for each, rows in shares(self.allocation, self.epsilon)
        ]
        error = even_classes_error(flips, groups)
        if LEAST_STANDARD_ERRORS * error >= 1 / 2:
            raise BadInput(
                f"expected flips that leave room for an interval, got {len(self.allocation):,} of them, whose "
                f"standard error in the share of positives is about {error:.3g}: take more rows, or a larger "
                "--epsilon; nothing was spent"
            )

    def refuse_sensitive(self, line: str) -> None:
        """Refuse models that read features which this line of the ledger protects."""
        for place, columns in self.reads.items():
            if columns:
                raise BadInput(
                    f"{place}: expected a model that reads public features alone, since line {line} protects "
                    f"the others, got one that reads {', '.join(columns)}: of these figures are exact, flips "
                    "or not; --labels true measures it for those who may see them"
                )

    def measured(self) -> MeasuredFlips:
        """Pay, flip, and commit; or read flips that were paid for before."""
        if self.ledger.path is None:
            return MeasuredFlips(self._outcomes(self._targets()), (MADE_UP,), "")
        payment, drawn_from, how_to_grant = _payment(self)
        try:
            with suggest_grant(how_to_grant):
                paid, key = payment.reserve(drawn_from), payment.keys[0]
        except ReservationTaken:
            raise labels_changed(self.noisy.flips.version) from None
        unit = self.noisy.privacy.unit
        notes = [f"measured on labels flipped at ε = {float(self.epsilon):g} per {unit}; ledger: {paid}"]
        notes += [LABELS_ALONE] if any(self.reads.values()) else []
        try:
            targets = self._targets()
            payment.commit()
        except (TacitError, OSError, MemoryError) as problem:
            words = explain_os_error(problem) if isinstance(problem, OSError) else str(problem)
            raise BadInput(
                f"{words} (what the flips cost stays reserved in the ledger as {key}; the same command takes "
                "it up again, at no further cost)"
            ) from None
        standing = f" (the flips are paid for in the ledger, as {key}: to measure on them again is free)"
        with add_ledger_standing(standing):
            return MeasuredFlips(self._outcomes(targets), tuple(notes), standing)

    def _targets(self) -> Targets:
        every, noisy = self.every, self.noisy
        return FlipLabels().targets(
            every.labels, every.key("row"), self.allocation, self.epsilon, key=noisy.flips, secret=noisy.secret
        )

    def _outcomes(self, targets: Targets) -> Outcomes:
        assert targets.keep is not None
        users = _users(self.examples)
        return Outcomes.of_flipped(targets.values, targets.keep.astype(np.float64), clusters=users)


@dataclass(frozen=True, eq=False)
class MeasuredFlips:
    """What the flips say, what that means for privacy, and, for an error that comes later, that they are paid
    for; the last two in words."""

    outcomes: Outcomes
    notes: tuple[str, ...]
    standing: str


def check_flips(args: argparse.Namespace, models: list[SavedModel], examples: Examples) -> LabelFlips:
    """Which labels would be flipped, how and for whom. Whatever can be refused is refused here."""
    if args.epsilon is None:
        raise BadInput("expected --epsilon for noisy labels, got none")
    ledger = _ledger(args, examples)
    with error_prefix("--unit"):
        unit = Unit(UnitKind(args.unit or "impression"))
    if unit.kind is UnitKind.IMPRESSION and args.cap is not None:
        raise BadInput("--cap: expected only with a unit of several rows, got unit impression")
    with error_prefix("--cap"):
        cap = Cap(1 if args.cap is None else args.cap)
    version = expect.whole("--version", args.version or 0, at_least=0)
    privacy = PrivacySettings("label-dp", unit, cap, check_epsilon("--epsilon", args.epsilon))
    columns = Columns.open(args.data)
    scope = ledger.scope or str(columns.manifest.get("log"))
    flips = flip_key(scope, columns, args.part, version=version)
    kept = None
    if ledger.secret is not None:
        check_writable("--secret", ledger.secret)
        kept = read_secret(ledger.secret)
    secret = kept or Entropy().bytes(SECRET_BYTES)
    noisy = LabelFlipRelease(privacy, RESPONSE, flips, secret, scope, ledger.secret)
    allocation = allocate_labels(
        examples, privacy.unit, cap, key=flips, secret=noisy.secret, now=int(time.time())
    )
    labelled = LabelledRows.of(examples, allocation)  # refused here if they are not 0 or 1
    places = [args.model, *([] if args.baseline is None else [args.baseline])]
    reads = {str(place): sensitive_columns_read(model) for place, model in zip(places, models, strict=True)}
    chosen = LabelFlips(noisy, labelled, allocation, examples, ledger, reads)
    if ledger.relation not in (None, Relation.REPLACE_LABEL):
        chosen.refuse_sensitive(f"{ledger.scope} ({privacy.unit}, {ledger.relation})")
    chosen.refuse_what_would_tell_nothing()
    return chosen


def even_classes_error(flips: Sequence[tuple[int, float]], groups: int) -> float:
    """The standard error of the share of positives where half of the labels are 1, for numbers of rows with the
    keep probability of each: the reports are fair coins then, and unflipping divides them by 2 keep - 1."""
    variance = sum(rows / (4 * (2 * keep - 1) ** 2) for rows, keep in flips)
    return small_sample_factor(groups) * math.sqrt(variance) / sum(rows for rows, _ in flips)


def _users(examples: Examples) -> NDArray[Any] | None:
    """Whose rows belong together, where anybody may know."""
    return examples.key("user") if "user" in examples.public_keys else None


def _payment(chosen: LabelFlips) -> tuple[Payment, str, str]:
    """What the flips cost, a digest of what they are drawn from, and the command that opens their line."""
    noisy, ledger = chosen.noisy, chosen.ledger
    assert ledger.secret is not None
    release = FlipLabels().release(chosen.allocation, chosen.epsilon)
    statement = PrivacyStatement.of(
        [release], unit=noisy.privacy.unit, relation=Relation.REPLACE_LABEL, delta=0
    )
    charge = statement.guarantee(sensitive_features=any(chosen.reads.values()))
    cost = charge_as_asked(charge, noisy.privacy)
    payment = label_payment(
        open_paying_ledger(ledger, cost, Asker("--ledger")), noisy, charge, chosen.every,
        relation=ledger.relation, refuse_sensitive=chosen.refuse_sensitive,
    )  # fmt: skip
    write_secret(ledger.secret, noisy.secret)
    drawn_from = noisy.refuse_changed(chosen.labelled, paid_as=payment.known_flips)
    return payment, drawn_from, grant_command(ledger, cost)


def _ledger(args: argparse.Namespace, examples: Examples) -> LedgerSettings:
    """All of it, or on made-up data nothing."""
    given = {name: getattr(args, name) for name in ("ledger", "scope", "secret")}
    if examples.synthetic and all(value is None for value in (*given.values(), args.relation)):
        return LedgerSettings()
    for name, value in given.items():
        if value is None:
            raise BadInput(f"expected --{name} to pay for noisy labels, got none")
    relation = None if args.relation is None else Relation(args.relation)
    return LedgerSettings(args.ledger, args.witness, args.scope, relation, None, args.secret)
