"""The house rules, held by an AST walk: imports go down only, and the maths is pure."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import tacit
import tacit_lab

LIBRARY, LAB = Path(tacit.__file__).parent, Path(tacit_lab.__file__).parent

# Who may import whom, by room, from the ground up. A room may always import itself. `studies` and `bench` are
# the rooms of `tacit_lab`, which the library never imports, except for the commands that run them.
GROUND = frozenset({"errors", "expect", "config", "files", "progress", "arrays", "display"})
MATHS = GROUND | {"schema", "privacy", "kernels", "entropy", "memory_ledger", "sealing"}
STAGES = frozenset({"data", "gather", "train", "cleanroom", "deliver", "bill"})
WHOLE = MATHS | STAGES | {"torch", "pipeline", "town", "billed_day", "counted_ratios", "audit", "store"}
LAB_ROOMS = frozenset({"studies", "bench"})
MAY_IMPORT = {
    "errors": frozenset({"privacy"}),  # for type hints only; held by a test below
    "expect": frozenset({"errors"}),
    "config": frozenset({"errors", "expect"}),
    "files": frozenset({"errors", "expect"}),
    "progress": frozenset(),
    "arrays": frozenset(),
    "display": frozenset(),
    "threads": frozenset(),
    "sealing": frozenset({"errors"}),
    "exports": frozenset(),
    "kernels": frozenset({"errors", "arrays"}),
    "entropy": GROUND | {"kernels"},
    "schema": GROUND,
    "privacy": GROUND | {"schema", "kernels"},
    "memory_ledger": frozenset({"privacy", "entropy"}),
    "data": MATHS,
    "gather": MATHS,
    "train": MATHS | {"data"},
    "torch": MATHS | {"train"},
    "cleanroom": MATHS | {"data", "train"},
    "deliver": MATHS | {"bill"},  # devices report what they show by the bill's protocol
    "bill": MATHS,
    "store": MATHS | STAGES,
    "pages": frozenset({"errors"}),
    "town": MATHS | STAGES,
    "audit": MATHS | STAGES,
    "counted_ratios": MATHS | {"gather", "deliver"},
    "billed_day": MATHS | STAGES | {"town"},
    "pipeline": MATHS | STAGES | {"town", "billed_day"},
    "services": WHOLE | {"pages"},  # an advertiser's report is served as a page, too
    "commands": WHOLE | {"pages", "services", "threads"} | LAB_ROOMS,
    "cli": WHOLE | {"pages", "services", "commands", "threads"},
    "studies": WHOLE | {"pages"},
    "bench": WHOLE | {"services"},
}

# What only some rooms may import.
RESERVED = {
    "torch": {"train", "torch", "cleanroom", "bench"},
    "sqlalchemy": {"store"},
    "sqlite3": {"store"},
    "psycopg": {"store"},
    "starlette": {"services", "bench"},  # whose bare endpoint is what services are measured beside
    "fastapi": {"services"},
    "uvicorn": {"services", "bench"},
    "httptools": {"services"},
    "uvloop": {"services"},
    "msgspec": {"services"},
    "prometheus_client": {"services"},
    "nh3": {"services"},
    "httpx": {"services"},
    "msgpack": {"gather", "services"},
    "grpc": {"services"},
    "ray": {"studies", "services", "commands"},
    "random": {"bench", "studies"},
    "secrets": {"entropy"},
    "uuid": {"files"},  # names of drafts; what must not be guessed comes from entropy
}

TOLD = frozenset({"services", "threads"})
"""Rooms that may read environment variables."""

DOORS = frozenset({"exports"})
"""What every room may import: it makes front doors of tables, and knows nothing of what is behind them."""

# The maths has no clock, no files, no network and no randomness of its own.
IMPURE = {
    "os", "time", "random", "secrets", "socket", "logging", "pathlib", "torch", "datetime", "subprocess",
    "threading", "multiprocessing", "tempfile", "shutil", "uuid", "sys", "io", "urllib", "http", "asyncio",
    "ctypes", "importlib", "glob",
}  # fmt: skip


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of both packages, with its room."""
    for package in (LIBRARY, LAB):
        for path in sorted(package.rglob("*.py")):
            yield path.relative_to(package).parts[0].removesuffix(".py"), path


def shown_path(path: Path) -> str:
    return str(path.relative_to(LIBRARY.parent))


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
        if parts[0] in ("tacit", "tacit_lab") and len(parts) > 1 and not parts[1].startswith("__"):
            of_lab = parts[0] == "tacit_lab"
            if parts[1] not in MAY_IMPORT[room] | {room} | DOORS or of_lab != (parts[1] in LAB_ROOMS):
                found.append(f"{room} imports {parts[0]}.{parts[1]}")
        elif name == "tacit_lab" and room not in LAB_ROOMS:
            found.append(f"{room} imports tacit_lab")
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
        shown_path(path): wrong
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
        ("cli", "from tacit_lab.studies import registry"),
        ("store", "import tacit_lab"),
        ("studies", "from tacit_lab.bench import measurement"),
        ("bench", "from tacit.commands import output"),
        ("entropy", "import random"),
        ("store", "import uuid"),
    ],
)
def test_the_table_catches(room: str, source: str) -> None:
    assert violations(room, parsed(source))


