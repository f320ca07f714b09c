"""Decides which connection is closed when there are too many: pure, without a socket.

There is a limit in all, and one per address. A newcomer always gets a place if some connection only keeps us
waiting. Where its own address has too many, one of those is closed. Where there are too many in all, it is one
of the address with the most waiting connections, if that is more than a fair share; otherwise any. So an
attacker with a thousand connections pushes out itself, and attackers with a thousand addresses push out each
other, not clients that share an address with a few. For IPv6 networks count too, the widest first: their owner
may pick any address in them.

Among the candidates the one that is furthest behind is closed: idle ones first, then the one that has sent (or
read) too little for the time it had. A connection that is being worked on is never closed.

Where all are being worked on, the newcomer is let in beyond the limit, up to a small reserve, to be told to
come again.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Generic, Protocol, TypeVar

LEAST_BYTES_PER_SECOND = 500
"""A connection that sends or reads as fast as that is never further behind than one that has just come."""

# What a site, a household and a machine are given; the last counts as an address here.
IPV6_NETWORK_BITS = (48, 56, 64)
FOUND_AT_ONCE = 16  # those that leave next are found together, up to one of every 16 places

Address = tuple[str, ...]
"""The networks that a connection counts for, the widest first; what is limited is the last."""

WaitingSince = tuple[bool, float]


class Connection(Protocol):
    """A connection, as far as its place is concerned."""

    @property
    def address(self) -> Address: ...

    @property
    def is_beyond(self) -> bool:
        """Whether it was let in beyond the limit."""

    def keeps_waiting_since(self) -> WaitingSince | None:
        """None while we are at work for it. Otherwise whether it is in the middle of something, and since when
        it lets us wait, a byte counting as the time that it should take at most."""


AnyConnection = TypeVar("AnyConnection", bound=Connection)


@dataclass(frozen=True)
class Admission(Generic[AnyConnection]):
    """What follows from a newcomer: which one leaves for it, if any, and whether it is beyond the limit."""

    leaves: AnyConnection | None
    beyond: bool


@dataclass
class ConnectionPlaces(Generic[AnyConnection]):
    """The connections that are open, and which of them leaves for a newcomer.

    There are `most` places in all, `most_per_address` (None: no such limit), and some in `reserve`. An address
    of which at most `fair` connections keep us waiting is treated as if each of them had an address of its own.
    """

    most: int
    most_per_address: int | None
    reserve: int
    fair: int
    _by_address: dict[Address, set[AnyConnection]] = field(default_factory=dict)
    _count: int = 0
    _next: list[tuple[WaitingSince, AnyConnection]] = field(default_factory=list)  # the last leaves next

    def __len__(self) -> int:
        return self._count

    def __contains__(self, holder: AnyConnection) -> bool:
        return holder in self._by_address.get(holder.address, ())

    def enter(self, newcomer: AnyConnection) -> Admission[AnyConnection]:
        here = self._by_address.setdefault(newcomer.address, set())
        crowded = self.most_per_address is not None and len(here) >= self.most_per_address
        full = self._count >= self.most
        leaves = self._which_leaves(here, crowded=crowded) if crowded or full else None
        here.add(newcomer)
        self._count += 1
        return Admission(leaves, beyond=(crowded or full) and leaves is None)

    def leave(self, holder: AnyConnection) -> None:
        """Again: nothing."""
        if holder in self:
            here = self._by_address[holder.address]
            here.remove(holder)
            self._count -= 1
            if not here:
                del self._by_address[holder.address]

    def _which_leaves(self, here: set[AnyConnection], *, crowded: bool) -> AnyConnection | None:
        used = self._count >= self.most + self.reserve or (
            self.most_per_address is not None and len(here) >= self.most_per_address + self.reserve
        )
        if crowded:
            waiting = waiting_connections(here, beyond_too=used)
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
        waiting, surplus = self._above_fair_share(waiting_connections(everybody, beyond_too=beyond_too))
        count = max(1, min(surplus, self.most // FOUND_AT_ONCE))
        self._next = nsmallest(count, waiting, key=_since)[::-1]

    def _above_fair_share(
        self, waiting: list[tuple[WaitingSince, AnyConnection]]
    ) -> tuple[list[tuple[WaitingSince, AnyConnection]], int]:
        """Those of the network that has more than its share of them, and how many more; else all of them. The
        same again within that network."""
        surplus = len(waiting)
        for tier in range(1, len(IPV6_NETWORK_BITS) + 1):
            groups: defaultdict[Address, list[tuple[WaitingSince, AnyConnection]]] = defaultdict(list)
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


def waiting_connections(
    holders: Iterable[AnyConnection], *, beyond_too: bool
) -> list[tuple[WaitingSince, AnyConnection]]:
    """Those of them that let us wait, and since when; none where we are at work for all."""
    return [
        (since, each)
        for each in holders
        if (beyond_too or not each.is_beyond) and (since := each.keeps_waiting_since()) is not None
    ]


def _since(pair: tuple[WaitingSince, AnyConnection]) -> WaitingSince:
    return pair[0]


def networks_of(peer: Any) -> Address:
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


def is_loopback(host: str) -> bool:
    """Whether a host, by name or address, is this very machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
