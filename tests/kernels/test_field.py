"""Compiled field arithmetic against its twin, bit for bit; and in tiny fields every proof there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.arrays import Words
from tacit.errors import BadInput
from tacit.kernels import field, reference_field
from tacit.kernels.field import PRIME, ProofShape, balances, evaluations, fill_quotients, weighted_sums

WAYS = ("compiled", "twin")
Row = tuple[int, ...]
EDGES = [0, 1, 2, 2**32 - 2, 2**32 - 1, 2**32, 2**63, PRIME - 2**32, PRIME - 2, PRIME - 1]
elements = st.sampled_from(EDGES) | st.integers(0, PRIME - 1)


@contextmanager
def served(way: str) -> Iterator[None]:
    """Within this, the compiled loops serve, or their twin."""
    module: Any = reference_field if way == "twin" else pytest.importorskip("tacit.kernels._field")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(field, "_kernel", lambda: module)
        yield


@st.composite
def shapes(draw: st.DrawFn) -> ProofShape:
    most, size = draw(st.integers(1, 5)), draw(st.sampled_from([2, 4, 8, 16]))
    wires = draw(st.integers(1, 5))
    return ProofShape(draw(st.integers(1, wires * (size - 1))), most, wires, size)


@st.composite
def rows(draw: st.DrawFn) -> tuple[ProofShape, Words, Words, Words]:
    """Good digits with random values, challenges and points, of one to three reports with as many proofs."""
    shape, reports, proofs = draw(shapes()), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))

    def drawn(*sizes: int) -> Words:
        some = rng.integers(0, PRIME, sizes, dtype=np.uint64)
        edges = rng.random(sizes) < draw(st.sampled_from([0.0, 0.5]))
        some[edges] = rng.choice(np.array(EDGES, np.uint64), edges.sum())
        return some

    table = drawn(reports, shape.width(proofs))
    table[:, : shape.digits] = rng.integers(0, shape.most + 1, (reports, shape.digits))
    points = drawn(reports, proofs)
    points[np.isin(points, np.array(reference_field.domain(shape.size), np.uint64))] = 2**40 + 7
    return shape, table, drawn(reports, proofs), points


@settings(max_examples=60)
@given(rows())
def test_both_ways_find_the_same_and_good_digits_balance(case: tuple[ProofShape, Words, Words, Words]) -> None:
    shape, table, challenges, points = case
    found = []
    for way in WAYS:
        with served(way):
            own = table.copy()
            fill_quotients(own, challenges, shape)
            values = evaluations(own, points, shape)
            left = balances(values, challenges, shape.most)
            shifted = balances((values + np.uint64(1)) % np.uint64(PRIME), challenges, shape.most)
        assert not left.any()
        found.append((own, values, shifted))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=25)
@given(data=st.data(), rows=st.integers(0, 3), length=st.integers(1, 40), sums=st.integers(1, 3))
def test_weighted_sums_are_those_of_whole_numbers(
    way: str, data: st.DataObject, rows: int, length: int, sums: int
) -> None:
    numbers = st.lists(elements, min_size=length * sums + 2, max_size=length * sums + 2)
    table = [data.draw(numbers) for _ in range(rows)]
    weights = data.draw(st.lists(elements, min_size=length, max_size=length))
    with served(way):
        shaped = np.array(table, np.uint64).reshape(rows, length * sums + 2)
        found = weighted_sums(shaped, np.array(weights, np.uint64), sums)
    for row, got in zip(table, found.tolist(), strict=True):
        parts = [row[i * length : (i + 1) * length] for i in range(sums)]
        assert got == [sum(a * b for a, b in zip(part, weights, strict=True)) % PRIME for part in parts]


@pytest.mark.parametrize("way", WAYS)
def test_all_products_of_edges(way: str) -> None:
    near = [abs(base + step) % PRIME for base in (*EDGES, 2**31, 2**33, 2**62) for step in range(-3, 4)]
    with served(way):
        for weight in near:
            found = weighted_sums(np.array([near], np.uint64), np.array([weight], np.uint64), len(near))
            assert found[0].tolist() == [each * weight % PRIME for each in near]


@pytest.mark.parametrize("way", WAYS)
def test_shares_are_evaluated_like_what_they_share(way: str) -> None:
    shape = ProofShape(11, 2, 3, 8)
    rng = np.random.default_rng(7)
    whole, share = (rng.integers(0, PRIME, (2, shape.width(2)), dtype=np.uint64) for _ in range(2))
    points = rng.integers(2**40, PRIME, (2, 2), dtype=np.uint64)
    other = ((whole.astype(object) - share.astype(object)) % PRIME).astype(np.uint64)
    with served(way):
        values = [evaluations(table, points, shape).astype(object) for table in (whole, share, other)]
    assert ((values[1] + values[2] - values[0]) % PRIME == 0).all()


def test_a_large_proof_both_ways() -> None:
    shape = ProofShape(1010, 1, 33, 32)
    rng = np.random.default_rng(3)
    table = rng.integers(0, PRIME, (1, shape.width(1)), dtype=np.uint64)
    table[:, : shape.digits] = rng.integers(0, 2, (1, shape.digits))
    challenges = rng.integers(0, PRIME, (1, 1), dtype=np.uint64)
    found = []
    for way in WAYS:
        with served(way):
            own = table.copy()
            fill_quotients(own, challenges, shape)
            found.append(own)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("way", WAYS)
def test_refusals(way: str) -> None:
    shape = ProofShape(3, 1, 1, 4)
    table = np.zeros((1, shape.width(1)), np.uint64)
    one = np.full((1, 1), 5, np.uint64)
    beyond = np.full((1, 1), PRIME, np.uint64)
    large = table.copy()
    large[0, 2] = 2
    with served(way):
        with pytest.raises(BadInput, match="points outside of the domain"):
            evaluations(table, np.array([[reference_field.domain(4)[1]]], np.uint64), shape)
        with pytest.raises(BadInput, match="elements below the prime"):
            evaluations(table, beyond, shape)
        with pytest.raises(BadInput, match="elements below the prime"):
            evaluations(np.full_like(table, PRIME), one, shape)
        with pytest.raises(BadInput, match=r"digits in 0\.\.1"):
            fill_quotients(large, one, shape)
        with pytest.raises(BadInput, match="expected table"):
            fill_quotients(table[:, 1:].copy(), one, shape)
        with pytest.raises(BadInput, match="can be written"):
            fill_quotients(np.broadcast_to(table, table.shape), one, shape)
        with pytest.raises(BadInput, match="expected values"):
            balances(np.zeros((1, 2, 3), np.uint64), one, 1)
        with pytest.raises(BadInput, match="rows of 12"):
            weighted_sums(table, np.ones(12, np.uint64), 1)
    for wrong in ((0, 1, 1, 2), (1, 0, 1, 2), (1, 1, 0, 2), (1, 1, 1, 1), (2, 1, 1, 3), (4, 1, 1, 4)):
        with pytest.raises(BadInput):
            ProofShape(*wrong)


# In a field of 5, 7 or 17 elements nothing is left to chance: every seed, mask, proof and point is looked at.


@dataclass(frozen=True)
class Tiny:
    """A proof's shape in a field of few elements."""

    shape: ProofShape
    prime: int
    generator: int

    @property
    def spelled(self) -> tuple[int, int, int, int]:
        return self.shape.digits, self.shape.most, self.shape.wires, self.shape.size

    @property
    def points(self) -> list[int]:
        """All outside of the domain."""
        return [point for point in range(self.prime) if pow(point, self.shape.size, self.prime) != 1]

    def proved(self, digits: Row, seeds: Iterable[Row], challenge: int) -> list[Row]:
        """Rows with a good proof, one for each choice of random values."""
        table = np.array([(*digits, *each, *[0] * self.shape.quotient) for each in seeds], np.int64)
        challenges = np.full((len(table), 1), challenge)
        reference_field.fill_quotients(table, challenges, *self.spelled, self.prime, self.generator)
        return [tuple(row) for row in table.tolist()]

    def messages(self, table: list[Row], point: int) -> list[Row]:
        """What is told of each row at this point: its wires, then what its quotient gives."""
        out = np.zeros((len(table), self.shape.wires + 1), np.int64)
        points, field = np.full((len(table), 1), point), (self.prime, self.generator)
        assert reference_field.evaluations(np.array(table, np.int64), points, *self.spelled, out, *field)
        return [tuple(row) for row in out.tolist()]

    def holds(self, table: list[Row], point: int, challenge: int) -> NDArray[np.bool_]:
        left = np.ones(len(table), np.int64)
        messages, challenges = np.array(self.messages(table, point)), np.full(len(table), challenge)
        reference_field.balances(messages, challenges, self.shape.most, left, self.prime)
        zero: NDArray[np.bool_] = left == 0
        return zero


