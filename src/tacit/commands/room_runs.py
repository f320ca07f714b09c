"""`tacit room runs`: which runs have set releases aside in a room, and handing back what one did not use."""

from __future__ import annotations

import argparse
import time

from tacit.commands.output import print_json, print_table


def run(args: argparse.Namespace) -> int:
    from tacit.cleanroom.wire.agreement import shown_time
    from tacit.services.room.looking import hand_back, held_runs
    from tacit.services.room.settings import load_room

    settings = load_room(args.settings)
    given = None if args.hand_back is None else hand_back(settings, args.hand_back, int(time.time()))
    found = held_runs(settings)
    if args.json:
        print_json({"runs": {name: vars(each) for name, each in found.items()}, "handed_back": given})
        return 0
    cells = [
        (
            name,
            f"{each.rows:,}",
            f"{each.releases}",
            shown_time(each.begun),
            "handed back" if each.handed_back else "",
        )
        for name, each in found.items()
    ]
    columns = ("run", "records", "releases of each", "begun", "")
    print_table("Runs that set releases aside", columns, cells, numbers=columns[1:3])
    if given is not None:
        print(f"{args.hand_back}: {given:,} releases of single records are free again")
    return 0
