"""`tacit gather`: a round of counting over simulated devices, with the parties' own code."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands.output import Subparsers, add_json_flag, print_json, print_table, progress_bar
from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.gather.protocol.rounds import Round
    from tacit.gather.simulate.rounds import RoundOutcome

TOP = """\
Statistics from people's devices: the proxy sees masked vectors, the server sees seeds of masks, and what they
release together is a sum with noise. Neither alone learns anything about a person, and any share of the devices
may be away."""

ABOUT = """\
Count over simulated devices: each makes one sealed upload, the proxy takes it, the server judges it, both agree
on the set of reports, and the sum is released with noise. The code is that of the running parties.

Some devices are away; some cheat, as many in each way: they replay, send two reports, forge a tag, send too
little or garbage, leave their noise out (where users add it), lie about their counts, or come late. The table
says what was refused and why, how far the release is from the exact counts, and what each party's work took.

The law of the noise is the one with the least planned error; what others would cost is listed below. Devices
add noise only where --silent or --noise says so: less noise is no reason to trust them.

A lie about counts is only refused with --proof: without, one device can shift a count by any amount."""

EXAMPLES = """\
examples:
  tacit gather simulate --devices 2000
  tacit gather simulate --devices 100000 --counts 1000 --away 0.2 --malicious 0.05
  tacit gather simulate --devices 5000 --malicious 0.1 --proof
  tacit gather simulate --devices 5000 --noise users --epsilon 2 --json
  tacit gather simulate --devices 5000 --silent 0.05 --totals-only