@pytest.mark.parametrize(
    "tiny",
    [
        Tiny(ProofShape(3, 1, 1, 4), 17, 3),
        Tiny(ProofShape(4, 2, 2, 4), 17, 3),
        Tiny(ProofShape(1, 1, 1, 2), 5, 2),
    ],
    ids=["bits", "digits on two wires", "one bit"],
)
def test_both_messages_together_have_one_law_whatever_the_digits(tiny: Tiny) -> None:
    """Over all random values, at points outside of the domain. Without random values the digits show."""
    seeds = list(product(range(tiny.prime), repeat=tiny.shape.wires))
    vectors = list(product(range(tiny.shape.most + 1), repeat=tiny.shape.digits))
    vectors = vectors if len(vectors) <= 8 else [vectors[0], vectors[1], vectors[-1]]
    tables = [tiny.proved(digits, seeds, 2) for digits in vectors]
    bare = [tiny.proved(digits, [(0,) * tiny.shape.wires], 2) for digits in vectors]
    for point in tiny.points if tiny.shape.wires == 1 else tiny.points[:2]:
        laws = [Counter(tiny.messages(table, point)) for table in tables]
        assert all(law == laws[0] for law in laws)
        assert Counter(message[:-1] for message in laws[0].elements()) == Counter(seeds)  # uniform
        assert len({tiny.messages(table, point)[0] for table in bare}) > 1


