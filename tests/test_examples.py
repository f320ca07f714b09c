"""The examples: each runs by itself, prints what its page shows, is short, and uses exported names alone."""

from __future__ import annotations

import ast
import runpy
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.repository import ROOT
from tests.support.shown_pages import Block, blocks_of

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LINES = range(10, 31)  # of code, blank ones and the docstring apart

each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)


def code_of(example: Path) -> str:
    """All of it but the docstring, which the page says in prose."""
    text = example.read_text()
    described = ast.parse(text).body[0]
    return "".join(text.splitlines(keepends=True)[described.end_lineno or 0 :]).lstrip("\n")


def shown(example: Path) -> tuple[Block, Block | None]:
    """The block of some page that is this example, and what the page shows below it."""
    code = code_of(example)
    for page in sorted((ROOT / "docs").glob("*.md")):
        for block, below in pairwise([*blocks_of(page.read_text()), None]):
            if block is not None and block.language == "python" and block.text == code:
                return block, below
    raise AssertionError(f"expected a page of docs/ to show {example.name} as it is, got none")


@each_example
def test_it_prints_what_its_page_shows(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, below = shown(example)
    assert below is not None
    assert below.language == "text"
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out == below.text


@each_example
def test_it_is_short_and_says_what_it_shows(example: Path) -> None:
    described = ast.get_docstring(ast.parse(example.read_text()))
    assert described is not None
    assert len(described.splitlines()) == 2
    assert sum(bool(line.strip()) for line in code_of(example).splitlines()) in LINES


@each_example
def test_it_uses_exported_names_alone(example: Path) -> None:
    tree, doors = ast.parse(example.read_text()), dict[str, ModuleType]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "tacit":
            door = import_module(str(node.module))
            for name in (alias.name for alias in node.names):
                found = getattr(door, name)
                if isinstance(found, ModuleType):
                    doors[name] = found
                else:
                    assert name in door.__all__, name
        elif isinstance(node, ast.Import):
            doors |= {each.name: import_module(each.name) for each in node.names if each.name == "tacit"}
            assert not [each.name for each in node.names if each.name.startswith("tacit.")]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in doors:
            assert node.attr in doors[node.value.id].__all__, node.attr
