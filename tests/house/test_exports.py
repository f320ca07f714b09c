"""The front doors: each name that a package offers is there, typed, described, and loaded when asked for."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from doctest import DocTestParser
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import pytest

import tacit
from tests.support.repository import ROOT

LIBRARY = Path(tacit.__file__).parent
CODE = re.compile(r"^```[^\n]*\n(.*?)^```|`([^`\n]+)`", re.DOTALL | re.MULTILINE)
HEAVY = ("numpy", "torch", "pyarrow", "scipy", "sqlalchemy", "starlette", "grpc", "sklearn")


def package_of(path: Path) -> str:
    return ".".join(("tacit", *path.parent.relative_to(LIBRARY).parts))


DOORS = sorted(package_of(path) for path in LIBRARY.rglob("__init__.py") if "front_door(" in path.read_text())


@cache
def listed(door: str) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """What a door says of its names: to type checkers, in its table (both by module), and in `__all__`."""
    tree = ast.parse((LIBRARY.joinpath(*door.split(".")[1:]) / "__init__.py").read_text())
    (fork,) = (node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(fork.test) == "TYPE_CHECKING"
    typed: dict[str, str] = {}
    for node in fork.body:
        assert isinstance(node, ast.ImportFrom)
        assert node.module
        assert all(alias.asname is None for alias in node.names)
        if node.module != door:  # else the packages below it, which the table need not list
            typed |= {alias.name: node.module for alias in node.names}
    (assigned,) = fork.orelse
    assert isinstance(assigned, ast.Assign)
    assert ast.unparse(assigned.targets[0]) == "(__getattr__, __dir__)"
    assert isinstance(assigned.value, ast.Call)
    table = ast.literal_eval(assigned.value.args[1])
    homes = {name: f"{door}.{module}" for module, names in table.items() for name in names.split()}
    return typed, homes, [name for name in import_module(door).__all__ if name != "__version__"]


def exported() -> list[tuple[str, str]]:
    return [(door, name) for door in DOORS for name in listed(door)[2]]


@pytest.mark.parametrize("door", DOORS)
def test_a_door_says_the_same_to_people_type_checkers_and_the_machine(door: str) -> None:
    typed, homes, offered = listed(door)
    assert typed == homes
    assert sorted(homes) == sorted(offered)
    assert len(offered) == len(set(offered))


@pytest.mark.parametrize("door", DOORS)
def test_everything_can_be_imported_at_once(door: str) -> None:
    found: dict[str, object] = {}
    exec(f"from {door} import *", found)
    _, homes, offered = listed(door)
    for name in offered:
        assert found[name] is getattr(import_module(homes[name]), name)
    assert set(offered) <= set(dir(import_module(door)))


@pytest.mark.parametrize("door", DOORS)
def test_a_door_refuses_what_it_does_not_have(door: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{door}' has no attribute 'guess'"):
        import_module(door).guess  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'guess'"):
        exec(f"from {door} import guess")


ATTRIBUTES = """
import sys, tacit
assert tacit.train.labels.__name__ == "tacit.train.labels"
print([name for name in %r if name in sys.modules])
print(tacit.gather.Round.__name__, tacit.pipeline.run_day.__name__)
"""


def test_the_packages_below_are_found_from_the_first_import_on() -> None:
    """Also where nobody imported them: in a process of its own, and still without loading what they need."""
    told = subprocess.run(
        [sys.executable, "-c", ATTRIBUTES % (HEAVY,)], capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines() == ["[]", "Round run_day"]


def test_people_and_type_checkers_are_told_of_every_package() -> None:
    below = {found.name for found in iter_modules(tacit.__path__) if found.ispkg}
    assert below <= set(dir(tacit))
    tree = ast.parse((LIBRARY / "__init__.py").read_text())
    (fork,) = (node for node in tree.body if isinstance(node, ast.If))
    (first,) = (node for node in fork.body if isinstance(node, ast.ImportFrom) and node.module == "tacit")
    assert {alias.name for alias in first.names} == below


@pytest.mark.parametrize(
    ("code", "nearest"),
    [
        ("from tacit.train import Estimatr", "'Estimator'"),
        ("from tacit import trian", "'train'"),
        ("import tacit.train\ntacit.train.Estimatr", "'Estimator'"),
        ("import tacit\ntacit.trian", "'train'"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest_one(code: str, nearest: str) -> None:
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert told.stderr.splitlines()[-1].endswith(f"Did you mean: {nearest}?")
    assert told.stderr.count("Did you mean") == 1


def test_a_name_like_no_other_gets_no_hint() -> None:
    with pytest.raises(ImportError) as refused:
        exec("from tacit.train import Xylophone")
    assert str(refused.value) == "cannot import name 'Xylophone' from 'tacit.train'"
    assert refused.value.name == "tacit.train"


@pytest.mark.parametrize("door", DOORS)
def test_no_name_hides_a_module(door: str) -> None:
    """Whichever was imported last would be found under the name, and the other one would not."""
    modules = {found.name for found in iter_modules(import_module(door).__path__)}
    assert modules & set(listed(door)[2]) == set()


def test_doors_load_nothing_until_they_are_asked() -> None:
    script = f"import sys\nimport {', '.join(DOORS)}\n"
    script += f"print([name for name in {HEAVY} if name in sys.modules])\n"
    script += "from tacit import Entropy\nprint('numpy' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == ["[]", "True"]


BASE_INSTALL = """
import sys
from importlib import import_module

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "grpc", "httpx", "onnx", "psycopg", "starlette", "uvicorn"}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
for door, name in %r:
    try:
        getattr(import_module(door), name)
    except ModuleNotFoundError:
        print(door, name)
