"""A column's values as fingerprints: 64 bits for each (field, value), and one for a missing value of the field.

The field's name goes into them, so that 17 in one field and 17 in another are different tokens.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit.data.encoding.buckets import bucket_range, real_buckets, whole_buckets
from tacit.errors import BadInput
from tacit.kernels import text_fingerprints, whole_fingerprints
from tacit.schema.columns import Column, Kind

Fingerprints = NDArray[np.uint64]
VALUES, MISSING = 1, 2  # domains apart: no text is a missing value
HOUR = 3600
MONDAY = 3  # the epoch began on a Thursday


def fingerprints(column: Column, array: pa.Array, utc_offset_hours: int = 0) -> Fingerprints:
    """One for each row."""
    try:
        found = _present(column, array, utc_offset_hours)
    except BadInput as refusal:
        raise BadInput(f"column {column.name}: {refusal}") from None
    absent = _absent(column, array)
    if absent is not None:
        np.copyto(found, missing_fingerprint(column.vocabulary), where=absent)
    return found


def of_texts(name: str, texts: list[str]) -> Fingerprints:
    """The fingerprints of values of a field that are given as texts."""
    return _of_binary(pa.array([text.encode() for text in texts], pa.binary()), _seed(name, VALUES))


@cache
def missing_fingerprint(name: str) -> np.uint64:
    return np.uint64(_seed(name, MISSING))


def keys(array: pa.Array, namespace: str) -> Fingerprints:
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
    """With 0 for null."""
    if not pa.types.is_integer(array.type):
        raise BadInput(f"expected whole numbers, got {array.type}")
    try:
        return _without_nulls(array.cast(pa.int64()))
    except pa.ArrowInvalid:
        raise BadInput("expected whole numbers below 2^63, got larger ones") from None


def _real_numbers(array: pa.Array) -> NDArray[np.float64]:
    """With 0 for null."""
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
