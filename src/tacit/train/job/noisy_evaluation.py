"""Labels to evaluate on that are flipped once, paid for once, and measured on as often as one likes.

Figures over flips are free only as far as everything else that they are made of is public. A model's prediction
is exact about the features that it reads, so a model of sensitive features is measured only where nobody
promised to protect features: by bisection, some ten crafted models would find a row's sensitive value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput, ReservationTaken, TacitError
from tacit.files import explain_os_error
from tacit.privacy.allocation import Allocation
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Relation
from tacit.train.evaluation.intervals import small_sample_factor
from tacit.train.evaluation.measures import LEAST_STANDARD_ERRORS, Outcomes
from tacit.train.examples import Examples
from tacit.train.job.label_flips import LabelFlipRelease, LabelledRows, labels_changed, write_secret
from tacit.train.job.payment import TrainingLedger, charge_as_asked, label_payment
from tacit.train.labels.mechanism import shares
from tacit.train.labels.noisy_targets import allocate_labels
from tacit.train.labels.randomizers import FlipLabels
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
    reads: Mapping[str, tuple[str, ...]]  # the sensitive columns that each model reads, by its place
    relation: Relation | None = None  # of the line that pays, where it is not that of labels

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
                "epsilon; nothing was spent"
            )

    def refuse_sensitive(self, line: str) -> None:
        """Refuse models that read features which this line of the ledger protects."""
        for place, columns in self.reads.items():
            if columns:
                raise BadInput(
                    f"{place}: expected a model that reads public features alone, since line {line} protects "
                    f"the others, got one that reads {', '.join(columns)}: of these figures are exact, flips "
                    "or not; measure it with the true labels, for those who may see them"
                )

    @property
    def charge(self) -> Guarantee:
        """What they cost, as the accountant finds it."""
        release, unit = FlipLabels().release(self.allocation, self.epsilon), self.noisy.privacy.unit
        statement = PrivacyStatement.of([release], unit=unit, relation=Relation.REPLACE_LABEL, delta=0)
        return statement.guarantee(sensitive_features=any(self.reads.values()))

    @property
    def cost(self) -> Guarantee:
        """What the ledger is asked for."""
        return charge_as_asked(self.charge, self.noisy.privacy)

    def measured(self, ledger: TrainingLedger | None) -> MeasuredFlips:
        """Pay, flip, and commit; or read flips that were paid for before. Only made-up labels go unpaid."""
        if ledger is None:
            if not self.every.synthetic:
                raise BadInput("expected a ledger that pays for flips of people's labels, got none")
            return MeasuredFlips(self._outcomes(self._targets()), (MADE_UP,), "")
        payment = label_payment(
            ledger, self.noisy, self.charge, self.every,
            relation=self.relation, refuse_sensitive=self.refuse_sensitive,
        )  # fmt: skip
        assert self.noisy.secret_path is not None, "a secret that is paid for is kept"
        write_secret(self.noisy.secret_path, self.noisy.secret)
        drawn_from = self.noisy.refuse_changed(self.labelled, paid_as=payment.known_flips)
        try:
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


def plan_flips(
    examples: Examples,
    noisy: LabelFlipRelease,
    reads: Mapping[str, tuple[str, ...]],
    *,
    now: int | None,
    relation: Relation | None = None,
) -> LabelFlips:
    """Which labels would be flipped, how and for whom. Whatever can be refused without a ledger is refused
    here; `now`, in seconds, refuses time windows that are still open."""
    privacy = noisy.privacy
    allocation = allocate_labels(
        examples, privacy.unit, privacy.cap, key=noisy.flips, secret=noisy.secret, now=now
    )
    labelled = LabelledRows.of(examples, allocation)  # refused here if they are not 0 or 1
    chosen = LabelFlips(noisy, labelled, allocation, examples, reads, relation)
    if relation not in (None, Relation.REPLACE_LABEL):
        chosen.refuse_sensitive(f"{noisy.scope} ({privacy.unit}, {relation})")
    chosen.refuse_what_would_tell_nothing()
    return chosen


@contextmanager
def add_ledger_standing(standing: str) -> Iterator[None]:
    """A refusal from within also says how the ledger stands."""
    try:
        yield
    except BadInput as refusal:
        raise BadInput(f"{refusal}{standing}") from None


def even_classes_error(flips: Sequence[tuple[int, float]], groups: int) -> float:
    """The standard error of the share of positives where half of the labels are 1, for numbers of rows with the
    keep probability of each: the reports are fair coins then, and unflipping divides them by 2 keep - 1."""
    variance = sum(rows / (4 * (2 * keep - 1) ** 2) for rows, keep in flips)
    return small_sample_factor(groups) * math.sqrt(variance) / sum(rows for rows, _ in flips)


def _users(examples: Examples) -> NDArray[Any] | None:
    """Whose rows belong together, where anybody may know."""
    return examples.key("user") if "user" in examples.public_keys else None
