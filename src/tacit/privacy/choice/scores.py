"""Private scores brought into a public range, which is what noise can then hide."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from tacit import expect
from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit.privacy.choice.choice import check_scores


def scale_scores(scores: Floats) -> Floats:
    """(s - min) / (max - min) along the last axis, in [0, 1]; all zeros where max = min.

    Source: Laro et al. 2023 (arXiv 2308.03735), eq. 3.
    """
    halves = scores / 2  # so that no difference of two doubles overflows
    least, most = halves.min(axis=-1, keepdims=True), halves.max(axis=-1, keepdims=True)
    width = most - least
    within: Floats = np.clip((halves - least) / np.where(width > 0, width, 1.0), 0.0, 1.0)
    return within


def clip_scores(scores: Floats, public: Floats, bound: float) -> Floats:
    """Each score kept within `bound` of its public score. `bound` is half the sensitivity Delta.

    Source: Laro et al. 2023 (arXiv 2308.03735), eq. 4.
    """
    return np.clip(scores, public - bound, public + bound)


class ScoreRule(Protocol):
    """Turns private scores into ones between `low` and `high`, which are public, one per candidate.

    All corners of that box matter to the guarantee, and no input may leave it.
    """

    @property
    def candidates(self) -> int: ...

    @property
    def sensitivity(self) -> float:
        """The most by which private data can move one score."""

    @property
    def low(self) -> Floats: ...

    @property
    def high(self) -> Floats: ...

    def __call__(self, scores: ArrayLike) -> Floats: ...


@dataclass(frozen=True)
class Scaled:
    """Scores relative to the request's own best and worst: sensitivity 1, and no public score is used."""

    candidates: int

    def __post_init__(self) -> None:
        expect.whole("candidates", self.candidates, at_least=1)

    @property
    def sensitivity(self) -> float:
        return 1.0

    @property
    def low(self) -> Floats:
        return np.zeros(self.candidates)

    @property
    def high(self) -> Floats:
        return np.ones(self.candidates)

    def __call__(self, scores: ArrayLike) -> Floats:
        return scale_scores(check_scores(scores, self.candidates))


@dataclass(frozen=True)
class Clipped:
    """Scores within `bound` of the public ones, which are public and so is the bound: sensitivity 2 `bound`."""

    public: tuple[float, ...]
    bound: float

    def __post_init__(self) -> None:
        expect.several("public", self.public)
        expect.positive("bound", self.bound)
        if not len(self.public):
            raise BadInput("expected at least one public score, got none")
        object.__setattr__(self, "bound", float(self.bound))
        public = check_scores(self.public, len(self.public), axes=1)
        object.__setattr__(self, "public", tuple(public.tolist()))
        if not (np.all(self.high > public) and np.all(np.isfinite(self.high - self.low))):
            raise BadInput("expected a bound that a double can add to the public scores, got another")

    @property
    def candidates(self) -> int:
        return len(self.public)

    @cached_property
    def sensitivity(self) -> float:
        return float((self.high - self.low).max())  # 2 bound, give or take how the ends were rounded

    @cached_property
    def low(self) -> Floats:
        return np.asarray(self.public) - self.bound

    @cached_property
    def high(self) -> Floats:
        return np.asarray(self.public) + self.bound

    def __call__(self, scores: ArrayLike) -> Floats:
        return clip_scores(check_scores(scores, self.candidates), np.asarray(self.public), self.bound)
