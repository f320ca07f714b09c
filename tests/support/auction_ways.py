"""The ways of running the loops of auctions and choices, for tests to try each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tacit.kernels import auctions, choices, reference_auctions, reference_choices

Ways = pytest.mark.parametrize("way", ["wide", "narrow", "twin"])

WITHOUT_WIDTH = {"shown", "take_scores", "add_by_code", "all_within", "choose_by_pmf"}


class _Narrow:
    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)
        return function if name in WITHOUT_WIDTH else partial(function, wide=False)


@contextmanager
def served(way: str) -> Iterator[None]:
    """Within this, the wrappers run the compiled loops of either width, or the twins."""
    with pytest.MonkeyPatch.context() as patch:
        for wrapper, name, twin in (
            (auctions, "_auctions", reference_auctions),
            (choices, "_choices", reference_choices),
        ):
            module = twin if way == "twin" else pytest.importorskip(f"tacit.kernels.{name}")
            served_module = _Narrow(module) if way == "narrow" else module
            patch.setattr(wrapper, "_kernel", lambda served_module=served_module: served_module)
        yield
