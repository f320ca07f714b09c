"""A platform's run, by the mode of its agreement: what it asks of the room, and what it saves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.model.learning import predict
from tacit.cleanroom.platform import measuring
from tacit.cleanroom.platform.estimate import Estimate, estimate, estimate_labels, estimate_statistic, sample
from tacit.cleanroom.platform.features import DIRECTIONS, FieldCells, fields_of
from tacit.cleanroom.platform.labels import train_on_released
from tacit.cleanroom.platform.metrics import Metrics
from tacit.cleanroom.platform.statistic import fit_statistic
from tacit.cleanroom.platform.training import Progress, train_adapter
from tacit.cleanroom.wire.agreement import Mode
from tacit.privacy.statement import PrivacyStatement
from tacit.services.room.calling import RemoteRoom
from tacit.services.room.platform import TEST, TRAIN, Ready
from tacit.services.room.settings import PlatformSettings

Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Outcome:
    """What came of a run. Metrics are there only where they cost nothing: over labels that are flipped."""

    mode: Mode
    steps: int
    examples: int
    bytes_sent: int
    bytes_received: int
    statement: PrivacyStatement
    before: Metrics | None
    after: Metrics | None

    def as_json(self) -> dict[str, Any]:
        return {
            "mode": str(self.mode),
            "steps": self.steps,
            "examples": self.examples,
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "before": self.before and self.before.as_json(),
            "after": self.after and self.after.as_json(),
            "statement": self.statement.as_json(),
        }


def train(ready: Ready, link: RemoteRoom, settings: PlatformSettings, watch: Watch) -> Outcome:
    """Train, and save what came of it at `model.out`."""
    model, adapter, plan = ready.model, settings.adapter, ready.plan
    examples, tokens = ready.examples[TRAIN], ready.tokens[TRAIN]
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    start = model.adapter_values(adapter).copy()
    logits: Callable[[], NDArray[np.floating]] = lambda: predict(model, ready.examples[TEST], plan.task)  # noqa: E731
    measured = _Measuring(ready, link, settings.run)
    before = measured(logits, 0)
    mode = ready.terms.mode
    if mode is Mode.STATISTIC:
        fitted = fit_statistic(model, adapter, examples, tokens, link, task=plan.task, run=settings.run)
        fitted.head.save(settings.out)
        sent, received, statement, steps, seen = (
            fitted.bytes_sent, fitted.bytes_received, fitted.statement, 1, len(examples),
        )  # fmt: skip
    elif mode is Mode.RELEASE:
        model.set_adapter_values(adapter, start)
        released = train_on_released(model, adapter, examples, tokens, link, plan, run=settings.run)
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
        sent, received, statement, steps, seen = (
            trained.bytes_sent, trained.bytes_received, trained.statement, trained.steps, trained.examples,
        )  # fmt: skip
        model.save_adapter(adapter, settings.out, statement=statement.as_json())
    after = None if mode is Mode.STATISTIC else measured(logits, 1)
    return Outcome(mode, steps, seen, sent, received, statement, before, after)


class _Measuring:
    """How well scores do on rows that were not trained on, asked of the room where that costs nothing."""

    def __init__(self, ready: Ready, link: RemoteRoom, run: str) -> None:
        self._ready, self._link, self._run = ready, link, run
        enough = TEST in ready.examples and len(ready.examples[TEST]) >= ready.terms.smallest_batch
        self._free = enough and ready.terms.metrics and ready.terms.mode.flips

    def __call__(self, logits: Callable[[], NDArray[np.floating]], number: int) -> Metrics | None:
        if not self._free:
            return None
        ready = self._ready
        return measuring.ask(
            logits(),
            ready.tokens[TEST],
            self._link,
            ready.terms,
            task=ready.plan.task,
            run=f"{self._run} measured",
            number=number,
        )


def cost(ready: Ready, settings: PlatformSettings) -> Estimate:
    """What the run would cost, without asking the room for anything."""
    terms, examples = ready.terms, ready.examples[TRAIN]
    width = ready.tokens[TRAIN].shape[1]
    if terms.mode is Mode.RELEASE:
        return estimate_labels(terms, len(examples), token_bytes=width)
    if terms.mode is Mode.STATISTIC:
        cells = FieldCells.of(fields_of(examples))
        return estimate_statistic(
            terms,
            len(examples),
            cells=cells.count,
            indices=len(cells.values) + 1,  # and the bias
            features=DIRECTIONS,
            token_bytes=width,
        )
    sampled = sample(ready.model, settings.adapter, examples, ready.plan, terms, token_bytes=width)
    layout = ready.model.adapter_layout(settings.adapter)
    return estimate(layout, ready.plan, terms, len(examples), sampled=sampled, token_bytes=width)
