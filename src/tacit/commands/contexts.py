"""`tacit contexts`: check a hierarchy of contexts, and see what each of its levels would tell of a moment."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands.output import Subparsers, add_json_flag, print_json, print_table
from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.schema.contexts.attributes import Attribute

ABOUT = """\
Check a hierarchy of contexts (a TOML file), and list its levels, from exact to nothing.

With NAME=VALUE for each attribute, show what every level would tell about them: a point as LATITUDE,LONGITUDE,
several values of one attribute with commas between them. Values are read on this machine and go nowhere.

Each level of a tree keeps a number of steps below its root: depths = [2, 1], or by default every depth there
is, the deepest first. A leaf that lies less deep is told exactly until a level's depth reaches it."""

EXAMPLES = """\
examples:
  tacit contexts contexts.toml
  tacit contexts contexts.toml place=37.7596,-122.4269 activity=Yoga
  tacit contexts contexts.toml --json
  tacit contexts contexts.toml --device > contexts.json

a hierarchy:
  [[attribute]]
  name = "place"
  decimals = ["exact", 2, 1]          # or metres = [500, 2_500]
  [[attribute]]
  name = "activity"
  paths = ["Sport > Yoga", "Eating > Lunch"]
  [sequence]                          # or [lattice], every combination
  steps = [[0, 0], [1, 0], [1, 1]]    # the root, where nothing is told, is added"""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "contexts",
        help="check a hierarchy of contexts, and see what its levels tell",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path, metavar="FILE", help="a hierarchy of contexts in TOML")
    parser.add_argument("values", nargs="*", metavar="NAME=VALUE", help="the exact context, by attribute")
    parser.add_argument(
        "--device", action="store_true", help="print the hierarchy as devices in JavaScript read it, and stop"
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tacit.schema.contexts.hierarchy import load_hierarchy

    hierarchy = load_hierarchy(args.path)
    if args.device:
        from tacit.schema.contexts.device_copy import hierarchy_as_json

        print_json(hierarchy_as_json(hierarchy))
        return 0
    levels = hierarchy.levels()
    names = [each.name for each in hierarchy.attributes]
    context = _context(hierarchy.attributes, args.values) if args.values else None
    told = [str(hierarchy.at(context, each)) if context else "" for each in levels]
    if args.json:
        print_json(
            {
                "attributes": [{"name": each.name, "levels": each.levels} for each in hierarchy.attributes],
                "levels": [
                    {
                        "levels": list(each),
                        "parents": [list(above) for above in hierarchy.parents(each)],
                        **({"tells": said} if context else {}),
                    }
                    for each, said in zip(levels, told, strict=True)
                ],
            }
        )
        return 0
    kind = type(hierarchy).__name__.lower()
    columns = ("level", "tells") if context else ("level", *names)
    rows = [
        (_level_words(each), said) if context else (_level_words(each), *map(str, each))
        for each, said in zip(levels, told, strict=True)
    ]
    print_table(f"{args.path}: a {kind} of {len(levels)} levels, 0 is exact", columns, rows, numbers=names)
    return 0


def _level_words(levels: Sequence[int]) -> str:
    return f"({','.join(map(str, levels))})"


def _context(attributes: Sequence[Attribute], given: Sequence[str]) -> list[Any]:
    """NAME=VALUE as they were typed, each read by its attribute; values are never repeated in a refusal."""
    names = [each.name for each in attributes]
    texts: dict[str, str] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or name not in names:
            raise BadInput(f"expected NAME=VALUE with a name among {', '.join(names)}, got another")
        if name in texts:
            raise BadInput(f"{name}: expected one value, got two")
        texts[name] = text
    for name in names:
        if name not in texts:
            raise BadInput(f"{name}: expected a value, as {name}=VALUE, got none")
    return [attribute.parse(texts[attribute.name]) for attribute in attributes]
