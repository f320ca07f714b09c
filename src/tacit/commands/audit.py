"""`tacit audit`: every mechanism against its claim, and a weak twin of each that must be caught."""

from __future__ import annotations

import argparse
import importlib
import math
from typing import TYPE_CHECKING, Any

from tacit.commands.output import Subparsers, add_json_flag, print_json, print_table, tracked

if TYPE_CHECKING:
    from tacit.privacy.audit.case import Case, Verdict

ABOUT = """\
Check that every mechanism keeps its word. Where the outputs can be enumerated the worst epsilon is computed
exactly; where not, it is bounded from below by sampling (Clopper-Pearson). Each mechanism has a twin that is
deliberately too weak: an audit that does not catch it has no power, and fails."""

EPILOG = """\
exit code 0: every claim holds and every twin is caught; 1: a violation, or a twin that slipped through.
An honest mechanism is accused with probability at most 1e-9 per case."""


CATALOGUES = (
    "tacit.privacy.audit.catalogue",
    "tacit.privacy.choice.audit",
    "tacit.privacy.choice.audit_optimal",
    "tacit.train.labels.audit",
    "tacit.train.statistic.audit",
    "tacit.train.audit",
    "tacit.gather.audit",
    "tacit.cleanroom.audit",
)
"""Modules with a `cases()`; a part that brings mechanisms adds its own here."""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "audit",
        help="bounds for every mechanism, against its claim",
        description=ABOUT,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--trials",
        type=int,
        help="draws per dataset for empirical bounds; with fewer, twins may slip through (default 200000)",
    )
    parser.add_argument("--seed", type=int, help="draw from a simulation with this seed, to repeat a run")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tacit import expect
    from tacit.entropy import Entropy, Simulation
    from tacit.privacy.audit.case import TRIALS

    trials = TRIALS if args.trials is None else expect.whole("--trials", args.trials, at_least=1)
    source = Entropy() if args.seed is None else Simulation(args.seed)
    verdicts = [case.verdict(source, trials) for case in tracked(all_cases(), "auditing")]
    failed = [verdict for verdict in verdicts if not verdict.holds]
    if args.json:
        print_json([_record(verdict) for verdict in verdicts])
        return 1 if failed else 0
    print_table(
        "claims against what the mechanisms do",
        ("mechanism", "neighbours", "claimed ε", "δ", "found ε", "twin's ε", "verdict"),
        [
            (
                verdict.case.name,
                str(verdict.case.relation),
                f"{verdict.case.claimed:.4f}",
                f"{verdict.case.delta:g}",
                f"{'=' if verdict.case.method == 'exact' else '≥'} {_shown(verdict.bound)}",
                _shown(verdict.twin_bound),
                _words(verdict),
            )
            for verdict in verdicts
        ],
        numbers=("claimed ε", "δ", "found ε", "twin's ε"),
    )
    print("=  exact, by enumeration    ≥  at least, by sampling    twin: the same claim, deliberately too weak")
    if failed:
        print(f"{len(failed)} of {len(verdicts)} failed: {', '.join(v.case.name for v in failed)}")
    else:
        print(f"all {len(verdicts)} claims hold, and all {len(verdicts)} weak twins were caught")
    return 1 if failed else 0


def all_cases() -> list[Case]:
    return [case for name in CATALOGUES for case in importlib.import_module(name).cases()]


def _words(verdict: Verdict) -> str:
    if not verdict.kept:
        return "VIOLATED"
    return "holds" if verdict.twin_caught else "no power: twin missed"


def _record(verdict: Verdict) -> dict[str, Any]:
    case = verdict.case
    return {
        "name": case.name,
        "value": _finite(verdict.bound),
        "bar": case.claimed,
        "holds": verdict.holds,
        "relation": case.relation,
        "delta": case.delta,
        "method": case.method,
        "twin_value": _finite(verdict.twin_bound),
        "twin_caught": verdict.twin_caught,
    }


def _shown(bound: float) -> str:
    """A bound on an epsilon; one below 0, of too few draws, says no more than 0 does."""
    return f"{max(0.0, bound):.4f}"


def _finite(number: float) -> float | None:
    """JSON has no infinity."""
    return number if math.isfinite(number) else None
