"""A platform's run through a room: the model and the advertiser's rows, their names, and training by mode.

Records are named to the room by keyed tokens, or by masked points after a private intersection. What a run asks
of the room and what it saves depends on the agreement's mode; what it would cost is estimated without the room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.cleanroom.model.examples import ConversionExamples, advertiser_key, examples_from_log, has_ids
from tacit.cleanroom.model.learning import predict
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.platform import metrics
from tacit.cleanroom.platform.cost_estimate import (
    CostEstimate,
    estimate_labels,
    estimate_statistic,
    estimate_training,
    sample_cost,
)
from tacit.cleanroom.platform.metrics import RoomMetrics
from tacit.cleanroom.platform.released_labels import train_on_released
from tacit.cleanroom.platform.statistic import DIRECTIONS, FieldCells, field_values, fit_statistic
from tacit.cleanroom.platform.steps import AdapterPlan
from tacit.cleanroom.platform.training import TrainingWatch, train_adapter
from tacit.cleanroom.protocol.answers import RemainingBudget
from tacit.cleanroom.protocol.modes import Join, Mode
from tacit.cleanroom.protocol.requests import RoomLink
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.protocol.tokens import POINT_BYTES, PointMask, answer_points, token_key, tokens
from tacit.config import error_prefix
from tacit.data.columns import Columns
from tacit.errors import BadInput, RoomError
from tacit.files import hold_lock
from tacit.privacy.statement import PrivacyStatement
from tacit.services.room.remote_room import (
    RemoteRoom,
    check_audit_log,
    check_description,
    open_link,
    terms_in_force,
)
from tacit.services.room.settings import PlatformSettings
from tacit.train.evaluation.intervals import MeasuredValue


def record_names(records: NDArray[np.uint64], settings: PlatformSettings, terms: Terms) -> NDArray[np.uint8]:
    """(n, 16) tokens, or (n, 32) points."""
    named = tokens(records, token_key(settings.token_secret, terms.name))
    if terms.join is Join.TOKENS:
        return named
    return _mask(settings).mask([each.tobytes() for each in named])


def exchange_points(link: RoomLink, settings: PlatformSettings, terms: Terms) -> None:
    """Mask the room's points, where records are joined so. The same answer each time, of which one counts."""
    if terms.join is Join.TOKENS:
        return
    assert terms.most_ids is not None, "it goes with this way of joining"
    points = link.exchange(None)
    if len(points) != terms.most_ids * POINT_BYTES:
        raise RoomError(f"expected {terms.most_ids} points of the room, got {len(points)} bytes")
    theirs = np.frombuffer(points, np.uint8).reshape(-1, POINT_BYTES)
    link.exchange(answer_points(_mask(settings), theirs, terms.most_ids).tobytes())


def _mask(settings: PlatformSettings) -> PointMask:
    if settings.mask is None:
        raise BadInput(
            "secrets.mask: expected a file, which an agreement with join = psi needs, got no such key"
        )
    return PointMask(settings.mask)


TRAIN, TEST = "train", "test"


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """All that a run needs but the room."""

    model: ConversionModel
    plan: AdapterPlan
    terms: Terms
    examples: dict[str, ConversionExamples]  # of the advertiser, by part of the log
    tokens: dict[str, NDArray[np.uint8]]


def prepare_run(settings: PlatformSettings) -> PreparedRun:
    """Rows of the advertiser, the model with its adapter, and what to do."""
    terms = terms_in_force(settings)
    columns = Columns.open(settings.columns)
    parts, advertiser = columns.parts(), advertiser_key(settings.advertiser)
    examples = {
        part: (of_all := examples_from_log(columns, parts[part])).select(of_all.advertiser == advertiser)
        for part in (TRAIN, TEST)
        if part in parts
    }
    if not len(examples[TRAIN]):
        raise BadInput(
            f"data.advertiser: expected an advertiser with rows to train on, got {settings.advertiser!r}"
        )
    model = ConversionModel.load(settings.base)
    plan = _plan(settings.plan, terms, len(examples[TRAIN]))
    with error_prefix("model"):
        values = examples[TRAIN] if tunes_embeddings(settings, terms, examples[TRAIN]) else None
        model.add_adapter(
            settings.adapter, advertiser, settings.rank, seed=plan.seed, tasks=(plan.task,), values=values
        )
    named = {part: record_names(each.records, settings, terms) for part, each in examples.items()}
    return PreparedRun(model, plan, terms, examples, named)


