"""Who may hold a connection, and who gives its place up: decided from what is known of each, without a socket.

There are so many places in all, and so many for one address. A newcomer always gets one if anybody can be
found who only lets us wait. Where its own address has too many it is one of those. Where there are too many in
all it is one of the address that has the most who let us wait, if that is more than a fair share; else one of
all. So a stranger with a thousand connections pushes out itself, and strangers with a thousand addresses push
out each other, not those who share an address with a few. Of IPv6 a network counts too, the widest first: its
owner may pick any address in it.

Among those it may be, the one that is furthest behind leaves: idle ones first, then whoever has sent (or read)
too little for the time it had. One that we are at work for never leaves.

Where all are at work the newcomer is let in beyond the limit, up to a small reserve, to be told to come again.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Generic, Protocol, TypeVar

LEAST_BYTES_PER_SECOND = 500
"""Whoever sends or reads as fast as that is never further behind than one that has just come."""

IPV6_NETWORK_BITS = (
    48,
    56,
    64,
)  # what a site, a household and a machine are given; the last is an address here
FOUND_AT_ONCE = 16  # who leaves next is found for one in so many places at once

Address = tuple[str, ...]
"""The networks that a connection counts for, the widest first; what is limited is the last."""

Since = tuple[bool, float]


class Holder(Protocol):
    """A connection, as far as its place is concerned."""

    @property
    def address(self) -> Address: ...

    @property
    def is_beyond(self) -> bool:
        """Whether it was let in beyond the limit."""

    def keeps_waiting_since(self) -> Since | None:
        """None while we are at work for it. Otherwise whether it is in the middle of something, and since when
        it lets us wait, a byte counting as the time that it should take at most."""


AnyHolder = TypeVar("AnyHolder", bound=Holder)


@dataclass(frozen=True)
class Entered(Generic[AnyHolder]):
    """What follows from a newcomer: who leaves for it, if anybody, and whether it is beyond the limit."""

    leaves: AnyHolder | None
    beyond: bool


@dataclass
class Places(Generic[AnyHolder]):
    """So many in all, so many an address (None: no such limit), some in reserve, and what is `fair` in any
    case: an address of which no more than that keep us waiting is treated as if each had one of its own."""

    most: int
    most_an_address: int | None
    reserve: int
    fair: int
    _by_address: dict[Address, set[AnyHolder]] = field(default_factory=dict)
    _count: int = 0
    _next: list[tuple[Since, AnyHolder]] = field(default_factory=list)  # who leaves next is the last

    def __len__(self) -> int:
        return self._count

    def __contains__(self, holder: AnyHolder) -> bool:
        return holder in self._by_address.get(holder.address, ())

    def enter(self, newcomer: AnyHolder) -> Entered[AnyHolder]:
        here = self._by_address.setdefault(newcomer.address, set())
        crowded = self.most_an_address is not None and len(here) >= self.most_an_address
        full = self._count >= self.most
        leaves = self._who_leaves(here, crowded=crowded) if crowded or full else None
        here.add(newcomer)
        self._count += 1
        return Entered(leaves, beyond=(crowded or full) and leaves is None)

    def leave(self, holder: AnyHolder) -> None:
        """Again: nothing."""
        if holder in self:
            here = self._by_address[holder.address]
            here.remove(holder)
            self._count -= 1
            if not here:
                del self._by_address[holder.address]

    def _who_leaves(self, here: set[AnyHolder], *, crowded: bool) -> AnyHolder | None:
        used = self._count >= self.most + self.reserve or (
            self.most_an_address is not None and len(here) >= self.most_an_address + self.reserve
        )
        if crowded:
            waiting = who_waits(here, beyond_too=used)
            return min(waiting, key=_since)[1] if waiting else None
        while self._next:
            since, found = self._next.pop()
            if found in self and found.keeps_waiting_since() == since and (used or not found.is_beyond):
                return found  # the others went on, or away
        self._find_next(beyond_too=used)
        return self._next.pop()[1] if self._next else None

    def _find_next(self, *, beyond_too: bool) -> None:
        """Look at all once for several newcomers: a storm brings hundreds a second."""
        everybody = (each for here in self._by_address.values() for each in here)
        waiting, surplus = self._above_fair_share(who_waits(everybody, beyond_too=beyond_too))
        count = max(1, min(surplus, self.most // FOUND_AT_ONCE))
        self._next = nsmallest(count, waiting, key=_since)[::-1]

    def _above_fair_share(
        self, waiting: list[tuple[Since, AnyHolder]]
    ) -> tuple[list[tuple[Since, AnyHolder]], int]:
        """Those of the network that has more than its share of them, and how many more; else all of them. The
        same again within that network."""
        surplus = len(waiting)
        for tier in range(1, len(IPV6_NETWORK_BITS) + 1):
            groups: defaultdict[Address, list[tuple[Since, AnyHolder]]] = defaultdict(list)
            for pair in waiting:
                groups[pair[1].address[:tier]].append(pair)
            if len(groups) < 2:
                continue
            busiest = max(groups.values(), key=len)
            share = max(self.fair, len(waiting) // len(groups))
            if len(busiest) <= share:
                break
            waiting, surplus = busiest, min(surplus, len(busiest) - share)
        return waiting, surplus


def who_waits(holders: Iterable[AnyHolder], *, beyond_too: bool) -> list[tuple[Since, AnyHolder]]:
    """Who of them lets us wait, and since when; none where we are at work for all."""
    return [
        (since, each)
        for each in holders
        if (beyond_too or not each.is_beyond) and (since := each.keeps_waiting_since()) is not None
    ]


def _since(pair: tuple[Since, AnyHolder]) -> Since:
    return pair[0]


def neighbourhood(peer: Any) -> Address:
    """The networks that a connection counts for: of IPv6 several, within which one may pick any address."""
    try:
        address = ipaddress.ip_address(peer[0].partition("%")[0])
    except (TypeError, IndexError, AttributeError, ValueError):
        return ()
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return tuple(str(ipaddress.ip_network((address, bits), strict=False)) for bits in IPV6_NETWORK_BITS)
        address = address.ipv4_mapped
    return (str(address),)
