"""`tacit serve ads` and `rotate`: the ad server, and new keys and menus for its current epoch."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from tacit.commands.output import extra_installed, print_json
from tacit.commands.serve_rounds import parties_beside, show_utc
from tacit.errors import BadInput

ADS = """\
Run the ad server: it prices menus of ads, signs tokens without seeing them, charges each reported impression
once, and gathers statistics as the server does. Its settings are a server's with a table [billing], which names
the market (campaigns, contexts, bids); `tacit serve server` runs the same party, with billing or without.

It opens epochs by itself, each with keys and menus of its own; what is changed in the market's file counts from
the next one (see tacit serve rotate). Says in one line where it listens, then serves until it is asked to end
(SIGTERM, Ctrl-C)."""

ROTATE = """\
Open an epoch now, with new keys and with menus of the market's file as it is now, in the place of the current
one and of those that were drawn ahead. Devices move to it within about a minute. What was shown from the old
menus is still charged at their prices: an epoch that is out never changes. Signed with the operator's secret;
both services must be running."""


def add_actions(
    action: Callable[[str, str, str], argparse.ArgumentParser],
    add_parties: Callable[[argparse.ArgumentParser], None],
) -> None:
    ads = action("ads", "offer menus with tokens, charge impressions", ADS)
    ads.add_argument("settings", nargs="?", type=Path, metavar="FILE", help="the server's settings, in TOML")
    ads.set_defaults(run=run_ads)

    rotate = action("rotate", "open an epoch now, with new keys and menus", ROTATE)
    rotate.add_argument("settings", type=Path, metavar="FILE", help="the server's settings, in TOML")
    add_parties(rotate)
    rotate.set_defaults(run=run_rotate)


def run_ads(args: argparse.Namespace) -> int:
    with extra_installed():
        from tacit.services import launch, settings
        from tacit.services.signatures import Party

    path = settings.settings_path(Party.SERVER, args.settings)
    found = settings.load_settings(path, Party.SERVER)
    if found.billing is None:
        raise BadInput(f"{path}: expected a table [billing], got none (tacit serve keys writes one)")
    launch.run_party(found)
    return 0


def run_rotate(args: argparse.Namespace) -> int:
    with extra_installed():
        from tacit.services import settings
        from tacit.services.launch import open_billing_operator
        from tacit.services.signatures import Party

    known = settings.load_settings(args.settings, Party.SERVER)
    parties = settings.load_parties(parties_beside(args.settings, args.parties))
    with open_billing_operator(known, parties) as operator:
        opened = operator.rotate()
    if args.json:
        print_json(opened)
    else:
        print(
            f"opened epoch {opened['epoch']} with {opened['menus']} menus, until {show_utc(opened['closes'])}"
        )
    return 0
