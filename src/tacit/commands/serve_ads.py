"""`tacit serve` alone, `ads`, `visit`, `rotate`: a demonstration, the ad server, devices, new keys."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.commands.output import add_json_flag, extra_installed, print_json, print_table, spinner
from tacit.commands.serve_rounds import parties_beside, show_utc
from tacit.errors import BadInput, BillError

MOST_VISITS = 10_000

ADS = """\
Run the ad server: it prices menus of ads, signs tokens without seeing them, charges each reported impression
once, and gathers statistics as the server does. It has an API for campaigns and reports (/openapi.json), a
console (/console), public menus (/menus), an edge for OpenRTB, /metrics and /healthz. Its settings are a
server's with a table [billing], which names the market; `tacit serve server` runs the same party, with billing
or without.

It opens epochs by itself, each with keys and menus of its own; what is changed of campaigns (tacit ads) and in
the market's file counts from the next one (see tacit serve rotate). Says in one line where it listens, then
serves until it is asked to end (SIGTERM, Ctrl-C)."""

ROTATE = """\
Open an epoch now, with new keys and with menus of the campaigns and the market's file as they are now, in the
place of the current one and of those that were drawn ahead. Devices move to it within about a minute. What was
shown from the old menus is still charged at their prices: an epoch that is out never changes. Signed with the
operator's secret; both services must be running."""

VISIT = """\
Let made-up devices show ads through parties that run. FOLDER is that of a trial (tacit serve), or
the parties.toml in one that has a contexts.toml, too. Each device has tastes, a home and a journal of its own
(in FOLDER/devices): it tells a generalised context, gets the context's menu and a blind token, chooses
privately within the epsilon it has, reports what it showed, and learns among how many reports its own was
hidden. One of four did not agree: it shows what everybody is shown, and spends nothing.

Devices whose people allow it also take part in rounds of statistics that are open: those that the ad server
opens by schedule (the table [statistics] of its settings), which count impressions and clicks by context and
campaign, and others (tacit serve open) as far as these have no question: cells are then campaigns by number.
That needs the trial's proxy.toml, to enrol them.

exit code 0: ads were shown; 1: none was, and the lines say why."""

DEMONSTRATION = "tacit-demo"


EXAMPLES = """\
examples:
  tacit serve                                      both parties and a small market, here, until Ctrl-C
  tacit serve visit tacit-demo --devices 50        made-up devices choose, show and report ads
  tacit serve rotate tacit-demo/server.toml        an epoch now, with new keys and menus
  tacit serve plan --help                          epochs and contexts that hide reports well enough
  tacit bill status tacit-demo/server.toml         what campaigns were charged"""


def add_demonstration(top: argparse.ArgumentParser) -> None:
    """What `tacit serve` without an action does."""
    group = top.add_argument_group("without an action")
    where = f"the folder to run in (default: {DEMONSTRATION})"
    group.add_argument("--out", type=Path, metavar="DIR", help=where)
    for party in ("proxy", "server"):
        group.add_argument(f"--{party}-port", type=int, metavar="PORT", help=f"where the {party} listens")
    group.add_argument("--json", action="store_true", help="say in JSON where they listen")
    top.set_defaults(run=run_demonstration)


def add_actions(
    action: Callable[[str, str, str], argparse.ArgumentParser],
    add_parties: Callable[[argparse.ArgumentParser], None],
) -> None:
    ads = action("ads", "offer menus with tokens, charge impressions", ADS)
    ads.add_argument("settings", nargs="?", type=Path, metavar="FILE", help="the server's settings, in TOML")
    ads.set_defaults(run=run_ads)

    visit = action("visit", "let made-up devices show ads", VISIT)
    visit.add_argument("place", type=Path, metavar="FOLDER", help="of a trial, or its parties.toml")
    visit.add_argument("--devices", type=int, default=20, metavar="N", help="how many (default: 20)")
    visit.add_argument("--visits", type=int, default=5, metavar="N", help="of each device (default: 5)")
    add_json_flag(visit)
    visit.set_defaults(run=run_visit)

    rotate = action("rotate", "open an epoch now, with new keys and menus", ROTATE)
    rotate.add_argument("settings", type=Path, metavar="FILE", help="the server's settings, in TOML")
    add_parties(rotate)
    rotate.set_defaults(run=run_rotate)


def expect_port(name: str, port: int) -> None:
    if not 0 < port < 65_536:
        raise BadInput(f"--{name.replace('_', '-')}: expected 1 to 65535, got {port}")


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


