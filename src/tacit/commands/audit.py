"""`tacit audit`: every mechanism against its claim, and how little of a weakening of each is caught."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tacit.commands.output import Subparsers, add_json_flag, print_json, print_table, spinner, track_progress

if TYPE_CHECKING:
    from tacit.privacy.audit.case import AuditCase

ABOUT = """\
Check every mechanism against what it claims. Where the outputs can be enumerated the worst epsilon is computed
exactly. Where not, it is bounded from below by sampling: by how often an event comes up on two neighbours, and
by how far the noise reaches. The same look then judges weaker mechanisms, with a share of their noise (or of
1 / epsilon) left: "caught at" is the largest share that was caught. Some have a twin with another mistake."""

EPILOG = """\
exit code 0: every claim holds, and every weakening was caught that must be (a share of .95 where outputs can be
enumerated, of .9 where not); 1: a violation, or an audit without that power.
An honest mechanism is accused with probability at most 1e-9 per case."""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "audit",
        help="check the epsilon of every mechanism against its claim",
        description=ABOUT,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--trials",
        type=int,
        help="draws per dataset for empirical bounds; with fewer, less is caught (default 200000)",
    )
    parser.add_argument("--seed", type=int, help="draw from a simulation with this seed, to repeat a run")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tacit import expect
    from tacit.entropy import Entropy, Simulation
    from tacit.privacy.audit.case import SHARES, TRIALS

    trials = TRIALS if args.trials is None else expect.whole("--trials", args.trials, at_least=1)
    source = Entropy() if args.seed is None else Simulation(args.seed)
    verdicts = [case.verdict(source, trials) for case in track_progress(_load_cases(), "auditing")]
    failed = [verdict for verdict in verdicts if not verdict.holds]
    if args.json:
        print_json([verdict.as_json() for verdict in verdicts])
        return 1 if failed else 0
    print_table(
        "claims against what the mechanisms do",
        ("mechanism", "neighbours", "claimed ε", "δ", "found ε", "caught at", "twin's ε", "verdict"),
        [
            (
                verdict.case.name,
                str(verdict.case.relation),
                f"{verdict.case.claimed:.4f}",
                f"{verdict.case.delta:g}",
                f"{'=' if verdict.case.method == 'exact' else '≥'} {_bound_words(verdict.bound)}",
                "-" if verdict.caught_at is None else f"{float(verdict.caught_at):g}",
                "-" if verdict.twin_bound is None else _bound_words(verdict.twin_bound),
                verdict.words,
            )
            for verdict in verdicts
        ],
        numbers=("claimed ε", "δ", "found ε", "caught at", "twin's ε"),
    )
    print(
        "=  exact, by enumeration    ≥  at least, by sampling\n"
        "caught at: the largest share of its noise, or of 1/ε, with which the mechanism was caught, of "
        f"{', '.join(f'{float(share):g}' for share in SHARES)}\n"
        "twin: the same claim, with a mistake of another kind"
    )
    if failed:
        print(f"{len(failed)} of {len(verdicts)} failed: {', '.join(v.case.name for v in failed)}")
    else:
        least = min(verdict.caught_at for verdict in verdicts if verdict.caught_at is not None)
        print(f"all {len(verdicts)} claims hold, and each is caught with {float(least):g} of its noise or less")
    return 1 if failed else 0


def _load_cases() -> list[AuditCase]:
    from tacit.audit import all_cases

    with spinner("working out what each mechanism claims"):
        return all_cases()


def _bound_words(bound: float) -> str:
    """A bound on an epsilon; one below 0, of too few draws, says no more than 0 does."""
    return f"{max(0.0, bound):.4f}"
