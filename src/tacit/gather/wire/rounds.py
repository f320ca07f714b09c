"""A round: all that the parties agreed on before the first report. Every message has its digest."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tacit import expect
from tacit.errors import BadInput, Refused
from tacit.gather.wire.encoding import Kind, decode, encode, malformed, reading, sized
from tacit.gather.wire.groups import Group
from tacit.gather.wire.noise import ServerNoise, UserNoise, noise_from_plain
from tacit.gather.wire.promises import Promise, promise_from_plain, shortfall
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.sealing import KEY_BYTES
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Line, named
from tacit.privacy.relations import Relation
from tacit.privacy.units import Unit, UnitKind

if TYPE_CHECKING:
    from tacit.gather.wire.validity.bounds import Bounds

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
    bounds: Bounds | None  # what each report proves of its counts; None: nothing
    scope: str  # of the ledger line that pays
    promise: Promise  # of the run to each device; the noise must keep it, which whoever takes part checks
    check: bytes  # `check_hash` of the key with which the parties check proofs; zeros without bounds
    proxy_key: bytes  # public keys to seal to
    server_key: bytes

    def __post_init__(self) -> None:
        if len(named("task", self.task)) > LONGEST_TASK:
            raise BadInput(f"expected task of at most {LONGEST_TASK} characters, got {len(self.task)}")
        named("scope", self.scope)
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
        sized("question", self.question, DIGEST_BYTES)
        sized("check", self.check, CHECK_BYTES)
        sized("proxy_key", self.proxy_key, KEY_BYTES)
        sized("server_key", self.server_key, KEY_BYTES)
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
            raise Refused(Refusal.PROMISE_NOT_KEPT, self._shortfall)

    @cached_property
    def _shortfall(self) -> str | None:
        return shortfall(self.promise, self.noise)

    @cached_property
    def _bytes(self) -> bytes:
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        plain["group"] = str(self.group)
        plain["noise"] = self.noise.to_plain()
        plain["bounds"] = () if self.bounds is None else (self.bounds.each, self.bounds.total)
        plain["promise"] = self.promise.to_plain()
        return encode(Kind.ROUND, *plain.values())

    def to_bytes(self) -> bytes:
        """The round's one spelling."""
        return self._bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> Round:
        """The round that `to_bytes` wrote; Refused(MALFORMED) for anything else."""
        names = [field.name for field in fields(cls)]
        plain = dict(zip(names, decode(Kind.ROUND, data, *_TYPES), strict=True))
        with reading():
            plain["noise"] = noise_from_plain(plain["noise"])
            plain["bounds"] = _bounds(plain["bounds"])
            plain["promise"] = promise_from_plain(plain["promise"])
            found = cls(**plain)
            if found.to_bytes() != data:
                malformed("expected a round in its one spelling")
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
        return hashlib.sha256(_RUN_LABEL + encode(Kind.ROUND, *plain, *keys)).digest()

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


def binding(digest: bytes, report_id: bytes) -> bytes:
    """What a report's seals, mask and proof hold only for: this round and this report."""
    return sized("digest", digest, DIGEST_BYTES) + sized("report_id", report_id, REPORT_ID_BYTES)


_TYPES = (str, int, int, bytes, str, *[int] * 5, tuple, tuple, str, tuple, *[bytes] * 3)  # in the fields' order


def _bounds(plain: tuple[Any, ...]) -> Bounds | None:
    if not plain:
        return None
    from tacit.gather.wire.validity.bounds import Bounds

    if tuple(map(type, plain)) != (int, int):
        raise BadInput("expected bounds of two whole numbers, got something else")
    return Bounds(each=plain[0], total=plain[1])
