"""Encoders of a log's own values, from Python: what is counted, paid for, and refused before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.data import Columns, Encoder, LearnedEncoding, LogReader, SelectionPayment, hashing_encoder, prepare
from tacit.data.encoding.fingerprints import value_fingerprints
from tacit.data.encoding.vocabulary import Vocabulary
from tacit.data.logs.definition import Log
from tacit.data.reading.layout import CellType, FileLayout
from tacit.data.splits import LogSplit
from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput, BudgetExceeded, EntropyMisuse, ReservationTaken
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Line
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit.schema.columns import Column, Kind, LogSchema, Role
from tacit.store import LedgerStore

RAW = {"page": CellType.TEXT, "town": CellType.TEXT, "at": CellType.WHOLE, "bought": CellType.WHOLE}
SCHEMA = LogSchema(
    "shop",
    (
        Column("page", {Role.PUBLIC}),
        Column("town", {Role.SENSITIVE}),
        Column("at", {Role.SENSITIVE}, Kind.HOUR),
        Column("bought", {Role.LABEL}, Kind.FLAG),
    ),
)
LOG = Log("shop", "", "", SCHEMA, (FileLayout(RAW),), LogSplit("random", {"train": 1}))
LINE = Line("shop", Unit(UnitKind.IMPRESSION), Relation.REPLACE_ONE)
BUDGET = Budget.of(2, "1e-6")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two thousand people of Oslo, and one of a town where nobody else lives."""
    rows = [f"{page},Oslo,12,0" for page in ("news", "sport") for _ in range(1000)]
    place = tmp_path / "shop.csv"
    place.write_text("\n".join(["page,town,at,bought", *rows, "rare,Hell,3,1"]) + "\n")
    return place


@pytest.fixture
def ledger(tmp_path: Path) -> LedgerStore:
    store = LedgerStore.open(tmp_path / "ledger.sqlite")
    store.grant(LINE, Budget.of(3, "1e-5"))
    return store


def spent_and_reserved(ledger: LedgerStore) -> tuple[float, float]:
    account = ledger.account(LINE)
    assert account is not None
    return float(account.spent.budget.epsilon), float(account.reserved.budget.epsilon)


def listed(encoder: Encoder, field: str) -> list[int]:
    assert isinstance(encoder.sensitive, Vocabulary)
    values: list[int] = encoder.sensitive.listed[encoder.sensitive.fields.index(field)].tolist()
    return values


def test_a_selection_is_paid_for_once_and_travels_with_its_encoder(path: Path, ledger: LedgerStore) -> None:
    asked = LearnedEncoding(LOG, sensitive=True, payment=SelectionPayment(ledger, "shop", "march", BUDGET))
    assert [column.name for column in asked.columns] == ["town"]
    tallies = asked.count(LogReader(LOG, path))
    assert spent_and_reserved(ledger) == (0, 0)
    with asked.encoder(tallies, Entropy()) as encoder:
        assert spent_and_reserved(ledger) == (0, 2)
        prepare(LogReader(LOG, path), encoder, path.parent / "listed", split=LOG.split)
    assert spent_and_reserved(ledger) == (2, 0)
    made = ledger.reservation("shop/vocabulary/march")
    assert made is not None
    assert made.release == encoder.digest == Columns.open(path.parent / "listed").manifest["encoder"]
    assert encoder.selection == asked.selection
    assert listed(encoder, "town") == value_fingerprints("town", ["Oslo"]).tolist()
    assert len(listed(encoder, "at")) == 24
    with pytest.raises(ReservationTaken), asked.encoder(tallies, Entropy()):
        pytest.fail("drawn again")
    other = LearnedEncoding(LOG, sensitive=True, payment=SelectionPayment(ledger, "shop", "april", BUDGET))
    with pytest.raises(BudgetExceeded), other.encoder(tallies, Entropy()):
        pytest.fail("drawn without a payment")
    assert spent_and_reserved(ledger) == (2, 0)


@pytest.mark.parametrize("problem", [BadInput("the disk is full"), OSError("the disk is full")])
def test_what_fails_after_the_draw_stays_reserved(path: Path, ledger: LedgerStore, problem: Exception) -> None:
    asked = LearnedEncoding(LOG, sensitive=True, payment=SelectionPayment(ledger, "shop", "march", BUDGET))
    tallies = asked.count(LogReader(LOG, path))
    stays = r"the disk is full \(the selection stays reserved in the ledger as shop/vocabulary/march"
    with pytest.raises(BadInput, match=stays), asked.encoder(tallies, Entropy()):
        raise problem
    assert spent_and_reserved(ledger) == (0, 2)


def test_an_interrupt_says_how_the_ledger_stands(path: Path, ledger: LedgerStore) -> None:
    asked = LearnedEncoding(LOG, sensitive=True, payment=SelectionPayment(ledger, "shop", "march", BUDGET))
    with (
        pytest.raises(KeyboardInterrupt) as stopped,
        asked.encoder(asked.count(LogReader(LOG, path)), Entropy()),
    ):
        raise KeyboardInterrupt
    assert "stays reserved" in stopped.value.__notes__[0]


def test_a_simulation_selects_nothing_and_reserves_nothing(path: Path, ledger: LedgerStore) -> None:
    asked = LearnedEncoding(LOG, sensitive=True, payment=SelectionPayment(ledger, "shop", "march", BUDGET))
    tallies = asked.count(LogReader(LOG, path))
    with pytest.raises(EntropyMisuse, match="stream for a selection"), asked.encoder(tallies, Simulation(1)):
        pytest.fail("drawn from a seed")
    assert spent_and_reserved(ledger) == (0, 0)


def test_what_needs_no_selection_costs_nothing(path: Path) -> None:
    public = LearnedEncoding(LOG, least_public=2)
    with public.encoder(public.count(LogReader(LOG, path)), Entropy()) as encoder:
        assert isinstance(encoder.public, Vocabulary)
        assert np.array_equal(encoder.public.listed[0], np.sort(value_fingerprints("page", ["news", "sport"])))
    known = Log(
        "shop", "", "", LogSchema("shop", (*SCHEMA.columns[:1], *SCHEMA.columns[2:])), LOG.layouts, LOG.split
    )
    hours = LearnedEncoding(known, sensitive=True)
    assert hours.columns == ()
    with hours.encoder(hours.count(LogReader(known, path)), Entropy()) as encoder:
        assert len(listed(encoder, "at")) == 24
    plain = LearnedEncoding(LOG, public_bins=8, sensitive_bins=4)
    with plain.encoder({}, Entropy()) as encoder:
        assert encoder.digest == hashing_encoder(LOG, 8, 4).digest


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"sensitive": True}, "column town: expected a domain in the schema, or a payment"),
        ({"least_public": 2, "public_bins": 8}, "expected least_public or public_bins, got both"),
        ({"sensitive": True, "sensitive_bins": 8}, "expected a sensitive vocabulary or sensitive_bins"),
        ({"payment": BUDGET}, "got no vocabulary to select"),
        ({"payment": Budget.of(1, 0), "sensitive": True}, "expected delta > 0"),
        ({"public_bins": 0}, "expected bins"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_counted(
    ledger: LedgerStore, asked: dict[str, Any], message: str
) -> None:
    if "payment" in asked:
        asked = {**asked, "payment": SelectionPayment(ledger, "shop", "march", asked["payment"])}
    with pytest.raises(BadInput, match=message):
        LearnedEncoding(LOG, **asked)
