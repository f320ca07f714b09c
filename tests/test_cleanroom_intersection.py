"""The intersection, checked by whole-number arithmetic of its own: a ladder and Euler's criterion."""

from __future__ import annotations

import hashlib
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.cleanroom.wire.intersection import CURVE_A, PRIME, Mask, Points, answer, jacobi, matched, offer
from tacit.cleanroom.wire.refusals import Refusal
from tacit.cleanroom.wire.tokens import spelled
from tacit.entropy import Simulation
from tacit.errors import BadInput, RoomRefused

ORDER = 2**252 + 27742317777372353535851937790883648493  # of the prime subgroup; the curve has 8 times as many


def ladder(scalar: int, u: int) -> tuple[int, int]:
    """(X : Z) of scalar times the point with this u; Z = 0 is the neutral element. Montgomery 1987."""
    a, b = (1, 0), (u, 1)
    for bit in bin(scalar)[2:]:
        total = (
            pow(a[0] * b[0] - a[1] * b[1], 2, PRIME),
            u * pow(a[0] * b[1] - a[1] * b[0], 2, PRIME) % PRIME,
        )
        chosen = b if bit == "1" else a
        plus, minus = pow(chosen[0] + chosen[1], 2, PRIME), pow(chosen[0] - chosen[1], 2, PRIME)
        four = (plus - minus) % PRIME
        doubled = (plus * minus % PRIME, four * (minus + (CURVE_A + 2) * pow(4, -1, PRIME) * four) % PRIME)
        a, b = (total, doubled) if bit == "1" else (doubled, total)
    return a


def times(scalar: int, u: int) -> int:
    x, z = ladder(scalar, u)
    return x * pow(z, -1, PRIME) % PRIME


def clamped(secret: bytes) -> int:
    """The scalar that X25519 makes of 32 bytes: RFC 7748, section 5."""
    return int.from_bytes(secret, "little") & ~7 & (2**255 - 1) | 2**254


