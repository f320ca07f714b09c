"""No campaign can cost more than its budget and a stated share, whatever devices report, and when."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.deliver.campaigns.campaign import DAY_SECONDS, Schedule
from tacit.deliver.server.pacing import (
    MOST_TOKENS,
    Allowances,
    CampaignMoney,
    PacedMenu,
    PacingSettings,
    PastMenu,
    forecast_tokens,
    leave_out,
    limit_tokens,
)
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Node

SHARE = Fraction(1, 50)
NODES = tuple(Node((1,), (f"place {number}",)) for number in range(4))
CAMPAIGNS = range(5)

prices = st.dictionaries(st.sampled_from(CAMPAIGNS), st.integers(0, 2**40), max_size=5)
menus = st.lists(st.builds(PacedMenu, st.sampled_from(NODES), prices, st.integers(1, 10**6)), max_size=8)
allowances = st.dictionaries(st.sampled_from(CAMPAIGNS), st.one_of(st.none(), st.integers(0, 2**62)))


def worst(found: list[PacedMenu], limits: list[int], campaign: int) -> int:
    """Every token reported for this campaign."""
    return sum(menu.prices.get(campaign, 0) * most for menu, most in zip(found, limits, strict=True))


def without(found: list[PacedMenu], out: dict[Node, frozenset[int]]) -> list[PacedMenu]:
    gone = frozenset[int]()
    return [
        replace(
            menu, prices={who: at for who, at in menu.prices.items() if who not in out.get(menu.node, gone)}
        )
        for menu in found
    ]


@given(menus, allowances, st.integers(1, 4))
def test_limits_cost_nobody_more_than_its_allowance(
    found: list[PacedMenu], allowed: Allowances, room: int
) -> None:
    limits = limit_tokens(found, allowed, room)
    assert all(0 <= most <= room * menu.tokens for menu, most in zip(found, limits, strict=True))
    for campaign in CAMPAIGNS:
        left = allowed.get(campaign)
        assert left is None or worst(found, limits, campaign) <= left


@given(menus, allowances, st.integers(0, 100))
def test_whoever_stays_leaves_the_others_the_tokens_that_were_forecast(
    found: list[PacedMenu], allowed: Allowances, epoch: int
) -> None:
    kept = without(found, leave_out(found, allowed, epoch))
    short = set()
    for campaign in CAMPAIGNS:
        left, cost = allowed.get(campaign), sum(menu.prices.get(campaign, 0) * menu.tokens for menu in kept)
        if left is not None and cost > left:
            assert len({menu.node for menu in kept if menu.prices.get(campaign)}) == 1
            assert 4 * left >= cost
            short.add(campaign)
    for menu, most in zip(kept, limit_tokens(kept, allowed), strict=True):
        assert most == menu.tokens or short & menu.prices.keys()


def test_a_poor_campaign_has_its_turn_in_every_context() -> None:
    found = [PacedMenu(node, {1: 10, 2: 10}, 100) for node in NODES]
    seen = set()
    for epoch in range(40):
        out = leave_out(found, {1: 1_999, 2: 10**9}, epoch)
        assert all(campaigns == {1} for campaigns in out.values())
        assert len(out) == 3, "one context of four can be paid for"
        seen |= set(NODES) - out.keys()
    assert seen == set(NODES)
    assert leave_out(found, {1: 249, 2: None}, 0).keys() == set(NODES), "less than a quarter of one menu"
    assert len(leave_out(found, {1: 250, 2: None}, 0)) == 3


def test_allowances_count_what_is_out_and_what_was_held() -> None:
    money = CampaignMoney(1, 1_000, spent_micros=700, out_micros=200)
    assert money.allowance(SHARE) == 120
    assert (money.bound_micros, money.share_micros(SHARE)) == (0, 20)
    assert replace(money, out_micros=400).allowance(SHARE) == 0
    assert replace(money, out_micros=400).bound_micros == 100
    day = replace(money, daily_micros=100, day_spent_micros=50, day_out_micros=40)
    assert day.allowance(SHARE) == 12
    assert replace(day, target_micros=60).allowance(SHARE) == 0, "60 + 2 is less than 50 + 40"
    # A quarter of what was out came in: 60 + 2 - 50 - 40 / 4 = 2 is expected to cost 8 at worst.
    assert replace(day, target_micros=60, earned=Fraction(1, 4)).allowance(SHARE) == 8
    assert CampaignMoney(1).allowance(SHARE) is None
    assert CampaignMoney(1).bound_micros is None
    assert CampaignMoney(1).share_micros(SHARE) is None


def test_forecasts_follow_the_best_epoch_and_grow_where_tokens_ran_out() -> None:
    assert forecast_tokens([], 600, 256) == 256
    assert forecast_tokens([PastMenu(600, 100, 100)], 600, 256) == 200
    assert forecast_tokens([PastMenu(600, 1, 100)], 60, 256) == 1
    assert forecast_tokens([PastMenu(600, 0, 100)], 600, 256) == 1
    assert forecast_tokens([PastMenu(0, 5, 100)], 600, 256) == 256
    assert forecast_tokens([PastMenu(1, MOST_TOKENS, 2 * MOST_TOKENS)], 600, 256) == MOST_TOKENS


@pytest.mark.parametrize("wrong", [{"share": 2}, {"share": -1}, {"first_tokens": 0}, {"room": 0}, {"even": 1}])
def test_settings_that_cannot_be_meant_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(BadInput, match=next(iter(wrong))):
        PacingSettings(**wrong)  # type: ignore[arg-type]


@given(
    st.integers(0, 10**6), st.integers(0, 3 * DAY_SECONDS), st.sets(st.integers(0, 167), max_size=30),
    st.integers(-840, 840), st.one_of(st.none(), st.integers(0, 10**6)),
)  # fmt: skip
def test_running_seconds_add_up(
    begin: int, long: int, hours: set[int], offset: int, starts: int | None
) -> None:
    schedule = Schedule(starts=starts, hours=tuple(hours), utc_offset_minutes=offset)
    step = 60  # all cuts but `starts` fall on minutes
    begin, end = begin - begin % step, begin - begin % step + long
    slow = sum(min(step, end - at) for at in range(begin, end, step) if schedule.runs_at(at))
    assert abs(schedule.running_seconds(begin, end) - slow) < 2 * step
    middle = begin + long // 3
    parts = schedule.running_seconds(begin, middle) + schedule.running_seconds(middle, end)
    assert parts == schedule.running_seconds(begin, end)


# A market in which devices do their worst: they take all tokens, keep them as long as they can, and report
# whatever costs one campaign most.

Pacer = Callable[[list[PacedMenu], dict[int, CampaignMoney], int], tuple[dict[Node, frozenset[int]], list[int]]]


def honest(
    found: list[PacedMenu], money: dict[int, CampaignMoney], epoch: int
) -> tuple[dict[Node, frozenset[int]], list[int]]:
    allowed = {number: each.allowance(SHARE) for number, each in money.items()}
    out = leave_out(found, allowed, epoch)
    return out, limit_tokens(without(found, out), allowed, 2)


def forgetful(
    found: list[PacedMenu], money: dict[int, CampaignMoney], epoch: int
) -> tuple[dict[Node, frozenset[int]], list[int]]:
    """Forgets what is out."""
    return honest(found, {number: replace(each, out_micros=0) for number, each in money.items()}, epoch)


def hopeful(
    found: list[PacedMenu], money: dict[int, CampaignMoney], epoch: int
) -> tuple[dict[Node, frozenset[int]], list[int]]:
    """Thinks that no campaign is chosen by more than half of all devices."""
    halved = [replace(menu, prices={who: price // 2 for who, price in menu.prices.items()}) for menu in found]
    return honest(halved, money, epoch)


def generous(
    found: list[PacedMenu], money: dict[int, CampaignMoney], epoch: int
) -> tuple[dict[Node, frozenset[int]], list[int]]:
    """Gives each menu one token more than it may, as rounding up does."""
    out, limits = honest(found, money, epoch)
    return out, [most + 1 for most in limits]


@dataclass
class WorstMarket:
    """Epochs one after the other; `look_ahead` of them are out at once."""

    pacer: Pacer
    source: random.Random
    spent: dict[int, int] = field(default_factory=lambda: dict.fromkeys(CAMPAIGNS, 0))
    out: list[list[tuple[PacedMenu, int]]] = field(default_factory=list)

    def budget(self, campaign: int) -> int:
        return 3_000 + 1_700 * campaign

    def money(self) -> dict[int, CampaignMoney]:
        out = dict.fromkeys(CAMPAIGNS, 0)
        for menu, tokens in (each for epoch in self.out for each in epoch):
            for campaign, price in menu.prices.items():
                out[campaign] += price * tokens
        return {
            number: CampaignMoney(number, self.budget(number), self.spent[number], out[number])
            for number in CAMPAIGNS
        }

    def open(self, epoch: int) -> None:
        drawn = [
            PacedMenu(
                node,
                {who: self.source.randint(1, 9) for who in self.source.sample(CAMPAIGNS, 3)},
                self.source.randint(5, 60),
            )
            for node in NODES
            for _ in range(2)
        ]
        left_out, limits = self.pacer(drawn, self.money(), epoch)
        self.out.append(list(zip(without(drawn, left_out), limits, strict=True)))

    def report(self, epoch: list[tuple[PacedMenu, int]], victim: int, part: float) -> None:
        for place, (menu, tokens) in enumerate(epoch):
            told = int(part * tokens)
            who = victim if victim in menu.prices else next(iter(menu.prices), None)
            if who is not None:
                self.spent[who] += told * menu.prices[who]
            epoch[place] = menu, tokens - told

    def run(self, epochs: int) -> int:
        """By how much the worst campaign was over what it may be, in micros; below 0: never."""
        over = -(10**9)
        for epoch in range(epochs):
            self.open(epoch)
            victim = self.source.choice(CAMPAIGNS)
            self.report(self.source.choice(self.out), victim, self.source.random())
            while len(self.out) > 3:
                self.report(self.out[0], victim, self.source.choice([0.0, 1.0, 1.0]))
                self.out.pop(0)
            for number, each in self.money().items():
                over = max(over, self.spent[number] - self.budget(number) - int(SHARE * self.budget(number)))
                assert self.pacer is not honest or (each.bound_micros or 0) <= int(SHARE * self.budget(number))
        return over


def test_whatever_devices_do_nobody_is_over_by_more_than_the_share() -> None:
    overs = [WorstMarket(honest, random.Random(seed)).run(60) for seed in range(12)]
    assert max(overs) <= 0
    assert max(overs) > -200, "budgets are nearly spent: a bound that is kept by not selling is no bound"


@pytest.mark.parametrize("broken", [forgetful, hopeful, generous])
def test_a_pacer_that_counts_less_is_caught(broken: Pacer) -> None:
    assert max(WorstMarket(broken, random.Random(seed)).run(60) for seed in range(12)) > 0
