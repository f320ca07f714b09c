"""Labels beside a frame are read as they are meant, or refused in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.errors import BadInput
from tacit.train.frame_examples import read_labels


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([1, None, 0], "expected a label in every row of y, got"),
        (np.array([1.0, np.nan, 0.0]), "got NaN or infinity in row 1"),
        ([1, 0], "inconsistent numbers of samples: 3 and 2"),
        (None, "requires y to be passed"),
        (np.zeros((3, 2)), "expected y as a flat array of labels, got shape (3, 2)"),
    ],
)
def test_labels_that_cannot_be_read(labels: Any, said: str) -> None:
    with pytest.raises(BadInput) as refusal:
        read_labels(labels, 3)
    assert said in str(refusal.value)
