"""HTTP clients of the parties, the operator and the devices.

Between parties, and from the operator, every request is signed, and every answer must be. What fails on the
way, or comes from somebody else, is a `LinkFailed`, an OSError: the caller does not know whether the other side
acted, and asks again later. What the other side itself refused is raised as it was.

A device fetches the open rounds, and hands in one upload per round, until it has arrived:

    uploads = HttpUploads(client, "https://proxy.example", reporter, parties, entropy=entropy, sleep=time.sleep)
    for announced in uploads.rounds():
        uploads.report(announced.round, answers)

It knows both parties' public keys from the start and uses no round with others: a proxy that could name the
server's key would open both halves of a report. The URL must be https, except on the device's own machine:
reports are sealed, but anybody on the network would see who reports, and could withhold rounds or reports.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.bill.protocol.encoding import BillVerdict
from tacit.display import brief, brief_repr
from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput, BillRefused, GatherError, NotYet, Refused, TacitError, TooFew
from tacit.expect import RECORD_FAULTS
from tacit.files import parse_json
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.messages import RoundResult
from tacit.gather.protocol.rounds import Round
from tacit.gather.protocol.uploads import Upload
from tacit.services import rounds
from tacit.services.endpoints import MOST_MESSAGE_BYTES, Clock
from tacit.services.problems import NotGranted, refusal_name
from tacit.services.rounds import AnnouncedRound
from tacit.services.settings import check_url
from tacit.services.signatures import NONCE_BYTES, ExchangeKeys

if TYPE_CHECKING:
    from tacit.gather.client.reporter import Reporter

MSGPACK = "application/msgpack"
MOST_TITLE = 300
REFUSALS = {refusal_name(each): each for each in MessageVerdict}
BILL_REFUSALS = {refusal_name(each): each for each in BillVerdict}


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
        return self._call("POST", path, body)

    def get(self, path: str, accept: str = "application/json") -> bytes:
        return self._call("GET", path, b"", {"accept": accept})

    def get_public(self, path: str, most: int) -> bytes:
        """What the other party tells everybody, unsigned: whoever reads it must be able to check it."""
        answer = fetch(self._client, self._client.build_request("GET", self._url + path), most)
        if answer.status >= 500:
            raise OtherPartyFailed(f"the {self._exchange.called} answered: {_title(answer)}")
        if answer.status != 200:
            raise error_from_problem(answer.body)
        return answer.body

    def _call(self, method: str, path: str, body: bytes, more: Mapping[str, str] | None = None) -> bytes:
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
    return _one_line(title)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MOST_TITLE]


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
        if kind in BILL_REFUSALS:
            return BillRefused(BILL_REFUSALS[kind], _one_line(str(problem.get("detail", ""))))
    except RECORD_FAULTS:
        return GatherError("expected a problem document from the other party, got another text")
    if kind == "not-yet":
        return NotYet("the other party has no answer yet")
    return Refused(REFUSALS[kind]) if kind in REFUSALS else GatherError(f"the other party refused: {kind[:40]}")


class HttpLink:
    """The proxy's way to the server: a `gather.proxy.party.ServerLink`."""

    def __init__(self, calls: SignedClient) -> None:
        self._calls = calls

    def __repr__(self) -> str:
        return brief(self)

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

    def ask_link(self) -> None:
        """Whether the proxy answers the server; OSError where it does not, or the clocks differ."""
        self._calls.get("/link")


class HttpOperator(HttpRounds):
    """The operator's way to the server: opens rounds, and reads what became of them."""

    def __repr__(self) -> str:
        return brief(self)

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


LONGEST_PAUSE_SECONDS = 60.0
COME_AGAIN = frozenset({408, 425, 429})


@dataclass(frozen=True)
class PublicKeys:
    """Whom a device seals to: told with the app, never by the network."""

    proxy: bytes
    server: bytes

    __repr__ = brief_repr


class PatientCaller:
    """A device's calls to one party. Each is tried `attempts` times at most, later and later."""

    def __init__(
        self,
        client: httpx.Client,
        url: str,
        *,
        entropy: Entropy | Simulation,
        sleep: Callable[[float], None],
        attempts: int,
        first_pause_seconds: float,
    ) -> None:
        self._client, self._url, self._entropy, self._sleep = client, check_url("url", url), entropy, sleep
        self._attempts, self._first_pause = attempts, first_pause_seconds

    def ask(self, method: str, path: str, body: bytes = b"") -> HttpAnswer:
        """The answer, which is none of those that say to come again; LinkFailed where there never was one."""
        pause = self._first_pause
        for attempt in range(1, self._attempts + 1):
            try:
                request = self._client.build_request(method, self._url + path, content=body)
                answer = fetch(self._client, request)
            except LinkFailed:
                if attempt == self._attempts:
                    raise
            else:
                if answer.status < 500 and answer.status not in COME_AGAIN:
                    return answer
            if attempt < self._attempts:
                # Somewhere in the pause's second half: devices that failed together do not return together.
                self._sleep(pause * (0.5 + self._entropy.uniform_below(1 << 16) / (1 << 17)))
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        raise LinkFailed(f"expected an answer from the proxy, got failures {self._attempts} times")


class HttpUploads:
    """One device's calls to the proxy. Each is tried `attempts` times at most, later and later."""

    def __init__(
        self,
        client: httpx.Client,
        url: str,
        reporter: Reporter,
        keys: PublicKeys,
        *,
        entropy: Entropy | Simulation,
        sleep: Callable[[float], None],
        attempts: int = 8,
        first_pause_seconds: float = 0.25,
    ) -> None:
        self._url, self._reporter, self._keys = check_url("url", url), reporter, keys
        self._caller = PatientCaller(
            client, self._url, entropy=entropy, sleep=sleep, attempts=attempts,
            first_pause_seconds=first_pause_seconds,
        )  # fmt: skip

    def __repr__(self) -> str:
        return brief(self, url=expect.without_passwords(self._url))

    def rounds(self) -> list[AnnouncedRound]:
        """The rounds that take reports now and are sealed to the parties that this device knows."""
        answer = self._ask("GET", "/rounds", b"")
        if answer.status != 200:
            raise error_from_problem(answer.body)
        return [each for each in rounds.unpack_rounds(answer.body) if self._is_ours(each.round)]

    def report(self, round: Round, values: NDArray[np.int64]) -> None:
        """Hand in this device's one report for the round; Refused says why it was not accepted.

        The upload is made once and kept before it is sent, so that asking again, also after the device was off,
        sends the very same bytes.
        """
        if not self._is_ours(round):
            raise BadInput("expected a round that is sealed to the parties this device knows, got another")
        body = self._reporter.upload(round, values)
        report_id = Upload.from_bytes(body).report_id
        answer = self._ask("PUT", f"/rounds/{round.digest.hex()}/reports/{report_id.hex()}", body)
        if answer.status not in (200, 201):
            raise error_from_problem(answer.body)

    def _is_ours(self, round: Round) -> bool:
        return (round.proxy_key, round.server_key) == (self._keys.proxy, self._keys.server)

    def _ask(self, method: str, path: str, body: bytes) -> HttpAnswer:
        return self._caller.ask(method, path, body)
