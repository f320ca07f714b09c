"""Maps errors to HTTP problem documents (RFC 9457), and logs one line per error without a private value."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tacit.bill.protocol.encoding import BillVerdict
from tacit.deliver.campaigns.store import CampaignVerdict
from tacit.errors import (
    BillRefused,
    BudgetExceeded,
    CampaignRefused,
    NotYet,
    Refused,
    TacitError,
    TooFew,
    UnknownLine,
)
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.services.log import error_line
from tacit.services.signatures import WrongTime

LOG = logging.getLogger("tacit.services")


class TroubleLog:
    """The trouble of something that goes on by itself: a line when it begins or is about something else, and
    one, `over`, when it is over."""

    def __init__(self, over: str = "", level: int = logging.ERROR) -> None:
        self._over, self._level, self._said = over, level, ""

    def tell(self, trouble: str) -> None:
        """What it is now; empty: none."""
        if trouble and trouble != self._said:
            LOG.log(self._level, "%s", trouble)
        elif self._said and not trouble and self._over:
            LOG.info("%s", self._over)
        self._said = trouble


MEDIA = "application/problem+json"

STATUS = {
    MessageVerdict.MALFORMED: 400,
    MessageVerdict.OVERSIZED: 413,
    MessageVerdict.UNKNOWN_ROUND: 404,
    MessageVerdict.TOO_EARLY: 409,
    MessageVerdict.TOO_LATE: 410,
    MessageVerdict.FORGED: 403,
    MessageVerdict.DUPLICATE: 409,
    MessageVerdict.REPLAYED: 409,
    MessageVerdict.UNOPENABLE: 422,
    MessageVerdict.OUT_OF_RANGE: 422,
    MessageVerdict.CLOSED: 410,
    MessageVerdict.CONFLICT: 409,
    MessageVerdict.UNAUTHENTICATED: 401,
    MessageVerdict.PROMISE_NOT_KEPT: 409,
}

BILL_STATUS = {
    BillVerdict.ACCEPTED: 500,  # never a refusal
    BillVerdict.DUPLICATE: 409,
    BillVerdict.MALFORMED: 400,
    BillVerdict.OVERSIZED: 413,
    BillVerdict.UNKNOWN_MENU: 404,
    BillVerdict.UNKNOWN_CONTEXT: 404,
    BillVerdict.STALE_EPOCH: 409,
    BillVerdict.EXPIRED: 410,
    BillVerdict.FORGED: 403,
    BillVerdict.UNOPENABLE: 422,
    BillVerdict.WRONG_OPENING: 422,
    BillVerdict.NO_SUCH_ENTRY: 422,
    BillVerdict.CONFLICT: 409,
    BillVerdict.UNAUTHENTICATED: 401,
    BillVerdict.NOT_LISTED: 422,
    BillVerdict.OVER_BUDGET: 409,
    BillVerdict.NONE_LEFT: 409,
}
CAMPAIGN_STATUS = {
    CampaignVerdict.MALFORMED: 400,
    CampaignVerdict.UNKNOWN: 404,
    CampaignVerdict.CONFLICT: 409,
    CampaignVerdict.STALE: 412,
    CampaignVerdict.ENDED: 409,
    CampaignVerdict.TOO_MANY: 409,
    CampaignVerdict.UNAUTHENTICATED: 401,
    CampaignVerdict.FORBIDDEN: 403,
}
MOST_DETAIL = 400  # characters: what is told back of what was sent

BILL = "bill-"
"""What the names of billing's refusals begin with: some of gathering's are called the same."""

# Refused before the body was read: the connection ends with the answer, so that it never is.
UNREAD = frozenset({MessageVerdict.OVERSIZED, MessageVerdict.UNKNOWN_ROUND, MessageVerdict.UNAUTHENTICATED})


class ServiceBusy(TacitError):
    """More is waiting than may be held in memory, or the service is ending."""


class TooManyOffers(TacitError):
    """An address asked for more offers than it may in a minute; `seconds` until it may again."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        super().__init__(seconds)


class TooManyRequests(TacitError):
    """A key asked more often than it may, or an address came with too many keys that do not hold: `kind` says
    which; `seconds` until it may again."""

    def __init__(self, kind: str, seconds: int) -> None:
        self.kind, self.seconds = kind, seconds
        super().__init__(kind, seconds)


class NotGranted(TacitError):
    """A party's ledger does not grant what a round, or the whole run that it begins, costs.

    `epsilon` and `delta` are the limit that its line needs, as decimal numbers.
    """

    def __init__(self, party: str, scope: str, epsilon: str, delta: str) -> None:
        self.party, self.scope, self.epsilon, self.delta = party, scope, epsilon, delta
        super().__init__(
            f"expected the {party}'s ledger to grant scope {scope!r} at least epsilon {epsilon} and delta "
            f"{delta}, got less: a round that cannot be paid for is not opened"
        )

    def as_json(self) -> dict[str, str]:
        return {"party": self.party, "scope": self.scope, "epsilon": self.epsilon, "delta": self.delta}


