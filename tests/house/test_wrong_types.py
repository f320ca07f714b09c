"""What is of a plainly wrong type is refused as everything else is: BadInput, one line, the argument named."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import tacit
from tacit.errors import BadInput, TacitError
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.ledger.lines import Line
from tacit.privacy.releases import SubsampledGaussian
from tacit.privacy.units import Relation, Unit, UnitKind
from tests.house.test_exports import exported

DOORS = (
    "tacit", "tacit.privacy", "tacit.privacy.choice", "tacit.train", "tacit.deliver", "tacit.bill",
    "tacit.store", "tacit.gather", "tacit.data", "tacit.schema",
)  # fmt: skip
WRONG: tuple[Any, ...] = (None, "x", -1, [], object())
PROBLEMS = (TypeError, AttributeError, KeyError, IndexError)

UNIT = Unit(UnitKind.USER)
GOOD: dict[str, Any] = {
    "budget": Budget.of(1),
    "candidates": 4,
    "delta": 1e-6,
    "epsilon": 1.0,
    "guarantee": Guarantee(Budget.of(1), UNIT, Relation.REPLACE_ONE, False),
    "kept": 3,
    "line": Line("ads", UNIT, Relation.REPLACE_ONE),
    "noise_multiplier": 1.0,
    "private": [1.0, 2.0],
    "public": [3.0, 2.0],
    "relation": Relation.REPLACE_ONE,
    "release": SubsampledGaussian(1.0, 0.5, 3),
    "releases": [SubsampledGaussian(1.0, 0.5, 3)],
    "sampling_probability": 0.5,
    "scope": "ads",
    "steps": 5,
    "top": 1,
    "unit": UNIT,
}
"""By the argument's name; of others, a 1 is good enough to come to the next check."""


def callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Exported functions, classes and their named constructors."""
    for door, name in exported():
        value = getattr(import_module(door), name)
        if door not in DOORS or (inspect.isclass(value) and not _is_made_by_people(value)):
            continue
        yield f"{door}.{name}", value
        for own, member in vars(value).items() if inspect.isclass(value) else ():
            if isinstance(member, classmethod) and not own.startswith("_"):
                yield f"{door}.{name}.{own}", getattr(value, own)


def _is_made_by_people(kind: type) -> bool:
    return not (
        issubclass(kind, BaseException | enum.Enum)
        or getattr(kind, "_is_protocol", False)
        or inspect.isabstract(kind)
    )


def wrong_calls(call: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """All arguments wrong at once; then each of them, beside others that are right."""
    asked = [
        each
        for each in inspect.signature(call).parameters.values()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]
    needed = [each.name for each in asked if each.default is each.empty]
    for wrong in WRONG:
        if needed:
            yield dict.fromkeys(needed, wrong)
        for each in asked:
            if wrong is not None or each.default is not None:
                yield {**{name: GOOD.get(name, 1) for name in needed}, each.name: wrong}


HASHED = {"tacit.deliver.discrete_laplace_margin"}  # remembers answers by its arguments: Python refuses a list


@pytest.mark.parametrize(("name", "call"), [pytest.param(*each, id=each[0]) for each in callables()])
@pytest.mark.filterwarnings("ignore")
def test_nothing_escapes_from_inside(
    name: str, call: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # "x" is a fine name of a file
    for arguments in wrong_calls(call):
        if name in HASHED and [] in arguments.values():
            continue
        try:
            call(**arguments)
        except TacitError:
            continue
        except PROBLEMS as problem:
            pytest.fail(f"{name}({arguments}) lets {problem!r} escape")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: tacit.epsilon("x", delta=1e-6), "expected release to be a Release, got 'x'"),  # type: ignore[arg-type]
        (lambda: tacit.load(None), "expected folder to be a path, got None"),  # type: ignore[arg-type]
        (lambda: tacit.open_ledger("a.sqlite", witness=-1), "expected witness to be a path, got -1"),  # type: ignore[arg-type]
        (
            lambda: tacit.privacy.PrivacyStatement.of(-1, unit=UNIT, relation=Relation.ADD_REMOVE),  # type: ignore[arg-type]
            "expected releases to be a list, got -1",
        ),
        (
            lambda: tacit.privacy.Composed(["x"]),  # type: ignore[arg-type]
            "expected each of parts to be a Release, got 'x'",
        ),
        (
            lambda: tacit.privacy.convert({"rows": [1] * 99}, UNIT, Relation.REPLACE_ONE),  # type: ignore[arg-type]
            "expected guarantee to be a Guarantee, got a value of type dict",
        ),
        (lambda: tacit.data.LogReader(None, "x"), "expected log to be a Log, got None"),  # type: ignore[arg-type]
        (lambda: tacit.train.load_config([]), "expected path to be a path, got a value of type list"),  # type: ignore[arg-type]
    ],
)
def test_the_argument_is_named(
    call: Callable[[], Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput) as refused:
        call()
    assert str(refused.value) == told
