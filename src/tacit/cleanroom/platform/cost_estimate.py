"""Cost estimate of a run, before it: bytes both ways, seconds, releases per record, epsilon.

Nothing is sent for it. The sample looks at some of the platform's own rows: how long their sequences are, and
how long this machine takes for their derivatives.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tacit import expect
from tacit.cleanroom.model.derivatives import adapter_derivatives
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.platform.gradients import touched_rows
from tacit.cleanroom.platform.steps import AdapterPlan, ExampleRows, step_slabs, steps_per_epoch
from tacit.cleanroom.protocol.answers import AuditReceipt, StepAnswer
from tacit.cleanroom.protocol.codecs import codec_named
from tacit.cleanroom.protocol.encoding import SECTION_BYTES
from tacit.cleanroom.protocol.layout import ParameterLayout
from tacit.cleanroom.protocol.modes import Mode
from tacit.cleanroom.protocol.requests import LabelsRequest, Purpose, StatisticRequest, StepRequest
from tacit.cleanroom.protocol.slabs import HEADER_BYTES, LOGIT_BYTES, SLAB_BYTES
from tacit.cleanroom.protocol.terms import Terms
from tacit.entropy import Simulation

SAMPLED_ROWS = 256
CELL_BYTES, FEATURE_BYTES, SUM_BYTES = 4, 4, 8


@dataclass(frozen=True)
class CostEstimate:
    """Seconds are None where the speed of the link or the machine is not known; releases are those of a record
    that the run uses up, 0 where flips are used again at no cost."""

    mode: Mode
    steps: int
    examples: int
    bytes_an_example: float
    bytes_sent: int
    bytes_received: int
    seconds_sending: float | None
    seconds_computing: float | None
    releases: int
    epsilon: float
    delta: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class CostSample:
    """Of the platform's own rows: bytes per example, token and logit included, and seconds on this machine."""

    bytes_an_example: float
    seconds_an_example: float
    touched: float = 1.0  # the share of the adapter's parameters that so many rows touch


def sample_cost(
    model: ConversionModel,
    adapter: str,
    examples: ExampleRows,
    plan: AdapterPlan,
    terms: Terms,
    *,
    token_bytes: int = 16,
    stopwatch: Callable[[], float] = time.perf_counter,
) -> CostSample:
    """Derivatives and bytes of some rows, spread over the examples, timed the second time."""
    rows = np.unique(np.linspace(0, len(examples) - 1, min(SAMPLED_ROWS, len(examples))).astype(np.int64))
    codec = codec_named(plan.codec, dense_sequences=terms.dense_sequences)
    layout, tokens = model.adapter_layout(adapter), np.zeros((len(rows), token_bytes), np.uint8)
    size, seconds = 0, 0.0
    for _ in range(2):
        started = stopwatch()
        logits, found = adapter_derivatives(model, examples.batch(rows), plan.task, adapter)
        sent_layout, sent, _ = touched_rows(layout, found, Simulation("sample"))
        slabs = step_slabs(tokens, logits, sent, sent_layout, codec, run="sample", number=0)
        size = sum(len(data) - _slab_header(layout) for data in slabs)
        seconds = stopwatch() - started
    share = sent_layout.parameters / layout.parameters
    return CostSample(size / len(rows), seconds / len(rows), share)


def estimate_training(
    layout: ParameterLayout,
    plan: AdapterPlan,
    terms: Terms,
    rows: int,
    *,
    sampled: CostSample | None = None,
    token_bytes: int = 16,
    link_bytes_per_second: float | None = None,
) -> CostEstimate:
    """Training an adapter through the room. Without a sample, sequences are taken to be as long as they may."""
    plan.refuse_unless_agreed(terms, rows)
    if sampled is None:
        codec = codec_named(plan.codec, dense_sequences=terms.dense_sequences)
        an_example = token_bytes + LOGIT_BYTES + sum(codec.size(each, each.positions) for each in layout.blocks)
    else:
        an_example = sampled.bytes_an_example
    batch = plan.for_rows(rows, terms.smallest_batch).batch or rows
    steps_each = steps_per_epoch(rows, batch, terms.smallest_batch)
    steps = plan.epochs * steps_each
    slabs = math.ceil(rows / steps_each * an_example / SLAB_BYTES)
    request = StepRequest(terms.digest, "r" * 32, steps, plan.task, plan.loss, plan.codec, rows, layout)
    a_step = len(request.to_bytes()) + slabs * _slab_header(layout)
    answer = StepAnswer(np.zeros(0, np.float32), rows, 1 / 3, _RECEIPT)
    touched = 1.0 if sampled is None else sampled.touched  # more rows touch more, so that this is the least
    an_answer = round(4 * layout.parameters * touched) + sum(map(len, answer.to_chunks()))
    return _estimate(
        terms, steps, plan.epochs * rows, an_example, steps * a_step, steps * an_answer, link_bytes_per_second,
        None if sampled is None else sampled.seconds_an_example * plan.epochs * rows,
        releases=plan.epochs if terms.mode is Mode.NOISED else 0,
    )  # fmt: skip


def estimate_statistic(
    terms: Terms,
    rows: int,
    *,
    cells: int,
    indices: int,
    features: int,
    token_bytes: int = 16,
    link_bytes_per_second: float | None = None,
) -> CostEstimate:
    """One noisy statistic: every row once, then one answer."""
    request = StatisticRequest(
        terms.digest, "r" * 32, 0, terms.tasks[0], Purpose.STATISTIC, rows, cells, indices, 0.5, features
    )
    an_example = token_bytes + CELL_BYTES * indices + FEATURE_BYTES * features
    received = SUM_BYTES * (cells + features) + len(str(_RECEIPT.as_json())) + 64
    return _estimate(
        terms, 1, rows, an_example, len(request.to_bytes()), received, link_bytes_per_second, None, releases=1
    )


def estimate_labels(
    terms: Terms, rows: int, *, token_bytes: int = 16, link_bytes_per_second: float | None = None
) -> CostEstimate:
    """The flipped labels, once."""
    request = LabelsRequest(terms.digest, "r" * 32, terms.tasks[0], rows)
    received = rows + len(str(_RECEIPT.as_json())) + 32
    return _estimate(
        terms, 1, rows, token_bytes, len(request.to_bytes()), received, link_bytes_per_second, None, releases=0
    )


def _slab_header(layout: ParameterLayout) -> int:
    return HEADER_BYTES + SECTION_BYTES * (2 + len(layout.blocks))  # behind tokens and logits


def _estimate(
    terms: Terms,
    steps: int,
    examples: int,
    an_example: float,
    headers: int,
    received: int,
    link_bytes_per_second: float | None,
    seconds_computing: float | None,
    *,
    releases: int,
) -> CostEstimate:
    sent = round(examples * an_example) + headers
    seconds = None
    if link_bytes_per_second is not None:
        seconds = (sent + received) / float(expect.positive("link_bytes_per_second", link_bytes_per_second))
    promised = terms.statement()
    return CostEstimate(
        terms.mode, steps, examples, float(an_example), sent, received, seconds, seconds_computing, releases,
        promised.epsilon, promised.delta,
    )  # fmt: skip


_RECEIPT = AuditReceipt(10**6, "0" * 64, bytes(64))  # as long as a real one
