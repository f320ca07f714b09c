"""Reasons for which a party of the clean room refuses what it was sent, with a sentence for each."""

from __future__ import annotations

from tacit.expect import Choice


class Refusal(Choice):
    """A reason, on which no label has had an effect, as long as the table of labels stays the same.

    Whether it does is told by LABELS_CHANGED. Nothing changes by a refusal.
    """

    MALFORMED = "malformed"
    OVERSIZED = "oversized"
    NOT_FINITE = "not_finite"
    WRONG_SHAPE = "wrong_shape"
    REPEATED_RECORD = "repeated_record"
    TOO_SMALL_BATCH = "too_small_batch"
    UNKNOWN_TASK = "unknown_task"
    NOT_AGREED = "not_agreed"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    RECORD_EXHAUSTED = "record_exhausted"
    CONFLICT = "conflict"
    FOREIGN = "foreign"
    BUDGET = "budget"
    LABELS_CHANGED = "labels_changed"
    UNKNOWN_AGREEMENT = "unknown_agreement"
    NOT_SIGNED = "not_signed"

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    Refusal.MALFORMED: "not a message of the kind that was expected",
    Refusal.OVERSIZED: "larger than a good message can be",
    Refusal.NOT_FINITE: "a number is not finite, or too large to be added up safely",
    Refusal.WRONG_SHAPE: "the sizes do not fit what was announced",
    Refusal.REPEATED_RECORD: "a record comes twice in one batch",
    Refusal.TOO_SMALL_BATCH: "fewer records than the agreement allows in one batch",
    Refusal.UNKNOWN_TASK: "the agreement has no such task",
    Refusal.NOT_AGREED: "the agreement does not allow this",
    Refusal.EXPIRED: "the agreement has expired",
    Refusal.NOT_YET_VALID: "the agreement has not begun yet",
    # Which record, and how many: that would tell what others asked for.
    Refusal.RECORD_EXHAUSTED: "a record in the batch has no release left",
    Refusal.CONFLICT: "the same run and number came before with other content",
    Refusal.FOREIGN: "the sender is not the party that signed the agreement",
    Refusal.BUDGET: "the budget does not pay for this",
    Refusal.LABELS_CHANGED: "the labels are not those of this window and version",
    Refusal.UNKNOWN_AGREEMENT: "no agreement with these terms is in force here",
    Refusal.NOT_SIGNED: "a signature is missing or does not fit",
}
