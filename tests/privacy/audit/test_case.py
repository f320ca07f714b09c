"""The auditor is audited: exact bounds by a slow definition, empirical ones for their false alarm rate."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

import tacit.entropy
from tacit import audit
from tacit.cleanroom import audit as rooms
from tacit.cli import main
from tacit.commands.audit import _bound_words
from tacit.entropy import Simulation
from tacit.errors import BadInput, SelfCheckFailed
from tacit.gather.protocol.noise import ServerNoise
from tacit.kernels.normals import fill_normals
from tacit.privacy.audit import catalogue
from tacit.privacy.audit.case import (
    FALSE_ALARM,
    WHOLE,
    AuditCase,
    AuditDraws,
    discrete_law,
    empirical_case,
    empirical_epsilon,
    exact_epsilon,
    gaussian_law,
    noise_share_bound,
)
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.noise.distributions import DiscreteGaussian, DiscreteLaplace
from tacit.privacy.noise.exact_sampler import SymmetricLaw
from tacit.privacy.randomness import Source
from tacit.privacy.units import Relation
from tacit.train import audit as training
from tacit.train.sgd.draws import BLOCK, TrainingNoise, poisson_sample
from tests.support.exact_tests import ALPHA


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


IN_ROOMS = rooms.__name__  # `tests/cleanroom/test_audit.py` has its cases, with draws enough for them
CASES = [case for name in audit.CATALOGUES if name != IN_ROOMS for case in import_module(name).cases()]


FEWER = 60_000  # draws than the command takes: enough for all that must be caught


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_claim_holds_and_a_tenth_less_noise_is_caught(case: AuditCase) -> None:
    verdict = case.verdict(Simulation(f"audit {case.name}"), FEWER)
    assert verdict.is_kept, f"claimed {case.claimed}, found {verdict.bound}"
    assert verdict.twin_caught, f"claimed {case.claimed}, the twin's bound is {verdict.twin_bound}"
    assert verdict.sees, f"claimed {case.claimed}, caught at {verdict.caught_at} with {verdict.weak_bound}"


def named(name: str) -> AuditCase:
    found: list[AuditCase] = [case for case in CASES if name in case.name]
    assert len(found) == 1
    return found[0]


def test_half_of_a_proxys_variance_is_found_by_the_honest_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken in the proxy itself, which nobody told the audit: it looks as it always does."""
    case = named("noise by servers")
    for variance, found in ((4, False), (Fraction(81, 100) * 4, True), (2, True)):
        law = DiscreteGaussian(Fraction(variance))
        monkeypatch.setattr(ServerNoise, "server_law", lambda _self, _answered, law=law: law)
        bound = case.look(WHOLE, FEWER, Simulation("proxy"))
        assert (bound > case.claimed) == found


