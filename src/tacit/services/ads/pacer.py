"""The pacer: before an epoch opens, how much of each campaign may be out in it; and what it comes to so far.

    pacer = Pacer(SqlPacingStore(store.database), PacingSettings(), clock)
    plan = pacer.plan(times, ask)          # menus, and how many tokens of each may be signed
    pacer.report(now)                      # what every campaign can be over its budget, at most

Charges come late and name nobody. The pacer knows what was charged, what is held, and how many tokens of each
menu were set aside and reported; of devices it knows nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.menus import Lane, PricedMenu, context_bytes
from tacit.bill.server.party import EpochTimes
from tacit.bill.server.store import Campaign, EpochLimits
from tacit.deliver.campaigns.campaign import DAY_SECONDS
from tacit.deliver.server.pacing import (
    CampaignMoney,
    PacedMenu,
    PacingSettings,
    PastMenu,
    forecast_tokens,
    leave_out,
    limit_tokens,
)
from tacit.display import brief
from tacit.schema.contexts.hierarchy import Node
from tacit.services.endpoints import Clock
from tacit.services.problems import LOG
from tacit.store.pacing import DailyBudget, DayMoney, OutEpoch, PacingMoment, SqlPacingStore

ROUNDS = 4  # in which campaigns are left out, as others take their places
LEAST_TOKENS = 16  # of a menu that somebody can pay for: what one device may ask for at once
EARLY_PARTS = 4  # of an epoch: the next is opened early once in each, at most
EARLY_SHARE = 10  # where 1 / so many of an epoch's tokens are of menus that ran out
MOST_NAMED = 8  # campaigns in one line of the log

Place = tuple[bytes, Lane]
Ask = Callable[[Mapping[int, int], Mapping[Node, frozenset[int]]], list[PricedMenu]]
"""From what campaigns have left, and whom to leave out of which contexts, to menus."""


@dataclass(frozen=True)
class EpochPlan:
    """Menus of an epoch to come, with how many tokens of each may be signed."""

    menus: list[PricedMenu]
    limits: EpochLimits

    def serves(self, places: Iterable[Place]) -> bool:
        """Whether it has tokens for one of these contexts and lanes; for anything, where none are named."""
        wanted = set(places)
        return any(not wanted or _place(menu) in wanted for menu in self.menus)


@dataclass(frozen=True)
class PacedCampaign:
    """A campaign as pacing sees it; `contexts` in which it is offered now."""

    campaign: Campaign
    held_micros: int
    money: CampaignMoney
    contexts: int

    def is_over(self, share: Fraction) -> bool:
        """Whether it can be over its budget by more than the share."""
        return (self.money.bound_micros or 0) > (self.money.share_micros(share) or 0)

    def as_json(self, share: Fraction) -> dict[str, int | float | str | None]:
        """Amounts in whole micros; what is about budgets is null without one."""
        money, budget = self.money, self.campaign.budget_micros
        bound = money.bound_micros
        return {
            "campaign": self.campaign.campaign,
            "advertiser": self.campaign.advertiser,
            "budget_micros": budget,
            "charged_micros": self.campaign.charged_micros,
            "held_micros": self.held_micros,
            "out_micros": money.out_micros,
            "bound_micros": bound,
            "bound_share": None if bound is None or not budget else bound / budget,
            "allowed_micros": money.share_micros(share),
            "within": None if bound is None else not self.is_over(share),
            "daily_micros": money.daily_micros,
            "day_spent_micros": money.day_spent_micros,
            "day_out_micros": money.day_out_micros,
            "day_target_micros": money.target_micros,
            "contexts": self.contexts,
        }


@dataclass(frozen=True)
class PacingReport:
    """What pacing comes to at one moment.

    menus     with tokens that may be signed, in the epoch that is offered now; `ran_out` of them have none left
    left_out  campaigns that the last plan of this process left out of some context for money
    """

    now: int
    epoch: int | None
    campaigns: Sequence[PacedCampaign]
    menus: int
    ran_out: int
    left_out: int

    @property
    def largest_share(self) -> float:
        """The largest bound, as a share of its campaign's budget."""
        found = (
            (each.money.bound_micros or 0) / each.campaign.budget_micros
            for each in self.campaigns
            if each.campaign.budget_micros
        )
        return max(found, default=0.0)