def tunes_embeddings(settings: PlatformSettings, terms: Terms, examples: ConversionExamples) -> bool:
    """As the settings say; else where an adapter trains on a log with ids. A statistic has a cell for each
    value anyway, and directions of embeddings added nothing to those of layers."""
    if settings.embeddings is not None:
        return settings.embeddings
    return settings.rank is None and terms.mode is not Mode.STATISTIC and has_ids(examples)


def _plan(given: Mapping[str, Any], terms: Terms, rows: int) -> AdapterPlan:
    """What is refused is blamed on the key that is refused by itself, where there is one."""
    defaults = {each.name: each.default for each in fields(AdapterPlan)}
    for key, value in given.items():
        if key not in defaults:
            raise BadInput(expect.unknown_key(f"plan.{key}", key, defaults))
        if isinstance(value, str) and not isinstance(defaults[key], str):
            raise BadInput(f"plan.{key}: expected a value without quotes, got {value!r}")
    refusal = _refusal(given, terms, rows)
    if refusal is None:
        return AdapterPlan.for_terms(terms, **given)
    if _refusal({}, terms, rows) is None:
        for key, value in given.items():
            if (alone := _refusal({key: value}, terms, rows)) is not None:
                raise BadInput(f"plan.{key}: {alone}")
    raise BadInput(f"plan: {refusal}")


def _refusal(given: Mapping[str, Any], terms: Terms, rows: int) -> BadInput | None:
    try:
        plan = AdapterPlan.for_terms(terms, **given)
        if terms.mode in (Mode.AGGREGATE, Mode.NOISED):
            plan.refuse_unless_agreed(terms, rows)
    except BadInput as refusal:
        return refusal
    return None


@dataclass(frozen=True)
class RunOutcome:
    """What came of a run. Metrics are there only where they cost nothing: over labels that are flipped."""

    mode: Mode
    steps: int
    examples: int
    bytes_sent: int
    bytes_received: int
    statement: PrivacyStatement
    before: RoomMetrics | None
    after: RoomMetrics | None
    positives: MeasuredValue | None  # that the room tells of, among the rows; None where telling would cost

    def as_json(self) -> dict[str, Any]:
        return {
            "mode": str(self.mode),
            "steps": self.steps,
            "examples": self.examples,
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "before": self.before and self.before.as_json(),
            "after": self.after and self.after.as_json(),
            "positives": self.positives and self.positives.as_json(),
            "statement": self.statement.as_json(),
        }


@dataclass(frozen=True)
class CheckedRun:
    """A run that ended, what it left of the budget, and the room's audit log, checked against all receipts."""

    run: str
    adapter: Path
    outcome: RunOutcome
    remaining: RemainingBudget
    audit: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "adapter": str(self.adapter),
            **self.outcome.as_json(),
            "epsilon_left": float(self.remaining.epsilon_left),
            "audit": self.audit,
        }


def train_through_room(
    ready: PreparedRun,
    settings: PlatformSettings,
    watch: TrainingWatch,
    waiting: Callable[[str], None] = lambda _: None,
) -> CheckedRun:
    """The whole run: the room is asked for its terms, records are joined, the adapter trained and saved, and
    the room's log read. One run at a time uses `run.folder`; `waiting` hears why a room is not reached yet."""
    taken = f"expected a folder that no other run is using, got {settings.folder}: wait for it, or name another"
    with hold_lock(settings.folder / ".running", "run.folder", taken, make_folder=True):
        with open_link(settings, ready.terms, waiting, patience=settings.patience.at_first) as link:
            check_description(link, ready.terms)
        with open_link(settings, ready.terms, waiting) as link:
            exchange_points(link, settings, ready.terms)
            outcome = train(ready, link, settings, watch)
            left = check_description(link, ready.terms).remaining
            audit = check_audit_log(link, settings)
    return CheckedRun(settings.run, settings.out, outcome, left, audit)