exit code 0: exactly the bad uploads were refused, and the sum was released; 1: another upload was
refused, a bad one was taken, or nothing was released."""


LARGEST_EPSILON = 50.0  # beyond it there is next to no noise


def add_parser(commands: Subparsers) -> None:
    gather = commands.add_parser(
        "gather",
        help="simulate counting over people's devices, through a proxy and a server",
        description=TOP,
        epilog="tacit gather simulate --help says more. The parties as processes of their own: tacit serve.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = gather.add_subparsers(dest="action", metavar="ACTION", required=True)
    simulate = actions.add_parser(
        "simulate",
        help="a round of counting with devices that are away or cheat",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    simulate.add_argument(
        "--devices",
        type=int,
        default=2_000,
        metavar="N",
        help="devices that there are (default: %(default)s)",
    )
    simulate.add_argument(
        "--counts", type=int, default=1_000, metavar="K", help="counts in each report (default: %(default)s)"
    )
    simulate.add_argument(
        "--away", type=float, default=0.1, metavar="F", help="share of devices not there (default: %(default)s)"
    )
    simulate.add_argument(
        "--malicious", type=float, default=0.0, metavar="F", help="share that cheats (default: %(default)s)"
    )
    simulate.add_argument(
        "--noise",
        choices=("servers", "users"),
        help="who adds it (default: servers, or with --silent whoever needs less)",
    )
    simulate.add_argument(
        "--law",
        choices=("discrete-gaussian", "skellam", "discrete-laplace"),
        help="of the noise (default: the least planned error; the table has the others)",
    )
    simulate.add_argument(
        "--silent",
        type=float,
        metavar="F",
        help="share that may leave its noise out (default: not stated; with --noise users, --malicious)",
    )
    simulate.add_argument(
        "--totals-only", action="store_true", help="an event counts once: no clicks are asked for"
    )
    simulate.add_argument(
        "--epsilon",
        type=float,
        default=1.0,
        metavar="E",
        help="of the round (default: %(default)s)",
    )
    simulate.add_argument("--proof", action="store_true", help="devices prove that their counts are in range")
    simulate.add_argument(
        "--smallest-batch",
        type=int,
        default=1,
        metavar="N",
        help="fewer reports release nothing (default: %(default)s, which only a simulation may have)",
    )
    simulate.add_argument(
        "--store", type=Path, metavar="FOLDER", help="keep the parties' state on disk here (default: in memory)"
    )
    simulate.add_argument(
        "--processes",
        type=int,
        default=2,
        metavar="N",
        help="that make uploads side by side (default: %(default)s)",
    )
    simulate.add_argument(
        "--seed", type=int, default=1, help="of who counts, is away and cheats (default: %(default)s)"
    )
    add_json_flag(simulate)
    simulate.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tacit.entropy import Entropy
    from tacit.gather.estimate.plan import CountNoiseLaw, NoiseBy, noise_lines, noise_record
    from tacit.gather.simulate.population import Population, plan_simulation
    from tacit.gather.simulate.rounds import PartyStores, SimulatedRound

    by = None if args.noise is None else NoiseBy(args.noise)
    if args.proof and by is NoiseBy.USERS:
        raise BadInput("expected --noise servers with --proof, got users: a proof covers counts without noise")
    if not 0 <= args.malicious < 1:
        raise BadInput(f"expected --malicious in [0, 1), got {args.malicious:g}")
    for option, value, least in (("--devices", args.devices, 1), ("--counts", args.counts, 2)):
        if value < least:
            raise BadInput(f"expected {option} to be at least {least}, got {value}")
    if not 0 < args.epsilon <= LARGEST_EPSILON:
        raise BadInput(f"expected --epsilon above 0 and at most {LARGEST_EPSILON:g}, got {args.epsilon:g}")
    honest = Population(args.devices, args.counts, away=args.away, seed=args.seed, totals_only=args.totals_only)
    planned = plan_simulation(
        honest, Entropy(), epsilon=args.epsilon, malicious=args.malicious, by=by,
        law=None if args.law is None else CountNoiseLaw(args.law), silent=args.silent, proof=args.proof,
        smallest_batch=args.smallest_batch,
    )  # fmt: skip
    began = time.perf_counter()
    if args.store is None:
        stores = PartyStores.in_memory(planned.round)
    else:
        from tacit.store.gather_simulation import stores_in_folder

        stores = stores_in_folder(args.store, planned.round)
    world = SimulatedRound(planned.round, planned.population, planned.keys, stores, clock=time.process_time)
    with progress_bar("counting", args.devices) as progress:
        found = world.run(processes=args.processes, progress=progress)
    wall = time.perf_counter() - began
    noise = planned.run, planned.options
    if args.json:
        print_json({**found.as_json(), "seconds": wall, **_promise(planned.round), **noise_record(*noise)})
    else:
        _print(found, planned.round, wall)
        print("\n".join(noise_lines(*noise)))
    return 0 if found.as_foreseen and found.released is not None else 1


def _promise(round: Round) -> dict[str, Any]:
    return {
        "epsilon": float(round.cost.epsilon),
        "delta": float(round.cost.delta),
        "unit": str(round.line.unit),
        "relation": str(round.line.relation),
        "proof": round.bounds is not None,
    }


def _print(found: RoundOutcome, round: Round, wall: float) -> None:
    promise = _promise(round)
    rows = [
        ("devices", f"{found.devices:,}", f"{found.present:,} were there, {found.uploads:,} uploads"),
        ("accepted", f"{found.accepted:,}", "by both parties"),
    ]
    rows += [
        (f"refused, {reason.name.lower().replace('_', ' ')}", f"{count:,}", reason.words)
        for reason, count in sorted(found.refused.items())
    ]
    rows.append(_foreseen_row(found))
    if found.lied:
        rows.append(("lies accepted", f"{found.lied:,}", "counts out of range; --proof would refuse them"))
    if found.without_noise:
        rows.append(("noise left out", f"{found.without_noise:,}", "nobody can see that; `silent` covers it"))
    rows += _release_rows(found)
    each = found.traffic.uploads / max(1, found.uploads)
    rows.append(("bytes an upload", f"{each:,.0f}", f"{found.traffic.uploads / 1e6:,.1f} MB in all"))
    sent = found.traffic.to_server / max(1, found.accepted)
    rows.append(("bytes to the server", f"{sent:,.0f}", "for each accepted report"))
    for name in ("devices", "proxy", "server"):
        seconds = getattr(found.seconds, name)
        words = f"processor seconds; {1e6 * seconds / max(1, found.uploads):,.0f} µs an upload"
        rows.append((f"work of {name}", f"{seconds:,.1f}", words))
    rows.append(("all of it", f"{wall:,.1f}", "seconds"))
    title = (
        f"one round of {round.cells:,} counts, epsilon {promise['epsilon']:g} and delta {promise['delta']:g} "
        f"for each device ({promise['relation']})"
    )
    print_table(title, ("what", "figure", "meaning"), rows, numbers=("figure",))


def _foreseen_row(found: RoundOutcome) -> tuple[str, str, str]:
    if found.as_foreseen:
        return "refused as they should be", "yes", "exactly the bad uploads, each for its reason"
    return "refused as they should be", "NO", f"foreseen {sum(found.foreseen.values()):,}"


def _release_rows(found: RoundOutcome) -> list[tuple[str, str, str]]:
    if found.released is None:
        return [("released", "nothing", "too few reports")]
    assert found.variance_seen is not None
    assert found.largest_error is not None
    return [
        ("noise, standard deviation", f"{found.variance_expected**0.5:,.2f}", "expected in each count"),
        ("seen", f"{found.variance_seen**0.5:,.2f}", "release less the exact sum of accepted reports"),
        ("largest error of a count", f"{found.largest_error:,}", "lies included"),
    ]
