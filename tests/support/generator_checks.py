"""What every generator of labelled rows is held to, shared by their tests."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tacit.data.generators.distributions import Zipf
from tacit.data.generators.worlds import ROWS_PER_BATCH, LogWorld
from tests.support.exact_tests import ALPHA

Reals = NDArray[np.float64]


def drawn(world: LogWorld, rows: int) -> tuple[pa.Table, Reals]:
    """A log and its true probabilities."""
    parts = list(world.batches(rows))
    truth = pa.Table.from_batches([part.truth for part in parts])
    return pa.Table.from_batches([part.batch for part in parts]), truth["probability"].to_numpy()


def expected_distinct(law: Zipf, rows: int) -> float:
    """The mean number of distinct values among `rows` independent rows of this law."""
    edges = np.unique(np.geomspace(1, law.values + 1, 20_000).astype(np.int64)) - 1
    first, past = edges[:-1], edges[1:]
    width = (past - first).astype(np.float64)
    mass = law.cdf(past - 1) - np.where(first > 0, law.cdf(np.maximum(first - 1, 0)), 0.0)
    return float(np.sum(width * -np.expm1(rows * np.log1p(-np.minimum(mass / width, 1 - 1e-12)))))


def assert_keeps_the_contract(make: Callable[[int], LogWorld]) -> None:
    """Exact numbers of rows, the same rows again, a longer log begins with a shorter one, seeds differ."""
    rows = ROWS_PER_BATCH + 123
    log, truth = drawn(make(5), rows)
    assert len(log) == len(truth) == rows
    again, truth_again = drawn(make(5), 1_000)
    assert again.equals(log.slice(0, 1_000))
    assert np.array_equal(truth_again, truth[:1_000])
    assert list(make(5).batches(0)) == []
    assert not drawn(make(6), 1_000)[0].equals(again)
    assert make(5).side_tables() == {}


def label_surprises(labels: NDArray[np.int8] | NDArray[np.bool_], probabilities: Reals, bins: int = 20) -> int:
    """Bins of equal size, by probability, whose positives are too far from what the probabilities say.

    By Bernstein's inequality, which holds for any mix of probabilities, there is one with chance ALPHA at most.
    """
    log_alpha = math.log(2 * bins / ALPHA)
    surprises = 0
    for part in np.array_split(np.argsort(probabilities), bins):
        p = probabilities[part]
        off = abs(float(labels[part].sum()) - p.sum())
        surprises += off > math.sqrt(2 * log_alpha * (p * (1 - p)).sum()) + 2 / 3 * log_alpha
    return surprises


def bayes_auc_loss(probabilities: Reals) -> float:
    """1 - AUC of the best possible model, in the mean over labels drawn with these probabilities."""
    p = np.sort(probabilities)
    negatives_below = np.cumsum(1 - p) - (1 - p)
    ordered = (p * (negatives_below + 0.5 * (1 - p))).sum()
    return float(1 - ordered / (p.sum() * (1 - p).sum()))


def counts_of(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """How often each value comes, the most frequent first; missing values are left out."""
    counts = column.drop_null().value_counts().field("counts").to_numpy()
    return np.sort(counts)[::-1]
