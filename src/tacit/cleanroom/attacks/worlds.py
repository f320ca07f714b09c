"""Records with labels, and the game: some labels are fair coins, and the platform is to guess them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from tacit.cleanroom.wire.tokens import TOKEN_BYTES
from tacit.privacy.randomness import Source

Records = NDArray[np.int64]
Labels = NDArray[np.uint8]

NOBODY = 10**12
"""Record numbers from here on are nobody's: a platform may make up as many as it likes."""


@dataclass(frozen=True, eq=False)
class World:
    """Both parties know record i by the number i. Where there are several tasks, all labels of a record are the
    same coin: an attack may look at any of them, and all of them are protected together."""

    labels: Labels  # (records, tasks)
    challenge: Records  # the records whose labels are fair coins; the others are 0

    @property
    def records(self) -> Records:
        return np.arange(len(self.labels))

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(f"task-{place}" for place in range(self.labels.shape[1]))

    @property
    def truths(self) -> Labels:
        truths: Labels = self.labels[self.challenge, 0]
        return truths

    @classmethod
    def coins(cls, records: int, source: Source, *, tasks: int = 1) -> World:
        """Every label is a fair coin."""
        return cls._with(np.arange(records), records, source, tasks)

    @classmethod
    def sparse(cls, records: int, coins: int, source: Source) -> World:
        """A few labels, at random places, are fair coins; the rest is 0, as most conversions are."""
        places = np.argsort(source.words(records), kind="stable")[:coins]
        return cls._with(np.sort(places).astype(np.int64), records, source, 1)

    @classmethod
    def alike(cls, batches: int, size: int, source: Source) -> World:
        """All labels of a batch are one coin, that of its first record."""
        coins = fair_coins(batches, source)
        return cls(np.repeat(coins, size)[:, None], np.arange(0, batches * size, size))

    @classmethod
    def _with(cls, challenge: Records, records: int, source: Source, tasks: int) -> World:
        labels = np.zeros((records, tasks), dtype=np.uint8)
        labels[challenge] = fair_coins(len(challenge), source)[:, None]
        return cls(labels, challenge)


def tokens_of(records: Records) -> NDArray[np.uint8]:
    """Sixteen bytes for each number, (n, 16), never the same for two; which ones, is all the same to a room.

    A block cipher under a public key, because it makes millions in a second.
    """
    blocks = np.zeros((len(records), 2), "<u8")
    blocks[:, 0] = records.astype(np.uint64)
    named = Cipher(algorithms.AES256(bytes(32)), modes.ECB()).encryptor().update(blocks.tobytes())
    return np.frombuffer(named, np.uint8).reshape(-1, TOKEN_BYTES).copy()


def fair_coins(count: int, source: Source) -> Labels:
    return (source.words(count) >> np.uint64(63)).astype(np.uint8)
