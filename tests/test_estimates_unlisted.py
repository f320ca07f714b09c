"""A count that is not listed: a zero where counts are exact, and unknown where they are noisy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from small_contexts import LEAF, TOP, counts_of, nodes_of
from tacit.deliver.estimates.climbing import overall_rate
from tacit.deliver.estimates.estimate import Estimator
from tacit.deliver.estimates.moments import MomentShrinkage
from tacit.deliver.estimates.shrinkage import Shrinkage
from tacit.schema.statistics import Counts

ROWS = [*[("Coffee", 0)] * 30, *[("Coffee", 1)] * 10, *[("Tea", 0)] * 40]  # nobody at tea clicked ad 1
TEA = nodes_of(ROWS).of_row(LEAF)[-1]


def noisy(counts: Counts, sd: float) -> Counts:
    """The same counts, said to carry noise; a draw of it that happens to be nothing."""
    return replace(
        counts, by_level={each: replace(level, noise_sd=sd) for each, level in counts.by_level.items()}
    )


@pytest.mark.parametrize("estimator", [Shrinkage(4.0), MomentShrinkage()], ids=["shrinkage", "moments"])
def test_what_was_not_released_stays_with_the_parent(estimator: Estimator) -> None:
    exact = counts_of(ROWS, 2)
    below, above = (
        {
            sd: estimator.rates(counts, levels, np.array([node]), np.array([1])).rate[0, 0]
            for sd, counts in ((0.0, exact), (0.5, noisy(exact, 0.5)))
        }
        for levels, node in ((LEAF, TEA), (TOP, exact.parent[LEAF, TOP][TEA]))
    )
    assert below[0.0] < 0.6 * above[0.0]  # 40 requests without a click
    assert below[0.5] == pytest.approx(above[0.5])  # nothing is known of it there


def test_the_rate_of_all_ads_is_over_what_was_released() -> None:
    exact = counts_of(ROWS, 2)
    assert overall_rate(exact, LEAF) == pytest.approx(80 / 160)  # each request could be a click on either
    assert overall_rate(noisy(exact, 0.5), LEAF) == pytest.approx(80 / 120)  # ad 1 at tea is not among them
