"""Zero-knowledge proofs that a report's counts are in range, checked by two parties that do not see them.

What is proved: a count is spelled by digits in 0..most with weights whose sums are exactly 0..each; for
`most` = 1 by bits. Further digits spell what the sum of counts leaves of the bound `total`. So if every digit
is in range, every count is; and if counts and rest add up to `total`, the sum is at most that: bounds so
large that it could wrap are refused.

The largest digit is a matter of size. With 1, a count of 0..4 takes three elements; with 4 it takes one, and
the proof's quotient grows instead, which all counts share.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import count

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Words
from tacit.errors import BadInput
from tacit.gather.protocol.credentials import PartyRole
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.groups import SEED_BYTES, Group, Residues, mask
from tacit.gather.protocol.promises import LARGEST_BOUND, CountBounds
from tacit.gather.protocol.sharing import PreparedShares
from tacit.kernels.field import PRIME, ProofShape, balances, evaluations, fill_quotients, weighted_sums
from tacit.privacy.randomness import Source

LARGEST_DIGIT = 16
"""Beyond it a device's work grows faster than anything shrinks."""

MOST_CIRCUIT_CELLS = 2**24


@dataclass(frozen=True)
class Circuit:
    """Digits, their weights, and how they are dealt to the wires of a proof: the smallest upload that does."""

    bounds: CountBounds
    cells: int
    proofs: int

    def __post_init__(self) -> None:
        if not 1 <= expect.whole("cells", self.cells, at_least=1) <= MOST_CIRCUIT_CELLS:
            raise BadInput(f"expected cells <= 2^24, got {self.cells}")
        expect.whole("proofs", self.proofs, at_least=1)
        if self.cells * self.bounds.each >= LARGEST_BOUND:
            raise BadInput(f"expected cells x each below 2^62, got {self.cells} x {self.bounds.each}")
        # A rest may be spelled above `total`: with the counts it must stay below the prime, or a sum too large
        # could come around to the right one.
        if self.cells * self.bounds.each + self.shape.most * sum(self.rest_weights) >= PRIME:
            raise BadInput(f"expected a smaller total, got {self.bounds.total}: sums could wrap in the field")

    @property
    def shape(self) -> ProofShape:
        return _smallest_shape(self.bounds, self.cells, self.proofs)

    @property
    def width(self) -> int:
        """Field elements of a report with its proofs."""
        return self.shape.width(self.proofs)

    @cached_property
    def count_weights(self) -> tuple[int, ...]:
        return _weights(self.bounds.each, self.shape.most)

    @cached_property
    def rest_weights(self) -> tuple[int, ...]:
        return _powers(self.bounds.total, self.shape.most)

    def digits(self, counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Words:
        """(digits,) that spell these counts, count by count, and then the rest; counts are within bounds."""
        rest, most = np.array([self.bounds.total - int(counts.sum())]), self.shape.most
        spelled = (
            _spell_digits(counts, self.count_weights, most),
            _spell_digits(rest, self.rest_weights, most),
        )
        return np.concatenate([each.reshape(-1) for each in spelled]).astype(np.uint64)

    def counts(self, table: Words) -> Words:
        """(rows, cells) from rows that begin with digits, or with shares of them."""
        if self.count_weights == (1,):
            return np.ascontiguousarray(table[:, : self.cells])
        return weighted_sums(table, np.array(self.count_weights, np.uint64), self.cells)

    def sums(self, table: Words) -> Words:
        """(rows,): counts and rest together, of the rows or of shares; `total` for an honest report."""
        weights = self.count_weights * self.cells + self.rest_weights
        return weighted_sums(table, np.array(weights, np.uint64), 1)[:, 0]

    def soundness_error(self, hash_queries: int) -> Fraction:
        """At most the chance that a report out of bounds passes, by a device that tries `hash_queries` hashes.

        A challenge hides digits out of range if it is a root of a polynomial of degree wires - 1: a chance a.
        If it does not, no quotient fits, and the two sides agree at a random point with a chance b, of a
        polynomial's degree in all points outside of the domain. A device may look for challenges that suit it
        (they are hashes of what it sends) but never sees a point. It takes a report for which i of k proofs are
        blind, found with a chance of at most hash_queries C(k, i) a^i, and must be lucky in the others.
        """
        shape, k = self.shape, self.proofs
        blind = Fraction(shape.wires - 1, PRIME)
        lucky = Fraction((shape.most + 1) * (shape.size - 1), PRIME - shape.size)
        tries = expect.whole("hash_queries", hash_queries, at_least=1)
        found = (min(Fraction(1), tries * math.comb(k, i) * blind**i) for i in range(k + 1))
        return min(Fraction(1), sum((each * lucky ** (k - i) for i, each in enumerate(found)), Fraction()))


@lru_cache(maxsize=256)
def _smallest_shape(bounds: CountBounds, cells: int, proofs: int) -> ProofShape:
    """Of all largest digits and domains, those with the fewest elements to upload; of equals the first."""
    found = []
    for most in range(1, LARGEST_DIGIT + 1):
        if bounds.each % most:
            continue  # such digits spell no range that ends at `each`
        digits = cells * len(_weights(bounds.each, most)) + len(_powers(bounds.total, most))
        size = 2
        while size == 2 or most * size <= 4 * digits:
            found.append(ProofShape(digits, most, -(-digits // (size - 1)), size))
            size *= 2
    return min(found, key=lambda shape: shape.width(proofs))


@lru_cache(maxsize=256)
def _weights(largest: int, most: int) -> tuple[int, ...]:
    """Weights, as few as can be, by which digits in 0..most spell exactly 0..largest; `most` divides it."""
    weights: list[int] = []
    while (left := largest // most - sum(weights)) > 0:
        weights.append(min(most * sum(weights) + 1, left))  # no gap: all numbers up to here have been spelled
    return tuple(weights)


@lru_cache(maxsize=256)
def _powers(largest: int, most: int) -> tuple[int, ...]:
    """Weights that spell at least 0..largest: no count is below 0, so no rest exceeds the total anyway."""
    weights = [1]
    while most * sum(weights) < largest:
        weights.append(weights[-1] * (most + 1))
    return tuple(weights)


def _spell_digits(
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]], weights: tuple[int, ...], most: int
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """(numbers, digits): of each weight from the last on as little as what the others cannot reach."""
    left, digits = numbers.copy(), np.zeros((len(numbers), len(weights)), np.int64)
    for place in reversed(range(1, len(weights))):
        reach, weight = most * sum(weights[:place]), weights[place]
        digits[:, place] = -(-np.maximum(left - reach, 0) // weight)
        left -= digits[:, place] * weight
    digits[:, 0] = left  # the first weight is 1
    return digits


FIELD = Group.FIELD64
PART_BYTES = 32
BLIND_BYTES = 32
CHECK_KEY_BYTES = 32
_PURPOSE = b"proven counts"
_LABELS = {role: b"tacit gather proof 1, part of the %b " % role.encode() for role in PartyRole}
_CHALLENGES = b"tacit gather proof 1, challenges "
_POINTS = b"tacit gather proof 1, points "


@dataclass(frozen=True)
class ProvenSharing:
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

    bounds: CountBounds
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
        """At most the chance that one bad report passes, by a device that computes `hash_queries` hashes."""
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
        parts = (_part(PartyRole.PROXY, binding, blind + digits), _part(PartyRole.SERVER, binding, seed))
        fill_quotients(row, np.array([_challenges(*parts, self.proofs)], np.uint64), shape)
        tail = FIELD.subtract(row[0, shape.digits :], hiding[shape.digits :])
        return blind + digits + FIELD.to_bytes(tail), seed

    def prepare(
        self, role: PartyRole, plains: Sequence[bytes], bindings: Sequence[bytes], check_key: bytes
    ) -> PreparedShares:
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
                refused[row] = MessageVerdict.MALFORMED
            else:
                table[row] = share
                committed = plain[: BLIND_BYTES + self.circuit.shape.digits * FIELD.width]
                parts[row] = np.frombuffer(_part(role, binding, committed), np.uint8)
            points[row] = self._points(binding, check_key)
        sums = self.circuit.sums(table)
        if role is PartyRole.PROXY:
            sums = FIELD.subtract(sums, np.full_like(sums, self.bounds.total))
        values = evaluations(table, points, self.circuit.shape).reshape(len(plains), self._message_elements - 1)
        elements = np.concatenate((sums[:, None], values), axis=1)
        elements[refused != 0] = 0
        messages = np.concatenate((parts, elements.astype("<u8", copy=False).view(np.uint8)), axis=1)
        return PreparedShares(self.circuit.counts(table), [message.tobytes() for message in messages], refused)

    def valid(self, own: Sequence[bytes], other: Sequence[bytes]) -> NDArray[np.bool_]:
        """(reports,) whether both messages together prove the report; in either order the same."""
        if len(own) != len(other):
            raise BadInput(f"expected as many messages of both parties, got {len(own)} and {len(other)}")
        one, sound_one = self._read_messages(own)
        two, sound_two = self._read_messages(other)
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

    def _share(self, role: PartyRole, plain: bytes, binding: bytes) -> Residues | None:
        if role is PartyRole.SERVER:
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

    def _read_messages(self, messages: Sequence[bytes]) -> tuple[Residues, NDArray[np.bool_]]:
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


def _part(role: PartyRole, binding: bytes, committed: bytes) -> bytes:
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
