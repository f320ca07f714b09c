"""`tacit room serve`: the room as a process."""

from __future__ import annotations

import argparse

from tacit.commands.room_keys import extra_installed


def run(args: argparse.Namespace) -> int:
    with extra_installed():
        from tacit.services.room import running
    from tacit.services.room import settings

    running.serve(settings.load_room(args.settings))
    return 0
