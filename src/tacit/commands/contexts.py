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

With one VALUE for each attribute, show what every level would tell about them: a point as LATITUDE,LONGITUDE,
several values of one attribute with commas between them. Values are read on this machine and go nowhere."""

EXAMPLES = """\
examples:
  tacit contexts contexts.toml
  tacit contexts contexts.toml 37.7596,-122.4269 Yoga
  tacit contexts contexts.toml --json

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
    parser.add_argument("values", nargs="*", metavar="VALUE", help="the exact context, one value an attribute")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tacit.schema.contexts.reading import load

    hierarchy = load(args.path)
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
        (_written(each), said) if context else (_written(each), *map(str, each))
        for each, said in zip(levels, told, strict=True)
    ]
    print_table(f"{args.path}: a {kind} of {len(levels)} levels, 0 is exact", columns, rows, numbers=names)
    return 0


def _written(levels: Sequence[int]) -> str:
    return f"({','.join(map(str, levels))})"


def _context(attributes: Sequence[Attribute], values: Sequence[str]) -> list[Any]:
    """Values as they were typed, by the kind of their attribute; never repeated in a refusal."""
    from tacit.schema.contexts.attributes import SetOf, Steps

    if len(values) != len(attributes):
        names = ", ".join(each.name for each in attributes)
        raise BadInput(f"expected one value each for {names}, got {len(values)}")
    context: list[Any] = []
    for attribute, text in zip(attributes, values, strict=True):
        if isinstance(attribute, Steps):
            context.append(text)
        elif isinstance(attribute, SetOf):
            context.append(tuple(part.strip() for part in text.split(",") if part.strip()))
        else:
            context.append(_point(attribute.name, text))
    return context


def _point(name: str, text: str) -> tuple[float, float]:
    try:
        latitude, longitude = map(float, text.split(","))
    except ValueError:
        raise BadInput(f"{name}: expected LATITUDE,LONGITUDE, got another text") from None
    return latitude, longitude