def train(ready: PreparedRun, link: RemoteRoom, settings: PlatformSettings, watch: TrainingWatch) -> RunOutcome:
    """Train, and save what came of it at `model.out`."""
    model, adapter, plan = ready.model, settings.adapter, ready.plan
    examples, tokens = ready.examples[TRAIN], ready.tokens[TRAIN]
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    start = model.adapter_values(adapter).copy()
    logits: Callable[[], NDArray[np.floating]] = lambda: predict(model, ready.examples[TEST], plan.task)  # noqa: E731
    positives: MeasuredValue | None
    measured = _TestMetrics(ready, link, settings.run)
    before = measured(logits, 0)
    mode = ready.terms.mode
    if mode is Mode.STATISTIC:
        fitted = fit_statistic(
            model,
            adapter,
            examples,
            tokens,
            link,
            task=plan.task,
            run=settings.run,
            least_share=plan.least_share,
        )
        fitted.head.save(settings.out)
        positives = fitted.positives
        sent, received, statement, steps, seen = (
            fitted.bytes_sent, fitted.bytes_received, fitted.statement, 1, len(examples),
        )  # fmt: skip
    elif mode is Mode.RELEASE:
        model.set_adapter_values(adapter, start)
        released = train_on_released(model, adapter, examples, tokens, link, plan, run=settings.run)
        positives = released.positives
        sent, received, statement, steps, seen = (
            released.bytes_sent, released.bytes_received, released.statement, 1, len(examples),
        )  # fmt: skip
        model.save_adapter(adapter, settings.out, statement=statement.as_json())
    else:
        checkpoint = settings.folder / f"{settings.run}.checkpoint"
        trained = train_adapter(
            model,
            adapter,
            examples,
            tokens,
            link,
            plan,
            run=settings.run,
            checkpoint=checkpoint,
            progress=watch,
        )
        positives = trained.positives
        sent, received, statement, steps, seen = (
            trained.bytes_sent, trained.bytes_received, trained.statement, trained.steps, trained.examples,
        )  # fmt: skip
        model.save_adapter(adapter, settings.out, statement=statement.as_json())
    after = None if mode is Mode.STATISTIC else measured(logits, 1)
    return RunOutcome(mode, steps, seen, sent, received, statement, before, after, positives)


class _TestMetrics:
    """How well scores do on rows that were not trained on, asked of the room where that costs nothing."""

    def __init__(self, ready: PreparedRun, link: RemoteRoom, run: str) -> None:
        self._ready, self._link, self._run = ready, link, run
        enough = TEST in ready.examples and len(ready.examples[TEST]) >= ready.terms.smallest_batch
        self._free = enough and ready.terms.metrics and ready.terms.mode.flips

    def __call__(self, logits: Callable[[], NDArray[np.floating]], number: int) -> RoomMetrics | None:
        if not self._free:
            return None
        ready = self._ready
        return metrics.ask_metrics(
            logits(),
            ready.tokens[TEST],
            self._link,
            ready.terms,
            task=ready.plan.task,
            run=f"{self._run} measured",
            number=number,
        )


def estimate_cost(ready: PreparedRun, settings: PlatformSettings) -> CostEstimate:
    """What the run would cost, without asking the room for anything."""
    terms, examples = ready.terms, ready.examples[TRAIN]
    width = ready.tokens[TRAIN].shape[1]
    if terms.mode is Mode.RELEASE:
        return estimate_labels(terms, len(examples), token_bytes=width)
    if terms.mode is Mode.STATISTIC:
        cells = FieldCells.of(field_values(examples))
        return estimate_statistic(
            terms,
            len(examples),
            cells=cells.count,
            indices=len(cells.values) + 1,  # and the bias
            features=DIRECTIONS,
            token_bytes=width,
        )
    sampled = sample_cost(ready.model, settings.adapter, examples, ready.plan, terms, token_bytes=width)
    layout = ready.model.adapter_layout(settings.adapter)
    return estimate_training(layout, ready.plan, terms, len(examples), sampled=sampled, token_bytes=width)
