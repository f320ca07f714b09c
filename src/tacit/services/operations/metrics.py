"""Figures of one app for Prometheus: requests, refusals, and whatever its parts count or look up.

A figure's labels are a route's template, a method, a status, the name of a refusal, a check or a store: never a
path as it was asked for, an address, or anything else of a device. Still, /metrics is not for
everybody. Read often enough, its counters tell when a quiet proxy was asked for something, and the ad server
must not learn when reports came: that is what the proxy shuffles away. So it is answered on this machine alone,
or to whoever has the secret that the settings name.

Each app has a registry of its own; nothing is shared between apps of one process.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import tacit
from tacit.errors import Refused
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.services.background import Reading
from tacit.services.connection_limits import is_loopback
from tacit.services.problems import PROBLEM_IN_SCOPE, problem_response

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"  # a path that no route has, a method that nobody knows


class PartyMetrics:
    """The figures of one app; its parts add theirs to `registry`."""

    def __init__(self, party: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Gauge("tacit_build_info", "Which party this is, and its version.", ["party", "version"],
              registry=self.registry).labels(party, tacit.__version__).set(1)  # fmt: skip
        self._requests = self.counter(
            "tacit_http_requests", "Requests that were answered.", "route", "method", "status"
        )
        self._seconds = Histogram(
            "tacit_http_request_seconds", "Seconds from a request's head to the end of its answer.", ["route"],
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        self._refusals = self.counter("tacit_refusals", "Requests that were refused, by reason.", "reason")
        self.failed_looks = self.counter("tacit_failed_looks", "Looks at a store for figures that failed.")
        self._children: dict[tuple[int, str, int], tuple[Any, Any]] = {}
        self._templates: dict[int, str] = {}

    def counter(self, name: str, words: str, *labels: str) -> Counter:
        """One more counter of this app; its name ends in _total when it is read."""
        return Counter(name, words, labels, registry=self.registry)

    def histogram(self, name: str, words: str, buckets: Iterable[float]) -> Histogram:
        return Histogram(name, words, buckets=tuple(buckets), registry=self.registry)

    def know_routes(self, routes: Iterable[BaseRoute]) -> None:
        """The templates by which requests are counted."""
        self._templates = {id(endpoint): path for endpoint, path in _walk(routes, "")}

    def count_request(self, scope: Scope, status: int, seconds: float) -> None:
        endpoint = id(scope.get("endpoint"))
        key = endpoint, scope["method"], status
        found = self._children.get(key)
        if found is None:  # as many as there are routes, methods and statuses
            route = self._templates.get(endpoint, OTHER)
            method = scope["method"] if scope["method"] in METHODS else OTHER
            found = self._requests.labels(route, method, str(status)), self._seconds.labels(route)
            if method != OTHER and route != OTHER:
                self._children[key] = found
        found[0].inc()
        found[1].observe(seconds)
        if problem := scope.get(PROBLEM_IN_SCOPE):
            self._refusals.labels(problem).inc()

    def text(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self.registry)


def _walk(routes: Iterable[BaseRoute], before: str) -> Iterator[tuple[object, str]]:
    for route in routes:
        path = before + getattr(route, "path", "")
        if inner := getattr(route, "routes", None):
            yield from _walk(inner, path)
        elif (endpoint := getattr(route, "endpoint", None)) is not None:
            yield endpoint, path


class MeasuringMiddleware:
    """Counts every request when its answer has ended."""

    def __init__(self, app: ASGIApp, metrics: PartyMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            self._metrics.count_request(scope, status, time.perf_counter() - began)


class ReadingsCollector:
    """The last readings, as Prometheus wants them."""

    def __init__(self) -> None:
        self.last: list[Reading] = []

    def describe(self) -> list[Metric]:
        return []  # names are those of the readings, which are not known yet

    def collect(self) -> Iterator[Metric]:
        families: dict[str, GaugeMetricFamily] = {}
        for each in self.last:
            family = families.get(each.name)
            if family is None:
                family = families[each.name] = GaugeMetricFamily(
                    each.name, each.words, labels=list(each.labels)
                )
            family.add_metric(list(each.labels.values()), each.value)
        yield from families.values()


class MetricsGate:
    """Who may read the figures: callers on this machine, where `local`, and whoever shows the secret."""

    def __init__(self, *, local: bool, token: bytes | None = None) -> None:
        self._local, self._token = local, token

    def check(self, request: Request) -> None:
        """Refused(UNAUTHENTICATED) unless the caller may."""
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if given and self._token is not None and kind.lower() == "bearer":
            if hmac.compare_digest(given.strip().encode(), self._token.hex().encode()):
                return
        elif self._local and not given and request.client is not None and is_loopback(request.client.host):
            return
        raise Refused(MessageVerdict.UNAUTHENTICATED)

    @property
    def is_open(self) -> bool:
        return self._local or self._token is not None


async def answer_metrics(metrics: PartyMetrics, gate: MetricsGate, request: Request) -> Response:
    """GET /metrics; where nobody may read it, there is nothing at this path."""
    if not gate.is_open:
        return problem_response("http", 404, "Not Found")
    gate.check(request)
    return Response(metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST})
