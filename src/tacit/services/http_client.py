"""HTTP clients of the parties and the operator: every request is signed, and every answer must be.

What fails on the way, or comes from somebody else, is a `LinkFailed`, an OSError: the caller does not know
whether the other side acted, and asks again later. What the other side itself refused is raised as it was.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tacit.entropy import Entropy
from tacit.errors import GatherError, NotYet, Refused, TacitError, TooFew
from tacit.expect import RECORD_FAULTS
from tacit.files import parse_json
from tacit.gather.protocol.encoding import Refusal
from tacit.gather.protocol.messages import RoundResult
from tacit.services.endpoints import MOST_MESSAGE_BYTES, Clock
from tacit.services.problems import NotGranted, refusal_name
from tacit.services.rounds import AnnouncedRound
from tacit.services.settings import check_url
from tacit.services.signatures import NONCE_BYTES, ExchangeKeys

MSGPACK = "application/msgpack"
MOST_TITLE = 300
REFUSALS = {refusal_name(each): each for each in Refusal}


class LinkFailed(ConnectionError):
    """No answer, or none that is known to come from the other party."""


class OtherPartyFailed(LinkFailed):
    """The other party answered, and says that it failed."""


class ClocksDiffer(LinkFailed):
    """The other party refuses to listen: its clock is `seconds` ahead of ours (or behind: negative)."""

    def __init__(self, exchange: ExchangeKeys, seconds: int) -> None:
        way = "ahead" if seconds > 0 else "behind"
        super().__init__(
            f"expected the clocks of {exchange.caller} and {exchange.called} to agree, got the "
            f"{exchange.called}'s {abs(seconds):,} s {way}"
        )


def open_client(trust: Path | None, timeout_seconds: float) -> httpx.Client:
    """A client that takes nobody's word but the named certificate's, or the system's authorities'."""
    context = ssl.create_default_context(cafile=None if trust is None else str(trust))
    # trust_env: no environment variable may lead these calls through somebody else.
    return httpx.Client(verify=context, timeout=timeout_seconds, trust_env=False)


@dataclass(frozen=True)
class HttpAnswer:
    """A response as it came: nothing in it was unpacked."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def fetch(client: httpx.Client, request: httpx.Request, most: int = MOST_MESSAGE_BYTES) -> HttpAnswer:
    """The whole answer, never more than `most` bytes of it; LinkFailed where there is none."""
    try:
        response = client.send(request, stream=True)
        try:
            body = bytearray()
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > most:
                    raise LinkFailed("expected a shorter answer")
        finally:
            response.close()
    except (httpx.HTTPError, httpx.StreamError, ssl.SSLError) as problem:
        raise LinkFailed(type(problem).__name__) from None
    return HttpAnswer(response.status_code, response.headers, bytes(body))


class SignedClient:
    """Signed requests to one party, whose answers are checked."""

    def __init__(
        self, client: httpx.Client, url: str, exchange: ExchangeKeys, *, entropy: Entropy, clock: Clock
    ) -> None:
        self._client, self._url, self._exchange = client, check_url("url", url), exchange
        self._entropy, self._clock = entropy, clock

    def post(self, path: str, body: bytes) -> bytes:
        """What the other party answered; what it refused is raised."""
        return self._called("POST", path, body)

    def get(self, path: str, accept: str = "application/json") -> bytes:
        return self._called("GET", path, b"", {"accept": accept})

    def _called(self, method: str, path: str, body: bytes, more: Mapping[str, str] | None = None) -> bytes:
        nonce = self._entropy.bytes(NONCE_BYTES)
        headers = self._exchange.request_headers(method, path, body, now=self._clock(), nonce=nonce)
        request = self._client.build_request(
            method, self._url + path, content=body, headers={**headers, **(more or {})}
        )
        answer = fetch(self._client, request)
        if not self._exchange.answers(nonce, answer.status, answer.body, answer.headers):
            raise LinkFailed(
                "expected a signed answer, got another: compare the secrets and the clocks of both parties"
            )
        if answer.status >= 500:
            raise OtherPartyFailed(f"the {self._exchange.called} answered: {_title(answer)}")
        if (theirs := _time_told(answer)) is not None:
            raise ClocksDiffer(self._exchange, theirs - self._clock())
        if answer.status >= 400:
            raise error_from_problem(answer.body)
        return answer.body


def _title(answer: HttpAnswer) -> str:
    """What a problem says in its title, as one short line."""
    try:
        title = str(parse_json(answer.body)["title"])
    except RECORD_FAULTS:
        title = f"status {answer.status}"
    return " ".join(title.split())[:MOST_TITLE]


def _time_told(answer: HttpAnswer) -> int | None:
    """The other party's time, where it refused ours."""
    if answer.status != 401:
        return None
    try:
        problem = parse_json(answer.body)
        return int(problem["now"]) if problem["type"] == "tacit:wrong-time" else None
    except RECORD_FAULTS:
        return None


def error_from_problem(body: bytes) -> TacitError:
    """The error that a problem document tells of."""
    try:
        problem: Any = parse_json(body)
        kind = str(problem["type"]).removeprefix("tacit:")
        if kind == "too-few":
            return TooFew(int(problem["count"]), int(problem["smallest"]))
        if kind == "not-granted":
            return NotGranted(*(str(problem[name]) for name in ("party", "scope", "epsilon", "delta")))
    except RECORD_FAULTS:
        return GatherError("expected a problem document from the other party, got another text")
    if kind == "not-yet":
        return NotYet("the other party has no answer yet")
    return Refused(REFUSALS[kind]) if kind in REFUSALS else GatherError(f"the other party refused: {kind[:40]}")


class HttpLink:
    """The proxy's way to the server: a `gather.proxy.party.ServerLink`."""

    def __init__(self, calls: SignedClient) -> None:
        self._calls = calls

    def job(self, body: bytes) -> bytes:
        return self._calls.post("/jobs", body)

    def agree(self, body: bytes) -> bytes:
        return self._calls.post("/agreements", body)

    def share(self, body: bytes) -> bytes:
        return self._calls.post("/shares", body)


class HttpRounds:
    """Opens rounds: the server's way to the proxy, and the operator's to the server."""

    def __init__(self, calls: SignedClient) -> None:
        self._calls = calls

    def open_round(self, announced: AnnouncedRound) -> None:
        """Open there when this returns; the same round again changes nothing."""
        self._calls.post("/rounds", announced.to_bytes())


class HttpOperator(HttpRounds):
    """The operator's way to the server: opens rounds, and reads what became of them."""

    def result(self, digest: bytes) -> RoundResult:
        """A round's result, signed by the server; NotYet, TooFew or Refused where there is none."""
        return RoundResult.from_bytes(self._calls.get(f"/rounds/{digest.hex()}/result", MSGPACK))

    def digest_of(self, task: str, level: int) -> bytes | None:
        """The digest of the round with this name, if the server has one."""
        told = self._calls.get("/rounds")
        try:
            rounds = parse_json(told)
            found = [each["digest"] for each in rounds if (each["task"], each["level"]) == (task, level)]
            return bytes.fromhex(found[0]) if found else None
        except RECORD_FAULTS:
            raise GatherError("expected a list of rounds from the server, got another text") from None
