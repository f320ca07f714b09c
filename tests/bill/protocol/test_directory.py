"""Directories: the tree of RFC 9162, proofs that hold for one leaf at one place, heads, and what is listed."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

import pytest

from tacit.bill.protocol import directory as directories
from tacit.bill.protocol.directory import (
    HEAD_BYTES,
    Directory,
    DirectoryLeaf,
    EpochHead,
    check_listed,
    leaf_hash,
)
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import Lane
from tacit.bill.protocol.tokens import TokenPublicKey
from tacit.errors import BadInput, BillRefused
from tacit.schema.contexts.hierarchy import Node
from tests.support import billing_messages as made
from tests.support.billing_refusals import STRANGER, flipped
from tests.support.billing_spelling import path_by_definition, root_by_definition

MOST = 70
KEY = TokenPublicKey(b"\xff" * 256)


def leaf(at: int) -> DirectoryLeaf:
    return DirectoryLeaf(Node((0,), (f"{at:04}",)), Lane.PERSONAL, at.to_bytes(32, "big"), KEY, 1)


@cache
def leaves(count: int) -> tuple[DirectoryLeaf, ...]:
    return tuple(leaf(at) for at in range(count))


@cache
def directory(count: int) -> Directory:
    return Directory.make(leaves(count), epoch=1, opens=0, closes=1, expires=1, sealing_key=bytes(32))


def listed(*arguments: Any) -> bool:
    try:
        check_listed(*arguments)
    except BillRefused as refused:
        if refused.reason is not BillVerdict.NOT_LISTED:
            raise
        return False
    return True


@pytest.mark.parametrize("count", range(1, MOST + 1))
def test_every_leaf_is_proved_at_its_place_and_nowhere_else(count: int) -> None:
    found = directory(count)
    spelled = [each.to_bytes() for each in found.leaves]
    assert found.head.root == root_by_definition(spelled)
    for place, each in enumerate(found.leaves):
        path = found.proof(place)
        assert list(path) == path_by_definition(place, spelled)
        assert listed(each, place, path, found.head)
        assert len(path) <= math.ceil(math.log2(count)) if count > 1 else not path
        elsewhere = (
            {*range(-1, count + 2)} - {place} if count < 20 else {place - 1, place + 1, place ^ 1, 0, count}
        )
        for other in elsewhere - {place}:
            assert not listed(each, other, path, found.head)
        if path:
            assert not listed(each, place, path[:-1], found.head)
            assert not listed(each, place, path[1:], found.head)
        assert not listed(each, place, (*path, bytes(32)), found.head)
        assert not listed(each, place, (*path, found.head.root), found.head)
        assert not listed(found.leaves[place - 1], place, path, found.head) or count == 1
        if len(path) > 1:
            assert not listed(each, place, (path[1], path[0], *path[2:]), found.head)


@dataclass(frozen=True)
class Impostor:
    """Bytes of a leaf's size or not: an inner node that is passed off as a leaf."""

    data: bytes

    def to_bytes(self) -> bytes:
        return self.data


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_no_inner_node_passes_for_a_leaf_and_no_leaf_for_a_node(count: int) -> None:
    found = directory(count)
    for level, nodes in enumerate(found.tree[:-1]):
        for at in range(len(nodes) // 2):
            joined = cast(DirectoryLeaf, Impostor(nodes[2 * at] + nodes[2 * at + 1]))
            for place in range(count):
                for cut in range(len(found.proof(place)) + 1):
                    assert not listed(joined, place, found.proof(place)[cut:], found.head), level
    # With one prefix for both, the first inner node would be the hash of such a leaf.
    pair = found.tree[0][0] + found.tree[0][1]
    assert hashlib.sha256(b"\x01" + pair).digest() == found.tree[1][0]
    assert leaf_hash(cast(DirectoryLeaf, Impostor(pair))) != found.tree[1][0]


def test_any_other_leaf_is_not_listed() -> None:
    found = made.directory()
    for place, each in enumerate(found.leaves):
        path = found.proof(place)
        changed = (
            replace(each, menu_id=flipped(each.menu_id, 31)),
            replace(each, token_key=TokenPublicKey(b"\xff" * 256)),
            replace(each, lane=Lane.PUBLIC if each.lane is Lane.PERSONAL else Lane.PERSONAL),
            replace(each, node=made.COFFEE),
            replace(each, smallest_cohort=each.smallest_cohort // 2 + 2),
        )
        for other in changed:
            assert not listed(other, place, path, found.head)


def test_directories_are_in_the_order_of_their_contexts() -> None:
    turned = leaves(9)[::-1]
    found = Directory.make(turned, epoch=1, opens=0, closes=1, expires=1, sealing_key=bytes(32))
    assert found == directory(9)
    with pytest.raises(BadInput, match="at least one menu"):
        Directory.make([], epoch=1, opens=0, closes=1, expires=1, sealing_key=bytes(32))
    for wrong in ((leaf(1), leaf(0)), (leaf(0), leaf(0))):
        with pytest.raises(BadInput, match="each context and lane once"):
            Directory(directory(2).head, wrong)
    with pytest.raises(BadInput, match="each menu once"):
        Directory(directory(2).head, (leaf(0), replace(leaf(1), menu_id=leaf(0).menu_id)))
    with pytest.raises(BadInput, match="the root of these leaves"):
        Directory(directory(2).head, (leaf(0), leaf(2)))


def test_both_lanes_of_a_context_may_be_listed() -> None:
    both = (replace(leaf(0), lane=Lane.PUBLIC), replace(leaf(0), menu_id=bytes(31) + b"x"))
    made_of = Directory.make(both, epoch=1, opens=0, closes=1, expires=1, sealing_key=bytes(32))
    assert [each.lane for each in made_of.leaves] == [Lane.PUBLIC, Lane.PERSONAL]


def test_a_head_is_as_long_as_it_says() -> None:
    assert len(directory(1).head.to_bytes()) == HEAD_BYTES
    assert Directory.from_bytes(made.directory().to_bytes(), server=made.SERVER.public) == made.directory()


@pytest.mark.parametrize(
    "changed",
    [
        {"epoch": -1}, {"epoch": 2**32}, {"epoch": True}, {"epoch": 1.0}, {"opens": -1}, {"opens": 1},
        {"closes": 0}, {"closes": 2}, {"expires": 2**62}, {"expires": 1.5}, {"menus": 0}, {"menus": 2**20 + 1},
        {"root": bytes(31)}, {"root": bytearray(32)}, {"sealing_key": b""}, {"by_server": bytes(63)},
        {"by_proxy": bytes(65)},
    ],
)  # fmt: skip
def test_heads_of_other_values_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="expected"):
        replace(directory(2).head, **changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"menu_id": bytes(31)}, {"smallest_cohort": 0}, {"smallest_cohort": 2**32}, {"smallest_cohort": True},
        {"token_key": TokenPublicKey(b"\xff" * 512)}, {"node": Node((0,), ("x" * 157,))},
        {"node": Node((300,), ("x",))},
    ],
)  # fmt: skip
def test_leaves_of_other_values_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="expected"):
        replace(leaf(0), **changed)


