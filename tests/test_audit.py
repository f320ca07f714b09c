"""The auditor is audited: exact bounds by a slow definition, empirical ones for their false alarm rate."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from tacit.cleanroom import audit as rooms
from tacit.cli import main
from tacit.commands import audit
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.audit import catalogue
from tacit.privacy.audit.bounds import empirical_epsilon, exact_epsilon
from tacit.privacy.audit.case import FALSE_ALARM, Case
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse


def normalised(row: list[int]) -> list[Fraction]:
    return [Fraction(weight, sum(row)) for weight in row]


def two_rows(outputs: int) -> st.SearchStrategy[tuple[list[int], list[int]]]:
    row = st.lists(st.integers(1, 50), min_size=outputs, max_size=outputs)
    return st.tuples(row, row)


@given(st.integers(2, 5).flatmap(two_rows), st.fractions(0, Fraction(1, 2)))
def test_exact_epsilon_is_the_least_that_keeps_delta(
    rows: tuple[list[int], list[int]], delta: Fraction
) -> None:
    one, other = map(normalised, rows)

    def delta_at(epsilon: float) -> float:
        grow = math.exp(epsilon)
        return max(
            sum(max(0.0, float(p) - grow * float(q)) for p, q in zip(a, b, strict=True))
            for a, b in ((one, other), (other, one))
        )

    found = exact_epsilon([one, other], delta)
    assert delta_at(found + 1e-9) <= float(delta) + 1e-12
    if found > 1e-6:
        assert delta_at(found - 1e-6) > float(delta) - 1e-12


def test_an_output_that_only_one_side_has_is_infinite_unless_delta_covers_it() -> None:
    rows = [[Fraction(1, 100), Fraction(99, 100)], [Fraction(0), Fraction(1)]]
    assert exact_epsilon(rows) == math.inf
    assert exact_epsilon(rows, Fraction(1, 100)) < 0.02


def test_bad_rows_and_counts_are_refused() -> None:
    with pytest.raises(BadInput, match="sum to 1"):
        exact_epsilon([[Fraction(1, 2)], [Fraction(1)]])
    with pytest.raises(BadInput, match="at least two rows"):
        exact_epsilon([[Fraction(1)]])
    with pytest.raises(BadInput, match=r"expected hits within 0\.\.10"):
        empirical_epsilon(11, 0, 10, delta=0, alpha=0.1)


@pytest.mark.parametrize("alpha", [0.2, 0.02])
@pytest.mark.parametrize("truth", [0.6, 0.75])
def test_false_alarms_are_as_rare_as_stated_exactly(alpha: float, truth: float) -> None:
    """Summed over every pair of counts of 40 trials: no simulation, so no luck."""
    trials = 40
    epsilon = math.log(truth / (1 - truth))
    chances = [(binom.pmf(k, trials, truth), binom.pmf(k, trials, 1 - truth)) for k in range(trials + 1)]
    alarm = sum(
        chances[a][0] * chances[b][1]
        for a in range(trials + 1)
        for b in range(trials + 1)
        if empirical_epsilon(a, b, trials, delta=0, alpha=alpha) > epsilon
    )
    assert alarm <= alpha


def test_a_one_sided_normal_shortcut_would_cry_wolf() -> None:
    """The twin: treating the counts as exact frequencies breaks the stated rate."""
    trials, truth = 40, 0.75
    epsilon = math.log(truth / (1 - truth))
    alarm = sum(
        binom.pmf(a, trials, truth) * binom.pmf(b, trials, 1 - truth)
        for a in range(1, trials + 1)
        for b in range(1, trials + 1)
        if math.log(a / b) > epsilon
    )
    assert alarm > 0.2


IN_ROOMS = rooms.__name__  # `test_cleanroom_audit` has its cases, with draws enough for them
CASES = [case for name in audit.CATALOGUES if name != IN_ROOMS for case in import_module(name).cases()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_claim_holds_and_every_twin_is_caught(case: Case) -> None:
    verdict = case.verdict(Simulation(f"audit {case.name}"))
    assert verdict.kept, f"claimed {case.claimed}, found {verdict.bound}"
    assert verdict.twin_caught, f"claimed {case.claimed}, the twin's bound is {verdict.twin_bound}"


def test_the_rooms_are_audited_too() -> None:
    assert IN_ROOMS in audit.CATALOGUES


def test_the_command_prints_records_and_succeeds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    some = CASES[:4]  # each case of all has its test above
    monkeypatch.setattr(catalogue, "cases", lambda: some)
    monkeypatch.setattr(audit, "CATALOGUES", audit.CATALOGUES[:1])
    assert main(["audit", "--json", "--seed", "1"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [record["name"] for record in records] == [case.name for case in some]
    assert all(record["holds"] and {"name", "value", "bar", "method"} <= record.keys() for record in records)


@pytest.mark.parametrize("fault", ["violated", "twin missed"])
def test_the_command_fails_on_a_violation_and_on_a_missed_twin(
    fault: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[0]
    broken = replace(case, bound=case.twin) if fault == "violated" else replace(case, twin=case.bound)
    monkeypatch.setattr(catalogue, "cases", lambda: [broken])
    monkeypatch.setattr(audit, "CATALOGUES", audit.CATALOGUES[:1])
    assert main(["audit"]) == 1
    out = capsys.readouterr().out
    assert ("VIOLATED" if fault == "violated" else "twin missed") in out
    assert "1 of 1 failed" in out


def test_more_draws_come_closer() -> None:
    """At epsilon 1 the bound of 200,000 honest draws lies within .05; the false alarm rate is what it says."""
    assert FALSE_ALARM == 1e-9
    response = RandomizedResponse.for_epsilon(1)
    hits = round(200_000 * float(response.truth))
    assert 0.95 < empirical_epsilon(hits, 200_000 - hits, 200_000, delta=0, alpha=FALSE_ALARM) < 1


def test_a_bound_that_tells_nothing_is_shown_as_nothing() -> None:
    assert [audit._shown(bound) for bound in (-math.inf, -4.3425, 1.0986)] == ["0.0000", "0.0000", "1.0986"]
