"""Examples for the clean room's model: what cannot be meant is refused when they are made, by its column."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit import expect
from tacit.cleanroom.model.examples import ConversionExamples
from tacit.errors import BadInput
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse

ROWS = 6


def examples(**changes: Any) -> ConversionExamples:
    good: dict[str, Any] = {
        "fields": np.zeros((ROWS, 3), np.int32),
        "numbers": np.zeros((ROWS, 2), np.float32),
        "sequences": np.zeros((ROWS, 4, 1), np.int16),
        "lengths": np.zeros(ROWS, np.int16),
        "advertiser": np.zeros(ROWS, np.int64),
        "records": np.arange(ROWS, dtype=np.uint64),
        "tasks": {"buy": np.zeros(ROWS, np.uint8)},
        "sizes": (5, 5, 5),
        "sequence_sizes": (5,),
    }
    return ConversionExamples(**(good | changes))


def changed(shape: tuple[int, ...], dtype: Any, value: float) -> np.ndarray[Any, Any]:
    array = np.zeros(shape, dtype)
    array[(2, *(1 for _ in shape[1:]))] = value
    return array


def test_good_ones_are_taken() -> None:
    found = examples(tasks={"buy": [True, False, True, False, True, False], "cart": np.ones(ROWS)})
    assert found.labels("buy").dtype == np.uint8
    assert found.labels("buy").tolist() == [1, 0, 1, 0, 1, 0]
    assert found.labels("cart").tolist() == [1] * ROWS
    assert len(found.select([0, 2])) == 2


LABELS = "task buy: expected labels of 0 or 1, got "
WHOLE = "expected whole numbers, got "
NO_NUMBER = "numbers, column 1: expected finite numbers, got NaN or an infinity"
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "floats in fields": ({"fields": np.full((ROWS, 3), 1.7)}, f"fields: {WHOLE}<f8"),
    "texts in fields": ({"fields": np.full((ROWS, 3), "a")}, f"fields: {WHOLE}<U1"),
    "a flat list of fields": ({"fields": np.zeros(ROWS, np.int32)}, "fields: expected 2 dimensions, got 1"),
    "short labels": ({"tasks": {"buy": np.zeros(4)}}, "task buy: expected 6 rows as fields have, got 4"),
    "labels of text": ({"tasks": {"buy": np.full(ROWS, "yes")}}, f"{LABELS}<U3"),
    "labels between": ({"tasks": {"buy": changed((ROWS,), float, 0.5)}}, f"{LABELS}another"),
    "a label of 2": ({"tasks": {"buy": changed((ROWS,), np.int64, 2)}}, f"{LABELS}another"),
    "a label of 256": ({"tasks": {"buy": changed((ROWS,), np.int64, 256)}}, f"{LABELS}another"),
    "a missing label": ({"tasks": {"buy": changed((ROWS,), float, np.nan)}}, f"{LABELS}another"),
    "a number that is none": ({"numbers": changed((ROWS, 2), np.float32, np.nan)}, NO_NUMBER),
    "numbers of text": ({"numbers": np.full((ROWS, 2), "a")}, "numbers: expected numbers, got <U1"),
    "few advertisers": ({"advertiser": np.zeros(3, int)}, "advertiser: expected 6 rows as fields have, got 3"),
    "few records": ({"records": np.zeros(3, np.uint64)}, "records: expected 6 rows as fields have, got 3"),
    "lengths of floats": ({"lengths": np.zeros(ROWS)}, f"lengths: {WHOLE}<f8"),
    "few sizes": ({"sizes": (5, 5)}, "sizes: expected 3 as fields has columns, got 2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_meant_is_refused_by_name(name: str) -> None:
    changes, said = WRONG[name]
    with pytest.raises(BadInput) as refusal:
        examples(**changes)
    assert str(refusal.value).startswith(said)


@pytest.mark.parametrize("value", [-1, 5])
def test_an_id_outside_its_table_is_refused_by_its_column(value: int) -> None:
    wrong = examples(fields=changed((ROWS, 3), np.int32, value))
    with pytest.raises(BadInput, match=r"fields, column 1: expected ids in 0\.\.4, got one outside"):
        wrong.check_fit(examples().settings())
    wrong = replace(examples(), sequences=np.full((ROWS, 4, 1), value, np.int16))
    with pytest.raises(BadInput, match=r"sequences, column 0: expected ids in 0\.\.4, got one outside"):
        wrong.check_fit(examples().settings())


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.float32, np.float64])
def test_numpys_numbers_are_numbers(kind: Any) -> None:
    found = expect.exact("epsilon", kind(2))
    assert (type(found.numerator), found.numerator) == (int, 2)
    assert RandomizedResponse.for_epsilon(kind(2)) == RandomizedResponse.for_epsilon(2)
    assert Budget.of(kind(2), 0) == Budget.of(2, 0)


@pytest.mark.parametrize("spelled", ["1e999999999", "1e-999999999", "1" * 5000, "1E+1000000"])
def test_a_number_that_takes_all_memory_is_refused(spelled: str) -> None:
    with pytest.raises(BadInput, match="expected epsilon to be at most 1e1000") as refusal:
        expect.exact("epsilon", spelled)
    assert len(str(refusal.value)) < 200
