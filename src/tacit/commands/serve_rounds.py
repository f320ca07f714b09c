"""`tacit serve status`, `open`, `stop` and `result`: a party's rounds, opening one, and what one released.

Status and stop work on the party's store; the party need not be running.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import expect
from tacit.commands.output import extra_installed, print_json, print_table
from tacit.errors import BadInput, GatherError, NotYet, TooFew

if TYPE_CHECKING:
    from tacit.gather.protocol.messages import RoundResult
    from tacit.services.http_clients import HttpOperator
    from tacit.services.round_file import PlannedRound
    from tacit.services.settings import Parties, PartySettings

COLUMNS = ("task", "level", "phase", "closes", "waiting", "accepted", "smallest_batch", "needs", "digest")
NUMBERS = ("level", "waiting", "accepted", "smallest_batch")


def run_status(args: argparse.Namespace) -> int:
    with extra_installed():
        from tacit.services import settings
        from tacit.services.round_status import round_statuses
        from tacit.services.signatures import Party

    path: Path = args.settings if args.settings is not None else settings.settings_path(Party.PROXY, None)
    found = settings.load_either_settings(path)
    rounds = [each.as_json() for each in round_statuses(found)]
    if args.json:
        print_json(rounds)
        return 0
    rows = [[_show_cell(name, each[name]) for name in COLUMNS] for each in rounds]
    print_table(f"Rounds at the {found.party}", COLUMNS, rows, numbers=NUMBERS)
    return 0


def _show_cell(name: str, value: Any) -> str:
    if name == "closes":
        return show_utc(value)
    return "-" if value is None else str(value)


def show_utc(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def run_stop(args: argparse.Namespace) -> int:
    with extra_installed():
        from tacit.services import settings
        from tacit.services.round_status import stop_round

    found = settings.load_either_settings(args.settings)
    phase = stop_round(found, args.task, args.level)
    if args.json:
        print_json({"task": args.task, "level": args.level, "party": str(found.party), "phase": phase})
    else:
        print(f"{args.task} {args.level} is given up at the {found.party}: {phase}, nothing of it will leave")
    return 0


SHOWN_AT_MOST = 1_000


def run_open(args: argparse.Namespace) -> int:
    with extra_installed():
        from tacit.gather.estimate.plan import noise_lines
        from tacit.gather.protocol.rounds import check_key_hash
        from tacit.services import round_file
        from tacit.services.launch import clock, derive_check_key, open_operator

    settings, parties = _server(args)
    check = check_key_hash(derive_check_key(settings))
    asked = round_file.read_round_file(args.round, parties, check=check, now=clock())
    if not args.dry_run:
        asked = round_file.keep_round(asked, args.round)
        if asked.round.closes <= clock():
            raise BadInput(f"{args.round}: expected a round that is still to close, got one that has closed")
        with open_operator(settings, parties) as operator:
            _open(operator, asked, settings)
    told = asked.as_json()
    if args.json:
        print_json({**told, "opened": not args.dry_run})
        return 0
    print(f"{'would open' if args.dry_run else 'opened'} {asked.round.key}, digest {told['digest']}")
    batch = f"at least {asked.round.smallest_batch:,} reports"
    print(f"closes {show_utc(asked.round.closes)}; {asked.round.cells:,} counts; {batch}")
    print(
        f"promise to each device: epsilon {told['epsilon']:g}, delta {told['delta']:g} over {told['levels']} "
        f"level(s); noise of standard deviation {told['noise_sd']:.2f} on each count"
    )
    print("\n".join(noise_lines(asked.plan, asked.options)))
    cost = asked.round.cost
    print(
        f"costs on scope {asked.round.scope!r} at each party: epsilon {float(cost.epsilon):.9g}, "
        f"delta {float(cost.delta):g}"
    )
    return 0


def _open(operator: HttpOperator, asked: PlannedRound, settings: PartySettings) -> None:
    from tacit.services.problems import NotGranted

    try:
        operator.open_round(asked.announced)
    except NotGranted as missing:
        here = missing.party == "server"
        ledger = shlex.quote(expect.without_passwords(settings.ledger)) if here else "ITS-LEDGER"
        raise GatherError(
            f"{missing.party}: its ledger cannot pay for this round; there, first: tacit ledger grant --ledger "
            f"{ledger} --scope {shlex.quote(missing.scope)} --unit device --relation zero-out "
            f"--epsilon {missing.epsilon} --delta {missing.delta}"
        ) from None


def run_result(args: argparse.Namespace) -> int:
    with extra_installed():
        from tacit.services.launch import open_operator

    settings, parties = _server(args)
    with open_operator(settings, parties) as operator:
        digest = _digest(operator, args.name, args.level)
        try:
            result = operator.result(digest)
        except NotYet:
            return _report_nothing(args, "not-yet", "there is no result yet: come again", digest=digest.hex())
        except TooFew as few:
            words = f"{few.count} reports were accepted, {few.smallest} are needed: there will be no result"
            return _report_nothing(
                args, "too-few", words, digest=digest.hex(), count=few.count, smallest=few.smallest
            )
    _show(args, result)
    return 0


def _digest(operator: HttpOperator, name: str, level: int | None) -> bytes:
    if level is not None:
        found = operator.digest_of(name, level)
        if found is None:
            raise BadInput(
                f"expected a round of this task and level at the server, got none for {name} {level}"
            )
        return found
    try:
        digest = bytes.fromhex(name)
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise BadInput("expected a digest of 64 hexadecimal digits, or a task and a level, got one other word")
    return digest


def _report_nothing(args: argparse.Namespace, status: str, words: str, **more: Any) -> int:
    if args.json:
        print_json({"status": status, **more})
    else:
        print(f"{status.replace('-', ' ')}: {words}")
    return 1


def _show(args: argparse.Namespace, result: RoundResult) -> None:
    if args.json:
        print_json(
            {
                "status": "released",
                "digest": result.digest.hex(),
                "count": result.count,
                "noise_variance": result.noise_variance,
                "values": result.values.tolist(),
            }
        )
        return
    title = (
        f"{result.count:,} reports; each count has noise of standard deviation {result.noise_variance**0.5:.2f}"
    )
    rows = [(str(cell), f"{value:,}") for cell, value in enumerate(result.values[:SHOWN_AT_MOST].tolist())]
    print_table(title, ("cell", "count"), rows, numbers=("cell", "count"))
    if len(result.values) > SHOWN_AT_MOST:
        print(f"and {len(result.values) - SHOWN_AT_MOST:,} more: --json has them all", file=sys.stderr)


def _server(args: argparse.Namespace) -> tuple[PartySettings, Parties]:
    with extra_installed():
        from tacit.services import settings
        from tacit.services.signatures import Party

    known = settings.load_settings(args.settings, Party.SERVER)
    return known, settings.load_parties(parties_beside(args.settings, args.parties))


def parties_beside(settings: Path, given: Path | None) -> Path:
    """parties.toml: as given, or beside the settings."""
    from tacit.services.settings import PARTIES_FILE

    return settings.parent / PARTIES_FILE if given is None else given
