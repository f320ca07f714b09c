"""What a study leaves behind: plain files that say what made them."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit import __version__
from tacit.errors import BadInput
from tacit_lab.studies.results import StudySettings, read_table, write_result

SETTINGS = StudySettings(
    name="label-dp",
    data="criteo-attribution-like, 400k rows",
    synthetic=True,
    seeds=(1, 2, 3),
    unit="user",
    relation="replace-label",
    command="tacit reproduce label-dp",
    parameters={"epsilons": (1, 4.5), "rows": 400_000},
)
TABLE: dict[str, list[Any]] = {
    "mechanism": ["RR", "a, b\n\"c\"", None],
    "epsilon": [1, 4, None],
    "loss": np.array([0.1, 1 / 3, 1e-300]).tolist(),
}  # fmt: skip


def draw(path: Path) -> None:
    for ending in ("svg", "png"):
        path.with_name(f"{path.name}.{ending}").write_text("drawn")


def test_files_say_what_made_them(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    write_result(folder, SETTINGS, TABLE, minutes=12.34, draw=draw)
    assert sorted(place.name for place in folder.iterdir()) == [
        "label-dp.csv", "label-dp.json", "label-dp.png", "label-dp.svg",
    ]  # fmt: skip
    record = json.loads((folder / "label-dp.json").read_text())
    assert record["synthetic"] is True
    assert record["seeds"] == [1, 2, 3]
    assert record["parameters"] == {"epsilons": [1, 4.5], "rows": 400_000}
    assert (record["unit"], record["relation"], record["code_version"]) == (
        "user",
        "replace-label",
        __version__,
    )
    assert record["minutes"] == 12.3
    assert (folder / "label-dp.csv").read_text().splitlines()[:2] == ["mechanism,epsilon,loss", "RR,1,0.1"]
    assert read_table(folder, "label-dp") == TABLE
    assert record["table_sha256"] == sha256((folder / "label-dp.csv").read_bytes()).hexdigest()
    assert record["figures"] == dict.fromkeys(("label-dp.png", "label-dp.svg"), sha256(b"drawn").hexdigest())


def test_the_subtitle_names_unit_relation_and_data() -> None:
    assert SETTINGS.words == "Per user, replace-label; synthetic, criteo-attribution-like, 400k rows, 3 seeds"
    assert replace(SETTINGS, synthetic=False, seeds=(1,)).words.endswith(
        "replace-label; criteo-attribution-like, 400k rows, 1 seed"
    )


def test_an_interrupted_study_has_no_record_though_an_earlier_one_had(tmp_path: Path) -> None:
    def interrupted(_: Path) -> None:
        raise KeyboardInterrupt

    write_result(tmp_path, SETTINGS, TABLE, minutes=1, draw=draw)
    with pytest.raises(KeyboardInterrupt):
        write_result(tmp_path, SETTINGS, TABLE, minutes=1, draw=interrupted)
    assert not (tmp_path / "label-dp.json").exists()


@given(st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.integers()), min_size=1))
def test_numbers_come_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, int]]
) -> None:
    folder = tmp_path_factory.getbasetemp() / "numbers"
    table: dict[str, list[Any]] = {"value": [value for value, _ in rows], "count": [count for _, count in rows]}
    write_result(folder, SETTINGS, table, minutes=0)
    assert read_table(folder, "label-dp") == table


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({}, "expected columns of one length, got no columns"),
        ({"a": [1], "b": [1, 2]}, r"expected columns of one length, got \[1, 2\]"),
        ({"a": [float("nan")]}, "study label-dp, column a: expected finite numbers"),
        ({"a": [np.float32("inf")]}, "study label-dp, column a: expected finite numbers"),
        ({"a": [[1]]}, "study label-dp, column a: expected numbers and texts, got list"),
    ],
)
def test_tables_that_are_not_plain_are_refused_before_anything_is_written(
    tmp_path: Path, table: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        write_result(tmp_path, SETTINGS, table, minutes=1)
    assert not list(tmp_path.iterdir())


def test_settings_that_cannot_be_kept_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"small letters, digits and hyphens, got '\.\./escape'"):
        replace(SETTINGS, name="../escape")
    for value in (float("nan"), np.zeros(2), {1, 2}):
        with pytest.raises(BadInput, match="parameters that JSON can hold"):
            replace(SETTINGS, parameters={"value": value})
    with pytest.raises(BadInput, match=r"nothing.csv: expected a study's table, got none"):
        read_table(tmp_path, "nothing")
