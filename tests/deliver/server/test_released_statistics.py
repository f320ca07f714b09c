"""Released statistics as bytes and as rates, and a model's rates corrected by them, by hand."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.arrays import Floats
from tacit.deliver.campaigns.campaign import BidEvent
from tacit.deliver.server.modelled_rates import ModelledRates, correct_by_counts
from tacit.deliver.server.rate_book import FixedRates
from tacit.deliver.server.released_statistics import DIGEST_BYTES, MAGIC, ReleasedStatistics
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Decimals, Steps
from tacit.schema.contexts.hierarchy import Node
from tacit.schema.contexts.hierarchy import Sequence as LevelSequence
from tacit.schema.contexts.tree import Tree

CITY = Tree.of({"any": None, "North": "any", "South": "any", "Northport": "North", "Southwick": "South"})
TOPIC = Tree.of({"all": None, "Food": "all", "Sport": "all", "Coffee": "Food", "Running": "Sport"})
HIERARCHY = LevelSequence((Steps("city", CITY), Steps("topic", TOPIC)), [(0, 0), (1, 1), (1, 2), (2, 2)])
NORTH_FOOD, NORTH_SPORT, SOUTH_FOOD = (
    Node((1, 1), values) for values in (("North", "Food"), ("North", "Sport"), ("South", "Food"))
)
NORTH, ANYWHERE = Node((1, 2), ("North", "*")), Node((2, 2), ("*", "*"))


def whole(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def some(noise_sd: float = 0.0, **changes: Any) -> ReleasedStatistics:
    """Two contexts in the north, one in the south; campaigns 3 and 7."""
    given = {
        "nodes": (NORTH_FOOD, NORTH_SPORT, SOUTH_FOOD),
        "total": whole(1_000, 500, 100),
        "offsets": whole(0, 2, 3, 4),
        "campaign": whole(3, 7, 7, 3),
        "clicks": whole(30, 10, 20, 1),
        "shown": whole(600, 400, 500, 100),
        "noise_sd": noise_sd,
        "reports": 900,
    }
    return ReleasedStatistics(**{**given, **changes})


def test_bytes_are_read_as_they_were_written() -> None:
    made = some(noise_sd=2.5, clicks=whole(-3, 10, 20, 1))
    read = ReleasedStatistics.from_bytes(made.to_bytes())
    assert read.to_bytes() == made.to_bytes()
    assert (read.nodes, read.campaigns, read.noise_sd, read.reports) == (made.nodes, (3, 7), 2.5, 900)
    assert read.clicks.tolist() == [-3, 10, 20, 1]
    assert len(made.to_bytes()) < 350


def test_statistics_that_were_kept_before_stay_readable() -> None:
    """Clicks or conversions, the bytes are the same: what is of which kind is said by their version."""
    made = some(noise_sd=7.5).to_bytes()
    digest = "4bbfe8b37506ff90283a4f2255a9c57f28c19a577fdcbe5dbc0ba89ac55e7e52"
    assert hashlib.sha256(made).hexdigest() == digest


@given(st.integers(0, 300), st.integers(1, 255), st.booleans())
def test_damaged_bytes_are_refused_in_one_line(at: int, change: int, mend: bool) -> None:
    data = bytearray(some(noise_sd=1.0).to_bytes())
    data[at % len(data)] ^= change
    if mend:  # by somebody who knows how digests are made
        data[len(MAGIC) : len(MAGIC) + DIGEST_BYTES] = hashlib.sha256(
            data[len(MAGIC) + DIGEST_BYTES :]
        ).digest()
    said = ""
    try:
        read = ReleasedStatistics.from_bytes(bytes(data))
    except BadInput as refused:
        said = str(refused)
    else:  # other statistics, spelled well
        assert mend
        assert read.to_bytes() == bytes(data)
    assert "\n" not in said


@pytest.mark.parametrize("cut", [0, 5, len(MAGIC), len(MAGIC) + DIGEST_BYTES, 200])
def test_bytes_that_end_early_are_refused(cut: int) -> None:
    with pytest.raises(BadInput, match="expected released statistics"):
        ReleasedStatistics.from_bytes(some().to_bytes()[:cut])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes": (NORTH_FOOD, NORTH_FOOD, SOUTH_FOOD)}, "each once"),
        ({"nodes": (NORTH_FOOD, NORTH_SPORT, ANYWHERE)}, "of one level"),
        ({"total": whole(1, 2)}, "total: expected 3 whole numbers"),
        ({"offsets": whole(0, 2, 1, 4)}, "offsets"),
        ({"campaign": whole(7, 3, 7, 3)}, "rising order"),
        ({"campaign": whole(-3, 7, 7, 3)}, "campaign"),
        ({"clicks": whole(2**62 + 1, 0, 0, 0)}, "within 2\\^62"),
        ({"noise_sd": float("nan")}, "noise_sd"),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        some(**changes)


def test_coarser_contexts_have_sums_with_the_noise_of_as_many_counts() -> None:
    book = some(noise_sd=2.0)
    counts = book.counts(book._context_nodes(HIERARCHY))
    north = counts.at((1, 2))
    assert counts.levels == ((1, 1), (1, 2), (2, 2))
    assert sorted(north.total.tolist()) == [100.0, 1_500.0]
    assert north.noise_sd == pytest.approx(2.0 * 2**0.5)
    top = counts.at((2, 2))
    assert top.shown is not None
    assert (top.clicks.tolist(), top.shown.tolist()) == ([31.0, 30.0], [700.0, 900.0])
    assert top.noise_sd == pytest.approx(2.0 * 3**0.5)


def test_rates_are_those_of_the_finest_context_that_was_counted() -> None:
    book = some().rate_book(HIERARCHY, version="statistics 1")
    at = book.rates([NORTH_FOOD, ANYWHERE, Node((0, 0), ("Northport", "Coffee"))], [3, 7], BidEvent.CLICK)
    assert at[0, 0] == at[2, 0]
    assert 0.02 < at[0, 0] < 0.06
    assert at[1, 1] == pytest.approx(30 / 900, rel=0.2)
    assert (book.rates([NORTH], [3], BidEvent.IMPRESSION) == 1.0).all()


def test_contexts_of_another_hierarchy_are_refused() -> None:
    places = LevelSequence((Decimals("place"), Steps("topic", TOPIC)), [(0, 0), (1, 1), (1, 2)])
    with pytest.raises(BadInput, match="attributes that are trees, got place"):
        some().rate_book(places, version="1")
    with pytest.raises(BadInput, match="expected contexts at levels of the hierarchy"):
        some(nodes=(Node((0, 1), ("a", "b")), Node((0, 1), ("a", "c")), Node((0, 1), ("b", "c")))).rate_book(
            HIERARCHY, version="1"
        )


def half(nodes: Sequence[Node], campaigns: Sequence[int]) -> Floats:
    return np.full((len(nodes), len(campaigns)), 0.1)


def test_counts_correct_a_model_as_the_posterior_mean_does() -> None:
    book = ModelledRates(
        FixedRates(), version="1", hierarchy=HIERARCHY, clicks=half, statistics=some(), strength=100.0
    )
    at = book.rates([NORTH_FOOD, SOUTH_FOOD, NORTH], [3, 7, 11], BidEvent.CLICK)
    by_hand = [
        [(30 + 10) / (600 + 100), (10 + 10) / (400 + 100), 0.1],
        [(1 + 10) / (100 + 100), 0.1, 0.1],
        [(30 + 10) / (600 + 100), (30 + 10) / (900 + 100), 0.1],  # sums over the north
    ]
    assert at == pytest.approx(np.array(by_hand))
    assert (book.rates([NORTH], [3], BidEvent.CONVERSION) == FixedRates().conversion).all()


def test_noise_draws_a_rate_back_to_the_model() -> None:
    clicks, shown, m, k = np.array([30.0]), np.array([600.0]), np.array([0.1]), 100.0
    spread = 0.1 * 0.9 / 101
    variance = 400.0
    weight = spread * 600 / (spread * 600**2 + 100 * spread * 600 + variance * (0.9**2 + 0.1**2))
    assert correct_by_counts(m, clicks, shown, variance, k) == pytest.approx(0.1 + weight * (30 - 60))
    for less in (correct_by_counts(m, clicks, shown, 1e12, k), correct_by_counts(m, clicks, -shown, 1.0, k)):
        assert less == pytest.approx(m, abs=1e-6)
    assert correct_by_counts(np.array([0.0]), clicks, shown, 0.0, k) == 0.0  # a model that is sure stays so


def test_the_correction_is_nearer_the_truth_than_either_alone() -> None:
    draw = np.random.default_rng(1)
    m, k, n, sd = 0.05, 200.0, 400, 4.0
    truth = draw.beta(k * m, k * (1 - m), 20_000)
    clicks = draw.binomial(n, truth) + draw.normal(0, sd, truth.shape)
    shown = n + draw.normal(0, 2**0.5 * sd, truth.shape)
    corrected = correct_by_counts(np.full_like(truth, m), clicks, shown, sd**2, k)

    def error(rate: Floats) -> float:
        return float(((rate - truth) ** 2).mean())

    assert error(corrected) < 0.8 * min(error(np.full_like(truth, m)), error(clicks / shown))