def run_demonstration(args: argparse.Namespace) -> int:
    with extra_installed():
        from tacit.entropy import Entropy
        from tacit.services import demonstration

    folder = Path(DEMONSTRATION) if args.out is None else args.out
    for name in ("proxy_port", "server_port"):
        if getattr(args, name) is not None:
            expect_port(name, getattr(args, name))
    made = demonstration.prepare_folder(folder, args.proxy_port, args.server_port, Entropy())
    with demonstration.running_parties(folder) as parties:
        urls = {party: line.split()[-1] for party, (_, line) in parties.items()}
        page = f"{urls['ads']}/" if demonstration.has_page(folder) else None
        if args.json:
            console = f"{urls['ads']}/console"
            print_json({"folder": str(folder), "made": made, **urls, "page": page, "console": console})
        else:
            print(f"made {folder}: settings, keys and a small market" if made else f"using {folder} as it is")
            print(f"ad server   {urls['ads']}")
            print(f"proxy       {urls['proxy']}")
            if page is not None:
                print(f"page        {page}")
            print(f"console     {urls['ads']}/console")
            key, quoted = folder / demonstration.KEY_FILE, shlex.quote(str(folder))
            make = f"a key: tacit ads keys make operator --settings {quoted}/server.toml --out operator.key"
            print(f"            sign in by {f'the key in {key}' if key.exists() else make}")
            print(NEXT.format(folder=quoted))
        sys.stdout.flush()
        ended = demonstration.wait_for_an_end({party: process for party, (process, _) in parties.items()})
    raise BillError(f"expected {ended} to run until Ctrl-C, got its end; its own words are above")


NEXT = """\
try, in another terminal:
  tacit serve visit {folder}                 devices choose, show and report ads
  tacit bill status {folder}/server.toml     what campaigns were charged
  tacit bill invoices {folder}/server.toml --close
  tacit serve rotate {folder}/server.toml    new keys, and menus of what campaigns say now
Ctrl-C ends both"""


def run_visit(args: argparse.Namespace) -> int:
    for name in ("devices", "visits"):
        if not 1 <= getattr(args, name) <= MOST_VISITS:
            raise BadInput(f"--{name}: expected 1 to {MOST_VISITS}, got {getattr(args, name)}")
    with extra_installed():
        from tacit.entropy import Entropy
        from tacit.services import visits
        from tacit.services.launch import clock

    place = visits.read_place(args.place)
    with spinner("visiting"):
        seen = visits.run_visits(
            place, devices=args.devices, visits=args.visits, clock=clock, entropy=Entropy()
        ).as_json()
    if args.json:
        print_json(seen)
    else:
        _show_visits(seen)
    return 0 if seen["shown"] else 1


def _show_visits(seen: dict[str, Any]) -> None:
    rows = [
        (
            each["context"], each["lane"], "nothing" if each["campaign"] is None else str(each["campaign"]),
            f"{each['price_micros']:,}", str(each["times"]),
        )
        for each in seen["shown"]
    ]  # fmt: skip
    columns = ("disclosed context", "lane", "campaign", "micros each", "shown")
    print_table(f"What {seen['devices']} devices showed", columns, rows, numbers=columns[3:])
    for why, times in seen["refused"].items():
        print(f"{times} visits showed nothing: {why}")
    lanes = seen["lanes"]
    print(
        f"{lanes['personal']} chosen privately, epsilon {seen['epsilon']:g} in all; {lanes['public']} as "
        f"everybody is shown, epsilon 0; {seen['price_micros']:,} micros to be charged"
    )
    batches = seen["batches"]
    sizes = f"{len(batches)} batches of {min(batches)} to {max(batches)}" if batches else "no batch yet"
    print_table(
        "What each party saw",
        ("party", "saw", "did not see"),
        [
            ("devices", "their own contexts, tastes and choices", "anything of each other"),
            (
                "proxy",
                f"{seen['requests']} sealed requests and {seen['reports']} reports, with addresses; which menu "
                "each report is of",
                "contexts asked for, choices, prices",
            ),
            (
                "ad server",
                f"{seen['requests']} generalised contexts; {sizes}, shuffled: which entry each report is of",
                "devices, addresses, exact contexts, tastes; which request a report came from",
            ),
        ],
    )
    waits = f"; {seen['waiting']} wait until their cohort is large enough, or their epoch expires"
    print(f"{seen['settled']} reports left in batches{waits if seen['waiting'] else ''}")
    for task, devices in seen["rounds"].items():
        print(f"{devices} devices took part in the round {task}")


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
