"""Flips by token that are drawn once, and the keyed stream: exact laws, and twins that must be caught."""

from __future__ import annotations

import copy
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest

from tacit.cleanroom.room.labels import LabelTable, flipped_labels
from tacit.entropy import KeyedEntropy, Simulation
from tacit.errors import BadInput, EntropyMisuse
from tacit.privacy.mechanisms import memoisation
from tacit.privacy.mechanisms.memoisation import FlipKey, flip_tokens
from tacit.privacy.mechanisms.randomized_response import WHOLE, RandomizedResponse
from tests.support.cleanroom_rooms import SECRET, some_table, some_tokens, terms
from tests.support.exact_tests import ALPHA

KEY = FlipKey("conversion", 0)
EVEN = RandomizedResponse.for_epsilon("1/1000")  # flips about half of all, so that draws show
THREE = RandomizedResponse.for_epsilon(3)


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("response", [EVEN, THREE, RandomizedResponse(1)])
def test_a_label_is_flipped_for_exactly_the_agreed_share_of_words(
    label: int, response: RandomizedResponse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word alone decides, and lies are an interval of it: both ends are tried, so the share is exact."""
    edge = response.lie_weight
    words = [0, edge - 1, edge, WHOLE - 1]
    monkeypatch.setattr(
        memoisation, "_encrypt", lambda blocks, _: np.repeat(np.array(words, np.uint64), 2)[: 2 * len(blocks)]
    )
    flips = flip_tokens(np.full(4, label), some_tokens(4), KEY, response, SECRET)
    assert flips.tolist() == [1 - label, 1 - label, label, label]
    assert Fraction(edge, WHOLE) == response.lie


def flip_share_is(flips: int, count: int, response: RandomizedResponse) -> bool:
    """Wrong with probability at most ALPHA."""
    return bool(binomtest(flips, count, float(response.lie)).pvalue >= ALPHA)


def test_real_words_flip_the_agreed_share_and_a_warmer_twin_is_caught() -> None:
    count = 200_000
    labels = (Simulation("truth").words(count) % np.uint64(2)).astype(np.int64)
    flips = int((flip_tokens(labels, some_tokens(count), KEY, THREE, SECRET) != labels).sum())
    assert flip_share_is(flips, count, THREE)
    # Of 200,000 labels, epsilon 3 flips 9,485 give or take 95; epsilon 2.9 flips 10,433: 10 deviations off.
    assert not flip_share_is(flips, count, RandomizedResponse.for_epsilon("2.9"))


def test_flips_do_not_depend_on_the_batch_its_order_or_the_process() -> None:
    records, labels = some_tokens(500), np.arange(500) % 2
    whole = flip_tokens(labels, records, KEY, EVEN, SECRET)
    order = np.argsort(Simulation("order").words(500))
    assert np.array_equal(flip_tokens(labels[order], records[order], KEY, EVEN, SECRET), whole[order])
    for start in range(0, 500, 77):
        part = slice(start, start + 77)
        assert np.array_equal(flip_tokens(labels[part], records[part], KEY, EVEN, SECRET), whole[part])
    # Pinned: a restart, another version or another machine must flip the same.
    assert whole[:16].tolist() == PINNED


PINNED = [1, 0, 1, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 0, 1, 0]


def agreement(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two sets of fair coins look unrelated; wrong with probability at most ALPHA."""
    return bool(binomtest(int((one == other).sum()), len(one), 0.5).pvalue >= ALPHA)


def test_whatever_is_in_the_key_gives_unrelated_flips() -> None:
    count = 20_000
    records, zeros = some_tokens(count), np.zeros(count, np.int64)
    # At epsilon 1/1000 a flip is a coin of 0.49975: 20,000 of them cannot tell it from a fair one.
    first = flip_tokens(zeros, records, KEY, EVEN, SECRET)
    others = [
        flip_tokens(zeros, records, FlipKey("cart", 0), EVEN, SECRET),
        flip_tokens(zeros, records, FlipKey("conversion", 1), EVEN, SECRET),
        flip_tokens(zeros, records, FlipKey("conversion", 0, 1), EVEN, SECRET),
        flip_tokens(zeros, records, KEY, RandomizedResponse.for_epsilon("1/500"), SECRET),
        flip_tokens(zeros, records, KEY, EVEN, SECRET[::-1]),
        1 - flip_tokens(1 - zeros, records, KEY, EVEN, SECRET),  # whether it flips, for the other label
    ]
    for other in others:
        assert agreement(first, other)
    assert not agreement(first, flip_tokens(zeros, records, KEY, EVEN, SECRET))


@pytest.mark.parametrize("half", [slice(0, 8), slice(8, 16)])
def test_tokens_that_share_a_half_share_nothing_else(half: slice) -> None:
    count = 20_000
    records, zeros = some_tokens(count), np.zeros(count, np.int64)
    crafted = some_tokens(count, "others").copy()
    crafted[:, half] = records[:, half]
    first = flip_tokens(zeros, records, KEY, EVEN, SECRET)
    assert agreement(first, flip_tokens(zeros, crafted, KEY, EVEN, SECRET))


def test_flips_refuse_what_would_share_a_draw_or_is_no_token() -> None:
    with pytest.raises(BadInput, match="distinct"):
        flip_tokens([0, 1], some_tokens(1)[[0, 0]], KEY, EVEN, SECRET)
    with pytest.raises(BadInput, match="16 bytes"):
        flip_tokens([0], some_tokens(1)[:, :8], KEY, EVEN, SECRET)
    with pytest.raises(BadInput, match="secret"):
        flip_tokens([0], some_tokens(1), KEY, EVEN, b"short")
    with pytest.raises(BadInput, match="label"):
        flip_tokens([0, 1], some_tokens(1), KEY, EVEN, SECRET)
    with pytest.raises(BadInput, match="answers"):
        flip_tokens([2], some_tokens(1), KEY, EVEN, SECRET)


def correct(reads: list[np.ndarray], truth: np.ndarray) -> int:
    """Labels that a majority over all reads names rightly."""
    return int(((np.mean(reads, axis=0) > 0.5) == truth).sum())


def test_reading_flips_every_epoch_tells_nothing_more_and_a_twin_with_fresh_flips_does() -> None:
    count, epochs = 5000, 9
    table = some_table(count)
    truth = table.look_up(some_tokens(count), "conversion").astype(bool)
    agreed = terms(epsilon=1)
    limit = float(agreed.response.truth)
    kept = [flipped_labels(table, some_tokens(count), "conversion", agreed, SECRET) for _ in range(epochs)]
    fresh = [
        flipped_labels(table, some_tokens(count), "conversion", agreed, Simulation(f"{epoch}").bytes(32))
        for epoch in range(epochs)
    ]
    assert binomtest(correct(kept, truth), count, limit, alternative="greater").pvalue >= ALPHA
    assert binomtest(correct(fresh, truth), count, limit, alternative="greater").pvalue < ALPHA


def test_a_record_flips_alike_whether_it_is_absent_or_present_with_label_zero() -> None:
    records = some_tokens(300)
    nobody = LabelTable.of(records[:0], np.empty((0, 1), np.uint8), ("conversion",))
    zeros = LabelTable.of(records, np.zeros((300, 1), np.uint8), ("conversion",))
    for agreed in (terms(), terms(epsilon="0.01")):
        assert np.array_equal(
            flipped_labels(nobody, records, "conversion", agreed, SECRET),
            flipped_labels(zeros, records, "conversion", agreed, SECRET),
        )


def test_each_task_pays_its_share_of_epsilon() -> None:
    agreed = terms(epsilon=3, tasks=("conversion", "cart", "engaged"))
    assert agreed.response == RandomizedResponse.for_epsilon(1)
    assert len(agreed.tasks) * agreed.response.epsilon <= 3 * (1 + 1e-12)


def test_a_keyed_stream_is_the_same_for_the_same_label_and_unrelated_otherwise() -> None:
    def draws(secret: bytes, label: bytes) -> tuple[bytes, int, list[float]]:
        source = KeyedEntropy(secret, label)
        return source.bytes(40), source.uniform_below(10**30), source.normal(5, np.float64).tolist()

    assert draws(SECRET, b"one") == draws(SECRET, b"one")
    made = [draws(SECRET, b"one"), draws(SECRET, b"two"), draws(SECRET[::-1], b"one"), draws(SECRET, b"one\0")]
    assert len({each[0] for each in made}) == 4
    assert KeyedEntropy(SECRET, b"pinned").bytes(8).hex() == "aa14619e207f89a3"


def test_a_keyed_stream_is_uniform_where_a_short_one_would_not_be() -> None:
    words = KeyedEntropy(SECRET, b"uniform").words(100_000)
    for place in range(64):
        ones = int(((words >> np.uint64(place)) & np.uint64(1)).sum())
        assert binomtest(ones, len(words), 0.5).pvalue >= ALPHA / 64
    assert len(np.unique(words)) == len(words)


def test_a_keyed_stream_is_fit_for_release_and_is_not_copied() -> None:
    source = KeyedEntropy(SECRET, b"label")
    assert source.fit_for_release
    with pytest.raises(EntropyMisuse):
        copy.deepcopy(source)
    for secret, label in [(b"short", b"label"), (SECRET, b""), (SECRET, "text")]:
        with pytest.raises(BadInput):
            KeyedEntropy(secret, label)  # type: ignore[arg-type]
