"""Who gives its place up for a newcomer, without a socket."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tacit.services.places import Places, neighbourhood


@dataclass(eq=False)
class One:
    """A connection that lets us wait since a moment, or that we are at work for (None)."""

    address: str
    since: float | None
    busy: bool = True  # in the middle of something, not idle
    is_beyond: bool = False

    def keeps_waiting_since(self) -> tuple[bool, float] | None:
        return None if self.since is None else (self.busy, self.since)


def entered(places: Places[One], newcomer: One) -> One | None:
    """Who leaves; it has left when this returns."""
    found = places.enter(newcomer)
    newcomer.is_beyond = found.beyond
    if found.leaves is not None:
        places.leave(found.leaves)
    return found.leaves


def test_the_address_that_holds_the_most_gives_one_up() -> None:
    places: Places[One] = Places(5, None, 2)
    many = [One("a", since) for since in (3.0, 1.0, 2.0)]
    few = [One("b", 0.0), One("c", 0.5)]
    for each in (*many, *few):
        assert entered(places, each) is None
    assert entered(places, One("d", 9.0)) is many[1], "not the longest of the busiest address"
    assert entered(places, One("d", 9.0)) is many[2]
    assert len(places) == 5


def test_idle_ones_leave_first_and_those_at_work_never() -> None:
    places: Places[One] = Places(10, 3, 2)
    working, idle, slow = One("a", None), One("a", 5.0, busy=False), One("a", 1.0)
    for each in (working, idle, slow):
        assert entered(places, each) is None
    assert entered(places, One("b", 9.0)) is None, "another address has places"
    assert entered(places, One("a", None)) is idle
    assert entered(places, One("a", None)) is slow
    assert entered(places, last := One("a", 9.0)) is None
    assert last.is_beyond


def test_beyond_the_limit_there_is_a_reserve_and_no_more() -> None:
    places: Places[One] = Places(2, None, 2)
    for number in range(2):
        entered(places, One(f"{number}", None))
    beyond = [One("z", float(number)) for number in range(4)]
    assert [entered(places, each) for each in beyond] == [None, None, beyond[0], beyond[1]]
    assert len(places) == 4
    for each in (*beyond, *beyond):  # and who has left may leave again
        places.leave(each)
    assert len(places) == 2


def test_where_the_busiest_is_at_work_somebody_else_leaves() -> None:
    places: Places[One] = Places(3, None, 1)
    others = [One("a", None), One("a", None), One("b", 1.0)]
    for each in others:
        entered(places, each)
    assert entered(places, One("c", 9.0)) is others[2]


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (("192.0.2.7", 80), "192.0.2.7"),
        (("2001:db8:1:2:3::4", 80, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 80, 0, 3), "fe80::/64"),
        (("::ffff:192.0.2.7", 80, 0, 0), "192.0.2.7"),
        (None, ""),
        ("/run/some.socket", ""),
    ],
)
def test_an_address_counts_as_its_network(peer: object, address: str) -> None:
    assert neighbourhood(peer) == address
