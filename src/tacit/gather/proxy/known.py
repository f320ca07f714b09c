"""The rounds that a proxy knows, read once each."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.errors import Refused
from tacit.gather.proxy.store import ProxyStore
from tacit.gather.wire.credentials import DEVICE_BYTES, TAG_BYTES
from tacit.gather.wire.forms import Form, form_of
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.rounds import DIGEST_BYTES, REPORT_ID_BYTES, Round
from tacit.gather.wire.sealing import SEAL_OVERHEAD
from tacit.gather.wire.uploads import Upload, upload_bytes


@dataclass(frozen=True)
class Known:
    """A round, and what follows from it."""

    round: Round
    form: Form
    upload_bytes: int
    proxy_part: slice  # where a good upload has its sealed parts
    server_part: slice

    @classmethod
    def of(cls, round: Round) -> Known:
        form = form_of(round)
        # Every good upload has the same sizes, so what was checked once need not be parsed again.
        proxy = b"\xff" * (form.proxy_bytes + SEAL_OVERHEAD)
        server = b"\xfe" * (form.server_bytes + SEAL_OVERHEAD)
        blank = Upload(
            bytes(DIGEST_BYTES), bytes(REPORT_ID_BYTES), bytes(DEVICE_BYTES), proxy, server, bytes(TAG_BYTES)
        ).to_bytes()
        # From the right: the length that is written before a part may end in its first byte.
        places = [slice(start := blank.rindex(part), start + len(part)) for part in (proxy, server)]
        return cls(round, form, upload_bytes(round), *places)


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
        self.largest_upload = max(self.largest_upload, known.upload_bytes)
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
