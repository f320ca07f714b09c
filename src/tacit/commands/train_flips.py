"""Which labels are flipped, for whom and under which name; and that they are still the same later on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tacit.errors import BadInput
from tacit.train.job.label_flips import keyed_token

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.commands.train_payment import Payment
    from tacit.privacy.allocation import Allocation
    from tacit.privacy.mechanisms.memoisation import FlipKey
    from tacit.train.config import LedgerSettings, PrivacySettings
    from tacit.train.examples import Examples


@dataclass(frozen=True, eq=False)
class Labelled:
    """The true labels of some rows, and which of them a cap keeps with which share of their unit's epsilon."""

    labels: NDArray[Any]
    records: NDArray[Any]
    allocation: Allocation
    groups: NDArray[Any] | None  # each row's unit; None where every row is its own
    examples: Examples

    @classmethod
    def of(cls, examples: Examples, allocation: Allocation) -> Labelled:
        from tacit.train.examples import group_by_unit

        groups = group_by_unit(examples, allocation.unit)
        return cls(examples.labels, examples.key("row"), allocation, groups, examples)


def labels_changed(version: int) -> BadInput:
    return BadInput(
        "labels.version: expected a higher one for labels that have changed since they were flipped, "
        f"or whose rows are of other people now, got {version}; a new version is a new release, and is paid for"
    )


@dataclass(frozen=True, eq=False)
class NoisyLabels:
    """Labels that are flipped once and read for ever: all that their law and their draws depend on."""

    privacy: PrivacySettings
    spelled: str
    flips: FlipKey
    secret: bytes

    def key(self, scope: str) -> str:
        """Their name in the ledger."""
        privacy, cap = self.privacy, self.privacy.cap
        assert privacy.epsilon is not None
        facts = [repr(privacy.unit), str(cap.impressions), cap.choice, cap.split]
        return self._named(f"{scope}/labels", *facts, str(Fraction(privacy.epsilon)), self.spelled)

    @property
    def attempt(self) -> str:
        """Their attempt in the ledger, known by the secret alone: with it, anybody makes the same flips."""
        return keyed_token(self.secret)

    def refuse_changed(self, payment: Payment, ledger: LedgerSettings, behind: Labelled) -> str:
        """Flips must be of the labels that they were drawn from, of the same rows of the same people, whichever
        ledger pays for them. What they are drawn from comes back as a digest, for the ledger.

        A row's flip depends on its place, its label, its law and the secret. Releases under other caps and
        budgets may share laws, so all of them are of one set of labels. In another order the same people would
        be flipped once more, so what stands in each row is looked at too: its keys, and what an encoder makes
        of its features.
        """
        from tacit.train.job.label_flips import FlipRegister

        assert ledger.scope is not None, "checked when the configuration was read"
        assert ledger.secret is not None, "checked when the configuration was read"
        register, key = FlipRegister(ledger.secret, self.secret), self.key(ledger.scope)
        paid = payment.drawn_once and any(payment.store.reservation(each) is not None for each in payment.keys)
        if paid and not register.knows(key):
            raise BadInput(
                f"ledger.secret: expected a register beside {ledger.secret} that knows the labels behind "
                f"{payment.keys[0]}, got none; put it back, or raise labels.version for a new release"
            )
        allocation = behind.allocation
        shares = [allocation.kept, allocation.divisor, *([] if behind.groups is None else [behind.groups])]
        truth, shared = register.digest(behind.records, behind.labels), register.digest(behind.records, *shares)
        keys, features = register.digests_of_rows(behind.examples)
        encoder = behind.examples.encoder_digest
        same = register.agrees(
            {
                self._named(f"{ledger.scope}/truth"): truth,
                self._named(f"{ledger.scope}/keys"): keys,
                self._named(f"{ledger.scope}/rows", encoder): features,
                key: shared,
            }
        )
        if not same:
            raise labels_changed(self.flips.version)
        return f"{truth}{shared}{keys}"

    def _named(self, kind: str, *facts: str) -> str:
        from tacit.train.job.label_flips import secret_name

        spelled = json.dumps([*self.flips.fields, *facts, secret_name(self.secret)])
        return f"{kind}/{hashlib.sha256(spelled.encode()).hexdigest()[:24]}"
