"""The proxy's rounds that still have something to do: read once when it starts, and heard of after that."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from tacit.gather.proxy.store import Phase, StoredRound
from tacit.gather.wire.rounds import Round

SETTLED = frozenset({Phase.RELEASED, Phase.TOO_FEW, Phase.STOPPED})


class RoundsStore(Protocol):
    """The part of a proxy's store that is needed here."""

    def rounds(self) -> Sequence[StoredRound]: ...


class LiveRounds:
    """Rounds that are not settled. What is settled is let go: it is in the store for whoever asks."""

    def __init__(self, store: RoundsStore, *, not_before: int) -> None:
        """A round with too few reports is told to the server once more, unless it closed before that second."""
        stored = [(Round.from_bytes(each.body), each.phase) for each in store.rounds()]
        self._rounds = {
            round.digest: round
            for round, phase in stored
            if phase not in SETTLED or (phase is Phase.TOO_FEW and round.closes >= not_before)
        }
        self._lock = threading.Lock()

    def add(self, round: Round) -> None:
        with self._lock:
            self._rounds[round.digest] = round

    def settle(self, round: Round) -> None:
        with self._lock:
            self._rounds.pop(round.digest, None)

    def all(self) -> Sequence[Round]:
        with self._lock:
            return list(self._rounds.values())
