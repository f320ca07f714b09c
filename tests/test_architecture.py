"""The house rules, held by an AST walk: imports go down only, and the maths is pure."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import tacit

ROOT = Path(tacit.__file__).parent

# Who may import whom, by room, from the ground up; rooms that are still to be built have their line already.
# A room may always import itself.
GROUND = frozenset({"errors", "expect", "toml", "records", "parquet", "private"})
MATHS = GROUND | {"schema", "privacy", "kernels", "entropy"}
STAGES = frozenset({"data", "gather", "train", "cleanroom", "deliver", "bill"})
WHOLE = MATHS | STAGES | {"pipeline", "town", "store"}
MAY_IMPORT = {
    "errors": frozenset({"privacy"}),  # for type hints only; held by a test below
    "expect": frozenset({"errors"}),
    "toml": frozenset({"errors"}),
    "records": frozenset({"errors"}),
    "parquet": frozenset({"errors"}),
    "private": frozenset(),
    "threads": frozenset(),
    "kernels": frozenset({"errors"}),
    "entropy": GROUND | {"kernels"},
    "schema": GROUND,
    "privacy": GROUND | {"schema", "kernels"},
    "data": MATHS,
    "gather": MATHS,
    "train": MATHS | {"data"},
    "cleanroom": MATHS | {"data", "train"},
    "deliver": MATHS,
    "bill": MATHS,
    "store": MATHS | STAGES,
    "pages": frozenset({"errors", "expect"}),
    "town": MATHS | STAGES,
    "pipeline": MATHS | STAGES | {"town"},
    "services": WHOLE,
    "studies": WHOLE | {"pages"},
    "bench": WHOLE | {"services"},
    "commands": WHOLE | {"pages", "services", "studies", "bench", "threads"},
    "cli": WHOLE | {"pages", "services", "studies", "bench", "commands", "threads"},
}

# What only some rooms may import.
RESERVED = {
    "torch": {"train", "cleanroom", "bench"},
    "sqlalchemy": {"store"},
    "sqlite3": {"store"},
    "psycopg": {"store"},
    "starlette": {"services"},
    "fastapi": {"services"},
    "uvicorn": {"services"},
    "httpx": {"services"},
    "msgpack": {"gather", "services"},
    "grpc": {"services"},
    "ray": {"studies", "services", "commands"},
    "random": {"bench", "studies"},
    "secrets": {"entropy"},
}

TOLD = frozenset({"services", "threads"})
"""Rooms that may read environment variables."""

# The maths has no clock, no files, no network and no randomness of its own.
IMPURE = {
    "os", "time", "random", "secrets", "socket", "logging", "pathlib", "torch", "datetime", "subprocess",
    "threading", "multiprocessing", "tempfile", "shutil", "uuid", "sys", "io", "urllib", "http", "asyncio",
    "ctypes", "importlib", "glob",
}  # fmt: skip


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        relative = path.relative_to(ROOT)
        yield relative.parts[0].removesuffix(".py"), path


def parsed(source: str) -> list[ast.AST]:
    return [*ast.walk(ast.parse(source))]


def imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def violations(room: str, nodes: list[ast.AST]) -> list[str]:
    found = []
    for name in imported(nodes):
        parts = name.split(".")
        if parts[0] == "tacit" and len(parts) > 1 and not parts[1].startswith("__"):
            if parts[1] not in MAY_IMPORT[room] | {room}:
                found.append(f"{room} imports tacit.{parts[1]}")
        elif room not in RESERVED.get(parts[0], {room}):
            found.append(f"{room} imports {parts[0]}")
        if room == "privacy" and parts[0] in IMPURE:
            found.append(f"privacy imports {parts[0]}, which is not pure")
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv") and room not in TOLD:
            found.append(f"{room} reads environment variables")
        if room in ("privacy", "kernels", "entropy"):
            if isinstance(node, ast.Attribute) and node.attr == "random":
                found.append(f"{room} uses NumPy's random numbers")
            if isinstance(node, ast.Name) and node.id in ("open", "__import__") and room == "privacy":
                found.append(f"privacy uses {node.id}")
    return found


def test_every_room_has_its_line() -> None:
    assert {room for room, _ in modules()} - MAY_IMPORT.keys() == {"__init__"}


def test_imports_go_down_only() -> None:
    found = {
        str(path.relative_to(ROOT)): wrong
        for room, path in modules()
        if room in MAY_IMPORT and (wrong := violations(room, parsed(path.read_text())))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("privacy", "import os"),
        ("privacy", "from random import random"),
        ("privacy", "from tacit.store import ledger"),
        ("privacy", "def f():\n    import time"),
        ("store", "import torch"),
        ("commands", "import sqlite3"),
        ("kernels", "from tacit.privacy import budget"),
        ("privacy", "import numpy as np\nnp.random.default_rng()"),
        ("privacy", "open('data')"),
        ("store", "import os\nos.environ['HOME']"),
        ("deliver", "from tacit.train import models"),
        ("entropy", "import random"),
    ],
)
def test_the_table_catches(room: str, source: str) -> None:
    assert violations(room, parsed(source))


@pytest.mark.parametrize("party", ["client", "proxy", "server"])
def test_a_party_shares_only_the_wire_with_the_others(party: str) -> None:
    allowed = {"wire", party}
    for path in sorted((ROOT / "gather" / party).glob("*.py")):
        for name in imported(parsed(path.read_text())):
            parts = name.split(".")
            assert parts[:2] != ["tacit", "gather"] or parts[2] in allowed, f"{path.name} imports {name}"


# The clean room's parts, and which of them each may import; `attacks` and what ties the parties import all.
CLEANROOM = {
    "wire": {"wire"},
    "room": {"room", "wire"},
    "model": {"model", "wire"},
    "platform": {"platform", "model", "wire"},
}


def cleanroom_imports(part: str) -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "cleanroom" / part).rglob("*.py")):
        for name in imported(parsed(path.read_text())):
            yield path.name, name


@pytest.mark.parametrize("part", CLEANROOM)
def test_room_and_platform_share_only_the_wire(part: str) -> None:
    for file, name in cleanroom_imports(part):
        parts = name.split(".")
        ours = parts[:2] == ["tacit", "cleanroom"] and len(parts) > 2
        assert not ours or parts[2] in CLEANROOM[part], f"{part}/{file} imports {name}"


@pytest.mark.parametrize("part", ["wire", "room"])
def test_a_room_runs_without_torch(part: str) -> None:
    for file, name in cleanroom_imports(part):
        assert name.split(".")[0] != "torch", f"{part}/{file} imports {name}"


def test_services_open_without_torch_and_without_what_only_accountants_need() -> None:
    """Not even by somebody who is imported on the way: each costs a service half a second and more to start."""
    script = "import sys; import tacit.services.room.running, tacit.services.room.link_checks as _\n"
    script += "import tacit.services.proxy, tacit.services.server\n"
    script += "print([name for name in ('torch', 'dp_accounting', 'scipy.stats') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("part", ["wire", "room", "model", "platform", "attacks"])
def test_the_clean_room_has_no_clock_and_reads_no_code_from_data(part: str) -> None:
    """Time is an argument; nothing is unpickled. A stopwatch, which decides nothing, is not a clock."""
    for path in sorted((ROOT / "cleanroom" / part).rglob("*.py")):
        nodes = parsed(path.read_text())
        names = set(imported(nodes))
        assert not names & {"pickle", "marshal", "shelve"}, path.name
        used = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
        assert not used & {"time.time", "torch.load", "torch.save", "datetime.now"}, path.name


def test_errors_import_other_rooms_for_types_only() -> None:
    tree = ast.parse((ROOT / "errors.py").read_text())
    top_level = [
        name for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom) for name in imported([node])
    ]
    assert not [name for name in top_level if name.startswith("tacit")]


def test_files_can_be_read_in_one_sitting() -> None:
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for _, path in modules()}
    assert {name: lines for name, lines in long.items() if lines > 400} == {}
