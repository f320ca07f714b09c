"""Which connection gives its place up for a newcomer, without a socket."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tacit.services.connection_limits import ConnectionPlaces, networks_of


@dataclass(eq=False)
class One:
    """A connection that lets us wait since a moment, or that we are at work for (None)."""

    named: str
    since: float | None
    busy: bool = True  # in the middle of something, not idle
    is_beyond: bool = False

    @property
    def address(self) -> tuple[str, ...]:
        return tuple(self.named.split("/"))  # "a/b/c": c within b within a

    def keeps_waiting_since(self) -> tuple[bool, float] | None:
        return None if self.since is None else (self.busy, self.since)


def entered(places: ConnectionPlaces[One], newcomer: One) -> One | None:
    """The one that leaves; it has left when this returns."""
    found = places.enter(newcomer)
    newcomer.is_beyond = found.beyond
    if found.leaves is not None:
        places.leave(found.leaves)
    return found.leaves


def test_the_address_that_holds_the_most_gives_one_up() -> None:
    places: ConnectionPlaces[One] = ConnectionPlaces(5, None, 2, fair=1)
    many = [One("a", since) for since in (3.0, 1.0, 2.0)]
    few = [One("b", 0.0), One("c", 0.5)]
    for each in (*many, *few):
        assert entered(places, each) is None
    assert entered(places, One("d", 9.0)) is many[1], "not the longest of the busiest address"
    assert entered(places, One("e", 9.0)) is many[2]
    assert len(places) == 5


def test_nobody_pays_for_neighbours_within_a_fair_share() -> None:
    """Strangers with an address each, and three that share one: who came first leaves."""
    places: ConnectionPlaces[One] = ConnectionPlaces(10, 8, 2, fair=3)
    strangers = [One(f"s{number}", float(number)) for number in range(7)]
    shared = [One("shared", 7.0 + number) for number in range(3)]
    for each in (*strangers, *shared):
        assert entered(places, each) is None
    for number, stranger in enumerate(strangers):
        assert entered(places, One(f"t{number}", 20.0 + number)) is stranger


def test_above_a_fair_share_only_those_who_let_us_wait_count() -> None:
    places: ConnectionPlaces[One] = ConnectionPlaces(9, None, 2, fair=2)
    working = [One("busy", None) for _ in range(4)]
    slow = [One("busy", 5.0), *(One("slow", since) for since in (3.0, 4.0, 6.0)), One("one", 1.0)]
    for each in (*working, *slow):
        entered(places, each)
    assert entered(places, One("new", 9.0)) is slow[1], "not of the address that lets us wait the most"
    assert entered(places, One("more", 9.0)) is slow[-1], "nobody is above a fair share any more"


def test_a_network_with_many_addresses_counts_as_one_too() -> None:
    """A network's owner has as many addresses as it likes: those of other networks lose nothing to it."""
    places: ConnectionPlaces[One] = ConnectionPlaces(12, None, 2, fair=2)
    other = [One("x/1/1", 0.0), One("192.0.2.7", 0.5)]
    wide = [One(f"w/{number}/{number}", 1.0 + number) for number in range(7)]
    narrow = [One("w/n/n", 20.0 + number) for number in range(3)]
    for each in (*other, *wide, *narrow):
        entered(places, each)
    assert entered(places, One("y/1/1", 30.0)) is narrow[0], "within the network, not above its fair share"
    assert entered(places, One("z/1/1", 31.0)) is wide[0]


def test_who_was_found_behind_and_went_on_since_stays() -> None:
    """Who leaves next is found for several newcomers at once, and looked at again when its turn has come."""
    places: ConnectionPlaces[One] = ConnectionPlaces(64, None, 4, fair=8)
    held = [One(f"{number}", float(number)) for number in range(64)]
    for each in held:
        entered(places, each)
    assert entered(places, One("a", 100.0)) is held[0]
    held[1].since, held[2].since = 101.0, None
    places.leave(held[3])
    assert entered(places, One("b", 102.0)) is None, "one has left by itself"
    assert entered(places, One("c", 103.0)) is held[4]
    assert [entered(places, One(f"d{number}", 104.0)) for number in range(59)] == held[5:]


def test_idle_ones_leave_first_and_those_at_work_never() -> None:
    places: ConnectionPlaces[One] = ConnectionPlaces(10, 3, 2, fair=8)
    working, idle, slow = One("a", None), One("a", 5.0, busy=False), One("a", 1.0)
    for each in (working, idle, slow):
        assert entered(places, each) is None
    assert entered(places, One("b", 9.0)) is None, "another address has places"
    assert entered(places, One("a", None)) is idle
    assert entered(places, One("a", None)) is slow
    assert entered(places, last := One("a", 9.0)) is None
    assert last.is_beyond


def test_beyond_the_limit_there_is_a_reserve_and_no_more() -> None:
    places: ConnectionPlaces[One] = ConnectionPlaces(2, None, 2, fair=8)
    for number in range(2):
        entered(places, One(f"{number}", None))
    beyond = [One("z", float(number)) for number in range(4)]
    assert [entered(places, each) for each in beyond] == [None, None, beyond[0], beyond[1]]
    assert len(places) == 4
    for each in (*beyond, *beyond):  # and who has left may leave again
        places.leave(each)
    assert len(places) == 2


def test_where_the_busiest_is_at_work_somebody_else_leaves() -> None:
    places: ConnectionPlaces[One] = ConnectionPlaces(3, None, 1, fair=1)
    others = [One("a", None), One("a", None), One("b", 1.0)]
    for each in others:
        entered(places, each)
    assert entered(places, One("c", 9.0)) is others[2]


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (("192.0.2.7", 80), ("192.0.2.7",)),
        (
            ("2001:db8:1:1234:3::4", 80, 0, 0),
            ("2001:db8:1::/48", "2001:db8:1:1200::/56", "2001:db8:1:1234::/64"),
        ),
        (("fe80::1%eth0", 80, 0, 3), ("fe80::/48", "fe80::/56", "fe80::/64")),
        (("::ffff:192.0.2.7", 80, 0, 0), ("192.0.2.7",)),
        (None, ()),
        ("/run/some.socket", ()),
    ],
)
def test_an_address_counts_as_its_networks(peer: object, address: tuple[str, ...]) -> None:
    assert networks_of(peer) == address