@pytest.mark.parametrize("form", ["lazy", "dense"])
def test_a_quiet_kernel_is_found_by_the_honest_case(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fiftieth too little in the normals themselves, which so short a run does not see of itself."""

    def quiet(out: Any, key: bytes, scale: float, **how: Any) -> None:
        fill_normals(out, key, 0.98 * scale, **how)

    case = named(f"DP-SGD, 3 steps, {form}")
    assert case.look(WHOLE, FEWER, Simulation("kernel")) <= case.claimed
    monkeypatch.setattr(tacit.entropy, "fill_normals", quiet)
    bound = case.look(WHOLE, FEWER, Simulation("kernel"))
    assert case.claimed < bound < math.inf


WORLDS = BLOCK // training.FIELDS  # whose rows get their noise in one draw


def drawn_otherwise(monkeypatch: pytest.MonkeyPatch, other: Callable[[Any], Any]) -> None:
    """All noise of training is `other` of what was drawn, wherever it is drawn."""
    draw_unit = TrainingNoise.draw_unit

    def add_to(self: TrainingNoise, array: Any, factor: float = 1.0) -> None:
        array += np.float32(self.stddev * factor) * other(self._source.normal(len(array)))

    monkeypatch.setattr(TrainingNoise, "draw_unit", lambda self, count: other(draw_unit(self, count)))
    monkeypatch.setattr(TrainingNoise, "add_to", add_to)


@pytest.mark.parametrize("form", ["lazy noise", "dense noise", "with momentum", "by Adam"])
def test_a_tenth_less_noise_along_the_gradient_is_found_by_the_honest_case(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where all rows of a world move alike, as its gradient moves them: all else is as it should be."""
    case, left = named(f"DP-SGD, 3 steps, {form}"), 1.0

    def weaker(drawn: Any) -> Any:
        whole = drawn[: len(drawn) // training.FIELDS * training.FIELDS].reshape(-1, training.FIELDS)
        whole -= np.float32(1 - left) * whole.mean(axis=1, keepdims=True)
        return drawn

    drawn_otherwise(monkeypatch, weaker)
    assert case.look(WHOLE, WORLDS, Simulation("along")) <= case.claimed
    left = 0.9
    assert case.claimed < case.look(WHOLE, WORLDS, Simulation("along")) < math.inf


@pytest.mark.parametrize("sampled", [True, False])
def test_less_noise_for_the_sampled_alone_or_for_the_others_is_found(
    sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth less along the gradient, for those who are in a step or for those who are not."""
    case, honest, factors = named("DP-SGD, 3 steps, dense"), poisson_sample, np.ones(WORLDS, np.float32)

    def sample(*how: Any) -> Any:
        chosen = honest(*how)
        factors[:] = 1.0 if sampled else 0.9
        factors[chosen] = 0.9 if sampled else 1.0
        return chosen

    def weaker(drawn: Any) -> Any:
        if len(drawn) == WORLDS * training.FIELDS:
            rows = drawn.reshape(WORLDS, -1)
            rows += ((factors - 1) * rows.mean(axis=1))[:, None]
        return drawn

    drawn_otherwise(monkeypatch, weaker)
    assert case.look(WHOLE, WORLDS, Simulation("sampled")) <= case.claimed
    monkeypatch.setattr(training, "poisson_sample", sample)
    assert case.look(WHOLE, WORLDS, Simulation("sampled")) > case.claimed


@pytest.mark.parametrize("steps", [(0, 1), (1, 2), (0, 2)])
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("form", "along"), [("lazy", True), ("dense", True), ("dense", False)])
def test_noise_that_a_later_step_takes_back_or_repeats_is_found_by_the_honest_case(
    steps: tuple[int, int], sign: int, form: str, along: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fifth of a later step's noise is that of an earlier one, along the gradient or only across it. Each
    step's own noise is as it should be; who adds or subtracts the two sees the gradients through less of it."""
    case, part = named(f"DP-SGD, 3 steps, {form}"), 0.2
    drawn: list[Any] = []

    def again(fresh: Any) -> Any:
        if len(fresh) == BLOCK:  # all rows of all worlds: lazy noise is drawn for those who are read, too
            drawn.append(fresh.copy())
            step = (len(drawn) - 1) % training.STEPS
            if step == steps[1]:
                earlier = drawn[len(drawn) - 1 - step + steps[0]]
                mixed = sign * part * earlier + math.sqrt(1 - part**2) * fresh
                change = (mixed - fresh).reshape(WORLDS, -1)
                alike = np.repeat(change.mean(axis=1), training.FIELDS)
                fresh += alike if along else change.ravel() - alike
        return fresh

    drawn_otherwise(monkeypatch, again)
    assert case.look(WHOLE, WORLDS, Simulation("steps")) > case.claimed


@pytest.mark.parametrize("name", ["discrete Laplace on a count", "discrete Gaussian on a count"])
def test_a_quiet_sampler_is_found_by_the_honest_case(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, honest = named(name), SymmetricLaw.sample_array

    def quiet(self: SymmetricLaw, n: int, words: Any) -> Any:
        """A tenth of what it draws comes out as 0."""
        drawn = honest(self, n, words)
        return np.where(words(n) < np.uint64(2**64 // 10), 0, drawn)

    assert case.look(WHOLE, FEWER, Simulation("sampler")) <= case.claimed
    monkeypatch.setattr(SymmetricLaw, "sample_array", quiet)
    assert case.look(WHOLE, FEWER, Simulation("sampler")) > case.claimed


def test_a_mechanism_that_stops_itself_keeps_no_claim() -> None:
    def stop(*_: object) -> float:
        raise SelfCheckFailed("noise: expected noise, got none")

    verdict = replace(CASES[0], look=stop).verdict(Simulation(1))
    assert verdict.bound == math.inf
    assert not verdict.is_kept


@pytest.mark.parametrize("alpha", [0.2, 0.02])
def test_a_share_of_noise_is_too_small_as_rarely_as_stated_exactly(alpha: float) -> None:
    """Summed over every count of 60 draws that reach their bound with a chance of .3."""

    def chance(share: Fraction) -> float:
        return 0.3 * float(share)

    draws = 60
    alarm = sum(
        float(binom.pmf(reached, draws, 0.3))
        for reached in range(draws + 1)
        if noise_share_bound(reached, draws, chance, alpha=alpha) < 1
    )
    assert 0 < alarm <= alpha
    assert noise_share_bound(draws, draws, chance, alpha=alpha) == 2
    with pytest.raises(BadInput, match=r"within 0\.\.60"):
        noise_share_bound(61, draws, chance, alpha=alpha)


def test_laws_say_how_often_noise_reaches() -> None:
    """Against draws: Gaussian, discrete and flips; shares are of the noise, not of its variance."""
    source, trials = Simulation("laws"), 20_000

    def none(_: Fraction) -> float:
        return 0.0

    for share in (WHOLE, Fraction(1, 2)):
        gaussian = gaussian_law(3.0, none)
        laplace = discrete_law(lambda share: DiscreteLaplace(5 * share), none)
        drawn = DiscreteLaplace(5 * share).sample_array(trials, source.words)
        for law, noise in ((gaussian, 3.0 * float(share) * source.normal(trials)), (laplace, drawn)):
            reached = int(np.count_nonzero(np.abs(noise) >= law.reach))
            assert binomtest(reached, trials, law.chance(share)).pvalue > ALPHA
            assert binomtest(reached, trials, law.chance(share * Fraction(8, 10))).pvalue < ALPHA


def test_a_case_sees_as_little_as_the_weakest_of_its_looks() -> None:
    """Two looks at noise, of which the second does not feel that there is less; and any look accuses."""

    def case(first: float, second: float, *, felt: bool = False) -> AuditCase:
        def draws(share: Fraction, _neighbour: bool, trials: int, source: Source) -> AuditDraws:
            told, left = np.zeros(trials, np.bool_), float(share)
            noise = first * left * source.normal(trials)
            return AuditDraws(told, noise, (second * (left if felt else 1.0) * source.normal(trials),))

        law = gaussian_law(1.0, lambda share: float(1 / share))
        return empirical_case("two looks", Relation.REPLACE_ONE, 1.0, draws=draws, law=law, delta=0.05)

    both, one = (case(1.0, 1.0, felt=felt).verdict(Simulation("looks"), FEWER) for felt in (True, False))
    assert both.holds
    assert one.is_kept
    assert one.caught_at is None
    assert not one.holds
    for weak in (case(0.9, 1.0), case(1.0, 0.9)):
        assert not weak.verdict(Simulation("looks"), FEWER).is_kept


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
    keys = {"name", "value", "bar", "method", "caught_at"}
    assert all(record["holds"] and keys <= record.keys() for record in records)
    assert [record["caught_at"] for record in records] == [0.99] * 4


@pytest.mark.parametrize("fault", ["VIOLATED", "twin missed", "less noise missed"])
def test_the_command_fails_on_a_violation_and_where_it_cannot_see(
    fault: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = named("epsilon/K each")
    twin = case.twin
    assert twin is not None
    faults = {
        "VIOLATED": replace(case, look=lambda _share, trials, source: twin(trials, source)),
        "twin missed": replace(case, twin=lambda trials, source: case.look(WHOLE, trials, source)),
        "less noise missed": replace(
            case, look=lambda share, trials, source: case.look(max(share, Fraction(1)), trials, source)
        ),
    }
    monkeypatch.setattr(catalogue, "cases", lambda: [faults[fault]])
    monkeypatch.setattr(audit, "CATALOGUES", audit.CATALOGUES[:1])
    assert main(["audit"]) == 1
    out = capsys.readouterr().out
    assert fault in out
    assert "1 of 1 failed" in out


def test_the_table_says_what_is_caught(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "cases", lambda: CASES[:2])
    monkeypatch.setattr(audit, "CATALOGUES", audit.CATALOGUES[:1])
    assert main(["audit"]) == 0
    out = capsys.readouterr().out
    assert "caught at" in out
    assert "all 2 claims hold, and each is caught with 0.99 of its noise or less" in out


def test_more_draws_come_closer() -> None:
    """At epsilon 1 the bound of 200,000 honest draws lies within .05; the false alarm rate is what it says."""
    assert FALSE_ALARM == 1e-9
    response = RandomizedResponse.for_epsilon(1)
    hits = round(200_000 * float(response.truth))
    assert 0.95 < empirical_epsilon(hits, 200_000 - hits, 200_000, delta=0, alpha=FALSE_ALARM) < 1


def test_a_bound_that_tells_nothing_is_shown_as_nothing() -> None:
    assert [_bound_words(bound) for bound in (-math.inf, -4.3425, 1.0986)] == ["0.0000", "0.0000", "1.0986"]
