"""What the console shows of what is sold: overview, campaigns, menus, invoices, as JSON.

An advertiser's key sees its own campaigns, what they were charged, its places in menus and its invoices. How
large others' crowds are, what the privacy ledger holds and how rounds go is for operators and viewers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit.bill.accounts import invoice_as_json, itemise_invoice
from tacit.bill.protocol.menus import PricedMenu
from tacit.bill.server.store import Campaign
from tacit.deliver.campaigns.access import Access
from tacit.deliver.campaigns.campaign import CampaignStatus
from tacit.deliver.campaigns.store import CampaignVerdict, StoredCampaign, all_campaigns
from tacit.deliver.protocol.priors import read_prior
from tacit.errors import BadInput, CampaignRefused
from tacit.services.ads.console.alerts import NEARLY_SPENT, Situation, find_alerts
from tacit.services.ads.console.batches import RecentBatches, context_words
from tacit.services.ads.console.privacy import MOST_EPOCHS, MOST_ROWS, PrivacyReader
from tacit.services.ads.pacing_part import FIGURE_SECONDS
from tacit.services.background import SETTLED
from tacit.services.epochs import covered_until
from tacit.store.console_figures import latest_invoices, token_use, waiting_notices
from tacit.store.figures import market_figures

if TYPE_CHECKING:
    from tacit.services.ads.parts import RunningAds

DAY_SECONDS = 86_400


class ConsoleReader:
    """Looks up what a key may see; every method may be called from any thread."""

    def __init__(self, running: RunningAds) -> None:
        self._running, self._batches = running, RecentBatches(running.store)
        self.privacy = PrivacyReader(running, self._batches)
        self._over: tuple[int, dict[int, str]] | None = None  # a second, and what was found then

    # Overview and alerts.

    def overview(self, access: Access, now: int, health: Mapping[str, bool]) -> dict[str, Any]:
        """What is going on: the epoch, what was charged today, what waits, and what to do."""
        mine = self._campaigns_of(access)
        series = self._series(access, mine)
        today = [each for each in series if each["opens"] // DAY_SECONDS == now // DAY_SECONDS]
        whole = self._batches.whole_from()
        held = self._running.store.held_micros()
        told = {
            "now": now,
            "epoch": self._epoch(now),
            "charged_micros": sum(each.charged_micros for each in mine),
            "today": {
                "impressions": sum(each["impressions"] for each in today),
                "micros": sum(each["micros"] for each in today),
                "is_whole": whole is None or all(each["epoch"] > whole for each in today),
            },
            "held_micros": sum(held.get(each.campaign, 0) for each in mine),
            "campaigns": self._tally(mine, now),
            "series": series,
        }
        if access.may_read(None):
            figures = market_figures(self._running.store.database)
            told |= {"batches": figures.batches, "invoices": figures.invoices}
            told["alerts"] = [each.as_json() for each in find_alerts(self.situation(now, health))]
        return told

    def _epoch(self, now: int) -> dict[str, Any] | None:
        head = self._running.keeper.offered()
        if head is None:
            return None
        return {
            "epoch": head.epoch,
            "opens": head.opens,
            "closes": head.closes,
            "expires": head.expires,
            "menus": head.menus,
            "covered_until": covered_until(self._running.keeper.heads(), now),
        }

    def _series(self, access: Access, mine: Sequence[Campaign]) -> list[dict[str, Any]]:
        only = None if access.may_read(None) else {each.campaign for each in mine}
        return self._batches.by_epoch(only)[-MOST_EPOCHS:]

    def _tally(self, mine: Sequence[Campaign], now: int) -> dict[str, int]:
        handed_in = self._handed_in()
        states = [self._state(each, handed_in.get(each.campaign), now) for each in mine]
        return {"all": len(mine), "running": states.count("running"), "spent": states.count("spent")}

    def situation(self, now: int, health: Mapping[str, bool]) -> Situation:
        """What alerts are decided from."""
        running, head = self._running, self._running.keeper.offered()
        handed_in = self._handed_in()
        spent = {
            each.campaign: each.advertiser
            for each in running.store.campaigns()
            if self._state(each, handed_in.get(each.campaign), now) == "spent"
        }
        tokens = [] if head is None else token_use(running.store.database, head.epoch)
        cohorts = [each for each in self._batches.cohorts(MOST_ROWS) if each.get("lane") == "personal"]
        over = [each for each in cohorts if each["opens"] is not None]
        waiting = waiting_notices(running.store.database)
        return Situation(
            now=now,
            health=health,
            open_until=None if head is None else covered_until(running.keeper.heads(), now),
            epoch_seconds=600 if head is None else head.closes - head.opens,
            spent=spent,
            held_micros=sum(running.store.held_micros().values()),
            out_of_tokens=(sum(each.reserved >= each.most for each in tokens), len(tokens)),
            overdue={
                f"{each['task']}, level {each['level']}": now - each["closes"]
                for each in self.privacy.rounds()
                if each["phase"] not in SETTLED and now > each["closes"]
            },
            small_cohorts=(sum(each["is_small"] for each in over), len(over)),
            nearly_spent=[
                f"{each['scope']} ({each['unit']}, {each['relation']})"
                for each in self.privacy.lines()
                if each["left_nanos"] < NEARLY_SPENT * each["limit_nanos"]
            ],
            notices=(waiting.notices, waiting.expires),
            over_share=self._over_share(now),
        )

    def _over_share(self, now: int) -> dict[int, str]:
        """Campaigns beyond pacing's share; looked up twice a minute at most, as it goes over every menu."""
        pacer = self._running.pacer
        if not pacer.settings.on:
            return {}
        if self._over is None or not 0 <= now - self._over[0] < FIGURE_SECONDS:
            over = [each for each in pacer.report(now).campaigns if each.is_over(pacer.settings.share)]
            self._over = now, {each.campaign.campaign: each.campaign.advertiser for each in over}
        return self._over[1]

    # Campaigns.

    def _campaigns_of(self, access: Access) -> list[Campaign]:
        return [each for each in self._running.store.campaigns() if access.may_read(each.advertiser)]

    def _handed_in(self) -> dict[int, StoredCampaign]:
        """Campaigns as advertisers handed them in, by number; those of a market's file alone are not there."""
        return {each.campaign.number: each for each in all_campaigns(self._running.campaigns)}

    def _state(self, account: Campaign, stored: StoredCampaign | None, now: int) -> str:
        """In one word: what keeps it from being shown, if anything does."""
        if stored is not None and stored.campaign.status is not CampaignStatus.ACTIVE:
            return str(stored.campaign.status)
        budget = account.budget_micros
        if budget is not None and account.charged_micros >= budget:
            return "spent"
        if stored is not None and not stored.campaign.schedule.runs_at(now):
            return "waiting"
        return "running"

    def campaigns(self, access: Access, now: int, find: str = "") -> dict[str, Any]:
        """Campaigns with what they may spend, were charged and are held for; impressions of the epochs that are
        looked back at."""
        handed_in, held = self._handed_in(), self._running.store.held_micros()
        recent: dict[int, list[int]] = {}
        for batch in self._batches.look():
            for each in batch.charges:
                if each.campaign is not None and not each.held:
                    counts = recent.setdefault(each.campaign, [0, 0])
                    counts[0] += each.impressions
                    counts[1] += each.micros
        rows: list[dict[str, Any]] = []
        for account in self._campaigns_of(access):
            stored = handed_in.get(account.campaign)
            title = "" if stored is None else stored.campaign.title
            if not _matches(find, str(account.campaign), account.advertiser, title):
                continue
            rows.append(
                {
                    "campaign": account.campaign,
                    "advertiser": account.advertiser,
                    "title": title,
                    "state": self._state(account, stored, now),
                    "version": None if stored is None else stored.version,
                    "event": None if stored is None else str(stored.campaign.event),
                    "budget_micros": account.budget_micros,
                    "daily_micros": None if stored is None else stored.campaign.daily_micros,
                    "charged_micros": account.charged_micros,
                    "held_micros": held.get(account.campaign, 0),
                    "recent_impressions": recent.get(account.campaign, [0, 0])[0],
                    "may_change": access.may_change(account.advertiser) and stored is not None,
                }
            )
        rows.sort(key=lambda each: (-each["charged_micros"], each["campaign"]))
        return {"now": now, "all": len(rows), "campaigns": rows[:MOST_ROWS]}

    # Menus.

    def menus(self, access: Access, now: int, find: str = "") -> dict[str, Any]:
        """The menus that are offered now: all, or those with an entry of the advertiser's."""
        head = self._running.keeper.offered()
        if head is None:
            return {"now": now, "epoch": None, "all": 0, "menus": []}
        owners = self._owners()
        opened = self._running.server.load_epoch(head.epoch)
        use = {each.menu_id: each for each in token_use(self._running.store.database, head.epoch)}
        found = []
        for each in opened.menus.values():
            menu = each.listed.menu
            if not _matches(find, context_words(menu.node)) or not self._is_in(access, menu, owners):
                continue
            tokens = use.get(menu.menu_id)
            found.append(
                {
                    "menu": menu.menu_id.hex(),
                    "context": context_words(menu.node),
                    "lane": str(menu.lane),
                    "mechanism": menu.mechanism,
                    "epsilon": menu.epsilon_micros / 1e6,
                    "entries": len(menu.entries),
                    "best_micros": menu.entries[0].price_micros,
                    "smallest_cohort": menu.smallest_cohort,
                    "tokens_most": None if tokens is None else tokens.most,
                    "tokens_reserved": None if tokens is None else tokens.reserved,
                }
            )
        found.sort(key=lambda each: (each["context"], each["lane"]))
        return {"now": now, "epoch": self._epoch(now), "all": len(found), "menus": found[:MOST_ROWS]}

    def menu(self, access: Access, now: int, menu_id: str) -> dict[str, Any]:
        """One menu, of this epoch or an earlier one, with its entries and their reasons. Who asks for an
        advertiser is told of its own entries alone."""
        try:
            menu = self._running.store.menu(bytes.fromhex(menu_id))
        except ValueError:
            menu = None
        owners = self._owners()
        if menu is None or not self._is_in(access, menu, owners):
            raise CampaignRefused(CampaignVerdict.UNKNOWN)
        head = {each.epoch: each for each in self._running.keeper.heads()}.get(menu.epoch)
        return {
            "now": now,
            "menu": menu.menu_id.hex(),
            "epoch": menu.epoch,
            "closes": None if head is None else head.closes,
            "context": context_words(menu.node),
            "levels": list(menu.node.levels),
            "lane": str(menu.lane),
            "mechanism": menu.mechanism,
            "rule": menu.rule,
            "epsilon": menu.epsilon_micros / 1e6,
            "smallest_cohort": menu.smallest_cohort,
            "reserve_micros": menu.reserve_micros,
            "prior": _prior_words(menu.prior),
            "size": len(menu.entries),
            "entries": [
                {
                    "index": index,
                    "campaign": entry.campaign,
                    "advertiser": owners.get(entry.campaign, ""),
                    "price_micros": entry.price_micros,
                    "bid_micros": entry.bid_micros,
                    "rate": entry.rate,
                    "reason": menu.reason(index),
                }
                for index, entry in enumerate(menu.entries, 1)
                if access.may_read(owners.get(entry.campaign, ""))
            ],
        }

    def _owners(self) -> dict[int, str]:
        return {each.campaign: each.advertiser for each in self._running.store.campaigns()}

    def _is_in(self, access: Access, menu: PricedMenu, owners: Mapping[int, str]) -> bool:
        if access.may_read(None):
            return True
        return any(access.may_read(owners.get(entry.campaign, "")) for entry in menu.entries)

    # Invoices.

    def invoices(self, access: Access, now: int, before: int | None = None) -> dict[str, Any]:
        """The latest invoices, without their lines; `before`: those before a number."""
        only = None if access.may_read(None) else access.advertiser
        database = self._running.store.database
        found = latest_invoices(database, most=MOST_ROWS, before=before, advertiser=only)
        return {"now": now, "invoices": [each._asdict() for each in found]}

    def invoice(self, access: Access, now: int, number: int) -> dict[str, Any]:
        found = self._running.store.invoice(number)
        if found is None or not access.may_read(found.advertiser):
            raise CampaignRefused(CampaignVerdict.UNKNOWN)
        items = itemise_invoice(found, self._running.store)
        told = invoice_as_json(found, items[: 5 * MOST_ROWS])
        return {"now": now, "all": len(items), **told}


def _matches(find: str, *texts: str) -> bool:
    return not find or any(find.casefold() in text.casefold() for text in texts)


def _prior_words(prior: str) -> str:
    """How far devices' scores may be from public ones, in words."""
    record = json.loads(prior)
    if not record:
        return "as by default: nothing was learnt from reports yet"
    try:
        return str(read_prior(record))
    except BadInput:
        return "a law that this version does not know"
