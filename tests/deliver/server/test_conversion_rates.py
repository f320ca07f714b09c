"""Rates of conversions: what is expected, corrected by counts along the contexts, and not moved by noise."""

from __future__ import annotations

from collections.abc import Sequence as Values

import numpy as np
import pytest

from tacit.arrays import Floats
from tacit.deliver.campaigns.campaign import BidEvent
from tacit.deliver.server.conversion_rates import ConversionRates
from tacit.deliver.server.modelled_rates import ModelledRates
from tacit.deliver.server.rate_book import FixedRates
from tacit.deliver.server.released_statistics import ReleasedStatistics
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Lattice, Node, Sequence
from tacit.schema.contexts.listed import list_nodes
from tacit.schema.contexts.tree import Tree

CITY = Tree.of_paths(["North > Northport", "North > Millbridge", "South > Southwick", "South > Harbour"])
TOPIC = Tree.of_paths(["Food > Coffee", "Food > Tea", "Sport > Running"])
ATTRIBUTES = (Steps("city", CITY), Steps("topic", TOPIC))
HIERARCHY = Sequence(ATTRIBUTES, [(0, 0), (1, 1), (1, 2), (2, 2)])
REGIONS = [Node((1, 1), (region, kind)) for region in ("North", "South") for kind in ("Food", "Sport")]
DEFAULT = FixedRates(0.01, 0.001)
EVENT = BidEvent.CONVERSION


def counted(
    hits: list[list[float]],
    shown: list[list[float]],
    *,
    noise_sd: float = 0.0,
    campaigns: tuple[int, ...] = (3, 5),
) -> ReleasedStatistics:
    """Counts of both campaigns in each of the four regions and kinds of topics."""
    flat_hits, flat_shown = (
        np.array(each, np.float64).round().astype(np.int64).ravel() for each in (hits, shown)
    )
    return ReleasedStatistics(
        tuple(REGIONS), flat_shown.reshape(4, -1).sum(axis=1), np.arange(5) * len(campaigns),
        np.tile(np.array(campaigns, np.int64), 4), flat_hits, flat_shown, noise_sd=noise_sd, reports=100,
    )  # fmt: skip


def a_book(statistics: ReleasedStatistics, strength: float = 500.0) -> ConversionRates:
    return ConversionRates(DEFAULT, statistics, HIERARCHY, version="c 1", strength=strength)


def test_many_exact_counts_are_the_rates() -> None:
    true = np.array([[0.004, 0.0005], [0.001, 0.002], [0.004, 0.001], [0.008, 0.0001]])
    shown = np.full((4, 2), 10_000_000.0)
    book = a_book(counted((true * shown).tolist(), shown.tolist()))
    assert book.rates(REGIONS, [3, 5], EVENT) == pytest.approx(true, rel=0.01)
    top = book.rates([Node((2, 2), ("*", "*"))], [3, 5], EVENT)
    assert top[0] == pytest.approx(true.mean(axis=0), rel=0.01)
    assert (book.rates(REGIONS, [3], BidEvent.CLICK) == 0.01).all()
    assert (book.rates(REGIONS, [3], BidEvent.IMPRESSION) == 1).all()


def test_what_was_not_counted_is_like_what_lies_above_it() -> None:
    shown = np.full((4, 2), 1_000_000.0)
    true = np.array([[0.004, 0.001], [0.004, 0.001], [0.002, 0.001], [0.002, 0.001]])
    book = a_book(counted((true * shown).tolist(), shown.tolist()))
    finer = book.rates([Node((0, 0), ("Northport", "Coffee"))], [3, 5], EVENT)
    assert finer == pytest.approx(book.rates([REGIONS[0]], [3, 5], EVENT))
    everything = true.mean()  # of a campaign that nobody counted: that of all
    assert book.rates([REGIONS[0], REGIONS[3]], [99], EVENT) == pytest.approx(everything, rel=0.01)


def test_few_counts_in_a_cell_are_drawn_towards_the_context_above() -> None:
    shown = np.array([[100.0, 0], [1_000_000, 0], [1_000_000, 0], [1_000_000, 0]])
    hits = shown * 0.003
    hits[0, 0] = 5.0  # of a hundred: 50 per thousand
    found = a_book(counted(hits.tolist(), shown.tolist())).rates(REGIONS, [3], EVENT)[:, 0]
    assert 0.003 < found[0] < 0.015
    assert found[1:] == pytest.approx(0.003, rel=0.01)


