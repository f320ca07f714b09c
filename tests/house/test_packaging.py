"""What is installed: pins with digests, extras that are described, and packages that build anywhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.repository import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TORCH = "torch==2.13.0"
HASHED = re.compile(r"^(\S+==\S+)(?: ; .*)? \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", re.MULTILINE)
EXTRA = re.compile(r"^\| `(\w+)` \| ([^|]+) \|", re.MULTILINE)


def pins(lines: list[str]) -> dict[str, str]:
    """Versions by name, however the name is spelled."""
    found = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in found}


CONSTRAINTS = pins((ROOT / "constraints.txt").read_text().splitlines())


def locked(name: str) -> dict[str, str]:
    """The pins of a lock file, each of which has digests."""
    text = (ROOT / name).read_text()
    found = HASHED.findall(text)
    assert len(found) == len(re.findall(r"^[\w.-]+==", text, re.MULTILINE)), "a pin without digests"
    return pins(found)


def needed(*lines: str) -> set[str]:
    """All that these need on this machine, as what is installed says; torch's own needs differ by build."""
    found, left = set[tuple[str, str]](), [(Requirement(line), "") for line in lines]
    while left:
        requirement, extra = left.pop()
        name = canonicalize_name(requirement.name)
        asked = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        for wanted in {"", *requirement.extras} if asked else ():
            if (name, wanted) not in found:
                found.add((name, wanted))
                left += [(Requirement(line), wanted) for line in (requires(name) or []) if name != "torch"]
    return {name for name, _ in found}


def test_digests_are_those_of_the_pinned_versions() -> None:
    everything = locked("requirements-dev.lock")
    assert everything == {name: version for name, version in CONSTRAINTS.items() if name != "torch"}
    base = locked("requirements.lock")
    assert base == {name: CONSTRAINTS[name] for name in base}


def test_the_base_lock_has_all_that_the_base_install_needs() -> None:
    assert needed(*PROJECT["dependencies"]) == set(locked("requirements.lock"))


def test_whatever_the_tests_need_is_pinned() -> None:
    found = needed("tacit[dev]")
    assert {"torch", "mypy", "starlette", "cloudpickle"} <= found
    assert found - {"tacit"} <= set(CONSTRAINTS)


def test_torch_is_named_by_one_exact_version_and_installed_first() -> None:
    assert PROJECT["optional-dependencies"]["train"] == [TORCH]
    assert TORCH in (ROOT / "constraints.txt").read_text().splitlines()
    installs = [line.split(maxsplit=1)[1] for line in (ROOT / "Makefile").read_text().splitlines()
                if line.startswith("\t$(PIP_INSTALL)")]  # fmt: skip
    assert installs[0] == installs[2] == TORCH
    assert all("torch" not in install or install == TORCH for install in installs)


def test_every_extra_is_described() -> None:
    described = dict(EXTRA.findall((ROOT / "docs" / "install.md").read_text()))
    brought = {
        extra: ", ".join(
            re.split(r"[<>=]", re.sub(r"^psycopg\[binary\]", "psycopg", line))[0] for line in lines
        )
        for extra, lines in PROJECT["optional-dependencies"].items()
    }
    assert described == brought


def test_versions_of_python_are_those_that_are_named() -> None:
    minors = re.findall(r":: 3\.(\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    assert PROJECT["requires-python"] == f">=3.{minors[0]}"
    assert f"3.{sys.version_info.minor}" in {f"3.{minor}" for minor in minors}


IMPORTED = """
import tacit, tacit_lab
from tacit.kernels.backend import load_kernel
assert load_kernel("_rows").__name__ == "tacit.kernels._rows"
print(tacit.__file__, tacit_lab.__file__)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("cmake") and shutil.which("c++")), reason="needs cmake and a C++ compiler"
)
def test_an_archive_builds_without_git_and_a_wheel_from_it_is_whole(tmp_path: Path) -> None:
    """From a copy of the tree that git does not know; then in a fresh environment, and nothing is fetched."""
    tree, built = tmp_path / "tree", tmp_path / "built"
    left_out = shutil.ignore_patterns(
        ".git", ".venv", "build", "__pycache__", ".*_cache", ".hypothesis", "*.so"
    )
    shutil.copytree(ROOT, tree, ignore=left_out)
    from scikit_build_core.build import build_sdist  # as pip calls it

    before = Path.cwd()
    try:
        os.chdir(tree)
        archive = built / build_sdist(str(built))
    finally:
        os.chdir(before)
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {
        "LICENSE",
        "constraints.txt",
        "requirements.lock",
        "CMakeLists.txt",
        "src/tacit/kernels/rows.cpp",
    } <= names
    assert not [name for name in names if name.startswith((".venv", ".git/", "build"))]

    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    making = [
        "wheel",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--wheel-dir",
        str(built),
        str(archive),
    ]
    subprocess.run([*pip, *making], check=True, cwd=tmp_path)
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        inside = set(opened.namelist())
    assert {"tacit/py.typed", "tacit_lab/py.typed"} <= inside
    assert {f"tacit/store/migrations/{party}/revision_1.py" for party in ("ads", "proxy")} <= inside
    assert [name for name in inside if name.endswith("licenses/LICENSE")]
    modules = {f"tacit/device/{path.name}" for path in (ROOT / "device").glob("*.js")}
    assert modules == {name for name in inside if name.startswith("tacit/device/")}
    assert {"tacit/services/page/web/index.html", "tacit/services/ads/console/web/index.html"} <= inside
    kernels = [name for name in inside if re.fullmatch(r"tacit/kernels/_\w+\.cpython-\S+\.so", name)]
    assert len(kernels) == len(list((ROOT / "src/tacit/kernels").glob("*.cpp")))

    fresh = tmp_path / "fresh"
    venv.create(fresh, with_pip=False)
    installing = ["--python", f"{fresh}/bin/python", "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*pip, *installing], check=True, cwd=tmp_path)
    # A path, not a site: its .pth files, one of which leads to the tacit that is being tested, stay unread.
    needs = {"PYTHONPATH": next(path for path in sys.path if path.endswith("site-packages"))}
    for command in (["python", "-W", "error", "-c", IMPORTED], ["tacit", "--help"]):
        words = [str(fresh / "bin" / command[0]), *command[1:]]
        said = subprocess.run(words, check=True, cwd=tmp_path, env=needs, capture_output=True, text=True).stdout
        if command[0] == "python":
            assert all(Path(place).is_relative_to(fresh) for place in said.split())
