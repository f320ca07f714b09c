"""An ad server and a proxy of billing in one process, with real keys, menus, tokens and reports.

    world = World(SqlAdStore.open(...), SqlBillingProxyStore.open(...))  # also as a context manager
    world.open_epoch()
    world.report(3, index=2)          # three impressions of the first menu's second entry
    world.bill()                      # batches, receipts
    world.ads.totals()

Keys of RSA take long to draw: `token_key` hands out the same few ones for the whole session, one after the
other, also to `AdServer(make_key=...)`. Everything can also be made by hand: `a_menu`, `a_stored_epoch`,
`a_token`, `a_report`, `a_batch`, and for stores alone, without tokens, `charged` and `redeemed`.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding

from tacit.bill.protocol.batches import BATCH_ID_BYTES, Batch, BatchStatement, Receipt
from tacit.bill.protocol.directory import Directory, DirectoryLeaf, EpochHead
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.keys import OpeningKey, SigningKey
from tacit.bill.protocol.menus import NOTHING, Lane, MenuEntry, PricedMenu
from tacit.bill.protocol.reports import REPORT_BYTES, ImpressionReport
from tacit.bill.protocol.tokens import token_message, token_nonce
from tacit.bill.proxy.party import BillingProxy, HoldRule
from tacit.bill.proxy.store import BillingProxyStore, FormedBatch, NewReport, StoredMenu
from tacit.bill.server.party import AdServer, EpochTimes
from tacit.bill.server.store import AdStore, KeptMenu, RedeemedBatch, RedeemedReport, StoredEpoch
from tacit.bill.server.token_keys import TokenKey
from tacit.entropy import Simulation
from tacit.schema.contexts.hierarchy import Node

EPOCH = 7
TIMES = EpochTimes(opens=10_000, closes=20_000, expires=30_000)
DURING, CLOSED, EXPIRED = 15_000, 25_000, 30_000
SERVER_KEY, PROXY_KEY = SigningKey(b"s" * 32), SigningKey(b"p" * 32)
REQUESTS = OpeningKey(b"r" * 32)  # what devices seal their requests to
SEALING = OpeningKey(b"e" * 32)  # what the reports of epochs made by hand are sealed to
PRICES = (1_250_000, 700_001, 3)
CAMPAIGNS = (11, 12, 13)
KEYS_AT_MOST = 4


@cache
def numbered_key(_number: int) -> TokenKey:
    return TokenKey.generate()


_next_key = itertools.cycle(range(KEYS_AT_MOST))


def token_key() -> TokenKey:
    """The next of a few keys that are drawn once: menus may share one, which a real server never lets them."""
    return numbered_key(next(_next_key))


def a_node(name: str) -> Node:
    return Node((0,), (name,))


def a_menu(
    name: str = "Lisbon",
    *,
    epoch: int = EPOCH,
    prices: Sequence[int] = PRICES,
    campaigns: Sequence[int] = CAMPAIGNS,
    smallest_cohort: int = 1,
) -> PricedMenu:
    """A menu of the personal lane with these prices, one campaign each."""
    entries = tuple(
        MenuEntry(campaign, price, 2 * price, 0.25, -2)
        for campaign, price in zip(campaigns, prices, strict=False)
    )
    return PricedMenu(
        epoch=epoch, lane=Lane.PERSONAL, node=a_node(name), entries=entries, rule="second price per impression",
        mechanism="trunc", epsilon_micros=1_000_000, smallest_cohort=smallest_cohort,
    )  # fmt: skip


def a_stored_epoch(
    *menus: PricedMenu, keys: Sequence[TokenKey] | None = None, times: EpochTimes = TIMES
) -> StoredEpoch:
    """An epoch as an ad store keeps it before the proxy has countersigned; one menu where none is named."""
    menus = menus or (a_menu(),)
    drawn = keys or [numbered_key(place % KEYS_AT_MOST) for place in range(len(menus))]
    directory = a_directory(menus, drawn, times)
    kept = tuple(KeptMenu(menu, key.to_bytes()) for menu, key in zip(menus, drawn, strict=True))
    return StoredEpoch(directory.to_bytes(), None, kept, SEALING.to_bytes())


def a_directory(menus: Sequence[PricedMenu], keys: Sequence[TokenKey], times: EpochTimes = TIMES) -> Directory:
    """A directory that the ad server has signed."""
    leaves = [DirectoryLeaf.of(menu, key.public) for menu, key in zip(menus, keys, strict=True)]
    directory = Directory.make(
        leaves, epoch=menus[0].epoch, opens=times.opens, closes=times.closes, expires=times.expires,
        sealing_key=SEALING.public,
    )  # fmt: skip
    return directory.with_head(directory.head.signed_by_server(SERVER_KEY))


def countersigned(directory: bytes) -> bytes:
    """The head of a directory with both signatures."""
    return Directory.from_bytes(directory).head.countersigned(PROXY_KEY).to_bytes()


def stored_menus(directory: bytes) -> list[StoredMenu]:
    """A directory's menus as the proxy's store keeps them."""
    read = Directory.from_bytes(directory)
    head = read.head
    return [StoredMenu(leaf, head.epoch, head.opens, head.closes, head.expires) for leaf in read.leaves]


def a_secret(name: object) -> bytes:
    return hashlib.sha256(f"secret {name}".encode()).digest()


def a_token(menu_id: bytes, secret: bytes, key: TokenKey) -> bytes:
    """A token for this menu. Signed in the open: what is left after blinding is the same kind of signature."""
    pss = padding.PSS(padding.MGF1(hashes.SHA384()), 48)
    return key._private.sign(token_message(token_nonce(secret), menu_id), pss, hashes.SHA384())


def a_report(
    menu: PricedMenu, name: object, index: int, key: TokenKey, *, sealing_key: bytes = SEALING.public
) -> bytes:
    """A report that the entry `index` was shown, with a real token; other names are other devices."""
    secret = a_secret(name)
    token = a_token(menu.menu_id, secret, key)
    return ImpressionReport.make(menu.menu_id, secret, token, index, sealing_key).to_bytes()


def a_batch(menu: PricedMenu, reports: Sequence[bytes], name: object = "batch") -> Batch:
    """Reports in this order, as the proxy signs them."""
    batch_id = hashlib.sha256(f"batch {name}".encode()).digest()[:BATCH_ID_BYTES]
    statement = BatchStatement.sign(PROXY_KEY, batch_id, menu.menu_id, menu.epoch, reports)
    return Batch(statement, tuple(reports))


def charged(menu: PricedMenu, name: object, index: int = 1) -> RedeemedReport:
    """A report as the ad server hands it to its store: accepted, at the price of its entry."""
    price = menu.price_micros(index)
    assert price is not None, "an entry of the menu"
    campaign = None if index == NOTHING else menu.entries[index - 1].campaign
    secret = a_secret(name)
    return RedeemedReport(BillVerdict.ACCEPTED, token_nonce(secret), index, price, campaign, secret)


def redeemed(menu: PricedMenu, reports: Sequence[RedeemedReport], name: object = "batch") -> RedeemedBatch:
    """A batch of such reports, whose bytes stand for real ones: a store does not read them."""
    data = [_stand_in(each, place) for place, each in enumerate(reports)]
    batch = a_batch(menu, data, name)
    return RedeemedBatch(
        batch.statement.batch_id, menu.menu_id, batch.statement.to_bytes(), b"".join(data), tuple(reports)
    )


def _stand_in(report: RedeemedReport, place: int) -> bytes:
    return (report.nonce or place.to_bytes(32, "big")).ljust(REPORT_BYTES, b".")


def sign_receipt(batch: RedeemedBatch) -> Callable[[bytes], bytes]:
    """What the ad server hands to `AdStore.redeem`."""
    return lambda verdicts: Receipt.sign(SERVER_KEY, batch.batch_id, verdicts).to_bytes()


def redeem(store: AdStore, batch: RedeemedBatch) -> Receipt:
    """Redeem at a store alone."""
    return Receipt.from_bytes(store.redeem(batch, sign_receipt(batch)))


def new_report(
    menu: PricedMenu, name: object, *, arrived: int = DURING, data: bytes | None = None
) -> NewReport:
    """A report as the proxy hands it to its store, with a stand-in for its bytes."""
    nonce = token_nonce(a_secret(name))
    return NewReport(nonce, menu.menu_id, (data or nonce).ljust(REPORT_BYTES, b"."), arrived)


def form_in(
    order: Callable[[int], Sequence[int]], menu: PricedMenu, name: object = "batch"
) -> Callable[[Sequence[bytes]], FormedBatch]:
    """What the proxy hands to `BillingProxyStore.form_batch`, with an order of one's own."""

    def form(reports: Sequence[bytes]) -> FormedBatch:
        places = list(order(len(reports)))
        batch = a_batch(menu, [reports[place] for place in places], name)
        return FormedBatch(batch.statement.batch_id, batch.statement.to_bytes(), places)

    return form


