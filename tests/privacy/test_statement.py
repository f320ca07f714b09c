"""A statement says everything that a promise needs, and is made from releases alone."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from tacit.errors import BadInput, NoFiniteGuarantee, RelationMismatch, UnknownRelease
from tacit.privacy.accounting import epsilon
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.releases import (
    Composed,
    DiscreteGaussianCounts,
    DiscreteLaplaceCounts,
    GaussianStatistic,
    Grouped,
    LocalChoice,
    Release,
    SelectedPartitions,
    ShuffledChoice,
    SkellamCounts,
    SplitLabels,
    SubsampledGaussian,
)
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Relation, Unit, UnitKind, Window

IMPRESSION = Unit(UnitKind.IMPRESSION)
LABELS = RandomizedResponse.for_epsilon(2).release
TRAINING = SubsampledGaussian(1.0, 0.01, 100)


def test_it_holds_every_part_of_the_promise() -> None:
    unit = Unit(UnitKind.USER, Window.days(7), ad_tech="example")
    statement = PrivacyStatement.of(
        [LABELS, TRAINING],
        unit=unit,
        relation=Relation.REPLACE_ONE,
        delta=1e-6,
        also_not_protected=["the menu"],
    )
    joint = epsilon(Composed((LABELS, TRAINING)), delta=1e-6, relation=Relation.REPLACE_ONE)
    assert statement.epsilon == joint
    assert set(statement.as_json()) == {
        "unit", "window_origin", "relation", "epsilon", "delta", "mechanisms", "sampler", "accountant",
        "not_protected",
    }  # fmt: skip
    assert json.loads(json.dumps(statement.as_json()))["unit"] == "user per 7 days at example"
    text = statement.as_text()
    for words in ("user per 7 days at example", "randomized response on 2 classes", "Poisson", "Not protected",
                  "the menu", "other than example", "several windows"):  # fmt: skip
        assert words in text
    assert statement.budget.epsilon == Fraction(str(joint))


def test_windows_that_begin_elsewhere_are_another_promise() -> None:
    def of(window: Window | None) -> PrivacyStatement:
        unit = Unit(UnitKind.USER, window)
        return PrivacyStatement.of([Grouped(LABELS, 2)], unit=unit, relation=Relation.REPLACE_LABEL)

    weekly, shifted = of(Window.days(7)), of(Window.days(7, origin=345_600))
    assert (weekly.as_json()["window_origin"], shifted.as_json()["window_origin"]) == (0, 345_600)
    assert "Windows of 7 days are counted from second 345600 on." in shifted.as_text()
    assert weekly.as_text() != shifted.as_text()
    assert of(None).as_json()["window_origin"] is None
    assert "counted" not in of(None).as_text()


def test_a_unit_of_several_records_is_not_promised_by_one_record() -> None:
    def gaps(unit: Unit, release: Release) -> str:
        relation = Relation.REPLACE_LABEL
        return " ".join(PrivacyStatement.of([release], unit=unit, relation=relation).not_protected)

    user = Unit(UnitKind.USER)
    assert "a user with several records" in gaps(user, LABELS)
    assert "several records" not in gaps(user, Grouped(LABELS, 3))
    assert "several records" not in gaps(user, SplitLabels(Fraction(1), 3))


def test_one_choice_speaks_of_all_that_its_device_holds_and_of_no_other_device() -> None:
    def gaps(kind: UnitKind, release: Release) -> str:
        stated = PrivacyStatement.of([release], unit=Unit(kind), relation=Relation.REPLACE_ONE)
        return " ".join(stated.not_protected)

    choice = LocalChoice(Fraction(1))
    assert "several records" not in gaps(UnitKind.DEVICE, choice)
    assert "a person with several devices: each has a promise of its own" in gaps(UnitKind.DEVICE, choice)
    assert "a user with several records" in gaps(UnitKind.USER, choice)
    assert "several devices" not in gaps(UnitKind.USER, choice)
    assert "a device with several records" in gaps(UnitKind.DEVICE, LABELS)  # flipped one by one
    two = gaps(UnitKind.DEVICE, Composed((choice, LABELS)))
    assert "a device with several records" in two


def test_pure_promises_need_no_delta() -> None:
    statement = PrivacyStatement.of([LABELS, LABELS], unit=IMPRESSION, relation=Relation.REPLACE_LABEL)
    assert statement.delta == 0
    assert 2 * LABELS.epsilon <= statement.epsilon <= 2 * LABELS.epsilon + 1e-12
    assert "remainder" not in statement.as_text()


def test_counts_and_groups_are_told() -> None:
    release = Grouped(Composed((LABELS,), 4), 3)
    statement = PrivacyStatement.of([release], unit=Unit(UnitKind.USER), relation=Relation.REPLACE_LABEL)
    (told,) = statement.mechanisms
    assert told == "4 times: randomized response on 2 classes, ε = 2 per label, for units of up to 3 records"
    assert statement.epsilon == pytest.approx(24)


def test_people_read_no_less_than_machines() -> None:
    statement = PrivacyStatement.of([TRAINING], unit=IMPRESSION, relation=Relation.ADD_REMOVE, delta=1e-6)
    shown = float(statement.as_text().split("(")[1].split(",")[0])
    assert statement.epsilon <= shown <= statement.epsilon * 1.002


ADD = Relation.ADD_REMOVE


@pytest.mark.parametrize(
    ("release", "relation"),
    [
        (GaussianStatistic(3.0, 1.0, ADD), ADD),
        (DiscreteLaplaceCounts((1,), ADD, Fraction(2)), ADD),
        (DiscreteGaussianCounts((1,), ADD, Fraction(9)), ADD),
        (SkellamCounts((1,), Relation.ZERO_OUT, Fraction(9)), Relation.ZERO_OUT),
        (SelectedPartitions(Fraction(1), Fraction(1, 10**9), 2, ADD), ADD),
        (LocalChoice(Fraction(1)), Relation.REPLACE_ONE),
        (ShuffledChoice(Fraction(1), 1000), Relation.REPLACE_ONE),
        (Grouped(LABELS, 3), Relation.REPLACE_LABEL),
        (SplitLabels(Fraction(1), 4), Relation.REPLACE_LABEL),
    ],
)
def test_every_kind_of_release_can_be_stated(release: Release, relation: Relation) -> None:
    text = PrivacyStatement.of([release], unit=IMPRESSION, relation=relation, delta=1e-6).as_text()
    assert "differentially private per impression" in text
    assert "their promises add up" in text


def test_what_cannot_be_stated_is_refused() -> None:
    with pytest.raises(BadInput, match="expected at least one release"):
        PrivacyStatement.of([], unit=IMPRESSION, relation=ADD)
    with pytest.raises(RelationMismatch, match="got add-remove"):
        PrivacyStatement.of([LABELS], unit=IMPRESSION, relation=ADD, delta=1e-6)
    with pytest.raises(NoFiniteGuarantee, match="state a delta > 0"):
        PrivacyStatement.of([TRAINING], unit=IMPRESSION, relation=ADD)
    with pytest.raises(UnknownRelease, match="got Stranger"):
        PrivacyStatement.of([Stranger()], unit=IMPRESSION, relation=ADD, delta=1e-6)


class Stranger(Release):
    """A release that nobody has a proof for."""

    words = "something else"


def test_the_ledger_is_asked_for_what_was_stated() -> None:
    statement = PrivacyStatement.of([TRAINING], unit=IMPRESSION, relation=ADD, delta=1e-6)
    asked = statement.guarantee(sensitive_features=True)
    assert (asked.unit, asked.relation, asked.budget) == (IMPRESSION, ADD, statement.budget)
