"""A round: all that the parties agreed on before the first report, and the question that devices answer.

Every message has the round's digest. The question is public and made before anyone answers: it says which
cells a device's vector has. The key with which both parties check proofs is the same at both for as long as a
round lasts; the round holds its hash.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Integers
from tacit.display import brief_repr
from tacit.errors import BadInput, Refused
from tacit.gather.protocol.encoding import (
    MOST_FIELDS,
    MessageKind,
    MessageVerdict,
    decode_message,
    encode_message,
    expect_bytes,
    malformed_if_refused,
    refuse_malformed,
)
from tacit.gather.protocol.groups import Group
from tacit.gather.protocol.noise import ServerNoise, UserNoise, noise_from_plain
from tacit.gather.protocol.promises import CountBounds, Promise, promise_from_plain, promise_shortfall
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Line, check_ledger_name
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit.schema.contexts.hierarchy import Levels
from tacit.sealing import KEY_BYTES

DIGEST_BYTES = 32
REPORT_ID_BYTES = 16
CHECK_BYTES = 32
MOST_CELLS = 1 << 20
LONGEST_TASK = 100  # so that the keys of its ledger entries have room for a level and a party
LATEST = 1 << 53  # seconds, and any other whole number of a round: what every language reads exactly
NOISE_ROOM = 12  # standard deviations of noise that the group has room for beyond the largest honest sum
_RUN_LABEL = b"tacit gather run 1 "


@dataclass(frozen=True)
class Round:
    """One level of a run: what is counted, by whom, when, with which noise, and what was promised.

    Two rounds are equal exactly if their bytes are. A round that contradicts itself cannot be made.
    """

    task: str  # the run's name; with the level it names the round
    level: int  # 0, 1, ... in the order of the run
    cells: int  # length of every report's vector
    question: bytes  # digest of the Question; zeros where the cells were agreed on otherwise
    group: Group
    opens: int  # Unix seconds
    closes: int
    skew: int  # seconds by which the parties' clocks may differ
    parties: int  # devices enrolled
    smallest_batch: int  # aggregated reports below which nothing is released
    noise: ServerNoise | UserNoise
    bounds: CountBounds | None  # what each report proves of its counts; None: nothing
    scope: str  # of the ledger line that pays
    promise: Promise  # of the run to each device; the noise must keep it, which whoever takes part checks
    check: bytes  # `check_key_hash` of the key with which the parties check proofs; zeros without bounds
    proxy_key: bytes  # public keys to seal to
    server_key: bytes

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        if len(check_ledger_name("task", self.task)) > LONGEST_TASK:
            raise BadInput(f"expected task of at most {LONGEST_TASK} characters, got {len(self.task)}")
        check_ledger_name("scope", self.scope)
        for name, least, most in (
            ("level", 0, LATEST),
            ("cells", 1, MOST_CELLS),
            ("opens", 0, LATEST),
            ("closes", 1, LATEST),
            ("skew", 0, LATEST),
            ("parties", 1, LATEST),
            ("smallest_batch", 1, LATEST),
        ):
            number = expect.whole(name, getattr(self, name), at_least=least)
            if number > most:
                raise BadInput(f"expected {name} <= {most}, got {number}")
            object.__setattr__(self, name, number)
        if self.closes <= self.opens:
            raise BadInput(f"expected closes > opens = {self.opens}, got {self.closes}")
        if self.smallest_batch > self.parties:
            raise BadInput(f"expected smallest_batch <= parties = {self.parties}, got {self.smallest_batch}")
        object.__setattr__(self, "group", Group(self.group))
        expect_bytes("question", self.question, DIGEST_BYTES)
        expect_bytes("check", self.check, CHECK_BYTES)
        expect_bytes("proxy_key", self.proxy_key, KEY_BYTES)
        expect_bytes("server_key", self.server_key, KEY_BYTES)
        if self.proxy_key == self.server_key:
            raise BadInput("expected two keys, got the same one for proxy and server")
        if not isinstance(self.promise, Promise):
            raise BadInput(f"expected a Promise, got {self.promise!r}")
        self.promise.expect_level(self.level)
        self._check_noise()
        self._check_bounds()

    def _check_noise(self) -> None:
        if not isinstance(self.noise, ServerNoise | UserNoise):
            raise BadInput(f"expected ServerNoise or UserNoise, got {self.noise!r}")
        if isinstance(self.noise, UserNoise) and self.noise.shares.parties != self.parties:
            raise BadInput(f"expected noise shares of {self.parties} parties, got {self.noise.shares.parties}")
        if isinstance(self.noise, UserNoise) and self.noise.shares.noisy == self.parties:
            raise BadInput("expected noise shares that do without any one device, got shares that need all")
        most = self.parties * self.largest + math.ceil(NOISE_ROOM * math.sqrt(self.noise.most_variance))
        if self.group.modulus <= 2 * most:
            raise BadInput(f"expected a group with room for sums up to {most}, got {self.group}")

    def _check_bounds(self) -> None:
        if (self.bounds is None) != (self.check == bytes(CHECK_BYTES)):
            raise BadInput("expected the hash of a check key exactly where there are bounds to be proved")
        if self.bounds is None:
            return
        if self.group is not Group.FIELD64 or not isinstance(self.noise, ServerNoise):
            raise BadInput("expected field64 and noise by servers for a round with proofs, got others")
        if self.bounds.each != self.largest or self.bounds.total > self.most_in_all:
            raise BadInput(
                f"expected bounds of {self.largest} each and at most {self.most_in_all} in all, as promised, "
                f"got {self.bounds.each} and {self.bounds.total}"
            )

    @property
    def largest(self) -> int:
        """No honest vector has an entry above it."""
        return self.promise.each

    @property
    def most_in_all(self) -> int:
        """No honest vector has a larger sum: an event counts in a total and, unless only totals are asked for,
        as a click or a no-click."""
        return self.promise.contribution.in_all

    @property
    def cost(self) -> Budget:
        """What this round adds to its ledger line."""
        return self.promise.costs[self.level]

    def expect_promise_kept(self) -> None:
        """Refused(PROMISE_NOT_KEPT) unless the round's noise keeps its promise. Only the first call is slow."""
        if self._shortfall is not None:
            raise Refused(MessageVerdict.PROMISE_NOT_KEPT, self._shortfall)

    @cached_property
    def _shortfall(self) -> str | None:
        return promise_shortfall(self.promise, self.noise)

    @cached_property
    def _bytes(self) -> bytes:
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        plain["group"] = str(self.group)
        plain["noise"] = self.noise.to_plain()
        plain["bounds"] = () if self.bounds is None else (self.bounds.each, self.bounds.total)
        plain["promise"] = self.promise.to_plain()
        return encode_message(MessageKind.ROUND, *plain.values())

    def to_bytes(self) -> bytes:
        """The round's one spelling."""
        return self._bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> Round:
        """The round that `to_bytes` wrote; Refused(MALFORMED) for anything else."""
        names = [field.name for field in fields(cls)]
        plain = dict(zip(names, decode_message(MessageKind.ROUND, data, *_TYPES), strict=True))
        with malformed_if_refused():
            plain["noise"] = noise_from_plain(plain["noise"])
            plain["bounds"] = _bounds(plain["bounds"])
            plain["promise"] = promise_from_plain(plain["promise"])
            found = cls(**plain)
            if found.to_bytes() != data:
                refuse_malformed("expected a round in its one spelling")
        return found

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the bytes."""
        return hashlib.sha256(self._bytes).digest()

    @cached_property
    def run_digest(self) -> bytes:
        """SHA-256 of what all rounds of a run have in common: the first one pays for the others by it."""
        plain = (self.task, self.scope, self.promise.to_plain(), self.noise.to_plain(), self.parties)
        keys = (self.check, self.proxy_key, self.server_key)
        return hashlib.sha256(_RUN_LABEL + encode_message(MessageKind.ROUND, *plain, *keys)).digest()

    def __hash__(self) -> int:  # as equal as the bytes are, and found much sooner than from all fields
        return hash(self.digest)

    @property
    def line(self) -> Line:
        """The ledger line that pays for the round."""
        return Line(self.scope, Unit(UnitKind.DEVICE), Relation.ZERO_OUT)

    @property
    def key(self) -> str:
        """The round's name in a ledger; each party adds its own."""
        return f"{self.run_key}/{self.level}"

    @property
    def run_key(self) -> str:
        """What the names of all rounds of the run begin with."""
        return f"gather/{self.task}"


