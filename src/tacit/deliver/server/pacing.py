"""How much of a campaign may be out at once: who is left out of which menus, how many tokens of each are given.

    pacing = PacingSettings(share=Fraction(1, 50))
    allowed = {each.campaign: each.allowance(pacing.share) for each in campaigns}
    without = leave_out(menus, allowed, epoch)     # and ask for the menus again, without those
    limits = limit_tokens(menus, allowed, pacing.room)

A token is one impression of its menu, of whichever entry its device chooses; its charge comes late and names
nobody. So all tokens of a menu that may still be reported count for each of its campaigns, at that campaign's
price. What a campaign was charged, what is held of it, and that worst case together never exceed its budget by
more than a stated share of it: menus are made smaller, in contexts and in tokens, until they cannot.

Amounts are whole micros and every rounding goes against spending. No clock, no store and no chance in here.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tacit import expect
from tacit.bill.protocol.menus import PricedMenu, context_bytes
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Node

MOST_TOKENS = 2**40  # of one menu, whoever pays
MOST_LATE_SECONDS = 36_500 * 86_400
LEAST_PART = 4  # a campaign that can pay for less than 1 / so many of a menu's forecast tokens is left out
LEAST_YIELD = Fraction(1, 8)


@dataclass(frozen=True)
class PacingSettings:
    """How campaigns are paced.

    on            whether they are: otherwise menus have no limit of tokens
    share         of its budget, and of its daily one: by how much a campaign may be over at worst
    even          whether a daily budget is spread over the hours in which its campaign runs
    first_tokens  forecast for a menu of which nothing is known yet
    room          tokens that a menu is given, times its forecast, where everybody can pay for them
    late_seconds  after its expiry, in which an epoch's batches may come; then nothing more is awaited
    """

    share: Fraction = Fraction(1, 50)
    on: bool = True
    even: bool = True
    first_tokens: int = 256
    room: int = 2
    late_seconds: int = 600

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", expect.probability("share", self.share, zero=True, one=True))
        expect.kind("on", self.on, bool)
        expect.kind("even", self.even, bool)
        if not 1 <= expect.integer("first_tokens", self.first_tokens) <= MOST_TOKENS:
            raise BadInput("first_tokens: expected 1..2^40, got another number")
        if not 1 <= expect.integer("room", self.room) <= 1_000:
            raise BadInput("room: expected 1..1000, got another number")
        if not 0 <= expect.integer("late_seconds", self.late_seconds) <= MOST_LATE_SECONDS:
            raise BadInput(f"late_seconds: expected 0..{MOST_LATE_SECONDS}, got another number")


@dataclass(frozen=True)
class CampaignMoney:
    """What a campaign may spend, has spent, and may still be made to spend by menus that are out.

    spent_micros   charged, and held because its money had run out
    out_micros     each token that may still be reported, at the campaign's price in its menu
    day_...        the same for one day (UTC), of the epochs that opened on it
    target_micros  what a daily budget that is spread may have spent when the next epoch closes; None: all of it
    earned         the part of such worst cases that was charged in the end, in epochs that are over
    """

    campaign: int
    budget_micros: int | None = None
    spent_micros: int = 0
    out_micros: int = 0
    daily_micros: int | None = None
    day_spent_micros: int = 0
    day_out_micros: int = 0
    target_micros: int | None = None
    earned: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        for name in ("campaign", "spent_micros", "out_micros", "day_spent_micros", "day_out_micros"):
            expect.integer(name, getattr(self, name))
        for name in ("budget_micros", "daily_micros", "target_micros"):
            if getattr(self, name) is not None:
                expect.integer(name, getattr(self, name))
        object.__setattr__(self, "earned", expect.probability("earned", self.earned, zero=True, one=True))

    def share_micros(self, share: Fraction) -> int | None:
        """By how much it may be over at worst; None without a budget."""
        return None if self.budget_micros is None else int(share * self.budget_micros)

    @property
    def bound_micros(self) -> int | None:
        """By how much it can be over its budget whatever devices report; None without a budget.

        >>> CampaignMoney(7, budget_micros=1_000, spent_micros=900, out_micros=115).bound_micros
        15
        """
        if self.budget_micros is None:
            return None
        return max(0, self.spent_micros + self.out_micros - self.budget_micros)

    def allowance(self, share: Fraction) -> int | None:
        """What its menus to come may cost it at worst; None: no limit.

        A spread daily budget is the one soft limit: it expects of what is out what was earned before.

        >>> CampaignMoney(7, budget_micros=1_000, spent_micros=900, out_micros=60).allowance(Fraction(1, 50))
        60
        """
        limits = []
        if self.budget_micros is not None:
            limits.append(
                self.budget_micros + int(share * self.budget_micros) - self.spent_micros - self.out_micros
            )
        if self.daily_micros is not None:
            slack = int(share * self.daily_micros)
            limits.append(self.daily_micros + slack - self.day_spent_micros - self.day_out_micros)
            if self.target_micros is not None:
                earned = max(LEAST_YIELD, min(self.earned, Fraction(1)))
                soft = self.target_micros + slack - self.day_spent_micros - earned * self.day_out_micros
                limits.append(int(soft / earned))
        return max(0, min(limits)) if limits else None


@dataclass(frozen=True)
class PacedMenu:
    """A menu of an epoch to come: its campaigns' prices, and how many tokens it is expected to need."""

    node: Node
    prices: Mapping[int, int]
    tokens: int

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        expect.kind("node", self.node, Node)
        expect.kind("prices", self.prices, Mapping)
        expect.integer("tokens", self.tokens)

    @classmethod
    def of(cls, menu: PricedMenu, tokens: int) -> PacedMenu:
        expect.kind("menu", menu, PricedMenu)
        prices: dict[int, int] = {}
        for entry in menu.entries:
            prices[entry.campaign] = max(entry.price_micros, prices.get(entry.campaign, 0))
        return cls(menu.node, prices, tokens)


