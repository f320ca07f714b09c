"""Priors beyond independent factors, and every kind as it stands in a menu."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.deliver.protocol.factor_laws import (
    SCENARIOS,
    FewLiked,
    HeavyTails,
    ObservedRatios,
    SomeKnown,
    Spread,
)
from tacit.deliver.protocol.menu import Menu
from tacit.deliver.protocol.prices import SecondPrice
from tacit.deliver.protocol.priors import (
    ContextRatios,
    Favourite,
    LearntPrior,
    Mixture,
    ScorePrior,
    check_prior,
    prior_as_json,
    read_prior,
)
from tacit.errors import BadInput
from tacit.privacy.releases import LocalChoice
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit.schema.contexts.hierarchy import Node
from tacit.schema.impressions import NO_BIDDER
from tests.support.repository import VECTORS

PUBLIC = np.array([[8.0, 4.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0]])
STATEMENT = PrivacyStatement.of(
    [LocalChoice(Fraction(1))], unit=Unit(UnitKind.IMPRESSION), relation=Relation.REPLACE_ONE
)
MIXTURE = Mixture(((0.5, Spread()), (0.25, Favourite(0.2, 0.3)), (0.25, HeavyTails(0.5))))
KINDS: dict[str, ScorePrior] = {
    "spread": Spread(0.45),
    "spreads": Spread((0.1, 0.2, 0.4, 0.0)),
    "heavy tails": HeavyTails(0.35),
    "few liked": FewLiked(0.1, 30.0),
    "some known": SomeKnown(0.25, 1.2),
    "favourite": Favourite(0.35, 1.0),
    "ratios": ObservedRatios((0.5, 1.0, 3.5), "made up for a test"),
    "weighted ratios": ObservedRatios((0.5, 1.0, 3.5), STATEMENT, weights=(10.0, 30.5, 1.0)),
    "contexts": ContextRatios(((0.5, 1.0, 2.0, 1.0), (1.5, 1.0, 0.0, 1.0)), (0.25, 0.75)),
    "mixture": MIXTURE,
    "mixture of ratios": Mixture(((1.0, ObservedRatios((0.5, 2.0), "made up")), (1.0, Spread()))),
    "nested mixture": Mixture(((3.0, MIXTURE), (1.0, Spread((0.1, 0.2, 0.4, 0.0))))),
    "learnt": LearntPrior(MIXTURE, "sport", 1234.5),
}
each_kind = pytest.mark.parametrize("prior", KINDS.values(), ids=KINDS.keys())


@each_kind
@pytest.mark.parametrize("count", [SCENARIOS, 512, 64, 33])
def test_scores_have_a_shape_and_are_no_less_than_nothing(prior: ScorePrior, count: int) -> None:
    scores = prior.scores(PUBLIC, count)
    assert scores.shape == (4, 2, count)
    assert (scores >= 0).all()
    assert math.isfinite(prior.deviation(4))
    assert prior.deviation(4) >= 0
    assert str(prior).count("\n") == 0


@each_kind
def test_means_are_the_public_scores(prior: ScorePrior) -> None:
    if isinstance(prior, ContextRatios):
        return  # what was released has the means that it has
    found = prior.scores(PUBLIC).mean(axis=2).T
    # A favourite is drawn by strata of shares: one scenario of those who have one, of the sum of scores.
    np.testing.assert_allclose(found, PUBLIC, atol=0.005 * PUBLIC.sum(axis=1).max())


@given(
    st.lists(st.just(0.0) | st.floats(1e-6, 100.0), min_size=1, max_size=8).map(
        lambda scores: sorted(scores, reverse=True)
    ),
    st.floats(0.001, 1.0),
    st.floats(0.001, 1.0),
    st.sampled_from([SCENARIOS, 512, 64]),
)
def test_a_favourite_takes_its_part_of_all_and_the_others_keep_the_rest(
    public: list[float], share: float, strength: float, count: int
) -> None:
    known = np.array([public])
    scores = Favourite(share, strength).scores(known, count)[:, 0]
    total = known.sum()
    np.testing.assert_allclose(scores.sum(axis=0), total, rtol=1e-9, atol=1e-300)
    having = round(share * count)
    np.testing.assert_array_equal(scores[:, having:], np.repeat(known.T, count - having, axis=1))
    if not having or not total:
        return
    # Each is favoured as often as its share of the scores, up to one scenario at either end of its stretch.
    gained = scores[:, :having] - (1 - strength) * known.T
    favoured = gained > 0.5 * strength * total
    assert (favoured.sum(axis=0) == 1).all()
    often = favoured.sum(axis=1) / having
    assert (np.abs(often - known[0] / total) <= 1 / having + 1e-9).all()
    assert not favoured[known[0] == 0].any(), "what nobody wants is nobody's favourite"


def test_a_certain_favourite_is_all_that_is_worth_anything() -> None:
    scores = Favourite(1.0, 1.0).scores(np.array([[3.0, 1.0]]), 8)[:, 0]
    assert scores.tolist() == [[4.0] * 6 + [0.0] * 2, [0.0] * 6 + [4.0] * 2]


def test_a_menu_on_which_nothing_is_worth_anything_has_no_favourite() -> None:
    assert not Favourite(1.0, 1.0).scores(np.zeros((1, 3))).any()


@pytest.mark.parametrize(
    ("weights", "count", "expected"),
    [
        ((0.5, 0.25, 0.25), 1024, (512, 256, 256)),
        ((1.0, 1.0, 1.0), 10, (4, 3, 3)),
        ((1.0, 1.0, 1.0), 2, (1, 1, 0)),
        ((0.0, 3.0, 1.0), 8, (0, 6, 2)),
        ((1e-300, 1.0, 1.0), 5, (0, 3, 2)),
    ],
)
def test_a_mixture_shares_scenarios_by_weight(
    weights: tuple[float, ...], count: int, expected: tuple[int, ...]
) -> None:
    """Each part marks its own by a ratio of its own."""
    marks = [ContextRatios(((float(mark),),), (1.0,)) for mark in (1, 2, 3)]
    scores = Mixture(tuple(zip(weights, marks, strict=True))).scores(np.array([[1.0]]), count)[0, 0]
    assert scores.tolist() == [
        mark for mark, own in zip((1.0, 2.0, 3.0), expected, strict=True) for _ in range(own)
    ]


def test_a_mixture_of_one_law_is_that_law() -> None:
    for law in (Spread(0.7), Favourite(0.5, 0.5)):
        alone = Mixture(((0.3, law),))
        assert np.array_equal(alone.scores(PUBLIC), law.scores(PUBLIC))
        assert alone.deviation(4) == pytest.approx(law.deviation(4))


def test_a_learnt_prior_is_its_mixture_with_a_name() -> None:
    learnt = LearntPrior(MIXTURE, "sport", 12)
    assert np.array_equal(learnt.scores(PUBLIC), MIXTURE.scores(PUBLIC))
    assert str(learnt).startswith("learnt from 12 reports about sport: 50% factors lognormal with sigma 1; ")
    assert "12 reports" in learnt.statement


def test_contexts_are_as_often_as_they_are_likely() -> None:
    scores = ContextRatios(((2.0, 0.0), (0.5, 1.0)), (1.0, 3.0)).scores(np.array([[10.0, 4.0]]), 8)[:, 0]
    assert scores.tolist() == [[20.0] * 2 + [5.0] * 6, [0.0] * 2 + [4.0] * 6]
    assert ContextRatios(((2.0, 0.0),), (1.0,)).deviation(2) == 1.0


# As it stands in a menu.


@each_kind
def test_every_kind_is_read_back_as_the_same_law(prior: ScorePrior) -> None:
    record = json.loads(json.dumps(prior_as_json(prior)))
    again = read_prior(record)
    assert type(again) is type(prior)
    assert again == prior
    assert hash(again) == hash(prior)
    assert np.array_equal(again.scores(PUBLIC), prior.scores(PUBLIC))
    assert prior_as_json(again) == prior_as_json(prior)


def test_records_are_what_they_always_were() -> None:
    golden = json.loads((VECTORS / "priors_v1.json").read_text())
    assert json.loads(json.dumps({name: prior_as_json(prior) for name, prior in KINDS.items()})) == golden
    for name, record in golden.items():
        assert read_prior(record) == KINDS[name]


GOOD: dict[str, Any] = {"version": 1, "law": "lognormal", "sigma": 0.3}


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ([], "prior: expected a table, got list"),
        (None, "prior: expected a table, got NoneType"),
        ({}, "prior: expected version 1, got None"),
        (GOOD | {"version": 2}, "prior: expected version 1, got 2"),
        (GOOD | {"version": "1"}, "prior: expected version 1, got '1'"),
        (GOOD | {"version": True}, "prior: expected version 1, got True"),
        (GOOD | {"law": "normal"}, "prior: expected a law of lognormal, .*, got 'normal'"),
        (GOOD | {"law": None}, "prior: expected a law of"),
        (GOOD | {"law": ["lognormal"]}, "prior: expected a law of"),
        ({"version": 1}, "prior: expected a law of"),
        ({"version": 1, "law": "log-laplace"}, "prior: expected the keys of the law 'log-laplace', got others"),
        (GOOD | {"scale": 1.0}, "prior: expected the keys of the law 'lognormal', got others"),
        ({"version": 1, "law": "few-liked", "share": 0.1}, "keys of the law 'few-liked'"),
        (GOOD | {"sigma": -1.0}, "sigma"),
        (GOOD | {"sigma": float("nan")}, "sigma"),
        (GOOD | {"sigma": 1e6}, "sigma <= 10"),
        (GOOD | {"sigma": "a"}, "sigma"),
        (GOOD | {"sigma": []}, "sigma"),
        (GOOD | {"sigma": None}, "sigma"),
        (GOOD | {"sigma": {"of": 1}}, "sigma"),
        (GOOD | {"sigma": [[0.1]]}, "sigma"),
        ({"version": 1, "law": "mixture"}, "keys of the law 'mixture'"),
        ({"version": 1, "law": "mixture", "parts": []}, "1 to 256 parts"),
        ({"version": 1, "law": "mixture", "parts": [3]}, "keys of the law 'mixture'"),
        ({"version": 1, "law": "mixture", "parts": 3}, "keys of the law 'mixture'"),
        ({"version": 1, "law": "mixture", "parts": [{"weight": 1, "law": "?"}]}, "expected a law of"),
        (
            {"version": 1, "law": "mixture", "parts": [{"law": "lognormal", "sigma": 1}]},
            "keys of the law 'mixture'",
        ),
        ({"version": 1, "law": "mixture", "parts": [GOOD | {"weight": -1.0}]}, "keys of the law|weight"),
        (
            {"version": 1, "law": "mixture", "parts": [{"weight": -1.0, "law": "lognormal", "sigma": 1}]},
            "weight",
        ),
        (
            {"version": 1, "law": "mixture", "parts": [{"weight": 0.0, "law": "lognormal", "sigma": 1}]},
            "weight",
        ),
        (
            {
                "version": 1,
                "law": "mixture",
                "parts": [{"weight": float("nan"), "law": "lognormal", "sigma": 1}],
            },
            "weight",
        ),
        (
            {
                "version": 1,
                "law": "mixture",
                "group": "a",
                "parts": [{"weight": 1, "law": "lognormal", "sigma": 1}],
            },
            "keys of the law 'mixture'",
        ),
        (
            {
                "version": 1,
                "law": "mixture",
                "group": "a",
                "reports": 1.0,
                "parts": [{"weight": 1, "law": "lognormal", "sigma": 1}],
            },
            "keys of the law 'mixture'",
        ),
        ({"version": 1, "law": "learnt", "parts": [{"weight": 1, "law": "lognormal", "sigma": 1}]}, "'learnt'"),
        ({"version": 1, "law": "contexts", "ratios": [[1.0], [2.0]], "weights": [1.0]}, "weight and ratios"),
        ({"version": 1, "law": "contexts", "ratios": [[1.0]], "weights": [-1.0]}, "weights >= 0"),
        ({"version": 1, "law": "contexts", "ratios": [[float("nan")]], "weights": [1.0]}, "ratios >= 0"),
        ({"version": 1, "law": "contexts", "ratios": [[1.0], [1.0, 2.0]], "weights": [1.0, 1.0]}, "ratios"),
        ({"version": 1, "law": "ratios", "values": [1.0], "weights": None, "statement": ""}, "statement"),
        ({"version": 1, "law": "ratios", "values": [1.0], "weights": [-1], "statement": "x"}, "weights"),
        ({"version": 1, "law": "ratios", "values": [], "weights": None, "statement": "x"}, "ratios"),
        ({"version": 1, "law": "favourite", "share": 0, "strength": 1}, "share"),
    ],
)
def test_a_bad_record_is_refused_by_name(record: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says) as refused:
        read_prior(record)
    assert "\n" not in str(refused.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(
    ["law", "sigma", "scale", "share", "parts", "weight", "weights", "ratios", "values", "group"]
)


@given(st.sampled_from([*KINDS.values()]), KEYS, JSON, st.booleans())
def test_a_record_with_anything_in_it_is_read_or_refused(
    prior: ScorePrior, key: str, value: Any, inside: bool
) -> None:
    record = prior_as_json(prior)
    if inside and "parts" in record:
        record["parts"][0][key] = value
    else:
        record[key] = value
    with suppress(BadInput):
        check_prior(read_prior(record))


def test_mixtures_nest_only_so_deep() -> None:
    """A record from somebody else must not exhaust the stack."""
    part: dict[str, Any] = {"law": "lognormal", "sigma": 1.0}
    for _ in range(2_000):
        part = {"law": "mixture", "parts": [{"weight": 1.0, **part}]}
    with pytest.raises(BadInput, match="at most 4 mixtures within each other"):
        read_prior({"version": 1, **part})
    prior = MIXTURE
    for _ in range(3):
        prior = Mixture(((1.0, prior),))
    assert read_prior(prior_as_json(prior)) == prior
    with pytest.raises(BadInput, match="at most 4 mixtures within each other"):
        prior_as_json(Mixture(((1.0, prior),)))


class Unwritten:
    def scores(self, public: np.ndarray[Any, Any], count: int = SCENARIOS) -> np.ndarray[Any, Any]:
        return np.repeat(public.T[:, :, None], count, axis=2)

    def deviation(self, candidates: int) -> float:
        return 0.0 * candidates


def test_what_a_menu_cannot_hold_is_refused() -> None:
    with pytest.raises(BadInput, match=r"expected a prior that a menu can hold .*, got Unwritten"):
        prior_as_json(Unwritten())
    with pytest.raises(BadInput, match="got Unwritten"):
        prior_as_json(Mixture(((1.0, Unwritten()),)))
    with pytest.raises(BadInput, match=r"expected a prior of the private scores, such as Spread\(\), got 0.3"):
        check_prior(0.3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Mixture(()), "1 to 256 parts"),
        (lambda: Mixture(((1.0, Spread()),) * 257), "1 to 256 parts"),
        (lambda: Mixture(((1.0, Spread),)), "expected a prior"),  # type: ignore[arg-type]
        (lambda: Mixture(((1.0, 0.3),)), "prior of the private scores"),  # type: ignore[arg-type]
        (lambda: Mixture(((-1.0, Spread()),)), "every weight"),
        (lambda: Mixture(((float("inf"), Spread()),)), "weight"),
        (lambda: Mixture(((0.0, Spread()),)), "positive sum"),
        (lambda: Mixture((Spread(),)), "part"),  # type: ignore[arg-type]
        (lambda: Mixture(((1.0, Spread(), 2.0),)), "part"),  # type: ignore[arg-type]
        (lambda: LearntPrior(Spread(), "", 1.0), "mixture"),  # type: ignore[arg-type]
        (lambda: LearntPrior(MIXTURE, 3, 1.0), "group"),  # type: ignore[arg-type]
        (lambda: LearntPrior(MIXTURE, "", -1.0), "reports"),
        (lambda: Favourite(1.1, 0.3), "share"),
        (lambda: Favourite(0.1, 0.0), "strength"),
        (lambda: ContextRatios(((1.0, 2.0),), (1.0,)).scores(PUBLIC), "ratios of 4 candidates, got 2"),
    ],
)
def test_bad_priors_are_refused_in_one_line(make: Callable[[], object], says: str) -> None:
    with pytest.raises(BadInput, match=says) as refused:
        make()
    assert "\n" not in str(refused.value)


# In a menu.


def menu(prior: ScorePrior | None = None) -> Menu:
    columns = [500_000, 400_000], [0.03, 0.02], [0, 0], [NO_BIDDER, NO_BIDDER]
    more: dict[str, Any] = {} if prior is None else {"prior": prior}
    return Menu(Node((1,), ("Food",)), [9, 7], *columns, price=SecondPrice(), **more)


def test_a_menu_has_a_prior_and_its_bytes() -> None:
    assert menu().prior == Spread()
    plain = menu().size_bytes()
    assert menu(Spread()).size_bytes() == plain, "the default is not written, whoever made it"
    for prior in (Spread((0.1, 0.2)), KINDS["weighted ratios"], KINDS["learnt"], KINDS["favourite"]):
        assert menu(prior).size_bytes() == plain + len(json.dumps(prior_as_json(prior)))
    assert replace_prior(menu(), MIXTURE).prior is MIXTURE


def replace_prior(one: Menu, prior: ScorePrior) -> Menu:
    return replace(one, prior=prior)


@pytest.mark.parametrize(
    "prior", [0.3, None, Unwritten(), Spread, "lognormal"], ids=["number", "none", "unwritten", "class", "text"]
)
def test_a_menu_refuses_what_is_no_prior(prior: Any) -> None:
    with pytest.raises(BadInput, match="prior"):
        Menu(Node((1,), ("Food",)), [9], [1], [0.5], [0], [NO_BIDDER], price=SecondPrice(), prior=prior)


@pytest.mark.parametrize(
    "prior",
    [Spread((0.1, 0.2, 0.3)), ContextRatios(((1.0, 1.0, 1.0),), (1.0,)), Mixture(((1.0, Spread((0.1,) * 3)),))],
    ids=str,
)
def test_a_menu_refuses_a_prior_of_another_number_of_candidates(prior: ScorePrior) -> None:
    """Here, at once: not when some device plans."""
    with pytest.raises(BadInput, match="2 candidates"):
        menu(prior)