class OtherPartyUnreachable(TacitError):
    """What was asked needs the other party, which does not answer now; its words say why."""


def refusal_name(refusal: MessageVerdict | BillVerdict) -> str:
    """The refusal as it is written in a problem: TOO_LATE is "too-late", and billing's FORGED "bill-forged"."""
    name = refusal.name.lower().replace("_", "-")
    return f"{BILL}{name}" if isinstance(refusal, BillVerdict) else name


PROBLEM_IN_SCOPE = "tacit.problem"
"""Where a request's scope says by which problem it was answered, for whoever counts."""


class ProblemResponse(Response):
    """A problem document, which tells the request's scope its kind when it is sent."""

    def __init__(self, kind: str, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(json.dumps(body), status, media_type=MEDIA)
        self.kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[PROBLEM_IN_SCOPE] = self.kind
        await super().__call__(scope, receive, send)


def problem_response(kind: str, status: int, title: str, **more: Any) -> Response:
    return ProblemResponse(kind, status, {"type": f"tacit:{kind}", "title": title, "status": status, **more})


def problem_from_error(error: Exception) -> Response:
    """The answer to what was refused, or went wrong; what nobody foresaw says nothing of itself."""
    match error:
        case NotGranted():
            return problem_response("not-granted", 403, str(error), **error.as_json())
        case WrongTime(now=now):
            answer = problem_response("wrong-time", 401, "the clock here says something else", now=now)
            answer.headers["connection"] = "close"  # its body was not read
            return answer
        case Refused(reason=reason):
            answer = problem_response(refusal_name(reason), STATUS[reason], reason.words)
            if reason in UNREAD:
                answer.headers["connection"] = "close"
            return answer
        case BillRefused(reason=reason, detail=detail):
            answer = problem_response(refusal_name(reason), BILL_STATUS[reason], reason.words, detail=detail)
            if reason is BillVerdict.OVERSIZED:
                answer.headers["connection"] = "close"
            return answer
        case CampaignRefused(reason=reason, detail=detail):
            kind = f"campaign-{reason}"
            answer = problem_response(kind, CAMPAIGN_STATUS[reason], reason.words, detail=detail[:MOST_DETAIL])
            if reason is CampaignVerdict.UNAUTHENTICATED:
                answer.headers["www-authenticate"] = "Bearer"
                answer.headers["connection"] = "close"  # its body was not read
            return answer
        case TooManyOffers(seconds=seconds):
            answer = problem_response("too-many-offers", 429, "too many offers for this address: come again")
            answer.headers["retry-after"] = str(seconds)
            answer.headers["connection"] = "close"  # its body was not read
            return answer
        case TooManyRequests(kind=kind, seconds=seconds):
            answer = problem_response(kind, 429, "more than may be asked in a minute: come again")
            answer.headers["retry-after"] = str(seconds)
            answer.headers["connection"] = "close"  # its body was not read
            return answer
        case NotYet():
            return problem_response("not-yet", 409, "there is no result yet: come again")
        case TooFew(count=count, smallest=smallest):
            return problem_response(
                "too-few",
                410,
                "too few reports were accepted: there will be no result",
                count=count,
                smallest=smallest,
            )
        case BudgetExceeded() | UnknownLine():
            LOG.error("%s", error_line(error))  # who runs this party has to grant more, or see why not
            return problem_response(
                "budget-exceeded", 403, "the ledger here does not grant what the round costs"
            )
        case ServiceBusy():
            answer = problem_response("busy", 503, "too much is waiting: come again")
            answer.headers["retry-after"] = "1"
            answer.headers["connection"] = "close"  # its body may not have been read
            return answer
        case OtherPartyUnreachable():
            return problem_response("other-unreachable", 502, str(error))
        case ClientDisconnect():  # nobody is there to read this
            return problem_response("gone", 400, "the body never came to its end")
        case HTTPException(status_code=status):
            return problem_response("http", status, error.detail)
        case _:
            LOG.error("%s", error_line(error))
            return problem_response("internal", 500, "something went wrong here")


async def handle_error(_request: Request, error: Exception) -> Response:
    return problem_from_error(error)


HANDLERS: dict[Any, Callable[[Request, Exception], Any]] = {
    TacitError: handle_error,
    HTTPException: handle_error,
}


class CatchAllMiddleware:
    """Answers what no handler foresaw, so that no traceback with values in it reaches a log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            if scope["type"] != "http":
                raise
            answer = problem_from_error(error)
            if not started:
                await answer(scope, receive, send)
