"""The day's visits through the parties of billing: devices, a proxy and an ad server, by the bytes they'd send.

Every device fetches its context's menu and a token, chooses privately, and reports through the proxy, which
shuffles. The ad server charges, once, and invoices its advertisers. All of it runs in one process, so it
protects nobody; but nothing crosses between the parties here that would not over a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np

from tacit import expect
from tacit.arrays import Floats
from tacit.bill.audit.export import export_folder
from tacit.bill.audit.findings import VerificationReport
from tacit.bill.audit.verification import verify_folder
from tacit.bill.in_process import BillingParties
from tacit.bill.protocol.batches import BatchStatement
from tacit.bill.proxy.store import BillingProxyStore
from tacit.bill.server.party import EpochTimes
from tacit.bill.server.store import AdStore, Campaign, Invoice
from tacit.data.generators.town import ADS, ADS_EACH, ADVERTISERS, DISCLOSED, Moments, Town
from tacit.deliver.auction.devices import DeviceChoices, choices_of_ranks
from tacit.deliver.device.account import MICRO, DeviceLimits
from tacit.deliver.device.context import DeviceContext
from tacit.deliver.device.fleet import DeviceFleet
from tacit.deliver.device.parties import PartyKeys
from tacit.deliver.device.settings import DeviceSettings
from tacit.deliver.protocol.disclosure import DisclosureLevel
from tacit.deliver.protocol.menu import Menu
from tacit.deliver.protocol.priced_menus import price_list
from tacit.entropy import Entropy
from tacit.errors import BillError
from tacit.privacy.randomness import Source
from tacit.privacy.units import Window
from tacit.progress import Progress, no_progress
from tacit.town import disclosed_menus

DAY = Window.days(1)
EPOCH = EpochTimes(opens=0, closes=DAY.seconds, expires=DAY.seconds + 3_600)
SMALLEST_COHORT = 200
"""Reports of a menu that leave together: about what takes a choice of epsilon 2 to 1, at delta 1e-6."""


@dataclass(frozen=True, eq=False)
class BillingStores:
    """What ad server and proxy keep of the day's impressions: each its own, empty at first."""

    ads: AdStore
    reports: BillingProxyStore


@dataclass(frozen=True, eq=False)
class BilledDevices:
    """Devices that choose at `choice` each, up to `wallet` in the day, and report through parties on stores."""

    choice: expect.Number
    wallet: expect.Number
    stores: BillingStores


@dataclass(frozen=True, eq=False)
class BilledDay:
    """What crossed between the parties, and what they have on their books afterwards.

    messages, sizes  how many of each kind were sent, and their bytes together
    statements       what the proxy signed of each batch: how many reports left together
    invoices         by advertiser; `charged_micros` what their charges come to
    central          by device: epsilon of its day's choices against the ad server alone, shuffled
    settled          reports whose cohort was as large as its menu asks for, and those that were not
    audit_keys       the public keys by which ad server and proxy signed, which an auditor needs
    """

    messages: Mapping[str, int]
    sizes: Mapping[str, int]
    statements: tuple[BatchStatement, ...] = field(repr=False)
    invoices: tuple[Invoice, ...] = field(repr=False)
    central: Floats = field(repr=False)
    settled: tuple[int, int]
    audit_keys: tuple[bytes, bytes] = field(repr=False)

    @property
    def charged_micros(self) -> int:
        return sum(invoice.total_micros for invoice in self.invoices)

    @property
    def smallest_batch(self) -> int:
        """Reports in the smallest batch of the day."""
        return min(each.reports for each in self.statements)

    @property
    def by_advertiser(self) -> dict[int, int]:
        """What each owes, by its number; who owes nothing is not there."""
        owed = {ADVERTISERS.index(each.advertiser): each.total_micros for each in self.invoices}
        return dict(sorted(owed.items()))


