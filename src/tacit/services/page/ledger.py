"""Charges as they arrive, each with its reason, for the demonstration's page: what is charged adds up there.

A charge is named by its batch and its place in it, in one number that grows: whoever has seen some asks for
those behind the last. Each answer reads a bounded number of them, by an index, however many there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit.bill.protocol.batches import MOST_REPORTS
from tacit.bill.protocol.menus import PricedMenu
from tacit.services.endpoints import LruCache
from tacit.store.console_figures import ChargeRow, charges_behind, latest_invoices, menus_by_id

if TYPE_CHECKING:
    from tacit.services.ads.parts import RunningAds

MOST_CHARGES = 200  # in one answer
MOST_INVOICES = 20
MOST_MENUS = 512  # whose reasons are remembered
PLACES = 2**17
"""Numbers of one batch: more than it can have reports."""

LARGEST_NUMBER = 2**53 - 1  # that a browser can count
assert PLACES > MOST_REPORTS


class ChargeFeed:
    """Reads charges, in their order; any thread may ask."""

    def __init__(self, running: RunningAds) -> None:
        self._running = running
        self._menus: LruCache[bytes, PricedMenu] = LruCache(MOST_MENUS)

    def read(self, after: int | None) -> dict[str, Any]:
        """The charges behind a number, None: from the first on; with what was charged and held in all."""
        batch, place = (0, -1) if after is None else divmod(after, PLACES)
        store, database = self._running.store, self._running.store.database
        rows = charges_behind(database, batch, place, MOST_CHARGES + 1)
        # Read behind the charges: sums are never behind what is listed.
        accounts = {each.campaign: each for each in store.campaigns()}
        menus, names = self._menus_of(rows), dict[int, tuple[str, str]]()
        charges = []
        for row in rows[:MOST_CHARGES]:
            menu, campaign = menus[row.menu_id], row.campaign
            if campaign is not None and campaign not in names:
                names[campaign] = accounts[campaign].advertiser, self._title(campaign)
            advertiser, title = ("", "") if campaign is None else names[campaign]
            charges.append(
                {
                    "number": row.batch * PLACES + row.place,
                    "campaign": campaign,
                    "advertiser": advertiser,
                    "title": title,
                    "entry": row.entry,
                    "price_micros": row.price_micros,
                    "reason": menu.reason(row.entry),
                    "context": str(menu.node),
                    "lane": str(menu.lane),
                    "epoch": menu.epoch,
                    "batch": row.batch,
                    "held": row.held,
                    "invoice": row.invoice,
                }
            )
        invoices = latest_invoices(database, most=MOST_INVOICES)
        return {
            "total_micros": sum(each.charged_micros for each in accounts.values()),
            "held_micros": sum(store.held_micros().values()),
            "charges": charges,
            "more": len(rows) > MOST_CHARGES,
            "invoices": [each._asdict() for each in invoices],
        }

    def _title(self, campaign: int) -> str:
        """Empty where a campaign stands in a market's file alone."""
        stored = self._running.campaigns.campaign(campaign)
        return "" if stored is None else stored.campaign.title

    def _menus_of(self, rows: list[ChargeRow]) -> dict[bytes, PricedMenu]:
        wanted = {each.menu_id for each in rows}
        found = {each: kept for each in wanted if (kept := self._menus.get(each)) is not None}
        for menu_id, menu in menus_by_id(self._running.store.database, sorted(wanted - found.keys())).items():
            found[menu_id] = self._menus.put(menu_id, menu)
        return found
