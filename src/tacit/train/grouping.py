"""Whose examples these are: the units of a promise, by public keys alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.allocation import unit_ids
from tacit.privacy.units import Unit, UnitKind, Window
from tacit.train.examples import Examples


def groups_of(examples: Examples, unit: Unit, now: int | None = None) -> NDArray[np.int64] | None:
    """Each example's unit and window as 0, 1, ..., in the order in which they first appear; None where every
    example is its own. Other names for the same people give the same numbers; `now` refuses open windows."""
    if unit.kind is UnitKind.IMPRESSION:
        return None
    columns = {name: examples.key(name) for name in examples.keys}
    ids = unit_ids(unit, columns, public=examples.public_keys, now=now)
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[inverse]


def units_in(examples: Examples, unit: Unit) -> int:
    """How many units (and windows) the promise is made to."""
    groups = groups_of(examples, unit)
    if groups is None or not len(groups):
        return len(examples)
    return int(groups.max()) + 1


def windows_in(examples: Examples, window: Window) -> list[int]:
    """The time windows that the examples lie in; times are public here, or planning would have refused."""
    times = np.asarray(examples.key("time"), np.int64)
    found: list[int] = np.unique((times - window.origin) // window.seconds).tolist()
    return found
