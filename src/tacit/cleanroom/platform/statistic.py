"""Statistic mode: asks once for S = sum_i y_i phi_i with noise, then fits a head to it at no further cost.

With features that the platform has, a logistic model needs labels only through S, so a single release is
enough, and its noise is for one release. What comes out is a head beside the model, not an adapter in it: it is
added to the logits of one advertiser's rows.

The features: near its start an adapter with B = 0 moves a logit by <dz/dB, B>: linear in B, so a logistic model
of these derivatives is the adapter's first-order change, learned without a single step. Their principal
directions over the platform's own rows carry most of it in few numbers, and few numbers carry little noise. The
same goes for an adapter that changes embeddings: a logit is linear in the change, where it begins.
Beside them are cells of the values that fields have. All of this is public to the platform: no label is read
for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from scipy.sparse import csr_array, hstack, vstack
from scipy.special import expit

from tacit import expect
from tacit.arrays import Floats32
from tacit.cleanroom.model.derivatives import adapter_derivatives
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.platform.metrics import noised_positives, refuse_unjoined
from tacit.cleanroom.platform.noisy_ridge import EffectPrior, StatisticInputs, fit_effects
from tacit.cleanroom.platform.steps import LEAST_SHARE, ExampleRows, Tokens, statistic_slabs
from tacit.cleanroom.protocol.answers import AuditReceipt
from tacit.cleanroom.protocol.layout import ParameterBlock, ParameterLayout
from tacit.cleanroom.protocol.modes import Mode, statement_after
from tacit.cleanroom.protocol.requests import Purpose, RoomLink, StatisticRequest
from tacit.cleanroom.protocol.row_derivatives import RowDerivatives
from tacit.errors import BadInput
from tacit.expect import RECORD_FAULTS
from tacit.files import parse_json, write_atomically
from tacit.privacy.statement import PrivacyStatement
from tacit.train.evaluation.intervals import MeasuredValue

DIRECTIONS = 64
DIRECTION_ROWS = 2048  # rows that the directions are found from
ROWS_AT_ONCE = 2048
USUAL_LENGTH = 0.9  # the share of rows that keep their length; the others are shortened to 1


@dataclass(frozen=True, eq=False)
class Directions:
    """Where derivatives of B, or of embeddings' changes, point: a row's features are along each, centred and
    scaled."""

    blocks: tuple[ParameterBlock, ...]
    matrix: Floats32  # (directions, parameters of the blocks)
    centre: Floats32  # (directions,)
    scale: float

    def of(
        self, model: ConversionModel, adapter: str, task: str, examples: ExampleRows
    ) -> tuple[Floats32, Floats32]:
        """Logits (n,) and features (n, directions), each row's of norm at most 1."""
        logits, features = [], []
        for batch_logits, found in _derivatives(model, adapter, task, examples, np.arange(len(examples))):
            along = (found @ self.matrix.T - self.centre) * np.float32(self.scale)
            norms = np.linalg.norm(along, axis=1, keepdims=True)
            features.append(along / np.maximum(norms, 1))
            logits.append(batch_logits)
        return np.concatenate(logits), np.concatenate(features)


