"""`tacit room keys`: keys and certificates of both parties, and who may have which."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tacit.commands.output import print_json, print_table
from tacit.errors import BadInput

EXTRAS = {"grpc": "room", "torch": "train"}


@contextmanager
def extra_installed() -> Iterator[None]:
    """Say in one line which extra is missing."""
    try:
        yield
    except ImportError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise BadInput(f"expected {package} to be installed: pip install 'tacit[{EXTRAS[package]}]'") from None


def run(args: argparse.Namespace) -> int:
    from tacit.commands.places import check_folder
    from tacit.entropy import Entropy
    from tacit.services.room import keys

    check_folder("--out", args.out)
    made = keys.write(
        args.out,
        platform=args.platform,
        room=args.room,
        now=int(time.time()),
        days=args.days,
        entropy=Entropy(),
    )
    if args.json:
        print_json(
            [
                {"file": str(each.path), "holder": each.holder, "private": each.private, "means": each.means}
                for each in made
            ]
        )
        return 0
    rows = [
        (str(each.path.relative_to(args.out)), "private" if each.private else "public", each.means)
        for each in made
    ]
    print_table(f"Keys of {args.platform} and {args.room}, in {args.out}", ("file", "is", "belongs to"), rows)
    print("room/ goes to the room's machine, platform/ to the platform's; nothing private goes anywhere else.")
    print(f"next: terms in TOML, then tacit room agree {args.out}/agreement.json --help")
    return 0
