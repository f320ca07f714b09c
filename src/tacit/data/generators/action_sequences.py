"""What users did lately: an endless stream of actions for each user, read at any moment and never kept.

User u has three topics of 32 and acts 2 to 17 times a day. Action number e is a hash of (key, u, e): its topic
is one of the user's three, or with probability .2 any of the 32; its item is one of 64; its kind is one of
four, of falling frequency. So two sequences of one user that were read a little apart overlap as they would in
a real log.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TOPICS, ITEMS = 32, 64
SHORTEST, LONGEST = 4, 16
RANDOM_TOPIC = 0.2
ACTION_FREQUENCIES = (0.55, 0.25, 0.12, 0.08)
DAY = 86_400.0

Whole = NDArray[np.int64]
Bits = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Sequences:
    """One sequence a row, the most recent action first; beyond its length a row's actions do not count."""

    length: Whole  # (rows,)
    topic: Whole  # (rows, LONGEST)
    item: Whole
    action: Whole

    @property
    def counts(self) -> NDArray[np.bool_]:
        counts: NDArray[np.bool_] = np.arange(LONGEST) < self.length[:, None]
        return counts


def sequences(key: int, user: Whole, second: Whole, length: Whole) -> Sequences:
    """The last `length` actions of each user before these seconds; `key`, below 2^63, is the world's."""
    about = _mix(np.full(1, key, dtype=np.uint64) + user.astype(np.uint64) * GOLDEN)
    a_day = 2 + _bits(about, 0, 4)
    phase = _bits(about, 4, 16) / 2**16
    happened = LONGEST + (a_day * (second / DAY) + phase).astype(np.int64)
    number = happened[:, None] - 1 - np.arange(LONGEST)
    event = _mix(about[:, None] + number.astype(np.uint64) * GOLDEN)

    step = 2 * _bits(about, 25, 4) + 1  # odd, so that the three topics differ
    favourite = _bits(about, 20, 5)[:, None] + (3 * _bits(event, 0, 16) >> 16) * step[:, None]
    anything = _bits(event, 16, 16) < RANDOM_TOPIC * 2**16
    kinds = np.cumsum(ACTION_FREQUENCIES)[:-1] * 2**16
    return Sequences(
        length=length,
        topic=np.where(anything, _bits(event, 32, 5), favourite % TOPICS),
        item=_bits(event, 37, 6),
        action=np.searchsorted(kinds, _bits(event, 43, 16), side="right"),
    )


def _mix(bits: Bits) -> Bits:
    """A bijection after which neighbours look unrelated: SplitMix64's last step (Steele et al. 2014)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _bits(word: Bits, start: int, count: int) -> Whole:
    cut: Whole = ((word >> np.uint64(start)) & np.uint64(2**count - 1)).astype(np.int64)
    return cut