def test_a_release_of_noise_alone_leaves_what_was_expected() -> None:
    """As in the first days, when no look-back is over: 500 draws, none of which may move a rate by half. The
    formula's correction of the sum has a deviation below 2% of the rate: a false alarm is below 1e-9."""
    draws = np.random.default_rng(5)
    for _ in range(500):
        hits, missed = draws.normal(0, 56, (2, 4, 2))
        book = a_book(counted(hits.tolist(), (hits + missed).tolist(), noise_sd=56.0))
        assert book.rates(REGIONS, [3, 5, 99], EVENT) == pytest.approx(0.001, rel=0.5)


def test_a_model_is_corrected_by_the_same_counts() -> None:
    def scores(nodes: Values[Node], campaigns: Values[int]) -> Floats:
        rates = [0.01 if node.values[0].startswith("North") else 0.002 for node in nodes]
        return np.repeat(np.array(rates)[:, None], len(campaigns), axis=1)

    model = ModelledRates(DEFAULT, version="m", hierarchy=HIERARCHY, conversions=scores)
    shown = np.full((4, 1), 0.0)
    nothing = ConversionRates(
        model, counted(shown.tolist(), shown.tolist(), campaigns=(3,)), HIERARCHY, version="c"
    )
    assert nothing.rates(REGIONS, [3], EVENT)[:, 0].tolist() == [0.01, 0.01, 0.002, 0.002]
    shown += 10_000_000
    half = model.rates(REGIONS, [3], EVENT) / 2  # the model says twice as much as came
    book = ConversionRates(
        model, counted((half * shown).tolist(), shown.tolist(), campaigns=(3,)), HIERARCHY, version="c"
    )
    assert book.rates(REGIONS, [3], EVENT) == pytest.approx(half, rel=0.01)
    finer = book.rates([Node((0, 0), ("Northport", "Tea")), Node((0, 0), ("Harbour", "Tea"))], [3], EVENT)
    assert finer[:, 0] == pytest.approx([0.005, 0.001], rel=0.01)


def test_what_is_expected_never_is_impossible_so_that_counts_can_correct_it() -> None:
    """Where nobody clicked, conversions that follow clicks would be 0 whatever was counted."""
    shown = np.full((4, 2), 1_000_000.0)
    statistics = counted((shown * 0.004).tolist(), shown.tolist())
    for least, rate in ((0.0, 0.0), (0.0001, 0.004)):
        book = ConversionRates(FixedRates(0.0, 0.0), statistics, HIERARCHY, version="c", least=least)
        assert book.rates(REGIONS, [3], EVENT) == pytest.approx(rate, rel=0.01)


def test_a_cell_does_not_depend_on_what_is_asked_beside_it() -> None:
    draws = np.random.default_rng(2)
    shown = draws.integers(0, 50_000, (4, 2)).astype(float)
    book = a_book(counted((shown * 0.004).tolist(), shown.tolist(), noise_sd=3.0))
    asked = list_nodes(HIERARCHY, HIERARCHY.levels(), 100)
    whole = book.rates(asked, [5, 3, 8], EVENT)
    for row, node in enumerate(asked):
        for column, campaign in enumerate((5, 3, 8)):
            assert book.rates([node], [campaign], EVENT)[0, 0] == whole[row, column]
    assert book.rates([], [3], EVENT).shape == (0, 1)


def test_in_a_lattice_one_way_down_is_taken() -> None:
    lattice = Lattice(ATTRIBUTES)
    shown = np.full((4, 2), 1_000_000.0)
    book = ConversionRates(DEFAULT, counted((shown * 0.005).tolist(), shown.tolist()), lattice, version="c")
    assert book.rates([Node((1, 2), ("North", "*")), Node((2, 1), ("*", "Food"))], [3], EVENT) == pytest.approx(
        0.005, rel=0.01
    )
    places = Sequence((Steps("city", CITY),), [(0,), (1,)])
    with pytest.raises(BadInput, match="levels of the hierarchy"):
        ConversionRates(DEFAULT, counted(shown.tolist(), shown.tolist()), places, version="c")