def test_one_party_sees_the_same_law_whatever_the_digit() -> None:
    """Its share and the other's message, over all masks and random values, in the field of 5 elements."""
    tiny = Tiny(ProofShape(1, 1, 1, 2), 5, 2)
    every = list(product(range(5), repeat=tiny.shape.width(1)))
    for point in tiny.points:
        told = dict(zip(every, tiny.messages(every, point), strict=True))
        laws = []
        for digit in (0, 1):
            seen: Counter[tuple[Row, Row]] = Counter()
            for row, share in product(tiny.proved((digit,), product(range(5)), 3), every):
                other = tuple((a - b) % 5 for a, b in zip(row, share, strict=True))
                seen[share, told[other]] += 1
            laws.append(seen)
        assert laws[0] == laws[1]
        assert len(laws[0]) == 5 ** (tiny.shape.width(1) + 1)


def test_no_proof_of_a_bad_digit_holds_at_more_points_than_stated() -> None:
    """Every digit, random value and quotient in the field of 7: at most the degree, and somewhere just that."""
    tiny = Tiny(ProofShape(1, 1, 1, 2), 7, 3)
    every = list(product(range(2, 7), *[range(7)] * (1 + tiny.shape.quotient)))
    accepted = sum(tiny.holds(every, point, 4).astype(np.int64) for point in tiny.points)
    assert np.max(accepted) == (tiny.shape.most + 1) * (tiny.shape.size - 1)
    good = tiny.proved((1,), product(range(7)), 4)
    assert all(tiny.holds(good, point, 4).all() for point in tiny.points)


def test_no_bad_digits_are_hidden_by_more_challenges_than_stated() -> None:
    """Three wires in the field of 7: of a bad place at most two challenges see nothing, of a good one all."""
    for digits in product(range(7), repeat=3):
        values = np.array([(*digits, 0)] * 7, np.int64)
        left = np.ones(7, np.int64)
        reference_field.balances(values, np.arange(7), 1, left, 7)
        blind = int((left == 0).sum())
        assert blind == 7 if max(digits) <= 1 else blind <= 2
