"""`tacit serve`: the parties that gather statistics and bill ads, as services: keys, processes and devices."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from tacit.commands import serve_ads, serve_backup, serve_plan, serve_rounds
from tacit.commands.output import Subparsers, add_action, add_json_flag, extra_installed, print_json
from tacit.commands.serve_rounds import parties_beside
from tacit.errors import BadInput

ABOUT = """\
Run a party. Two parties make one system, which gathers statistics and bills ads that devices choose privately,
and different people should run them:

  proxy    takes sealed reports from devices: it sees addresses, and neither counts nor choices
  server   gives out noisy sums; with a table [billing] in its settings it is the ad server, too, which offers
           menus and charges impressions. It never meets a device

Without an action both start here, with a demonstration market, until Ctrl-C.

Each reads one settings file, keeps everything in stores of its own, and can be stopped or killed at any moment:
started again, it goes on where it was. SIGTERM and Ctrl-C end it after the requests under way are answered."""

EXAMPLES = """\
examples, a trial on one machine:
  tacit serve keys --out trial                             settings, keys and secrets of both parties
  tacit serve ads trial/server.toml                        statistics and billing; `server`: the same
  tacit serve proxy trial/proxy.toml
  tacit serve visit trial                                  made-up devices show ads and report them
  tacit serve enrol trial/proxy.toml                       a device's name and key
  tacit serve open trial/server.toml round.toml            both parties take part in a round (open --help)
  tacit serve status trial/proxy.toml
  tacit serve result trial/server.toml clicks-by-city 0    the counts, once the round has closed
  tacit serve backup trial/server.toml --out copy          its stores, while it runs (restore --help: and back)

Both ledgers must grant what a round costs before anything can be released:
  tacit ledger grant --ledger trial/proxy-ledger.sqlite --scope clicks --unit device --relation zero-out \\
      --epsilon 1 --delta 1e-6
  (and the same for trial/server-ledger.sqlite)

One process serves a SQLite file: a second one is refused. Several may serve one PostgreSQL database.
On anything but this very machine a party speaks TLS (certificate and private_key in its settings), or says
behind_tls = true where a reverse proxy in front of it does.

The environment can name the settings file (TACIT_PROXY_SETTINGS, TACIT_SERVER_SETTINGS), and the value of any
key that the file leaves to it: store = "env:ADS_STORE".
Needs the extra: pip install 'tacit[serve]'."""

KEYS = """\
Write settings, keys, secrets and a demonstration market for a trial of both parties on one machine. With
--empty the market has contexts and terms to change, and no campaigns: add yours when it runs (tacit ads).

In production each party makes its own set on its own machine. Only these leave it: the public keys, in
parties.toml and in the other's [billing], and pair.secret, which both hold. proxy.sealing and server.sealing in
one hand open every report; enrolment.secret belongs to the proxy, operator.secret to the server and to whoever
opens rounds. Signing keys follow from the sealing keys."""

ENROL = """\
Print what a device needs to report: its name, its key, and the parties' public keys and URL (from parties.toml
beside the settings). The proxy stores nothing of it: the key follows from enrolment.secret and the name.

Whoever has the key can report once per round as that device: hand it over by a safe way, once."""

OPEN = """\
Open a round at the server and, through it, at the proxy: devices can report from now on. Signed with the
operator's secret; both services must be running. The file says what is asked and what is promised:

  task = "clicks-by-city"     # the run's name; with the level it names the round, once for ever
  scope = "clicks"            # of the ledger line that pays, at both parties
  level = 0                   # of the run, from 0
  cells = 1000                # length of a report; or question = "FILE", a question's bytes
  hours = 24                  # how long it is open, from now
  parties = 100000            # devices enrolled
  smallest_batch = 1000       # reports below which nothing is released

  epsilon = 1.0               # the promise of the whole run for one device;  delta = 1e-8  (default: 1e-6 or
                              # the power of ten below 1 / (100 parties))
  events = 10                 # most events of one device in the run;  each = 10: most in one cell
  levels = 3                  # rounds of the run
  totals_only = false         # true: no clicks are asked for, and noise is less
  noise = "servers"           # who adds it: servers, or users (then silent = 0.1: who may leave it out)
  law = "discrete-laplace"    # or discrete-gaussian, skellam (default: the least planned error)
  proof = false               # each report proves that its counts are in range
  skew = 60                   # seconds by which clocks may differ

The noise is the least that keeps the promise. What was opened is kept beside the file (round.toml:
round.round): the command can be given again, and asks for the very same round."""

STOP = """\
Give a round up at one party, in its store; the service may go on running. Possible until the parties have
agreed on its reports: afterwards a noisy share may have left, and is paid for. Stop it at both parties, the
proxy first: no device can report to it any more, nothing is released, and nothing was paid."""

RESULT = """\
Show what a round released, by its digest or by task and level. Asked with the operator's secret, so that the
answer is known to be the server's.

