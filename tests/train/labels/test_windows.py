"""Labels reported early and again when final: exactly unbiased, exactly as telling, and paid for twice."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.expect import Number
from tacit.privacy.accounting import pure_epsilon
from tacit.privacy.mechanisms.memoisation import FlipKey, flip_labels
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.releases import leaves
from tacit.privacy.units import Cap, Relation, Split, Unit, UnitKind, Window
from tacit.train.examples import Examples
from tacit.train.labels.mechanism import Correction
from tacit.train.labels.randomizers import FlipLabels, unbiased
from tacit.train.labels.windows import RepeatedFlips, RepeatedReports, ReportingWindows
from tests.support.exact_tests import assert_matches_pmf
from tests.support.label_examples import (
    IMPRESSION,
    KEY,
    PUBLIC,
    SECRET,
    NoisyTargets,
    examples_of,
    noisy_targets,
)

LABEL = Relation.REPLACE_LABEL
DAY = 86_400
PLAN = ReportingWindows((DAY, 30 * DAY), (Fraction(1, 4), Fraction(3, 4)), (Fraction(3, 5), Fraction(1)))

tenths = st.integers(1, 10).map(lambda n: Fraction(n, 10))
plans = st.integers(1, 3).flatmap(
    lambda count: st.tuples(
        st.lists(st.integers(2, 60).map(lambda n: Fraction(n, 10)), min_size=count, max_size=count),
        st.lists(tenths, min_size=count, max_size=count).map(sorted),
    )
)


def reports_of(epsilons: list[Fraction], arrived: list[Fraction]) -> RepeatedReports:
    return RepeatedReports(tuple(map(RandomizedResponse.for_epsilon, epsilons)), tuple(arrived))


def law(reports: RepeatedReports, label: int) -> dict[tuple[int, ...], Fraction]:
    """The chance of each list of answers: draw when the conversion came, then flip every report."""
    chances = dict.fromkeys(reports.answers, Fraction(0))
    never = len(reports.arrived) + 1  # later than any report
    steps = [Fraction(0), *reports.arrived, Fraction(1)]
    came = [(place, after - before) for place, (before, after) in enumerate(pairwise(steps))]
    for since, share in came if label else [(never, Fraction(1))]:
        for answers in chances:
            chance = share
            for place, (answer, response) in enumerate(zip(answers, reports.responses, strict=True)):
                chance *= response.pmf(int(place >= since))[answer]
            chances[answers] += chance
    return chances


@settings(max_examples=60)
@given(plans, st.sampled_from([Fraction(1, 100), Fraction(1, 20), Fraction(1, 2)]))
def test_unbiased_targets_have_the_final_label_as_their_mean_exactly(
    plan: tuple[list[Fraction], list[Fraction]], rate: Fraction
) -> None:
    reports = reports_of(*plan)
    for label in (0, 1):
        chances = law(reports, label)
        assert sum(chances.values()) == 1
        assert chances == {answers: reports.likelihood(answers, label) for answers in reports.answers}
        assert sum(p * reports.unbiased_target(answers, rate) for answers, p in chances.items()) == label


def variance(reports: RepeatedReports, weights: list[Fraction], rate: Fraction) -> Fraction:
    """E[(target - label)^2] for these weights, by enumeration."""
    total = Fraction(0)
    for label, mass in ((0, 1 - rate), (1, rate)):
        for answers, chance in law(reports, label).items():
            target = sum(
                (w * (a - r.lie) / (r.truth - r.lie) / s for w, a, r, s in
                 zip(weights, answers, reports.responses, reports.arrived, strict=True)), Fraction(0),
            )  # fmt: skip
            total += mass * chance * (target - label) ** 2
    return total


@settings(max_examples=25)
@given(plans, st.sampled_from([Fraction(1, 50), Fraction(1, 3)]))
def test_no_other_weights_have_less_variance(
    plan: tuple[list[Fraction], list[Fraction]], rate: Fraction
) -> None:
    reports = reports_of(*plan)
    weights = list(reports.weights(rate))
    assert sum(weights) == 1
    best = variance(reports, weights, rate)
    for place in range(1, len(weights)):
        for step in (Fraction(1, 100), Fraction(-1, 100)):
            moved = [*weights]
            moved[0], moved[place] = moved[0] + step, moved[place] - step
            assert float(variance(reports, moved, rate)) >= float(best) * (1 - 1e-9)
    alone = [Fraction(0)] * (len(weights) - 1) + [Fraction(1)]
    assert float(best) <= float(variance(reports, alone, rate)) * (1 + 1e-9)  # an early report never hurts


@settings(max_examples=60)
@given(plans, st.floats(0.01, 0.99))
def test_one_report_with_a_keep_probability_says_what_all_answers_say(
    plan: tuple[list[Fraction], list[Fraction]], rate: float
) -> None:
    """The likelihood of the answers, in the model's rate, is that of the one report, up to a constant."""
    reports = reports_of(*plan)

    def one_report(answers: tuple[int, ...], rate: float) -> float:
        value, keep = reports.forward(answers)
        ones = float(1 - keep) + float(2 * keep - 1) * rate
        return ones if value else 1 - ones

    for answers in reports.answers:
        zero, one = (float(law(reports, label)[answers]) for label in (0, 1))
        together = ((1 - rate) * zero + rate * one) / (0.5 * zero + 0.5 * one)
        assert one_report(answers, rate) / one_report(answers, 0.5) == pytest.approx(together, rel=1e-9)


