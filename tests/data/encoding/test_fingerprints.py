"""Fingerprints: exact buckets, the kernel against its twin, which values are the same token, and their spread.

Every edge of the buckets on a log scale is held against whole numbers and fractions, which have no rounding.
"""

from __future__ import annotations

import json
import string
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.data.encoding.fingerprints import (
    FINEST,
    SMALL,
    Fingerprints,
    bucket_range,
    column_fingerprints,
    key_fingerprints,
    missing_fingerprint,
    real_buckets,
    value_fingerprints,
    whole_buckets,
)
from tacit.data.encoding.vocabulary import Hashing
from tacit.errors import BadInput
from tacit.kernels import fingerprints as kernels
from tacit.kernels import reference
from tacit.schema.columns import Column, Kind, Role
from tests.support.exact_tests import assert_matches_pmf
from tests.support.repository import VECTORS

TOP = 2**63 - 1
PER_DOUBLING = (1, 2, 3, 4, 5, 7, 10, 64)
Finenesses = pytest.mark.parametrize("per_doubling", PER_DOUBLING)


def step(size: int, per_doubling: int) -> int:
    """floor(per_doubling * log2(size)), exactly: the last s with size^per_doubling >= 2^s."""
    return int((size**per_doubling).bit_length() - 1)


def real_step(size: Fraction, per_doubling: int) -> int:
    """The same of a fraction."""
    power = size**per_doubling
    guess = power.numerator.bit_length() - power.denominator.bit_length()
    return guess if power >= Fraction(2) ** guess else guess - 1


def whole(values: list[int], per_doubling: int) -> list[int]:
    buckets: list[int] = whole_buckets(np.array(values, dtype=np.int64), per_doubling=per_doubling).tolist()
    return buckets


def real(values: list[float], per_doubling: int) -> list[int]:
    buckets: list[int] = real_buckets(np.array(values, dtype=np.float64), per_doubling=per_doubling).tolist()
    return buckets


