"""A small town for the tests of the device: four places below two quarters, and a few ads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.deliver.device.context import ClickHistory, DeviceContext
from tacit.deliver.device.wallet import Wallet
from tacit.deliver.protocol.menu import Menu
from tacit.deliver.protocol.prices import BillingEvent, Rules, SecondPrice
from tacit.deliver.server.candidates import price_menu
from tacit.privacy.randomness import Source
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Node, Sequence
from tacit.schema.contexts.tree import Tree

TOWN = Sequence(
    [Steps("place", Tree.of_paths(["Old>Cafe", "Old>Bakery", "New>Gym", "New>Pool"]))], [(0,), (1,), (2,)]
)
PLACES = ("Cafe", "Bakery", "Gym", "Pool")
EXACT, QUARTER, ROOT = (0,), (1,), (2,)
ALL_LEVELS = (ROOT, QUARTER, EXACT)


def node(name: str) -> Node:
    levels = EXACT if name in PLACES else QUARTER if name in ("Old", "New") else ROOT
    return Node(levels, (name,))


def here(place: str, disclosed: tuple[int, ...] = QUARTER) -> DeviceContext:
    return DeviceContext.of(TOWN, (place,), disclosed)


def menu_of(
    at: Node,
    ads: ArrayLike,
    bid_micros: ArrayLike,
    rates: ArrayLike,
    finer: Mapping[Node, Mapping[int, float]] | None = None,
    charged: str = "click",
    ctr_floor: float = 0.0,
) -> Menu:
    """A menu at second prices."""
    rules = Rules(SecondPrice(BillingEvent(charged)))
    return price_menu(at, ads, bid_micros, rates, rules, finer=finer, ctr_floor=ctr_floor)


def old_quarter(ctr_floor: float = 0.0, charged: str = "click") -> Menu:
    """Close public scores; each place has a best ad of its own."""
    finer = {node("Cafe"): {1: 0.09, 3: 0.01}, node("Bakery"): {2: 0.08, 1: 0.02, 3: 0.03}}
    bids, rates = [1_000_000, 900_000, 1_100_000], [0.05, 0.05, 0.04]
    return menu_of(node("Old"), [1, 2, 3], bids, rates, finer, charged, ctr_floor)


def whole_town(ctr_floor: float = 0.0) -> Menu:
    finer = {
        node("Old"): {1: 0.06},
        node("Cafe"): {2: 0.10},
        node("New"): {1: 0.01, 3: 0.07},
        node("Pool"): {3: 0.02, 2: 0.06},
    }
    return menu_of(node("*"), [1, 2, 3], [1_000_000] * 3, [0.05, 0.045, 0.04], finer, ctr_floor=ctr_floor)


def histories(ads: Iterable[int], most_clicks: int = 2) -> list[ClickHistory]:
    """Every history of at most `most_clicks` clicks, at every place."""
    steps = list(product(ads, PLACES))
    found = []
    for count in range(most_clicks + 1):
        for clicks in product(steps, repeat=count):
            history = ClickHistory(ALL_LEVELS)
            for ad, place in clicks:
                history = history.with_click(ad, here(place))
            found.append(history)
    return found


class Word:
    """A source that says one word, and counts how often it was asked."""

    fit_for_release = True

    def __init__(self, word: int = 0) -> None:
        self.word, self.asked = word, 0

    def words(self, n: int) -> NDArray[np.uint64]:
        self.asked += n
        return np.full(n, self.word, np.uint64)


def one_word(word: int = 0) -> Source:
    return Word(word)  # type: ignore[return-value]  # a choice asks for words only


Law = dict[object, Fraction]


def worst_ratio(laws: Iterable[Law]) -> Fraction | None:
    """The largest ratio of an outcome's chances over all pairs; None where one law lacks what another has."""
    laws = list(laws)
    worst = Fraction(1)
    for outcome in {each for law in laws for each in law}:
        chances = [law.get(outcome, Fraction(0)) for law in laws]
        if not max(chances):
            continue
        if not min(chances):
            return None
        worst = max(worst, max(chances) / min(chances))
    return worst


def unstored(wallet: Wallet) -> None:
    """For tests that go on with the wallet that came back."""
