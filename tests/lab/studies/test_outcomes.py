"""A study is run once: again only when something changed that its figures may depend on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import BadInput
from tacit_lab.studies import digests, study
from tacit_lab.studies.results import ResultFiles, StudySettings, complete_result, numeric_columns, write_result
from tacit_lab.studies.study import StudyScale
from tests.support.tiny_studies import Tiny, doctored, retabled
from tests.support.tiny_studies import tiny as tiny  # a fixture

NAME = "choice-tiny"


def test_a_second_request_reads_back_what_the_first_left(tiny: Tiny) -> None:
    first = tiny.study(NAME).outcome(tiny.asked())
    second = tiny.study(NAME).outcome(tiny.asked())
    assert len(tiny.first.runs) == 1
    assert (first.kept, second.kept) == (False, True)
    assert [list(row) for row in first.rows] == second.rows
    assert (list(first.columns), first.note, list(first.files)) == (second.columns, second.note, second.files)
    assert list(first.findings) == list(second.findings) == tiny.study(NAME).findings(tiny.out)
    assert [each.found for each in second.findings] == ["holds", "fails", "undecided", "holds"]


def edited(tiny: Tiny) -> None:
    place = tiny.out / f"{NAME}.csv"
    place.write_text(place.read_text().replace("2.0", "9.0"))


def without_figure(tiny: Tiny) -> None:
    (tiny.out / f"{NAME}.svg").unlink()


def another_figure(tiny: Tiny) -> None:
    place = tiny.out / f"{NAME}.svg"
    place.write_text(place.read_text().replace("synthetic", "published"))


def empty_figure(tiny: Tiny) -> None:
    (tiny.out / f"{NAME}.png").write_bytes(b"cut")


def other_settings(tiny: Tiny) -> None:
    place = tiny.out / f"{NAME}.json"
    place.write_text(place.read_text().replace('"synthetic": true', '"synthetic": false'))


def no_settings(tiny: Tiny) -> None:
    (tiny.out / f"{NAME}.json").write_text("[]")


def nothing_to_show(tiny: Tiny) -> None:
    doctored(tiny.out, NAME, shown={"note": "", "columns": []})


def ragged(tiny: Tiny) -> None:
    retabled(tiny.out, NAME, b"market,gain\nmarket 0\n")


def not_text(tiny: Tiny) -> None:
    retabled(tiny.out, NAME, b"market,gain\nm\xfcnchen,1.0\n")


def interrupted(tiny: Tiny) -> None:
    (tiny.out / f"{NAME}.json").unlink()


def not_completed(tiny: Tiny) -> None:
    place = tiny.out / f"{NAME}.json"
    assert "fingerprint" in json.loads(place.read_text())
    doctored(tiny.out, NAME, fingerprint=None)


CHANGES = [
    edited,
    without_figure,
    another_figure,
    empty_figure,
    other_settings,
    no_settings,
    nothing_to_show,
    ragged,
    not_text,
    interrupted,
    not_completed,
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_whole_is_made_again(change: Callable[[Tiny], None], tiny: Tiny) -> None:
    tiny.study(NAME).outcome(tiny.asked())
    change(tiny)
    assert not tiny.study(NAME).outcome(tiny.asked()).kept
    assert tiny.study(NAME).outcome(tiny.asked()).kept
    assert len(tiny.first.runs) == 2


def test_another_scale_or_number_of_seeds_is_another_request(tiny: Tiny) -> None:
    for asked in (tiny.asked(), tiny.asked(seeds=3), tiny.asked(StudyScale.FULL), tiny.asked()):
        assert not tiny.study(NAME).outcome(asked).kept


def test_data_counts_by_its_files_but_not_by_what_the_study_leaves_there(tiny: Tiny, tmp_path: Path) -> None:
    file = tmp_path / "log.tsv"
    file.write_text("a\n")
    asked = tiny.asked(data=tmp_path)
    assert tiny.out.parent == tmp_path, "results may lie among the data"
    assert not tiny.study(NAME).outcome(asked).kept
    assert tiny.study(NAME).outcome(asked).kept
    os.utime(file, ns=(1, 1))
    assert not tiny.study(NAME).outcome(asked).kept
    (tmp_path / "more.tsv").write_text("b\n")
    assert not tiny.study(NAME).outcome(asked).kept
    assert not tiny.study(NAME).outcome(tiny.asked()).kept, "made-up data is other data"


def test_data_that_lies_among_the_results_counts_too(tiny: Tiny) -> None:
    log = tiny.out / "logs" / "log.tsv"
    log.parent.mkdir(parents=True)
    log.write_text("a\n")
    asked = tiny.asked(data=log.parent)
    assert not tiny.study(NAME).outcome(asked).kept
    assert tiny.study(NAME).outcome(asked).kept
    log.write_text("a\nb\n")
    assert not tiny.study(NAME).outcome(asked).kept


def test_changed_code_counts(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.study(NAME).outcome(tiny.asked())
    monkeypatch.setattr(digests, "code_digest", lambda packages: f"edited {packages}")
    assert not tiny.study(NAME).outcome(tiny.asked()).kept


def test_the_code_of_a_study_is_its_family_and_what_that_draws_on() -> None:
    packages = digests._studies("tacit_lab.studies.gather.noise")
    assert {f"tacit_lab/studies/{each}" for each in ("gather", "contexts", "results")} <= set(packages)
    assert not {f"tacit_lab/studies/{each}" for each in ("choice", "book", "registry")} & set(packages), (
        "these change none of it"
    )
    assert {"tacit_lab/studies/choice", "tacit_lab/studies/cleanroom"} <= set(
        digests._studies("made_up.elsewhere")
    )


def test_the_modules_that_only_show_are_there() -> None:
    places = {place.stem for place in Path(study.__file__).parent.glob("*.py")}
    assert places >= digests.SHOWING, "a module that was renamed would count again, unseen"


def test_what_was_shown_is_kept_beside_the_settings(tiny: Tiny) -> None:
    tiny.study(NAME).outcome(tiny.asked(StudyScale.TOY))
    kept = ResultFiles.of(tiny.out, NAME)
    assert kept.settings["shown"]["columns"] == ["market", "gain"]
    assert kept.words == "synthetic, a log of 9 rows, toy scale, 2 seeds"
    assert {each.why for each in tiny.study(NAME).findings(tiny.out)} == {"toy scale decides nothing"}
    with pytest.raises(BadInput, match=r"other\.json: expected a finished study"):
        complete_result(tiny.out, "other", more=1)


@pytest.mark.parametrize(
    ("written", "got"),
    [
        (b"[]", "expected a finished study's settings, got a list"),
        (b"null", "expected a finished study's settings, got null"),
        (b"{", "expected a finished study's settings, got what cannot be read as JSON"),
        (b"[" * 100_000, "expected a finished study's settings, got what cannot be read as JSON"),
        (b'{"name": "\xfc"}', "expected a finished study's settings, got what cannot be read as JSON"),
        (b'{"name": "\\ud800"}', "expected a finished study's settings, got what cannot be read as JSON"),
        (b"{}", "expected the key name, got none"),
    ],
)
def test_a_record_that_is_none_is_refused_in_one_line(written: bytes, got: str, tiny: Tiny) -> None:
    tiny.study(NAME).outcome(tiny.asked())
    place = tiny.out / f"{NAME}.json"
    place.write_bytes(written)
    refuses(tiny, f"{place}: {got}")


def refuses(tiny: Tiny, words: str) -> None:
    with pytest.raises(BadInput) as refusal:
        ResultFiles.of(tiny.out, NAME)
    assert str(refusal.value) == words


@pytest.mark.parametrize("key", ["seeds", "parameters", "synthetic", "data", "command", "minutes", "figures"])
def test_a_record_without_a_key_is_refused_by_its_name(key: str, tiny: Tiny) -> None:
    tiny.study(NAME).outcome(tiny.asked())
    doctored(tiny.out, NAME, **{key: None})
    refuses(tiny, f"{tiny.out / NAME}.json: expected the key {key}, got none")


SHOWN = "expected note, files, columns and rows of as many texts"
HALF_SHOWN: list[Any] = [
    [],
    {"note": "", "columns": [], "rows": []},
    {"note": "", "columns": [], "files": []},
    {"note": "", "columns": ["a"], "rows": [["1", "2"]], "files": []},
    {"note": "", "columns": ["a"], "rows": [[1]], "files": []},
    {"columns": ["a"], "rows": [], "files": []},
]


@pytest.mark.parametrize(
    ("changes", "got"),
    [
        ({"seeds": 3}, ", key seeds: expected a list, got a number"),
        ({"synthetic": "no"}, ", key synthetic: expected true or false, got a text"),
        ({"minutes": {}}, ", key minutes: expected a number, got an object"),
        ({"parameters": {}}, ", key parameters: expected a scale among them, got none"),
        ({"name": "other"}, f", key name: expected {NAME}, got 'other'"),
        *(({"shown": shown}, f", key shown: {SHOWN}, got something else") for shown in HALF_SHOWN),
    ],
)
def test_a_record_of_other_kinds_is_refused_by_the_key(changes: dict[str, Any], got: str, tiny: Tiny) -> None:
    tiny.study(NAME).outcome(tiny.asked())
    doctored(tiny.out, NAME, **changes)
    refuses(tiny, f"{tiny.out / NAME}.json{got}")


@pytest.mark.parametrize(
    ("table", "got"),
    [
        (b"", ": expected a study's table, got none"),
        (b"market,gain\nm\xfcnchen,1.0\n", ": expected a study's table in UTF-8, got other bytes"),
        (b"market,gain\nmarket 0,1.0\nmarket 1\n", ", row 2: expected 2 cells, got 1"),
        (b"market,gain\nmarket 0,1.0,2.0\n", ", row 1: expected 2 cells, got 3"),
        (b"gain,gain\n1.0,2.0\n", ": expected each column once, got gain, gain"),
        (b"gain\n" + b"1" * 200_000, ": expected a study's table, got field larger than field limit (131072)"),
    ],
    ids=["empty", "bytes", "short row", "long row", "twice", "long cell"],
)
def test_a_table_that_is_none_is_refused_in_one_line(table: bytes, got: str, tiny: Tiny) -> None:
    tiny.study(NAME).outcome(tiny.asked())
    retabled(tiny.out, NAME, table)
    refuses(tiny, f"{tiny.out / NAME}.csv{got}")


@pytest.mark.parametrize("key", ["seeds", "synthetic", "data", "command", "parameters", "shown", "fingerprint"])
def test_settings_that_were_edited_are_refused(key: str, tiny: Tiny) -> None:
    tiny.study(NAME).outcome(tiny.asked())
    place = tiny.out / f"{NAME}.json"
    record = json.loads(place.read_text())
    assert ResultFiles.of(tiny.out, NAME).settings == record
    place.write_text(json.dumps(record, sort_keys=True, indent=7))
    assert ResultFiles.of(tiny.out, NAME).settings == record, "its spelling says nothing"
    other = _changed(record[key])
    place.write_text(json.dumps({**record, key: other}))
    refuses(tiny, f"{place}: expected the settings that its record_sha256 describes, got others")


def _changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, dict):
        return {key: f"{each} or so" if isinstance(each, str) else each for key, each in value.items()}
    return [*value, 9] if isinstance(value, list) else f"{value} or so"


def test_what_json_spells_otherwise_is_not_taken_for_edited(tmp_path: Path) -> None:
    settings = StudySettings(
        "name",
        data="ä, €",
        synthetic=True,
        seeds=(1,),
        unit="user",
        relation="replaced",
        command="tacit",
        parameters={"scale": "toy", "by number": {10: 0.1, 9: (1, 2)}, "ε": 1e-300},
    )
    write_result(tmp_path, settings, {"a": ["ü"]}, minutes=0.1)
    complete_result(tmp_path, "name", shown={"note": "", "files": (), "columns": ("a",), "rows": [("ü",)]})
    assert ResultFiles.of(tmp_path, "name").table == {"a": ["ü"]}


def test_columns_of_figures_are_told_from_words() -> None:
    rows = [("RR", "1.0 ± 0.1", "", "3 of 4"), ("SNM", "-2", ".5", "none")]
    assert numeric_columns(("method", "loss", "gain", "won"), rows) == ["loss", "gain"]
