"""What is reported about a label: one of a few public classes, each standing for a value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.train.targets import Head

MOST_CLASSES = 4096


class Classes(Protocol):
    """A public map from labels to classes, and what each class stands for."""

    @property
    def values(self) -> tuple[float, ...]:
        """What each class stands for, in the units of the target."""
        ...

    @property
    def head(self) -> Head: ...

    def of(self, labels: ArrayLike) -> NDArray[np.int64]:
        """The class of each label."""
        ...


@dataclass(frozen=True)
class Binary:
    """A label that is 0 or 1, such as a click or a conversion."""

    values: tuple[float, ...] = (0.0, 1.0)
    head: Head = Head.LOGISTIC

    def of(self, labels: ArrayLike) -> NDArray[np.int64]:
        found = np.asarray(labels)
        if not np.isin(found, (0, 1)).all():
            raise BadInput("column label: expected 0 or 1, got another value")
        return found.astype(np.int64)


@dataclass(frozen=True)
class Bins:
    """A count or a value, rounded to a few bins: bin i holds edges[i-1] <= label < edges[i], the ends all the
    rest.

    Edges and values are public: they come from agreement or public data, never from these labels.
    """

    edges: tuple[float, ...]
    values: tuple[float, ...]
    head: Head = Head.SQUARED

    def __post_init__(self) -> None:
        for name in ("edges", "values"):
            numbers = tuple(float(number) for number in getattr(self, name))
            if not all(math.isfinite(number) for number in numbers):
                raise BadInput(f"expected finite {name} of bins, got {numbers}")
            object.__setattr__(self, name, numbers)
        object.__setattr__(self, "head", Head(self.head))
        if not self.edges or any(low >= high for low, high in pairwise(self.edges)):
            raise BadInput(f"expected at least one edge, each above the last, got {self.edges}")
        if len(self.values) != len(self.edges) + 1:
            raise BadInput(f"expected {len(self.edges) + 1} values for the bins, got {len(self.values)}")
        if len(self.values) > MOST_CLASSES:
            raise BadInput(f"expected at most {MOST_CLASSES} bins, got {len(self.values)}")
        if self.head is Head.LOGISTIC:
            raise BadInput("expected a poisson or squared head for bins, got logistic")
        if self.head is Head.POISSON and min(self.values) < 0:
            raise BadInput("expected values >= 0 for a poisson head, got a negative one")

    @classmethod
    def counts(cls, most: int) -> Bins:
        """0, 1, ..., `most`, where the last stands for itself and everything above it."""
        most = expect.whole("most", most, at_least=1)
        return cls(tuple(n - 0.5 for n in range(1, most + 1)), tuple(map(float, range(most + 1))), Head.POISSON)

    def of(self, labels: ArrayLike) -> NDArray[np.int64]:
        found: NDArray[Any] = np.asarray(labels)
        if found.dtype.kind not in "iufb":
            raise BadInput(f"column label: expected numbers, got dtype {found.dtype}")
        if found.dtype.kind == "f" and np.isnan(found).any():
            raise BadInput("column label: expected numbers, got a missing value")
        return np.searchsorted(self.edges, found, side="right").astype(np.int64)


BINARY = Binary()
