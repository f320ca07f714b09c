"""The page beside other tools shows the programs that were measured, and counts their lines as they are."""

from __future__ import annotations

import ast
import re
import runpy
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.repository import ROOT
from tests.support.shown_pages import blocks_of

FOLDER = ROOT / "docs" / "comparison"
PAGE = (ROOT / "docs" / "comparison.md").read_text()
TOOLS = ("tacit", "opacus", "diffprivlib", "opendp")
JOBS = ("logistic", "schedule", "mlp", "choice", "histogram")
CELL = re.compile(r"(\d+) lines, ([\d.]+) s, .+|no such thing")


def bodies(tool: str) -> dict[str, str]:
    """The code of each job in a tool, below its docstring."""
    text = (FOLDER / f"{tool}_jobs.py").read_text()
    lines = text.splitlines(keepends=True)
    jobs = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return {job.name: textwrap.dedent("".join(lines[job.body[0].end_lineno : job.end_lineno])) for job in jobs}


def code_lines(code: str) -> list[str]:
    """Those that are not blank: how many of these lie between two functions depends on where they stand."""
    return [line for line in code.splitlines() if line.strip()]


def test_the_page_shows_every_program_and_no_other() -> None:
    shown = [code_lines(block.text) for block in blocks_of(PAGE) if block.language == "py"]
    measured = {tool: bodies(tool) for tool in TOOLS}
    assert shown == [code_lines(measured[tool][job]) for job in JOBS for tool in TOOLS if job in measured[tool]]


def test_code_that_is_not_run_stands_on_this_page_alone() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md") if "```py\n" in page.read_text()}
    assert pages == {"comparison.md"}


def test_the_table_counts_lines_as_they_are() -> None:
    rows = [line.split(" | ")[1:] for line in PAGE.splitlines() if line.startswith("| [")]
    assert len(rows) == len(JOBS)
    for job, row in zip(JOBS, rows, strict=True):
        for tool, cell in zip(TOOLS, row, strict=True):
            found = CELL.fullmatch(cell.removesuffix(" |"))
            assert found, cell
            code = bodies(tool).get(job)
            count = None if code is None else str(len(code_lines(code)))
            assert found[1] == count, (job, tool)


@pytest.mark.filterwarnings(
    "ignore"
)  # as `report` runs them: what a guess of roles warns of is on another page
@pytest.mark.parametrize("job", [job for job in JOBS if job != "mlp"])
def test_our_own_programs_run(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    jobs: dict[str, Callable[[], Any]] = runpy.run_path(str(FOLDER / "tacit_jobs.py"))
    assert isinstance(jobs[job](), str)