def principal_directions(
    model: ConversionModel, adapter: str, task: str, examples: ExampleRows, count: int = DIRECTIONS
) -> Directions:
    """The directions in which derivatives of what begins at zero, B and embeddings' changes, differ most.

    Rows are taken evenly over the examples. The Gram matrix of the centred derivatives is as large as the
    sample, whatever the adapter's size.
    """
    expect.whole("count", count, at_least=1)
    layout, values = model.adapter_layout(adapter), model.adapter_values(adapter)
    parts, moved = layout.split(values), _begins_at_zero(layout)
    if any(parts[block.name].any() for block in moved):
        raise BadInput(f"adapter {adapter}: expected a fresh one, whose B is zero, got one that has learned")
    rows = np.unique(np.linspace(0, len(examples) - 1, min(DIRECTION_ROWS, len(examples))).astype(np.int64))
    found = [part for _, part in _derivatives(model, adapter, task, examples, rows)]
    written = np.concatenate(found) if isinstance(found[0], np.ndarray) else vstack(found, format="csr")
    mean = np.asarray(written.mean(axis=0, dtype=np.float64)).reshape(-1)
    gram = written @ written.T
    gram = (gram if isinstance(gram, np.ndarray) else gram.toarray()).astype(np.float64)
    towards = np.asarray(written @ mean, np.float64)  # <d_i, mean>
    gram += float(mean @ mean) - towards[:, None] - towards
    eigenvalues, vectors = np.linalg.eigh(gram)
    strongest = np.argsort(eigenvalues)[::-1][:count]
    strongest = strongest[eigenvalues[strongest] > 1e-7 * max(float(eigenvalues[-1]), 1e-30)]
    if not len(strongest):
        raise BadInput(
            f"adapter {adapter}: expected derivatives that differ between rows, got the same for all"
        )
    weights = vectors[:, strongest] / np.sqrt(eigenvalues[strongest])
    combined = np.asarray(written.T @ weights.astype(np.float32)).T - np.outer(weights.sum(axis=0), mean)
    matrix = np.ascontiguousarray(combined, np.float32)  # (count, parameters), orthonormal
    centre = (matrix @ mean).astype(np.float32)
    lengths = np.linalg.norm(written @ matrix.T - centre, axis=1)
    scale = 1 / max(float(np.quantile(lengths, USUAL_LENGTH)), 1e-30)
    return Directions(moved, matrix, centre, scale)


def _begins_at_zero(layout: ParameterLayout) -> tuple[ParameterBlock, ...]:
    """What a fresh adapter has at zero: there a logit is linear in it."""
    return tuple(block for block in layout.blocks if block.by_rows or block.name.endswith(".B"))


@dataclass(frozen=True, eq=False)
class FieldCells:
    """A cell for each value that a field has here, one for its other values, and one that all rows share."""

    values: tuple[NDArray[np.int64], ...]  # of each field, sorted

    @classmethod
    def of(cls, fields: NDArray[np.integer]) -> FieldCells:
        return cls(tuple(np.unique(column).astype(np.int64) for column in fields.T))

    @property
    def count(self) -> int:
        return sum(len(values) + 1 for values in self.values) + 1

    @property
    def bias(self) -> int:
        """The cell of every row."""
        return self.count - 1

    def cells(self, fields: NDArray[np.integer]) -> NDArray[np.int32]:
        """(n, fields + 1)."""
        found = np.empty((len(fields), len(self.values) + 1), np.int32)
        start = 0
        for field, values in enumerate(self.values):
            place = np.searchsorted(values, fields[:, field])
            known = values[np.minimum(place, len(values) - 1)] == fields[:, field]
            found[:, field] = start + np.where(known, place, len(values))
            start += len(values) + 1
        found[:, -1] = self.bias
        return found


def field_values(examples: ExampleRows) -> NDArray[np.int64]:
    """The field values of all rows, in batches, as the model reads them."""
    rows = range(0, len(examples), ROWS_AT_ONCE)
    return np.concatenate(
        [examples.batch(np.arange(at, min(at + ROWS_AT_ONCE, len(examples)))).fields.numpy() for at in rows]
    )


def _derivatives(
    model: ConversionModel, adapter: str, task: str, examples: ExampleRows, rows: NDArray[np.int64]
) -> Iterator[tuple[Floats32, Any]]:
    """Logits, and the derivatives in what begins at zero, (some, parameters): written out, or sparse where
    embeddings are among them."""
    moved = _begins_at_zero(model.adapter_layout(adapter))
    for start in range(0, len(rows), ROWS_AT_ONCE):
        logits, found = adapter_derivatives(
            model, examples.batch(rows[start : start + ROWS_AT_ONCE]), task, adapter
        )
        each = [found[block.name] for block in moved]
        if any(isinstance(one, RowDerivatives) for one in each):
            sparse = [
                one.as_sparse() if isinstance(one, RowDerivatives) else csr_array(one.as_dense())
                for one in each
            ]
            yield logits, hstack(sparse, format="csr")
        else:
            yield logits, np.concatenate([one.as_dense() for one in each], axis=1)


