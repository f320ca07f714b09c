"""Bid requests and responses by the types of OpenRTB 2.6 that others published (the npm package iab-openrtb).

TypeScript checks literals for missing, misspelt and excess fields, and numbers against the lists of AdCOM. The
compiler and the types come from the registry for tests alone; without them the test is skipped, and says so.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.openrtb_samples import APP, VIDEO, WEB, ExchangeWorld, sample, with_imp
from tests.support.repository import ROOT

MODULES = ROOT / "tests" / "device" / "node_modules"
COMPILER = MODULES / "typescript" / "bin" / "tsc"
IMPORT = 'import type { BidRequest, BidResponse } from "iab-openrtb/v26";\n'
pytestmark = pytest.mark.skipif(
    not (COMPILER.exists() and (MODULES / "iab-openrtb").exists() and shutil.which("node")),
    reason="OpenRTB's published types are NOT checked: npm install in tests/device brings them",
)


def complaints(folder: Path, literals: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """What the compiler says of these literals, each of a type."""
    (folder / "package.json").write_text('{"type": "module"}')
    linked = folder / "node_modules"
    if not linked.exists():
        linked.symlink_to(MODULES)
    said = "".join(
        f"export const value{number}: {kind} = {json.dumps(value)};\n"
        for number, (kind, value) in enumerate(literals)
    )
    (folder / "said.ts").write_text(IMPORT + said)
    command = [
        "node",
        str(COMPILER),
        "--noEmit",
        "--strict",
        "--skipLibCheck",
        "--module",
        "nodenext",
        "said.ts",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return [line for line in done.stdout.splitlines() if "error" in line]


def test_what_is_sent_and_answered_is_openrtb(tmp_path: Path) -> None:
    (tmp_path / "world").mkdir()
    world = ExchangeWorld(tmp_path / "world")
    try:
        asked = [
            sample(WEB), sample(APP), sample(VIDEO), sample(WEB, cur=["EUR"]),
            with_imp(sample(WEB, regs={"gdpr": 0}), ext={"tacit": {"version": 1}}),
        ]  # fmt: skip
        answers = [world.bid(request).json() for request in asked]
    finally:
        world.end()
    assert any("seatbid" in each for each in answers)
    assert any("tacit" in json.dumps(each) for each in answers)
    for gone in ("yob", "gender"):  # of 2.5, which exchanges still send
        del asked[1]["user"][gone]
    # Reasons from 500 on are a bidder's own: the published list of them ends before.
    for each in answers:
        if each.get("nbr", 0) >= 500:
            del each["nbr"]
    literals = [("BidRequest", each) for each in asked] + [("BidResponse", each) for each in answers]
    assert complaints(tmp_path, literals) == []


def test_what_is_not_openrtb_is_told_by_the_types(tmp_path: Path) -> None:
    bid = {"id": "1", "impid": "1", "price": 1}
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("BidResponse", {"seatbid": []}),
        ("BidResponse", {"id": "1", "seatbids": []}),
        ("BidResponse", {"id": "1", "seatbid": [{"bid": [{**bid, "price": "1"}]}]}),
        ("BidResponse", {"id": "1", "seatbid": [{"bid": [{**bid, "burls": "x"}]}]}),
        ("BidRequest", sample(WEB, imp=[{"banner": {}}])),
    ]
    assert len(complaints(tmp_path, wrong)) == len(wrong)
