"""What an adapter is held against: a calibration for the advertiser, and a model of its own flipped labels.

Both read the labels that release mode hands over, once, by a loss that knows how likely each was flipped.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tacit.arrays import Floats
    from tacit.cleanroom.model.examples import ConversionExamples

RIDGE = 1.0  # of a model of one's own labels: a prior of variance 1 for each value


def calibrated_logits(
    before: NDArray[np.floating], asked: NDArray[np.floating], _tuned: ConversionExamples,
    _test: ConversionExamples, labels: NDArray[np.uint8], keep: float,
) -> Floats:  # fmt: skip
    """The base's logits times a scale plus a bias, fitted to flipped labels by a loss that knows the flips."""
    import numpy as np
    from scipy.optimize import minimize

    z = before.astype(np.float64)

    def loss(parameters: Floats) -> tuple[float, Floats]:
        slope, value = _forward(parameters[0] + parameters[1] * z, labels, keep)
        return value, np.array([slope.sum(), slope @ z])

    bias, scale = minimize(loss, np.array([0.0, 1.0]), jac=True, method="L-BFGS-B").x
    found: Floats = bias + scale * asked.astype(np.float64)
    return found


def own_logits(
    _before: NDArray[np.floating], _asked: NDArray[np.floating], tuned: ConversionExamples,
    test: ConversionExamples, labels: NDArray[np.uint8], keep: float,
) -> Floats:  # fmt: skip
    """A logistic regression over the values of all fields, with nothing of the platform's in it."""
    import numpy as np
    from scipy.optimize import minimize
    from scipy.sparse import csr_array

    starts = np.concatenate([[0], np.cumsum(tuned.sizes)[:-1]])
    known, places = np.unique(tuned.fields + starts, return_inverse=True)
    width = len(known)

    def written(at: NDArray[np.int64], there: NDArray[np.bool_]) -> csr_array:
        rows, fields = at.shape
        owner = np.repeat(np.arange(rows), fields)[there.reshape(-1)]
        columns = np.concatenate([at.reshape(-1)[there.reshape(-1)], np.full(rows, width)])
        return csr_array(
            (np.ones(len(columns)), (np.concatenate([owner, np.arange(rows)]), columns)),
            shape=(rows, width + 1),
        )

    places = places.reshape(tuned.fields.shape)
    first = written(places, np.ones(places.shape, np.bool_))
    asked = test.fields + starts
    later = np.minimum(np.searchsorted(known, asked), width - 1)
    rate = min(max((labels.mean() - (1 - keep)) / (2 * keep - 1), 1e-3), 0.5)
    penalty = np.append(np.full(width, RIDGE), 0.0)

    def loss(effects: Floats) -> tuple[float, Floats]:
        slope, value = _forward(first @ effects, labels, keep)
        return value + float(penalty @ effects**2) / 2, first.T @ slope + penalty * effects

    start = np.append(np.zeros(width), math.log(rate / (1 - rate)))
    effects = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 100}).x
    found: Floats = written(later, known[later] == asked) @ effects
    return found


def _forward(logits: Floats, labels: NDArray[np.uint8], keep: float) -> tuple[Floats, float]:
    """Slopes, and the loss summed, of labels that were flipped."""
    from tacit.cleanroom.protocol.losses import Loss, losses, slopes

    loss = Loss.FORWARD if keep < 1 else Loss.RAW
    return slopes(logits, labels, loss, keep), float(losses(logits, labels, loss, keep).sum())