class Pacer:
    """Keeps what campaigns can be over their budgets below a stated share, whatever devices report.

    Guarantee:  let spent be what a campaign was charged and what is held of it, and out the sum over all menus
                that are not retired of its price x the tokens that may still be reported. As long as its
                budget is not lowered, spent + out <= (1 + share) x budget at every moment, and with it what it
                is ever charged or owes. For: a report moves at most its price from out to spent, and takes as
                much from the out of everybody on its menu; closing and retiring menus lowers out; nothing else
                raises either but an epoch that is kept, and its limits add at most (1 + share) x budget -
                spent - out, as of a moment since which no other epoch was kept (`EpochLimits.after`, checked
                in the transaction that keeps both). So it holds after a crash between any two writes, with any
                number of processes, with several epochs open, and whatever clocks say: no clock is in the sum.
                The same holds per day (UTC) for daily budgets, over the epochs that open on it. A budget that
                is lowered below what is out is kept from the next epoch on; until then the bound that is shown
                says by how much it cannot be.
    Neighbours: none: this is about money. It rests on charges, which are as private as the menus' mechanism.
    Assumes:    a token is signed only when it was set aside (`ReservedTokens`), and can be reported once
                (`AdServer`). Batches that come later than `late_seconds` after their epoch's expiry are charged
                too, as long as there are keys, though their tokens are no longer counted as out: the bound is
                then off by these. Menus from before pacing was on have no limit and are not in the sum.
    Source:     a sum that cannot grow; no published rule.
    """

    def __init__(
        self,
        store: SqlPacingStore,
        settings: PacingSettings,
        clock: Clock,
        *,
        skew_seconds: int = 60,
        notice_seconds: int = 0,
    ) -> None:
        """`notice_seconds`: for so long after a public menu was offered an exchange may tell of an impression,
        which needs a token then."""
        self.settings = settings
        self._store, self._clock = store, clock
        self._after = {Lane.PERSONAL: skew_seconds, Lane.PUBLIC: max(skew_seconds, notice_seconds)}
        self._left_out: frozenset[int] = frozenset()  # when we last planned
        self._looked = self._tried = -DAY_SECONDS

    def __repr__(self) -> str:
        return brief(self, store=self._store, share=self.settings.share)

    def plan(self, times: EpochTimes, ask: Ask) -> EpochPlan:
        """Menus that campaigns can pay for, and the tokens of each; no menus where nobody can."""
        now, day = self._clock(), times.opens // DAY_SECONDS
        self._close_over(now)
        moment = self._store.look(day)
        money = self._money(moment, day, times.closes)
        allowed = {number: each.allowance(self.settings.share) for number, each in money.items()}
        left = {number: micros for number, micros in allowed.items() if micros is not None}
        past = _past_menus(moment, now)
        seconds = times.closes - times.opens

        def paced(menus: Iterable[PricedMenu]) -> list[PacedMenu]:
            return [PacedMenu.of(menu, self._forecast(past, menu, seconds)) for menu in menus]

        without: dict[Node, frozenset[int]] = {}
        menus = ask(left, without)
        epoch = menus[0].epoch if menus else 0
        for _ in range(ROUNDS):
            more = leave_out(paced(menus), allowed, epoch)
            if not more:
                break
            for node, campaigns in more.items():
                without[node] = without.get(node, frozenset()) | campaigns
            menus = ask(left, without)
        limits = limit_tokens(paced(menus), allowed, self.settings.room)
        self._tell(without, money, left)
        given = {menu.menu_id: most for menu, most in zip(menus, limits, strict=True) if most}
        return EpochPlan(
            [menu for menu in menus if menu.menu_id in given],
            EpochLimits(given, times.opens, moment.last_epoch),
        )

    def _forecast(self, past: Mapping[Place, list[PastMenu]], menu: PricedMenu, seconds: int) -> int:
        found = forecast_tokens(past.get(_place(menu), ()), seconds, self.settings.first_tokens)
        return max(found, min(LEAST_TOKENS, self.settings.first_tokens))

    def _tell(
        self,
        without: Mapping[Node, frozenset[int]],
        money: Mapping[int, CampaignMoney],
        left: Mapping[int, int],
    ) -> None:
        """One line for campaigns that are now left out of something for money, and were not before."""
        out = {number for campaigns in without.values() for number in campaigns}
        out |= {number for number, micros in left.items() if not micros and money[number].out_micros}
        if new := sorted(out - self._left_out):
            named = ", ".join(str(number) for number in new[:MOST_NAMED])
            more = f" and {len(new) - MOST_NAMED} more" if len(new) > MOST_NAMED else ""
            LOG.info("left out of contexts that they could not pay for at worst: campaigns %s%s", named, more)
        self._left_out = frozenset(out)

    def leave(self, epoch: int) -> None:
        """An epoch is never offered: none of its tokens is."""
        self._store.close_epoch(epoch)

    def settle(self, compare_clocks: Callable[[], None] = lambda: None) -> None:
        """Close what is no longer offered, and retire what is no longer expected. `compare_clocks` raises where
        those of both parties do not agree, and is asked before anything is retired: a clock that is wrong must
        not free money that is out."""
        now = self._clock()
        over = [
            each.epoch
            for each in self._close_over(now).values()
            if each.expires + self.settings.late_seconds <= now
        ]
        if over:
            compare_clocks()
        for epoch in over:
            self._store.retire(epoch)

    def _close_over(self, now: int) -> Mapping[int, OutEpoch]:
        """Close menus that are no longer offered; all epochs that are not retired."""
        moment = self._store.look(now // DAY_SECONDS)
        offered_until = _offered_until(moment.epochs)
        over = []
        for each in moment.tokens:
            lane = moment.epochs[each.epoch].menus[each.menu].lane
            if not each.is_closed and offered_until[each.epoch] + self._after[lane] <= now:
                over.append(each.menu)
        if over:
            self._store.close(over)
        return moment.epochs

    def ran_out(self, head: EpochHead, epoch_seconds: int) -> frozenset[Place] | None:
        """Contexts and lanes of an offered epoch whose tokens are given, where they are so many that another
        epoch should take its place; none of them where it has no limits at all. None: it can stay."""
        now, part = self._clock(), max(1, epoch_seconds // EARLY_PARTS)
        if 0 <= now - self._looked < max(1, part // 16) or 0 <= now - self._tried < part:
            return None
        self._looked = now
        tokens = self._store.tokens_of(head.epoch)
        gone = [each for each in tokens if each.ran_out or each.is_closed]
        if tokens and (
            now - head.opens < part
            or EARLY_SHARE * sum(each.most for each in gone) < sum(each.most for each in tokens)
        ):
            return None
        self._tried = now
        menus = self._store.look(now // DAY_SECONDS).epochs
        own = menus[head.epoch].menus if head.epoch in menus else {}
        return frozenset((context_bytes(own[each.menu].node), own[each.menu].lane) for each in gone)

    def report(self, now: int) -> PacingReport:
        """Every campaign's money, as of now."""
        day = now // DAY_SECONDS
        moment = self._store.look(day)
        offered = max(
            (each for each in moment.epochs.values() if each.is_published and each.opens <= now < each.closes),
            key=lambda each: each.epoch,
            default=None,
        )
        contexts: dict[int, set[Node]] = defaultdict(set)
        for menu in () if offered is None else offered.menus.values():
            for number in menu.prices:
                contexts[number].add(menu.node)
        money = self._money(moment, day, now)
        tokens = [each for each in moment.tokens if offered is not None and each.epoch == offered.epoch]
        return PacingReport(
            now,
            None if offered is None else offered.epoch,
            [
                PacedCampaign(
                    each, moment.held_micros.get(each.campaign, 0), money[each.campaign],
                    len(contexts[each.campaign]),
                )
                for each in moment.campaigns
            ],
            sum(each.most > 0 for each in tokens),
            sum(each.ran_out or each.is_closed for each in tokens),
            len(self._left_out),
        )  # fmt: skip

    def _money(self, moment: PacingMoment, day: int, closes: int) -> dict[int, CampaignMoney]:
        """By campaign; `closes`: when the next epoch does."""
        out: dict[int, int] = defaultdict(int)
        day_out: dict[int, int] = defaultdict(int)
        for each in moment.tokens:
            if left := each.out:
                prices = moment.epochs[each.epoch].menus[each.menu].prices
                for number, price in prices.items():
                    out[number] += price * left
                if each.day == day:
                    for number, price in prices.items():
                        day_out[number] += price * left
        found = {}
        for campaign in moment.campaigns:
            number, daily = campaign.campaign, moment.daily.get(campaign.campaign)
            found[number] = CampaignMoney(
                number,
                campaign.budget_micros,
                campaign.charged_micros + moment.held_micros.get(number, 0),
                out[number],
                None if daily is None else daily.micros,
                moment.days.get(number, DayMoney()).spent_micros,
                day_out[number],
                _target(daily, day, closes) if daily is not None and self.settings.even else None,
                _earned(moment.day_before.get(number, DayMoney())),
            )
        return found


def _place(menu: PricedMenu) -> Place:
    return context_bytes(menu.node), menu.lane


def _target(daily: DailyBudget, day: int, closes: int) -> int | None:
    """What of a daily budget may be spent by then, spread over the seconds in which its campaign runs."""
    begin, end = day * DAY_SECONDS, (day + 1) * DAY_SECONDS
    running = daily.schedule.running_seconds(begin, end)
    if not running:
        return None
    return daily.micros * daily.schedule.running_seconds(begin, min(max(closes, begin), end)) // running


def _earned(day: DayMoney) -> Fraction:
    """The part of a day's worst case that was spent; all of it where nothing is known."""
    worst = day.exposed_micros
    return Fraction(min(day.spent_micros, worst), worst) if worst else Fraction(1)


def _offered_until(epochs: Mapping[int, OutEpoch]) -> dict[int, int]:
    """When each epoch closes, or a later one opens in its place, if that is sooner."""
    found, soonest = {}, None
    for number in sorted(epochs, reverse=True):
        own = epochs[number]
        found[number] = own.closes if soonest is None else min(own.closes, max(soonest, own.opens))
        if own.is_published:
            soonest = own.opens if soonest is None else min(soonest, own.opens)
    return found


def _past_menus(moment: PacingMoment, now: int) -> dict[Place, list[PastMenu]]:
    """How many tokens each context and lane needed in epochs that are not retired, in how many seconds."""
    until = _offered_until(moment.epochs)
    seconds = {
        number: min(now, until[number]) - each.opens
        for number, each in moment.epochs.items()
        if each.is_published
    }
    found: dict[Place, list[PastMenu]] = defaultdict(list)
    for tokens in moment.tokens:
        epoch = moment.epochs[tokens.epoch]
        lasted, whole = seconds.get(tokens.epoch, 0), epoch.closes - epoch.opens
        if lasted > 0 and (tokens.ran_out or lasted * EARLY_PARTS >= whole):
            menu = epoch.menus[tokens.menu]
            past = PastMenu(lasted, tokens.reserved, tokens.most)
            found[context_bytes(menu.node), menu.lane].append(past)
    return dict(found)
