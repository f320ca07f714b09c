"""All that a study's figures depend on counts when it is asked whether they would come out the same."""

from __future__ import annotations

import ast
import platform
from collections.abc import Iterator
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from source_reach import ROOT, modules_reached, names_reached, tree
from tacit import kernels
from tacit.studies import digests, unchanged
from tacit.studies.registry import STUDIES

MODULES = {name: f"tacit.studies.{module}" for name, module in STUDIES.items()}


@pytest.fixture(autouse=True)
def _read_anew() -> Iterator[None]:
    """What was read once is kept: for the tests here and after them, too."""
    yield
    digests.code.cache_clear()
    digests.installed.cache_clear()


def mark(module: str = MODULES["gather-noise"]) -> str:
    digests.code.cache_clear()
    digests.installed.cache_clear()
    return unchanged.fingerprint("name", module, "asked", None, Path())


def test_every_room_that_a_study_imports_counts_or_is_left_out_by_name() -> None:
    rooms = {
        each.split(".")[1] for module in MODULES.values() for each in modules_reached(module) if "." in each
    }
    assert {"train", "kernels", "gather", "cleanroom", "studies"} <= rooms, "else this test shows nothing"
    assert rooms - {*unchanged.COMPUTING} - {*unchanged.APART} == set()
    assert not {*unchanged.COMPUTING} & {*unchanged.APART}
    assert all(unchanged.APART.values()), "with a reason"
    assert {"bill", "toml"} <= {*unchanged.COMPUTING}, "what they hand on may be handed to a study one day"


@pytest.mark.parametrize("name", STUDIES)
def test_every_module_of_ours_that_a_study_imports_counts_or_only_shows(name: str) -> None:
    counted = {*unchanged._studies(MODULES[name])}
    for module in modules_reached(MODULES[name]):
        parts = module.split(".")
        if parts[:2] == ["tacit", "studies"] and len(parts) > 2:
            apart = unchanged.SHOWING | {unchanged.RULES}
            assert parts[2] in apart or f"studies/{parts[2]}" in counted, module


@pytest.mark.parametrize(
    "edited",
    ["toml.py", "kernels/rows.cpp", "cleanroom/in_process.py", "studies/results.py", "studies/gather/noise.py"],
)
def test_an_edited_source_counts(edited: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = mark()
    _edit(edited, monkeypatch)
    assert mark() != before


@pytest.mark.parametrize("edited", ["studies/verdicts.py", "studies/semi_sensitive/frontier_verdicts.py"])
def test_an_edited_rule_does_not_count_where_a_source_holds_nothing_else(
    edited: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = MODULES["semi-sensitive-display"]
    before = mark(module)
    _edit(edited, monkeypatch)
    assert mark(module) == before


def _edit(edited: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, place = Path.read_bytes, ROOT / edited
    assert place.exists()
    monkeypatch.setattr(Path, "read_bytes", lambda self: read(self) + b"#" * (self == place))


def _run(module: str) -> ast.expr:
    """What a study's module hands to `Study` as its run."""
    for node in tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STUDY":
            call = node.value
            assert isinstance(call, ast.Call)
            named = {each.arg: each.value for each in call.keywords}
            return named["run"] if "run" in named else call.args[7]
    raise AssertionError(f"{module} has no STUDY")


@pytest.mark.parametrize("name", STUDIES)
def test_no_run_uses_rules_that_do_not_count_for_it(name: str) -> None:
    module = MODULES[name]
    reached = names_reached(module, _run(module))
    assert ("tacit.studies.study", "Outcome") in reached, "else this test shows nothing"
    used = {f"{each[0].removeprefix('tacit.').replace('.', '/')}.py" for each in reached} & digests.JUDGING
    counted = {f"{room}.py" for room in unchanged._studies(module)}
    assert used <= counted, "a run's figures or table would stay when that is edited"
    assert bool(used) == (module in unchanged.SHOWING_VERDICTS)


def test_what_a_run_uses_is_found() -> None:
    """Also where a source has verdicts in its name: what a run takes from it may not be left out."""
    judge = names_reached(MODULES["semi-sensitive-display"], ast.Name("judge", ast.Load()))
    assert ("tacit.studies.verdicts", "below") in judge
    for name, used in (("gather.phases", "Point"), ("semi_sensitive.clipping", "BASE")):
        module = MODULES[name.replace(".", "-").replace("_", "-")]
        assert (f"tacit.studies.{name}_verdicts", used) in names_reached(module, _run(module))


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
