"""From noisy counts by bin to a prior: less one deviation of the noise, and no prior of noise alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tacit.deliver.protocol.ratio_bins import BINS, MIDDLE, RATIOS
from tacit.deliver.server.ratio_counts import ratios_from_counts
from tacit.errors import BadInput


def counts(**by_bin: int) -> list[int]:
    return [by_bin.get(f"b{place}", 0) for place in range(BINS)]


def test_exact_counts_are_the_weights() -> None:
    prior = ratios_from_counts(counts(b8=30, b4=10, b16=2), 0.0, "made up")
    assert prior.values == (RATIOS[4], RATIOS[MIDDLE], RATIOS[16])
    assert prior.weights == (10.0, 30.0, 2.0)
    assert prior.statement == "made up"


def test_one_deviation_of_the_noise_is_taken_off() -> None:
    noisy = counts(b8=300, b7=20, b0=-7, b16=8, b1=9)
    prior = ratios_from_counts(noisy, 8.0, "made up")
    assert prior.values == (RATIOS[1], RATIOS[7], RATIOS[8])
    assert prior.weights == (1.0, 12.0, 292.0)
    assert ratios_from_counts(np.array(noisy, float), 8.5, "made up").weights == (0.5, 11.5, 291.5)


@pytest.mark.parametrize(
    ("given", "sd", "says"),
    [
        (
            counts(b8=8, b3=-40),
            8.0,
            "expected a count above its noise of 8.0 in some bin, got none: ask more devices",
        ),
        (counts(), 0.0, "above its noise"),
        ([1] * 16, 0.0, "count for each of 17 bins"),
        ([[1]] * 17, 0.0, "count for each of 17 bins"),
        (["1"] * 17, 0.0, "count for each of 17 bins"),
        ([1.0] * 16 + [math.nan], 0.0, "finite counts"),
        ([1] * 17, -1.0, "noise_sd"),
        ([1] * 17, math.nan, "noise_sd"),
    ],
)
def test_what_cannot_be_a_prior_is_refused_in_one_line(given: Any, sd: float, says: str) -> None:
    with pytest.raises(BadInput, match=says) as refused:
        ratios_from_counts(given, sd, "made up")
    assert "\n" not in str(refused.value)


def test_without_a_statement_there_is_no_prior() -> None:
    with pytest.raises(BadInput, match="statement"):
        ratios_from_counts(counts(b8=9), 0.0, "")
