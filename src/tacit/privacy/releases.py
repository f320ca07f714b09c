"""What was published, as frozen records. They carry no numbers of their own opinion: accountants read them.

Each docstring defines the mechanism well enough to write an accountant from it alone. A release whose
sensitivity only has a meaning under one relation carries that relation; the others can be read under several
(see `accounting`). All of them speak of one privacy unit; `Grouped` turns a guarantee for one record into one
for a unit of several.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.budget import format_rounded_up, log_rounded_up, rounded_up
from tacit.privacy.units import Relation


class Release(ABC):
    """What a mechanism publishes, as an accountant reads it. Each kind needs a rule in `accounting.rules`; a
    stranger is refused there."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What was published, for people."""


@dataclass(frozen=True)
class FlippedLabels(Release):
    """One label of `classes`, published once: itself with probability `truth`, else uniform among the rest."""

    truth: Fraction
    classes: int = 2

    def __post_init__(self) -> None:
        expect.whole("classes", self.classes, at_least=2)
        truth = expect.probability("truth", self.truth)
        if truth * self.classes < 1:
            raise BadInput(f"expected truth >= 1/classes = 1/{self.classes}, got {self.truth}")
        object.__setattr__(self, "truth", truth)

    @property
    def epsilon(self) -> float:
        """ln(truth / lie), rounded up, where `lie` is the probability of one given other class."""
        return log_rounded_up(self.truth * (self.classes - 1) / (1 - self.truth))

    @property
    def words(self) -> str:
        return f"randomized response on {self.classes} classes, ε = {format_rounded_up(self.epsilon)} per label"


@dataclass(frozen=True)
class SplitLabels(Release):
    """At most `most` labels of one unit, each flipped once: at epsilon / n where the unit has n labels.

    The number of labels of each unit is public. This speaks of the whole unit, not of one label.
    """

    epsilon: Fraction
    most: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", expect.positive("epsilon", self.epsilon))
        expect.whole("most", self.most, at_least=1)

    @property
    def words(self) -> str:
        each = format_rounded_up(float(self.epsilon))
        return f"up to {self.most} labels per unit, flipped at ε = {each} divided by their number"


@dataclass(frozen=True)
class NoisyLabels(Release):
    """At most `most` labels of one unit, published once, by mechanisms that together are epsilon-DP.

    Any two lists of labels of the unit, any output: a probability ratio of at most e^epsilon. `manner` names
    the mechanism, for people.
    """

    epsilon: Fraction
    most: int
    manner: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", expect.positive("epsilon", self.epsilon))
        expect.whole("most", self.most, at_least=1)

    @property
    def words(self) -> str:
        each = "per label" if self.most == 1 else f"for up to {self.most} labels of a unit together"
        return f"{self.manner}, ε = {format_rounded_up(float(self.epsilon))} {each}"


@dataclass(frozen=True)
class SubsampledGaussian(Release):
    """`steps` noisy sums, each over a fresh Poisson sample of the records.

    In each step every record joins independently with `sampling_probability`; a joining record adds a vector
    of L2 norm at most C, and N(0, (noise_multiplier C)^2) is added to every coordinate. The realised sample
    size stays secret. DP-SGD is this; `sampling_probability=1` is the plain Gaussian mechanism.
    """

    noise_multiplier: float
    sampling_probability: float
    steps: int

    def __post_init__(self) -> None:
        noise = float(expect.positive("noise_multiplier", self.noise_multiplier))
        if not 1e-6 <= noise <= 1e12:
            raise BadInput(f"expected noise_multiplier between 1e-6 and 1e12, got {self.noise_multiplier!r}")
        object.__setattr__(self, "noise_multiplier", noise)
        share = float(expect.probability("sampling_probability", self.sampling_probability, one=True))
        object.__setattr__(self, "sampling_probability", share)
        expect.whole("steps", self.steps, at_least=1)

    @property
    def words(self) -> str:
        return (
            f"{self.steps} Gaussian sums over Poisson samples, noise multiplier {self.noise_multiplier:.6g}, "
            f"sampling probability {self.sampling_probability:.4g}"
        )

    def noise_stddev(self, clip_norm: float) -> float:
        """The standard deviation of each coordinate's noise, for records clipped to this norm; rounded up."""
        exact = Fraction(self.noise_multiplier) * Fraction(float(expect.positive("clip_norm", clip_norm)))
        return rounded_up(exact)


@dataclass(frozen=True)
class GaussianStatistic(Release):
    """A vector plus N(0, noise_stddev^2) on every coordinate, published once.

    `sensitivity` bounds the L2 distance between the vectors of two neighbours under `relation`.
    """

    noise_stddev: float
    sensitivity: float
    relation: Relation

    def __post_init__(self) -> None:
        for name in ("noise_stddev", "sensitivity"):
            object.__setattr__(self, name, float(expect.positive(name, getattr(self, name))))
        object.__setattr__(self, "relation", Relation(self.relation))

    @property
    def words(self) -> str:
        noise = self.noise_stddev / self.sensitivity
        return f"one Gaussian statistic, noise {noise:.6g} times its sensitivity"


