"""Front doors: the names that a package offers to people, each imported when it is first asked for.

A package lists its names three times, and a test holds that the three agree: in `__all__`, in a `TYPE_CHECKING`
block, from which type checkers and editors learn, and in the table that it hands to `front_door`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def front_door(package: str, table: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, from the modules below it and the names that each of them has.

    Importing the package loads none of those modules: what needs torch is not loaded by who asks for something
    else, and `tacit --help` answers at once. A name is looked up in its module each time and not kept here, so
    the door never has another value than the module.
    """
    homes = {name: f"{package}.{module}" for module, names in table.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in homes:
            door = sys.modules[package]
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=door)
        return getattr(import_module(homes[name]), name)

    def names() -> list[str]:
        return sorted({*(name for name in vars(sys.modules[package]) if name.startswith("__")), *homes})

    return find, names
