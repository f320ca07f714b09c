"""Small examples for the tests of training."""

from __future__ import annotations

import numpy as np

from tacit.data.splits import Rows
from tacit.train.examples import Examples, Sizes
from tacit.train.targets import Targets


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
        at=Rows(slice(0, count)),
        label=generator.integers(0, 2, count, dtype=np.uint8),
        keys={"user": generator.integers(0, count // 3, count).astype(np.uint64), "row": np.arange(count)},
        public_keys=frozenset({"user", "row"}),
        synthetic=True,
    )


def true_targets(examples: Examples) -> Targets:
    return Targets(examples.labels.astype(np.float32))