exit code 0: here are the counts; 1: not yet (come again), or too few reports (there will never be a result)."""


def add_parser(commands: Subparsers) -> None:
    top = commands.add_parser(
        "serve",
        help="run the proxy or the server that gather statistics and bill ads",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve_ads.add_demonstration(top)
    actions = top.add_subparsers(dest="action", metavar="ACTION")
    action = partial(add_action, actions, EXAMPLES)
    serve_plan.add_parser(actions)

    keys = action("keys", "make a trial set of settings, keys and secrets", KEYS)
    keys.add_argument("--out", required=True, type=Path, metavar="DIR", help="the folder to write to")
    keys.add_argument("--proxy-port", type=int, default=8471, help="where the proxy listens (default: 8471)")
    keys.add_argument("--server-port", type=int, default=8472, help="where the server listens (default: 8472)")
    keys.add_argument(
        "--empty", action="store_true", help="no made-up campaigns and no exchange: for a market of your own"
    )
    add_json_flag(keys)
    keys.set_defaults(run=run_keys)

    for party, does in (("proxy", "take reports from devices"), ("server", "work through jobs, give results")):
        about = (
            f"Run the {party}: {does}. Says in one line where it listens, then serves until it is asked to end "
            "(SIGTERM, Ctrl-C)."
        )
        parser = action(party, does, about)
        parser.add_argument("settings", nargs="?", type=Path, metavar="FILE", help="its settings, in TOML")
        parser.set_defaults(run=run_party, party=party)

    serve_ads.add_actions(partial(add_action, actions, serve_ads.EXAMPLES), _add_parties)

    serve_backup.add_actions(action)

    enrol = action("enrol", "print a device's name and key", ENROL)
    enrol.add_argument("settings", type=Path, metavar="FILE", help="the proxy's settings, in TOML")
    enrol.add_argument(
        "device", nargs="?", metavar="DEVICE", help="its name, 32 hexadecimal digits (default: a new one)"
    )
    add_json_flag(enrol)
    enrol.set_defaults(run=run_enrol)

    opening = action("open", "open a round at both parties", OPEN)
    opening.add_argument("settings", type=Path, metavar="FILE", help="the server's settings, in TOML")
    opening.add_argument("round", type=Path, metavar="ROUND", help="what is asked and promised, in TOML")
    opening.add_argument("--dry-run", action="store_true", help="only say what would be opened")
    _add_parties(opening)
    opening.set_defaults(run=serve_rounds.run_open)

    status = action(
        "status",
        "list a party's rounds, from its store",
        "List the rounds in a party's store: how far each is, how many reports wait or count, and whether its "
        "ledger can pay. The party need not be running.",
    )
    status.add_argument(
        "settings", nargs="?", type=Path, metavar="FILE", help="the settings of either party, in TOML"
    )
    add_json_flag(status)
    status.set_defaults(run=serve_rounds.run_status)

    stop = action("stop", "give up a round that cannot go on", STOP)
    stop.add_argument("settings", type=Path, metavar="FILE", help="the settings of either party, in TOML")
    stop.add_argument("task", metavar="TASK", help="the round's task")
    stop.add_argument("level", type=int, metavar="LEVEL", help="its level, from 0")
    add_json_flag(stop)
    stop.set_defaults(run=serve_rounds.run_stop)

    result = action("result", "show what a round released", RESULT)
    result.add_argument("settings", type=Path, metavar="FILE", help="the server's settings, in TOML")
    result.add_argument("name", metavar="DIGEST|TASK", help="the round's digest, or its task")
    result.add_argument("level", nargs="?", type=int, metavar="LEVEL", help="with a task: the round's level")
    _add_parties(result)
    result.set_defaults(run=serve_rounds.run_result)


def _add_parties(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--parties",
        type=Path,
        metavar="FILE",
        help="URLs and public keys of both parties (default: parties.toml beside the settings)",
    )
    add_json_flag(parser)


def run_keys(args: argparse.Namespace) -> int:
    from tacit.files import check_folder

    check_folder("--out", args.out)
    for name in ("proxy_port", "server_port"):
        serve_ads.expect_port(name, getattr(args, name))
    with extra_installed():
        from tacit.entropy import Entropy
        from tacit.services import trial

        made = trial.write_trial(
            args.out, proxy_port=args.proxy_port, server_port=args.server_port, entropy=Entropy(), billing=True,
            empty=args.empty,
        )  # fmt: skip
    if args.json:
        print_json({"files": [str(path) for path in made]})
    else:
        print(f"wrote {', '.join(path.name for path in made)} to {args.out}")
        print(f"next: tacit serve ads {args.out / 'server.toml'}")
        print(f"      tacit serve proxy {args.out / 'proxy.toml'}")
        if args.empty:
            print(
                f"      tacit ads keys make operator --settings {args.out / 'server.toml'} --out operator.key"
            )
            print("      tacit ads --help")
        else:
            print(f"      tacit serve visit {args.out}")
            print("      tacit serve open --help")
    return 0


def run_party(args: argparse.Namespace) -> int:
    with extra_installed():
        from tacit.services import launch, settings
        from tacit.services.signatures import Party

    party = Party(args.party)
    launch.run_party(settings.load_settings(settings.settings_path(party, args.settings), party))
    return 0


def run_enrol(args: argparse.Namespace) -> int:
    from tacit.entropy import Entropy
    from tacit.gather.protocol import credentials
    from tacit.services import settings
    from tacit.services.signatures import Party

    known = settings.load_settings(args.settings, Party.PROXY)
    device = Entropy().bytes(credentials.DEVICE_BYTES) if args.device is None else _device(args.device)
    both = settings.load_parties(parties_beside(args.settings, None))
    told = {
        "device": device.hex(),
        "key": credentials.issue_device_key(known.secrets["enrolment"], device).hex(),
        "proxy_url": both.proxy.url,
        "proxy_key": both.proxy.public_key.hex(),
        "server_key": both.server.public_key.hex(),
    }
    if args.json:
        print_json(told)
    else:
        for name, value in told.items():
            print(f"{name:9}  {value}")
    return 0


def _device(spelled: str) -> bytes:
    from tacit.gather.protocol.credentials import DEVICE_BYTES

    try:
        device = bytes.fromhex(spelled)
    except ValueError:
        device = b""
    if len(device) != DEVICE_BYTES:
        raise BadInput(f"DEVICE: expected {2 * DEVICE_BYTES} hexadecimal digits, got {len(spelled)} characters")
    return device
