"""Front doors: the names that a package offers to people, each imported when it is first asked for.

A package lists its names three times, and a test holds that the three agree: in `__all__`, in a `TYPE_CHECKING`
block, from which type checkers and editors learn, and in the table that it hands to `front_door`. The packages
below it are found without being listed: `import tacit` is enough for `tacit.train.Estimator`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules
from typing import Any


def front_door(package: str, table: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, from the modules below it and the names that each of them has.

    Importing the package loads none of those modules: what needs torch is not loaded by who asks for something
    else, and `tacit --help` answers at once. A name is looked up in its module each time and not kept here, so
    the door never has another value than the module. A module below the package is found under its own name, as
    if somebody had imported it before. A name that is not there is refused with the nearest ones that are.
    """
    homes = {name: f"{package}.{module}" for module, names in table.items() for name in names.split()}

    def find(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        if name.startswith("_"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        door = sys.modules[package]
        if name in {found.name for found in iter_modules(door.__path__)}:
            return import_module(f"{package}.{name}")
        if _is_import(sys._getframe(1).f_globals):
            near = get_close_matches(name, names())
            hint = f". Did you mean: {', '.join(map(repr, near))}?" if near else ""
            said = f"cannot import name {name!r} from {package!r}{hint}"
            raise ImportError(said, name=package, path=door.__file__)
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=door)

    def names() -> list[str]:
        door = sys.modules[package]
        below = {found.name for found in iter_modules(door.__path__) if found.ispkg}
        return sorted({*(name for name in vars(door) if name.startswith("__")), *homes, *below})

    return find, names


def _is_import(asking: Mapping[str, Any]) -> bool:
    """Whether `from package import name` asks: Python would make an error without a hint of an AttributeError.

    For `package.name` it finds the nearest name by itself, from the error's `name` and `obj`.
    """
    return asking.get("__name__") == "importlib._bootstrap"
