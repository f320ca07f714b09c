"""Ad stores with charges of several epochs, invoices and held ones, for reports.

market = ChargedMarket(SqlAdStore.open(path))
market.open_epoch(day=0)
market.charge(0, "North", [1, 1, 2])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tacit.bill.protocol.menus import PricedMenu
from tacit.bill.server.party import EpochTimes
from tacit.bill.server.store import Campaign
from tacit.store import SqlAdStore
from tests.support.billing_worlds import a_menu, a_stored_epoch, charged, countersigned, redeem, redeemed

DAY = 86_400
FIRST_DAY = 20_000 * DAY  # 2024-10-04
ACME, BOLT = "Acme", "=Bolt"
CONTEXTS = ("North", "South")


@dataclass
class ChargedMarket:
    """Campaigns 1 and 2 are Acme's, 4 is Bolt's; each epoch takes a day and has two menus."""

    store: SqlAdStore
    menus: dict[tuple[int, str], PricedMenu] = field(default_factory=dict)
    batches: int = 0

    def __post_init__(self) -> None:
        self.store.put_campaigns([Campaign(1, ACME), Campaign(2, ACME), Campaign(4, BOLT)])

    def open_epoch(self, day: int) -> None:
        opens = FIRST_DAY + day * DAY + 3_600
        made = [
            a_menu(name, epoch=day + 1, prices=(100 + 7 * day, 30, 11), campaigns=(1, 2, 4))
            for name in CONTEXTS
        ]
        stored = a_stored_epoch(*made, times=EpochTimes(opens, opens + DAY, opens + 2 * DAY))
        self.store.keep_epoch(day + 1, stored)
        self.store.publish_epoch(day + 1, countersigned(stored.directory))
        self.menus |= {(day, name): menu for name, menu in zip(CONTEXTS, made, strict=True)}

    def charge(self, day: int, context: str, indices: Sequence[int]) -> None:
        """Charge a batch of new tokens, of these entries of a menu."""
        self.batches += 1
        menu = self.menus[day, context]
        reports = [charged(menu, (self.batches, at), index) for at, index in enumerate(indices)]
        redeem(self.store, redeemed(menu, reports, self.batches))