@pytest.mark.parametrize("party", ["proxy", "server"])
def test_a_party_of_billing_shares_only_the_protocol_with_the_other(party: str) -> None:
    expect_parts("bill", party, {"protocol", party})


@pytest.mark.parametrize("part", ["protocol", "server", "device", "auction"])
def test_delivery_knows_of_the_bill_only_what_devices_send(part: str) -> None:
    for file, name in part_imports("deliver", part):
        parts = name.split(".")
        assert parts[:2] != ["tacit", "bill"] or parts[2] == "protocol", f"deliver/{part}/{file} imports {name}"


@pytest.mark.parametrize("party", ["client", "proxy", "server"])
def test_a_party_shares_only_the_protocol_with_the_others(party: str) -> None:
    expect_parts("gather", party, {"protocol", party})


# The clean room's parts, and which of them each may import; `attacks` and what ties the parties import all.
CLEANROOM = {
    "protocol": {"protocol"},
    "room": {"room", "protocol"},
    "model": {"model", "protocol"},
    "platform": {"platform", "model", "protocol"},
}


@pytest.mark.parametrize("part", CLEANROOM)
def test_room_and_platform_share_only_the_protocol(part: str) -> None:
    expect_parts("cleanroom", part, CLEANROOM[part])


# The parties of delivery; an auction plays the server and every device, for many of them at once. Campaigns are
# the server's, and no device knows of them.
DELIVER = {
    "protocol": {"protocol"},
    "campaigns": {"campaigns", "protocol"},
    "server": {"server", "protocol", "campaigns"},
    "device": {"device", "protocol"},
    "auction": {"auction", "device", "protocol", "server"},
}


@pytest.mark.parametrize("part", DELIVER)
def test_server_and_device_share_only_the_protocol(part: str) -> None:
    expect_parts("deliver", part, DELIVER[part])


def part_imports(room: str, part: str) -> Iterator[tuple[str, str]]:
    """What each file of a part of a room imports."""
    paths = sorted((LIBRARY / room / part).rglob("*.py"))
    assert paths, f"{room}/{part} has no modules"
    for path in paths:
        for name in imported(parsed(path.read_text())):
            yield path.name, name


def expect_parts(room: str, part: str, allowed: set[str]) -> None:
    for file, name in part_imports(room, part):
        parts = name.split(".")
        ours = parts[:2] == ["tacit", room] and len(parts) > 2
        assert not ours or parts[2] in allowed, f"{room}/{part}/{file} imports {name}"


@pytest.mark.parametrize("part", ["protocol", "room"])
def test_a_room_runs_without_torch(part: str) -> None:
    for file, name in part_imports("cleanroom", part):
        assert name.split(".")[0] != "torch", f"{part}/{file} imports {name}"


def test_services_open_without_torch_and_without_what_only_accountants_need() -> None:
    """Not even by a module that is imported on the way: each makes a service start half a second later."""
    script = "import sys; import tacit.services.launch\n"
    script += "print('scipy' in sys.modules)\n"
    script += "import tacit.services.room.operation, tacit.services.room.remote_room as _\n"
    script += "print([name for name in ('torch', 'dp_accounting', 'scipy.stats') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "[]"]


@pytest.mark.parametrize("part", ["protocol", "room", "model", "platform", "attacks"])
def test_the_clean_room_has_no_clock_and_reads_no_code_from_data(part: str) -> None:
    """Time is an argument; nothing is unpickled. A stopwatch, which decides nothing, is not a clock."""
    for path in sorted((LIBRARY / "cleanroom" / part).rglob("*.py")):
        nodes = parsed(path.read_text())
        names = set(imported(nodes))
        assert not names & {"pickle", "marshal", "shelve"}, path.name
        used = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
        assert not used & {"time.time", "torch.load", "torch.save", "datetime.now"}, path.name


def test_errors_import_other_rooms_for_types_only() -> None:
    tree = ast.parse((LIBRARY / "errors.py").read_text())
    top_level = [
        name for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom) for name in imported([node])
    ]
    assert not [name for name in top_level if name.startswith("tacit")]


def test_files_can_be_read_in_one_sitting() -> None:
    long = {shown_path(path): len(path.read_text().splitlines()) for _, path in modules()}
    assert {name: lines for name, lines in long.items() if lines > 400} == {}