@dataclass
class World:
    """Both parties on stores of one's own, linked by function calls of the same bytes; `now` is everybody's."""

    ads: AdStore
    proxied: BillingProxyStore
    now: int = DURING
    hold: HoldRule = field(default_factory=lambda: HoldRule(seconds=0))
    source: Simulation = field(default_factory=lambda: Simulation(22))

    def __post_init__(self) -> None:
        self.server = AdServer(
            SERVER_KEY, REQUESTS, self.ads, self.source, proxy_public=PROXY_KEY.public, make_key=token_key
        )
        self.proxy = BillingProxy(PROXY_KEY, self.proxied, server_public=SERVER_KEY.public, hold=self.hold)
        self._menus: list[PricedMenu] = []
        self._names = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the stores, where they can be closed."""
        for store in (self.ads, self.proxied):
            getattr(store, "close", lambda: None)()

    def countersign(self, directory: bytes) -> bytes:
        """As `DirectoryLink`."""
        return self.proxy.countersign(directory, self.now)

    def deliver(self, batch: bytes) -> bytes:
        """As `BatchLink`."""
        return self.server.redeem(batch)

    def open_epoch(self, *menus: PricedMenu, times: EpochTimes = TIMES) -> EpochHead:
        self._menus = list(menus or (a_menu(),))
        return self.server.open_epoch(self._menus, times, self)

    def make_reports(self, count: int = 1, index: int = 1, menu: PricedMenu | None = None) -> list[bytes]:
        """Reports of new devices, with real tokens of the epoch that was opened last."""
        menu = self._menus[0] if menu is None else menu
        opened = self.server.load_epoch(menu.epoch)
        key = opened.by_id[menu.menu_id].key
        assert key is not None, "the epoch's keys are there"
        return [
            a_report(menu, next(self._names), index, key, sealing_key=opened.head.sealing_key)
            for _ in range(count)
        ]

    def report(self, count: int = 1, index: int = 1, menu: PricedMenu | None = None) -> list[bytes]:
        """Such reports, handed in at the proxy."""
        made = self.make_reports(count, index, menu)
        verdicts = self.proxy.take(made, self.now)
        assert set(verdicts) <= {BillVerdict.ACCEPTED}, verdicts
        return made

    def bill(self) -> list[BatchStatement]:
        """Form what is due, and deliver it."""
        formed = self.proxy.form_batches(self.now, self.source)
        self.proxy.deliver_batches(self)
        return formed
