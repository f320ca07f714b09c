"""How objects show themselves: one line without rows or secrets, and in notebooks a table."""

from __future__ import annotations

import dataclasses
import enum
import inspect
from fractions import Fraction
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.data import RowSet
from tacit.deliver import Planner, Spread, Wallet, plan_choice
from tacit.display import brief, brief_repr, html_table
from tacit.gather import MemoryDeviceStore, MemoryProxyStore, MemoryServerStore
from tacit.privacy import PrivacyStatement, Relation, SubsampledGaussian, Unit, UnitKind, Window
from tacit.store import CalibrationCache, SqlDeviceStore, SqlProxyStore, SqlRoomStore, SqlServerStore
from tacit.train import DpSgd, Estimator, FactorizationMachine, LabelDp
from tacit.train.evaluation.report import evaluate
from tacit.train.steps import Run
from tests.house.test_exports import exported
from tests.support.training_examples import learnable

STATEMENT = PrivacyStatement.of(
    [SubsampledGaussian(1.1, 0.01, 100)],
    unit=Unit(UnitKind.IMPRESSION, ad_tech="<script>alert(1)</script>"),
    relation=Relation.REPLACE_ONE,
    delta=1e-6,
)
ARRAYS = ("NDArray", "Floats", "Integers", "Table", "Mapping", "Columns", "Callable", "bytes")


def classes() -> list[type]:
    """Every exported class that one can have an instance of, and look at."""
    found = {getattr(import_module(door), name) for door, name in exported()}
    return sorted(
        (
            each
            for each in found
            if inspect.isclass(each)
            and not issubclass(each, BaseException | enum.Enum)
            and not getattr(each, "_is_protocol", False)
            and not inspect.isabstract(each)
        ),
        key=lambda each: f"{each.__module__}.{each.__name__}",
    )


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_no_class_shows_an_address_or_its_arrays(kind: type) -> None:
    assert inspect.getattr_static(kind, "__repr__") != object.__repr__, "shows its address"
    if dataclasses.is_dataclass(kind):
        shown = [each.name for each in dataclasses.fields(kind) if each.repr and _may_be_large(each)]
        written = getattr(kind.__repr__, "__wrapped__", None) is not None  # by `dataclass` itself
        assert not (shown and written), f"writes out {shown}: say `__repr__ = brief_repr`"


def _may_be_large(field: dataclasses.Field[Any]) -> bool:
    return any(word in str(field.type) for word in ARRAYS)


def made(folder: Path) -> dict[str, object]:
    examples = learnable()
    secret = bytes(32)
    shape = FactorizationMachine(dim=4)
    plan = LabelDp(epsilon=1).plan(examples, secret=secret)
    model = shape.build(examples.sizes, tacit.Simulation(1).normal)
    scores = np.linspace(0.1, 0.9, 100)
    return {
        "Plan": plan,
        "Run": Run(plan, model, examples, tacit.Entropy(), secret),
        "Estimator": Estimator(shape, DpSgd(epsilon=1, delta=1e-5), secret=b"s3cret-s3cret-s3cret-s3cret-s3cr"),
        "Examples": examples,
        "Evaluation": evaluate(np.arange(100) % 2, scores),
        "RowSet": RowSet(np.arange(10_000)),
        "PrivacyStatement": STATEMENT,
        "ChoicePlan": plan_choice([3.0, 2.9, 2.0], Spread(), 3),
        "Planner": Planner(Spread()),
        "Wallet": Wallet(Fraction(4), Fraction(1), Window.days(7)),
        "MemoryLedger": tacit.MemoryLedger(),
        "LedgerStore": tacit.open_ledger(folder / "ledger.sqlite"),
        "SqlDeviceStore": SqlDeviceStore.open(folder / "device.sqlite"),
        "SqlProxyStore": SqlProxyStore.open(folder / "proxy.sqlite"),
        "SqlServerStore": SqlServerStore.open(folder / "server.sqlite"),
        "SqlRoomStore": SqlRoomStore.open(folder / "room.sqlite"),
        "CalibrationCache": CalibrationCache(folder / "cache.sqlite"),
        "MemoryDeviceStore": MemoryDeviceStore(),
        "MemoryProxyStore": MemoryProxyStore(),
        "MemoryServerStore": MemoryServerStore(),
        "Entropy": tacit.Entropy(),
        "Simulation": tacit.Simulation("seed"),
        "Classifier": tacit.Classifier("fm", epsilon=2),
    }


def test_objects_show_themselves_in_one_line(tmp_path: Path) -> None:
    for name, value in made(tmp_path).items():
        shown = repr(value)
        assert shown.startswith(f"{name}("), shown
        assert len(shown) < 300, shown
        assert not any(word in shown for word in ("\n", " at 0x", "array(", "s3cret", "…(")), shown


def test_what_they_say() -> None:
    assert repr(STATEMENT).startswith("PrivacyStatement((")
    assert "-DP per impression at" in repr(STATEMENT)
    evaluation = evaluate(np.arange(100) % 2, np.linspace(0.1, 0.9, 100))
    assert repr(evaluation).startswith("Evaluation(rows=100, measured_on='labels', auc=0.51, ")
    assert repr(RowSet(np.arange(10_000))) == "RowSet(at=int64 10,000)"


@dataclasses.dataclass
class Record:
    secret: bytes
    words: str
    many: dict[str, int]
    few: tuple[int, ...]
    hidden: int = dataclasses.field(default=3, repr=False)

    __repr__ = brief_repr


def test_a_record_is_brief() -> None:
    record = Record(b"1234", "w" * 200, {str(i): i for i in range(1000)}, (1, 2))
    assert repr(record) == f"Record(secret=4 bytes, words='{'w' * 46}…, many=1,000 items, few=(1, 2))"
    assert brief(record, at=object()) == "Record(at=object(…))"
    assert brief(record, call=len) == "Record(call=<built-in function len>)"


class Reader(HTMLParser):
    """What a browser makes of it: elements and texts; every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self._open.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_notebooks_show_tables(tmp_path: Path) -> None:
    values = made(tmp_path)
    for name, expected in {
        "PrivacyStatement": ["neighbours", "mechanism", "not protected", "sampler"],
        "Plan": ["phase", "steps", "labels"],
        "Evaluation": ["AUC", "value", "95% from", "log loss"],
        "LedgerStore": ["scope", "ε left"],
        "MemoryLedger": ["Nothing was granted yet."],
    }.items():
        page = Reader(values[name]._repr_html_())  # type: ignore[attr-defined]
        assert "table" in page.seen
        assert "script" not in page.seen
        assert set(expected) <= set(page.texts), (name, page.texts)
    assert "<script>alert(1)</script>" in " ".join(Reader(STATEMENT._repr_html_()).texts)
    private = Reader(DpSgd(epsilon=1, delta=1e-5).plan(learnable())._repr_html_())
    assert {"noise multiplier", "clip norm"} <= set(private.texts)
    assert any("-DP per impression, replace-one neighbours." in text for text in private.texts)


def test_numbers_stand_to_the_right() -> None:
    shown = html_table("t", ["name", "ε"], [["a", "0.5"], ["b", "-1"]])
    assert shown.count("text-align:right") == 3
    assert html_table("t", ["name"], [["a"]]).count("text-align:right") == 0
