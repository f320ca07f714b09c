"""The directory of an epoch: every menu with its token key, under one root that ad server and proxy sign.

A server that could show each device a menu or a key of its own would know it by its reports. So a device uses a
menu only if it is a leaf of the epoch's tree, for the context and lane that it asked for, under a root that the
proxy countersigned; and the proxy countersigns one root per epoch, in which each context and lane stands once.

The tree is that of RFC 9162 (2.1): leaves and inner nodes are hashed under different prefixes, so that none can
be passed off as the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from tacit import expect
from tacit.bill.protocol.encoding import (
    BillVerdict,
    Reader,
    Writer,
    begin_message,
    expect_size,
    read_message,
)
from tacit.bill.protocol.keys import SIGNATURE_BYTES, SigningKey, check_signature
from tacit.bill.protocol.menus import (
    CONTEXT_BYTES,
    LANES,
    Lane,
    PricedMenu,
    context_bytes,
    parse_context,
)
from tacit.bill.protocol.tokens import TOKEN_BYTES, TokenPublicKey
from tacit.display import brief
from tacit.errors import BadInput, BillRefused
from tacit.schema.contexts.hierarchy import Node
from tacit.sealing import KEY_BYTES

HASH_BYTES = 32
MOST_MENUS = 2**20
_HEAD = b"tacit/epoch/1"
NO_SIGNATURE = bytes(SIGNATURE_BYTES)
HEAD_BYTES = 1 + 4 + 3 * 8 + 4 + HASH_BYTES + KEY_BYTES + 2 * SIGNATURE_BYTES


@dataclass(frozen=True)
class DirectoryLeaf:
    """One menu of an epoch: its context and lane, its id, the key that signs its tokens, and how many reports
    of it the proxy waits for before it releases any."""

    node: Node
    lane: Lane
    menu_id: bytes
    token_key: TokenPublicKey
    smallest_cohort: int

    def __post_init__(self) -> None:
        expect_size("a menu's id", self.menu_id, HASH_BYTES)
        expect_size("a token key's modulus", self.token_key.modulus, TOKEN_BYTES)
        if len(context_bytes(self.node)) > CONTEXT_BYTES:
            raise BadInput(f"expected a context of at most {CONTEXT_BYTES} bytes, got more")
        if not 1 <= expect.integer("smallest_cohort", self.smallest_cohort) < 2**32:
            raise BadInput("expected smallest_cohort in 1..2^32-1, got another number")

    @classmethod
    def of(cls, menu: PricedMenu, token_key: TokenPublicKey) -> DirectoryLeaf:
        return cls(menu.node, menu.lane, menu.menu_id, token_key, menu.smallest_cohort)

    @property
    def place(self) -> tuple[bytes, int]:
        """Where it stands: by its context, then its lane."""
        return context_bytes(self.node), LANES.index(self.lane)

    def to_bytes(self) -> bytes:
        context, lane = self.place
        writer = Writer().blob(context).number("B", lane).raw(self.menu_id, HASH_BYTES)
        writer.raw(self.token_key.modulus, TOKEN_BYTES)
        return writer.number("I", self.smallest_cohort).to_bytes()

    @classmethod
    def parse(cls, reader: Reader) -> DirectoryLeaf:
        node, lane = parse_context(reader.blob()), reader.number("B")
        if lane >= len(LANES):
            raise BadInput("expected a lane, got another number")
        menu_id, key = reader.raw(HASH_BYTES), TokenPublicKey(reader.raw(TOKEN_BYTES))
        return cls(node, LANES[lane], menu_id, key, reader.number("I"))


@dataclass(frozen=True)
class EpochHead:
    """What everybody knows of an epoch, once both parties have signed it.

    opens, closes      seconds between which its menus are offered and shown
    expires            the second from which its tokens are no longer taken
    root, menus        of the directory's tree, and how many leaves it has
    sealing_key        what the epoch's reports are sealed to
    by_server, by_proxy   their signatures; empty (zeros) until they have signed
    """

    epoch: int
    opens: int
    closes: int
    expires: int
    menus: int
    root: bytes
    sealing_key: bytes
    by_server: bytes = NO_SIGNATURE
    by_proxy: bytes = NO_SIGNATURE

    def __post_init__(self) -> None:
        for name in ("epoch", "opens", "closes", "expires"):
            expect.integer(name, getattr(self, name))
        if not 0 <= self.epoch < 2**32 or not 0 <= self.opens < self.closes <= self.expires < 2**62:
            raise BadInput("expected an epoch that opens, then closes, then expires, got other times")
        if not 1 <= expect.integer("menus", self.menus) <= MOST_MENUS:
            raise BadInput(f"expected 1 to {MOST_MENUS} menus in an epoch, got {self.menus}")
        for name, size in (("root", HASH_BYTES), ("sealing_key", KEY_BYTES)):
            expect_size(name, getattr(self, name), size)
        for name in ("by_server", "by_proxy"):
            expect_size(name, getattr(self, name), SIGNATURE_BYTES)

    def __repr__(self) -> str:
        return brief(self, epoch=self.epoch, menus=self.menus, root=self.root.hex()[:16])

    @property
    def body(self) -> bytes:
        """What is signed."""
        writer = begin_message().number("I", self.epoch)
        for second in (self.opens, self.closes, self.expires):
            writer.number("Q", second)
        return writer.number("I", self.menus).raw(self.root, 32).raw(self.sealing_key, 32).to_bytes()

    def signed_by_server(self, key: SigningKey) -> EpochHead:
        return replace(self, by_server=key.sign(_HEAD, self.body))

    def countersigned(self, key: SigningKey) -> EpochHead:
        """As the proxy signs it: the same body and the server's signature."""
        return replace(self, by_proxy=key.sign(_HEAD + b"/countersigned", self.body + self.by_server))

    def check_server(self, public: bytes) -> None:
        check_signature(public, _HEAD, self.body, self.by_server)

    def check(self, server: bytes, proxy: bytes) -> None:
        """BillRefused(UNAUTHENTICATED) unless both parties signed it."""
        self.check_server(server)
        check_signature(proxy, _HEAD + b"/countersigned", self.body + self.by_server, self.by_proxy)

    def to_bytes(self) -> bytes:
        return self.body + self.by_server + self.by_proxy

    @classmethod
    def from_bytes(cls, data: bytes) -> EpochHead:
        return read_message(data, "head of an epoch", cls._parse)

    @classmethod
    def _parse(cls, reader: Reader) -> EpochHead:
        epoch, opens, closes, expires, menus = (reader.number(layout) for layout in "IQQQI")
        root, sealing_key = reader.raw(HASH_BYTES), reader.raw(KEY_BYTES)
        signatures = reader.raw(SIGNATURE_BYTES), reader.raw(SIGNATURE_BYTES)
        return cls(epoch, opens, closes, expires, menus, root, sealing_key, *signatures)