def report_binding(digest: bytes, report_id: bytes) -> bytes:
    """What a report's seals, mask and proof hold only for: this round and this report."""
    return expect_bytes("digest", digest, DIGEST_BYTES) + expect_bytes("report_id", report_id, REPORT_ID_BYTES)


_TYPES = (str, int, int, bytes, str, *[int] * 5, tuple, tuple, str, tuple, *[bytes] * 3)  # in the fields' order


def _bounds(plain: tuple[Any, ...]) -> CountBounds | None:
    if not plain:
        return None
    if tuple(map(type, plain)) != (int, int):
        raise BadInput("expected bounds of two whole numbers, got something else")
    return CountBounds(each=plain[0], total=plain[1])


@dataclass(frozen=True, eq=False)
class Question:
    """Some nodes of one level and, at each of them, some ads.

    The cells are, in this order: for every node how often it was seen; for every (node, ad) entry the clicks;
    for every entry the impressions without a click. Without entries it asks for totals alone.
    """

    levels: Levels
    nodes: Integers  # (nodes,) ids, rising
    offsets: Integers  # (nodes + 1,) where each node's entries start
    ad: Integers  # (entries,) rising within a node

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        levels = self.levels
        if type(levels) is not tuple or not 1 <= len(levels) <= MOST_FIELDS:
            raise BadInput(f"expected levels as a tuple of 1 to {MOST_FIELDS}, got something else")
        if any(type(level) is not int or not 0 <= level < 1 << 31 for level in levels):
            raise BadInput("expected levels that are small whole numbers >= 0, got others")
        for name in ("nodes", "offsets", "ad"):
            column = getattr(self, name)
            if not isinstance(column, np.ndarray) or column.dtype != np.int64 or column.ndim != 1:
                raise BadInput(f"expected {name} as a row of int64, got something else")
        if not len(self.nodes) or self.nodes[0] < 0 or (self.nodes[1:] <= self.nodes[:-1]).any():
            raise BadInput("expected nodes >= 0 in rising order, at least one, got others")
        entries = len(self.ad)
        if len(self.offsets) != len(self.nodes) + 1 or self.offsets[0] != 0 or self.offsets[-1] != entries:
            raise BadInput(f"expected offsets from 0 to {entries}, one more than nodes, got others")
        if (self.offsets[1:] < self.offsets[:-1]).any():
            raise BadInput("expected offsets that never fall, got others")
        same_node = self.entry_node[1:] == self.entry_node[:-1]
        if (self.ad < 0).any() or (self.ad[1:] <= self.ad[:-1])[same_node].any():
            raise BadInput("expected each node's ads >= 0 in rising order, got others")
        if self.cells > MOST_CELLS:
            raise BadInput(f"expected at most {MOST_CELLS} cells, got {self.cells}")

    @property
    def entries(self) -> int:
        return len(self.ad)

    @property
    def cells(self) -> int:
        return len(self.nodes) + 2 * self.entries

    @property
    def totals(self) -> slice:
        """The cells of the nodes."""
        return slice(0, len(self.nodes))

    @property
    def clicks(self) -> slice:
        """The cells of clicks, an entry each."""
        return slice(len(self.nodes), len(self.nodes) + self.entries)

    @property
    def no_clicks(self) -> slice:
        """The cells of impressions without a click, an entry each."""
        return slice(len(self.nodes) + self.entries, self.cells)

    @cached_property
    def entry_node(self) -> Integers:
        """(entries,) the place in `nodes` of each entry."""
        return np.repeat(np.arange(len(self.nodes), dtype=np.int64), np.diff(self.offsets))

    @cached_property
    def _bytes(self) -> bytes:
        columns = (self.nodes, self.offsets, self.ad)
        return encode_message(
            MessageKind.QUESTION, self.levels, *(column.astype("<i8").tobytes() for column in columns)
        )

    def to_bytes(self) -> bytes:
        return self._bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> Question:
        levels, *columns = decode_message(MessageKind.QUESTION, data, tuple, bytes, bytes, bytes)
        with malformed_if_refused():
            return cls(levels, *map(_column, columns))

    @classmethod
    def of_round(cls, round: Round, data: bytes) -> Question:
        """The question that the round names; Refused(CONFLICT) if these bytes are another."""
        found = cls.from_bytes(data)
        if found.digest != round.question or found.cells != round.cells:
            raise Refused(MessageVerdict.CONFLICT, "expected the question that the round names, got another")
        try:
            found.expect_promised(round.promise)
        except BadInput as more:
            raise Refused(MessageVerdict.CONFLICT, str(more)) from None
        return found

    def expect_promised(self, promise: Promise) -> None:
        """BadInput where the promise is for totals alone and the question has entries of ads."""
        if promise.totals_only and self.entries:
            raise BadInput(
                f"expected a question for totals alone, as was promised, got {self.entries} entries of ads"
            )

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the bytes: a Round's `question`."""
        return hashlib.sha256(self._bytes).digest()


def _column(data: bytes) -> NDArray[Any]:
    if len(data) % 8:
        refuse_malformed("expected columns of 8 bytes per entry")
    return np.frombuffer(data, "<i8").astype(np.int64)


_LABEL = b"tacit gather check key 1 "


def check_key_hash(check_key: bytes) -> bytes:
    """What a round says of its check key: enough to know the key by, and nothing to find it from."""
    return hashlib.sha256(_LABEL + check_key).digest()


def expect_check_key(round: Round, check_key: bytes) -> None:
    """Refused(CONFLICT) if the round's proofs are checked with another key.

    A message about a proof is an evaluation at a point that the key decides. One says nothing of the counts;
    two of one report, under two keys, give a party equations enough to solve for them.
    """
    if round.bounds is not None and round.check != check_key_hash(check_key):
        raise Refused(
            MessageVerdict.CONFLICT,
            f"{round.key} was opened with another check key: finish or abandon open rounds before changing it",
        )
