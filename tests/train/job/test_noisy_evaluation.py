"""Labels to measure on, from Python: paid for once by any ledger, and read again for nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tacit.errors import BadInput, UnknownLine
from tacit.memory_ledger import MemoryLedger
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Line
from tacit.privacy.ledger.rules import ReservationState
from tacit.privacy.mechanisms.memoisation import FlipKey
from tacit.privacy.units import Cap, Relation, Unit, UnitKind
from tacit.train.config import PrivacySettings
from tacit.train.evaluation.measures import LEAST_STANDARD_ERRORS, Outcomes
from tacit.train.job.label_flips import LabelFlipRelease
from tacit.train.job.noisy_evaluation import RESPONSE, even_classes_error, plan_flips
from tests.support.training_examples import SECRET, learnable

IMPRESSION = Unit(UnitKind.IMPRESSION)
PUBLIC, SENSITIVE = {"model": ()}, {"model": ("age",)}


@pytest.fixture
def noisy(tmp_path: Path) -> LabelFlipRelease:
    privacy = PrivacySettings("label-dp", IMPRESSION, Cap(1), 3)
    return LabelFlipRelease(
        privacy, RESPONSE, FlipKey("shop: label", 0), SECRET, "shop", tmp_path / "flips.secret"
    )


def test_flips_are_paid_for_once(noisy: LabelFlipRelease) -> None:
    examples, ledger = learnable(synthetic=False), MemoryLedger()
    flips = plan_flips(examples, noisy, PUBLIC, now=0)
    assert float(flips.cost.budget.epsilon) == 3
    with pytest.raises(UnknownLine):
        flips.measured(ledger)
    ledger.grant(Line("shop", IMPRESSION, Relation.REPLACE_LABEL), Budget.of(3, 0))
    first, again = flips.measured(ledger), flips.measured(ledger)
    assert "ledger: reserved" in first.notes[0]
    assert "ledger: paid for before: the same noisy labels, read again" in again.notes[0]
    np.testing.assert_array_equal(again.outcomes.positive, first.outcomes.positive)
    known = ledger.reservation(noisy.key)
    assert known is not None
    assert known.state is ReservationState.COMMITTED
    label = np.array(examples.label)
    label[5] ^= 1
    with pytest.raises(BadInput, match="labels that have changed since they were flipped"):
        plan_flips(replace(examples, label=label), noisy, PUBLIC, now=0).measured(ledger)


def test_only_made_up_labels_go_unpaid(noisy: LabelFlipRelease) -> None:
    with pytest.raises(BadInput, match="expected a ledger that pays for flips of people's labels, got none"):
        plan_flips(learnable(synthetic=False), noisy, PUBLIC, now=0).measured(None)
    measured = plan_flips(learnable(), noisy, PUBLIC, now=0).measured(None)
    assert "about nobody" in measured.notes[0]


def test_features_that_a_line_protects_are_not_measured_through(noisy: LabelFlipRelease) -> None:
    examples, ledger = learnable(synthetic=False), MemoryLedger()
    ledger.grant(Line("shop", IMPRESSION, Relation.REPLACE_LABEL), Budget.of(3, 0))
    ledger.grant(Line("shop", Unit(UnitKind.USER), Relation.REPLACE_ONE), Budget.of(1, "1e-6"))
    flips = plan_flips(examples, noisy, SENSITIVE, now=0)
    with pytest.raises(BadInput, match="protects the others, got one that reads age"):
        flips.measured(ledger)
    assert ledger.reservation(noisy.key) is None
    with pytest.raises(BadInput, match="protects the others, got one that reads age"):
        plan_flips(examples, noisy, SENSITIVE, now=0, relation=Relation.REPLACE_ONE)


@pytest.mark.parametrize("rows", [2, 6, 10, 12, 40, 124])
def test_only_what_no_reports_could_tell_is_refused_for_its_flips(rows: int) -> None:
    """By trying all reports that there are: how many of them are 1 is all that counts."""

    def tells(positives: int, keep: float) -> bool:
        reports = np.arange(rows) < positives
        try:
            Outcomes.of_flipped(reports.astype(float), keep)
        except BadInput:
            return False
        return True

    refusals = set()
    for epsilon in np.geomspace(0.05, 9, 25):
        keep = 1 / (1 + np.exp(-epsilon))
        refused = LEAST_STANDARD_ERRORS * even_classes_error([(rows, keep)], rows) >= 1 / 2
        assert refused != any(tells(positives, keep) for positives in range(rows + 1))
        refusals.add(refused)
    assert refusals == ({True} if rows <= 10 else {True, False})
