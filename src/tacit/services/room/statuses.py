"""Refusals as gRPC statuses, and back: a reason and its detail survive the wire; all else is general."""

from __future__ import annotations

import json

import grpc

from tacit.cleanroom.wire.refusals import Refusal
from tacit.errors import RoomError, RoomRefused, TacitError
from tacit.records import FAULTS, parse_record

# What is wrong with the message itself; every other refusal depends on what was agreed or already happened.
ABOUT_THE_MESSAGE = frozenset(
    {
        Refusal.MALFORMED,
        Refusal.OVERSIZED,
        Refusal.NOT_FINITE,
        Refusal.WRONG_SHAPE,
        Refusal.REPEATED_RECORD,
        Refusal.TOO_SMALL_BATCH,
    }
)
MOST_DETAIL = 1_000  # characters; statuses travel in headers, which are short

TRY_AGAIN = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED})
"""The room restarts, ends, or has no place free: the same call may come again."""


class Busy(TacitError):
    """More streams are open than may be; come again."""


class Stalled(TacitError):
    """A stream that nothing came on for too long, or that took too long as a whole."""


def status_of(error: BaseException) -> tuple[grpc.StatusCode, str]:
    """What the caller is told. What nobody foresaw says nothing of itself."""
    match error:
        case RoomRefused(reason=reason, detail=detail):
            code = grpc.StatusCode
            about = code.INVALID_ARGUMENT if reason in ABOUT_THE_MESSAGE else code.FAILED_PRECONDITION
            return about, json.dumps({"reason": str(reason), "detail": str(detail)[:MOST_DETAIL]})
        case Busy():
            return grpc.StatusCode.UNAVAILABLE, str(error)
        case Stalled():
            return grpc.StatusCode.DEADLINE_EXCEEDED, str(error)
        case _:
            return grpc.StatusCode.INTERNAL, "something went wrong in the room; its own log says what"


def error_of(code: grpc.StatusCode, details: str) -> RoomError:
    """The error that a status stands for, on the platform's side."""
    if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION):
        try:
            told = parse_record(details)
            return RoomRefused(Refusal(told["reason"]), str(told["detail"]))
        except FAULTS:  # not of our room
            return RoomError(f"the room refused, and did not say why in a known way ({code.name.lower()})")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return RoomRefused(Refusal.OVERSIZED)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return RoomError("expected a room that knows this method, got one that does not: do versions differ?")
    said = details.splitlines()[0] if details else "nothing more"
    return RoomError(f"the room did not answer ({code.name.lower().replace('_', ' ')}): {said}")