def square(number: int) -> bool:
    return pow(number, (PRIME - 1) // 2, PRIME) == 1


def on_curve(u: int) -> bool:
    return square(u**3 + CURVE_A * u**2 + u)


def numbers(points: Points) -> list[int]:
    return [int.from_bytes(point.tobytes(), "little") for point in points]


def point_of(*us: int) -> Points:
    return np.array([list(u.to_bytes(32, "little")) for u in us], np.uint8)


def hashes(each: int) -> list[int]:
    (name,) = spelled([each])
    found = (hashlib.sha256(b"tacit room point 1 " + bytes([count]) + name).digest() for count in range(256))
    return [int.from_bytes(digest, "little") % 2**255 for digest in found]


def seeded(text: str) -> tuple[Mask, bytes]:
    secret = Simulation(text).bytes(32)
    return Mask(secret), secret


ROOM, ROOM_SECRET = seeded("room")
PLATFORM, PLATFORM_SECRET = seeded("platform")
IDS = np.arange(40)


def test_the_ladder_is_that_of_the_standard() -> None:
    """RFC 7748, section 5.2, first vector."""
    scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    u = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    product = bytes.fromhex("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552")
    assert times(clamped(scalar), int.from_bytes(u, "little")) == int.from_bytes(product, "little")


def test_a_mask_multiplies_the_first_hash_on_the_curve() -> None:
    for each, masked in zip(IDS[:10].tolist(), numbers(ROOM.mask(IDS[:10])), strict=True):
        u = next(u for u in hashes(each) if on_curve(u))
        assert masked == times(clamped(ROOM_SECRET), u)


def test_masks_commute() -> None:
    one, two = ROOM.again(PLATFORM.mask(IDS)), PLATFORM.again(ROOM.mask(IDS))
    assert (one == two).all()
    scalar = clamped(ROOM_SECRET) * clamped(PLATFORM_SECRET)
    u = next(u for u in hashes(3) if on_curve(u))
    assert numbers(one)[3] == times(scalar, u)


def test_masked_points_are_on_the_curve_in_the_prime_subgroup() -> None:
    padding = ROOM.padding(10, Simulation(5))
    for u in numbers(np.concatenate([ROOM.mask(IDS[:10]), padding])):
        assert on_curve(u)
        assert ladder(ORDER, u)[1] == 0  # ORDER times it is the neutral element
        assert u != 0
    # Hashes themselves are all over the curve: that masks clear the factor of 8 is what puts them there.
    before = [next(u for u in hashes(each) if on_curve(u)) for each in range(20)]
    assert any(ladder(ORDER, u)[1] for u in before)


def test_a_hash_that_is_not_checked_would_leave_a_bit_in_sight() -> None:
    """The twin: the side of the first hash, curve or twist, is the same before and after any mask."""
    first = [hashes(each)[0] for each in range(40)]
    sides = [on_curve(u) for u in first]
    assert 8 < sum(sides) < 32  # half of all; outside with probability 2e-4, and the hashes are fixed
    assert [on_curve(u) for u in numbers(PLATFORM.again(ROOM.again(point_of(*first))))] == sides


LOW_ORDER = [
    0, 1, PRIME - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
]  # fmt: skip


def test_points_of_low_order_are_refused() -> None:
    for u in LOW_ORDER:
        assert ladder(8, u)[1] == 0 or ladder(4, u)[1] == 0  # on the curve, or on its twist
        with pytest.raises(RoomRefused) as caught:
            ROOM.again(point_of(u))
        assert caught.value.reason is Refusal.MALFORMED


@pytest.mark.parametrize("u", [PRIME, PRIME + 1, PRIME + 18, 2**255, 2**255 + 9, 2**256 - 1])
def test_points_in_another_spelling_are_refused(u: int) -> None:
    with pytest.raises(RoomRefused, match="one spelling"):
        ROOM.again(point_of(u))
    with pytest.raises(RoomRefused, match="one spelling"):
        matched(np.array([0]), point_of(9, u), 2)


def test_the_largest_spellings_pass() -> None:
    for u in (PRIME - 2, PRIME - 256, 2**255 - 2**16 - 1, 2**247):
        assert len(ROOM.again(point_of(u))) == 1


def test_other_shapes_are_refused() -> None:
    for wrong in (np.zeros((2, 31), np.uint8), np.zeros(32, np.uint8), np.zeros((2, 32), np.int64), b"x" * 32):
        with pytest.raises(RoomRefused) as caught:
            ROOM.again(wrong)  # type: ignore[arg-type]
        assert caught.value.reason is Refusal.WRONG_SHAPE


def test_two_tokens_of_one_record_have_one_identity() -> None:
    """Adding the point (0, 0) of order two turns u into 1/u: another token, and the same record."""
    token = PLATFORM.mask([7])
    twin = point_of(pow(numbers(token)[0], -1, PRIME))
    assert (twin != token).any()
    assert (ROOM.again(twin) == ROOM.again(token)).all()


def identities(room_ids: list[int], most: int, seed: int = 1) -> dict[bytes, int]:
    made = offer(ROOM, room_ids, most, Simulation(seed))
    found = matched(made.places, answer(PLATFORM, made.points, most), most)
    return {identity.tobytes(): each for each, identity in zip(room_ids, found, strict=True)}


@given(
    room=st.lists(st.integers(0, 12), unique=True, max_size=8),
    platform=st.lists(st.integers(0, 12), unique=True, max_size=8),
)
@settings(max_examples=25, deadline=None)
def test_the_room_finds_just_the_ids_that_both_have(room: list[int], platform: list[int]) -> None:
    table = identities(room, 9)
    found = [table.get(each.tobytes()) for each in ROOM.again(PLATFORM.mask(platform))]
    assert found == [each if each in room else None for each in platform]


def test_padding_hides_how_many_ids_there_are() -> None:
    few, many = (offer(ROOM, list(range(size)), 30, Simulation(size)) for size in (3, 30))
    assert few.points.tobytes() != many.points.tobytes()
    assert len(few.points.tobytes()) == len(many.points.tobytes()) == 30 * 32
    for made in (few, many):
        view = numbers(made.points)  # all that the platform ever sees
        assert len(set(view)) == 30
        assert all(on_curve(u) and ladder(ORDER, u)[1] == 0 for u in view)
        # Its own masked ids are not among them, nor does its answer hit any of them.
        assert not {each.tobytes() for each in made.points} & {each.tobytes() for each in PLATFORM.mask(IDS)}
    answers = [answer(PLATFORM, made.points, 30).nbytes for made in (few, many)]
    assert answers == [30 * 32, 30 * 32]


class Ordered(Simulation):
    """A source whose words are given in advance."""

    def __init__(self, words: tuple[int, ...]) -> None:
        super().__init__("ordered")
        self.given = words

    def words(self, n: int) -> NDArray[np.uint64]:
        assert n == len(self.given)
        return np.array(self.given, np.uint64)


def test_every_order_comes_from_as_many_draws() -> None:
    seen = set()
    masked = ROOM.mask([10, 11, 12, 13])
    for words in permutations(range(4)):
        made = offer(ROOM, [10, 11, 12, 13], 4, Ordered(words))
        assert (made.points[made.places] == masked).all()
        seen.add(tuple(made.places.tolist()))
    assert len(seen) == 24


def test_a_place_tells_nothing_about_the_row() -> None:
    """Where the first of two ids stands, over 200 seeds: outside with probability below 1e-9 if fair."""
    first = [offer(ROOM, [1, 2], 2, Simulation(seed)).places[0] for seed in range(200)]
    assert 55 < sum(first) < 145


def test_repeated_and_missing_points_are_refused() -> None:
    made = offer(ROOM, [1, 2], 5, Simulation(1))
    answered = answer(PLATFORM, made.points, 5)
    twice = answered[[0, 1, 2, 3, 0]]
    with pytest.raises(RoomRefused) as caught:
        matched(made.places, twice, 5)
    assert caught.value.reason is Refusal.REPEATED_RECORD
    with pytest.raises(RoomRefused) as caught:
        answer(PLATFORM, made.points[[0, 1, 2, 3, 0]], 5)
    assert caught.value.reason is Refusal.REPEATED_RECORD
    for wrong in (answered[:4], np.concatenate([answered, answered[:1]])):
        with pytest.raises(RoomRefused) as caught:
            matched(made.places, wrong, 5)
        assert caught.value.reason is Refusal.WRONG_SHAPE


def test_whatever_a_platform_returns_each_label_has_one_name() -> None:
    """A platform that returns the room's own points, another order, or a mask for each point."""
    made = offer(ROOM, [1, 2, 3], 6, Simulation(1))
    honest = answer(PLATFORM, made.points, 6)
    each_its_own = np.concatenate([seeded(f"mask {i}")[0].again(made.points[[i]]) for i in range(6)])
    for returned in (made.points, honest[::-1].copy(), each_its_own):
        names = matched(made.places, returned, 6)
        assert len({name.tobytes() for name in names}) == 3


def test_an_offer_holds_each_id_once_and_no_more_than_agreed() -> None:
    with pytest.raises(BadInput, match="once"):
        offer(ROOM, [1, 1], 5, Simulation(1))
    with pytest.raises(BadInput, match="most_ids"):
        offer(ROOM, [1, 2, 3], 2, Simulation(1))
    assert len(offer(ROOM, [], 2, Simulation(1)).points) == 2


@given(st.integers(0, PRIME - 1))
@settings(max_examples=100, deadline=None)
def test_the_symbol_tells_squares(number: int) -> None:
    assert (jacobi(number) == 1) == square(number)


@pytest.mark.parametrize("modulus", [3, 5, 7, 11, 13, 17, 19, 23])
def test_the_symbol_is_exact_for_small_primes(modulus: int) -> None:
    squares = {n * n % modulus for n in range(1, modulus)}
    assert [jacobi(n, modulus) for n in range(modulus)] == [
        0 if n == 0 else 1 if n in squares else -1 for n in range(modulus)
    ]


def test_secrets_are_of_32_bytes_and_masks_differ() -> None:
    with pytest.raises(BadInput, match="32"):
        Mask(b"short")
    new = Mask.new(Simulation(1))
    assert (new.mask([1]) == Mask.new(Simulation(1)).mask([1])).all()
    assert (new.mask([1]) != ROOM.mask([1])).any()
