"""What a whole room adds to its sums: answers less exact sums, for tables that differ in one label."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest

from tacit.arrays import Floats
from tacit.cleanroom.protocol.layout import ParameterBlock, ParameterLayout
from tacit.cleanroom.protocol.losses import Loss, slopes
from tacit.cleanroom.protocol.modes import NoiseLaw
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.room import mechanism
from tacit.cleanroom.room.labels import LabelTable
from tacit.cleanroom.room.mechanism import GridSensitivity, add_noise, clip_factors, noise_source, round_to_grid
from tests.support.cleanroom_rooms import (
    NOW,
    PLATFORM,
    a_room,
    noised_terms,
    some_derivatives,
    some_logits,
    some_tokens,
    step_request,
    step_slabs,
)
from tests.support.exact_tests import ALPHA

ROWS = 8
GAUSSIAN = noised_terms(clip_norm=0.7)
LAPLACE = noised_terms(clip_norm=0.7, noise=NoiseLaw.LAPLACE, delta=0)
BOTH = pytest.mark.parametrize("agreed", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
WIDE = ParameterLayout((ParameterBlock("wide", 100, 100),))


def noise_in_answer(agreed: Terms, labels: np.ndarray) -> tuple[np.ndarray, float]:
    """What a whole room adds to the exact sum, over the scale that it should have; and what it says it adds."""
    derivatives, logits, tokens = some_derivatives(ROWS, WIDE), some_logits(ROWS), some_tokens(ROWS)
    request = step_request(agreed, ROWS, layout=WIDE)
    room = a_room(agreed, LabelTable.of(tokens, labels[:, None], agreed.tasks))
    slabs = step_slabs(request, tokens, derivatives, logits)
    answer = room.step(request, slabs, peer=PLATFORM, now=NOW)
    weights = slopes(logits, labels, Loss.RAW, None)
    weights *= clip_factors(derivatives, agreed.clip_norm, agreed.noise)
    exact = derivatives["wide"].weighted_sum(weights, dtype=np.float64).reshape(-1)
    return (answer.sum - exact) / (agreed.noise_multiplier * agreed.clip_norm), answer.noise_stddev


def related(agreed: Terms) -> float:
    """How much the noise of two rooms has in common whose tables differ in one label; 1 is all of it."""
    labels = np.zeros(ROWS, np.uint8)
    other = labels.copy()
    other[3] = 1
    first, elsewhere = (noise_in_answer(agreed, each)[0] for each in (labels, other))
    return float(np.corrcoef(first, elsewhere)[0, 1])


@BOTH
def test_noise_has_the_agreed_law_and_is_the_same_again(agreed: Terms) -> None:
    labels = (np.arange(ROWS) % 2).astype(np.uint8)
    (drawn, stddev), (again, _) = (noise_in_answer(agreed, labels) for _ in range(2))
    assert np.array_equal(drawn, again)
    law, spread = ("norm", 1.0) if agreed.noise is NoiseLaw.GAUSSIAN else ("laplace", math.sqrt(2))
    assert stddev == pytest.approx(spread * agreed.noise_multiplier * agreed.clip_norm, rel=1e-5)
    assert kstest(drawn, law).pvalue >= ALPHA
    assert kstest(0.85 * drawn, law).pvalue < ALPHA  # the twin: 10,000 numbers are enough


@BOTH
def test_noise_is_added_to_sums_that_lie_on_its_grid(agreed: Terms, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the grid, digits of a sum would show through noise that has none of them."""

    def noised_on_grid(sums: Floats, reach: GridSensitivity, *given: Any) -> Floats:
        assert np.array_equal(sums, round_to_grid(sums, reach.grid))
        assert np.any(sums)
        seen.append(reach)
        return add_noise(sums, reach, *given)

    seen: list[GridSensitivity] = []
    monkeypatch.setattr(mechanism, "add_noise", noised_on_grid)
    noise_in_answer(agreed, np.ones(ROWS, np.uint8))
    assert len(seen) == 1


@BOTH
def test_noise_is_unrelated_where_a_label_differs(agreed: Terms) -> None:
    """Compared is what was added to the exact sums: they differ anyhow. The correlation of 10,000 independent
    pairs is within 6 / sqrt(10000), but once in 5e8."""
    assert abs(related(agreed)) < 0.06


@BOTH
def test_a_room_whose_noise_ignores_the_sums_would_be_found_out(
    agreed: Terms, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = np.zeros(1)
    monkeypatch.setattr(
        mechanism, "noise_source", lambda secret, asked, _: noise_source(secret, asked, nothing)
    )
    assert related(agreed) > 0.99
