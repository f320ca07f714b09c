"""`tacit device`: the device's client for browsers, as files for a publisher's own site."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.commands.output import Subparsers, add_action, add_json_flag, extra_installed, print_json
from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.services.page.client_export import ClientExport

ABOUT = """\
The device's client for browsers: plain ES modules that a page imports from its own site.

  export   its modules, Prebid's adapter and what it must know of the parties, into a folder; and what to put
           on a page"""

EXPORT = """\
Write the client's modules, Prebid's adapter and parties.json into a folder of a site, and say what to put on a
page. Nothing is built, and nothing else is needed: readers' browsers ask this site for the client, and nobody
but the proxy for ads.

PARTIES is one of
  https://ADS/device/parties.json   what the ad server says; any ad server of tacit has it
  a parties.json                    a copy of it
  a parties.toml                    as its operators hand it out; with --contexts and --levels

Run it again, with --overwrite, when the ad server's contexts or keys change, or tacit is updated."""

EXAMPLES = """\
examples:
  tacit device export --out site/tacit --parties https://ads.example/device/parties.json
  tacit device export --out site/tacit --parties parties.toml --contexts contexts.toml --levels 1,1
  tacit device export --out site/tacit --parties parties.json --currency EUR --json"""


def add_parser(commands: Subparsers) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser(
        "device",
        help="the client for browsers, as files for a publisher's site",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=raw,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = partial(add_action, actions, EXAMPLES)
    export = add("export", "write the client for a site, and say what to put on a page", EXPORT)
    export.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the site has it")
    export.add_argument("--parties", required=True, metavar="PARTIES", help="a URL, a parties.json or .toml")
    export.add_argument("--contexts", type=Path, metavar="FILE", help="with a .toml: the contexts' hierarchy")
    export.add_argument("--levels", metavar="L,L", help="with a .toml: what pages tell of a context")
    export.add_argument(
        "--vendor", type=int, metavar="ID", help="with a .toml: the ad server's id in the TCF's list of vendors"
    )
    export.add_argument(
        "--at", default="/tacit", metavar="PATH", help="where browsers find the folder: /tacit by default"
    )
    export.add_argument("--currency", default="USD", help="of the market's prices, for Prebid: USD by default")
    export.add_argument("--overwrite", action="store_true", help="replace what was exported there before")
    export.add_argument(
        "--commented", action="store_true", help="modules as they are written: a third more to fetch"
    )
    add_json_flag(export)
    export.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with extra_installed():
        from tacit.services.page.client_export import export_client, parties_from_toml, read_device_parties

        given = (args.contexts, args.levels, args.vendor)
        if args.parties.endswith(".toml"):
            if args.contexts is None or args.levels is None:
                raise BadInput("expected --contexts FILE and --levels L,L with a parties.toml, got less")
            levels = _levels(args.levels)
            parties = parties_from_toml(Path(args.parties), args.contexts, levels, vendor=args.vendor)
        else:
            if given != (None, None, None):
                raise BadInput("expected --contexts, --levels and --vendor with a parties.toml alone")
            parties = read_device_parties(args.parties)
        made = export_client(
            args.out, parties, at=args.at, currency=args.currency, overwrite=args.overwrite,
            commented=args.commented,
        )  # fmt: skip
    if args.json:
        print_json(made.as_json())
    else:
        _print(made)
    return 0


def _levels(spelled: str) -> list[int]:
    try:
        return [int(each) for each in spelled.split(",")]
    except ValueError:
        raise BadInput(f"levels: expected whole numbers with commas between them, got {spelled!r}") from None


def _print(made: ClientExport) -> None:
    print(f"{made.folder}: {len(made.files)} files, {made.zipped_bytes:,} bytes packed with gzip")
    print("\nOn a page, where an ad belongs:\n")
    print(made.snippet)
    print("\nOr for Prebid, built with prebid/tacitBidAdapter.js among its modules, before its auctions:\n")
    print(made.prebid)
    print("\nIts content security policy needs, beside what the page has:\n")
    print(f"{made.policy}")