def test_a_strangers_directory_is_refused_before_its_leaves_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million leaves cost whoever reads them: first it is seen who signed."""
    head = replace(directory(1).head, menus=2**20).signed_by_server(STRANGER)
    data = b"\x01" + head.to_bytes() + bytes(1_000_000)
    asked: list[object] = []
    monkeypatch.setattr(directories.DirectoryLeaf, "parse", asked.append)
    with pytest.raises(BillRefused) as refusal:
        Directory.from_bytes(data, server=made.SERVER.public)
    assert refusal.value.reason is BillVerdict.UNAUTHENTICATED
    assert not asked


def test_a_count_of_leaves_that_are_not_there_is_refused_at_the_first() -> None:
    head = replace(directory(1).head, menus=2**20).signed_by_server(made.SERVER)
    with pytest.raises(BillRefused) as refusal:
        Directory.from_bytes(b"\x01" + head.to_bytes())
    assert refusal.value.reason is BillVerdict.MALFORMED


def test_a_head_with_one_signature_is_no_head() -> None:
    head = made.directory().head
    for half in (replace(head, by_server=bytes(64)), replace(head, by_proxy=bytes(64))):
        with pytest.raises(BillRefused) as refusal:
            half.check(made.SERVER.public, made.PROXY.public)
        assert refusal.value.reason is BillVerdict.UNAUTHENTICATED
    with pytest.raises(BillRefused):
        head.check(made.PROXY.public, made.SERVER.public)


def test_heads_show_no_more_than_they_must() -> None:
    shown: EpochHead = made.directory().head
    assert repr(shown).startswith("EpochHead(epoch=7, menus=5, root=")
    assert len(repr(made.directory())) < 150