def around_whole_edges(per_doubling: int) -> list[int]:
    """Both sides of each place where floor(k log2 x) changes, found by halving between powers of two."""
    edges = {1, TOP}
    for wanted in range(0, 63 * per_doubling, max(1, per_doubling // 10)):
        low, high = 0, TOP
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if step(middle, per_doubling) >= wanted else (middle, high)
        edges.add(high)
    return sorted({max(1, edge + near) for edge in edges for near in (-1, 0, 1) if edge + near <= TOP})


@Finenesses
def test_whole_numbers_change_their_bucket_at_the_exact_edges(per_doubling: int) -> None:
    """Two sizes share a bucket exactly when they share a step; buckets count the steps that hold a number."""
    sizes = sorted({*range(1, 2 * SMALL), *around_whole_edges(per_doubling)})
    buckets = whole(sizes, per_doubling)
    steps = [step(size, per_doubling) for size in sizes]
    for index in range(1, len(sizes)):
        assert (buckets[index] > buckets[index - 1]) == (steps[index] > steps[index - 1]), sizes[index]
    # From 1 without gaps while every number is looked at.
    ranks = {found: rank for rank, found in enumerate(sorted({*steps[: 2 * SMALL - 1]}), start=1)}
    assert buckets[: 2 * SMALL - 1] == [ranks[found] for found in steps[: 2 * SMALL - 1]]
    # Above that, every step holds a number, so buckets and steps rise together.
    if per_doubling <= 10:
        assert {bucket - found for bucket, found in zip(buckets, steps, strict=True) if found > 60} == {
            buckets[-1] - steps[-1]
        }


@given(
    values=st.lists(st.integers(1, TOP), min_size=2, max_size=30), per_doubling=st.sampled_from(PER_DOUBLING)
)
def test_any_whole_numbers_are_ordered_as_their_exact_steps(values: list[int], per_doubling: int) -> None:
    sizes = sorted(values)
    buckets, steps = whole(sizes, per_doubling), [step(size, per_doubling) for size in sizes]
    assert [a < b for a, b in pairwise(buckets)] == [a < b for a, b in pairwise(steps)]


@given(st.integers(1, TOP))
def test_one_bucket_a_doubling_is_the_length_in_bits(size: int) -> None:
    assert whole([size, -size], 1) == [size.bit_length(), -size.bit_length()]
    assert real([float(size)], 1) == [min(int(float(size)).bit_length(), 63) + FINEST]


@Finenesses
def test_whole_numbers_at_their_ends(per_doubling: int) -> None:
    last = bucket_range(Kind.WHOLE, per_doubling)
    assert whole([0, 1, -1, TOP, -TOP, -TOP - 1], per_doubling) == [0, 1, -1, last, -last, -last]
    assert whole([], per_doubling) == []


@given(
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20),
    per_doubling=st.sampled_from(PER_DOUBLING),
)
def test_any_reals_have_their_exact_bucket(values: list[float], per_doubling: int) -> None:
    for value, bucket in zip(values, real(values, per_doubling), strict=True):
        size = abs(Fraction(value))
        if size < Fraction(1, 2**FINEST):
            assert bucket == 0
        else:
            found = min(real_step(size, per_doubling), 63 * per_doubling - 1) + FINEST * per_doubling + 1
            assert bucket == (found if value > 0 else -found)


@Finenesses
def test_reals_change_their_bucket_at_the_exact_edges(per_doubling: int) -> None:
    """The doubles on both sides of 2^(s / k), which is rarely a double itself."""
    for wanted in range(-FINEST * per_doubling, 63 * per_doubling, max(1, per_doubling // 2)):
        near = 2.0 ** (wanted / per_doubling)
        around = [near]
        for towards in (0.0, np.inf):
            value = near
            for _ in range(3):
                value = float(np.nextafter(value, towards))
                around.append(value)
        for value, bucket in zip(around, real(around, per_doubling), strict=True):
            reached = Fraction(value) ** per_doubling >= Fraction(2) ** wanted
            assert (bucket >= wanted + FINEST * per_doubling + 1) == reached, (wanted, value)


@Finenesses
def test_reals_at_their_ends(per_doubling: int) -> None:
    last, tiny = bucket_range(Kind.REAL, per_doubling), float(np.nextafter(2.0**-FINEST, 0))
    values = [0.0, -0.0, 5e-324, -5e-324, tiny, -tiny, 2.0**-FINEST, -(2.0**-FINEST), 1.0]
    first = FINEST * per_doubling + 1
    assert real(values, per_doubling) == [0, 0, 0, 0, 0, 0, 1, -1, first]
    assert real([np.inf, -np.inf, 1e308, 2.0**63], per_doubling) == [last, -last, last, last]
    assert last == (63 + FINEST) * per_doubling


@Finenesses
def test_buckets_rise_with_the_number(per_doubling: int) -> None:
    numbers = np.unique(
        np.concatenate([np.arange(-9000, 9000), np.sinh(np.linspace(-43, 43, 5001)).astype(int)])
    )
    assert np.all(np.diff(whole_buckets(numbers, per_doubling=per_doubling)) >= 0)
    reals = np.sinh(np.linspace(-60, 60, 20_001))
    buckets = real_buckets(reals, per_doubling=per_doubling)
    assert np.all(np.diff(buckets) >= 0)
    np.testing.assert_array_equal(buckets, -real_buckets(-reals, per_doubling=per_doubling))


def test_a_mistyped_fineness_is_refused_before_it_is_computed() -> None:
    Column("age", {Role.PUBLIC}, Kind.WHOLE, buckets_per_doubling=64)
    with pytest.raises(BadInput, match="column age: expected at most 64 buckets_per_doubling, got 65"):
        Column("age", {Role.PUBLIC}, Kind.WHOLE, buckets_per_doubling=65)


TOKENS = VECTORS / "tokens_v1.json"
INT64 = st.integers(-(2**63), 2**63 - 1)
SEEDS = st.integers(0, 2**64 - 1)
ENDS = [0, 1, -1, 9, 10, -10, 99, 10**18 - 1, 10**18, -(10**18), 2**63 - 1, -(2**63), -(2**63) + 1]


def packed(texts: list[bytes]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    return offsets, np.frombuffer(b"".join(texts), dtype=np.uint8)


def by_twin(offsets: NDArray[np.int32], data: NDArray[np.uint8], seed: int) -> Fingerprints:
    out = np.empty(len(offsets) - 1, dtype=np.uint64)
    reference.text_fingerprints(offsets, data, seed, out)
    return out


def by_kernel(texts: list[bytes], seed: int = 0) -> Fingerprints:
    return kernels.text_fingerprints(*packed(texts), seed)


def category(name: str) -> Column:
    return Column(name, {Role.PUBLIC})


@given(texts=st.lists(st.binary(max_size=40), max_size=30), seed=SEEDS, cut=st.data())
def test_kernel_equals_its_twin(texts: list[bytes], seed: int, cut: st.DataObject) -> None:
    offsets, data = packed(texts)
    np.testing.assert_array_equal(
        kernels.text_fingerprints(offsets, data, seed), by_twin(offsets, data, seed), strict=True
    )
    first = cut.draw(st.integers(0, len(texts)))
    past = cut.draw(st.integers(first, len(texts)))
    part = kernels.text_fingerprints(offsets[first : past + 1], data, seed)
    np.testing.assert_array_equal(part, by_twin(offsets, data, seed)[first:past])
    np.testing.assert_array_equal(part, by_kernel(texts[first:past], seed))


@given(values=st.lists(INT64, max_size=30), seed=SEEDS)
def test_whole_numbers_are_their_decimal_digits(values: list[int], seed: int) -> None:
    numbers = np.array(values, dtype=np.int64)
    by_numbers = np.empty(len(values), dtype=np.uint64)
    reference.whole_fingerprints(numbers, seed, by_numbers)
    texts = by_kernel([str(value).encode() for value in values], seed)
    np.testing.assert_array_equal(kernels.whole_fingerprints(numbers, seed), texts, strict=True)
    np.testing.assert_array_equal(by_numbers, texts)


def test_the_ends_of_whole_numbers_are_their_digits_too() -> None:
    given_numbers = kernels.whole_fingerprints(np.array(ENDS, dtype=np.int64), 5)
    np.testing.assert_array_equal(given_numbers, by_kernel([str(value).encode() for value in ENDS], 5))


@given(rows=st.lists(st.none() | st.binary(max_size=12), min_size=1, max_size=20), cut=st.data())
def test_a_slice_of_a_column_has_the_tokens_of_its_rows(rows: list[bytes | None], cut: st.DataObject) -> None:
    array = pa.array(rows, pa.binary())
    first = cut.draw(st.integers(0, len(rows)))
    length = cut.draw(st.integers(0, len(rows) - first))
    whole = column_fingerprints(category("field"), array)
    part = column_fingerprints(category("field"), array.slice(first, length))
    np.testing.assert_array_equal(part, whole[first : first + length])


@pytest.mark.parametrize("array", [pa.nulls(3, pa.binary()), pa.array([None, None, None], pa.int64())])
def test_columns_without_any_value(array: pa.Array) -> None:
    assert set(column_fingerprints(category("field"), array)) == {missing_fingerprint("field")}
    assert len(column_fingerprints(category("field"), array[:0])) == 0


def test_empty_texts_have_no_bytes_to_point_at() -> None:
    found = column_fingerprints(category("field"), pa.array([b"", b""], pa.binary()))
    np.testing.assert_array_equal(found, value_fingerprints("field", ["", ""]))


def test_a_number_and_its_text_are_the_same_token() -> None:
    texts = column_fingerprints(
        category("field"), pa.array([str(value).encode() for value in ENDS], pa.binary())
    )
    np.testing.assert_array_equal(column_fingerprints(category("field"), pa.array(ENDS, pa.int64())), texts)
    for narrow in (pa.int8(), pa.uint8(), pa.int32(), pa.uint64()):
        np.testing.assert_array_equal(
            column_fingerprints(category("field"), pa.array([17], narrow)), value_fingerprints("field", ["17"])
        )
    with pytest.raises(BadInput, match="column field: expected whole numbers below 2\\^63, got larger"):
        column_fingerprints(category("field"), pa.array([2**63], pa.uint64()))
    with pytest.raises(BadInput, match="column field: expected texts or whole numbers, got double"):
        column_fingerprints(category("field"), pa.array([17.0]))


def test_the_same_value_in_two_fields_is_two_tokens() -> None:
    found = {name: int(value_fingerprints(name, ["17"])[0]) for name in ("C1", "C2", "C11", "c1", "", "1")}
    assert len(set(found.values())) == len(found)


@given(name=st.text(max_size=12), text=st.text(max_size=24))
def test_a_missing_value_is_no_text(name: str, text: str) -> None:
    texts = value_fingerprints(name, ["", "-1", "NULL", "nan", "0", name, text])
    assert missing_fingerprint(name) not in texts


def test_keys_of_equal_ids_are_equal_and_namespaces_are_apart() -> None:
    texts, numbers = pa.array([b"17", None, b"18"], pa.binary()), pa.array([17, None, 18], pa.int32())
    np.testing.assert_array_equal(key_fingerprints(texts, "user"), key_fingerprints(numbers, "user"))
    assert not set(key_fingerprints(texts, "user")) & set(key_fingerprints(texts, "publisher"))
    assert len(set(key_fingerprints(texts, "user"))) == 3


def test_golden_vectors() -> None:
    record = json.loads(TOKENS.read_text())
    assert record["version"] == 1
    for field in record["fields"]:
        name, column = field["field"], category(field["field"])
        assert f"{int(missing_fingerprint(name)):016x}" == field["missing"]
        texts = {text.encode(): expected for text, expected in field["texts"].items()}
        texts |= {bytes.fromhex(text): expected for text, expected in field["bytes"].items()}
        found = column_fingerprints(column, pa.array(list(texts), pa.binary()))
        assert [f"{token:016x}" for token in found.tolist()] == list(texts.values())
        numbers = pa.array([int(number) for number in field["numbers"]], pa.int64())
        found = column_fingerprints(column, numbers)
        assert [f"{token:016x}" for token in found.tolist()] == list(field["numbers"].values())


# Values as logs have them; 10^5 of each kind. Bins and parts are fixed here, before any of them is hashed.
COUNT, BINS = 100_000, 64
MADE_UP: dict[str, Callable[[int], str]] = {
    "numbers": str,
    "hex digits": lambda number: f"{number * 2_654_435_761 % 2**32:08x}",
    "urls": lambda number: f"https://example.org/{number % 100}/{number // 100:06d}/index.html",
    "differing in one letter of many": lambda number: "a" * 13 + f"{number:08d}" + "b" * 13,
    "empty ends": lambda number: f"{number}" + "\0" * (number % 5),
}
Bins = Callable[[list[bytes]], NDArray[np.int32]]


def hashed(texts: list[bytes]) -> NDArray[np.int32]:
    return Hashing(BINS).ids("field", by_kernel(texts, 77))


def by_length(texts: list[bytes]) -> NDArray[np.int32]:
    """Wrong on purpose: the low bits of the length."""
    return np.array([len(text) % BINS for text in texts], dtype=np.int32)


def by_digits(texts: list[bytes]) -> NDArray[np.int32]:
    """Wrong on purpose, and close to right: the sum of all bytes."""
    return np.array([sum(text) % BINS for text in texts], dtype=np.int32)


def assert_spread(bins: Bins, kind: str) -> None:
    counts = Counter(bins([MADE_UP[kind](number).encode() for number in range(COUNT)]).tolist())
    assert_matches_pmf(counts, dict.fromkeys(range(BINS), 1 / BINS))


@pytest.mark.parametrize("kind", MADE_UP)
def test_bins_are_spread_evenly(kind: str) -> None:
    assert_spread(hashed, kind)


@pytest.mark.parametrize("wrong", [by_length, by_digits])
@pytest.mark.parametrize("kind", ["numbers", "urls"])
def test_a_careless_hash_is_caught(wrong: Bins, kind: str) -> None:
    with pytest.raises(AssertionError):
        assert_spread(wrong, kind)


def test_bins_of_different_fields_are_independent() -> None:
    texts = [str(number) for number in range(COUNT)]
    pairs = Hashing(8).ids("a", value_fingerprints("a", texts)) * 8 + Hashing(8).ids(
        "b", value_fingerprints("b", texts)
    )
    assert_matches_pmf(Counter(pairs.tolist()), dict.fromkeys(range(64), 1 / 64))


LETTERS = string.ascii_letters + string.digits + "-_"


def one_multiplication_a_word(texts: list[bytes]) -> Fingerprints:
    """Wrong on purpose: a word's change cancels against a change of the next word."""
    words = np.frombuffer(b"".join(texts), dtype="<u8").reshape(len(texts), -1).astype(np.uint64)
    state = np.full(len(texts), 12345, dtype=np.uint64)
    for word in words.T:
        state = (state ^ word) * np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(29)
    return state


def ids_that_differ_in(places: tuple[int, int, int]) -> list[bytes]:
    text = list("session8-user13-event16x")
    found = []
    for letters in product(LETTERS, repeat=3):
        for place, letter in zip(places, letters, strict=True):
            text[place] = letter
        found.append("".join(text).encode())
    return found


# With 64 even bits, the chance that any two of 2^18 ids share a fingerprint is below 2^-29 < 2e-9 a case.
@pytest.mark.parametrize("places", [(7, 12, 15), (0, 8, 16), (3, 11, 15), (15, 20, 23)])
def test_ids_that_differ_in_a_few_places_never_meet(places: tuple[int, int, int]) -> None:
    texts = ids_that_differ_in(places)
    assert len(np.unique(by_kernel(texts, 12345))) == len(texts)


def test_a_weaker_mixing_would_let_them_meet() -> None:
    texts = ids_that_differ_in((7, 12, 15))
    assert len(np.unique(one_multiplication_a_word(texts))) < 0.95 * len(texts)


FALLBACK = """
import sys, warnings
sys.modules["tacit.kernels._tokens"] = None  # as if they had never been compiled
sys.modules["tacit.kernels._normals"] = None
import numpy as np
from tacit.kernels import fingerprints as kernels
from tacit.data.encoding.fingerprints import value_fingerprints
from tacit.entropy import Simulation
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    texts = [value_fingerprints("field", ["", "17", "x" * 40]) for _ in range(2)]
    numbers = kernels.whole_fingerprints(np.arange(-5, 5), 3)
    Simulation(9).normal(10)
assert [str(w.message)[:45] for w in caught] == ["tacit was installed without its compiled kern"], caught
sys.stdout.buffer.write(texts[1].tobytes() + numbers.tobytes())
"""


def test_without_compiled_kernels_the_twins_serve_with_one_warning() -> None:
    done = subprocess.run([sys.executable, "-c", FALLBACK], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found = np.frombuffer(done.stdout, dtype=np.uint64)
    np.testing.assert_array_equal(found[:3], value_fingerprints("field", ["", "17", "x" * 40]))
    np.testing.assert_array_equal(found[3:], kernels.whole_fingerprints(np.arange(-5, 5), 3))


WRONG_OFFSETS = {
    "falling": [0, 3, 2],
    "before the data": [-1, 1],
    "beyond the data": [0, 9],
    "beyond it in the middle": [0, 9, 4],
}


@pytest.mark.parametrize("name", WRONG_OFFSETS)
def test_wrong_offsets_are_refused(name: str) -> None:
    offsets, data = np.array(WRONG_OFFSETS[name], dtype=np.int32), np.zeros(8, dtype=np.uint8)
    with pytest.raises(BadInput, match="expected rising offsets within the data, got others"):
        kernels.text_fingerprints(offsets, data, 1)
    with pytest.raises(ValueError, match="expected rising offsets within the data"):
        by_twin(offsets, data, 1)


def test_wrong_arrays_are_refused() -> None:
    data = np.zeros(8, dtype=np.uint8)
    with pytest.raises(BadInput, match="expected one offset more than texts, got none"):
        kernels.text_fingerprints(np.empty(0, dtype=np.int32), data, 1)
    with pytest.raises(BadInput, match="expected offsets as a flat, contiguous array of int32, got int64"):
        kernels.text_fingerprints(np.array([0, 1]), data, 1)
    with pytest.raises(BadInput, match="expected offsets as a flat"):
        kernels.text_fingerprints(np.zeros(6, dtype=np.int32)[::2], data, 1)
    with pytest.raises(BadInput, match="expected bytes as a flat, contiguous array of uint8, got int8"):
        kernels.text_fingerprints(np.zeros(2, dtype=np.int32), data.view(np.int8), 1)
    with pytest.raises(BadInput, match="expected whole numbers as a flat, contiguous array of int64"):
        kernels.whole_fingerprints(np.zeros((2, 2), dtype=np.int64), 1)


def test_the_compiled_kernel_checks_sizes_itself() -> None:
    compiled = pytest.importorskip("tacit.kernels._tokens")
    with pytest.raises(ValueError, match="one offset more than texts"):
        compiled.text_fingerprints(
            np.zeros(2, dtype=np.int32), np.zeros(8, dtype=np.uint8), 1, np.zeros(2, dtype=np.uint64)
        )
    with pytest.raises(ValueError, match="as many values as fingerprints"):
        compiled.whole_fingerprints(np.zeros(2, dtype=np.int64), 1, np.zeros(3, dtype=np.uint64))


@pytest.mark.parametrize("kind", [Kind.WHOLE, Kind.HOUR, Kind.WEEKDAY])
def test_real_numbers_are_no_whole_ones(kind: Kind) -> None:
    with pytest.raises(BadInput, match="column field: expected whole numbers, got double"):
        column_fingerprints(Column("field", {Role.PUBLIC}, kind), pa.array([1.5]))
