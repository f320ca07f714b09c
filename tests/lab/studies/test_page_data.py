"""The figures of the page are those of the recorded studies, and of a run that is the same every time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tacit_lab.studies.claims import RECORDED
from tacit_lab.studies.page.__main__ import FILES, FOLDER
from tacit_lab.studies.results import ResultFiles


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
    [ours] = [line for line in choice["lines"] if line["name"] == "tacit"]
    for point in ours["points"]:
        if f"{point['epsilon']:g}" in by_epsilon:
            told = float(by_epsilon[f"{point['epsilon']:g}"]["trunc, from reports"])
            assert point["value"] == pytest.approx(told, abs=0.0006)
    assert statistics["published"] == [
        {"name": "exact counts", "mechanism": "non-private", "epsilon": None, "value": 0.3},
        {"name": "noise as published", "mechanism": "noisy counts", "epsilon": 1, "value": 0.1},
    ]


def test_no_label_is_in_the_run_s_messages_and_every_byte_is_counted() -> None:
    run = page_file("cleanroom.json")["run"]
    steps = [each for each in run["messages"] if each["what"].startswith("step")]
    assert len(steps) == 3 * run["steps"]
    sums = [each["bytes"] for each in steps if each["from"] == "room"]
    assert all(4 * run["parameters"] < size < 4 * run["parameters"] + 1_000 for size in sums), (
        "a sum and a receipt"
    )
    assert run["statement"] == "What was released is (3, 0)-differentially private per impression."
