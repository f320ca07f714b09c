"""Column values as 64-bit fingerprints: categories by hash, numbers by bucket, times by hour or weekday.

A fingerprint covers the field's vocabulary name and the value, so that 17 in two fields gives two tokens; a
missing value of a field has a fingerprint of its own. Numbers fall into buckets on a log scale, a fixed
number per doubling, with edges that are the same on every machine:

>>> whole_buckets(np.array([-2, -1, 0, 1, 2, 3, 4, 7, 8]), per_doubling=1).tolist()
[-2, -1, 0, 1, 2, 2, 3, 3, 4]
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.kernels.fingerprints import text_fingerprints, whole_fingerprints
from tacit.schema.columns import Column, Kind

LARGEST_WHOLE = 2**63 - 1
FINEST = 30  # a real number below 2^-30 counts as 0
SMALL = 2**12  # most counts are below it, and are looked up


def whole_buckets(values: NDArray[np.int64], *, per_doubling: int) -> NDArray[np.int64]:
    """The buckets of whole numbers: 0 for 0; b >= 1 for the b-th range from 1 upwards; mirrored below 0."""
    sizes = np.abs(np.maximum(values, -LARGEST_WHOLE))
    buckets = _small_buckets(per_doubling)[np.minimum(sizes, SMALL - 1)]
    large = np.flatnonzero(sizes >= SMALL)
    buckets[large] = np.searchsorted(_whole_edges(per_doubling), sizes[large], side="right")
    return _sign_buckets(buckets, values < 0)


def real_buckets(values: NDArray[np.float64], *, per_doubling: int) -> NDArray[np.int64]:
    """The buckets of real numbers, from 2^-30 upwards; smaller sizes are 0. No bucket is meant for NaN."""
    return _sign_buckets(np.searchsorted(_real_edges(per_doubling), np.abs(values), side="right"), values < 0)


def bucket_range(kind: Kind, per_doubling: int) -> int:
    """The highest bucket; the lowest is its negative."""
    return len(bucket_edges(kind, per_doubling))


def bucket_edges(kind: Kind, per_doubling: int) -> NDArray[Any]:
    """The sizes at which buckets begin, rising: a number's bucket is how many of them its size reaches."""
    return _whole_edges(per_doubling) if kind is Kind.WHOLE else _real_edges(per_doubling)


def _sign_buckets(buckets: NDArray[np.intp], negative: NDArray[np.bool_]) -> NDArray[np.int64]:
    signed: NDArray[np.int64] = np.where(negative, -buckets, buckets)
    return signed


@cache
def _whole_edges(per_doubling: int) -> NDArray[np.int64]:
    """The whole numbers at which buckets begin; those that hold none are left out."""
    edges = {_root(1 << step, per_doubling) for step in range(63 * per_doubling)}
    return np.array(sorted(edges), dtype=np.int64)


@cache
def _small_buckets(per_doubling: int) -> NDArray[np.intp]:
    return np.searchsorted(_whole_edges(per_doubling), np.arange(SMALL), side="right")


@cache
def _real_edges(per_doubling: int) -> NDArray[np.float64]:
    """The least doubles that reach each step. A doubling moves their exponents only, so one tells all."""
    one = [_root(1 << (step + 52 * per_doubling), per_doubling) for step in range(per_doubling)]
    exponents = np.arange(-FINEST, 63) - 52
    edges: NDArray[np.float64] = np.ldexp(np.array(one, dtype=np.float64), exponents[:, None]).ravel()
    return edges


