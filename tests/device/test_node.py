"""The device client for browsers: its tests in Node, its size, and that it stands alone."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tacit.services.page.device_files import read_client
from tests.support.repository import ROOT

HERE = Path(__file__).parent
TESTS = sorted(path.name for path in HERE.glob("*.test.mjs"))
CLIENT = sorted((ROOT / "device").glob("*.js"))
MOST_ZIPPED = 26_400
"""The aim is 12 KB, which `tacit bench device` says is missed: here it is held to grow no further."""
OLDEST_NODE = 20
SECONDS = 300
SKIPPED = re.compile(r" # SKIP (.+)$", re.MULTILINE)
SUMMARY = re.compile(r"^# (pass|fail|skipped) (\d+)$", re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
IMPORT = re.compile(r"""\b(?:from|import)\s*\(?\s*(["'`])(.*?)\1""")
FORBIDDEN = {
    "code from a text": r"\beval\b|\bnew Function\b|\bset(?:Timeout|Interval)\(\s*[\"'`]",
    "markup from a text": r"\b(?:inner|outer)HTML\b|\binsertAdjacentHTML\b|\bdocument\.write",
    "randomness that can be guessed": r"\bMath\.random\b",
    "an absolute address": r"\b\w+://\w|[\"'`]//\w",
}


@cache
def node() -> str | None:
    """Node, where it is recent enough."""
    found = shutil.which("node")
    if found is None:
        return None
    said = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    return found if int(said.removeprefix("v").split(".")[0]) >= OLDEST_NODE else None


@pytest.mark.parametrize("name", TESTS)
def test_in_node(name: str) -> None:
    program = node()
    if program is None:
        pytest.skip(f"NODE {OLDEST_NODE} OR NEWER IS NOT INSTALLED: {name} was not run")
    command = [program, "--test", "--test-reporter=tap", f"--test-timeout={1000 * SECONDS}", str(HERE / name)]
    found = subprocess.run(
        command, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS + 30
    )
    last = "\n".join(found.stdout.splitlines()[-60:])
    counts = {kind: int(count) for kind, count in SUMMARY.findall(found.stdout)}
    assert found.returncode == 0, f"node --test {name}:\n{_failures(found.stdout)}\n...\n{last}"
    assert counts["fail"] == 0, last
    if not counts["pass"]:
        assert counts["skipped"], f"expected tests in {name}, got none"
        pytest.skip(SKIPPED.findall(found.stdout)[0])


def _failures(said: str) -> str:
    return "\n".join(line.strip() for line in said.splitlines() if re.match(r"\s*(not ok|error:)", line))


def test_the_client_is_small() -> None:
    served = {name: source for name, source in read_client().items() if "/" not in name}
    sizes = {name: len(gzip.compress(source, 9)) for name, source in served.items()}
    together = len(gzip.compress(b"".join(served[path.name] for path in CLIENT), 9))
    assert together <= MOST_ZIPPED, f"expected at most {MOST_ZIPPED} bytes zipped, got {together}: {sizes}"


@pytest.mark.parametrize("path", CLIENT, ids=lambda path: path.name)
def test_a_module_imports_its_neighbours_alone(path: Path) -> None:
    neighbours = {f"./{each.name}" for each in CLIENT}
    for _, named in IMPORT.findall(COMMENT.sub("", path.read_text())):
        assert named in neighbours, f"{path.name} imports {named}"


@pytest.mark.parametrize("kind", FORBIDDEN)
@pytest.mark.parametrize("path", CLIENT, ids=lambda path: path.name)
def test_a_module_has_none_of(kind: str, path: Path) -> None:
    found = re.search(FORBIDDEN[kind], path.read_text())
    assert found is None, f"{path.name}: {kind}: {found and found.group()}"


def test_what_is_forbidden_is_found() -> None:
    for kind, text in {
        "code from a text": "eval('1')",
        "markup from a text": "element.innerHTML = ad",
        "randomness that can be guessed": "Math.random()",
        "an absolute address": "fetch('https://a.example/x')",
    }.items():
        assert re.search(FORBIDDEN[kind], text)
    assert IMPORT.findall("import { a } from 'b'; await import(\"./c.js\"); import `d`;") == [
        ("'", "b"), ('"', "./c.js"), ("`", "d"),
    ]  # fmt: skip
