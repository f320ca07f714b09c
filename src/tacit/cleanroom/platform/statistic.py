"""Statistic mode: ask once for S = sum_i y_i phi_i with noise, then fit as often as one likes.

With features that the platform has, a logistic model needs labels only through S, so a single release is
enough, and its noise is for one release. What comes out is a head beside the model, not an adapter in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.platform.features import DIRECTIONS, FieldCells, fields_of, principal_directions
from tacit.cleanroom.platform.fitting import Phi, Prior, fit
from tacit.cleanroom.platform.head import StatisticHead
from tacit.cleanroom.platform.link import RoomLink
from tacit.cleanroom.platform.sending import Examples, Tokens, statistic_slabs
from tacit.cleanroom.wire.agreement import Mode
from tacit.cleanroom.wire.answers import Receipt
from tacit.cleanroom.wire.requests import Purpose, StatisticRequest
from tacit.cleanroom.wire.statements import statement_after
from tacit.errors import BadInput
from tacit.privacy.statement import PrivacyStatement

CELL_WEIGHT = 0.5


@dataclass(frozen=True, eq=False)
class FittedStatistic:
    """The head, and what it was fitted from: keep the sums, they are the only ones there will ever be."""

    head: StatisticHead
    sums: NDArray[np.float64]  # (cells + directions,)
    noise_stddev: float
    bytes_sent: int
    bytes_received: int
    receipt: Receipt
    statement: PrivacyStatement


def fit_statistic(
    model: ConversionModel,
    adapter: str,
    examples: Examples,
    tokens: Tokens,
    link: RoomLink,
    *,
    task: str,
    run: str,
    directions: int = DIRECTIONS,
    cell_weight: float = CELL_WEIGHT,
    prior: Prior | None = None,
) -> FittedStatistic:
    """Ask and fit. The adapter is a fresh one: it says which derivatives to look at, and stays as it is.

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
    fields = fields_of(examples)
    cells = FieldCells.of(fields)
    phi = Phi(cells.cells(fields), cells.count, cell_weight, features)
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
    effects = fit(
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
    )
    return FittedStatistic(
        head,
        answer.sums,
        answer.noise_stddev,
        slabs.size + len(request.to_bytes()),
        sum(len(chunk) for chunk in answer.to_chunks()),
        answer.receipt,
        statement,
    )