def _root(power: int, degree: int) -> int:
    """The smallest whole x with x^degree >= power."""
    low, high = 0, 1 << (-(-power.bit_length() // degree) + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if middle**degree >= power else (middle, high)
    return high


Fingerprints = NDArray[np.uint64]
VALUES, MISSING = 1, 2  # domains apart: no text is a missing value
HOUR = 3600
MONDAY = 3  # the epoch began on a Thursday


def column_fingerprints(column: Column, array: pa.Array, utc_offset_hours: int = 0) -> Fingerprints:
    """The fingerprint of each row's value; missing values have one of their own."""
    try:
        found = _present(column, array, utc_offset_hours)
    except BadInput as refusal:
        raise BadInput(f"column {column.name}: {refusal}") from None
    absent = _absent(column, array)
    if absent is not None:
        np.copyto(found, missing_fingerprint(column.vocabulary), where=absent)
    return found


def value_fingerprints(name: str, texts: list[str]) -> Fingerprints:
    """The fingerprints of values of a field that are given as texts."""
    return _of_binary(pa.array([text.encode() for text in texts], pa.binary()), _seed(name, VALUES))


def value_seed(name: str) -> int:
    """What the fingerprints of a field's values start from."""
    return _seed(name, VALUES)


@cache
def missing_fingerprint(name: str) -> np.uint64:
    return np.uint64(_seed(name, MISSING))


def key_fingerprints(array: pa.Array, namespace: str) -> Fingerprints:
    """Ids of people and places as 64 bits, the same wherever the same id comes in the same namespace."""
    found = _of_values(array, _seed(namespace, VALUES))
    if array.null_count:
        np.copyto(found, missing_fingerprint(namespace), where=_nulls(array))
    return found


def _present(column: Column, array: pa.Array, utc_offset_hours: int) -> Fingerprints:
    seed = _seed(column.vocabulary, VALUES)
    if column.kind in (Kind.CATEGORY, Kind.FLAG, Kind.SEQUENCE):
        return _of_values(array, seed)
    if column.kind in (Kind.WHOLE, Kind.REAL):
        last = bucket_range(column.kind, column.buckets_per_doubling)
        return _of_small(seed, -last, last)[_buckets(column, array) + last]
    # Moved by whole hours after the division: no time is so far away that adding to it overflows.
    hours = _whole_numbers(array) // HOUR + utc_offset_hours
    if column.kind is Kind.HOUR:
        return _of_small(seed, 0, 23)[hours % 24]
    if column.kind is Kind.WEEKDAY:
        return _of_small(seed, 0, 6)[(hours // 24 + MONDAY) % 7]
    raise BadInput(f"expected a kind that has tokens, got {column.kind}")


@cache
def _of_small(seed: int, first: int, last: int) -> Fingerprints:
    """The fingerprints of a few whole numbers, to look up by their distance from the first."""
    return whole_fingerprints(np.arange(first, last + 1), seed)


def _buckets(column: Column, array: pa.Array) -> NDArray[np.int64]:
    if column.kind is Kind.WHOLE:
        return whole_buckets(_whole_numbers(array), per_doubling=column.buckets_per_doubling)
    return real_buckets(np.nan_to_num(_real_numbers(array)), per_doubling=column.buckets_per_doubling)


def _absent(column: Column, array: pa.Array) -> NDArray[np.bool_] | None:
    if column.kind is Kind.REAL:
        nothing: NDArray[np.bool_] = _nulls(array) | np.isnan(_real_numbers(array))
        return nothing
    return _nulls(array) if array.null_count else None


def _of_values(array: pa.Array, seed: int) -> Fingerprints:
    if pa.types.is_binary(array.type):
        return _of_binary(array, seed)
    if pa.types.is_integer(array.type):
        return whole_fingerprints(_whole_numbers(array), seed)
    raise BadInput(f"expected texts or whole numbers, got {array.type}")


def _of_binary(array: pa.Array, seed: int) -> Fingerprints:
    if not len(array):
        return np.empty(0, dtype=np.uint64)
    _, offsets, data = array.buffers()
    at = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    return text_fingerprints(at, np.frombuffer(data or b"", dtype=np.uint8), seed)


def _whole_numbers(array: pa.Array) -> NDArray[np.int64]:
    """The array as int64, with 0 for null."""
    if not pa.types.is_integer(array.type):
        raise BadInput(f"expected whole numbers, got {array.type}")
    try:
        return _without_nulls(array.cast(pa.int64()))
    except pa.ArrowInvalid:
        raise BadInput("expected whole numbers below 2^63, got larger ones") from None


def _real_numbers(array: pa.Array) -> NDArray[np.float64]:
    """The array as float64, with 0 for null."""
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        raise BadInput(f"expected numbers, got {array.type}")
    return _without_nulls(array.cast(pa.float64(), safe=False))  # the nearest double will do for a bucket


def _without_nulls(array: pa.Array) -> NDArray[Any]:
    if array.null_count:
        array = pc.fill_null(array, 0)
    numbers: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return numbers


def _nulls(array: pa.Array) -> NDArray[np.bool_]:
    nulls: NDArray[np.bool_] = pc.is_null(array).to_numpy(zero_copy_only=False)
    return nulls


@cache
def _seed(name: str, domain: int) -> int:
    return int(_of_binary(pa.array([name.encode()], pa.binary()), domain)[0])