def test_one_final_report_is_plain_randomized_response() -> None:
    reports = reports_of([Fraction(1)], [Fraction(1)])
    response = RandomizedResponse.for_epsilon(1)
    assert [reports.forward((answer,)) for answer in (0, 1)] == [(0, response.truth), (1, response.truth)]
    assert tuple(reports.unbiased_target((a,), Fraction(1, 20)) for a in (0, 1)) == unbiased(response, (0, 1))


def test_an_early_yes_tells_more_than_an_early_no() -> None:
    reports = reports_of([Fraction(2)], [Fraction(1, 2)])
    (no, kept_no), (yes, kept_yes) = reports.forward((0,)), reports.forward((1,))
    assert (no, yes) == (0, 1)
    assert kept_yes > kept_no


# Targets as of a time.

DELAYS = np.array([10, 2 * DAY, -1, 5, 31 * DAY, -1])
TIMES = np.array([0, 0, 0, 20 * DAY, 20 * DAY, 29 * DAY + 1])
FINAL = [1, 1, 0, 1, 0, 0]


def targets_as_of(
    examples: Examples,
    windows: ReportingWindows,
    seconds_to_conversion: NDArray[np.int64],
    unit: Unit,
    cap: Cap,
    epsilon: Number,
    *,
    key: FlipKey,
    secret: bytes,
    now: int,
    correction: Correction = Correction.FORWARD,
) -> NoisyTargets:
    """What there is of these labels as of `now`."""
    known = replace(examples, delay=seconds_to_conversion)
    mechanism = RepeatedFlips.as_of(windows, known, now, correction)
    return noisy_targets(known, mechanism, unit, cap, epsilon, key=key, secret=secret, now=now)


def as_of(now: int, correction: Correction = Correction.FORWARD, **changed: object) -> NoisyTargets:
    asked: dict[str, object] = {
        "unit": IMPRESSION, "cap": Cap(1), "epsilon": 2, "windows": PLAN, "seconds_to_conversion": DELAYS,
        "key": KEY, "secret": SECRET, **changed,
    }  # fmt: skip
    return targets_as_of(examples_of(FINAL, {"time": TIMES}), now=now, correction=correction, **asked)  # type: ignore[arg-type]


def flips(report: int, divisor: int = 1) -> NDArray[np.int64]:
    early = [[1, 0, 0, 1, 0, 0], FINAL][report]
    response = RandomizedResponse.for_epsilon(Fraction(2) * PLAN.shares[report] / divisor)
    return flip_labels(early, np.arange(1000, 1006), PLAN.key(KEY, report), response, SECRET)


def test_each_row_is_read_from_the_reports_that_it_has() -> None:
    noisy = as_of(30 * DAY)  # rows 0..2 are final, 3 and 4 have the early report, 5 has none
    assert noisy.targets.rows is not None
    assert noisy.targets.keep is not None
    assert noisy.targets.rows.tolist() == [0, 1, 2, 3, 4]
    both = reports_of([Fraction(1, 2), Fraction(3, 2)], [Fraction(3, 5), Fraction(1)])
    early = reports_of([Fraction(1, 2)], [Fraction(3, 5)])
    for row in range(5):
        answers = (int(flips(0)[row]), int(flips(1)[row]))
        value, keep = both.forward(answers) if row < 3 else early.forward(answers[:1])
        assert noisy.targets.values[row] == value
        assert noisy.targets.keep[row] == np.float32(float(keep))
    assert noisy.labelling.count == len(noisy.targets) == 5