def show_through_parties(
    town: Town,
    menus: Sequence[Menu],
    moments: Moments,
    rates: Floats,
    devices: BilledDevices,
    source: Source,
    progress: Progress = no_progress,
) -> tuple[DeviceChoices, BilledDay]:
    """Show every visit's ad on its device, report it, and bill the day; rates are (visits, candidates).

    Guarantee:  that of `AdDevice` for each device, of `BillingProxy` and of `AdServer`.
    Neighbours: all private data of one device in the day, replaced.
    Assumes:    a `source` that is an `Entropy`; everybody agreed. Here one process plays all parties, and knows
                everything.
    Source:     `AdDevice`.
    """
    secrets = Entropy()  # keys and blindings: choices, which `source` draws, do not hang on them
    ads, reports = devices.stores.ads, devices.stores.reports
    parties = BillingParties(ads, reports, secrets)
    open_market(parties, devices, menus)
    fleet = DeviceFleet(
        _settings(town, devices), _keys(parties), parties, secrets,
        take=parties.take_reports, choosing=source, simulated=not source.fit_for_release,
    )  # fmt: skip
    which, contexts, visits = disclosed_menus(town, moments, menus), moments.contexts(), len(moments.person)
    rank, spent = np.zeros(visits, np.int64), np.zeros(visits)
    for at, (person, context) in enumerate(zip(moments.person.tolist(), contexts, strict=True)):
        parties.now = EPOCH.opens + at * DAY.seconds // visits
        menu = menus[which[at]]
        shown = fleet.show(person, context, _OwnRates(rates[at, : len(menu)]), parties.now)
        rank[at] = menu.nothing_rank if shown.campaign is None else menu.place[shown.campaign]
        spent[at] = shown.epsilon_micros / MICRO
        if not at % 250:
            progress("choosing on devices", at, visits)
    progress("choosing on devices", visits, visits)
    fleet.send_reports(parties.now)
    parties.now = EPOCH.expires
    parties.bill()
    billed = _close_day(parties, devices, fleet)
    return choices_of_ranks(menus, which, rank, spent), billed


def open_market(parties: BillingParties, devices: BilledDevices, menus: Sequence[Menu]) -> None:
    """Register who pays for which ad, and open the day's epoch with these menus, for both lanes."""
    devices.stores.ads.put_campaigns([Campaign(ad, ADVERTISERS[ad // ADS_EACH]) for ad in range(ADS)])
    personal = [
        price_list(menu, epoch=0, epsilon=devices.choice, smallest_cohort=SMALLEST_COHORT) for menu in menus
    ]
    parties.open_epoch([*personal, *(menu.public_lane() for menu in personal)], EPOCH)


def expect_same_bill(billed: BilledDay, owed: Mapping[int, int]) -> None:
    """BillError unless what was invoiced is what devices showed, to the micro."""
    shown = {advertiser: micros for advertiser, micros in sorted(owed.items()) if micros}
    invoiced = {advertiser: micros for advertiser, micros in billed.by_advertiser.items() if micros}
    if invoiced != shown:
        raise BillError(f"expected invoices of {sum(shown.values())} micros, got {billed.charged_micros}")


def audit_bill(stores: BillingStores, billed: BilledDay, folder: Path) -> VerificationReport:
    """Export what the ad server charged to a new folder, and derive every invoice again as an auditor does."""
    export_folder(stores.ads, folder, now=EPOCH.expires)
    return verify_folder(folder, *billed.audit_keys)


@dataclass(frozen=True)
class _OwnRates:
    """What one device expects of its menu's ads at one visit."""

    rates: Floats = field(repr=False)

    def __call__(self, menu: Menu, context: DeviceContext) -> Floats:  # noqa: ARG002
        return self.rates


def _settings(town: Town, devices: BilledDevices) -> DeviceSettings:
    limits = DeviceLimits(
        local=Fraction(expect.positive("wallet", devices.wallet)),
        per_choice=Fraction(expect.positive("choice", devices.choice)),
        window=DAY,
    )
    level = DisclosureLevel(DISCLOSED)
    return DeviceSettings(town.hierarchy, level, consent=True, limits=limits, prefetch=1)


def _keys(parties: BillingParties) -> PartyKeys:
    return PartyKeys(parties.opening.public, parties.server_key.public, parties.proxy_key.public)


def _close_day(parties: BillingParties, devices: BilledDevices, fleet: DeviceFleet) -> BilledDay:
    settled = fleet.settle(parties.now)
    statements = tuple(parties.proxy.statements(0))
    central = [device.account.central_micros / MICRO for device in fleet.devices.values()]
    return BilledDay(
        messages=dict(parties.messages),
        sizes=dict(parties.bytes),
        statements=statements,
        invoices=tuple(devices.stores.ads.close_invoices(parties.now)),
        central=np.array(central),
        settled=(settled.by_size, settled.in_full),
        audit_keys=(parties.server_key.public, parties.proxy_key.public),
    )
