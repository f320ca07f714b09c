"""The ad server's HTTP API: endpoints for access keys, in JSON, declared once with what OpenAPI says of them.

    api = AdsApi(gate, clock)
    routes = api.routes([
        ApiRoute("GET", "/ads/campaigns/{number}", "One campaign", answer_campaign,
                 parts={"number": NUMBER}, answers={200: CAMPAIGN}),
    ])
    api.description()                          # OpenAPI 3.1, of all routes that were made

A handler gets an `ApiCall` and runs in a thread, so that it may ask stores. What it raises becomes a problem
document: BadInput is 400 in its own words, CampaignRefused what its verdict says. Nobody without a key that
holds gets as far as having a body read.

Handlers have threads of their own, of which one advertiser's keys have half at most: whoever asks for what
takes long holds up no batch of reports, and nobody else's key.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import tacit
from tacit.deliver.campaigns.access import Access
from tacit.deliver.campaigns.store import Author, CampaignVerdict
from tacit.errors import BadInput, CampaignRefused
from tacit.files import parse_strict_json
from tacit.services.ads.access import AccessGate, counted_as
from tacit.services.endpoints import Clock, Endpoint, read_body
from tacit.services.problems import MEDIA, TooManyRequests, problem_from_error

JSON = "application/json"
BEARER = {"type": "http", "scheme": "bearer"}
MOST_BODY_BYTES = 2**20
PER_PAGE = 100
THREADS, PER_KEY, MOST_WAITING = 8, 4, 64  # handlers at work, those of one key, and what of it may wait
Schema = Mapping[str, Any]
"""JSON Schema, as OpenAPI 3.1 has it."""

TEXT: Schema = {"type": "string", "minLength": 1, "maxLength": 200}
NUMBER: Schema = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
PROBLEM: Schema = {
    "type": "object",
    "required": ["type", "title", "status"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
}


@dataclass(frozen=True)
class ApiCall:
    """A request that was let in.

    access  what its key may do
    body    what its JSON says; None where the route takes none
    path    the parts of its path, as text or, where their schema is of whole numbers, as numbers
    query   the parameters that the route knows and the request has, likewise
    headers those that the route knows and the request has, by their names in small letters
    """

    access: Access
    request: Request
    now: int
    body: Any = None
    path: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def author(self) -> Author:
        """As whom it changes something."""
        return Author(self.access.key_id, self.now, pays=self.access.role.of_one)


Answer = Callable[[ApiCall], Response]


@dataclass(frozen=True)
class ApiRoute:
    """One operation.

    answer      called in a thread
    body        the schema of what it takes; None: nothing
    answers     statuses of success, with the schema of what is answered; None: nothing
    headers     what it reads of a request's headers, by their names in small letters
    refusals    statuses of its own refusals, beyond those that every route has
    most_bytes  of a body
    media       of the answer; several where it depends
    """

    method: str
    path: str
    does: str
    answer: Answer
    body: Schema | None = None
    answers: Mapping[int, Schema | None] = field(default_factory=lambda: {200: {}})
    parts: Mapping[str, Schema] = field(default_factory=dict)
    query: Mapping[str, Schema] = field(default_factory=dict)
    headers: Mapping[str, Schema] = field(default_factory=dict)
    refusals: Sequence[int] = ()
    most_bytes: int = MOST_BODY_BYTES
    media: str | tuple[str, ...] = JSON


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, status, {"cache-control": "no-store", **(headers or {})}, JSON)


def page_answer(name: str, found: Sequence[Any], most: int, next_of: Callable[[Any], Any]) -> Response:
    """At most so many of what was found; where there is one more, with what `after` says for the next page."""
    shown = found[:most]
    following = next_of(shown[-1]) if len(found) > most else None
    return json_answer({name: [each.as_json() for each in shown], "next": following})


@dataclass(eq=False)
class _KeyTurns:
    """Requests of one key, or of an advertiser's: how many there are, and those that are at work."""

    waiting: int = 0
    at_work: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PER_KEY))


