"""Proofs of range with whole numbers of Python, by definition: what the tests hold the compiled loops to.

The arguments are those of the compiled functions, already checked; `field` says what they mean. Any prime with
a root of unity of the domain's size will do: in a small field a test can look at every proof there is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

FieldNumbers = NDArray[Any]  # uint64, or Python's whole numbers
Polynomial = list[int]  # coefficients, the constant first

PRIME = 2**64 - 2**32 + 1
GENERATOR = 7


def weighted_sums(table: FieldNumbers, weights: FieldNumbers, out: FieldNumbers) -> None:
    length = len(weights)
    whole = table[:, : out.shape[1] * length].astype(object).reshape(*out.shape, length)
    out[:] = (whole * weights.astype(object)).sum(axis=2, initial=0) % PRIME


def fill_quotients(
    table: FieldNumbers,
    challenges: FieldNumbers,
    digits: int,
    most: int,
    wires: int,
    size: int,
    prime: int = PRIME,
    generator: int = GENERATOR,
) -> None:
    length = most * (size - 1) + 1
    for row, drawn in zip(table, challenges.tolist(), strict=True):
        for proof, challenge in enumerate(drawn):
            start = digits + proof * (wires + length)
            gadget = [0] * ((most + 1) * (size - 1) + 1)
            for wire in range(wires):
                values = _wire(row, start, wire, digits, wires, size)
                polynomial = _interpolate(values, prime, generator)
                product = [pow(challenge, wire, prime)]
                for digit in range(most + 1):
                    product = _times(product, [polynomial[0] - digit, *polynomial[1:]], prime)
                gadget = [(a + b) % prime for a, b in zip(gadget, product, strict=True)]
            row[start + wires : start + wires + length] = _quotient(gadget, size, prime)


def evaluations(
    table: FieldNumbers,
    points: FieldNumbers,
    digits: int,
    most: int,
    wires: int,
    size: int,
    out: FieldNumbers,
    prime: int = PRIME,
    generator: int = GENERATOR,
) -> bool:
    length = most * (size - 1) + 1
    found = []
    for row, places in zip(table.astype(object), points.tolist(), strict=True):
        for proof, point in enumerate(places):
            if pow(point, size, prime) == 1:
                return False
            start = digits + proof * (wires + length)
            basis = np.array(_lagrange(point, size, prime, generator), dtype=object)
            grid = np.zeros(
                wires * size, dtype=object
            )  # the domain's places, each with its value of every wire
            grid[:wires], grid[wires : wires + digits] = row[start : start + wires], row[:digits]
            quotient = row[start + wires : start + wires + length]
            value = sum(a * pow(point, k, prime) for k, a in enumerate(quotient))
            found.append([*(basis @ grid.reshape(size, wires)), value * _vanishing(point, size, prime)])
    out[:] = np.array(found, dtype=object).reshape(out.shape) % prime
    return True


def balances(
    values: FieldNumbers, challenges: FieldNumbers, most: int, out: FieldNumbers, prime: int = PRIME
) -> None:
    for row, (numbers, challenge) in enumerate(zip(values.tolist(), challenges.tolist(), strict=True)):
        *wires, right = numbers
        terms = (math.prod(x - digit for digit in range(most + 1)) for x in wires)
        left = sum(pow(challenge, wire, prime) * term for wire, term in enumerate(terms))
        out[row] = (left - right) % prime


def domain(size: int, prime: int = PRIME, generator: int = GENERATOR) -> list[int]:
    """The powers of a root of unity of order `size`, from 1."""
    root = pow(generator, (prime - 1) // size, prime)
    return [pow(root, k, prime) for k in range(size)]


def _wire(row: FieldNumbers, start: int, wire: int, digits: int, wires: int, size: int) -> list[int]:
    """Its values on the domain: the random one first, then its digits, then zeros."""
    values = [int(row[start + wire]), *(int(row[i]) for i in range(wire, digits, wires))]
    return values + [0] * (size - len(values))


def _interpolate(values: list[int], prime: int, generator: int) -> Polynomial:
    size = len(values)
    roots, per_size = domain(size, prime, generator), pow(size, -1, prime)
    terms = [sum(value * roots[-i * k % size] for k, value in enumerate(values)) for i in range(size)]
    return [term * per_size % prime for term in terms]


def _times(one: Polynomial, other: Polynomial, prime: int) -> Polynomial:
    product = [0] * (len(one) + len(other) - 1)
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            product[i + j] += a * b
    return [each % prime for each in product]


def _quotient(dividend: Polynomial, size: int, prime: int) -> Polynomial:
    """By 1 + x + ... + x^(size - 1), which is zero just where digits are; what remains is left out."""
    rest, quotient = list(dividend), [0] * (len(dividend) - size + 1)
    for place in reversed(range(len(quotient))):
        quotient[place] = rest[place + size - 1] % prime
        for k in range(size):
            rest[place + k] -= quotient[place]
    return quotient


def _lagrange(point: int, size: int, prime: int, generator: int) -> list[int]:
    scale = (pow(point, size, prime) - 1) * pow(size, -1, prime)
    return [scale * a * pow(point - a, -1, prime) % prime for a in domain(size, prime, generator)]


def _vanishing(point: int, size: int, prime: int) -> int:
    return sum(pow(point, k, prime) for k in range(size)) % prime
