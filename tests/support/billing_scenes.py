"""An epoch of its own for each attack on billing, and what was charged in it, to the micro."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from tacit.bill.protocol.batches import Batch, Receipt
from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import PricedMenu
from tacit.bill.protocol.reports import ImpressionReport
from tacit.bill.server.token_keys import TokenKey
from tacit.errors import BillRefused
from tests.support.billing_worlds import DURING, SERVER_KEY, World, a_batch, a_menu, a_secret, a_token

Charges = Counter[tuple[bytes, int]]
"""How often each entry (menu, index) was charged."""


def reason_of(attempt: Callable[[], object]) -> BillVerdict:
    """The verdict by which an attempt is refused."""
    with pytest.raises(BillRefused) as refusal:
        attempt()
    return BillVerdict(refusal.value.reason)


@dataclass
class Scene:
    """Two menus of one epoch, and a third of another that is open too; whoever attacks knows all of it."""

    world: World
    menu: PricedMenu
    other: PricedMenu
    foreign: PricedMenu
    head: EpochHead
    before: Charges = field(default_factory=Counter)
    names: itertools.count[int] = field(default_factory=itertools.count)

    @classmethod
    def begin(cls, world: World, number: int) -> Scene:
        """Epoch 10 * number, and the one before it, which is still open."""
        world.now = DURING
        epoch = 10 * number
        foreign = a_menu("Lisbon", epoch=epoch - 1)
        menu, other = a_menu("Lisbon", epoch=epoch), a_menu("Porto", epoch=epoch, prices=(9_000_000, 5, 4))
        world.open_epoch(foreign)
        head = world.open_epoch(menu, other)
        found = cls(world, menu, other, foreign, head)
        found.before = found.charges()
        return found

    def key(self, menu: PricedMenu | None = None) -> TokenKey:
        menu = menu or self.menu
        key = self.world.server.load_epoch(menu.epoch).by_id[menu.menu_id].key
        assert key is not None, "the epoch's keys are there"
        return key

    def secret(self) -> bytes:
        """A new token's secret."""
        return a_secret(("scene", self.menu.epoch, next(self.names)))

    def sealing_key(self, menu: PricedMenu | None = None) -> bytes:
        return self.world.server.load_epoch((menu or self.menu).epoch).head.sealing_key

    def report(
        self, index: int = 1, *, secret: bytes = b"", menu: PricedMenu | None = None
    ) -> ImpressionReport:
        """A good report."""
        menu, secret = menu or self.menu, secret or self.secret()
        token = a_token(menu.menu_id, secret, self.key(menu))
        return ImpressionReport.make(menu.menu_id, secret, token, index, self.sealing_key(menu))

    def take(self, *reports: ImpressionReport | bytes) -> list[BillVerdict]:
        """Hand reports in at the proxy."""
        data = [each if isinstance(each, bytes) else each.to_bytes() for each in reports]
        return self.world.proxy.take(data, self.world.now)

    def bill(self) -> None:
        self.world.bill()

    def redeem(self, batch: Batch | bytes) -> list[BillVerdict]:
        """Hand a batch in at the ad server, and read its receipt."""
        data = batch if isinstance(batch, bytes) else batch.to_bytes()
        receipt = Receipt.from_bytes(self.world.server.redeem(data))
        receipt.check(SERVER_KEY.public)
        return [BillVerdict(each) for each in receipt.verdicts]

    def batch(self, *reports: ImpressionReport | bytes, menu: PricedMenu | None = None) -> Batch:
        """A batch that the proxy signed, of whatever reports: a proxy that does not follow its code."""
        data = [each if isinstance(each, bytes) else each.to_bytes() for each in reports]
        return a_batch(menu or self.menu, data, (self.menu.epoch, next(self.names)))

    def charges(self) -> Charges:
        """All that is charged in the store; what its campaigns were charged is the sum of it."""
        lines = self.world.ads.totals()
        owed = sum(line.total_micros for line in lines)
        assert owed == sum(each.charged_micros for each in self.world.ads.campaigns())
        return Counter({(line.menu_id, line.index): line.impressions for line in lines})

    def assert_charged(self, *indices: int, menu: PricedMenu | None = None, more: Sequence[int] = ()) -> None:
        """Exactly these entries were charged since the scene began; `more` are entries of the other menu."""
        wanted = Counter(((menu or self.menu).menu_id, index) for index in indices)
        wanted += Counter((self.other.menu_id, index) for index in more)
        charged = self.charges()
        charged.subtract(self.before)
        assert +charged == wanted
        assert not -charged

    def assert_nothing_charged(self) -> None:
        self.bill()  # whatever waits is charged now or never
        self.assert_charged()

    def assert_still_bills(self) -> None:
        """An honest impression is charged once, whatever was tried before it."""
        self.world.now = DURING
        self.bill()
        before = self.charges()
        assert self.take(self.report(2)) == [BillVerdict.ACCEPTED]
        self.bill()
        charged = self.charges()
        charged.subtract(before)
        assert +charged == Counter({(self.menu.menu_id, 2): 1})