def test_raw_takes_the_last_report_and_unbiased_weighs_them() -> None:
    raw = as_of(30 * DAY, Correction.RAW).targets
    assert raw.values.tolist() == [*flips(1)[:3].tolist(), *flips(0)[3:5].tolist()]
    both = reports_of([Fraction(1, 2), Fraction(3, 2)], [Fraction(3, 5), Fraction(1)])
    weighed = as_of(30 * DAY, Correction.UNBIASED).targets
    expected = [
        both.unbiased_target((int(flips(0)[row]), int(flips(1)[row])), PLAN.base_rate) for row in range(3)
    ]
    assert weighed.keep is None
    assert weighed.values[:3].tolist() == [np.float32(float(target)) for target in expected]


def test_all_reports_are_paid_for_together_whenever_they_are_read() -> None:
    for now in (10 * DAY, 30 * DAY, 90 * DAY):
        release = as_of(now).release
        assert [leaf.release.words for leaf in leaves(release)] == [
            "randomized response on 2 classes, ε = 0.5 per label",
            "randomized response on 2 classes, ε = 1.5 per label",
        ]
        assert pure_epsilon(release, relation=LABEL) == pytest.approx(2)


def test_an_early_report_stays_what_it_was() -> None:
    early, late = as_of(25 * DAY), as_of(25 * DAY + 17)
    assert early.targets.values.tolist() == late.targets.values.tolist()
    quarter, half = Fraction(1, 4), Fraction(1, 2)
    arrived = (Fraction(3, 5), Fraction(4, 5), Fraction(1))
    longer = ReportingWindows((DAY, 7 * DAY, 30 * DAY), (quarter, quarter, half), arrived)
    replanned = as_of(DAY, Correction.RAW, windows=longer).targets.values
    assert (
        replanned.tolist() == as_of(DAY, Correction.RAW).targets.values.tolist()
    )  # the same delay and epsilon


def test_early_and_final_flips_are_unrelated() -> None:
    """Of one label at one epsilon: a shared draw would make both reports agree, and a change stand out."""
    plan = ReportingWindows((1, 2), (Fraction(1, 2), Fraction(1, 2)), (Fraction(1), Fraction(1)))
    response, count = RandomizedResponse.for_epsilon(1), 20_000
    reads = [
        flip_labels(np.ones(count, int), np.arange(count), key, response, SECRET)
        for key in (plan.key(KEY, 0), plan.key(KEY, 1), KEY)
    ]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        both = int(((reads[one] == 0) & (reads[other] == 0)).sum())
        assert_matches_pmf(
            {True: both, False: count - both}, {True: response.lie**2, False: 1 - response.lie**2}
        )


@pytest.mark.parametrize("split", list(Split))
def test_units_share_each_reports_epsilon(split: Split) -> None:
    users = {"user": np.array([1, 1, 1, 2, 2, 3]), "time": np.zeros(6, int)}
    unit = Unit(UnitKind.USER, Window.days(1))
    noisy = targets_as_of(
        examples_of(FINAL, users), PLAN, DELAYS, unit, Cap(2, split=split), 2,
        key=KEY, secret=SECRET, now=31 * DAY, correction=Correction.RAW,
    )  # fmt: skip
    assert noisy.targets.rows is not None
    assert noisy.targets.rows.tolist() == [0, 1, 3, 4, 5]
    divisors = [2, 2, 2, 2, 1] if split is Split.BY_COUNT else [2] * 5
    expected = [int(flips(1, divisor)[row]) for row, divisor in zip([0, 1, 3, 4, 5], divisors, strict=True)]
    assert noisy.targets.values.tolist() == expected
    assert pure_epsilon(noisy.release, relation=LABEL) == pytest.approx(2)


