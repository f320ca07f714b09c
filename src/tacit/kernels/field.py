"""Arithmetic of range proofs in the field of p = 2^64 - 2^32 + 1: checked here, done in C++ or by its twin.

A report is a row of field elements: its digits, which must all be in 0..most, then one proof after another.
Digits are dealt to the wires in turn, and wire j stands for the polynomial f_j of degree below `size` through
its digits at w, w^2, ..., where w is a root of unity of order `size`; its value at 1 is random and hides it. A
proof holds these random values and the quotient h of

    sum over wires j of challenge^j f_j (f_j - 1) ... (f_j - most)   by   (x^size - 1) / (x - 1),

which has no remainder just if the sum is zero at every place of digits. Everything but the challenge and the
products is linear, so shares of a row are evaluated like the row itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from tacit.arrays import Words
from tacit.errors import BadInput
from tacit.kernels.backend import load_kernel
from tacit.kernels.checks import ANY, expect_array

PRIME = 2**64 - 2**32 + 1


@dataclass(frozen=True)
class ProofShape:
    """The number of digits, the largest one, and how they are dealt: to `wires` of `size` places each."""

    digits: int
    most: int
    wires: int
    size: int

    def __post_init__(self) -> None:
        if min(self.digits, self.most, self.wires) < 1:
            raise BadInput("expected digits, most and wires to be at least 1, got less")
        if self.size < 2 or self.size & (self.size - 1) or self.most * self.size > 2**24:
            raise BadInput(f"expected size to be a power of two, and most x size <= 2^24, got size {self.size}")
        if self.wires * (self.size - 1) < self.digits:
            raise BadInput(f"expected places for {self.digits} digits, got {self.wires} x {self.size - 1}")

    @property
    def quotient(self) -> int:
        """Coefficients of h."""
        return self.most * (self.size - 1) + 1

    @property
    def proof(self) -> int:
        """Elements of a proof: random values, then h."""
        return self.wires + self.quotient

    def width(self, proofs: int) -> int:
        """Elements of a row."""
        return self.digits + proofs * self.proof


def weighted_sums(table: Words, weights: Words, sums: int) -> Words:
    """(rows, sums): from a row's first elements, each `len(weights)` of them in turn, added up by weight."""
    _expect_elements("table", table, (ANY, ANY))
    _expect_elements("weights", weights, (ANY,))
    if sums * len(weights) > table.shape[1]:
        raise BadInput(f"expected rows of {sums * len(weights)} elements or more, got {table.shape[1]}")
    out = np.empty((len(table), sums), np.uint64)
    _kernel().weighted_sums(table, weights, out)
    return out


def fill_quotients(table: Words, challenges: Words, shape: ProofShape) -> None:
    """Write each proof's h into rows (rows, width) that have their digits, all in range, and random values.

    `challenges` is (rows, proofs).
    """
    _expect_rows(table, "challenges", challenges, shape)
    if not table.flags.writeable:
        raise BadInput("expected a table that can be written to, got another")
    if int(table[:, : shape.digits].max(initial=0)) > shape.most:
        raise BadInput(f"expected digits in 0..{shape.most}, got one outside")
    _kernel().fill_quotients(table, challenges, shape.digits, shape.most, shape.wires, shape.size)


def evaluations(table: Words, points: Words, shape: ProofShape) -> Words:
    """(rows, proofs, wires + 1): f_j at the proof's point for each wire, then the divided polynomial by h.

    `points` is (rows, proofs); none may be a root of unity of order `size`, where digits would be seen.
    """
    _expect_rows(table, "points", points, shape)
    out = np.empty((points.size, shape.wires + 1), np.uint64)
    if not _kernel().evaluations(table, points, shape.digits, shape.most, shape.wires, shape.size, out):
        raise BadInput("expected points outside of the domain, got one inside")
    return out.reshape(*points.shape, shape.wires + 1)


def balances(values: Words, challenges: Words, most: int) -> Words:
    """(rows, proofs): what the wires' values give, less what h gives; zero where a proof holds.

    `values` is a sum of `evaluations` of shares, (rows, proofs, wires + 1).
    """
    _expect_elements("challenges", challenges, (ANY, ANY))
    _expect_elements("values", values, (*challenges.shape, ANY))
    if values.shape[2] < 2 or most < 1:
        raise BadInput("expected a wire and a digit at least, got none")
    out = np.empty(challenges.size, np.uint64)
    _kernel().balances(values.reshape(-1, values.shape[2]), challenges.reshape(-1), most, out)
    return out.reshape(challenges.shape)


def _expect_rows(table: Words, name: str, drawn: Words, shape: ProofShape) -> None:
    _expect_elements(name, drawn, (ANY, ANY))
    _expect_elements("table", table, (drawn.shape[0], shape.width(drawn.shape[1])))


def _expect_elements(name: str, array: Words, shape: tuple[int, ...]) -> None:
    expect_array(name, array, np.uint64, shape)
    if array.size and int(array.max()) >= PRIME:
        raise BadInput(f"expected {name} to hold elements below the prime, got one beyond")


def _kernel() -> ModuleType:
    return load_kernel("_field", "reference_field")
