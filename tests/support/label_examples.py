"""Small examples with labels and unit keys, for the tests of label mechanisms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.data.splits import RowSet
from tacit.privacy.mechanisms.memoisation import FlipKey
from tacit.privacy.units import Cap, Unit, UnitKind
from tacit.train.examples import Examples, Sizes
from tacit.train.labels.mechanism import Correction, LabelMechanism, LabelPrior
from tacit.train.labels.noisy_targets import noisy_targets
from tacit.train.labels.randomizers import FlipLabels, FlipTowardsPrior, LaplaceWithPrior

SECRET = bytes(range(32))
KEY = FlipKey("conversions", 3)
PUBLIC = frozenset({"row", "user", "publisher", "advertiser", "time", "device"})


def examples_of(
    labels: ArrayLike | None,
    keys: Mapping[str, ArrayLike] | None = None,
    *,
    public: frozenset[str] = PUBLIC,
    at: RowSet | None = None,
) -> Examples:
    """Examples without features; row ids are 1000, 1001, ..."""
    columns: dict[str, Any] = {name: np.asarray(column) for name, column in (keys or {}).items()}
    label = None if labels is None else np.asarray(labels)
    rows = len(label) if label is not None else len(next(iter(columns.values())))
    columns.setdefault("row", np.arange(1000, 1000 + rows))
    nothing = np.zeros((rows, 0), np.int32)
    return Examples(
        nothing,
        nothing,
        Sizes(0, 0, 0, 0),
        at or RowSet(slice(0, rows)),
        label,
        columns,
        public & columns.keys(),
    )


IMPRESSION = Unit(UnitKind.IMPRESSION)
MECHANISMS: dict[str, LabelMechanism] = {
    "flips": FlipLabels(correction=Correction.RAW),
    "prior": FlipTowardsPrior(LabelPrior.of_rate(0.45), correction=Correction.RAW),
    "laplace": LaplaceWithPrior(LabelPrior.of_rate(0.45)),
}


def told(
    labels: ArrayLike,
    mechanism: LabelMechanism,
    epsilon: float = 1.0,
    *,
    key: FlipKey = KEY,
    secret: bytes = SECRET,
) -> NDArray[np.float32]:
    """The targets of labels without units."""
    examples = examples_of(np.asarray(labels))
    return noisy_targets(
        examples, mechanism, IMPRESSION, Cap(1), epsilon, key=key, secret=secret
    ).targets.values
