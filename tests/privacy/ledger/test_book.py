"""The ledger as people use it: the same words for one in memory and one that lasts."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tacit
from tacit import MemoryLedger
from tacit.errors import BadInput, BudgetExceeded, ReservationTaken, UnknownLine
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.book import LedgerBook
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.ledger.lines import Line, Series
from tacit.privacy.ledger.rules import ReservationState
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Relation, Unit, UnitKind, Window
from tacit.store.ledger import LedgerStore

IMPRESSION, USER = Unit(UnitKind.IMPRESSION), Unit(UnitKind.USER)
ADS = Line("ads", IMPRESSION, Relation.REPLACE_ONE)


@pytest.fixture(params=["memory", "durable"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> LedgerBook:
    return MemoryLedger() if request.param == "memory" else tacit.open_ledger(tmp_path / "ledger.sqlite")


def state(ledger: Any, key: str) -> ReservationState:
    return ledger.reservation(key).state  # type: ignore[no-any-return]


def test_a_block_is_paid_for_before_and_after(ledger: LedgerBook) -> None:
    ledger.grant("ads", (1, 1e-6))
    with ledger.spend("model-1", "ads", (0.25, 1e-7)) as attempt:
        assert state(ledger, "model-1") is ReservationState.RESERVED
        assert ledger.remaining(ADS) == Budget.of("0.75", "9e-7")
        attempt.name_release("digest")
    assert state(ledger, "model-1") is ReservationState.COMMITTED
    assert ledger.remaining(ADS) == Budget.of("0.75", "9e-7")
    with pytest.raises(ReservationTaken, match="model-1"), ledger.spend("model-1", "ads", (0.25, 1e-7)):
        raise AssertionError("entered twice")
    with pytest.raises(BudgetExceeded), ledger.spend("model-2", ADS, 2):
        raise AssertionError("entered without money")


def test_a_block_that_fails_keeps_its_reservation(ledger: LedgerBook) -> None:
    ledger.grant(ADS, Budget.of(1))
    with pytest.raises(RuntimeError, match="halfway"), ledger.spend("model-1", "ads", 0.5):
        raise RuntimeError("halfway")
    assert state(ledger, "model-1") is ReservationState.RESERVED
    assert ledger.remaining("ads") == {ADS: Budget.of("0.5")}


def test_a_line_is_found_by_its_words_or_the_cost(ledger: LedgerBook) -> None:
    ledger.grant("ads", 1)
    ledger.grant("ads", (2, 1e-6), unit="user")
    assert [str(left) for left in ledger.remaining("ads").values()] == ["(ε = 1, δ = 0)", "(ε = 2, δ = 1e-06)"]
    with pytest.raises(BadInput, match="which one by unit and relation, of the lines ads"):
        ledger.spend("a", "ads", 0.5)
    with pytest.raises(BadInput, match="expected one of them, of the lines ads"):
        ledger.spend("a", "ads", 0.5, unit="device")
    with ledger.spend("a", "ads", 0.5, unit="user", relation="replace-one"):
        pass
    with ledger.spend("b", "ads", Guarantee(Budget.of("0.5"), USER, Relation.REPLACE_ONE, True)):
        pass
    flips = RandomizedResponse.for_epsilon("0.5").release
    statement = PrivacyStatement.of([flips], unit=IMPRESSION, relation=Relation.REPLACE_ONE)
    with ledger.spend("c", "ads", statement, purpose="labels"):
        pass
    left = {line.unit: left for line, left in ledger.remaining("ads").items()}
    assert left[USER] == Budget.of(1, "1e-6")
    assert 0.49 < left[IMPRESSION].epsilon <= 0.5


def test_a_statement_about_labels_does_not_pass_for_one_about_features(ledger: LedgerBook) -> None:
    ledger.grant("ads", 1)
    flips = RandomizedResponse.for_epsilon("0.5").release
    labels = PrivacyStatement.of([flips], unit=IMPRESSION, relation=Relation.REPLACE_LABEL)
    with pytest.raises(tacit.TacitError, match="used sensitive features"), ledger.spend("a", "ads", labels):
        raise AssertionError("entered")
    with ledger.spend("a", "ads", labels.guarantee(sensitive_features=False)):
        pass


def test_windows_that_renew_have_what_each_is_granted(tmp_path: Path) -> None:
    ledger = tacit.open_ledger(tmp_path / "ledger.sqlite")
    weekly = Series("ads", Unit(UnitKind.USER, Window.days(7)), Relation.REPLACE_ONE)
    ledger.renew(weekly, Budget.of(1))
    assert ledger.remaining("ads") == {}
    assert ledger.remaining(weekly.line(3)) == Budget.of(1)
    with ledger.spend("w3", "ads", 0.25, window=3):
        pass
    assert ledger.remaining("ads") == {weekly.line(3): Budget.of("0.75")}
    assert list(ledger.to_frame()["window"]) == [3]


def test_a_table_of_all_lines(ledger: LedgerBook, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.grant("ads", (2, 1e-6), unit="user")
    ledger.grant("<b>", 1)
    with ledger.spend("a", "ads", (0.5, 1e-7)):
        pass
    frame = ledger.to_frame()
    row = frame[frame.scope == "ads"].iloc[0]
    assert (row.unit, row.relation, row.epsilon_limit, row.epsilon_spent) == ("user", "replace-one", 2, 0.5)
    assert (row.epsilon_left, row.delta_spent, row.epsilon_reserved) == (1.5, 1e-7, 0)
    shown = ledger._repr_html_()
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert ">1.5<" in shown
    assert "ads (user, replace-one), all time: (ε = 1.5, δ = 9e-07)" in repr(ledger.remaining("ads"))
    assert ">1.5<" in ledger.remaining("ads")._repr_html_()

    real = builtins.__import__

    def without_pandas(name: str, *rest: Any) -> Any:
        if name == "pandas":
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    table = ledger.to_frame()
    assert isinstance(table, pa.Table)
    assert table.column_names == list(frame.columns)


def test_a_ledger_says_where_it_is_and_never_a_password(tmp_path: Path) -> None:
    assert repr(tacit.open_ledger(tmp_path / "a.sqlite")) == f"LedgerStore('{tmp_path / 'a.sqlite'}')"
    assert repr(MemoryLedger()) == "MemoryLedger(lines=0, reservations=0)"
    assert "Nothing was granted yet" in MemoryLedger()._repr_html_()
    ledger = tacit.open_ledger(tmp_path / "b.sqlite")
    (tmp_path / "b.sqlite").unlink()
    assert "there is no ledger" in ledger._repr_html_(), "shown, not raised"


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda ledger: ledger.grant("ads", "2"), r"limit to be a Budget or \(epsilon, delta\), got '2'"),
        (lambda ledger: ledger.grant("ads", None), "limit to be a Budget"),
        (lambda ledger: ledger.grant("ads", (1, 2, 3)), "limit to be a Budget"),
        (lambda ledger: ledger.grant("ads", -1), "epsilon > 0"),
        (lambda ledger: ledger.grant(None, 1), "line to be a Line or the name of a scope, got None"),
        (lambda ledger: ledger.grant("ads", 1, unit="usr"), "did you mean 'user'"),
        (lambda ledger: ledger.grant(ADS, 1, unit="user"), "got them beside it"),
        (lambda ledger: ledger.spend("a", 7, 1), "line to be a Line"),
        (lambda ledger: ledger.spend("a", ADS, object()), "cost to be a Budget"),
        (lambda ledger: ledger.remaining(None), "scope to be 1 to 200 printable characters"),
    ],
)
def test_other_words_are_refused(ledger: LedgerBook, ask: Callable[[Any], Any], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        ask(ledger)


def test_a_scope_that_is_not_there_is_answered_with_the_nearest(ledger: LedgerBook) -> None:
    ledger.grant("visits", 1)
    for ask in (lambda: ledger.remaining("visit"), lambda: ledger.spend("a", "visit", 1)):
        with pytest.raises(UnknownLine, match="'visit'; grant one first: did you mean 'visits'"):
            ask()
    with pytest.raises(UnknownLine, match="no budget was granted on line ads"):
        ledger.remaining(ADS)


def test_open_ledger_is_the_store(tmp_path: Path) -> None:
    assert isinstance(tacit.open_ledger(str(tmp_path / "a.sqlite")), LedgerStore)
    with pytest.raises(BadInput, match="witness"):
        tacit.open_ledger("postgresql+psycopg://user:secret@host/ads")


def test_an_account_prints_as_one_line_and_a_text_is_no_budget() -> None:
    ledger = MemoryLedger()
    assert repr(ledger.grant("visits", (3, 1e-6), unit="user")) == (
        "Account(visits (user, replace-one), all time: (ε = 0, δ = 0) spent of (ε = 3, δ = 1e-06))"
    )
    ledger.reserve("one", Line("visits", Unit(UnitKind.USER), Relation.REPLACE_ONE), Budget.of(1), "a trial")
    assert "spent, (ε = 1, δ = 0) reserved of (ε = 3, δ = 1e-06))" in repr(
        ledger.grant("visits", (3, 1e-6), unit="user")
    )
    with pytest.raises(BadInput, match="expected epsilon to be a number, got the text '3'"):
        ledger.grant("visits", ("3", 1e-6))
