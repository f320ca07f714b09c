"""The shapes in which mechanisms are handed randomness. `tacit.entropy` makes them; tests enumerate them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

UniformBelow = Callable[[int], int]
"""`uniform_below(n)` is exactly uniform on 0..n-1, for any whole n >= 1."""

WordSource = Callable[[int], NDArray[np.uint64]]
"""`words(n)` is n independent words, each exactly uniform on 0..2^64-1."""


class Source(Protocol):
    """Everything random that a mechanism may ask for. `tacit.entropy` has the two kinds."""

    @property
    def fit_for_release(self) -> bool:
        """Whether noise from here may leave: a seeded simulation's can be subtracted again."""

    def uniform_below(self, n: int) -> int: ...
    def words(self, n: int) -> NDArray[np.uint64]: ...
    def bytes(self, n: int) -> bytes: ...
    def normal(
        self,
        shape: int | Iterable[int] | None = None,
        dtype: DTypeLike = ...,
        out: NDArray[Any] | None = None,
        scale: float = 1.0,
    ) -> NDArray[Any]: ...

    def add_normal(self, out: NDArray[Any], scale: float) -> None: ...
