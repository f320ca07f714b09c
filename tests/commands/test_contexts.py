"""`tacit contexts`: levels listed, a moment shown level by level, one line for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tacit.cli import main
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.device_copy import hierarchy_as_json
from tacit.schema.contexts.hierarchy import Lattice, load_hierarchy
from tacit.schema.contexts.tree import Tree

HIERARCHY = """
[[attribute]]
name = "place"
decimals = ["exact", 2, 1]
[[attribute]]
name = "likes"
paths = ["Sport > Yoga", "Sport > Running", "Eating > Lunch"]
most = 2
[[attribute]]
name = "activity"
paths = ["Sport > Yoga", "Eating > Lunch"]
"""
STEPS = "[sequence]\nsteps = [[0, 0, 0], [1, 1, 0], [2, 1, 1]]\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    file = tmp_path / "contexts.toml"
    file.write_text(HIERARCHY + STEPS)
    return file


def test_levels_are_listed_with_the_root_last(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contexts", str(place)]) == 0
    shown = capsys.readouterr().out
    assert "a sequence of 4 levels" in shown
    assert [line.split()[0] for line in shown.splitlines() if "(" in line and "," in line.split()[0]] == [
        "(0,0,0)", "(1,1,0)", "(2,1,1)", "(3,2,2)",
    ]  # fmt: skip


def test_every_level_tells_less(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            ["contexts", str(place), "activity=Yoga", "place=37.7596,-122.4269", "likes=Yoga, Lunch", "--json"]
        )
        == 0
    )
    levels = json.loads(capsys.readouterr().out)["levels"]
    assert [each["tells"] for each in levels] == [
        "place 37.7596,-122.4269 · likes Lunch + Yoga · activity Yoga",
        "place 37.75,-122.43 · likes Eating + Sport · activity Yoga",
        "place 37.7,-122.5 · likes Eating + Sport · activity Sport",
        "anything",
    ]
    assert levels[0]["parents"] == [[1, 1, 0]]
    assert levels[-1]["parents"] == []


def test_a_lattice_has_every_combination(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lattice.toml"
    file.write_text(HIERARCHY + "[lattice]\n")
    assert main(["contexts", str(file), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["levels"]) == 4 * 3 * 3


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["place=1,2", "likes=Yoga"], "activity: expected a value, as activity=VALUE, got none"),
        (["place=1,2", "place=1,3"], "place: expected one value, got two"),
        (["1,2"], "expected NAME=VALUE with a name among place, likes, activity, got another"),
        (["where=91,2"], "expected NAME=VALUE with a name among place, likes, activity, got another"),
        (["place=here", "likes=Yoga", "activity=Yoga"], "place: expected LATITUDE,LONGITUDE"),
        (["place=91,2", "likes=Yoga", "activity=Yoga"], "place: expected"),
        (["place=1,2", "likes=Yoga,Lunch,Running", "activity=Yoga"], "likes: expected at most 2 values, got 3"),
        (["place=1,2", "likes=Yoga", "activity=Chess"], "activity: expected a node of its tree"),
    ],
)
def test_a_wrong_moment_is_refused_without_repeating_it(
    place: Path, values: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["contexts", str(place), *values]) == 2
    refusal = capsys.readouterr().err
    assert said in refusal
    assert refusal.count("\n") == 1
    assert "Chess" not in refusal
    assert "91" not in refusal


def test_branches_of_unequal_length_are_told_by_depth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ragged.toml"
    paths = 'paths = ["Health > Clinic", "Health > Shops > Optician"]'
    file.write_text(f'[[attribute]]\nname = "where"\n{paths}\n[lattice]\n')
    told = {}
    for value in ("Clinic", "Optician"):
        assert main(["contexts", str(file), f"where={value}", "--json"]) == 0
        told[value] = [each["tells"] for each in json.loads(capsys.readouterr().out)["levels"]]
    assert told == {
        "Clinic": ["where Clinic", "where Clinic", "where Health", "anything"],
        "Optician": ["where Optician", "where Shops", "where Health", "anything"],
    }


def test_every_attribute_reads_its_own_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kind that is new to the command is no point."""

    class Hour(Steps):
        def parse(self, text: str) -> str:
            return "Night" if int(text) < 6 else "Day"

    hierarchy = Lattice([Hour("hour", Tree.of_paths(["Night", "Day"]))])
    monkeypatch.setattr("tacit.schema.contexts.hierarchy.load_hierarchy", lambda _: hierarchy)
    assert main(["contexts", "any.toml", "hour=23", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["levels"][0]["tells"] == "hour Day"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[attribute]]\nname = "a"\nparent = { x = "y", y = "x" }\n', "x"),
        ('[[attribute]]\nname = "a"\nparent = { All = "", x = "z" }\n', "z"),
        ('[[attribute]]\nname = "a"\npath = ["x"]\n', "paths"),
    ],
)
def test_a_wrong_file_is_refused_by_the_node_or_key(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text + "[sequence]\nsteps = [[0]]\n")
    assert main(["contexts", str(file)]) == 2
    refusal = capsys.readouterr().err
    assert said in refusal
    assert str(file) in refusal
    assert refusal.count("\n") == 1


def test_devices_are_given_the_same_hierarchy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "contexts.toml"
    file.write_text('[[attribute]]\nname = "query"\npaths = ["Food > Tea"]\n[sequence]\nsteps = [[0], [1]]\n')
    assert main(["contexts", str(file), "--device"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record == hierarchy_as_json(load_hierarchy(file))
    assert record["levels"] == [[0], [1], [2]]
