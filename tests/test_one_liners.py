"""The front door's one-liners: epsilon of a schedule, noise for an epsilon, a private choice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate, pairwise, permutations, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.deliver.protocol.factor_laws import Spread
from tacit.deliver.protocol.plans import plan_choice
from tacit.entropy import Simulation
from tacit.errors import BadInput, RelationMismatch, UnknownRelease
from tacit.privacy.audit.case import empirical_epsilon, exact_epsilon
from tacit.privacy.mechanisms.randomized_response import WHOLE, RandomizedResponse
from tacit.privacy.releases import Grouped, SubsampledGaussian
from tacit.privacy.units import Relation, Unit, UnitKind, Window
from tests.support.exact_tests import ALPHA, assert_matches_pmf

SCHEDULE: dict[str, Any] = {"sampling_probability": 0.02, "steps": 50, "delta": 1e-6}


def test_a_schedule_is_its_release() -> None:
    release = SubsampledGaussian(1.1, 0.02, 50)
    for relation in ("add-remove", "replace-one", "zero-out"):
        by_release = tacit.epsilon(release, delta=1e-6, relation=Relation(relation))
        assert tacit.epsilon(noise_multiplier=1.1, **SCHEDULE, relation=relation) == by_release
    assert tacit.epsilon(noise_multiplier=1.1, **SCHEDULE) == tacit.epsilon(release, delta=1e-6)
    grouped = tacit.epsilon(Grouped(release, 3), delta=1e-6, relation="add-remove")
    user: dict[str, Any] = {"unit": "user", "records": 3, "relation": "add-remove"}
    assert tacit.epsilon(noise_multiplier=1.1, **SCHEDULE, **user) == grouped
    assert tacit.epsilon(release, delta=1e-6, **user) == grouped


def test_one_noisy_sum_is_the_gaussian_mechanism() -> None:
    """Balle, Wang 2018: delta of a shift by 2 under replace-one, in closed form."""

    def delta_of(epsilon: float, shift: float) -> float:
        def below(x: float) -> float:
            return math.erfc(-x / math.sqrt(2)) / 2

        return below(shift / 2 - epsilon / shift) - math.exp(epsilon) * below(-shift / 2 - epsilon / shift)

    for relation, shift in (("add-remove", 1.0), ("replace-one", 2.0)):
        found = tacit.epsilon(noise_multiplier=4.0, delta=1e-5, relation=relation)
        assert delta_of(found, shift / 4.0) <= 1e-5 <= delta_of(found * 0.998, shift / 4.0)


@pytest.mark.parametrize("asked", [{}, {"relation": "add-remove", "unit": "user", "records": 2}])
def test_noise_keeps_the_epsilon_that_it_was_asked_for(asked: dict[str, Any]) -> None:
    noise = tacit.noise_multiplier(epsilon=2, **SCHEDULE, **asked)
    assert 2 * 0.995 <= tacit.epsilon(noise_multiplier=noise, **SCHEDULE, **asked) <= 2
    assert tacit.epsilon(noise_multiplier=noise * 0.99, **SCHEDULE, **asked) > 2


def test_a_unit_in_words_is_the_unit() -> None:
    assert Unit.of("user-advertiser per 7 days at example-exchange") == Unit(
        UnitKind.USER_ADVERTISER, Window.days(7), "example-exchange"
    )
    for unit in (Unit(UnitKind.USER), Unit(UnitKind.DEVICE, Window(3600)), Unit(UnitKind.USER, None, "a b")):
        assert Unit.of(str(unit)) == Unit.of(unit) == unit


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"relation": "replace-on"}, "expected relation .*'replace-on': did you mean 'replace-one'?"),
        ({"unit": "usr"}, "expected unit to be one of .*'usr': did you mean 'user'?"),
        ({"unit": "user"}, "expected records, how many records one user has at most"),
        ({"unit": "user", "records": 0}, "expected records to be a whole number >= 1, got 0"),
        ({"records": 2}, "expected records=1 for an impression"),
        ({"unit": None}, "expected unit to be one of"),
        ({"delta": "x"}, "expected delta to be a finite number, got 'x'"),
        ({"steps": 1.5}, "expected steps to be a whole number"),
        ({"sampling_probability": 2}, r"expected sampling_probability in \(0, 1\]"),
    ],
)
@pytest.mark.parametrize(
    "ask",
    [lambda **a: tacit.epsilon(noise_multiplier=1.0, **a), lambda **a: tacit.noise_multiplier(epsilon=1, **a)],
)
def test_other_words_are_refused(ask: Callable[..., float], asked: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        ask(**{**SCHEDULE, **asked})


def test_an_epsilon_that_promises_nothing_and_one_that_is_text_are_refused() -> None:
    for epsilon, told in ((1e5, "expected epsilon <= 1000, got 100000"), ("2", "got the text '2'")):
        with pytest.raises(BadInput, match=told):
            tacit.noise_multiplier(epsilon=epsilon, **SCHEDULE)
    with pytest.raises(BadInput, match="expected noise_multiplier to be a number, got the text '1'"):
        tacit.epsilon(noise_multiplier="1", **SCHEDULE)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="expected epsilon to be a number, got the text '3'"):
        tacit.choose(PUBLIC, PUBLIC, epsilon="3")  # type: ignore[arg-type]


def test_a_release_or_a_schedule() -> None:
    release = SubsampledGaussian(1.1, 0.02, 50)
    wrongs: list[dict[str, Any]] = [{"noise_multiplier": 1.1}, {"steps": 50}]
    for wrong in wrongs:
        with pytest.raises(BadInput, match="expected"):
            tacit.epsilon(release, delta=1e-6, **wrong)
    with pytest.raises(BadInput, match="got both or neither"):
        tacit.epsilon(delta=1e-6)
    with pytest.raises(RelationMismatch):
        tacit.epsilon(RandomizedResponse.for_epsilon(1).release, delta=1e-6, relation="add-remove")
    with pytest.raises(UnknownRelease, match="clip per unit"):
        tacit.epsilon(release, delta=1e-6, unit="user", records=2)


PUBLIC = (2.4, 3.0, 0.3, 2.5)  # in no order


def words_of(*words: int) -> Any:
    return SimpleNamespace(words=lambda n: np.array(words[:n], dtype=np.uint64))


def law_of(private: tuple[float, ...], epsilon: float) -> tuple[Fraction, ...]:
    """The chance of each index, exactly, read off the function: all words of a block must choose alike."""
    order = sorted(range(len(PUBLIC)), key=lambda i: -PUBLIC[i])
    plan = plan_choice([PUBLIC[i] for i in order], Spread(), epsilon)
    chances = [Fraction(0)] * len(PUBLIC)
    for low, high in pairwise([0, *accumulate(w for w in plan.law.weights([private[i] for i in order]) if w)]):
        said = {tacit.choose(PUBLIC, private, epsilon, source=words_of(at)) for at in (low, high - 1)}
        (index,) = said
        chances[index] += Fraction(high - low, WHOLE)
    return tuple(chances)


@pytest.mark.parametrize("epsilon", [0.5, 2, 3])
def test_the_choice_keeps_its_epsilon_exactly(epsilon: float) -> None:
    inputs = [*permutations((0.0, 1.0, 2.0, 9.0)), *product((0.0, 1.0), repeat=4)]
    rows = sorted({law_of(scores, epsilon) for scores in inputs})
    assert all(sum(row) == 1 for row in rows)
    if epsilon == 0.5:
        assert rows == [tuple(map(Fraction, (0, 1, 0, 0)))], "too little to win anything: the public best"
        return
    assert exact_epsilon(rows) <= epsilon
    if epsilon == 3:
        assert exact_epsilon(rows) == pytest.approx(3), "else nothing private was used"
        assert law_of((9.0, 1.0, 1.0, 1.0), 3)[0] == max(law_of((9.0, 1.0, 1.0, 1.0), 3))


def test_rows_are_chosen_by_the_same_law_each_for_itself() -> None:
    trials, private = 4000, (9.0, 1.0, 1.0, 2.0)
    chosen = tacit.choose([PUBLIC] * trials, [private] * trials, 3, random_state=7)
    assert isinstance(chosen, np.ndarray)
    pmf = {index: chance for index, chance in enumerate(law_of(private, 3)) if chance}
    assert_matches_pmf(Counter(chosen.tolist()), pmf)
    mixed = np.array([PUBLIC, PUBLIC[::-1]] * 50)
    rivals = tacit.choose(mixed, np.array([private, private[::-1]] * 50), 30, random_state=1)
    assert rivals.tolist() == [0, 3] * 50


def audited_epsilon(epsilon: float, trials: int = 20_000) -> float:
    """What it must at least have spent: the first ad is chosen by its best scores, and by its worst."""
    source = Simulation(f"audit {epsilon}")
    best, worst = (
        tacit.choose([PUBLIC] * trials, [scores] * trials, epsilon, source=source)
        for scores in ((9.0, 1.0, 1.0, 1.0), (0.0, 1.0, 1.0, 9.0))
    )
    hits, neighbour_hits = (int((chosen == 0).sum()) for chosen in (best, worst))
    return empirical_epsilon(hits, neighbour_hits, trials, delta=0.0, alpha=ALPHA)


def test_an_audit_believes_the_choice_and_catches_one_that_spends_more() -> None:
    assert 1.5 < audited_epsilon(2) <= 2
    assert audited_epsilon(2.6) > 2


def test_one_request_has_an_int_by_any_numbers() -> None:
    chosen = tacit.choose([5, 1], [1, 2], random_state=0)
    assert type(chosen) is int
    assert tacit.choose([1.0], [0.5]) == 0
    assert tacit.choose(np.array([0, 0]), np.array([0, 0])) in (0, 1)
    assert tacit.choose(np.array([3.0, 2.9]), (1, 2)) in (0, 1)


@pytest.mark.parametrize(
    ("public", "private", "more", "told"),
    [
        ([1, math.nan], [1, 2], {}, "finite public scores"),
        ([1, 2], [1, math.nan], {}, "finite private scores"),
        ([1, 2], [1, 2, 3], {}, r"shape \(2,\), got \(3,\)"),
        ([], [], {}, "public scores, numbers of one request"),
        ([[1, 2], [1]], [[1, 2], [1, 2]], {}, "public scores"),
        ([1, -1], [1, 2], {}, "public scores >= 0"),
        (["a", "b"], [1, 2], {}, "public scores, numbers"),
        (None, [1, 2], {}, "public scores, numbers"),
        ([1, 2], object(), {}, "private scores, numbers"),
        ([1, 2], [1, 2], {"epsilon": "2"}, "epsilon to be a number, got the text '2'"),
        ([1, 2], [1, 2], {"epsilon": 0}, "epsilon > 0"),
        ([1, 2], [1, 2], {"epsilon": None}, "epsilon to be a number"),
        ([1, 2], [1, 2], {"random_state": "x"}, "random_state to be a whole number"),
        ([1, 2], [1, 2], {"random_state": 1, "source": Simulation("x")}, "got both"),
    ],
)
def test_other_scores_are_refused(public: Any, private: Any, more: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        tacit.choose(public, private, **more)
