"""What `tacit serve` does with rounds: open one, and show what one released."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tacit import expect
from tacit.commands.gather import noise_lines, noise_record
from tacit.commands.output import print_json, print_table
from tacit.commands.serve_party import extra_installed, parties_beside
from tacit.commands.serve_status import utc
from tacit.errors import BadInput, GatherError, NotYet, TooFew

if TYPE_CHECKING:
    from tacit.gather.wire.closing import Result
    from tacit.services.asking import Asked
    from tacit.services.linking import HttpOperator
    from tacit.services.parties import Parties
    from tacit.services.settings import Settings

SHOWN_AT_MOST = 1_000


def run_open(args: argparse.Namespace) -> int:
    with extra_installed():
        from tacit.gather.wire.checking import check_hash
        from tacit.services import asking
        from tacit.services.running import check_key, clock

    settings, parties = _server(args)
    check = check_hash(check_key(settings))
    asked = asking.read(args.round, parties, check=check, now=clock())
    if not args.dry_run:
        asked = asking.kept(asked, args.round)
        if asked.round.closes <= clock():
            raise BadInput(f"{args.round}: expected a round that is still to close, got one that has closed")
        with _operator(settings, parties) as operator:
            _open(operator, asked, settings)
    told = _told(asked)
    if args.json:
        print_json({**told, "opened": not args.dry_run})
        return 0
    print(f"{'would open' if args.dry_run else 'opened'} {asked.round.key}, digest {told['digest']}")
    batch = f"at least {asked.round.smallest_batch:,} reports"
    print(f"closes {utc(asked.round.closes)}; {asked.round.cells:,} counts; {batch}")
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


def _open(operator: HttpOperator, asked: Asked, settings: Settings) -> None:
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


def _told(asked: Asked) -> dict[str, Any]:
    round = asked.round
    return {
        "task": round.task,
        "level": round.level,
        "digest": round.digest.hex(),
        "opens": round.opens,
        "closes": round.closes,
        "cells": round.cells,
        "epsilon": float(round.promise.epsilon),
        "delta": float(round.promise.delta),
        "levels": round.promise.levels,
        "noise_sd": asked.plan.published_sd(round.parties),
        **noise_record(asked.plan, asked.options),
        "cost": {"epsilon": float(round.cost.epsilon), "delta": float(round.cost.delta)},
        "scope": round.scope,
    }


def run_result(args: argparse.Namespace) -> int:
    settings, parties = _server(args)
    with _operator(settings, parties) as operator:
        digest = _digest(operator, args.name, args.level)
        try:
            result = operator.result(digest)
        except NotYet:
            return _nothing(args, "not-yet", "there is no result yet: come again", digest=digest.hex())
        except TooFew as few:
            words = f"{few.count} reports were accepted, {few.smallest} are needed: there will be no result"
            return _nothing(args, "too-few", words, digest=digest.hex(), count=few.count, smallest=few.smallest)
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


def _nothing(args: argparse.Namespace, status: str, words: str, **more: Any) -> int:
    if args.json:
        print_json({"status": status, **more})
    else:
        print(f"{status.replace('-', ' ')}: {words}")
    return 1


def _show(args: argparse.Namespace, result: Result) -> None:
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


def _server(args: argparse.Namespace) -> tuple[Settings, Parties]:
    with extra_installed():
        from tacit.services import parties, settings
        from tacit.services.signing import Party

    return settings.load(args.settings, Party.SERVER), parties.load(parties_beside(args.settings, args.parties))


@contextmanager
def _operator(settings: Settings, parties: Parties) -> Iterator[HttpOperator]:
    """Calls to the server as its operator; what fails on the way is said in one line."""
    from tacit.services.linking import ClocksDiffer, LinkFailed, OtherFailed, client_to
    from tacit.services.running import operator_calls

    try:
        with client_to(parties.server.trust, settings.pace.timeout_seconds) as client:
            yield operator_calls(settings, client, parties.server.url)
    except (ClocksDiffer, OtherFailed) as problem:
        raise GatherError(str(problem)) from None
    except LinkFailed as problem:
        where = parties.server.url
        raise GatherError(f"expected an answer from the server at {where}, got none: {problem}") from None
