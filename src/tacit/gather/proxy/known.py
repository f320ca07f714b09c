"""The rounds that a proxy knows, read once each."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.errors import Refused
from tacit.gather.proxy.store import ProxyStore
from tacit.gather.wire.forms import Form, form_of
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.rounds import Round
from tacit.gather.wire.uploads import Layout


@dataclass(frozen=True)
class Known:
    """A round, and what follows from it."""

    round: Round
    form: Form
    layout: Layout

    @classmethod
    def of(cls, round: Round) -> Known:
        return cls(round, form_of(round), Layout.of(round))


class KnownRounds:
    """Rounds by digest. What is not known yet is looked for in the store, so a restart forgets none."""

    def __init__(self, store: ProxyStore) -> None:
        self._store = store
        self._by_digest: dict[bytes, Known] = {}
        self.largest_upload = 0
        for stored in store.rounds():
            self.add(Round.from_bytes(stored.body))

    def add(self, round: Round) -> Known:
        known = Known.of(round)
        self.largest_upload = max(self.largest_upload, known.layout.size)
        self._by_digest[round.digest] = known
        return known

    def of(self, digest: bytes) -> Known:
        known = self._by_digest.get(digest)
        if known is None:
            stored = self._store.round(digest)
            if stored is None:
                raise Refused(Refusal.UNKNOWN_ROUND)
            known = self.add(Round.from_bytes(stored.body))
        return known