HEAD_FORMAT = "tacit room statistic head 1"
PLACES = "places"
HEAD_ARRAYS = ("adapter", "matrix", "centre", "effects")


@dataclass(frozen=True, eq=False)
class StatisticHead:
    """For rows of `advertiser` alone. `adapter` are the values, with B = 0, that it was made at."""

    base: str  # the digest of the model that it was made for
    advertiser: int
    rank: int
    task: str
    adapter: Floats32  # (parameters,)
    directions: Directions
    cells: FieldCells
    cell_weight: float
    effects: NDArray[np.float64]  # (cells + directions,)
    statement: Mapping[str, Any]  # what the room promised for the statistic, as JSON
    places: NDArray[np.int64] | None = None  # rows of the fields' table, where the adapter changes embeddings

    def phi(
        self, model: ConversionModel, name: str, examples: ExampleRows
    ) -> tuple[NDArray[np.float64], StatisticInputs]:
        """Pre-trained logits (n,), and what the head reads."""
        logits, features = self.directions.of(model, name, self.task, examples)
        fields = field_values(examples)
        phi = StatisticInputs(self.cells.cells(fields), self.cells.count, self.cell_weight, features)
        return logits.astype(np.float64), phi

    def logits(self, model: ConversionModel, examples: ExampleRows) -> NDArray[np.float64]:
        """Of rows of its advertiser, which may have no adapter in the model; that stays as it is."""
        if model.digest != self.base:
            raise BadInput("expected the model that the head was made for, got one with other weights")
        name = f"statistic head of {self.advertiser}"
        added = model.add_adapter_of(name, self.advertiser, self.rank, (self.task,), self.places)
        try:
            added.set_values(self.adapter)
            before, phi = self.phi(model, name, examples)
        finally:
            model.remove_adapter(name)
        return before + phi.scores(self.effects)

    def save(self, path: Path) -> None:
        """One safetensors file, whole or not at all."""
        told = {
            "base": self.base,
            "advertiser": self.advertiser,
            "rank": self.rank,
            "task": self.task,
            "blocks": [block.as_json() for block in self.directions.blocks],
            "places": self.places is not None,
            "scale": self.directions.scale,
            "cell_weight": self.cell_weight,
            "fields": len(self.cells.values),
            "statement": dict(self.statement),
        }
        arrays: dict[str, NDArray[Any]] = {
            "adapter": self.adapter,
            "matrix": self.directions.matrix,
            "centre": self.directions.centre,
            "effects": self.effects,
            **({} if self.places is None else {PLACES: self.places}),
            **{f"values.{field}": values for field, values in enumerate(self.cells.values)},
        }
        data = save(arrays, metadata={"format": HEAD_FORMAT, "head": json.dumps(told, sort_keys=True)})
        write_atomically(path, data)

    @classmethod
    def load(cls, path: Path) -> StatisticHead:
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != HEAD_FORMAT:
                    raise BadInput(f"{path}: expected a statistic head, got another file")
                told = parse_json(metadata["head"])
                if not 0 <= told["fields"] <= len(file.keys()):  # before that many names are made up
                    raise BadInput(f"{path}: expected as many fields as there are values of, got others")
                own = [PLACES] if told.get("places") else []  # heads of before had none
                names = [*HEAD_ARRAYS, *own, *(f"values.{field}" for field in range(told["fields"]))]
                arrays = {name: file.get_tensor(name) for name in names}
                blocks = tuple(ParameterBlock.from_json(line) for line in told["blocks"])
                values = tuple(arrays[f"values.{field}"] for field in range(told["fields"]))
                return cls(
                    told["base"],
                    told["advertiser"],
                    told["rank"],
                    told["task"],
                    arrays["adapter"],
                    Directions(blocks, arrays["matrix"], arrays["centre"], told["scale"]),
                    FieldCells(values),
                    told["cell_weight"],
                    arrays["effects"],
                    told["statement"],
                    arrays.get(PLACES),
                )
        except (OSError, SafetensorError, *RECORD_FAULTS) as wrong:
            if isinstance(wrong, BadInput):
                raise
            raise BadInput(f"{path}: expected a whole statistic head, got a torn one") from None


