"""What a model expects of examples: probabilities, counts or values, by its head."""

from __future__ import annotations

import numpy as np

from tacit import expect
from tacit.errors import BadInput
from tacit.train.examples import Examples, Sizes
from tacit.train.models.model import Model, Part
from tacit.train.targets import Floats, Head

BATCH = 16384  # the network of the default widths takes 200 MB for it, and larger ones are no faster


def predict(model: Model, examples: Examples, part: Part, head: Head, batch: int = BATCH) -> Floats:
    """One prediction for each example, in their order."""
    step = expect.whole("batch", batch, at_least=1)
    if _read(examples.sizes, part) != _read(model.sizes, part):
        raise BadInput(f"expected examples of {model.sizes}, got {examples.sizes}")
    predictions = np.empty(len(examples), np.float32)
    for start in range(0, len(examples), step):
        places = np.arange(start, min(start + step, len(examples)), dtype=np.int64)
        ids = model.ids(examples, examples.rows(places), part)
        predictions[places[0] : places[-1] + 1] = head.mean(model.forward(ids, part).scores)
    return predictions


def _read(sizes: Sizes, part: Part) -> tuple[int, ...]:
    """The sizes of what this part of a model reads."""
    sensitive = () if part is Part.TRUNCATED else (sizes.sensitive_fields, sizes.sensitive_rows)
    return (sizes.public_fields, sizes.public_rows, *sensitive)