def test_one_final_window_says_what_plain_flips_say() -> None:
    """The whole epsilon at the end: the same law as without windows, and nothing else."""
    count = 30_000
    labels = (np.arange(count) % 7 == 0).astype(int)
    examples = examples_of(labels, {"time": np.zeros(count, int)})
    plan = ReportingWindows((DAY,), (Fraction(1),), (Fraction(1),))
    windowed = targets_as_of(
        examples, plan, np.where(labels, 5, -1), IMPRESSION, Cap(1), 1, key=KEY, secret=SECRET, now=DAY
    )
    plain = noisy_targets(examples, FlipLabels(), IMPRESSION, Cap(1), 1, key=KEY, secret=SECRET)
    assert windowed.targets.keep is not None
    assert plain.targets.keep is not None
    assert set(windowed.targets.keep.tolist()) == set(plain.targets.keep.tolist())
    truth = RandomizedResponse.for_epsilon(1).truth
    for noisy in (windowed, plain):
        right = int((noisy.targets.values == labels).sum())
        assert_matches_pmf({True: right, False: count - right}, {True: truth, False: 1 - truth})


def test_base_rates_of_mixed_reports_come_close() -> None:
    """The moment estimate, which takes the keep probability as free of the report, is far off here."""
    count = 60_000
    draws = np.random.default_rng(3)
    converted = draws.random(count) < 0.1
    seconds = np.where(converted, np.where(draws.random(count) < 0.6, 5, 2 * DAY), -1)
    time = np.where(np.arange(count) % 2, 0, 20 * DAY)
    noisy = targets_as_of(
        examples_of(converted.astype(int), {"time": time}), PLAN, seconds, IMPRESSION, Cap(1), 6,
        key=KEY, secret=SECRET, now=30 * DAY,
    )  # fmt: skip
    # Half the labels have one report at epsilon 4.5: a standard deviation of about .31 / sqrt(30,000) = .0018.
    assert noisy.base_rate == pytest.approx(0.1, abs=7 * 0.0018)
    assert abs(noisy.targets.mean - 0.1) > 0.02


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"now": 0}, "expected at least one closed reporting window at now=0"),
        ({"now": -(10**30)}, "expected the time of reports as seconds of 62 bits"),
        ({"seconds_to_conversion": DELAYS[:3]}, "expected seconds to conversion of 6 examples"),
        ({"seconds_to_conversion": DELAYS + 0.5}, "expected whole seconds to conversion"),
        ({"epsilon": Fraction(1, 500)}, "expected epsilon >= 0.001 for each label"),
        ({"correction": Correction.POSTERIOR}, "got posterior"),
        ({"unit": Unit(UnitKind.IMPRESSION, Window.days(30)), "now": 29 * DAY}, "expected only closed windows"),
    ],
)
def test_bad_calls_are_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        as_of(**{"now": 30 * DAY, **changed})  # type: ignore[arg-type]


def test_a_private_time_is_refused() -> None:
    examples = examples_of(FINAL, {"time": TIMES}, public=PUBLIC - {"time"})
    with pytest.raises(BadInput, match="expected a public column 'time'"):
        targets_as_of(examples, PLAN, DELAYS, IMPRESSION, Cap(1), 1, key=KEY, secret=SECRET, now=DAY)


@pytest.mark.parametrize(
    ("delays", "shares", "arrived", "message"),
    [
        ((), (), (), "expected 1..8 delays"),
        ((2, 1), ("1/2", "1/2"), ("1/2", 1), "each longer than the last"),
        ((1, 2), ("1/2", "3/4"), ("1/2", 1), "sum to 1, got 1/2, 3/4"),
        ((1, 2), ("1/2", "1/4"), ("1/2", 1), "sum to 1, got 1/2, 1/4"),
        ((1, 2), ("1/2",), ("1/2", 1), "expected 2 shares of epsilon"),
        ((1, 2), ("1/2", "1/2"), ("1/2", "3/4"), "that rise to 1"),
        ((1, 2), ("1/2", "1/2"), (0, 1), "expected arrived in"),
        ((1, 2), (0, 1), ("1/2", 1), "expected share of epsilon > 0"),
        ((1, 2), ("1/2", "1/2"), ("1e-7", 1), "expected arrived shares of at least 1/1000000"),
        ((1, 10**40), ("1/2", "1/2"), ("1/2", 1), "expected delays of at most 3153600000 seconds"),
    ],
)
def test_bad_plans_are_refused(
    delays: tuple[int, ...], shares: tuple[object, ...], arrived: tuple[object, ...], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        ReportingWindows(delays, shares, arrived)  # type: ignore[arg-type]


def test_keys_differ_by_delay() -> None:
    assert PLAN.key(KEY, 0) != PLAN.key(KEY, 1)
    assert PLAN.key(KEY, 0) == FlipKey("conversions, 86400 seconds after the impression", 3)
