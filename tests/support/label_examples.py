"""Small examples with labels and unit keys, for the tests of label mechanisms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.data.splits import RowSet
from tacit.expect import Number
from tacit.privacy.mechanisms.memoisation import FlipKey
from tacit.privacy.releases import Release
from tacit.privacy.units import Cap, Unit, UnitKind
from tacit.train.examples import Examples, Sizes
from tacit.train.labels.mechanism import Correction, LabelMechanism, LabelPrior, shares
from tacit.train.labels.noisy_targets import NoisyLabelling, base_rate
from tacit.train.labels.randomizers import FlipLabels, FlipTowardsPrior, LaplaceWithPrior
from tacit.train.targets import Targets

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


@dataclass(frozen=True)
class NoisyTargets:
    """Targets as a run makes them, beside the labelling that was planned for them."""

    labelling: NoisyLabelling
    targets: Targets

    @property
    def release(self) -> Release:
        return self.labelling.release

    @property
    def base_rate(self) -> float:
        return base_rate(self.targets)

    @property
    def labels_by_epsilon(self) -> dict[Fraction, int]:
        return {
            each: int(rows.sum()) for each, rows in shares(self.labelling.allocation, self.labelling.epsilon)
        }


def noisy_targets(
    examples: Examples,
    mechanism: LabelMechanism,
    unit: Unit,
    cap: Cap,
    epsilon: Number,
    *,
    key: FlipKey,
    secret: bytes,
    now: int | None = None,
) -> NoisyTargets:
    """Planned and then made, as a training does."""
    labelling = NoisyLabelling.of(examples, mechanism, unit, cap, epsilon, key=key, secret=secret, now=now)
    return NoisyTargets(labelling, labelling.targets(examples, secret))


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
