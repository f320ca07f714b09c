"""Shuffling: how long each bound takes as the cohort grows, and its figures beside an earlier computation."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

from tacit.privacy import shuffling
from tacit.privacy.releases import ShuffledChoice
from tacit.privacy.shuffling.mechanism import Rows
from tacit_lab.bench.measurement import Measurement, SuiteProgress, interleaved_seconds

LOCAL_EPSILON, DELTA, CHOICES = Fraction(5), 1e-6, 15
COHORTS = (10**4, 10**5, 10**6)
# Computed independently before this code was written, by direct summation of the same pair.
REFERENCE_EPSILON = {10**4: 0.742, 10**5: 0.206, 10**6: 0.060}
REFERENCE_COHORT = {2: 207, 3: 740, 4: 2220, 5: 6240, 6: 17120}


def response(choices: int, odds: int) -> Rows:
    """k-ary randomized response, with whole odds."""
    whole = odds + choices - 1
    return tuple(tuple(Fraction(odds if x == y else 1, whole) for y in range(choices)) for x in range(choices))


def run(progress: SuiteProgress) -> list[Measurement]:
    known = response(CHOICES, 148)  # 148 < e^5
    measured: list[Measurement] = []
    seconds: dict[tuple[str, int], float] = {}
    for cohort in progress([*COHORTS, 2 * COHORTS[-1]], "shuffling bounds"):
        contestants: dict[str, Callable[[], object]] = {
            "clones": partial(shuffling.epsilon, ShuffledChoice(LOCAL_EPSILON, cohort), DELTA),
            "blanket": partial(shuffling.epsilon, ShuffledChoice(LOCAL_EPSILON, cohort, known), DELTA),
        }
        for name, taken in interleaved_seconds(contestants, rounds=3).items():
            seconds[name, cohort] = taken
            if cohort in COHORTS:
                measured.append(
                    Measurement(
                        f"shuffling_{name}_n{cohort}_seconds",
                        taken,
                        "s",
                        1.0,
                        at_least=False,
                        settings=f"n={cohort:,}",
                    )
                )
    for name in ("clones", "blanket"):
        growth = seconds[name, 2 * COHORTS[-1]] / seconds[name, COHORTS[-1]]
        settings = f"n={COHORTS[-1]:,} to {2 * COHORTS[-1]:,}"
        measured.append(Measurement(f"shuffling_{name}_worst_doubling", growth, "x", 2.5, False, settings))
    return measured + _figures(progress, known)


def _figures(progress: SuiteProgress, known: Rows) -> list[Measurement]:
    """Ours over the reference figure: at most 1.02; and what knowing the mechanism saves."""
    measured = []
    for cohort in progress(COHORTS, "shuffling figures"):
        ours = shuffling.epsilon(ShuffledChoice(LOCAL_EPSILON, cohort), DELTA)
        informed = shuffling.epsilon(ShuffledChoice(LOCAL_EPSILON, cohort, known), DELTA)
        settings = f"n={cohort:,}, local epsilon 5, delta 1e-6"
        ratio = ours / REFERENCE_EPSILON[cohort]
        measured.append(
            Measurement(f"shuffling_epsilon_n{cohort}_vs_reference", ratio, "x", 1.02, False, settings)
        )
        settings += f", {CHOICES}-ary response"
        name = f"shuffling_blanket_over_clones_n{cohort}"
        measured.append(Measurement(name, informed / ours, "x", 1.0, False, settings))
    for local, reference in progress(list(REFERENCE_COHORT.items()), "shuffling cohorts"):
        ratio = shuffling.cohort_needed(1, DELTA, local_epsilon=local) / reference
        settings = f"local epsilon {local}, central epsilon 1, delta 1e-6"
        measured.append(
            Measurement(f"shuffling_cohort_epsilon{local}_vs_reference", ratio, "x", 1.02, False, settings)
        )
    return measured
