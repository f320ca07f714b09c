"""The figures of the page are those of the recorded studies, and of a run that is the same every time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tacit_lab.studies.claims import RECORDED
from tacit_lab.studies.page.__main__ import FILES, FOLDER
from tacit_lab.studies.results import ResultFiles

README = Path(__file__).parents[3] / "README.md"


def page_file(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", FILES)
def test_the_page_shows_what_the_studies_found(name: str) -> None:
    assert page_file(name) == json.loads(json.dumps(FILES[name]())), (
        f"{name} is not what the recorded tables say: python -m tacit_lab.studies.page"
    )


def test_nothing_else_lies_there() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(FILES)


def test_every_chart_says_what_it_is_of() -> None:
    for chart in [*page_file("frontier.json")["charts"], page_file("cleanroom.json")["reader"]]:
        assert chart["title"]
        assert chart["axis"]
        for source in chart["sources"]:
            told = ResultFiles.of(RECORDED, source["study"]).settings
            assert source["data"].startswith("synthetic, ")
            assert (source["unit"], source["relation"]) == (told["unit"], told["relation"])
        for line in chart["lines"]:
            assert {point["epsilon"] for point in line["points"]} <= set(chart["ticks"]), line["name"]
            assert all(point["low"] <= point["value"] <= point["high"] for point in line["points"])


def test_figures_are_those_that_the_studies_show_to_people() -> None:
    """By another way than they were made: from the rows that a study wrote down in words."""
    training, _, choice, statistics = page_file("frontier.json")["charts"]
    shown = {
        (row[1], row[2]): float(row[3].split()[0])
        for row in ResultFiles.of(RECORDED, "semi-sensitive-display").settings["shown"]["rows"]
        if row[0] == "rare values tell much"
    }
    for line in training["lines"]:
        for point in line["points"]:
            assert point["value"] == pytest.approx(shown[str(point["epsilon"]), line["name"]], abs=0.006)
    record = ResultFiles.of(RECORDED, "choice-frontier").settings["shown"]
    by_epsilon = {row[1]: dict(zip(record["columns"], row, strict=True)) for row in record["rows"][-3:]}
    lines = {line["name"]: line["points"] for line in choice["lines"]}
    columns = {"tacit": "trunc, default prior", "tacit, learnt from reports": "trunc, from reports"}
    for name, column in columns.items():
        points = [each for each in lines[name] if f"{each['epsilon']:g}" in by_epsilon]
        assert len(points) == 3
        for point in points:
            told = float(by_epsilon[f"{point['epsilon']:g}"][column])
            assert point["value"] == pytest.approx(told, abs=0.0006), (name, point["epsilon"])
    assert statistics["published"] == [
        {"name": "exact counts", "mechanism": "non-private", "epsilon": None, "value": 0.3},
        {"name": "noise as published", "mechanism": "noisy counts", "epsilon": 1, "value": 0.1},
    ]


def test_tacit_as_it_comes_keeps_what_the_readme_says() -> None:
    """Rows of the README's table that the page has, too: epsilon, tacit's default, learnt from reports."""
    told = re.findall(r"^\| (\d) \| (\d+)% \| (\d+)% \|", README.read_text(encoding="utf-8"), re.MULTILINE)
    lines = {each["name"]: each["points"] for each in page_file("frontier.json")["charts"][2]["lines"]}
    assert len(told) >= 3
    for epsilon, *shares in told:
        for name, share in zip(("tacit", "tacit, learnt from reports"), shares, strict=True):
            [found] = [each["value"] for each in lines[name] if each["epsilon"] == int(epsilon)]
            assert f"{found:.0%}" == f"{share}%", (name, epsilon)


def test_no_label_is_in_the_run_s_messages_and_every_byte_is_counted() -> None:
    run = page_file("cleanroom.json")["run"]
    steps = [each for each in run["messages"] if each["what"].startswith("step")]
    assert len(steps) == 3 * run["steps"]
    sums = [each["bytes"] for each in steps if each["from"] == "room"]
    assert all(4 * run["parameters"] < size < 4 * run["parameters"] + 1_000 for size in sums), (
        "a sum and a receipt"
    )
    assert run["statement"] == "What was released is (3, 0)-differentially private per impression."
