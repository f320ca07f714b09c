"""Cells that spell a number another way than by its digits: 1.0, true, 2024-01-31T12:00:00Z; and long ids.

pyarrow reads plain digits; what it refuses comes here as texts, and becomes the very same numbers. What is
still no such number raises `pa.ArrowInvalid`, as pyarrow does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tacit.data.reading.layout import Raw

WHOLE = r"^[+-]?[0-9]+$"
WITH_ZEROS = r"^([+-]?[0-9]+)\.0*$"
ZONED = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
PLAIN = re.compile(r"-?[0-9]{1,18}")
MICROSECONDS = pa.timestamp("us")


def numbers(raw: Raw, texts: pa.Array, missing: Sequence[str]) -> pa.Array:
    """These texts as whole numbers; ids of which one is longer than 64 bits as their digits, all of them.

    A word for missing means the same with zeros behind it: -1.0 where -1 is one.
    """
    spelled = pc.replace_substring_regex(texts, WITH_ZEROS, r"\1")
    spelled = pc.if_else(pc.is_in(spelled, value_set=pa.array(missing, pa.string())), None, spelled)
    spelled = pc.replace_substring_regex(pc.utf8_trim_whitespace(spelled), WITH_ZEROS, r"\1")
    if raw is Raw.FLAG:
        lower = pc.utf8_lower(spelled)
        spelled = pc.if_else(pc.equal(lower, "true"), "1", pc.if_else(pc.equal(lower, "false"), "0", spelled))
    if raw is Raw.TIME:
        return _seconds(spelled)
    if raw is Raw.ID:
        return _ids(spelled)
    return spelled.cast(pa.int64())


def seconds(times: pa.Array) -> pa.Array:
    """Timestamps of any unit and zone, and dates, as whole seconds since the epoch, rounded down.

    A time without a zone is taken to be in UTC.
    """
    if pa.types.is_timestamp(times.type):
        return pc.floor_temporal(times.cast(pa.timestamp(times.type.unit)), unit="second").cast(
            pa.timestamp("s")
        ).cast(pa.int64())  # fmt: skip
    if pa.types.is_date(times.type):
        return times.cast(pa.timestamp("s")).cast(pa.int64())
    raise pa.ArrowInvalid("a time of day, or a stretch of time, is no moment")


def without_missing(array: pa.Array, missing: Sequence[str]) -> pa.Array:
    """Null where the value is one of the words for missing."""
    if pa.types.is_binary(array.type):
        words = pa.array([word.encode() for word in missing], pa.binary())
    elif pa.types.is_int64(array.type):
        words = pa.array([int(word) for word in missing if PLAIN.fullmatch(word)], pa.int64())
    elif pa.types.is_float64(array.type):
        words = pa.array([float(word) for word in missing if PLAIN.fullmatch(word)], pa.float64())
    else:
        return array
    if not len(words):
        return array
    found = pc.is_in(array, value_set=words)
    return pc.if_else(found, None, array) if pc.any(found).as_py() else array


def _seconds(spelled: pa.Array) -> pa.Array:
    plain = pc.match_substring_regex(spelled, WHOLE)
    whole = pc.if_else(plain, spelled, None).cast(pa.int64())
    moments = pc.if_else(plain, None, spelled)
    if moments.null_count == len(moments):
        return whole
    moments = pc.replace_substring_regex(moments, r"(\.[0-9]{6})[0-9]+", r"\1")
    zoned = pc.match_substring_regex(moments, r"[T ].*" + ZONED)
    here = pc.if_else(zoned, None, moments).cast(MICROSECONDS)
    elsewhere = pc.if_else(zoned, moments, None).cast(pa.timestamp("us", "UTC")).cast(MICROSECONDS)
    return pc.coalesce(whole, seconds(pc.coalesce(here, elsewhere)))


def _ids(spelled: pa.Array) -> pa.Array:
    try:
        return spelled.cast(pa.int64())
    except pa.ArrowInvalid:
        if not pc.all(pc.match_substring_regex(spelled, WHOLE)).as_py():  # nulls apart
            raise
    digits = pc.replace_substring_regex(spelled, r"^(-?)\+?0*([0-9]+)$", r"\1\2")
    return pc.if_else(pc.equal(digits, "-0"), "0", digits).cast(pa.binary())