@dataclass(frozen=True)
class NoisyCounts(Release):
    """Whole counts plus independent whole-numbered noise of a stated law, published once.

    `changes` bounds by how much each count can differ between two neighbours under `relation`: one entry for
    each count that can differ at all, in any order.
    """

    changes: tuple[int, ...]
    relation: Relation

    def __post_init__(self) -> None:
        if not isinstance(self.changes, tuple | list):
            raise BadInput(f"expected changes as a tuple, got {self.changes!r}")
        changes = tuple(expect.whole("changes", change, at_least=1) for change in self.changes)
        if not changes:
            raise BadInput("expected at least one entry in changes, got none")
        object.__setattr__(self, "changes", tuple(sorted(changes, reverse=True)))
        object.__setattr__(self, "relation", Relation(self.relation))


@dataclass(frozen=True)
class DiscreteLaplaceCounts(NoisyCounts):
    """`NoisyCounts` with P(x) proportional to exp(-|x| / scale)."""

    scale: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scale", expect.positive("scale", self.scale))

    @property
    def words(self) -> str:
        return f"discrete Laplace noise of scale {float(self.scale):.6g} on counts"


@dataclass(frozen=True)
class DiscreteGaussianCounts(NoisyCounts):
    """`NoisyCounts` with P(x) proportional to exp(-x^2 / (2 sigma_squared))."""

    sigma_squared: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sigma_squared", expect.positive("sigma_squared", self.sigma_squared))

    @property
    def words(self) -> str:
        return f"discrete Gaussian noise of variance parameter {float(self.sigma_squared):.6g} on counts"


@dataclass(frozen=True)
class SkellamCounts(NoisyCounts):
    """`NoisyCounts` with the difference of two independent Poisson(variance / 2)."""

    variance: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "variance", expect.positive("variance", self.variance))

    @property
    def words(self) -> str:
        return f"Skellam noise of variance {float(self.variance):.6g} on counts"


@dataclass(frozen=True)
class SelectedPartitions(Release):
    """Which values occur often enough to be named, each decided by a rule that is (epsilon, delta)-DP in one
    unit's presence; `partitions` bounds how many values two neighbours under `relation` can disagree on."""

    epsilon: Fraction
    delta: Fraction
    partitions: int
    relation: Relation

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", expect.positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", expect.probability("delta", self.delta))
        expect.whole("partitions", self.partitions, at_least=1)
        object.__setattr__(self, "relation", Relation(self.relation))

    @property
    def words(self) -> str:
        return f"partition selection over at most {self.partitions} values per unit"


@dataclass(frozen=True)
class LocalChoice(Release):
    """One choice made on a device by an epsilon-LDP mechanism: any two private inputs, any output, a
    probability ratio of at most e^epsilon."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", expect.positive("epsilon", self.epsilon))

    @property
    def words(self) -> str:
        return f"a choice made on the device, ε = {format_rounded_up(float(self.epsilon))}"


@dataclass(frozen=True)
class ShuffledChoice(Release):
    """The multiset of `cohort` local choices of one shared mechanism, in an order that tells nothing.

    All members share menu, mechanism and floors, and each is epsilon-LDP. `mechanism` holds the rows of the
    mechanism (one pmf over the menu per class of private input, exact) where they are known; without it the
    release is read as that of any epsilon-LDP mechanism.
    """

    epsilon: Fraction
    cohort: int
    mechanism: tuple[tuple[Fraction, ...], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanism", expect.several("mechanism", self.mechanism))
        object.__setattr__(self, "epsilon", expect.positive("epsilon", self.epsilon))
        expect.whole("cohort", self.cohort, at_least=1)
        object.__setattr__(self, "mechanism", tuple(tuple(row) for row in self.mechanism))

    @property
    def words(self) -> str:
        return (
            f"a choice made on the device, ε = {format_rounded_up(float(self.epsilon))}, "
            f"shuffled among {self.cohort} reports of one kind"
        )


@dataclass(frozen=True)
class Grouped(Release):
    """A release whose guarantee is for one record, read for units of at most `size` records."""

    release: Release
    size: int

    def __post_init__(self) -> None:
        expect.whole("group size", self.size, at_least=1)

    @property
    def words(self) -> str:
        return f"{self.release.words}, for units of up to {self.size} records"


@dataclass(frozen=True)
class Composed(Release):
    """Releases composed, adaptively if one likes: each of `parts`, `count` times with fresh randomness."""

    parts: tuple[Release, ...]
    count: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", expect.several("parts", self.parts, Release))
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            raise BadInput("expected at least one release to compose, got none")
        expect.whole("count", self.count, at_least=1)

    @property
    def words(self) -> str:
        together = "; ".join(part.words for part in self.parts)
        return together if self.count == 1 else f"{self.count} times: {together}"


@dataclass(frozen=True)
class Leaf:
    """A release that is not made of others, how often it was published, and for groups of how many records."""

    release: Release
    count: int
    group: int


def leaves(release: Release, count: int = 1, group: int = 1) -> Iterable[Leaf]:
    """What a release is made of, in order."""
    if isinstance(release, Composed):
        for part in release.parts:
            yield from leaves(part, count * release.count, group)
    elif isinstance(release, Grouped):
        yield from leaves(release.release, count, group * release.size)
    else:
        yield Leaf(release, count, group)
