"""Who may hold a connection, and who gives its place up: decided from what is known of each, without a socket.

There are so many places in all, and so many for one address. A newcomer always gets one if anybody can be found
who only lets us wait: of the newcomer's own address where that has too many, of the address that holds the most
where there are too many in all. So a stranger with a thousand connections pushes out itself, and nobody else.
Within an address the one that is furthest behind leaves: idle ones first, then whoever has sent (or read) too
little for the time it had. One that we are at work for never leaves.

Where all are at work the newcomer is let in beyond the limit, up to a small reserve, to be told to come again.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

LEAST_BYTES_PER_SECOND = 500
"""Whoever sends or reads as fast as that is never further behind than one that has just come."""

IPV6_NETWORK_BITS = 64  # what one household or one machine is given, at least


class Holder(Protocol):
    """A connection, as far as its place is concerned."""

    @property
    def address(self) -> str: ...

    @property
    def is_beyond(self) -> bool:
        """Whether it was let in beyond the limit."""

    def keeps_waiting_since(self) -> tuple[bool, float] | None:
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
    """So many in all, so many an address (None: no such limit), and some in reserve."""

    most: int
    most_an_address: int | None
    reserve: int
    _by_address: dict[str, set[AnyHolder]] = field(default_factory=dict)
    _count: int = 0

    def __len__(self) -> int:
        return self._count

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
        here = self._by_address.get(holder.address, set())
        if holder in here:
            here.remove(holder)
            self._count -= 1
            if not here:
                del self._by_address[holder.address]

    def _who_leaves(self, here: set[AnyHolder], *, crowded: bool) -> AnyHolder | None:
        used = self._count >= self.most + self.reserve or (
            self.most_an_address is not None and len(here) >= self.most_an_address + self.reserve
        )
        if crowded:
            return furthest_behind(here, beyond_too=used)
        busiest = furthest_behind(max(self._by_address.values(), key=len), beyond_too=used)
        if busiest is not None:
            return busiest
        return furthest_behind(set().union(*self._by_address.values()), beyond_too=used)


def furthest_behind(holders: set[AnyHolder], *, beyond_too: bool) -> AnyHolder | None:
    """Who of them lets us wait the longest; None where we are at work for all."""
    waiting = [
        (since, each)
        for each in holders
        if (beyond_too or not each.is_beyond) and (since := each.keeps_waiting_since()) is not None
    ]
    return min(waiting, key=lambda pair: pair[0])[1] if waiting else None


def neighbourhood(peer: Any) -> str:
    """The address that a connection counts for: of IPv6 its network, within which one may pick any."""
    try:
        address = ipaddress.ip_address(peer[0].partition("%")[0])
    except (TypeError, IndexError, AttributeError, ValueError):
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return str(ipaddress.ip_network((address, IPV6_NETWORK_BITS), strict=False))
        address = address.ipv4_mapped
    return str(address)
