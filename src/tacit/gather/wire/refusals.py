"""Why a party does not accept what it was sent: one byte on the wire, a few words for people."""

from __future__ import annotations

from enum import IntEnum


class Refusal(IntEnum):
    """What became of a report or a message. Numbers are part of the wire format and never change."""

    ACCEPTED = 0
    MALFORMED = 1
    OVERSIZED = 2
    UNKNOWN_ROUND = 3
    TOO_EARLY = 4
    TOO_LATE = 5
    FORGED = 6
    DUPLICATE = 7
    REPLAYED = 8
    UNOPENABLE = 9
    OUT_OF_RANGE = 10
    CLOSED = 11
    CONFLICT = 12
    UNAUTHENTICATED = 13
    PROMISE_NOT_KEPT = 14

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    Refusal.ACCEPTED: "accepted",
    Refusal.MALFORMED: "not a message of the kind that was expected",
    Refusal.OVERSIZED: "longer than a good message can be",
    Refusal.UNKNOWN_ROUND: "no such round is known here",
    Refusal.TOO_EARLY: "the round is not open yet",
    Refusal.TOO_LATE: "the round takes no more reports",
    Refusal.FORGED: "the device's tag does not fit the report",
    Refusal.DUPLICATE: "the device has already reported in this round",
    Refusal.REPLAYED: "the report's id was used before",
    Refusal.UNOPENABLE: "the seal does not open with this key, for this round, report and party",
    Refusal.OUT_OF_RANGE: "the proof does not show that the counts are in range",
    Refusal.CLOSED: "the set of reports is already agreed on",
    Refusal.CONFLICT: "the same name came before with other content",
    Refusal.UNAUTHENTICATED: "the sender is not the party it should be",
    Refusal.PROMISE_NOT_KEPT: "what the run promised its devices would not be kept",
}
