"""Where the tests keep the parties' stores, and what they put there."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from tacit.gather.proxy.store import NewReport, ProxyStore
from tacit.gather.server.store import ServerStore
from tacit.gather.simulate.memory import MemoryProxyStore, MemoryServerStore
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.gather_server import SqlServerStore
from tests.support.ledger_places import Place


class Stores:
    """One place for one party's store, in memory where there is no place; every call opens it once more."""

    def __init__(self, place: Place | None) -> None:
        self.place = place
        self._memory: Any = None
        self._opened: list[SqlProxyStore | SqlServerStore] = []

    def proxy(self) -> ProxyStore:
        if self.place is None:
            self._memory = self._memory or MemoryProxyStore()
            return self._memory  # type: ignore[no-any-return]
        return self.sql_proxy()

    def server(self) -> ServerStore:
        if self.place is None:
            self._memory = self._memory or MemoryServerStore()
            return self._memory  # type: ignore[no-any-return]
        return self.sql_server()

    def sql_proxy(self) -> SqlProxyStore:
        assert self.place is not None
        store = SqlProxyStore.open(self.place.where)
        self._opened.append(store)
        return store

    def sql_server(self) -> SqlServerStore:
        assert self.place is not None
        store = SqlServerStore.open(self.place.where)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()


def word(name: object) -> bytes:
    """16 bytes for a name, in no order."""
    return hashlib.sha256(str(name).encode()).digest()[:16]


DIGEST, OTHER = (hashlib.sha256(name).digest() for name in (b"a round", b"another round"))


def report(
    number: int, *, device: int | None = None, digest: bytes = DIGEST, upload_hash: bytes | None = None
) -> NewReport:
    """A report whose device, hash and upload follow from its number, unless told otherwise."""
    device = number if device is None else device
    upload = word(f"upload {number} {device}") * 20
    return NewReport(digest, word(number), word(f"device {device}"), upload_hash or word(upload) * 2, upload)


def reports(*numbers: int) -> list[NewReport]:
    return [report(number) for number in numbers]


def a_job(
    number: int, ids: Sequence[int], verdicts: Sequence[int] | None = None
) -> tuple[int, bytes, bytes, list[bytes], bytes, bytes]:
    """What the server keeps of a job: number, hash, reply, ids, verdicts, total."""
    codes = bytes(len(ids)) if verdicts is None else bytes(verdicts)
    named = [word(each) for each in ids]
    return number, word(f"hash {number}"), b"reply %d" % number, named, codes, b"total %d" % number
