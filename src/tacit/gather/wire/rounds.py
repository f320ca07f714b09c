"""A round: all that the parties agreed on before the first report. Every message has its digest."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tacit import expect
from tacit.errors import BadInput
from tacit.gather.wire.encoding import Kind, decode, encode, exact_number, exact_text, malformed, reading, sized
from tacit.gather.wire.groups import Group
from tacit.gather.wire.noise import ServerNoise, UserNoise, noise_from_plain
from tacit.gather.wire.sealing import KEY_BYTES
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Line, named
from tacit.privacy.relations import Relation
from tacit.privacy.units import Unit, UnitKind

if TYPE_CHECKING:
    from tacit.gather.wire.validity.bounds import Bounds

DIGEST_BYTES = 32
REPORT_ID_BYTES = 16
MOST_CELLS = 1 << 20
LONGEST_TASK = 100  # so that the keys of its ledger entries have room for a level and a party
LATEST = 1 << 53  # seconds, and any other whole number of a round: what every language reads exactly
NOISE_ROOM = 12  # standard deviations of noise that the group has room for beyond the largest honest sum


@dataclass(frozen=True)
class Round:
    """One level of a run: what is counted, by whom, when, with which noise, and what it costs.

    Two rounds are equal exactly if their bytes are. A round that contradicts itself cannot be made.
    """

    task: str  # the run's name; with the level it names the round
    level: int  # 0, 1, ... in the order of the run
    cells: int  # length of every report's vector
    question: bytes  # digest of the Question; zeros where the cells were agreed on otherwise
    group: Group
    largest: int  # no honest vector has an entry above it
    opens: int  # Unix seconds
    closes: int
    skew: int  # seconds by which the parties' clocks may differ
    parties: int  # devices enrolled
    smallest_batch: int  # aggregated reports below which nothing is released
    noise: ServerNoise | UserNoise
    bounds: Bounds | None  # what each report proves of its counts; None: nothing
    scope: str  # of the ledger line that pays
    cost: Budget  # what this round adds to that line
    proxy_key: bytes  # public keys to seal to
    server_key: bytes

    def __post_init__(self) -> None:
        if len(named("task", self.task)) > LONGEST_TASK:
            raise BadInput(f"expected task of at most {LONGEST_TASK} characters, got {len(self.task)}")
        named("scope", self.scope)
        for name, least, most in (
            ("level", 0, LATEST),
            ("cells", 1, MOST_CELLS),
            ("largest", 1, LATEST),
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
        sized("proxy_key", self.proxy_key, KEY_BYTES)
        sized("server_key", self.server_key, KEY_BYTES)
        if self.proxy_key == self.server_key:
            raise BadInput("expected two keys, got the same one for proxy and server")
        self._check_noise()
        self._check_bounds()
        if not isinstance(self.cost, Budget) or self.cost == Budget.NOTHING or self.cost.delta >= 1:
            raise BadInput(f"expected a cost above nothing and delta below 1, got {self.cost}")

    def _check_noise(self) -> None:
        if not isinstance(self.noise, ServerNoise | UserNoise):
            raise BadInput(f"expected ServerNoise or UserNoise, got {self.noise!r}")
        if isinstance(self.noise, UserNoise) and self.noise.shares.parties != self.parties:
            raise BadInput(f"expected noise shares of {self.parties} parties, got {self.noise.shares.parties}")
        most = self.parties * self.largest + math.ceil(NOISE_ROOM * math.sqrt(self.noise.most_variance))
        if self.group.modulus <= 2 * most:
            raise BadInput(f"expected a group with room for sums up to {most}, got {self.group}")

    def _check_bounds(self) -> None:
        if self.bounds is None:
            return
        if self.group is not Group.FIELD64 or not isinstance(self.noise, ServerNoise):
            raise BadInput("expected field64 and noise by servers for a round with proofs, got others")
        if self.bounds.each > self.largest:
            raise BadInput(f"expected bounds.each <= largest = {self.largest}, got {self.bounds.each}")

    @cached_property
    def _bytes(self) -> bytes:
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        plain["group"] = str(self.group)
        plain["noise"] = self.noise.to_plain()
        plain["bounds"] = () if self.bounds is None else (self.bounds.each, self.bounds.total)
        plain["cost"] = (exact_text(self.cost.epsilon), exact_text(self.cost.delta))
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
            plain["cost"] = _cost(plain["cost"])
            found = cls(**plain)
            if found.to_bytes() != data:
                malformed("expected a round in its one spelling")
        return found

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the bytes."""
        return hashlib.sha256(self._bytes).digest()

    def __hash__(self) -> int:  # as equal as the bytes are, and found much sooner than from all fields
        return hash(self.digest)

    @property
    def line(self) -> Line:
        """The ledger line that pays for the round."""
        return Line(self.scope, Unit(UnitKind.DEVICE), Relation.ZERO_OUT)

    @property
    def key(self) -> str:
        """The round's name in a ledger; each party adds its own."""
        return f"gather/{self.task}/{self.level}"


def binding(digest: bytes, report_id: bytes) -> bytes:
    """What a report's seals, mask and proof hold only for: this round and this report."""
    return sized("digest", digest, DIGEST_BYTES) + sized("report_id", report_id, REPORT_ID_BYTES)


_TYPES = (str, int, int, bytes, str, *[int] * 6, tuple, tuple, str, tuple, bytes, bytes)  # in the fields' order


def _cost(plain: tuple[Any, ...]) -> Budget:
    if len(plain) != 2:
        raise BadInput(f"expected a cost of 2 parts, got {len(plain)}")
    return Budget(*map(exact_number, plain))


def _bounds(plain: tuple[Any, ...]) -> Bounds | None:
    if not plain:
        return None
    from tacit.gather.wire.validity.bounds import Bounds

    if tuple(map(type, plain)) != (int, int):
        raise BadInput("expected bounds of two whole numbers, got something else")
    return Bounds(each=plain[0], total=plain[1])
