"""Tokens: the same id gives the same token on both sides; another id, key or kind of id never does."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.cleanroom.wire.tokens import TOKEN_BYTES, spelled, token_key, tokens
from tacit.errors import BadInput

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
    found = spelled(ids)
    for one, first in zip(meant, found, strict=True):
        for two, second in zip(meant, found, strict=True):
            assert (one == two) == (first == second)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
@settings(max_examples=100, deadline=None)
def test_an_array_of_ids_is_spelled_like_a_list(ids: list[int]) -> None:
    assert spelled(np.array(ids, np.int64)) == spelled(ids)
    small = [each for each in ids if each >= 0]
    assert spelled(np.array(small, np.uint64)) == spelled(small)


def test_the_type_of_an_array_does_not_matter() -> None:
    for dtype in (np.int8, np.uint8, np.int32, np.uint64, ">i4"):
        assert (tokens(np.array([0, 7, 100], dtype), KEY) == tokens([0, 7, 100], KEY)).all()
    assert spelled(np.array([2**64 - 1], np.uint64)) != spelled(np.array([-1]))
    assert spelled(np.array([7, 8, 9])[::2]) == spelled([7, 9])


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
