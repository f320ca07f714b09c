"""A device that lies as well as it can about its counts, and two honest parties to judge it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.entropy import Simulation
from tacit.gather.protocol import proofs as proving
from tacit.gather.protocol.credentials import PartyRole
from tacit.gather.protocol.groups import mask
from tacit.gather.protocol.promises import CountBounds
from tacit.gather.protocol.proofs import FIELD, ProvenSharing
from tacit.kernels import reference_field
from tacit.kernels.field import PRIME

KEY = bytes(range(32))
BINDING = bytes(48)
FORMS = {
    "bits": ProvenSharing(CountBounds(1, 3), 12),
    "digits": ProvenSharing(CountBounds(4, 9), 12),
    "two digits a count": ProvenSharing(CountBounds(100, 250), 12),
    "one proof": ProvenSharing(CountBounds(1, 3), 12, proofs=1),
    "three proofs": ProvenSharing(CountBounds(2, 5), 7, proofs=3),
    "one cell": ProvenSharing(CountBounds(1, 1), 1),
}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
Parts = tuple[bytes, bytes]


def judged(form: ProvenSharing, parts: Parts, binding: bytes = BINDING, other: bytes | None = None) -> bool:
    """What both parties find, each by itself; `other` is the server's binding, if not the proxy's."""
    proxy = form.prepare(PartyRole.PROXY, [parts[0]], [binding], KEY)
    server = form.prepare(PartyRole.SERVER, [parts[1]], [binding if other is None else other], KEY)
    verdicts = form.valid(proxy.messages, server.messages), form.valid(server.messages, proxy.messages)
    assert verdicts[0] == verdicts[1]
    return bool(verdicts[0][0]) and not proxy.refused[0] and not server.refused[0]


def honest(form: ProvenSharing, seed: str = "honest", binding: bytes = BINDING) -> Parts:
    counts = np.zeros(form.cells, np.int64)
    counts[0] = 1
    return form.split(counts, binding, Simulation(seed))


@dataclass(frozen=True)
class Liar:
    """A device that puts any digits into its row, and else goes by the book unless told otherwise."""

    form: ProvenSharing
    digits: NDArray[np.uint64]
    binding: bytes = BINDING

    def parts(
        self,
        *,
        seed: str = "liar",
        no_wire_seeds: bool = False,
        rewritten: Callable[[NDArray[np.uint64], NDArray[np.uint64]], None] | None = None,
        challenges: NDArray[np.uint64] | None = None,
    ) -> Parts:
        shape, source = self.form.circuit.shape, Simulation(seed)
        row = np.zeros((1, self.form.circuit.width), np.uint64)
        row[0, : shape.digits] = self.digits
        if not no_wire_seeds:
            proofs = row[0, shape.digits :].reshape(self.form.proofs, -1)
            proofs[:, : shape.wires] = FIELD.uniform(self.form.proofs * shape.wires, source.bytes).reshape(
                self.form.proofs, -1
            )
        server, blind = source.bytes(32), source.bytes(32)
        hiding = mask(server, self.binding, proving._PURPOSE, FIELD, self.form.circuit.width)
        share = FIELD.to_bytes(FIELD.subtract(row[0], hiding)[: shape.digits])
        hashes = (
            proving._part(PartyRole.PROXY, self.binding, blind + share),
            proving._part(PartyRole.SERVER, self.binding, server),
        )
        if challenges is None:
            challenges = np.array([proving._challenges(*hashes, self.form.proofs)], np.uint64)
        spelled = (shape.digits, shape.most, shape.wires, shape.size)
        reference_field.fill_quotients(row, challenges, *spelled)  # of bad digits: what comes nearest
        if rewritten is not None:
            rewritten(row, challenges)
        return blind + FIELD.to_bytes(FIELD.subtract(row[0], hiding)), server


def digits_of(form: ProvenSharing, counts: dict[int, int], rest: int | None = None) -> NDArray[np.uint64]:
    """These counts and a rest that makes the sum right, unless told otherwise; all modulo p.

    What digits in range cannot spell goes into a first digit as it is.
    """
    own, most = form.circuit, form.circuit.shape.most
    digits = np.zeros(own.shape.digits, dtype=object)

    def write(start: int, number: int, largest: int, weights: tuple[int, ...]) -> None:
        if 0 <= number <= largest:
            digits[start : start + len(weights)] = proving._spell_digits(np.array([number]), weights, most)[0]
        else:
            digits[start] = number

    for cell, number in counts.items():
        write(cell * len(own.count_weights), number, form.bounds.each, own.count_weights)
    left = form.bounds.total - sum(counts.values()) if rest is None else rest
    write(form.cells * len(own.count_weights), left, form.bounds.total, own.rest_weights)
    return (digits % PRIME).astype(np.uint64)