"""
NEEDS_AN_EXTRA = ("tacit.cleanroom.model.", "tacit.cleanroom.platform.", "tacit.services.", "tacit.torch.")


def test_a_base_install_has_all_names_but_those_of_models_and_services() -> None:
    """A room without torch can still import its terms, and a plain model is trained without it."""
    told = subprocess.run(
        [sys.executable, "-c", BASE_INSTALL % exported()], capture_output=True, text=True, check=True
    )
    lacking = [line.split() for line in told.stdout.splitlines()]
    assert ["tacit.cleanroom", "ConversionModel"] in lacking, "else nothing was missing"
    assert [name for door, name in lacking if not listed(door)[1][name].startswith(NEEDS_AN_EXTRA)] == []


@pytest.mark.parametrize(("door", "name"), exported())
def test_every_name_says_what_it_is(door: str, name: str) -> None:
    value = getattr(import_module(door), name)
    assert not isinstance(value, ModuleType)
    assert inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value)), "a class or a function"
    said = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    assert said, "has no docstring"
    assert not said.startswith(f"{name}("), "has the docstring that `dataclass` writes"


@cache
def mentions() -> dict[str, set[str]]:
    """Names in code on the pages, in docstrings and in commands, each with the places that have it.

    A definition's own docstring does not count for it, and neither does the list at the door.
    """
    found: dict[str, set[str]] = {}

    def note(text: str, place: str) -> None:
        for word in re.findall(r"[A-Za-z_]\w*", text):
            found.setdefault(word, set()).add(place)

    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for block, span in CODE.findall(page.read_text()):
            note(block or span, page.name)
    for path in LIBRARY.rglob("*.py"):
        tree = ast.parse(path.read_text())
        if path.parent.name == "commands":
            note(" ".join(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)), path.name)
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                said = ast.get_docstring(node) or ""
                note(said, getattr(node, "name", path.name))
    return found


@pytest.mark.parametrize(("door", "name"), exported())
def test_somebody_told_people_of_it(door: str, name: str) -> None:
    places = mentions().get(name, set()) - {name}
    assert places, f"{door}.{name} is used or described nowhere"


NAMED = re.compile(r"^ *((?:`?[a-z_]+/?`?(?:, )?)+) {2,}\S", re.MULTILINE)
BY_RULE = {
    "tacit.commands": "one module per command",
    "tacit.data.logs": "one module per log",
    "tacit.kernels": "every family of loops has a module",
}
"""Packages whose map says which files there are without naming each, in these words."""


@pytest.mark.parametrize("path", sorted(LIBRARY.rglob("__init__.py")), ids=package_of)
def test_a_package_has_a_map_of_its_files(path: Path) -> None:
    """Of tacit itself: of its rooms. Its other modules are what all rooms stand on, and most of them small."""
    said = ast.get_docstring(ast.parse(path.read_text())) or ""
    modules = {found.name for found in iter_modules([str(path.parent)]) if not found.name.startswith("_")}
    rooms = {found.name for found in iter_modules([str(path.parent)]) if found.ispkg}
    named = {name.strip("`/") for names in NAMED.findall(said) for name in names.split(", ")}
    assert named - modules == set(), "files that are not there"
    if package_of(path) in BY_RULE:
        assert BY_RULE[package_of(path)] in said.lower()
    else:
        unnamed = {name for name in (rooms if path.parent == LIBRARY else modules) if not _says(said, name)}
        assert unnamed == set()


def _says(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

WITHOUT_A_DOOR = {
    "tacit.errors": "all of it is for people: every exception that tacit raises, drawn as a tree",
    "tacit.counted_ratios": "gather and deliver meet there: neither may export what needs the other",
    "tacit.pipeline": "the tutorial goes through the day by hand, with the day's own functions and settings",
    "tacit.billed_day": "that day's visits through the parties of billing",
    "tacit.town": "examples of that day's town",
    "tacit.data.generators.town": "the town itself, with its constants",
    "tacit.pages": "exports what reports are made of, and no stage has to load them late",
    "tacit.cli": "`main`, for a page that runs commands",
}
"""Modules that examples may import from all the same, and why no exported name would serve."""


def deep_imports(code: str) -> list[str]:
    """What an example imports from inside of a package, where a reader would have to know the file."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            wanted = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            wanted = [(node.module or "", alias.name) for alias in node.names]
        else:
            continue
        for module, name in wanted:
            if module.split(".")[0] != "tacit" or module in WITHOUT_A_DOOR:
                continue
            offered = {*listed(module)[2]} if module in DOORS else set()
            if name not in offered and (f"{module}.{name}" if name else module) not in DOORS:
                found.append(f"{module} {name}".strip())
    return found


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_pages_come_in_by_the_door(page: Path) -> None:
    assert [wrong for code in BLOCK.findall(page.read_text()) for wrong in deep_imports(code)] == []


def test_examples_in_docstrings_come_in_by_the_door() -> None:
    wrong, seen = {}, 0
    for path in sorted(LIBRARY.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                for example in DocTestParser().get_examples(ast.get_docstring(node) or ""):
                    seen += 1
                    if found := deep_imports(example.source):
                        wrong[str(path.relative_to(LIBRARY))] = found
    assert wrong == {}
    assert seen > 20, "else this test shows nothing"


@pytest.mark.parametrize(
    "code",
    [
        "from tacit.privacy.budget import Budget",
        "from tacit.privacy import budget",
        "from tacit.privacy import ceil_divide",
        "import tacit.privacy.budget",
        "def f():\n    from tacit.gather.client import contributions",
    ],
)
def test_who_comes_in_by_the_window_is_seen(code: str) -> None:
    assert deep_imports(code)
