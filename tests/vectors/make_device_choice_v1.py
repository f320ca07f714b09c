"""Makes device_choice_v1.json: how a device plans, chooses, generalises and scores, for two languages.

    PYTHONPATH=. .venv/bin/python tests/vectors/make_device_choice_v1.py

Devices in JavaScript plan and choose as ours do: a change here changes what menus that are out there mean.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import MenuEntry, PricedMenu
from tacit.data.encoding.encoder import Encoder
from tacit.data.encoding.fingerprints import value_fingerprints
from tacit.data.encoding.vocabulary import Hashing, Vocabulary, known_domain
from tacit.deliver.device.choice import PrivateChoice, device_scores
from tacit.deliver.device.context import ClickHistory, DeviceContext
from tacit.deliver.device.journal import Showing
from tacit.deliver.device.menu_book import plan_menu
from tacit.deliver.device.packs import barred_campaigns
from tacit.deliver.device.settings import CutDisclosure
from tacit.deliver.protocol.cuts import (
    Cut,
    context_tree,
    cut_as_json,
    finest_cut_with_remainders,
    nodes_by_name,
)
from tacit.deliver.protocol.disclosure import Requirement, context_number
from tacit.deliver.protocol.packs import FrequencyCap, MenuPack, PackedCampaign
from tacit.deliver.protocol.priced_menus import candidates_of, entry_index
from tacit.entropy import Simulation
from tacit.errors import BadInput, BillRefused
from tacit.privacy.choice.top_choice import TopChoice
from tacit.schema.columns import Column, Kind, LogSchema, Role
from tacit.schema.contexts.attributes import Decimals, SetOf, Steps
from tacit.schema.contexts.device_copy import hierarchy_as_json
from tacit.schema.contexts.hierarchy import Hierarchy, Lattice, Node, Sequence
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import Tree
from tacit.train.models.device_export import device_bytes
from tacit.train.models.factorization_machine import FactorizationMachine, LogisticRegression
from tacit.train.models.model import Architecture, Part
from tacit.train.models.saving import SavedModel, encoded_sizes
from tacit.train.row_scorer import RowScorer
from tacit.train.targets import Head
from tests.support.device_menus import Record, bad_menus, make_menu, menu_record, menus

WHOLE = 2**64


def plan_records() -> list[Record]:
    found: list[Record] = []
    for menu in menus():
        plan = None
        if menu.epsilon_micros:  # else nothing is planned at all
            choice = _plan(menu)
            if choice is not None:
                law = choice.plan.law
                assert isinstance(law, TopChoice)
                plan = [*weights_of(law), choice.plan.forecast_gain]
        found.append({"menu": menu_record(menu), "plan": plan})
    return found


def weights_of(law: TopChoice) -> list[Any]:
    return [law.kept, law.top, str(law.low_weight), str(law.high_weight), law.spare]


def _plan(menu: PricedMenu) -> PrivateChoice | None:
    return plan_menu(menu, candidates_of(menu))


def bad_plan_records() -> dict[str, Record]:
    found = {}
    for name, menu in bad_menus():
        expect_refused(_plan, menu)
        found[name] = menu_record(menu)
    return found


def weight_records() -> list[Any]:
    micros = [1, 2, 999, 123_456, 500_000, 693_147, 1_000_000, 2_000_000, 2_302_585, 9_999_999, 23_025_850]
    micros += [44_000_000, 50_000_000, 700_000_000, 700_000_001, 2**32 - 1]
    shapes = ((2, 1), (3, 1), (3, 2), (7, 3), (20, 6), (250, 249))
    return [
        [each, *weights_of(TopChoice.for_epsilon(Fraction(each, 10**6), kept, kept, top))]
        for each in micros
        for kept, top in shapes
    ]


def choice_records() -> list[Record]:
    found: list[Record] = []
    for micros, kept, top, scores in (
        (2_000_000, 3, 1, [0.1, 0.3, 0.2, 0.9, 0.0]), (1_000_000, 5, 2, [1.0, 1.0, 1.0, 1.0, 1.0]),
        (300_000, 4, 3, [-1.0, 0.0, -0.0, 5e-324]), (4_000_000, 2, 1, [3.0, 3.0, 9.0]),
        (50_000_000, 3, 2, [1e300, -1e300, 1e-300]), (7, 3, 2, [0.5, 0.25, 0.75]),
    ):  # fmt: skip
        law = TopChoice.for_epsilon(Fraction(micros, 10**6), len(scores), kept, top)
        weights = law.weights(scores)
        ends = np.cumsum(np.array(weights, object)).tolist()
        words = sorted(
            {word for end in (0, *ends) for word in (end - 1, end) if 0 <= word < WHOLE}
            | {12345678901234567890}
        )
        rows, drawn = [scores] * len(words), np.array(words, np.uint64)
        chosen = law.choose(rows, partial(np.resize, drawn)).tolist()
        found.append(
            {"law": [micros, kept, top], "scores": scores, "weights": list(map(str, weights)),
             "words": list(map(str, words)), "chosen": chosen}
        )  # fmt: skip
    return found


def score_records() -> list[Record]:
    draw, found = Random(26), []
    for nothing, floor in ((False, 0.0), (True, 0.0), (True, 0.03), (True, 0.028)):
        menu = make_menu(draw, 5, 2, nothing=nothing, floor=floor)
        if floor == 0.028:
            free = tuple(MenuEntry(each.campaign, 0, 0, each.rate, -1) for each in menu.entries)
            menu = make_menu(draw, 5, 2, entries=free, nothing_micros=0.0, nothing_rank=0, floor=floor)
        candidates = candidates_of(menu)
        rates = np.array([floor, *(round(0.06 * draw.random(), 4) for _ in candidates.ads[1:])])
        barred = [11, 99]
        known = np.where(np.isin(candidates.ads, barred), 0.0, rates)
        found.append({
            "menu": menu_record(menu), "rates": rates.tolist(), "barred": barred,
            "scores": device_scores(candidates, rates).tolist(),
            "barred_scores": device_scores(candidates, known).tolist(),
            "indices": [entry_index(menu, rank) for rank in range(len(candidates))],
        })  # fmt: skip
    return found


def cap_records() -> Record:
    caps = (FrequencyCap(2, 60), FrequencyCap(3, 600))
    campaigns = (
        PackedCampaign(1, caps, ("IAB9-7", "IAB1")),
        PackedCampaign(2, caps[:1]),
        PackedCampaign(3, (), ("IAB80",)),
        PackedCampaign(4, caps[1:], ("IAB8",)),
    )
    showings = [(1, 100), (1, 130), (2, 1000), (2, 90), (3, 130), (4, 0), (4, 1), (4, 2), (9, 100), (9, 101)]
    asked = [
        (now, excluded)
        for now in (150, 159, 160, 602, 601, 5000)
        for excluded in ([], ["IAB9"], ["IAB8", "IAB1"])
    ]
    pack = MenuPack(bytes(32), campaigns)
    seen = [Showing(campaign, at, at + 10**6) for campaign, at in showings]
    return {
        "campaigns": [each.as_json() for each in campaigns],
        "showings": showings,
        "barred": [[now, out, sorted(barred_campaigns(pack, seen, out, now))] for now, out in asked],
    }


DRINKS = Tree.of_paths(
    ["Food>Drinks>Coffee", "Food>Drinks>Tea", "Food>Lunch", "Sport>Skating", "Sport>Chess", "Sport>Çay · 2>ü"]
)
HIERARCHIES: dict[str, Hierarchy] = {
    "tree": Sequence([Steps("query", DRINKS)], [(0,), (1,), (2,)]),
    "depths": Sequence([Steps("query", DRINKS, (2, 1))], [(0,), (1,)]),
    "named root": Sequence(
        [Steps("where", Tree.of({"All": None, "North": "All", "Hill": "North"}))], [(0,), (1,)]
    ),
    "root alone": Sequence([Steps("where", Tree.of({"All": None}))], [(0,)]),
    "place and tree": Sequence([Decimals("place"), Steps("query", DRINKS)], [(0, 0), (3, 0), (4, 1), (6, 2)]),
    "lattice": Lattice([Decimals("place", (2, 0)), Steps("query", DRINKS)], ((0, 0), (1, 2))),
    "fine": Sequence([Decimals("place", (None, 9, 4))], [(0,), (1,), (2,)]),
    "set": Sequence([SetOf(Steps("interests", DRINKS), 3)], [(0,), (1,), (2,)]),
}
CONTEXTS: dict[str, list[Any]] = {
    "tree": [["Coffee"], ["Lunch"], ["Food"], ["ü"], ["*"]],
    "depths": [["Coffee"], ["Tea"], ["Sport"]],
    "named root": [["Hill"], ["All"]],
    "root alone": [["All"]],
    "place and tree": [
        [[40.7644, -73.9745], "Coffee"], [[0.29, -0.29], "Lunch"], [[90.0, 12.5], "Tea"], [[-90, 180], "Tea"],
        [[5e-05, -1.25e-07], "Tea"], [[61.22913, 180], "Tea"], [[-0.0, 0.1], "ü"], [[89.99999, -180], "Tea"],
    ],
    "lattice": [[[0.07, 0.58], "Coffee"], [[-0.07, -0.58], "Skating"]],
    "fine": [[[28.999999999999996, 0.1]], [[1.005, 2.675]], [[-1.005, -2.675]], [[4.35, 9.999999999]],
             [[0.000000001, 179.999999999]], [[33.1, -117.2]]],
    "set": [[["Coffee", "Tea"]], [["Tea", "Coffee", "Lunch"]], [[]], [["ü", "Skating"]]],
}  # fmt: skip
BAD_CONTEXTS: dict[str, list[Any]] = {
    "tree": [["Cola"], [], ["Tea", "Tea"], [3], "Tea", [None], ["constructor"]],
    "place and tree": [
        [[91.0, 0.0], "Tea"],
        [[0.0, 180.5], "Tea"],
        [[0.0], "Tea"],
        [["1", "2"], "Tea"],
        [None, "Tea"],
    ],
    "set": [["Tea"], [["Tea", "Coffee", "Lunch", "Skating"]], [["Cola"]]],
}


def context_records() -> Record:
    found: Record = {}
    for name, hierarchy in HIERARCHIES.items():
        contexts = [
            [context, [node.values for node in hierarchy.path(_tuples(context))]] for context in CONTEXTS[name]
        ]
        for context in BAD_CONTEXTS.get(name, ()):
            expect_refused(hierarchy.path, _tuples(context))
        found[name] = {
            "hierarchy": hierarchy_as_json(hierarchy), "contexts": contexts, "bad": BAD_CONTEXTS.get(name, []),
        }  # fmt: skip
    return found


def _tuples(context: Any) -> Any:
    return (
        tuple(tuple(each) if isinstance(each, list) else each for each in context)
        if isinstance(context, list)
        else context
    )


def expect_refused(act: Callable[..., object], *given: Any) -> None:
    """As bad input, or as a malformed message."""
    try:
        act(*given)
    except BadInput:
        return
    except BillRefused as refusal:
        if refusal.reason == BillVerdict.MALFORMED:
            return
    raise AssertionError("expected it to be refused")


def cut_records() -> Record:
    """The finest cut with at least two leaves in each block: rests of nodes among them."""
    hierarchy = Sequence([Steps("query", DRINKS), Decimals("place", (0,))], [(0, 0), (0, 1), (1, 1), (2, 1)])
    queries = ["Coffee", "Coffee", "Tea", "Lunch", "Skating", "Skating", "Chess", "ü"]
    places = [(1.0, 1.0), (7.0, 1.0), (1.0, 1.0), (2.5, 1.0), (1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (-1.0, 3.0)]
    nodes = ContextNodes.of(hierarchy, {"query": queries, "place": places})
    tree = context_tree(nodes)
    cut = finest_cut_with_remainders(tree, Requirement(2, 0).on(tree))
    assert isinstance(cut, Cut)
    assert any(block.without for block in cut.blocks)
    setting = CutDisclosure(cut)
    contexts = [[[query, place], list(setting.disclose(hierarchy, (query, place)).levels)]
                for query, place in zip(queries, places, strict=True)]  # fmt: skip
    bad = [["Tea", [2.5, 1.0]], ["Food", [1.0, 1.0]]]
    for query, place in bad:
        expect_refused(setting.disclose, hierarchy, (query, tuple(place)))
    cut_json = cut_as_json(cut, nodes_by_name(nodes))
    return {"hierarchy": hierarchy_as_json(hierarchy), "cut": cut_json, "contexts": contexts, "bad": bad}


def number_records() -> list[Any]:
    nodes = [Node((1,), ("North",)), Node((0, 2), ("Çay · 2", "*")), Node((0, 0, 0), ("", "a", "ü + b"))]
    return [[list(node.levels), list(node.values), context_number(node)] for node in nodes]


def history_records() -> Record:
    hierarchy, draw = HIERARCHIES["tree"], Random(27)
    contexts = [("Coffee",), ("Tea",), ("Lunch",), ("Skating",)]
    levels, ads = ((3,), (1,), (0,)), [10, 11, 12, 13]
    history, requests = ClickHistory(levels, most=12), []
    for _ in range(20):
        context, ad = draw.choice(contexts), draw.choice([None, *ads])
        requests.append([list(context), ad])
        own = DeviceContext.of(hierarchy, context, (3,))
        history = history.without_click(own) if ad is None else history.with_click(ad, own)
    finer = {
        Node((1,), ("Drinks",)): {1: 0.2, 3: 0.0},
        Node((0,), ("Coffee",)): {3: 0.5, 4: 1.0},
        Node((0,), ("Tea",)): {1: 0.4},
    }
    menu = make_menu(draw, 4, 2, nothing=True, node=Node((2,), ("Food",)), finer=finer)
    candidates, rates = candidates_of(menu), []
    for context in (("Coffee",), ("Tea",), ("Lunch",)):
        own = DeviceContext.of(hierarchy, context, (2,))
        server = candidates.rates_along(own.below)
        rates.append([list(context), server.tolist(), history.rates(candidates.ads, own, server).tolist()])
    return {
        "levels": levels, "most": 12, "strength": history.strength, "requests": requests,
        "menu": menu_record(menu), "rates": rates,
    }  # fmt: skip


COLUMNS = (
    Column("site", {Role.PUBLIC}),
    Column("price", {Role.PUBLIC}, Kind.REAL, buckets_per_doubling=3),
    Column("hour", {Role.PUBLIC}, Kind.HOUR, source="at"),
    Column("day", {Role.PUBLIC}, Kind.WEEKDAY, source="at"),
    Column("likes", {Role.SENSITIVE}),
    Column("visits", {Role.SENSITIVE}, Kind.WHOLE, buckets_per_doubling=2),
    Column("member", {Role.SENSITIVE}, Kind.FLAG),
    Column("clicked", {Role.LABEL}, Kind.FLAG),
)
ROWS: list[Record] = [
    {"site": "news", "price": 3.5, "at": 1_700_000_000, "likes": "tea", "visits": 7, "member": True},
    {"site": "unknown of old", "price": 0, "at": -1, "likes": "", "visits": -4096, "member": 0},
    {"site": None, "price": None, "at": None, "likes": None, "visits": None, "member": None},
    {"site": "17", "price": -1e-12, "at": 0, "likes": 12, "visits": 0, "member": "1"},
    {"site": 17, "price": 2.0, "at": 86_399, "likes": 0.125, "visits": 1, "member": 1.0},
    {"site": 17.5, "price": 1e300, "at": 4_000_000_000, "likes": "Çay, ölf", "visits": 10**12, "member": False},
    {"site": "sport", "price": 0.75, "at": 1_700_003_600, "likes": 12345678901.5, "visits": 2, "member": True},
    {"site": -3, "price": 1.26, "at": 1_699_999_200, "likes": 1.5e-07, "visits": 3, "member": True},
    {"site": "eightlet", "price": 64, "at": 1, "likes": "eightletters, more", "visits": 4095, "member": True},
]  # fmt: skip
BAD_ROWS: list[Record] = [
    {key: value for key, value in ROWS[0].items() if key != "likes"},
    {**ROWS[0], "price": "3.5"},
    {**ROWS[0], "visits": 1.5},
    {**ROWS[0], "at": 0.5},
    {**ROWS[0], "likes": 2.0**53},
]


def model_records() -> dict[str, Record]:
    schema = LogSchema("made up", COLUMNS, utc_offset_hours=-5)
    public = [column for column in COLUMNS if Role.PUBLIC in column.roles]
    site = np.unique(value_fingerprints("site", ["news", "sport", "17", "17.5", "eightlet"]))
    listed = (site, *(np.unique(known_domain(column)[:40]) for column in public[1:]))
    vocabulary = Vocabulary(tuple(column.vocabulary for column in public), listed)
    encoders = {
        "vocabulary": Encoder.of(schema, vocabulary, Hashing(40)),
        "hashing": Encoder.of(schema, Hashing(50), Hashing(7)),
    }
    shapes: tuple[tuple[str, Architecture, Part], ...] = (
        ("vocabulary", FactorizationMachine(dim=3), Part.WHOLE),
        ("hashing", FactorizationMachine(dim=5), Part.WHOLE),
        ("hashing", LogisticRegression(), Part.WHOLE),
        ("vocabulary", FactorizationMachine(dim=2), Part.TRUNCATED),
    )
    found = {}
    for name, shape, part in shapes:
        model = shape.build(encoded_sizes(encoders[name]), Simulation("weights").normal)
        model.tables["table"][...] = Simulation(f"{name} {shape}").normal(
            model.tables["table"].shape, scale=0.6
        )
        model.dense["bias"][0] = -1.5
        saved = SavedModel(model, Head.LOGISTIC, encoders[name], None, "plain", part=part, synthetic=True)
        scorer = RowScorer(saved)
        for row in BAD_ROWS if part is Part.WHOLE else ():
            expect_refused(scorer.score, row)
        found[f"{shape.name}, {name}, {part}"] = {
            "file": base64.b64encode(device_bytes(saved)).decode(),
            "scores": [scorer.score(row) for row in ROWS],
            "bad": part is Part.WHOLE,
        }
    return found


def records() -> Record:
    return {
        "plans": plan_records(), "bad_plans": bad_plan_records(), "weights": weight_records(),
        "choices": choice_records(), "scores": score_records(), "caps": cap_records(),
        "contexts": context_records(), "cut": cut_records(), "context_numbers": number_records(),
        "history": history_records(), "rows": ROWS, "bad_rows": BAD_ROWS, "models": model_records(),
    }  # fmt: skip


def spelled(value: Any, deep: int = 2) -> str:
    """JSON with a line for each entry of the outer lists and tables."""
    if deep and isinstance(value, dict):
        return (
            "{\n"
            + ",\n".join(f"{json.dumps(key)}:{spelled(each, deep - 1)}" for key, each in value.items())
            + "}"
        )
    if deep and isinstance(value, list):
        return "[\n" + ",\n".join(spelled(each, deep - 1) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


if __name__ == "__main__":
    Path(__file__).with_name("device_choice_v1.json").write_text(spelled(records()) + "\n")