class AdsApi:
    """Makes routes of operations, and remembers what they are."""

    def __init__(self, gate: AccessGate, clock: Clock) -> None:
        self._gate, self._clock = gate, clock
        self._known: list[ApiRoute] = []
        self._described: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
        self._threads = ThreadPoolExecutor(THREADS, "api")
        self._turns: dict[str, _KeyTurns] = {}  # of keys that are asking now

    @property
    def operations(self) -> Sequence[ApiRoute]:
        """All that routes were made of."""
        return tuple(self._known)

    def describe(self, method: str, path: str, operation: Mapping[str, Any]) -> None:
        """Tell OpenAPI clients of an operation that needs no access key, and is answered elsewhere."""
        self._described[path][method.lower()] = operation

    def routes(self, operations: Sequence[ApiRoute]) -> list[Route]:
        """One route per path, for all its methods."""
        self._known += operations
        by_path: dict[str, list[ApiRoute]] = defaultdict(list)
        for each in operations:
            by_path[each.path].append(each)
        return [
            Route(path, self._endpoint(found), methods=[each.method for each in found])
            for path, found in by_path.items()
        ]

    def _endpoint(self, operations: Sequence[ApiRoute]) -> Endpoint:
        by_method = {each.method: each for each in operations}
        if "GET" in by_method:
            by_method["HEAD"] = by_method["GET"]

        async def endpoint(request: Request) -> Response:
            access = await self._gate.admit(request)
            operation = by_method[request.method]
            try:
                body = None
                if operation.body is not None:
                    given = await _read_given(request, operation)
                    self._gate.count_body(access, len(given))
                    body = parse_strict_json(given)
                known = [(name, text) for name, text in request.headers.items() if name in operation.headers]
                call = ApiCall(
                    access,
                    request,
                    self._clock(),
                    body,
                    _read_values(request.path_params.items(), operation.parts, CampaignVerdict.UNKNOWN),
                    _read_values(request.query_params.multi_items(), operation.query),
                    _read_values(known, operation.headers),
                )
                return await self._answer(operation, call)
            except BadInput as wrong:
                return problem_from_error(CampaignRefused(CampaignVerdict.MALFORMED, str(wrong)))
            except RecursionError:  # a nest that is too deep even to be shown
                return problem_from_error(CampaignRefused(CampaignVerdict.MALFORMED))

        return endpoint

    async def _answer(self, operation: ApiRoute, call: ApiCall) -> Response:
        name = counted_as(call.access)
        turns = self._turns.setdefault(name, _KeyTurns())
        if turns.waiting >= MOST_WAITING:
            raise TooManyRequests("too-many-requests", 1)
        turns.waiting += 1
        try:
            async with turns.at_work:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, operation.answer, call)
        finally:
            turns.waiting -= 1
            if not turns.waiting:
                self._turns.pop(name, None)

    def description(self) -> dict[str, Any]:
        """What OpenAPI clients read."""
        paths: dict[str, dict[str, Any]] = defaultdict(dict)
        for each in self._known:
            paths[each.path.replace(":path}", "}")][each.method.lower()] = _operation(each)
        return {
            "openapi": "3.1.0",
            "info": {"title": "tacit ad server", "version": tacit.__version__},
            "paths": {**paths, **self._described},
            "security": [{"key": []}],
            "components": {"securitySchemes": dict.fromkeys(("key", "exchange"), BEARER)},
        }


async def _read_given(request: Request, operation: ApiRoute) -> bytes:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != JSON:
        raise HTTPException(415, f"expected content-type {JSON}")
    return await read_body(request, operation.most_bytes)


def _read_values(
    found: Iterable[tuple[str, str]],
    schemas: Mapping[str, Schema],
    verdict: CampaignVerdict = CampaignVerdict.MALFORMED,
) -> dict[str, Any]:
    """Values by name, as their schemas say; what no schema names, or comes twice, is refused."""
    read: dict[str, Any] = {}
    for name, spelled in found:
        if name not in schemas or name in read:
            said = "no such parameter" if name not in schemas else "it once"
            raise CampaignRefused(verdict, f"{name[:60]}: expected {said}")
        read[name] = _read_value(name, spelled, schemas[name], verdict)
    return read


def _read_value(name: str, spelled: str, schema: Schema, verdict: CampaignVerdict) -> Any:
    if schema.get("type") != "integer":
        allowed, pattern = schema.get("enum"), schema.get("pattern")
        fits = schema.get("minLength", 0) <= len(spelled) <= schema.get("maxLength", MOST_BODY_BYTES)
        known = allowed is None or spelled in allowed
        alike = pattern is None or re.search(pattern, spelled) is not None
        if not (fits and known and alike and spelled.isprintable()):  # zeros are no text to a database
            raise CampaignRefused(verdict, f"{name}: expected another text")
        return spelled
    digits = spelled.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20 and str(int(spelled)) == spelled):
        raise CampaignRefused(verdict, f"{name}: expected a whole number")
    number = int(spelled)
    if not schema.get("minimum", number) <= number <= schema.get("maximum", number):
        raise CampaignRefused(verdict, f"{name}: expected {schema.get('minimum')} to {schema.get('maximum')}")
    return number


def _operation(route: ApiRoute) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": place, "required": place == "path", "schema": dict(schema)}
        for place, schemas in (("path", route.parts), ("query", route.query), ("header", route.headers))
        for name, schema in schemas.items()
    ]
    refused = {400, 401, 403, 404, 429, *route.refusals} | ({413, 415} if route.body is not None else set())
    problem = {"description": "refused", "content": {MEDIA: {"schema": dict(PROBLEM)}}}
    answers: dict[str, Any] = {str(status): problem for status in sorted(refused)}
    for status, schema in route.answers.items():
        answers[str(status)] = {"description": route.does}
        if schema is not None:
            medias = (route.media,) if isinstance(route.media, str) else route.media
            answers[str(status)]["content"] = {media: {"schema": dict(schema)} for media in medias}
    words = re.findall(r"\w+", route.path.replace(":path", ""))
    found: dict[str, Any] = {
        "operationId": "_".join([route.method.lower(), *words]),
        "summary": route.does,
        "parameters": parameters,
        "responses": answers,
    }
    if route.body is not None:
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": dict(route.body)}}}
    return found


async def answer_description(api: AdsApi, _request: Request) -> Response:
    """GET /openapi.json, for whoever asks: it tells what can be asked, and of nobody."""
    return json_answer(api.description(), headers={"access-control-allow-origin": "*"})


def description_route(api: AdsApi) -> Route:
    return Route("/openapi.json", partial(answer_description, api), methods=["GET"])
