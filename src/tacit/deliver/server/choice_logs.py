"""Logs of private choices: which columns may be exported, and unbiased counts from many choices.

A propensity (the chance with which the shown candidate was chosen) is high for the truth and low for a lie:
written beside a choice it undoes the noise. Logs therefore hold what is public (the request, the law, the
choice), and statistics come from many choices and the law, which is enough for unbiased counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.errors import BadInput
from tacit.privacy.choice.top_choice import TopChoice
from tacit.privacy.mechanisms.randomized_response import WHOLE
from tacit.schema.columns import LogSchema, Role

PUBLIC_COLUMNS = frozenset(
    {"auction", "time", "campaign", "chosen", "candidates", "kept", "top", "epsilon", "price_micros"}
)
"""What a row may hold without further words: the request, its public law, and the choice."""

PUBLIC_ROLES = frozenset({Role.PUBLIC, Role.PUBLISHER, Role.ADVERTISER, Role.TIME, Role.AUCTION, Role.PRICE})
"""A column of the requests' own schema may be held if it is public, and has no role beside these."""

TELLING = frozenset(
    {"propensity", "propensities", "pscore", "probability", "prob", "chance", "pmf", "truth", "truthful", "lie"}
    | {"lied", "random", "favoured", "private", "score", "scores", "rank"}
)
"""Whole words of names that say whether a choice was truthful, or what the device thought: no schema helps."""


def choice_table(columns: Mapping[str, ArrayLike], *, schema: LogSchema | None = None) -> pa.Table:
    """A log of choices for export: the columns in `PUBLIC_COLUMNS`, and public ones of the requests' schema.

    Guarantee:  adds nothing to what the choices themselves spend.
    Neighbours: any two vectors of private scores of each request.
    Assumes:    columns hold what their names say, and those that are public in the schema are public.
    Source:     post-processing: Dwork, McSherry, Nissim, Smith 2006.
    """
    expect.kind("columns", columns, Mapping)
    expect.kind("schema", schema, LogSchema, type(None))
    declared = () if schema is None else schema.columns
    public = {column.name for column in declared if Role.PUBLIC in column.roles <= PUBLIC_ROLES}
    if "chosen" not in columns:
        raise BadInput("expected a column chosen, got none")
    for name in columns:
        if TELLING & set(re.split("[^a-z]+", name.lower())):
            raise BadInput(
                f"{name}: expected no propensities in a log, got a column that tells who was truthful"
            )
        if name not in PUBLIC_COLUMNS | public:
            raise BadInput(
                f"{name}: expected a known public column, or one that is public in the schema, got another"
            )
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    lengths = {name: array.shape for name, array in arrays.items()}
    if any(array.ndim != 1 for array in arrays.values()) or len(set(lengths.values())) > 1:
        raise BadInput(f"expected columns of one length, got {lengths}")
    return pa.table(arrays)


@dataclass(frozen=True, eq=False)
class DebiasedCounts:
    """How often each candidate was privately favoured, estimated without bias, with standard errors.

    estimate        by candidate; may be negative or above `offered`, which is what keeps it unbiased
    standard_error  from an unbiased estimate of the variance (0 where that came out negative)
    offered         requests in which it was among the kept
    left_out        requests whose law looks at nothing private, and so tells nothing
    """

    estimate: Floats
    standard_error: Floats
    offered: Integers
    left_out: int


def debias_choices(
    offsets: Integers,
    candidate: Integers,
    chosen: Integers,
    *,
    kept: Integers,
    top: Integers,
    epsilon: Floats,
    count: int,
) -> DebiasedCounts:
    """From public laws and choices: how often each of `count` candidates was among the private best m.

    Request i offers candidate[offsets[i]:offsets[i + 1]], in public order, and place chosen[i] of them was
    shown (-1: none, only where the law tells nothing), by trunc(kept[i], top[i]) planned at epsilon[i] (0: the
    public best). With m = 1 this counts how often each was truly the best of those kept. A kept candidate is
    shown with chance h if it is favoured, else l, so (shown - l) / (h - l) has the mean 1 or 0; variances add
    up.
    """
    arrays = {"offsets": offsets, "candidate": candidate, "chosen": chosen, "kept": kept, "top": top}
    for name, column in {**arrays, "epsilon": epsilon}.items():
        expect.kind(name, column, np.ndarray)
    requests = len(offsets) - 1
    for name, column in (("chosen", chosen), ("kept", kept), ("top", top), ("epsilon", epsilon)):
        if column.shape != (requests,):
            raise BadInput(f"expected {name} for {requests} requests, got shape {column.shape}")
    if len(candidate) != offsets[-1]:
        raise BadInput(f"expected {int(offsets[-1])} candidates, got {len(candidate)}")
    if len(candidate) and not 0 <= candidate.min() <= candidate.max() < expect.whole(
        "count", count, at_least=1
    ):
        raise BadInput(f"expected candidates in 0..{count - 1}, got one outside")
    if not np.isfinite(epsilon).all() or (epsilon < 0).any():
        raise BadInput("expected finite epsilons >= 0, got others")
    if (kept > np.diff(offsets)).any() or ((chosen < -1) | (chosen >= np.maximum(kept, 1))).any():
        raise BadInput("expected a chosen place among the kept, and those among the candidates, got others")
    telling = (top < kept) & (epsilon > 0)
    if (chosen[telling] < 0).any():  # it would count as a vote against every candidate
        raise BadInput("expected a chosen place wherever the law looks at private scores, got -1")
    low_chance, high_chance = _chances(kept, top, epsilon, telling)
    request = np.repeat(np.arange(requests), np.where(telling, kept, 0))
    starts = np.cumsum(np.where(telling, kept, 0)) - np.where(telling, kept, 0)
    place = np.arange(len(request)) - starts[request]
    low, high = low_chance[request], high_chance[request]
    shown = (chosen[request] == place).astype(np.float64)
    favoured = (shown - low) / (high - low)
    # p (1 - p) is l (1 - l) or h (1 - h); linear in being favoured, so the estimate may stand for it.
    variance = (low * (1 - low) + favoured * (high * (1 - high) - low * (1 - low))) / (high - low) ** 2
    code = candidate[offsets[request] + place]
    return DebiasedCounts(
        np.bincount(code, favoured, count).astype(np.float64),
        np.sqrt(np.maximum(np.bincount(code, variance, count), 0.0)),
        np.bincount(code, minlength=count),
        int(np.count_nonzero(~telling)),
    )


def _chances(
    kept: Integers, top: Integers, epsilon: Floats, telling: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """How likely one that is not favoured is shown, and one that is; 0 where the law tells nothing."""
    different, which = np.unique(
        np.column_stack([kept[telling], top[telling], epsilon[telling]]), axis=0, return_inverse=True
    )
    laws = [TopChoice.for_epsilon(e, int(k), int(k), int(m)) for k, m, e in different.tolist()]
    low, high = np.zeros(len(kept)), np.zeros(len(kept))
    low[telling] = np.array([law.low_weight / WHOLE for law in laws])[which.ravel()] if laws else 0.0
    high[telling] = np.array([law.high_weight / WHOLE for law in laws])[which.ravel()] if laws else 0.0
    return low, high
