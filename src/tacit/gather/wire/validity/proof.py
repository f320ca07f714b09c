"""Reports that prove their counts: what a device sends, what the parties say of it, what they conclude."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.gather.wire.forms import Prepared
from tacit.gather.wire.groups import Group, Residues
from tacit.gather.wire.masks import SEED_BYTES, mask
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.sealing import Role
from tacit.gather.wire.validity.bounds import Bounds
from tacit.gather.wire.validity.circuit import Circuit
from tacit.kernels.field import PRIME, balances, evaluations, fill_quotients
from tacit.privacy.randomness import Source

FIELD = Group.FIELD64
PART_BYTES = 32
BLIND_BYTES = 32
CHECK_KEY_BYTES = 32
_PURPOSE = b"proven counts"
_LABELS = {role: b"tacit gather proof 1, part of the %b " % role.encode() for role in Role}
_CHALLENGES = b"tacit gather proof 1, challenges "
_POINTS = b"tacit gather proof 1, points "


@dataclass(frozen=True)
class Proven:
    """Counts within bounds, with a proof of it. The server's part is a seed, as without a proof.

    What a device sends is a row of field elements in two shares: digits that spell the counts, and `proofs`
    times random values and a quotient (see `kernels.field`). Each party hashes its share of the digits and
    evaluates its share of the row at secret points; from both messages either finds the challenges, which are a
    hash of both hashes, and whether the proofs hold. No message depends on what the other party sent.

    Guarantee:  soundness: a report with a count outside 0..each or a sum above `total`, whatever the device
                sends, is found valid with a chance of at most `soundness_error(hash_queries)`: with two proofs
                over 1000 counts of 0 or 1, 2^-53 for a device that computes 2^64 hashes, 2^-75 for one that
                computes 2^40. An honest report is always valid. Zero knowledge: what one party sees (its part
                and the other's message) has the same law for any two vectors within the bounds, even if that
                party sends whatever it likes: the wires' values are uniform, and validity fixes the others.
    Neighbours: any two vectors of counts within the bounds.
    Assumes:    for soundness, that both parties compute their messages as told, and that `check_key` is unknown
                to devices: a party that helps a device can let anything pass. For zero knowledge, that one
                party is honest and evaluates a report at one set of points only: `check_key` never changes
                while reports of a round are open, since two evaluations of a wire can tell its digits. SHA-256
                is a random oracle, HMAC-SHA256 and AES-256-CTR are pseudo-random; seeds and blinds are uniform.
    Source:     fully linear proofs: Boneh, Boyle, Corrigan-Gibbs, Gilboa, Ishai, CRYPTO 2019 (ePrint 2019/188),
                as in Prio3 (draft-irtf-cfrg-vdaf). Unlike there the challenge is in the gadget and not on its
                wires, so that messages do not depend on it, and the quotient by the places of digits stands for
                the gadget's polynomial: half the wires, half the coefficients, and no hints.
    """

    bounds: Bounds
    cells: int
    proofs: int = 2

    def __post_init__(self) -> None:
        if self.circuit.width * FIELD.width > 2**31:
            raise BadInput(f"expected reports below 2 GiB, got {self.cells} cells")

    @cached_property
    def circuit(self) -> Circuit:
        return Circuit(self.bounds, self.cells, self.proofs)

    @property
    def proxy_bytes(self) -> int:
        return BLIND_BYTES + self.circuit.width * FIELD.width

    @property
    def server_bytes(self) -> int:
        return SEED_BYTES

    @property
    def message_bytes(self) -> int:
        return PART_BYTES + self._message_elements * FIELD.width

    def soundness_error(self, hash_queries: int) -> float:
        """At most the chance that one bad report passes, by a device that computes so many hashes."""
        return float(self.circuit.soundness_error(hash_queries)) * (1 + 2**-50)

    def split(self, values: NDArray[np.int64], binding: bytes, entropy: Source) -> tuple[bytes, bytes]:
        """The plain parts for proxy and server; values out of bounds are refused here already."""
        if values.shape != (self.cells,):
            raise BadInput(f"expected {self.cells} values, got shape {values.shape}")
        self.bounds.check(values)
        shape = self.circuit.shape
        row = np.zeros((1, self.circuit.width), np.uint64)
        row[0, : shape.digits] = self.circuit.digits(values)
        proofs = row[0, shape.digits :].reshape(self.proofs, shape.proof)  # a view
        random = FIELD.uniform(self.proofs * shape.wires, entropy.bytes)
        proofs[:, : shape.wires] = random.reshape(self.proofs, shape.wires)
        seed, blind = entropy.bytes(SEED_BYTES), entropy.bytes(BLIND_BYTES)
        hiding = mask(seed, binding, _PURPOSE, FIELD, self.circuit.width)
        digits = FIELD.to_bytes(FIELD.subtract(row[0, : shape.digits], hiding[: shape.digits]))
        parts = (_part(Role.PROXY, binding, blind + digits), _part(Role.SERVER, binding, seed))
        fill_quotients(row, np.array([_challenges(*parts, self.proofs)], np.uint64), shape)
        tail = FIELD.subtract(row[0, shape.digits :], hiding[shape.digits :])
        return blind + digits + FIELD.to_bytes(tail), seed

    def prepare(
        self, role: Role, plains: Sequence[bytes], bindings: Sequence[bytes], check_key: bytes
    ) -> Prepared:
        """Shares of the counts, and of what the proofs are checked by."""
        if len(check_key) < CHECK_KEY_BYTES:
            raise BadInput(f"expected a check key of at least {CHECK_KEY_BYTES} bytes, got {len(check_key)}")
        table = np.zeros((len(plains), self.circuit.width), np.uint64)
        points = np.zeros((len(plains), self.proofs), np.uint64)
        parts = np.zeros((len(plains), PART_BYTES), np.uint8)
        refused = np.zeros(len(plains), np.uint8)
        for row, (plain, binding) in enumerate(zip(plains, bindings, strict=True)):
            share = self._share(role, plain, binding)
            if share is None:
                refused[row] = Refusal.MALFORMED
            else:
                table[row] = share
                committed = plain[: BLIND_BYTES + self.circuit.shape.digits * FIELD.width]
                parts[row] = np.frombuffer(_part(role, binding, committed), np.uint8)
            points[row] = self._points(binding, check_key)
        sums = self.circuit.sums(table)
        if role is Role.PROXY:
            sums = FIELD.subtract(sums, np.full_like(sums, self.bounds.total))
        values = evaluations(table, points, self.circuit.shape).reshape(len(plains), self._message_elements - 1)
        elements = np.concatenate((sums[:, None], values), axis=1)
        elements[refused != 0] = 0
        messages = np.concatenate((parts, elements.astype("<u8", copy=False).view(np.uint8)), axis=1)
        return Prepared(self.circuit.counts(table), [message.tobytes() for message in messages], refused)

    def valid(self, own: Sequence[bytes], other: Sequence[bytes]) -> NDArray[np.bool_]:
        """(reports,) whether both messages together prove the report; in either order the same."""
        if len(own) != len(other):
            raise BadInput(f"expected as many messages of both parties, got {len(own)} and {len(other)}")
        one, sound_one = self._read(own)
        two, sound_two = self._read(other)
        total = FIELD.add(one, two)  # (reports, elements)
        challenges = np.zeros((len(own), self.proofs), np.uint64)
        for row, (mine, theirs) in enumerate(zip(own, other, strict=True)):
            challenges[row] = _challenges(mine[:PART_BYTES], theirs[:PART_BYTES], self.proofs)
        wires = self.circuit.shape.wires
        values = np.ascontiguousarray(total[:, 1:]).reshape(len(own), self.proofs, wires + 1)
        left = balances(values, challenges, self.circuit.shape.most)
        proved: NDArray[np.bool_] = sound_one & sound_two & (total[:, 0] == 0) & ~left.any(axis=1)
        return proved

    @property
    def _message_elements(self) -> int:
        """The sum less `total`, and for each proof every wire and the quotient at its point."""
        return 1 + self.proofs * (self.circuit.shape.wires + 1)

    def _share(self, role: Role, plain: bytes, binding: bytes) -> Residues | None:
        if role is Role.SERVER:
            good = len(plain) == SEED_BYTES
            return mask(plain, binding, _PURPOSE, FIELD, self.circuit.width) if good else None
        if len(plain) != self.proxy_bytes:
            return None
        share = np.frombuffer(plain, "<u8", offset=BLIND_BYTES)
        return None if (share >= PRIME).any() else share

    def _points(self, binding: bytes, check_key: bytes) -> list[int]:
        """A secret point for each proof. At a root of unity digits could be seen, so there is never one."""
        size = self.circuit.shape.size
        return _elements(
            lambda block: hmac.digest(check_key, _POINTS + block + binding, "sha256"),
            self.proofs,
            lambda point: pow(point, size, PRIME) != 1,
        )

    def _read(self, messages: Sequence[bytes]) -> tuple[Residues, NDArray[np.bool_]]:
        """The messages' elements, and which messages can be a party's: zeros stand for a refused report."""
        elements = np.zeros((len(messages), self._message_elements), np.uint64)
        sound = np.zeros(len(messages), np.bool_)
        for row, message in enumerate(messages):
            if len(message) == self.message_bytes:
                elements[row] = np.frombuffer(message, "<u8", offset=PART_BYTES)
                sound[row] = any(message[:PART_BYTES])
        sound &= (elements < PRIME).all(axis=1)
        elements[~sound] = 0
        return elements, sound


def _part(role: Role, binding: bytes, committed: bytes) -> bytes:
    """A party's hash of its share of the digits, blinded or of a seed: it tells the other one nothing."""
    return hashlib.sha256(_LABELS[role] + binding + committed).digest()


def _challenges(one: bytes, other: bytes, proofs: int) -> list[int]:
    """A challenge for each proof, from both parties' hashes in either order."""
    both = _CHALLENGES + b"".join(sorted((one, other)))
    return _elements(lambda block: hashlib.sha256(both + block).digest(), proofs, lambda _: True)


def _elements(digest: Callable[[bytes], bytes], length: int, usable: Callable[[int], bool]) -> list[int]:
    """Uniform field elements from hashes of block numbers: their words in order, without the unusable."""
    found: list[int] = []
    for block in count():
        words = np.frombuffer(digest(block.to_bytes(4, "little")), "<u8").tolist()
        found += [word for word in words if word < PRIME and usable(word)]
        if len(found) >= length:
            return found[:length]
    raise AssertionError("a hash has no end")
