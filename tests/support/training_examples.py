"""Examples and runs for the tests of training: small ones, learnable ones, and a run that fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from tacit.data.splits import RowSet
from tacit.train.examples import Examples, Sizes
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.settings import PrivateLearning
from tacit.train.steps import Run
from tacit.train.targets import Targets

ROWS, VALUES = 6000, 12
SECRET = bytes(range(32))
BATCH = 500
FAST = PrivateLearning(epochs=8, batch=BATCH)
MODEL = FactorizationMachine(4)


def small_examples(
    count: int = 40, *, public: int = 3, sensitive: int = 2, rows: int = 7, seed: int = 1
) -> Examples:
    """Few table rows for many fields, so that rows repeat within examples."""
    generator = np.random.default_rng(seed)
    sizes = Sizes(public, sensitive, rows, rows + 2)
    return Examples(
        public=generator.integers(0, rows, (count, public), dtype=np.int32),
        sensitive=generator.integers(0, rows + 2, (count, sensitive), dtype=np.int32),
        sizes=sizes,
        at=RowSet(slice(0, count)),
        label=generator.integers(0, 2, count, dtype=np.uint8),
        keys={"user": generator.integers(0, count // 3, count).astype(np.uint64), "row": np.arange(count)},
        public_keys=frozenset({"user", "row"}),
        synthetic=True,
    )


def true_targets(examples: Examples) -> Targets:
    return Targets(examples.labels.astype(np.float32))


def learnable(seed: int = 1, **changes: object) -> Examples:
    """Labels that hang on two public and two sensitive fields alike; a user has three rows."""
    generator = np.random.default_rng(seed)
    effects = generator.normal(0, 1.2, (4, VALUES))
    ids = generator.integers(0, VALUES, (ROWS, 4), dtype=np.int32)
    score = effects[np.arange(4), ids].sum(axis=1) - 1
    shifted: NDArray[np.int32] = ids + np.array([0, VALUES, 0, VALUES], np.int32)
    made = Examples(
        public=np.ascontiguousarray(shifted[:, :2]),
        sensitive=np.ascontiguousarray(shifted[:, 2:]),
        sizes=Sizes(2, 2, 2 * VALUES, 2 * VALUES),
        at=RowSet(slice(0, ROWS)),
        label=(generator.random(ROWS) < expit(score)).astype(np.uint8),
        keys={
            "user": np.arange(ROWS, dtype=np.uint64) // 3,
            "time": np.arange(ROWS, dtype=np.int64) * 60,
            "row": np.arange(ROWS),
        },
        public_keys=frozenset({"user", "time", "row"}),
        synthetic=True,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def fail_at(monkeypatch: pytest.MonkeyPatch, step: int, problem: BaseException) -> None:
    """Let the run fail once it has taken `step` steps."""
    honest = Run._batches

    def batches(self: Run, *arguments: Any) -> Any:
        for taken, batch in enumerate(honest(self, *arguments)):
            if taken == step:
                raise problem
            yield batch

    monkeypatch.setattr(Run, "_batches", batches)
