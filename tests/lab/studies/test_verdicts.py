"""Rules that all studies share: when figures over paired seeds decide, and when they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies.runs import words
from tacit_lab.studies.verdicts import at_most, below, between, every, no_better

BASE = np.array([1.0, 1.1, 1.2, 1.3, 1.4, 1.5])
WOBBLE = np.array([0.1, -0.1, 0.2, -0.2, 0.1, -0.1])


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ((True, True), True),
        ((True, None), None),
        ((None, False, True), False),
        ((), None),
    ],
)
def test_all_must_hold_and_there_must_be_some(found: tuple[Any, ...], verdict: bool | None) -> None:
    assert every(iter(found)) is verdict


def test_below_is_decided_by_the_whole_interval_alone() -> None:
    assert below(BASE - 1, BASE) is True
    assert below(BASE + 1, BASE) is False
    assert below(BASE - 0.01 + WOBBLE, BASE) is None
    assert below(BASE + 0.01 + WOBBLE, BASE) is None, "a mean on the wrong side decides nothing"
    assert below(BASE[:2] - 1, BASE[:2]) is None, "two seeds decide nothing"


def test_what_is_the_same_at_every_seed_is_not_below() -> None:
    assert below(BASE, BASE) is False
    assert no_better(BASE, BASE) is True


def test_no_better_fails_only_where_it_is_better() -> None:
    assert no_better(BASE - 1, BASE) is False
    assert no_better(BASE - 0.01 + WOBBLE, BASE) is True
    assert no_better(BASE[:3] - 0.1 + WOBBLE[:3], BASE[:3]) is None, "with three seeds it may just not be seen"
    assert no_better(BASE[:3] + 0.1 + WOBBLE[:3], BASE[:3]) is None, "nor does a mean decide it"
    assert no_better(BASE[:3] + 0.1, BASE[:3]) is True


def test_a_bound_is_kept_or_broken_by_the_whole_interval() -> None:
    assert at_most(BASE, 2.0) is True
    assert at_most(BASE, 1.26) is None
    assert at_most(BASE, 1.2) is None, "the mean is above, and the interval spans it"
    assert at_most(BASE, 1.0) is False
    assert at_most(0 * BASE + 1.0, 1.0) is True, "at most is not below"
    assert at_most(BASE[:2], 2.0) is None


def test_between_is_decided_by_the_whole_interval() -> None:
    assert between(BASE, 1.0, 1.5) is True
    assert between(BASE, 1.3, 1.5) is None
    assert between(BASE, 1.2, 1.3) is None
    assert between(BASE, 1.6, 2.0) is False
    assert between(BASE, 0.5, 1.0) is False
    assert between(BASE[:2], 0.0, 9.0) is None


def test_a_lopsided_interval_is_told_by_its_ends() -> None:
    """-.16 ± .10 would say that it ends below 0, and it does not."""
    assert words(MeasuredValue(-0.165, -0.181, 0.016, 0.95)) == "-0.17 [-0.18, 0.02]"
    assert words(MeasuredValue(3.52, 3.21, 3.83, 0.95)) == "3.52 ± 0.31"
    assert words(MeasuredValue(1.0, 1.0, 1.0, 0.95)) == "1.00"
