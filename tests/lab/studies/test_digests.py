"""All that a study's figures depend on counts when it is asked whether they would come out the same."""

from __future__ import annotations

import ast
import platform
from collections.abc import Iterator
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from tacit import kernels
from tacit_lab.studies import digests
from tacit_lab.studies.registry import STUDIES
from tests.support.source_reach import ROOT, modules_reached, names_reached, tree

MODULES = {name: f"tacit_lab.studies.{place.partition(':')[0]}" for name, place in STUDIES.items()}


@pytest.fixture(autouse=True)
def _read_anew() -> Iterator[None]:
    """What was read once is kept: for the tests here and after them, too."""
    yield
    digests.code_digest.cache_clear()
    digests.installed_versions.cache_clear()


def mark(module: str = MODULES["gather-noise"]) -> str:
    digests.code_digest.cache_clear()
    digests.installed_versions.cache_clear()
    return digests.fingerprint("name", module, "asked", None, Path())


@pytest.mark.slow
def test_every_package_that_a_study_imports_counts_or_is_left_out_by_name() -> None:
    packages = {
        each.split(".")[1] for module in MODULES.values() for each in modules_reached(module) if "." in each
    }
    assert {"train", "kernels", "gather", "cleanroom", "studies"} <= packages, "else this test shows nothing"
    assert packages - {*digests.COMPUTING} - {*digests.APART} == set()
    assert not {*digests.COMPUTING} & {*digests.APART}
    assert all(digests.APART.values()), "with a reason"
    assert {"bill", "config"} <= {*digests.COMPUTING}, "what they hand on may be handed to a study one day"


@pytest.mark.parametrize("name", STUDIES)
def test_every_module_of_ours_that_a_study_imports_counts_or_only_shows(name: str) -> None:
    counted = {*digests._studies(MODULES[name])}
    for module in modules_reached(MODULES[name]):
        parts = module.split(".")
        if parts[:2] == ["tacit_lab", "studies"] and len(parts) > 2:
            apart = digests.SHOWING | {digests.RULES}
            assert parts[2] in apart or f"tacit_lab/studies/{parts[2]}" in counted, module


@pytest.mark.parametrize(
    "edited",
    [
        "config.py",
        "kernels/rows.cpp",
        "cleanroom/in_process.py",
        "tacit_lab/studies/results.py",
        "tacit_lab/studies/gather/noise.py",
    ],
)
def test_an_edited_source_counts(edited: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = mark()
    _edit(edited, monkeypatch)
    assert mark() != before


@pytest.mark.parametrize(
    "edited", ["tacit_lab/studies/verdicts.py", "tacit_lab/studies/semi_sensitive/frontier_verdicts.py"]
)
def test_an_edited_rule_does_not_count_where_a_source_holds_nothing_else(
    edited: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = MODULES["semi-sensitive-display"]
    before = mark(module)
    _edit(edited, monkeypatch)
    assert mark(module) == before


def _edit(edited: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, place = Path.read_bytes, (ROOT.parent if edited.startswith("tacit_lab/") else ROOT) / edited
    assert place.exists()
    monkeypatch.setattr(Path, "read_bytes", lambda self: read(self) + b"#" * (self == place))


def _run(name: str) -> ast.expr:
    """What a study's module hands to `Study` as its run."""
    module, study = MODULES[name], STUDIES[name].partition(":")[2] or "STUDY"
    for node in tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == study:
            call = node.value
            assert isinstance(call, ast.Call)
            named = {each.arg: each.value for each in call.keywords}
            return named["run"] if "run" in named else call.args[7]
    raise AssertionError(f"{module} has no STUDY")


@pytest.mark.parametrize("name", STUDIES)
def test_no_run_uses_rules_that_do_not_count_for_it(name: str) -> None:
    module = MODULES[name]
    reached = names_reached(module, _run(name))
    assert ("tacit_lab.studies.study", "StudyOutcome") in reached, "else this test shows nothing"
    used = {f"{each[0].replace('.', '/')}.py" for each in reached} & digests.JUDGING
    counted = {f"{package}.py" for package in digests._studies(module)}
    assert used <= counted, "a run's figures or table would stay when that is edited"
    assert bool(used) == (module in digests.SHOWING_VERDICTS)


def test_what_a_run_uses_is_found() -> None:
    """Also where a source has verdicts in its name: what a run takes from it may not be left out."""
    judge = names_reached(MODULES["semi-sensitive-display"], ast.Name("judge_display", ast.Load()))
    assert ("tacit_lab.studies.verdicts", "below") in judge
    reached = names_reached(MODULES["gather-phases"], _run("gather-phases"))
    assert ("tacit_lab.studies.gather.phases_verdicts", "PhasePoint") in reached


@pytest.mark.parametrize("library", ["numpy", "scipy", "torch"])
def test_another_library_counts_whether_it_is_installed_or_not(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {mark()}
    usual = metadata.version

    def missing(name: str) -> str:
        if name == library:
            raise metadata.PackageNotFoundError(name)
        return usual(name)

    for version in (lambda name: "0.1" if name == library else usual(name), missing):
        monkeypatch.setattr(metadata, "version", version)
        found.add(mark())
    assert len(found) == 3


def test_another_python_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = mark()
    monkeypatch.setattr(platform, "python_version", lambda: "3.99.0")
    assert mark() != before


def test_compiled_kernels_count_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {mark()}
    monkeypatch.setattr(kernels, "__path__", [str(tmp_path)])
    found.add(mark())
    for content in (b"one", b"two"):
        (tmp_path / f"_rows{EXTENSION_SUFFIXES[0]}").write_bytes(content)
        found.add(mark())
    assert len(found) == 4
