"""The agreement as a file that both parties hold: read, proposed, signed, amended, and told in plain words.

Terms are written in TOML, beside the names and public keys of the parties. What each step may release in all is
told without a look at any ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tacit.cleanroom.protocol.agreement import Agreement, AgreementStep, loosened_fields
from tacit.cleanroom.protocol.modes import Signer
from tacit.cleanroom.protocol.signatures import PrivateKey
from tacit.cleanroom.protocol.terms import Terms, terms_from_toml
from tacit.cleanroom.room.payment import possible_budgets
from tacit.config import error_prefix, parse_toml
from tacit.errors import BadInput, TacitError
from tacit.privacy.budget import Budget
from tacit.services.settings import check_readable

PossibleBudgets = tuple[Budget, Budget]
"""What may be released in all: if nothing has left under earlier terms, and at most."""


def read_agreement(key: str, path: Path) -> Agreement:
    """An agreement whose signatures hold; a proposal at its end may wait."""
    check_readable(key, path)
    try:
        agreement = Agreement.from_bytes(path.read_bytes())
        agreement.verify(proposal=True)
    except TacitError as refusal:
        raise BadInput(f"{key}: {path}: {refusal}") from None
    return agreement


def read_terms(path: Path, parties: Path, *, parties_needed: bool = False) -> Terms:
    """Terms as a TOML file says them (`terms_from_toml`); names and public keys that they lack come from the
    file `parties`, which is read if it is there, or in any case if it is needed."""
    text = _read_text(path)
    try:
        given = parse_toml(text.encode())
    except BadInput:
        given = {}  # said properly below
    if parties_needed or (parties.exists() and "platform_key" not in given):
        text = _read_text(parties) + text
    with error_prefix(str(path)):
        return terms_from_toml(text)


def _read_text(path: Path) -> str:
    check_readable("file", path)
    return path.read_bytes().decode(errors="replace")


def sign_waiting(agreement: Agreement, role: Signer, key: PrivateKey) -> Agreement:
    """With this party's signature on the step that waits for it."""
    if role not in agreement.waits_for:
        raise BadInput(f"expected an agreement that waits for the {role}'s signature, got one that does not")
    return agreement.sign(role, key)


def propose_terms(before: Agreement | None, terms: Terms, role: Signer, key: PrivateKey) -> Agreement:
    """With these terms, signed by one: first terms where nothing is in force yet, else an amendment."""
    if before is None or (len(before.steps) == 1 and before.waits_for):
        return Agreement.propose(terms).sign(role, key)
    return before.amend(terms, role, key)


@dataclass(frozen=True, eq=False)
class AgreementSummary:
    """The last step of an agreement beside the one before: what it changes, and what may be released in all."""

    agreement: Agreement

    @property
    def last(self) -> AgreementStep:
        return self.agreement.steps[-1]

    @property
    def before(self) -> Terms | None:
        """The terms that the last step changes; None of first terms."""
        return self.agreement.steps[-2].terms if len(self.agreement.steps) > 1 else None

    @cached_property
    def waits_for(self) -> tuple[Signer, ...]:
        return self.agreement.waits_for

    @cached_property
    def changed(self) -> list[str]:
        """The fields that differ."""
        if self.before is None:
            return []
        old = self.before.as_json()
        return [key for key, value in self.last.terms.as_json().items() if old[key] != value]

    @cached_property
    def looser(self) -> tuple[str, ...]:
        """The fields that allow more than before."""
        return () if self.before is None else loosened_fields(self.before, self.last.terms)

    @cached_property
    def totals(self) -> tuple[PossibleBudgets, PossibleBudgets]:
        """All that may be released, before the last step and with it."""
        steps = self.agreement.steps
        return possible_budgets(steps[:-1]), possible_budgets(steps)

    def as_json(self) -> dict[str, Any]:
        before, after = self.totals
        return {
            "step": self.last.serial,
            "in_force": not self.waits_for,
            "waits_for": [str(role) for role in self.waits_for],
            "changed": self.changed,
            "looser_in": list(self.looser),
            "total_before": _amounts(before[1]),  # at most: what has left is in the room's ledger, not here
            "total": _amounts(after[1]),
            "total_if_nothing_left": _amounts(after[0]),
            "terms": self.last.terms.as_json(),
            "digest": self.last.terms.digest,
            "statement": self.last.terms.statement().as_json(),
        }

    @property
    def change_words(self) -> str | None:
        """Who must sign the change, and why; None of first terms."""
        if self.looser:
            return f"Allows more than before in: {', '.join(self.looser)}. Only both together can do that."
        if self.before is not None:
            return "Allows no more than before in any field: one signature is enough."
        return None

    @property
    def total_words(self) -> str:
        """What may be released in all: fresh draws add to what has left, which only the room's ledger knows."""
        before, after = self.totals
        what = "All that may ever be released about one record's labels"
        when = "once it is signed" if self.waits_for else "with this step"
        if self.before is None:
            return f"{what}, {when}: {_total_words(after)}."
        if before == after:
            return f"{what} stays {_total_words(after)}."
        return f"{what}: {_total_words(before)} before; {when}, {_total_words(after)}."

    @property
    def state_words(self) -> str:
        if not self.waits_for:
            return "is in force"
        return f"waits for the signature of the {' and the '.join(self.waits_for)}"


def _total_words(total: PossibleBudgets) -> str:
    least, most = total
    if least == most:
        return str(most)
    return f"{least} if nothing has left under earlier terms, else at most {most}"


def _amounts(budget: Budget) -> dict[str, str]:
    return {"epsilon": str(budget.epsilon), "delta": str(budget.delta)}
