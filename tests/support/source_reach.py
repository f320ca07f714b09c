"""What a module of ours imports, and what a function of it uses, by its syntax: nothing is run."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import tacit
import tacit_lab

ROOT = Path(tacit.__file__).parent
ROOTS = {tacit.__name__: ROOT, tacit_lab.__name__: Path(tacit_lab.__file__).parent}
Name = tuple[str, str]  # a module, and a name that it binds at its top


@cache
def source(module: str) -> Path | None:
    """Its file; None for code of others, and for a name that is no module."""
    first, *rest = module.split(".")
    if first not in ROOTS:
        return None
    place = ROOTS[first].joinpath(*rest)
    found = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return found if found.exists() else None


@cache
def tree(module: str) -> ast.Module:
    place = source(module)
    assert place is not None, module
    return ast.parse(place.read_text(encoding="utf-8"))


def modules_reached(first: str) -> set[str]:
    """All modules of ours that a module imports, wherever in it, and that those import."""
    reached: set[str] = set()
    wanted = [first]
    while wanted:
        module = wanted.pop()
        if module in reached or source(module) is None:
            continue
        reached.add(module)
        wanted += [module.rpartition(".")[0], *_imported(module)]
    return reached


@cache
def nodes(whole: ast.AST) -> tuple[ast.AST, ...]:
    """A piece of code and all that is in it; of a tree that stays, so that it is taken apart only once."""
    return tuple(ast.walk(whole))


@cache
def _imported(module: str) -> list[str]:
    found: list[str] = []
    for node in nodes(tree(module)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module != module:
            # (A front door names its own packages to type checkers, and loads none of them.)
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def names_reached(module: str, first: ast.AST) -> set[Name]:
    """All names of studies that an expression of a module uses, and that those use.

    A method is used where its class is reached and something reached says its name; those with double
    underscores always are.
    """
    reached: set[Name] = set()
    said: set[str] = set()  # names of attributes
    # Methods of classes that were reached, by name, until one is said.
    methods: dict[str, list[tuple[str, ast.AST]]] = {}
    looked_at = [(module, first)]
    while looked_at:
        module, node = looked_at.pop()
        for attribute in _attributes(node) - said:
            said.add(attribute)
            looked_at += methods.pop(attribute, [])
        wanted = list(names_used(module, node))
        while wanted:
            name = wanted.pop()
            if name in reached or not name[0].startswith("tacit_lab.studies") or source(name[0]) is None:
                continue
            reached.add(name)
            bound, aliases = _bound(name[0])
            if name[1] in aliases:  # handed on
                wanted.append(aliases[name[1]])
            for found in bound.get(name[1], ()):
                for part in _parts(found):
                    method = part.name if part is not found and isinstance(part, ast.FunctionDef) else "__"
                    waits = method not in said and not method.startswith("__")
                    (methods.setdefault(method, []) if waits else looked_at).append((name[0], part))
    return reached


def _parts(node: ast.AST) -> list[ast.AST]:
    """A class by its bases, decorators and statements; others whole."""
    return [*node.bases, *node.decorator_list, *node.body] if isinstance(node, ast.ClassDef) else [node]


@cache
def _attributes(node: ast.AST) -> frozenset[str]:
    return frozenset(each.attr for each in nodes(node) if isinstance(each, ast.Attribute))


@cache
def names_used(module: str, node: ast.AST) -> frozenset[Name]:
    """What a piece of code refers to, but for what it binds itself."""
    aliases = _bound(module)[1]
    own = {each.arg for each in nodes(node) if isinstance(each, ast.arg)}
    if isinstance(node, ast.FunctionDef):
        own |= {
            each.id for each in nodes(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
    found = set()
    for each in nodes(node):
        if isinstance(each, ast.Name):
            if each.id not in own:
                found.add(aliases.get(each.id, (module, each.id)))
        elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id in aliases:
            found.add((".".join(aliases[each.value.id]), each.attr))  # of a module, should that be one
    return frozenset(found)


@cache
def _bound(module: str) -> tuple[dict[str, list[ast.AST]], dict[str, Name]]:
    """What binds each name at the top, and what each imported name is elsewhere."""
    bound: dict[str, list[ast.AST]] = {}
    for node in tree(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in (each for whole in targets for each in ast.walk(whole)):
                if isinstance(target, ast.Name):
                    bound.setdefault(target.id, []).append(node)
    aliases = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in nodes(tree(module))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    return bound, aliases
