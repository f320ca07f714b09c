"""Tokens and masked points: the same id has the same name on both sides; another id, key or kind never does."""

from __future__ import annotations

import hashlib
import hmac
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.tokens import (
    CURVE_A,
    PRIME,
    TOKEN_BYTES,
    PointMask,
    Points,
    answer_points,
    id_bytes,
    jacobi_symbol,
    match_points,
    offer_points,
    token_key,
    tokens,
)
from tacit.entropy import Simulation
from tacit.errors import BadInput, RoomRefused

SECRET = bytes(range(32))
KEY = token_key(SECRET, "spring")


def test_a_token_is_the_keyed_hash_of_its_id() -> None:
    """HMAC by its definition, RFC 2104."""
    padded = KEY + bytes(32)
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded) + b"tabc").digest()
    outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded) + inner).digest()
    (found,) = tokens(["abc"], KEY)
    assert found.tobytes() == outer[:TOKEN_BYTES]
    assert tokens([], KEY).shape == (0, TOKEN_BYTES)


@given(st.lists(st.one_of(st.text(max_size=12), st.binary(max_size=12), st.integers(-(2**63), 2**64 - 1))))
@settings(max_examples=200, deadline=None)
def test_ids_have_one_spelling_each(ids: list[Any]) -> None:
    meant = [("text", each.encode()) if isinstance(each, str) else
             ("text", each) if isinstance(each, bytes) else ("whole", each) for each in ids]  # fmt: skip
    found = id_bytes(ids)
    for one, first in zip(meant, found, strict=True):
        for two, second in zip(meant, found, strict=True):
            assert (one == two) == (first == second)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
@settings(max_examples=100, deadline=None)
def test_an_array_of_ids_is_spelled_like_a_list(ids: list[int]) -> None:
    assert id_bytes(np.array(ids, np.int64)) == id_bytes(ids)
    small = [each for each in ids if each >= 0]
    assert id_bytes(np.array(small, np.uint64)) == id_bytes(small)


def test_the_type_of_an_array_does_not_matter() -> None:
    for dtype in (np.int8, np.uint8, np.int32, np.uint64, ">i4"):
        assert (tokens(np.array([0, 7, 100], dtype), KEY) == tokens([0, 7, 100], KEY)).all()
    assert id_bytes(np.array([2**64 - 1], np.uint64)) != id_bytes(np.array([-1]))
    assert id_bytes(np.array([7, 8, 9])[::2]) == id_bytes([7, 9])


def test_a_name_and_a_secret_make_a_key() -> None:
    keys = {token_key(SECRET, "spring"), token_key(SECRET, "autumn"), token_key(SECRET[::-1], "spring")}
    assert len(keys) == 3
    made = {tokens([17], key).tobytes() for key in keys}
    assert len(made) == 3
    assert hmac.compare_digest(KEY, token_key(SECRET, "spring"))


@pytest.mark.parametrize(
    "ids",
    ["abc", b"abc", [1.5], [True], [None], [2**64], [-(2**63) - 1], np.ones((2, 2), int), np.ones(2)],
    ids=str,
)
def test_what_is_no_id_is_refused(ids: Any) -> None:
    with pytest.raises(BadInput):
        tokens(ids, KEY)


def test_short_keys_are_refused() -> None:
    with pytest.raises(BadInput, match="token key"):
        tokens([1], KEY[:-1])
    with pytest.raises(BadInput, match="secret"):
        token_key(SECRET[:-1], "spring")


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
    (name,) = id_bytes([each])
    found = (hashlib.sha256(b"tacit room point 1 " + bytes([count]) + name).digest() for count in range(256))
    return [int.from_bytes(digest, "little") % 2**255 for digest in found]


def seeded(text: str) -> tuple[PointMask, bytes]:
    secret = Simulation(text).bytes(32)
    return PointMask(secret), secret


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
    one, two = ROOM.mask_again(PLATFORM.mask(IDS)), PLATFORM.mask_again(ROOM.mask(IDS))
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
    assert [on_curve(u) for u in numbers(PLATFORM.mask_again(ROOM.mask_again(point_of(*first))))] == sides


LOW_ORDER = [
    0, 1, PRIME - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
]  # fmt: skip


def test_points_of_low_order_are_refused() -> None:
    for u in LOW_ORDER:
        assert ladder(8, u)[1] == 0 or ladder(4, u)[1] == 0  # on the curve, or on its twist
        with pytest.raises(RoomRefused) as caught:
            ROOM.mask_again(point_of(u))
        assert caught.value.reason is RoomRefusal.MALFORMED


@pytest.mark.parametrize("u", [PRIME, PRIME + 1, PRIME + 18, 2**255, 2**255 + 9, 2**256 - 1])
def test_points_in_another_spelling_are_refused(u: int) -> None:
    with pytest.raises(RoomRefused, match="one spelling"):
        ROOM.mask_again(point_of(u))
    with pytest.raises(RoomRefused, match="one spelling"):
        match_points(np.array([0]), point_of(9, u), 2)


def test_the_largest_spellings_pass() -> None:
    for u in (PRIME - 2, PRIME - 256, 2**255 - 2**16 - 1, 2**247):
        assert len(ROOM.mask_again(point_of(u))) == 1


def test_other_shapes_are_refused() -> None:
    for wrong in (np.zeros((2, 31), np.uint8), np.zeros(32, np.uint8), np.zeros((2, 32), np.int64), b"x" * 32):
        with pytest.raises(RoomRefused) as caught:
            ROOM.mask_again(wrong)  # type: ignore[arg-type]
        assert caught.value.reason is RoomRefusal.WRONG_SHAPE


