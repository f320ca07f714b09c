"""The menu that the server sends for a disclosed context: ads, what they pay, and their rates there and below.

>>> node = Node((1,), ("Food",))
>>> cafe = Node((0,), ("Coffee",))
>>> Menu(node, [7, 9], [500_000, 400_000], [0.02, 0.03], {cafe: {9: 0.1}}).size_bytes()
60
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.deliver.protocol.prices import BillingEvent
from tacit.errors import BadInput
from tacit.kernels.auctions import MOST_MICROS
from tacit.schema.contexts.hierarchy import Node, is_coarser

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_AD = 2**63 - 1  # what an impression can hold: one that it cannot would fail only once it was drawn
BYTES_AN_AD = 8 + 8 + 4  # its number, its micros and a rate
BYTES_A_FINER_RATE = 2 + 4  # its place among the ads, and the rate


@dataclass(frozen=True, eq=False)
class Menu:
    """Ads for one node, each with one price: a price that followed the finer context would tell it.

    node    the node that was disclosed
    ads     numbers >= 0, each once; the bill knows them as campaigns
    micros  what an ad pays for a click, whole; 0 for an ad that does not want this node
    rates   the public chance of a click on each ad at `node`
    finer   rates at nodes below, of some ads: where the advertiser does not want a node, send 0
    charged what the price is for: a click, or an impression at its public rate

    Everything is checked here and at once, finer rates of all nodes included. A refusal that came only on
    devices whose own node has a bad rate would tell the server where they are.
    """

    node: Node
    ads: tuple[int, ...]
    micros: Integers
    rates: Floats
    finer: Mapping[Node, Mapping[int, float]] = field(repr=False)
    charged: BillingEvent

    def __init__(
        self,
        node: Node,
        ads: ArrayLike,
        micros: ArrayLike,
        rates: ArrayLike,
        finer: Mapping[Node, Mapping[int, float]] | None = None,
        charged: BillingEvent | str = BillingEvent.CLICK,
    ) -> None:
        numbers = _ads(node, ads)
        values: dict[str, Any] = {
            "node": node,
            "ads": numbers,
            "micros": _micros(node, numbers, micros),
            "rates": _rates(node, numbers, rates),
            "finer": dict(finer or {}),
            "charged": BillingEvent(charged),
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)
        _ = self._tables  # read now, so that a bad entry is refused now

    def __len__(self) -> int:
        return len(self.ads)

    @cached_property
    def place(self) -> dict[int, int]:
        """Where each ad is in `ads`."""
        return {ad: place for place, ad in enumerate(self.ads)}

    def rates_along(self, nodes: tuple[Node, ...]) -> Floats:
        """Each ad's rate at the last of these nodes that has one for it, else the public rate; (ads,)."""
        rates = self.rates.copy()
        for node in nodes:
            found = self._tables.get(node)
            if found is not None:
                places, values = found
                rates[places] = values
        return rates

    def size_bytes(self, creative_bytes: int = 0) -> int:
        """About what this takes on the wire, with `creative_bytes` to show each ad; rates as 32 bits."""
        each = BYTES_AN_AD + expect.whole("creative_bytes", creative_bytes, at_least=0)
        finer = sum(_bytes_of(node) + BYTES_A_FINER_RATE * len(table) for node, table in self.finer.items())
        return _bytes_of(self.node) + each * len(self) + finer

    @cached_property
    def _tables(self) -> dict[Node, tuple[Integers, Floats]]:
        """`finer` by places in `ads`, as arrays."""
        for node in self.finer:
            if len(node.levels) != len(self.node.levels) or not is_coarser(self.node.levels, node.levels):
                raise BadInput(f"finer rates: expected nodes below {self.node}, got {node}")
            if node.levels == self.node.levels:
                raise BadInput(f"finer rates: expected nodes below {self.node}, got {node} beside it")
        tables = list(self.finer.values())
        place = self.place
        places = np.fromiter((place.get(ad, -1) for table in tables for ad in table), np.int64)
        values = _doubles("finer rates", list(chain.from_iterable(table.values() for table in tables)))
        if values.shape != places.shape:
            raise BadInput("finer rates: expected one number an ad, got others")
        ends = np.cumsum([len(table) for table in tables], dtype=np.int64)
        for wrong, expected in (
            (places < 0, "rates of ads that are sent, got another ad"),
            (~((values >= 0) & (values <= 1)), "a rate in [0, 1], got NaN or a value outside"),
        ):
            if wrong.any():
                at = int(np.searchsorted(ends, np.argmax(wrong), side="right"))
                raise BadInput(f"finer rates, node {list(self.finer)[at]}: expected {expected}")
        cuts = list(zip(np.split(places, ends[:-1]), np.split(values, ends[:-1]), strict=True))
        return dict(zip(self.finer, cuts if tables else [], strict=True))


def _ads(node: Node, ads: ArrayLike) -> tuple[int, ...]:
    numbers = np.asarray(ads)
    whole = numbers.ndim == 1 and numbers.size and numbers.dtype.kind in "iu"
    if not whole or not 0 <= int(numbers.min()) <= int(numbers.max()) <= MOST_AD:
        raise BadInput(f"node {node}: expected at least one ad, as whole numbers in 0..2^63-1, got others")
    found: tuple[int, ...] = tuple(numbers.tolist())
    if len(set(found)) < len(found):
        twice = next(ad for ad in found if found.count(ad) > 1)
        raise BadInput(f"node {node}: expected each ad once, got ad {twice} twice")
    return found


def _micros(node: Node, ads: tuple[int, ...], micros: ArrayLike) -> Integers:
    given = np.asarray(micros)
    if given.shape != (len(ads),) or given.dtype.kind not in "iu":
        raise BadInput(
            f"node {node}: expected whole micros for each of {len(ads)} ads, got {given.dtype} {given.shape}"
        )
    wrong = (given < 0) | (given > MOST_MICROS)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise BadInput(f"node {node}, ad {ads[at]}: expected micros in 0..2^53, got {int(given[at])}")
    whole = given.astype(np.int64)
    whole.setflags(write=False)
    return whole


def _rates(node: Node, ads: tuple[int, ...], rates: ArrayLike) -> Floats:
    given = _doubles(f"node {node}: rates", rates)
    if given.shape != (len(ads),):
        raise BadInput(f"node {node}: expected a rate for each of {len(ads)} ads, got shape {given.shape}")
    wrong = ~((given >= 0) & (given <= 1))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise BadInput(f"node {node}, ad {ads[at]}: expected a rate in [0, 1], got {float(given[at])!r}")
    given.setflags(write=False)
    return given


def _doubles(name: str, values: ArrayLike) -> Floats:
    """All as doubles, or none: texts that could be read as numbers, and lists of them, are refused."""
    try:
        given = np.array(values)  # a copy
    except ValueError:
        raise BadInput(f"{name}: expected numbers, got lists") from None
    if given.size and given.dtype.kind not in "fiu":
        raise BadInput(f"{name}: expected numbers, got another kind")
    return given.astype(np.float64)


def _bytes_of(node: Node) -> int:
    """A byte for each level, and the values as text with one byte between them."""
    return sum(1 + 1 + len(value.encode()) for value in node.values)
