"""What a label mechanism is: classes to report, how a report becomes a target, and a public prior.

A label is reported as one of a few public classes, each of which stands for a value. `LabelMechanism` turns
true labels into targets; `Correction` names the ways to read a noisy report, all of which are post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.allocation import Allocation
from tacit.privacy.mechanisms.memoisation import FlipKey
from tacit.privacy.releases import Composed, NoisyLabels, Release
from tacit.privacy.units import Split, UnitKind
from tacit.train.targets import Head, Targets

MOST_CLASSES = 4096
LEAST_EPSILON = Fraction(1, 1000)
"""Of a single label. With less, a million labels tell less than one honest one."""


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
        object.__setattr__(self, "edges", expect.several("edges", self.edges))
        object.__setattr__(self, "values", expect.several("values", self.values))
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


def key_of_classes(classes: Classes, key: FlipKey) -> FlipKey:
    """The key of reports of these classes, which names the edges of bins.

    Other edges put the same label into other classes. With one draw for both, reports that differ would show
    that the classes do.
    """
    return replace(key, task=f"{key.task}, in bins at {classes.edges}") if isinstance(classes, Bins) else key


class Correction(expect.Choice):
    """How a noisy report becomes a target. All of it is post-processing: none costs privacy.

    RAW        The report as it is. Least variance, and wrong on purpose: predictions are pulled towards the
               middle of the classes, rare events come out far too likely. Order, and so AUC, survives where
               every label has the same epsilon.
    UNBIASED   A target that is the label on average, whatever the label is. Gradients are unbiased, and
               predictions calibrated in the long run; targets lie far outside the labels' range at small
               epsilon, so the loss has no lower bound and a large model fits the noise: stop early.
    FORWARD    The report, with the probability that it is true: the loss compares it with what the model
               expects a flipped label to be. A proper, bounded loss that weighs labels of different epsilons as
               they deserve; not convex in the score. For two classes only.
    POSTERIOR  The expected label given the report and a public prior. Bounded, least squared error; pulled
               towards the prior, the more the smaller epsilon is.
    """

    RAW = "raw"
    UNBIASED = "unbiased"
    FORWARD = "forward"
    POSTERIOR = "posterior"


class LabelMechanism(Protocol):
    """Turns true labels into targets. A value: the labels, the draws' key and the secret are handed in."""

    @property
    def classes(self) -> Classes: ...

    def release(self, allocation: Allocation, epsilon: expect.Number) -> Release:
        """What leaves when `targets` are made with this allocation: for one unit, known beforehand."""
        ...

    def targets(
        self,
        labels: ArrayLike,
        records: ArrayLike,
        allocation: Allocation,
        epsilon: expect.Number,
        *,
        key: FlipKey,
        secret: bytes,
    ) -> Targets:
        """A target for each kept row. Labels and record ids are of all rows; `epsilon` is the whole unit's."""
        ...


def shares(allocation: Allocation, epsilon: expect.Number) -> list[tuple[Fraction, NDArray[np.bool_]]]:
    """Each label's epsilon, and which of the kept rows have it; refused where one is too small to tell."""
    whole = expect.positive("epsilon", epsilon)
    divisors = np.unique(allocation.divisor).tolist()
    if divisors and whole / divisors[-1] < LEAST_EPSILON:
        raise BadInput(
            f"expected epsilon >= {float(LEAST_EPSILON):g} for each label, got {float(whole):g} divided by "
            f"{divisors[-1]}: noisy labels would tell nothing"
        )
    return [(whole / divisor, allocation.divisor == divisor) for divisor in divisors]


def pure_release(allocation: Allocation, epsilon: expect.Number, manner: str) -> Release:
    """What leaves when every kept row's label is reported once, each by a mechanism of epsilon / divisor."""
    whole = expect.positive("epsilon", epsilon)
    if allocation.unit.kind is UnitKind.IMPRESSION:
        return NoisyLabels(whole, 1, manner)
    most = allocation.cap.impressions
    if allocation.cap.split is Split.BY_COUNT:
        return NoisyLabels(whole, most, manner)
    return Composed((NoisyLabels(whole / most, 1, manner),), most)


@dataclass(frozen=True, eq=False)
class LabelPrior:
    """Probabilities of the classes: one list for all examples, or one for each group of them.

    `table` is (groups, classes); `groups` holds the group of every example, None: all are in group 0. Both must
    be free of the labels that are to be reported. They may come from public data, or from a model that was
    trained on other units' noisy labels, at their expense: then no unit may have examples on both sides (by
    impression any two halves will do, by user it must be two halves of the users).
    """

    table: NDArray[np.float64]
    groups: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        table = np.array(self.table, np.float64, ndmin=2)
        if table.ndim != 2 or table.shape[1] < 2:
            raise BadInput(f"expected a prior of shape (groups, 2 or more classes), got {table.shape}")
        if not np.all(table >= 0) or not np.allclose(table.sum(axis=1), 1, rtol=0, atol=1e-6):
            raise BadInput("expected each prior to be probabilities that sum to 1, got another")
        table.flags.writeable = False
        object.__setattr__(self, "table", table)
        if self.groups is None:
            if len(table) != 1:
                raise BadInput(f"expected the group of every example for {len(table)} priors, got none")
            return
        groups = np.asarray(self.groups)
        if groups.ndim != 1 or groups.dtype.kind not in "iu":
            raise BadInput(f"expected one whole group per example, got dtype {groups.dtype} {groups.shape}")
        if groups.size and (groups.min() < 0 or groups.max() >= len(table)):
            raise BadInput(f"expected groups in 0..{len(table) - 1}, got one outside")
        object.__setattr__(self, "groups", groups.astype(np.int64))

    @classmethod
    def of_rate(cls, rates: ArrayLike) -> LabelPrior:
        """For labels of 0 or 1: the probability of a 1, one for all examples or one for each."""
        rate = np.asarray(rates, np.float64)
        table = np.stack([1 - rate, rate], axis=-1)
        return cls(table, np.arange(len(rate)) if rate.ndim else None)

    def groups_of(self, rows: NDArray[np.intp], *, examples: int) -> NDArray[np.int64]:
        """The groups of these places within the examples."""
        if self.groups is None:
            return np.zeros(len(rows), np.int64)
        if len(self.groups) != examples:
            raise BadInput(f"expected the prior's group of {examples} examples, got {len(self.groups)}")
        return self.groups[rows]

    def check_classes(self, count: int) -> None:
        if self.table.shape[1] != count:
            raise BadInput(f"expected a prior over {count} classes, got {self.table.shape[1]}")