@dataclass(frozen=True)
class PastMenu:
    """Tokens that were given of a context's menu in so many seconds, of at most so many."""

    seconds: int
    given: int
    most: int


def forecast_tokens(past: Iterable[PastMenu], seconds: int, first: int) -> int:
    """Tokens that a context's next menu is expected to need in so many seconds: as many as at its best before,
    twice where they ran out; `first` where nothing is known.

    >>> forecast_tokens([PastMenu(600, 300, 900), PastMenu(600, 240, 900)], 1_200, 256)
    600
    """
    found = [
        -(-each.given * seconds * (2 if each.given >= each.most else 1) // each.seconds)
        for each in past
        if each.seconds > 0
    ]
    return min(max(found, default=first), MOST_TOKENS) or 1


Allowances = Mapping[int, int | None]
"""By campaign; None and a campaign that is missing: no limit."""


def leave_out(menus: Sequence[PacedMenu], allowed: Allowances, epoch: int) -> dict[Node, frozenset[int]]:
    """Campaigns that cannot pay for what menus are expected to need, by context.

    A campaign stays in as many contexts as its allowance covers, in an order that is another one in each epoch.
    Where it covers none it stays in the cheapest if it can pay for a quarter of it: that menu then has fewer
    tokens, and an epoch that is opened early takes its place once they are given.
    """
    _check(menus, allowed)
    expect.integer("epoch", epoch)
    costs: dict[int, dict[Node, int]] = defaultdict(lambda: defaultdict(int))
    for menu in menus:
        for campaign, price in menu.prices.items():
            if allowed.get(campaign) is not None:
                costs[campaign][menu.node] += price * menu.tokens
    out: dict[Node, set[int]] = defaultdict(set)
    for campaign, by_node in costs.items():
        left = allowed[campaign]
        assert left is not None, "only those with a limit are counted"
        if sum(by_node.values()) <= left:
            continue
        stays = _covered(by_node, left, campaign, epoch)
        for node in by_node.keys() - stays:
            out[node].add(campaign)
    return {node: frozenset(campaigns) for node, campaigns in out.items()}


def _check(menus: Sequence[PacedMenu], allowed: Allowances) -> None:
    expect.kind("menus", menus, Sequence)
    for menu in menus:
        expect.kind("each of menus", menu, PacedMenu)
    expect.kind("allowed", allowed, Mapping)


def _covered(costs: Mapping[Node, int], left: int, campaign: int, epoch: int) -> set[Node]:
    def turn(node: Node) -> bytes:
        return hashlib.sha256(b"%d/%d/%b" % (epoch, campaign, context_bytes(node))).digest()

    whole = left
    stays = set()
    for node in sorted(costs, key=turn):
        if costs[node] <= left:
            stays.add(node)
            left -= costs[node]
    if not stays:
        cheapest = min(costs, key=lambda node: (costs[node], turn(node)))
        if LEAST_PART * whole >= costs[cheapest]:
            stays.add(cheapest)
    return stays


def limit_tokens(menus: Sequence[PacedMenu], allowed: Allowances, room: int = 1) -> list[int]:
    """How many tokens of each menu may be given.

    Guarantee:  whatever entries devices report with them, no campaign is charged more than its allowance: the
                sum over its menus of price x tokens is not larger. Each allowance is divided by forecasts.
    Neighbours: none: this is about money.
    Assumes:    prices of at least 0; that no more tokens are given than the limits say (`TokenCounter`).
    Source:     a linear bound; no published rule.
    """
    _check(menus, allowed)
    expect.integer("room", room)
    needs: dict[int, int] = defaultdict(int)
    for menu in menus:
        for campaign, price in menu.prices.items():
            needs[campaign] += price * menu.tokens
    limits = []
    for menu in menus:
        most = min(room * menu.tokens, MOST_TOKENS)
        for campaign, price in menu.prices.items():
            left = allowed.get(campaign)
            if left is not None and price and needs[campaign]:
                most = min(most, left * menu.tokens // needs[campaign])
        limits.append(max(0, most))
    return limits
