"""Every module, class and function that the walk through the house names is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import tacit
import tacit_lab
from tests.support.repository import ROOT

PAGE, RECIPES = ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md"
TO_BE_MADE = re.compile(r"\b(?:NAME|FAMILY)\b")
SOURCE, LAB = Path(tacit.__file__).parent, Path(tacit_lab.__file__).parent
NAMED = re.compile(r"`([\w/]+\.py)(?:::([\w.]+))?`")
WALK = re.compile(r"^## [^\n]*: (\d+) files\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
FOLDER = re.compile(r"`([a-z_]+(?:/[a-z_]+)+)`")


@cache
def names_in(path: Path) -> frozenset[str]:
    """Top-level names of a module, and those of its classes as Class.name."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        for name in _bound(node):
            found.add(name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for inner in node.body for name in _bound(inner)}
    return frozenset(found)


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def missing(text: str) -> list[str]:
    """What a page names and the house does not have."""
    lacking = []
    for file, name in NAMED.findall(text):
        path = _place(file)
        if not path.is_file():
            lacking.append(file)
        elif name and name not in names_in(path):
            lacking.append(f"{file}::{name}")
    return lacking + [folder for folder in FOLDER.findall(text) if not _place(folder).is_dir()]


def _place(named: str) -> Path:
    """Under `src/tacit`, unless it says another place: one of the repository, or of `src/tacit_lab`."""
    if named.startswith("tacit_lab/"):
        return LAB.parent / named
    return (ROOT if named.startswith(("src/", "tests/")) else SOURCE) / named


def test_all_that_the_page_names_exists() -> None:
    text = PAGE.read_text()
    assert len(NAMED.findall(text)) > 60, "the page names its modules as `path.py::name`"
    assert missing(text) == []


def walks(text: str) -> list[tuple[int, int]]:
    """Of each walk: how many files its heading says, and how many the first cells of its table name."""
    found = []
    for stated, section in WALK.findall(text):
        cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
        found.append((int(stated), len({file for cell in cells for file, _ in NAMED.findall(cell)})))
    return found


def test_walks_are_counted_honestly() -> None:
    text = PAGE.read_text()
    found = walks(text)
    assert len(found) == 5
    assert all(stated == counted for stated, counted in found), found
    longer = text.replace(
        "| `bill/charges.py::charge` |", "| `bill/charges.py::charge`, `bill/charges.py`, `errors.py` |"
    )
    assert walks(longer)[0][1] == found[0][1] + 1


def test_all_that_the_recipes_name_exists() -> None:
    """Whoever follows one meets no file that has moved; NAME and FAMILY stand for what they will add."""
    text = RECIPES.read_text()
    assert len(NAMED.findall(text)) > 60, "recipes name their files as `path.py`"
    assert [name for name in missing(text) if not TO_BE_MADE.search(name)] == []


@pytest.mark.parametrize(
    "named",
    [
        "`gather/client/guessing.py`",
        "`gather/client/contributions.py::guess`",
        "`gather/proxy/party.py::Proxy.give`",
        "`gather/nowhere`",
    ],
)
def test_what_is_not_there_is_missed(named: str) -> None:
    assert missing(named)


def test_every_room_is_on_the_page() -> None:
    """A room that nobody walks past is one that nobody finds."""
    text = PAGE.read_text()
    places = [*SOURCE.iterdir(), *LAB.iterdir()]
    rooms = {path.name.removesuffix(".py") for path in places if not path.name.startswith("_")}
    unnamed = {room for room in rooms - {"py.typed"} if not re.search(rf"\b{room}\b", text)}
    assert unnamed == set()
