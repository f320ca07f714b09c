"""The compiled loops of choices against their NumPy twins, and against the laws they stand for."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np
import pytest

from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.kernels import choices
from tacit.kernels.auctions import Pricing, TopColumns, run_auctions
from tacit.kernels.choices import TopLaws
from tacit.privacy.choice.noise import permute_and_flip_log_pmf, unit_nodes
from tacit.privacy.choice.top_choice import TopChoice
from tests.support.auction_ways import Ways, served
from tests.support.exact_tests import assert_matches_pmf

PRICING = Pricing(first_price=False, per_event=False, reserve=0.0, keep=0.0, empty=None)

CLOSE = 1e-13
"""Sums of at most a few hundred positive doubles in another order."""


@Ways
@pytest.mark.parametrize(
    ("size", "kept", "top"), [(1, 1, 1), (4, 4, 1), (5, 3, 2), (9, 9, 3), (7, 7, 7), (200, 180, 60)]
)
def test_choices_are_those_of_top_choice_word_for_word(way: str, size: int, kept: int, top: int) -> None:
    """The first word of every block, the last, and one between."""
    law = TopChoice.for_epsilon(1.5, size, kept, top)
    draws = np.random.default_rng(size).standard_normal((3 if size == 200 else 12, size)).round(1)  # with ties
    draws[::2] = draws[::2].round() * 5e-324  # as small as doubles get: not 0, and not tied with it
    rows, words, places = [], [], []
    for scores in draws:
        edges = accumulate(law.weights(scores)[:kept], initial=0)
        for place, (low, high) in enumerate(pairwise(edges)):
            rows += [scores] * 3
            words += [low, (low + high) // 2, high - 1]
            places += [place] * 3
    laws = TopLaws(
        np.zeros(len(rows), np.int64),
        np.array([kept]),
        np.array([top]),
        np.array([law.low_weight if kept > 1 else 1], np.uint64),
        np.array([law.high_weight if kept > 1 else 1], np.uint64),
        np.array([law.spare if kept > 1 else 0]),
    )
    offsets, scores = np.arange(len(rows) + 1) * size, np.array(rows)
    with served(way):
        chosen = choices.choose_top(offsets, scores.reshape(-1), laws, np.array(words, np.uint64))
        pmf = choices.top_pmf(offsets, scores.reshape(-1), laws)
        at_once = run_auctions(
            offsets,
            np.ones(scores.size, np.int64),
            np.tile(np.linspace(1.0, 0.5, size), len(rows)),  # publicly best first
            PRICING,
            scores.reshape(-1),
            law_of_size(size, laws),
            np.array(words, np.uint64),
        )
    np.testing.assert_array_equal(chosen, places)
    np.testing.assert_array_equal(at_once.ranks, places)
    np.testing.assert_allclose(pmf.reshape(-1, size), law.pmf(scores), rtol=1e-15)


def law_of_size(size: int, laws: TopLaws) -> TopColumns:
    """For auctions of so many candidates the first of these laws; for smaller ones the public best."""
    few, none, words = np.minimum(np.arange(size), 1), np.zeros(size, np.int64), np.ones(size, np.uint64)
    return (
        np.append(few, laws.kept[:1]),
        np.append(few, laws.top[:1]),
        np.append(words, laws.low_weight[:1]),
        np.append(words, laws.high_weight[:1]),
        np.append(none, laws.spare_words[:1]),
    )


def test_some_of_these_laws_have_words_to_spare() -> None:
    """Else none of the above would tell who gets them."""
    assert TopChoice.for_epsilon(1.5, 9, 9, 3).spare
    assert TopChoice.for_epsilon(1.5, 7, 7, 7).spare


@Ways
@pytest.mark.parametrize("best", range(4))
def test_the_certain_choice_looks_at_no_word(way: str, best: int) -> None:
    one = np.array([1])
    laws = TopLaws(
        np.zeros(3, np.int64), np.array([4]), one, np.zeros(1, np.uint64), one.astype(np.uint64), 0 * one
    )
    words = np.array([0, 2**63, 2**64 - 1], np.uint64)
    with served(way):
        chosen = choices.choose_top(
            np.arange(4) * 4, np.tile(np.arange(4) == best, 3).astype(float), laws, words
        )
    assert chosen.tolist() == [best] * 3


@pytest.mark.parametrize("way", ["wide", "twin"])
def test_draws_by_a_law_have_the_words_that_are_stated(way: str) -> None:
    """1 + floor(p (2^64 - 2^32)) words each, and the likeliest all that are left: at every edge, exactly."""
    for pmf in ([0.5, 0.25, 0.25], [0.25, 0.0, 0.0, 0.75], [0.0, 1.0], [1.0]):
        shares = [int(Fraction(p) * (2**64 - 2**32)) + 1 for p in pmf]
        edges = [*accumulate(shares, initial=0), 2**64]
        places = [*range(len(pmf)), int(np.argmax(pmf))]
        words = [word for low, high in pairwise(edges) for word in (low, high - 1)]
        count = len(words)
        with served(way):
            chosen = choices.choose_by_pmf(
                np.arange(count + 1) * len(pmf), np.tile(pmf, count), np.array(words, np.uint64)
            )
        assert chosen.tolist() == [place for place in places for _ in range(2)]


@Ways
def test_noisy_laws_are_those_of_the_maths(way: str) -> None:
    draws = np.random.default_rng(1)
    for size in (1, 2, 15, 100):
        scores = draws.standard_normal((20, size))
        offsets, rates = np.arange(21) * size, np.linspace(0.1, 30.0, 20)
        with served(way):
            flip = choices.flip_pmf(offsets, scores.reshape(-1), rates, unit_nodes).reshape(20, size)
            soft = choices.softmax_pmf(offsets, scores.reshape(-1), rates).reshape(20, size)
        np.testing.assert_allclose(
            flip, np.exp(permute_and_flip_log_pmf(scores * rates[:, None])), rtol=1e-10, atol=CLOSE
        )
        odds = np.exp((scores - scores.max(axis=1, keepdims=True)) * rates[:, None])
        np.testing.assert_allclose(soft, odds / odds.sum(axis=1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("way", ["wide", "narrow"])
def test_expectations_and_draws_by_a_law(way: str) -> None:
    source = Simulation("expectations")
    offsets = np.array([0, 3, 3, 4, 20])
    pmf = np.concatenate([[0.5, 0.25, 0.25], [1.0], np.full(16, 1 / 16)])
    values = np.random.default_rng(2).standard_normal((20, 4))
    words = source.words(4)
    words[0] = 2**64 - 1  # beyond all shares: the likeliest
    with served(way):
        found, drawn = choices.expected(offsets, pmf, values), choices.choose_by_pmf(offsets, pmf, words)
    with served("twin"):
        np.testing.assert_allclose(found, choices.expected(offsets, pmf, values), atol=CLOSE)
        np.testing.assert_array_equal(drawn, choices.choose_by_pmf(offsets, pmf, words))
    assert drawn[0] == 0
    assert drawn[1] == -1


def test_draws_follow_the_law() -> None:
    """False alarms: ALPHA. The twin below takes the law of another rate, and must fail."""
    trials, size = 20_000, 4
    scores = np.tile([0.0, 1.0, 0.5, 0.9], trials)
    offsets = np.arange(trials + 1) * size
    pmf = choices.flip_pmf(offsets, scores, np.full(trials, 2.0), unit_nodes)
    chosen = choices.choose_by_pmf(offsets, pmf, Simulation("draws").words(trials))
    counts = {place: int(np.count_nonzero(chosen == place)) for place in range(size)}
    assert_matches_pmf(counts, dict(enumerate(pmf[:size].tolist())))
    other = choices.flip_pmf(offsets[:2], scores[:size], np.full(1, 2.3), unit_nodes)
    with pytest.raises(AssertionError):
        assert_matches_pmf(counts, dict(enumerate(other.tolist())))


def law_columns(**changed: list[int]) -> TopColumns:
    """The laws of 0 to 3 candidates, of which the best 1, 1 and 2 are favoured, with some columns changed."""
    third = (2**64 - 1) // 5  # odd, so that a word is left over
    columns = {
        "kept": [0, 1, 2, 3],
        "top": [0, 1, 1, 2],
        "low": [1, 1, 2**62, third],
        "high": [1, 1, 3 * 2**62, (2**64 - third) // 2],
        "spare": [0, 0, 0, (2**64 - third) % 2],
    } | changed
    kept, top, spare = (np.array(columns[name], np.int64) for name in ("kept", "top", "spare"))
    low, high = (np.array(columns[name], np.uint64) for name in ("low", "high"))
    return kept, top, low, high, spare


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"top": [0, 1, 0, 2]}, "1 <= top <= kept"),
        ({"top": [0, 1, 1, 4]}, "1 <= top <= kept"),
        ({"kept": [0, 1, 2, -3]}, "1 <= top <= kept"),
        ({"spare": [0, 0, 1, 0]}, r"spare_words in 0..top-1"),
        ({"spare": [0, 0, 0, 2]}, r"spare_words in 0..top-1"),
        ({"spare": [0, 0, 0, -1]}, r"spare_words in 0..top-1"),
        ({"spare": [0, 0, 0, 0]}, r"2\^64 words in all"),
        ({"low": [1, 1, 2**62 + 1, 2]}, r"2\^64 words in all"),
        ({"low": [1, 1, 2**62, 2]}, r"2\^64 words in all"),
        ({"high": [1, 1, 2**63, 2]}, r"2\^64 words in all"),
        ({"kept": [0, 1, 2, 10], "low": [1, 1, 2**62, 2**62], "high": [1, 1, 3 * 2**62, 2**63],
          "spare": [0, 0, 0, 0]}, r"2\^64 words in all"),  # three times as many
        ({"low": [1, 1, 2**62]}, "low_weight as contiguous uint64 of 4"),
    ],
    ids=str,
)  # fmt: skip
def test_laws_that_are_none_are_refused_in_one_pass_as_in_steps(
    changed: dict[str, list[int]], says: str
) -> None:
    """Words that are not 2^64 in all would be dealt out in other shares than the law's epsilon speaks of."""
    offsets, bids, rates = np.array([0, 1]), np.array([1]), np.array([0.1])
    word = np.zeros(1, np.uint64)
    assert len(run_auctions(offsets, bids, rates, PRICING, rates, law_columns(), word).rows) == 1
    TopLaws(np.array([3]), *law_columns())
    wrong = law_columns(**changed)
    for make in (
        lambda: run_auctions(offsets, bids, rates, PRICING, rates, wrong, word),
        lambda: TopLaws(np.array([3]), *wrong),
    ):
        with pytest.raises(BadInput, match=says):
            make()
