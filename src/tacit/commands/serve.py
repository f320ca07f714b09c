"""`tacit serve`: the parties that gather statistics, as services."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.commands.output import Subparsers, add_json_flag, print_json, print_table
from tacit.errors import BadInput

ABOUT = """\
Run a party that gathers statistics. Two parties make one system, and different people should run them:

  proxy    takes sealed reports from devices and adds up what is masked; it sees addresses, and no counts
  server   opens the masks, adds them up, and gives out the noisy sums; it never meets a device

Each reads one settings file, keeps everything in its own store and its own privacy ledger, and can be stopped
or killed at any moment: started again, it goes on where it was. SIGTERM and Ctrl-C end it after the requests
under way are answered."""

EXAMPLES = """\
examples, a trial on one machine:
  tacit serve keys --out trial
  tacit serve server trial/server.toml
  tacit serve proxy trial/proxy.toml
  tacit serve status trial/proxy.toml

Both ledgers must grant what a round costs before anything can be released:
  tacit ledger grant --ledger trial/proxy-ledger.sqlite --scope SCOPE --unit device --relation zero-out \\
      --epsilon 1 --delta 1e-8
  (and the same for trial/server-ledger.sqlite)

The environment can name the settings file (TACIT_PROXY_SETTINGS, TACIT_SERVER_SETTINGS) and nothing in it.
Needs the extra: pip install 'tacit[serve]'."""

KEYS = """\
Write settings, sealing keys and secrets for a trial of both parties on one machine.

In earnest each party makes its own set on its own machine. Only these leave it: the public key (parties.toml)
and pair.secret, which both hold. proxy.sealing and server.sealing in one hand open every report;
enrolment.secret belongs to the proxy, operator.secret to the server and to whoever opens rounds."""


def add_parser(commands: Subparsers) -> None:
    top = commands.add_parser(
        "serve",
        help="run the proxy or the server that gather statistics",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = top.add_subparsers(dest="action", metavar="ACTION", required=True)

    keys = actions.add_parser(
        "keys",
        help="make a trial set of settings, keys and secrets",
        description=KEYS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    keys.add_argument("--out", required=True, type=Path, metavar="DIR", help="the folder to write to")
    keys.add_argument("--proxy-port", type=int, default=8471, help="where the proxy listens (default: 8471)")
    keys.add_argument("--server-port", type=int, default=8472, help="where the server listens (default: 8472)")
    add_json_flag(keys)
    keys.set_defaults(run=run_keys)

    for party, does in (("proxy", "take reports from devices"), ("server", "work through jobs, give results")):
        parser = actions.add_parser(
            party,
            help=does,
            description=f"Run the {party}: {does}. Says in one line where it listens, then serves until it is "
            "asked to end (SIGTERM, Ctrl-C).",
            epilog=EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("settings", nargs="?", type=Path, metavar="FILE", help="its settings, in TOML")
        parser.set_defaults(run=run_party, party=party)

    status = actions.add_parser(
        "status",
        help="list a proxy's rounds, from its store",
        description="List the rounds in a proxy's store: how far each is, and how many reports wait or count. "
        "The proxy need not be running.",
    )
    status.add_argument("settings", nargs="?", type=Path, metavar="FILE", help="the proxy's settings, in TOML")
    add_json_flag(status)
    status.set_defaults(run=run_status)


def run_keys(args: argparse.Namespace) -> int:
    from tacit.commands.places import check_folder

    check_folder("--out", args.out)
    for name in ("proxy_port", "server_port"):
        if not 0 < getattr(args, name) < 65_536:
            raise BadInput(f"--{name.replace('_', '-')}: expected 1 to 65535, got {getattr(args, name)}")
    with _extra_installed():
        from tacit.entropy import Entropy
        from tacit.services import trial

        made = trial.write(
            args.out, proxy_port=args.proxy_port, server_port=args.server_port, entropy=Entropy()
        )
    if args.json:
        print_json({"files": [str(path) for path in made]})
    else:
        print(f"wrote {', '.join(path.name for path in made)} to {args.out}")
        print(f"next: tacit serve server {args.out / 'server.toml'}")
        print(f"      tacit serve proxy {args.out / 'proxy.toml'}")
    return 0


def run_party(args: argparse.Namespace) -> int:
    with _extra_installed():
        from tacit.services import running, settings
        from tacit.services.signing import Party

    party = Party(args.party)
    running.serve(settings.load(settings.path_of(party, args.settings), party))
    return 0


def run_status(args: argparse.Namespace) -> int:
    with _extra_installed():
        from tacit.gather.wire.rounds import Round
        from tacit.services import settings
        from tacit.services.signing import Party
        from tacit.store.gather_proxy import SqlProxyStore

    store = SqlProxyStore.open(
        settings.load(settings.path_of(Party.PROXY, args.settings), Party.PROXY).gathered
    )
    rounds = []
    for stored in store.rounds():
        round = Round.from_bytes(stored.body)
        rounds.append(
            {
                "task": round.task,
                "level": round.level,
                "phase": str(stored.phase),
                "closes": round.closes,
                "waiting": store.waiting(round.digest),
                "accepted": store.accepted_count(round.digest),
                "smallest_batch": round.smallest_batch,
                "digest": round.digest.hex(),
            }
        )
    if args.json:
        print_json(rounds)
        return 0
    columns = ("task", "level", "phase", "closes", "waiting", "accepted", "smallest_batch", "digest")
    rows = [[str(each[name]) for name in columns] for each in rounds]
    print_table("Rounds at the proxy", columns, rows, numbers=columns[3:7])
    return 0


@contextmanager
def _extra_installed() -> Iterator[None]:
    try:
        yield
    except ImportError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in ("starlette", "uvicorn", "httpx"):
            raise
        raise BadInput(f"expected {package} to be installed: pip install 'tacit[serve]'") from None