CELL_WEIGHT = 0.5


@dataclass(frozen=True, eq=False)
class FittedStatistic:
    """The head, and what it was fitted from: keep the sums, they are the only ones there will ever be."""

    head: StatisticHead
    sums: NDArray[np.float64]  # (cells + directions,)
    noise_stddev: float
    bytes_sent: int
    bytes_received: int
    receipt: AuditReceipt
    statement: PrivacyStatement
    positives: MeasuredValue  # of the rows: what the cell of all of them tells


def fit_statistic(
    model: ConversionModel,
    adapter: str,
    examples: ExampleRows,
    tokens: Tokens,
    link: RoomLink,
    *,
    task: str,
    run: str,
    directions: int = DIRECTIONS,
    cell_weight: float = CELL_WEIGHT,
    prior: EffectPrior | None = None,
    least_share: float = LEAST_SHARE,
) -> FittedStatistic:
    """Ask and fit. The adapter is a fresh one: it says which derivatives to look at, and stays as it is.
    `least_share` is a plan's.

    Asked again with the same run and rows the room answers the same without a second release.
    """
    described = link.describe()
    terms = described.terms
    if terms.mode is not Mode.STATISTIC:
        raise BadInput(f"expected an agreement of mode statistic, got {terms.mode}")
    if task not in terms.tasks:
        raise BadInput(f"expected task among the agreed {', '.join(terms.tasks)}, got {task!r}")
    if len(tokens) != len(examples):
        raise BadInput(f"expected a token for each of {len(examples)} examples, got {len(tokens)}")
    found = principal_directions(model, adapter, task, examples, directions)
    logits, features = found.of(model, adapter, task, examples)
    fields = field_values(examples)
    cells = FieldCells.of(fields)
    phi = StatisticInputs(cells.cells(fields), cells.count, cell_weight, features)
    request = StatisticRequest(
        agreement=terms.digest,
        run=run,
        number=0,
        task=task,
        purpose=Purpose.STATISTIC,
        rows=len(tokens),
        cells=cells.count,
        indices=phi.cells.shape[1],
        cell_weight=cell_weight,
        features=features.shape[1],
    )
    slabs = statistic_slabs(tokens, phi.cells, features)
    answer = link.statistic(request, slabs)
    positives = noised_positives(
        float(answer.sums[cells.bias]) / cell_weight, answer.noise_stddev / cell_weight
    )
    if least_share:
        refuse_unjoined(positives, float(expit(logits.astype(np.float64)).sum()), len(tokens), least_share)
    effects = fit_effects(
        answer.sums, answer.noise_stddev, phi, logits.astype(np.float64), bias=cells.bias, prior=prior
    )
    chosen, statement = model.adapter(adapter), statement_after(terms, link.describe().remaining)
    head = StatisticHead(
        model.digest,
        chosen.advertiser,
        chosen.rank,
        task,
        chosen.values,
        found,
        cells,
        cell_weight,
        effects,
        statement.as_json(),
        None if chosen.value_rows is None else chosen.value_rows.places,
    )
    return FittedStatistic(
        head,
        answer.sums,
        answer.noise_stddev,
        slabs.size + len(request.to_bytes()),
        sum(len(chunk) for chunk in answer.to_chunks()),
        answer.receipt,
        statement,
        positives,
    )