@dataclass(frozen=True)
class Directory:
    """The head of an epoch and its leaves, in the public order of their contexts."""

    head: EpochHead
    leaves: tuple[DirectoryLeaf, ...]

    def __post_init__(self) -> None:
        places = [leaf.place for leaf in self.leaves]
        if any(earlier >= later for earlier, later in pairwise(places)):
            raise BadInput("expected each context and lane once, in their order, got others")
        if len({leaf.menu_id for leaf in self.leaves}) < len(self.leaves):
            raise BadInput("expected each menu once, got one twice")
        if len(self.leaves) != self.head.menus or self.tree[-1][0] != self.head.root:
            raise BadInput("expected the root of these leaves in the head, got another")

    def __repr__(self) -> str:
        return brief(self, head=self.head)

    @classmethod
    def make(
        cls,
        leaves: Sequence[DirectoryLeaf],
        *,
        epoch: int,
        opens: int,
        closes: int,
        expires: int,
        sealing_key: bytes,
    ) -> Directory:
        ordered = tuple(sorted(leaves, key=lambda leaf: leaf.place))
        if not ordered:
            raise BadInput("expected at least one menu in an epoch, got none")
        root = _tree([leaf_hash(leaf) for leaf in ordered])[-1][0]
        return cls(EpochHead(epoch, opens, closes, expires, len(ordered), root, sealing_key), ordered)

    @cached_property
    def tree(self) -> list[list[bytes]]:
        return _tree([leaf_hash(leaf) for leaf in self.leaves])

    def with_head(self, head: EpochHead) -> Directory:
        return replace(self, head=head)

    def proof(self, place: int) -> tuple[bytes, ...]:
        """The hashes beside the path from a leaf to the root, from below."""
        path, at = [], place
        for level in self.tree[:-1]:
            if at ^ 1 < len(level):
                path.append(level[at ^ 1])
            at //= 2
        return tuple(path)

    def to_bytes(self) -> bytes:
        writer = begin_message().raw(self.head.to_bytes(), HEAD_BYTES)
        for leaf in self.leaves:
            writer.blob(leaf.to_bytes())
        return writer.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes, *, server: bytes | None = None) -> Directory:
        """Read a directory. With the ad server's public key its signature is checked before any leaf is read:
        BillRefused(UNAUTHENTICATED) where it is not its own."""
        return read_message(data, "directory", lambda reader: cls._parse(reader, server))

    @classmethod
    def _parse(cls, reader: Reader, server: bytes | None) -> Directory:
        head = EpochHead.from_bytes(reader.raw(HEAD_BYTES))
        if server is not None:
            head.check_server(server)
        leaves = []
        for _ in range(head.menus):
            inner = Reader(reader.blob())
            leaves.append(DirectoryLeaf.parse(inner))
            inner.end()
        return cls(head, tuple(leaves))


def leaf_hash(leaf: DirectoryLeaf) -> bytes:
    return hashlib.sha256(b"\x00" + leaf.to_bytes()).digest()


def check_listed(leaf: DirectoryLeaf, place: int, path: Sequence[bytes], head: EpochHead) -> None:
    """BillRefused(NOT_LISTED) unless the leaf stands at this place of the epoch's tree."""
    current, at, width, rest = leaf_hash(leaf), place, head.menus, list(path)
    if not 0 <= place < width:
        raise BillRefused(BillVerdict.NOT_LISTED)
    while width > 1:
        if at ^ 1 < width:
            if not rest:
                raise BillRefused(BillVerdict.NOT_LISTED)
            beside = rest.pop(0)
            current = _join(beside, current) if at & 1 else _join(current, beside)
        at, width = at // 2, (width + 1) // 2
    if rest or current != head.root:
        raise BillRefused(BillVerdict.NOT_LISTED)


def _tree(hashes: list[bytes]) -> list[list[bytes]]:
    """All levels, from the leaves to the root; a node without a neighbour goes up as it is."""
    levels = [hashes]
    while len(levels[-1]) > 1:
        below = levels[-1]
        pairs = [below[at : at + 2] for at in range(0, len(below), 2)]
        levels.append([_join(*pair) if len(pair) == 2 else pair[0] for pair in pairs])
    return levels


def _join(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()
