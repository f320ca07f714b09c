"""Menus that device_choice_v1.json has plans of: good ones of every prior and size, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

from tacit.bill.protocol.menus import Lane, MenuEntry, PricedMenu
from tacit.deliver.device.menu_book import plan_menu
from tacit.deliver.protocol.priced_menus import candidates_of
from tacit.deliver.protocol.priors import prior_as_json
from tacit.schema.contexts.hierarchy import Node
from tests.deliver.protocol.test_priors import KINDS

Record = dict[str, Any]
NODE = Node((1,), ("Food",))
RULE = "second price per impression"
EPSILONS = (0.05, 0.3, 0.5, 1, 1.5, 2, 3, 4.25, 5, 8, 20, 50)
SEVERAL = ((20, 0.5, 0.5), (20, 1, 1.0), (17, 0.3, 0.3), (9, 0.2, 1.5), (12, 1.2, 0.2), (20, 0.8, 0.9))
"""Ads, epsilon and spread of menus by which several are favoured."""


def menu_record(menu: PricedMenu) -> Record:
    """The fields of a menu that a choice reads."""
    entries = [[each.campaign, each.price_micros, each.bid_micros, each.rate] for each in menu.entries]
    finer = [[list(node.levels), list(node.values), list(table.items())] for node, table in menu.finer.items()]
    record: Record = {"mechanism": menu.mechanism, "epsilon": menu.epsilon_micros, "entries": entries}
    record |= {"prior": json.loads(menu.prior)} if menu.prior != "{}" else {}
    record |= {"floor": menu.ctr_floor} if menu.ctr_floor else {}
    record |= {"finer": finer} if finer else {}
    record |= {"node": [list(menu.node.levels), list(menu.node.values)]} if menu.node != NODE else {}
    record |= {"rule": menu.rule} if menu.rule != RULE else {}
    if menu.nothing_rank is not None:
        record["nothing"] = [menu.nothing_rank, menu.nothing_micros]
    return record


def make_menu(
    draw: Random, size: int, epsilon: float, method: str = "trunc", prior: Record | None = None,
    nothing: bool = False, floor: float = 0.0, near: float = 1.0, alike: bool = False, **others: Any,
) -> PricedMenu:  # fmt: skip
    """A menu of so many ads in public order; rates within a factor of e^near, and equal bids if alike."""
    bids = [400_000 if alike else draw.randrange(100_000, 900_000) for _ in range(size)]
    pairs = [(bid, round(0.03 * 2.718 ** (near * (draw.random() - 0.5)), 5)) for bid in bids]
    least = min(bid for bid, _ in pairs)
    worth = floor * least if floor else 0.7 * max(bid * rate for bid, rate in pairs)

    def score(bid: int, rate: float) -> float:
        return bid * rate if rate >= floor else least * rate

    pairs.sort(key=lambda pair: -score(*pair))
    entries = tuple(MenuEntry(10 + at, 0, bid, rate, -1) for at, (bid, rate) in enumerate(pairs))
    fields: Record = {
        "epoch": 1, "lane": Lane.PERSONAL, "node": NODE, "entries": entries, "rule": RULE,
        "mechanism": method, "epsilon_micros": int(Fraction(str(epsilon)) * 10**6), "smallest_cohort": 1,
        "ctr_floor": floor, "prior": "{}" if prior is None else json.dumps(prior),
    }  # fmt: skip
    if nothing:
        rank = sum(score(*pair) >= worth for pair in pairs)
        fields |= {"nothing_micros": worth, "nothing_rank": rank}
    return PricedMenu(**fields | others)


def menus() -> Iterator[PricedMenu]:
    draw = Random(24)
    for size in (1, 2, 3, 5, 8, 13, 20):
        yield make_menu(draw, size, 2, near=1.5)
        yield make_menu(draw, size, draw.choice(EPSILONS), nothing=True, near=0.5)
    for epsilon in EPSILONS:
        yield make_menu(draw, draw.randrange(2, 13), epsilon, near=2 * draw.random())
    for size, epsilon, sigma in SEVERAL:
        for method in ("trunc", "top"):
            spread = {"version": 1, "law": "lognormal", "sigma": sigma}
            yield make_menu(draw, size, epsilon, method, spread, near=0.05, nothing=epsilon == 1, alike=True)
    for method in ("trunc", "top", "rr"):
        for epsilon in (1, 3, 6):
            yield make_menu(draw, draw.randrange(3, 9), epsilon, method, near=0.7, nothing=draw.random() < 0.5)
    for floor in (0.02, 0.03, 0.04):
        yield make_menu(draw, 7, 3, nothing=True, floor=floor)
    for name, prior in KINDS.items():
        for epsilon in (1, 3):
            record = prior_as_json(prior)
            yield make_menu(draw, 4, epsilon, prior=record, near=0.6, nothing=epsilon == 3)
            if name not in ("spreads", "contexts", "nested mixture"):
                yield make_menu(draw, draw.choice((2, 6, 11)), 2 * epsilon, prior=record, near=0.6)
    # Halves round to the even number of scenarios, parts of a mixture have odd ones, and some have none.
    odd = {"law": "some-known", "share": 0.5, "sigma": 1.5}
    parts = [{"weight": 1.0, **odd}, {"weight": 2.0, "law": "favourite", "share": 0.5, "strength": 0.9}]
    for record in (
        {"law": "mixture", "parts": [*parts, {"weight": 0.0001, "law": "lognormal", "sigma": 2.0}]},
        {"law": "mixture", "parts": [*parts, *[{"weight": 0.3, "law": "log-laplace", "scale": 0.9}] * 7]},
        {"law": "favourite", "share": 2.5 / 1024, "strength": 1.0},
        {"law": "lognormal", "sigma": 10},
        {"law": "lognormal", "sigma": 0},
        {"law": "ratios", "values": [3, 0, 1, 1], "statement": "made up", "weights": [1, 0, 2.5, 1]},
    ):
        yield make_menu(draw, 6, 4, prior={"version": 1, **record}, near=0.5)
    # Remainders of scenarios that are equal but for the rounding of doubles.
    ratios = [[1.1, 2.1, 2.11, 0.55], [1.6, 1.04, 2.44, 1.66], [1.71, 0.91, 0.78, 0.25]]
    ratios += [[0.31, 0.81, 0.93, 2.43], [1.28, 1.76, 2.61, 0.74], [0.28, 1.18, 1.52, 0.86]]
    weights = [0.982, 0.487, 0.983, 0.814, 0.093, 0.225]
    ties = {"version": 1, "law": "contexts", "ratios": ratios, "weights": weights}
    yield make_menu(draw, 4, 2.690634, prior=ties, near=0.01, alike=True)
    for name, nothing in (("spread", False), ("mixture", True), ("favourite", True), ("some known", False)):
        yield from on_the_edge(
            make_menu(draw, 4, 1, prior=prior_as_json(KINDS[name]), near=0.8, nothing=nothing)
        )
    yield make_menu(draw, 3, 0)
    nobody = tuple(MenuEntry(at, 0, 0, 0.01, -1) for at in range(3))
    yield make_menu(draw, 3, 2, entries=nobody)


def on_the_edge(menu: PricedMenu) -> Iterator[PricedMenu]:
    """The menu at the least epsilon, in millionths, at which a private choice is worth it, and one below."""
    low, high = 1, 20_000_000
    while high - low > 1:
        middle = (low + high) // 2
        tried = replace(menu, epsilon_micros=middle)
        low, high = (middle, high) if plan_menu(tried, candidates_of(tried)) is None else (low, middle)
    for micros in (low, high):
        yield replace(menu, epsilon_micros=micros)


def bad_menus() -> Iterator[tuple[str, PricedMenu]]:
    draw = Random(25)
    for name, prior in bad_priors():
        yield name, make_menu(draw, 3, 2, prior=prior)
    yield "a mechanism that nobody knows", make_menu(draw, 3, 2, "best")
    usual = make_menu(draw, 3, 2)
    yield "a rising score", make_menu(draw, 3, 2, entries=usual.entries[::-1])
    first = usual.entries[0]
    dear = MenuEntry(first.campaign, int(first.bid_micros * first.rate) + 1, first.bid_micros, first.rate, -1)
    yield "a price above the worth", make_menu(draw, 3, 2, entries=(dear, *usual.entries[1:]))
    yield "a floor without nothing", make_menu(draw, 3, 2, ctr_floor=0.01)
    yield "a price per click", make_menu(draw, 3, 2, rule="second price per click")
    yield "finer rates beside it", make_menu(draw, 3, 2, finer={Node((1,), ("Sport",)): {1: 0.1}})
    yield "finer rates above it", make_menu(draw, 3, 2, finer={Node((2,), ("*",)): {1: 0.1}})


def bad_priors() -> Iterator[tuple[str, Any]]:
    """Priors of three ads that no menu has."""
    yield "version 2", {"version": 2, "law": "lognormal", "sigma": 1.0}
    yield "no version", {"law": "lognormal", "sigma": 1.0}
    yield "no law", {"version": 1, "sigma": 1.0}
    yield "a list", [1]

    def said(name: str, law: str, **keys: Any) -> tuple[str, Any]:
        return name, {"version": 1, "law": law, **keys}

    yield said("another law", "cauchy", scale=1.0)
    yield said("a further key", "lognormal", sigma=1.0, mean=1.0)
    yield said("another key", "lognormal", scale=1.0)
    for sigma in (10.5, -0.1, True, None, [], [1, 1], [1, 1, -1]):
        yield said(f"sigma {sigma}", "lognormal", sigma=sigma)
    for scale in (0, 0.96):
        yield said(f"scale {scale}", "log-laplace", scale=scale)
    for share, times in ((0, 3), (1.1, 3), (0.5, 1), (0.5, 1001)):
        yield said(f"liked {share} {times}", "few-liked", share=share, times=times)
    yield said("known 0", "some-known", share=0.5, sigma=0)
    yield said("strength 2", "favourite", share=0.5, strength=2)
    ratios: Record = {"values": [1, 2], "weights": None, "statement": "made up"}
    for key, value in (
        ("values", []), ("values", [0, 0]), ("values", [-1, 2]), ("values", [[1, 2]]), ("weights", [1]),
        ("weights", [0, 0]), ("weights", [1, -1]), ("statement", " "),
    ):  # fmt: skip
        yield said(f"ratios {key} {value}", "ratios", **ratios | {key: value})
    yield said("weight on ratios of 0", "ratios", values=[0, 2], weights=[1, 0], statement="made up")
    table: Record = {"ratios": [[1, 1, 2]], "weights": [1]}
    for key, value in (("ratios", [[1, 1]]), ("weights", [1, 1]), ("weights", [0]), ("ratios", [[1, -1, 1]])):
        yield said(f"contexts {key} {value}", "contexts", **table | {key: value})
    part = {"weight": 1, "law": "log-laplace", "scale": 0.5}
    yield said("no parts", "mixture", parts=[])
    yield said("parts of no weight", "mixture", parts=[{**part, "weight": 0}])
    yield said("parts without a weight", "mixture", parts=[{"law": "lognormal", "sigma": 1}])
    yield said("a part with a version", "mixture", parts=[{**part, "version": 1}])
    yield said("too many parts", "mixture", parts=[part] * 257)
    nested: Record = part
    for _ in range(4):
        nested = {"weight": 1, "law": "mixture", "parts": [nested]}
    yield said("parts too deep", "mixture", parts=[nested])
    yield said("learnt without reports", "learnt", parts=[part], group="")
    yield said("learnt by a number", "learnt", parts=[part], group=3, reports=1)
    yield said("learnt from fewer than none", "learnt", parts=[part], group="", reports=-1)
