"""Requests of the platform: small, canonical, each with a digest; and the link to a room that takes them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from tacit.cleanroom.protocol import encoding
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.layout import ParameterLayout
from tacit.cleanroom.protocol.losses import Loss
from tacit.errors import BadInput, RoomRefused
from tacit.expect import Choice

if TYPE_CHECKING:  # answers name the requests that they are for
    from tacit.cleanroom.protocol.answers import (
        BeginAnswer,
        LabelsAnswer,
        RoomDescription,
        StatisticAnswer,
        StepAnswer,
    )
    from tacit.cleanroom.protocol.audit_log import AuditEntry

MOST_ROWS = 2**31
MOST_CELLS = 2**24
MOST_INDICES = 1024
MOST_FEATURES = 2**16
LEAST_WEIGHT = 2.0**-20


class Purpose(Choice):
    """What a statistic of the labels is for."""

    STATISTIC = "statistic"  # the one release that a model is fitted to
    METRIC = "metric"  # positives by bin of the platform's own scores


@dataclass(frozen=True)
class _Request:
    """How every request is spelled, read and digested: by its fields and its kind."""

    KIND: ClassVar[str]

    def as_json(self) -> dict[str, Any]:
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    def to_bytes(self) -> bytes:
        return self._spell

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        told = encoding.read_message(data, (*(field.name for field in fields(cls)), "kind"))
        if told.pop("kind") != cls.KIND:
            raise RoomRefused(RoomRefusal.MALFORMED, f"expected a request of kind {cls.KIND}")
        return encoding.build_or_refuse(lambda: cls(**cls._values(told)))

    @classmethod
    def _values(cls, told: dict[str, Any]) -> dict[str, Any]:
        """What JSON says, as the fields want it."""
        return told

    @cached_property
    def _spell(self) -> bytes:
        return encoding.canonical_json({**self.as_json(), "kind": self.KIND})

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes, as hex."""
        return hashlib.sha256(self._spell).hexdigest()


@dataclass(frozen=True)
class StepRequest(_Request):
    """The sum over a batch of slope times derivative, towards one task's labels."""

    agreement: str  # hex digest of the terms in force
    run: str
    number: int  # of the step within the run
    task: str
    loss: Loss
    codec: str
    rows: int
    layout: ParameterLayout

    KIND = "step"

    def __post_init__(self) -> None:
        _check(self)
        encoding.check_whole("number", self.number, at_least=0)
        encoding.check_name("codec", self.codec)
        if not isinstance(self.loss, Loss) or not isinstance(self.layout, ParameterLayout):
            raise BadInput("expected loss as a Loss and layout as a ParameterLayout, got another kind")

    @classmethod
    def _values(cls, told: dict[str, Any]) -> dict[str, Any]:
        return {**told, "loss": Loss(told["loss"]), "layout": ParameterLayout.from_json(told["layout"])}


@dataclass(frozen=True)
class StatisticRequest(_Request):
    """Sums of the labels: by cell (each row is in `indices` of them), and times each of some features."""

    agreement: str
    run: str
    number: int
    task: str
    purpose: Purpose
    rows: int
    cells: int  # in all
    indices: int  # cells that a row falls into
    cell_weight: float
    features: int

    KIND = "statistic"

    def __post_init__(self) -> None:
        _check(self)
        encoding.check_whole("number", self.number, at_least=0)
        encoding.check_whole("cells", self.cells, at_least=0, at_most=MOST_CELLS)
        encoding.check_whole("indices", self.indices, at_least=0, at_most=MOST_INDICES)
        encoding.check_whole("features", self.features, at_least=0, at_most=MOST_FEATURES)
        object.__setattr__(
            self, "cell_weight", encoding.check_finite("cell_weight", self.cell_weight, at_least=0)
        )
        if self.cell_weight > 1 or (self.indices and self.cell_weight < LEAST_WEIGHT):
            raise BadInput("expected cell_weight within 2^-20..1, got another")
        object.__setattr__(self, "purpose", Purpose(self.purpose))
        if self.indices > self.cells:
            raise BadInput("expected no more indices than cells, got more")
        if self.indices + self.features == 0:  # no label would have a part in it
            raise BadInput("expected rows to fall into cells or to have features, got neither")
        if self.purpose is Purpose.METRIC and (self.indices, self.cell_weight, self.features) != (1, 1.0, 0):
            raise BadInput("expected a metric to have one index, cell_weight 1 and no features, got another")

    @classmethod
    def _values(cls, told: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(told["cell_weight"], float):  # 1 and 1.0 would be two spellings
            raise BadInput("expected cell_weight to be a float, got another kind")
        return told


@dataclass(frozen=True)
class LabelsRequest(_Request):
    """One task's flipped labels, for every record that is sent."""

    agreement: str
    run: str
    task: str
    rows: int

    KIND = "labels"

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class BeginRequest(_Request):
    """That a run begins, or goes on: for every record that is sent, `releases` are set aside for its steps."""

    agreement: str
    run: str
    training: str  # hex digest of all that decides what the run will send
    releases: int
    task: str
    rows: int

    KIND = "begin"

    def __post_init__(self) -> None:
        _check(self)
        encoding.check_digest("training", self.training)
        encoding.check_whole("releases", self.releases, at_least=1)


def _check(request: Any) -> None:
    encoding.check_digest("agreement", request.agreement)
    encoding.check_name("run", request.run)
    encoding.check_name("task", request.task)
    encoding.check_whole("rows", request.rows, at_least=1, at_most=MOST_ROWS)


def _plain(value: Any) -> Any:
    if isinstance(value, Choice):
        return value.value
    return value.as_json() if isinstance(value, ParameterLayout) else value


class RoomLink(Protocol):
    """What the platform may ask of a room, be it in the same process or behind a network.

    Every call may raise `RoomRefused`, after which nothing has changed in the room.

    Slabs can be iterated again and are then the very same bytes, so that a link may repeat a call whose answer
    was lost: the room counts a repeated call once.
    """

    def describe(self) -> RoomDescription: ...
    def step(self, request: StepRequest, slabs: Iterable[bytes]) -> StepAnswer: ...
    def statistic(self, request: StatisticRequest, slabs: Iterable[bytes]) -> StatisticAnswer: ...
    def labels(self, request: LabelsRequest, slabs: Iterable[bytes]) -> LabelsAnswer: ...
    def begin(self, request: BeginRequest, slabs: Iterable[bytes]) -> BeginAnswer: ...
    def exchange(self, points: bytes | None) -> bytes: ...
    def audit(self, after: int) -> list[AuditEntry]: ...