def test_two_tokens_of_one_record_have_one_identity() -> None:
    """Adding the point (0, 0) of order two turns u into 1/u: another token, and the same record."""
    token = PLATFORM.mask([7])
    twin = point_of(pow(numbers(token)[0], -1, PRIME))
    assert (twin != token).any()
    assert (ROOM.mask_again(twin) == ROOM.mask_again(token)).all()


def identities(room_ids: list[int], most: int, seed: int = 1) -> dict[bytes, int]:
    made = offer_points(ROOM, room_ids, most, Simulation(seed))
    found = match_points(made.places, answer_points(PLATFORM, made.points, most), most)
    return {identity.tobytes(): each for each, identity in zip(room_ids, found, strict=True)}


@given(
    room=st.lists(st.integers(0, 12), unique=True, max_size=8),
    platform=st.lists(st.integers(0, 12), unique=True, max_size=8),
)
@settings(max_examples=25, deadline=None)
def test_the_room_finds_just_the_ids_that_both_have(room: list[int], platform: list[int]) -> None:
    table = identities(room, 9)
    found = [table.get(each.tobytes()) for each in ROOM.mask_again(PLATFORM.mask(platform))]
    assert found == [each if each in room else None for each in platform]


def test_padding_hides_how_many_ids_there_are() -> None:
    few, many = (offer_points(ROOM, list(range(size)), 30, Simulation(size)) for size in (3, 30))
    assert few.points.tobytes() != many.points.tobytes()
    assert len(few.points.tobytes()) == len(many.points.tobytes()) == 30 * 32
    for made in (few, many):
        view = numbers(made.points)  # all that the platform ever sees
        assert len(set(view)) == 30
        assert all(on_curve(u) and ladder(ORDER, u)[1] == 0 for u in view)
        # Its own masked ids are not among them, nor does its answer hit any of them.
        assert not {each.tobytes() for each in made.points} & {each.tobytes() for each in PLATFORM.mask(IDS)}
    answers = [answer_points(PLATFORM, made.points, 30).nbytes for made in (few, many)]
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
        made = offer_points(ROOM, [10, 11, 12, 13], 4, Ordered(words))
        assert (made.points[made.places] == masked).all()
        seen.add(tuple(made.places.tolist()))
    assert len(seen) == 24


def test_a_place_tells_nothing_about_the_row() -> None:
    """Where the first of two ids stands, over 200 seeds: outside with probability below 1e-9 if fair."""
    first = [offer_points(ROOM, [1, 2], 2, Simulation(seed)).places[0] for seed in range(200)]
    assert 55 < sum(first) < 145


def test_repeated_and_missing_points_are_refused() -> None:
    made = offer_points(ROOM, [1, 2], 5, Simulation(1))
    answered = answer_points(PLATFORM, made.points, 5)
    twice = answered[[0, 1, 2, 3, 0]]
    with pytest.raises(RoomRefused) as caught:
        match_points(made.places, twice, 5)
    assert caught.value.reason is RoomRefusal.REPEATED_RECORD
    with pytest.raises(RoomRefused) as caught:
        answer_points(PLATFORM, made.points[[0, 1, 2, 3, 0]], 5)
    assert caught.value.reason is RoomRefusal.REPEATED_RECORD
    for wrong in (answered[:4], np.concatenate([answered, answered[:1]])):
        with pytest.raises(RoomRefused) as caught:
            match_points(made.places, wrong, 5)
        assert caught.value.reason is RoomRefusal.WRONG_SHAPE


def test_whatever_a_platform_returns_each_label_has_one_name() -> None:
    """A platform that returns the room's own points, another order, or a mask for each point."""
    made = offer_points(ROOM, [1, 2, 3], 6, Simulation(1))
    honest = answer_points(PLATFORM, made.points, 6)
    each_its_own = np.concatenate([seeded(f"mask {i}")[0].mask_again(made.points[[i]]) for i in range(6)])
    for returned in (made.points, honest[::-1].copy(), each_its_own):
        names = match_points(made.places, returned, 6)
        assert len({name.tobytes() for name in names}) == 3


def test_an_offer_holds_each_id_once_and_no_more_than_agreed() -> None:
    with pytest.raises(BadInput, match="once"):
        offer_points(ROOM, [1, 1], 5, Simulation(1))
    with pytest.raises(BadInput, match="most_ids"):
        offer_points(ROOM, [1, 2, 3], 2, Simulation(1))
    assert len(offer_points(ROOM, [], 2, Simulation(1)).points) == 2


@given(st.integers(0, PRIME - 1))
@settings(max_examples=100, deadline=None)
def test_the_symbol_tells_squares(number: int) -> None:
    assert (jacobi_symbol(number) == 1) == square(number)


@pytest.mark.parametrize("modulus", [3, 5, 7, 11, 13, 17, 19, 23])
def test_the_symbol_is_exact_for_small_primes(modulus: int) -> None:
    squares = {n * n % modulus for n in range(1, modulus)}
    assert [jacobi_symbol(n, modulus) for n in range(modulus)] == [
        0 if n == 0 else 1 if n in squares else -1 for n in range(modulus)
    ]


def test_secrets_are_of_32_bytes_and_masks_differ() -> None:
    with pytest.raises(BadInput, match="32"):
        PointMask(b"short")
    new = PointMask.new(Simulation(1))
    assert (new.mask([1]) == PointMask.new(Simulation(1)).mask([1])).all()
    assert (new.mask([1]) != ROOM.mask([1])).any()
