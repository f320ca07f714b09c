"""The ways of running the loops of training, for tests to try each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tacit.kernels import reference_training as twins
from tacit.kernels import training

Ways = pytest.mark.parametrize("way", ["wide", "narrow", "twin"])

U = 2.0**-24
"""Half a unit in the last place of a float32: a sum of n products is off by at most about n U times the sum of
their absolute values. Tolerances are made of it."""


class Narrow:
    """A compiled module, told to do without wide instructions."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)
        return function if name == "touch" else partial(function, wide=False)


@contextmanager
def served(way: str) -> Iterator[None]:
    """Within this, `training` runs the compiled loops of either width, or the twins."""

    def kernel(name: str) -> Any:
        if way == "twin":
            return twins
        module = pytest.importorskip(f"tacit.kernels._{name}")
        return module if way == "wide" else Narrow(module)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "_kernel", kernel)
        yield
