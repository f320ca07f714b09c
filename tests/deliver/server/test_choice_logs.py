"""Logs of choices: no propensity leaves, and the public law is enough for unbiased counts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tacit.arrays import Integers
from tacit.deliver.server.choice_logs import PUBLIC_COLUMNS, DebiasedCounts, choice_table, debias_choices
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.choice.top_choice import TopChoice
from tacit.schema.columns import Column, LogSchema


def debiased(chosen: Integers, kept: int, top: int, epsilon: float, candidate: Integers) -> DebiasedCounts:
    """Requests that all offer the same candidates, by the same law."""
    requests, size = len(chosen), len(candidate)
    return debias_choices(
        np.arange(requests + 1) * size, np.tile(candidate, requests), chosen,
        kept=np.full(requests, kept), top=np.full(requests, top), epsilon=np.full(requests, epsilon),
        count=size,
    )  # fmt: skip


def declared(name: str, role: str) -> LogSchema:
    kind = "real" if role == "latitude" else "category"
    return LogSchema("requests", (Column(name, {role}, kind), Column("click", {"label"}, "flag")))


def test_a_log_holds_what_is_public() -> None:
    table = choice_table(
        {"auction": ["a", "b"], "chosen": [0, 2], "epsilon": [1.0, 1.0], "query": ["x", "y"]},
        schema=declared("query", "public"),
    )
    assert table.column_names == ["auction", "chosen", "epsilon", "query"]
    assert choice_table({"chosen": [0], "bid_weight_kg": [3]}, schema=declared("bid_weight_kg", "public"))
    known = "auction time campaign chosen candidates kept top epsilon price_micros"
    assert set(known.split()) == PUBLIC_COLUMNS
    assert table.num_rows == 2


@pytest.mark.parametrize(
    "name",
    [
        *(
            "propensity",
            "propensities",
            "propensity_score",
            "pscore",
            "choice_probability",
            "prob",
            "chance_shown",
        ),
        *(
            "truth",
            "truthful",
            "lie",
            "lied",
            "was_random",
            "favoured",
            "was_favoured",
            "private_score",
            "private",
        ),
        *("device_score", "scores", "rank_on_device", "score", "pmf", "Favoured"),
    ],
)
def test_propensities_are_refused_even_if_declared_public(name: str) -> None:
    with pytest.raises(BadInput, match="no propensities"):
        choice_table({"chosen": [0], name: [0.5]}, schema=declared(name, "public"))


def test_other_columns_are_refused_until_declared() -> None:
    with pytest.raises(BadInput, match="known public"):
        choice_table({"chosen": [0], "age": [30]})
    for role in ("sensitive", "user", "latitude"):
        with pytest.raises(BadInput, match="known public"):
            choice_table({"chosen": [0], "age": [30]}, schema=declared("age", role))
    with pytest.raises(BadInput, match="chosen"):
        choice_table({"auction": [0]})
    with pytest.raises(BadInput, match="one length"):
        choice_table({"chosen": [0], "auction": [0, 1]})


@pytest.mark.parametrize(("kept", "top"), [(4, 1), (4, 2), (3, 1)])
def test_counts_and_variances_are_unbiased_exactly(kept: int, top: int) -> None:
    """By enumerating what may be chosen, with its chance, in a single request."""
    law, candidate = TopChoice.for_epsilon(1.2, 4, kept, top), np.array([2, 0, 3, 1])
    found = [debiased(np.array([place]), kept, top, 1.2, candidate) for place in range(kept)]
    gap = (law.high_weight - law.low_weight) / 2**64
    for scores in itertools.permutations([0.1, 0.2, 0.3, 0.4]):
        pmf = law.pmf(scores)
        mean = sum(pmf[place] * found[place].estimate for place in range(kept))
        favoured, chance = np.zeros(4), np.zeros(4)
        favoured[candidate[np.argsort(-np.array(scores[:kept]), kind="stable")[:top]]] = 1
        chance[candidate] = pmf
        np.testing.assert_allclose(mean, favoured, atol=1e-12)
        spread = sum(pmf[place] * (found[place].estimate - mean) ** 2 for place in range(kept))
        np.testing.assert_allclose(spread, chance * (1 - chance) / gap**2, atol=1e-9)
        assert (found[0].offered == (chance > 0)).all()
        stated = sum(pmf[place] * found[place].standard_error ** 2 for place in range(kept))
        np.testing.assert_allclose(stated, spread, atol=1e-9)


def test_many_choices_tell_how_often_each_was_best() -> None:
    requests, draws = 20_000, np.random.default_rng(1)
    scores = draws.normal(size=(requests, 5)) + np.array([0.0, 0.5, 0.0, 1.0, -0.5])
    # Half of the requests at another epsilon, and some where nothing was spent.
    epsilon = np.where(np.arange(requests) % 2, 1.0, 3.0)
    epsilon[::10] = 0
    kept = np.where(epsilon > 0, 5, 1)
    chosen, words = np.zeros(requests, np.int64), Simulation(1).words
    for one in (1.0, 3.0):
        chosen[epsilon == one] = TopChoice.for_epsilon(one, 5, 5, 1).choose(scores[epsilon == one], words)
    found = debias_choices(
        np.arange(requests + 1) * 5, np.tile(np.arange(5), requests), chosen,
        kept=kept, top=np.ones(requests, np.int64), epsilon=epsilon, count=5,
    )  # fmt: skip
    truth = np.bincount(np.argmax(scores[kept > 1], axis=1), minlength=5)
    assert found.left_out == requests // 10
    assert (found.offered == requests * 9 // 10).all()
    # Sums of 18,000 independent bounded terms: six standard errors fail once in 10^8 or so.
    assert (np.abs(found.estimate - truth) < 6 * found.standard_error).all()
    # The twin: counts as they are would be far off.
    naive = np.bincount(chosen[kept > 1], minlength=5)
    assert (np.abs(naive - truth) > 6 * found.standard_error).any()


def test_standard_errors_are_right_on_average() -> None:
    runs = 300
    law, scores, words = (
        TopChoice.for_epsilon(1, 3, 3, 1),
        np.tile([0.3, 0.2, 0.1], (200, 1)),
        Simulation(2).words,
    )
    found = [debiased(law.choose(scores, words), 3, 1, 1.0, np.arange(3)) for _ in range(runs)]
    spread = np.std([one.estimate for one in found], axis=0, ddof=1)
    stated = np.sqrt(np.mean([one.standard_error**2 for one in found], axis=0))
    # A deviation from 300 runs errs by 1/sqrt(600) of itself; five of those.
    np.testing.assert_allclose(stated / spread, 1, atol=5 / math.sqrt(600))


def test_laws_that_look_at_nothing_tell_nothing() -> None:
    found = debiased(np.array([0, 0, 0]), 1, 1, 0.0, np.arange(3))
    assert (found.estimate == 0).all()
    assert found.left_out == 3


def test_bad_input_is_refused_in_one_line() -> None:
    with pytest.raises(BadInput, match="among the kept"):
        debiased(np.array([2]), 2, 1, 1.0, np.arange(3))
    with pytest.raises(BadInput, match="among the kept"):
        debiased(np.array([0]), 4, 1, 1.0, np.arange(3))
    with pytest.raises(BadInput, match="got -1"):
        debiased(np.array([-1]), 2, 1, 1.0, np.arange(3))
    for epsilon in (float("nan"), -1.0, float("inf")):
        with pytest.raises(BadInput, match="finite epsilons"):
            debiased(np.array([0]), 2, 1, epsilon, np.arange(3))
    with pytest.raises(BadInput, match=r"0\.\.2"):
        debiased(np.array([0]), 2, 1, 1.0, np.array([0, 1, 3]))
    ones = np.ones(1, np.int64)
    with pytest.raises(BadInput, match="kept for 1 requests"):
        debias_choices(
            np.array([0, 2]),
            np.arange(2),
            ones,
            kept=np.ones(2, np.int64),
            top=ones,
            epsilon=np.ones(1),
            count=2,
        )
    with pytest.raises(BadInput, match="2 candidates"):
        debias_choices(
            np.array([0, 2]), np.arange(1), ones, kept=2 * ones, top=ones, epsilon=np.ones(1), count=2
        )
