"""Delivery's menus as the bill knows them, and back: what the ad server offers, and what devices choose from.

The server ranks and prices a `Menu`; `price_list` makes of it the `PricedMenu` of an epoch, which is listed,
signed and charged by. A device reads that back with `candidates_of`, plans and chooses among exactly the same
candidates, and says which with `entry_index`.
"""

from __future__ import annotations

import json

import numpy as np

from tacit import expect
from tacit.bill.protocol import menus as bill
from tacit.bill.protocol.encoding import malformed_if_refused
from tacit.bill.protocol.menus import Lane, MenuEntry, PricedMenu
from tacit.deliver.protocol.menu import NOTHING, Menu
from tacit.deliver.protocol.plans import PlanMethod
from tacit.deliver.protocol.prices import PRICES, BillingEvent, PriceRule
from tacit.deliver.protocol.priors import prior_as_json, read_prior
from tacit.errors import BadInput
from tacit.files import parse_json

MICRO = 1_000_000


def price_list(
    menu: Menu,
    *,
    epoch: int,
    epsilon: expect.Number,
    smallest_cohort: int,
    reserve_micros: int = 0,
    method: PlanMethod | str = PlanMethod.TRUNC,
) -> PricedMenu:
    """A menu for the personal lane of an epoch, at one price per impression.

    `epsilon` is what one choice may spend, in whole millionths; `public_lane` of what is returned is the menu
    for everybody else.
    """
    expect.kind("menu", menu, Menu)
    if menu.charged is not BillingEvent.IMPRESSION:
        raise BadInput(f"node {menu.node}: expected prices per impression, got {menu.price}")
    micros = expect.positive("epsilon", epsilon) * MICRO
    if micros.denominator != 1:
        raise BadInput(f"expected epsilon in whole millionths, got {float(micros / MICRO):g}")
    ranks = [rank for rank in range(len(menu)) if rank != menu.nothing_rank]
    index = {menu.ads[rank]: at + 1 for at, rank in enumerate(ranks)}
    entries = tuple(
        MenuEntry(
            menu.ads[rank], int(menu.price_micros[rank]), int(menu.bid_micros[rank]), float(menu.rates[rank]),
            int(menu.setter[rank]),
        )
        for rank in ranks
    )  # fmt: skip
    finer = {node: {index[ad]: float(rate) for ad, rate in table.items()} for node, table in menu.finer.items()}
    return PricedMenu(
        epoch=epoch, lane=Lane.PERSONAL, node=menu.node, entries=entries, rule=str(menu.price),
        mechanism=str(PlanMethod(method)), epsilon_micros=micros.numerator, smallest_cohort=smallest_cohort,
        reserve_micros=reserve_micros, ctr_floor=menu.ctr_floor, nothing_micros=menu.nothing_micros,
        nothing_rank=menu.nothing_rank, finer=finer, prior=json.dumps(prior_as_json(menu.prior)),
    )  # fmt: skip


def candidates_of(priced: PricedMenu) -> Menu:
    """The menu that a device plans and chooses by; BillRefused(MALFORMED) where it is none."""
    order = list(range(1, len(priced.entries) + 1))
    if priced.nothing_rank is not None:
        order.insert(priced.nothing_rank, bill.NOTHING)
    columns = np.array([_row(priced, index) for index in order], object).T
    with malformed_if_refused():
        more = {} if priced.prior == "{}" else {"prior": read_prior(parse_json(priced.prior.encode()))}
        return Menu(
            priced.node,
            columns[0].astype(np.int64), columns[1].astype(np.int64), columns[2].astype(np.float64),
            columns[3].astype(np.int64), columns[4].astype(np.int64),
            price=_price_rule(priced.rule), ctr_floor=priced.ctr_floor, nothing_micros=priced.nothing_micros,
            finer={
                node: {priced.entries[index - 1].campaign: rate for index, rate in table.items()}
                for node, table in priced.finer.items()
            },
            **more,
        )  # fmt: skip


def entry_index(priced: PricedMenu, rank: int) -> int:
    """The index that is reported where the candidate of this public rank was chosen."""
    nothing = priced.nothing_rank
    if rank == nothing:
        return bill.NOTHING
    return rank + 1 if nothing is None or rank < nothing else rank


def plan_method(priced: PricedMenu) -> PlanMethod:
    """How devices plan by this menu; BillRefused(MALFORMED) for a word that they do not know."""
    with malformed_if_refused():
        return PlanMethod.named("mechanism", priced.mechanism)


def _row(priced: PricedMenu, index: int) -> tuple[int, int, float, int, int]:
    if index == bill.NOTHING:
        return NOTHING, 0, 0.0, 0, -1
    entry = priced.entries[index - 1]
    return entry.campaign, entry.bid_micros, entry.rate, entry.price_micros, entry.setter


def _price_rule(words: str) -> PriceRule:
    """The rule that a bill's words name: "second price per impression"."""
    for kind in PRICES.values():
        rule = kind(BillingEvent.IMPRESSION)
        if str(rule) == words:
            return rule
    raise BadInput(f"expected one of {', '.join(PRICES)} price per impression, got {words!r}")
