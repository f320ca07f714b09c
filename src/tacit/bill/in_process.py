"""An ad server and a proxy in one process, linked by calls of the very bytes that a network would carry.

For simulations, benchmarks and a first look: who runs both knows everything, so it protects nobody. What each
party was sent is counted, by the kind of message.

    parties = BillingParties(SqlAdStore.open("ads.sqlite"), SqlBillingProxyStore.open("proxy.sqlite"), source)
    parties.open_epoch(menus, EpochTimes(opens=0, closes=3600, expires=4500))
    device = AdDevice(settings, keys, journal, parties, source)   # it is the device's channel, too
    parties.now = 4500
    parties.bill()                                                # shuffled, charged, receipted
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tacit import expect
from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.keys import OpeningKey, SigningKey
from tacit.bill.protocol.menus import PricedMenu
from tacit.bill.proxy.party import BillingProxy, HoldRule
from tacit.bill.proxy.store import BillingProxyStore
from tacit.bill.server.party import AdServer, EpochTimes
from tacit.bill.server.store import AdStore
from tacit.bill.server.token_keys import TokenKey
from tacit.display import brief
from tacit.errors import BillRefused
from tacit.privacy.randomness import Source


class BillingParties:
    """Both parties, and a device's way to the proxy. `now` is everybody's clock.

    messages, bytes  how many of each kind were sent, and how long they were: requests, offers, reports, ...
    """

    def __init__(
        self,
        ads: AdStore,
        reports: BillingProxyStore,
        source: Source,
        *,
        now: int = 0,
        hold: HoldRule | None = None,
        make_key: Callable[[], TokenKey] = TokenKey.generate,
    ) -> None:
        expect.having("source", source, "bytes", "an Entropy")
        self.now, self._source = now, source
        self.server_key, self.proxy_key = SigningKey(source.bytes(32)), SigningKey(source.bytes(32))
        self.opening = OpeningKey(source.bytes(32))
        self.server = AdServer(
            self.server_key, self.opening, ads, source, proxy_public=self.proxy_key.public, make_key=make_key
        )
        self.proxy = BillingProxy(self.proxy_key, reports, server_public=self.server_key.public, hold=hold)
        self.messages: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def __repr__(self) -> str:
        return brief(self, server=self.server, proxy=self.proxy)

    def open_epoch(self, menus: Sequence[PricedMenu], times: EpochTimes) -> EpochHead:
        return self.server.open_epoch(menus, times, self)

    def bill(self) -> int:
        """Shuffle, deliver and charge whatever is due; how many batches were receipted."""
        self.proxy.form_batches(self.now, self._source)
        return self.proxy.deliver_batches(self)

    # A device's calls (an `AdChannel`).

    def head(self) -> bytes:
        return self._count("heads", self.proxy.head(self.now).to_bytes())

    def offer(self, sealed: bytes) -> bytes:
        return self._count("offers", self.server.offer(self._count("requests", sealed), self.now))

    def report(self, report: bytes) -> None:
        (verdict,) = self.take_reports([report])
        if verdict is not BillVerdict.ACCEPTED:
            raise BillRefused(verdict)

    def take_reports(self, reports: Sequence[bytes]) -> list[BillVerdict]:
        """What becomes of several, in one transaction."""
        for each in reports:
            self._count("reports", each)
        return self.proxy.take(reports, self.now)

    def statement(self, nonce: bytes) -> bytes | None:
        found = self.proxy.statement_for(nonce)
        return None if found is None else self._count("statements", found.to_bytes())

    def statements(self, epoch: int) -> list[bytes]:
        return [self._count("statements", each.to_bytes()) for each in self.proxy.cohorts(epoch)]

    # The parties' calls of each other (a `DirectoryLink` and a `BatchLink`).

    def countersign(self, directory: bytes) -> bytes:
        return self._count("heads", self.proxy.countersign(self._count("directories", directory), self.now))

    def deliver(self, batch: bytes) -> bytes:
        return self._count("receipts", self.server.redeem(self._count("batches", batch)))

    def _count(self, kind: str, message: bytes) -> bytes:
        self.messages[kind] += 1
        self.bytes[kind] += len(message)
        return message
