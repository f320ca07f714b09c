"""Additive secret sharing of a vector of counts between two parties, and what each party does with its share.

Decrypting a party's parts and preparing its shares is the heavy work of a job. It is pure, so it may run in
other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput, Refused
from tacit.gather.protocol.credentials import PartyRole, SealingKey
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.groups import SEED_BYTES, Group, Residues, mask
from tacit.gather.protocol.rounds import Round, report_binding
from tacit.privacy.randomness import Source

_PURPOSE = b"counts"


@dataclass(frozen=True, eq=False)
class PreparedShares:
    """A party's parts of several reports, ready to be added up."""

    shares: Residues  # (reports, cells); zeros where refused
    messages: list[bytes]  # one per report, for the other party; without meaning where refused
    refused: NDArray[np.uint8]  # (reports,) a MessageVerdict each; 0 is fine


class SharingScheme(Protocol):
    """One way to split a vector and to put it together again, summed over reports."""

    @property
    def proxy_bytes(self) -> int:
        """Size of the proxy's plain part."""

    @property
    def server_bytes(self) -> int:
        """Size of the server's plain part."""

    @property
    def message_bytes(self) -> int:
        """Size of what the parties send each other per report; 0: nothing."""

    def split(self, values: NDArray[np.int64], binding: bytes, entropy: Source) -> tuple[bytes, bytes]:
        """The plain parts for proxy and server."""

    def prepare(
        self, role: PartyRole, plains: Sequence[bytes], bindings: Sequence[bytes], check_key: bytes
    ) -> PreparedShares:
        """What this party adds up, and what it tells the other one; `check_key` is the two parties' secret."""

    def valid(self, own: Sequence[bytes], other: Sequence[bytes]) -> NDArray[np.bool_]:
        """(reports,) whether each is proved, from both parties' messages; both find the same."""


@dataclass(frozen=True)
class MaskedSharing:
    """No proof: the proxy's part is the values less a mask, the server's the mask's seed.

    Guarantee:  either part alone is independent of the values: the proxy's is uniform whatever they are, and
                the server's is drawn without them. Both together are the values. Nothing bounds the values: a
                device that lies shifts each count of its round by any amount.
    Neighbours: any two vectors of this length.
    Assumes:    proxy and server do not pool their parts; the seed is uniform, used for one report and unknown
                to the proxy; AES-256-CTR under a SHA-256 key cannot be told from uniform bytes.
    Source:     additive secret sharing with a pseudo-random mask, as in Prio, Corrigan-Gibbs, Boneh 2017.
    """

    group: Group
    cells: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "group", Group(self.group))
        expect.whole("cells", self.cells, at_least=1)

    @property
    def proxy_bytes(self) -> int:
        return self.cells * self.group.width

    @property
    def server_bytes(self) -> int:
        return SEED_BYTES

    @property
    def message_bytes(self) -> int:
        return 0

    def split(self, values: NDArray[np.int64], binding: bytes, entropy: Source) -> tuple[bytes, bytes]:
        if values.shape != (self.cells,):
            raise BadInput(f"expected {self.cells} values, got shape {values.shape}")
        seed = entropy.bytes(SEED_BYTES)
        hidden = self.group.subtract(self.group.residues(values), self._mask(seed, binding))
        return self.group.to_bytes(hidden), seed

    def prepare(
        self,
        role: PartyRole,
        plains: Sequence[bytes],
        bindings: Sequence[bytes],
        check_key: bytes,  # noqa: ARG002 (there is nothing to check)
    ) -> PreparedShares:
        whole = self._all_at_once(plains) if role is PartyRole.PROXY else None
        if whole is not None:
            return PreparedShares(whole, [b""] * len(plains), np.zeros(len(plains), np.uint8))
        shares = np.zeros((len(plains), self.cells), self.group.dtype)
        refused = np.zeros(len(plains), np.uint8)
        for row, (plain, binding) in enumerate(zip(plains, bindings, strict=True)):
            try:
                if role is PartyRole.PROXY:
                    shares[row] = self.group.from_bytes(plain, self.cells)
                elif len(plain) == SEED_BYTES:
                    shares[row] = self._mask(plain, binding)
                else:
                    refused[row] = MessageVerdict.MALFORMED
            except Refused as refusal:
                refused[row] = refusal.reason
        return PreparedShares(shares, [b""] * len(plains), refused)

    def valid(self, own: Sequence[bytes], other: Sequence[bytes]) -> NDArray[np.bool_]:
        if len(own) != len(other):
            raise BadInput(f"expected as many messages of both parties, got {len(own)} and {len(other)}")
        return np.ones(len(own), np.bool_)

    def _all_at_once(self, plains: Sequence[bytes]) -> Residues | None:
        """(reports, cells) of the proxy's parts, in one copy; None if any of them is malformed."""
        if any(len(plain) != self.proxy_bytes for plain in plains):
            return None
        try:
            elements = self.group.from_bytes(b"".join(plains), len(plains) * self.cells)
        except Refused:
            return None
        return elements.reshape(len(plains), self.cells)

    def _mask(self, seed: bytes, binding: bytes) -> Residues:
        return mask(seed, binding, _PURPOSE, self.group, self.cells)


def sharing_scheme(round: Round) -> SharingScheme:
    """How the round's reports are split: with a proof where it has bounds."""
    if round.bounds is None:
        return MaskedSharing(round.group, round.cells)
    from tacit.gather.protocol.proofs import ProvenSharing

    return ProvenSharing(round.bounds, round.cells)


SealedParts = Sequence[tuple[bytes, bytes]]
"""(report id, sealed part) of each report."""

PartOpener = Callable[[SealingKey, PartyRole, SharingScheme, SealedParts, bytes, bytes], PreparedShares]
"""`open_parts`, or the same work done by other processes."""


def open_parts(
    key: SealingKey,
    role: PartyRole,
    scheme: SharingScheme,
    entries: SealedParts,
    digest: bytes,
    check_key: bytes,
) -> PreparedShares:
    """The party's shares of these reports. A part sealed to another key, role, round or id is UNOPENABLE."""
    plains, bindings, opened = [], [], []
    for place, (report_id, sealed) in enumerate(entries):
        bound = report_binding(digest, report_id)
        try:
            plain = key.open(sealed, role=role, binding=bound)
        except Refused:
            continue
        plains.append(plain)
        bindings.append(bound)
        opened.append(place)
    prepared = scheme.prepare(role, plains, bindings, check_key)
    if len(opened) == len(entries) and not prepared.refused.any():
        return prepared
    shares = np.zeros((len(entries), *prepared.shares.shape[1:]), prepared.shares.dtype)  # (reports, cells)
    shares[opened] = prepared.shares
    refused = np.full(len(entries), MessageVerdict.UNOPENABLE, np.uint8)
    refused[opened] = prepared.refused
    messages = [bytes(scheme.message_bytes)] * len(entries)  # of one size, whatever the report
    for place, message, code in zip(opened, prepared.messages, prepared.refused, strict=True):
        if code == MessageVerdict.ACCEPTED:
            messages[place] = message
    return PreparedShares(shares, messages, refused)
