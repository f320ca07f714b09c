"""`tacit room attack`: what a platform that wants labels gets, from others' protocols and from our room."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tacit.commands.output import Subparsers, add_json_flag, print_json, print_table, track_progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.cleanroom.attacks.defended_room import Protection
    from tacit.cleanroom.attacks.suite import AttackResult

ABOUT = """\
Try to learn labels from a clean room. Every attack is run twice: against a protocol without protection (split
learning; the published one, whose sums are noiseless; or a careless room that is one step short of ours), where
it must work, and against our own room, in process, with the default terms.

Labels to be guessed are fair coins. No attack on an epsilon-private room can tell them apart by more than
tanh(epsilon/2), beyond a coin; what an attack reached is bounded from below (Clopper-Pearson). It takes about
fifteen seconds on a quiet core."""

EPILOG = """\
exit code 0: every attack works where nothing protects, none does better in our room than its terms allow, and
the best may well get all that the terms give away; 1: one of these does not hold.
An honest room is accused with probability at most 1e-9 per attack (plus 2 delta for each label guessed).

  tacit room attack                            the default terms: sums over labels flipped once, epsilon 3
  tacit room attack --mode noised --epsilon 1  true labels, clipped, with Gaussian noise"""


def add_attack(actions: Subparsers) -> None:
    """Add `attack` to the actions of `tacit room`."""
    parser = actions.add_parser(
        "attack",
        help="run every attack, against others' protocols and against our room",
        description=ABOUT,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--epsilon", default="3", help="what the room promises for one record (default 3)")
    parser.add_argument(
        "--mode",
        default="aggregate",
        help="what the room lets out: aggregate, noised, statistic or release (default aggregate)",
    )
    parser.add_argument("--noise", default="gaussian", help="in mode noised: gaussian or laplace")
    parser.add_argument(
        "--releases", type=int, default=1, help="in mode noised: releases of a record (default 1)"
    )
    parser.add_argument("--seed", type=int, help="draw from a simulation with this seed, to repeat a run")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import time

    from tacit import expect
    from tacit.cleanroom.attacks.suite import attacks, run_attack
    from tacit.entropy import Entropy, Simulation
    from tacit.privacy.randomness import Source

    if args.seed is not None:
        expect.whole("--seed", args.seed, at_least=0)
    protection = _protection(args)
    terms = protection.example_terms()  # refused here, before anything is run

    def source(name: str) -> Source:
        return Entropy() if args.seed is None else Simulation(f"{args.seed} {name}")

    found = [
        run_attack(attack, protection, source)
        for attack in track_progress(attacks(time.thread_time), "attacking")
    ]
    records = [record for each in found for record in _records(each)] + [_power(found, protection)]
    failed = [record["name"] for record in records if not record["holds"]]
    if args.json:
        print_json(records)
        return 1 if failed else 0
    _print_attacks(found, f"mode {terms.mode}, epsilon {args.epsilon}")
    power = records[-1]
    print(
        f"these terms allow an advantage of at most {found[0].allowed:.3f}, and give {power['bar']:.3f} "
        f"to whoever reads them best; the best attack ({power['attack']}) came to {power['advantage']:.3f}"
    )
    print("an advantage is a point estimate; its lower bound (at least) is what is held to what is allowed")
    if failed:
        print(f"{len(failed)} of {len(records)} do not hold: {', '.join(failed)}")
    else:
        print(f"all {len(found)} attacks work where nothing protects; none gets more here than the terms allow")
    return 1 if failed else 0


def _protection(args: argparse.Namespace) -> Protection:
    from tacit import expect
    from tacit.cleanroom.attacks.defended_room import Protection
    from tacit.cleanroom.protocol.modes import Mode, NoiseLaw

    return Protection(
        mode=Mode.named("--mode", args.mode),
        epsilon=expect.positive("--epsilon", args.epsilon),
        releases_per_record=expect.whole("--releases", args.releases, at_least=1),
        noise=NoiseLaw.named("--noise", args.noise),
    )


def _records(each: AttackResult) -> list[dict[str, Any]]:
    attack, outcome = each.attack, each.outcome
    return [
        {
            "name": f"{attack.name}, against {attack.unsafe}",
            "value": each.success,
            "bar": attack.bar,
            "holds": each.works,
            "measured": attack.measured,
        },
        {
            "name": f"{attack.name}, against our room",
            "value": outcome.at_least(),
            "bar": each.allowed,
            "holds": each.withstood,
            "measured": "advantage, at least",
            "advantage": outcome.advantage,
            "right": outcome.right,
            "said": outcome.said,
            "asked": outcome.asked,
        },
    ]


def _power(found: Sequence[AttackResult], protection: Protection) -> dict[str, Any]:
    """The attacks are as good as attacks can be, as far as can be told: else they would prove little."""
    from tacit.cleanroom.attacks.suite import mechanism_advantage, strongest_attack

    reached, given = strongest_attack(found), mechanism_advantage(protection.example_terms())
    return {
        "name": "the best attack may well get all that the terms give away",
        "value": reached.outcome.at_most(),
        "bar": given,
        "holds": reached.outcome.at_most() >= given,
        "measured": "advantage, at most",
        "advantage": reached.outcome.advantage,
        "attack": reached.attack.name,
    }


def _print_attacks(found: Sequence[AttackResult], title: str) -> None:
    rows = [
        (
            each.attack.name,
            each.attack.unsafe,
            each.attack.measured,
            f"{each.success:.3f}",
            f"{each.outcome.right} of {each.outcome.said}" if each.outcome.said else "nothing to go by",
            f"{each.outcome.advantage:.3f}",
            f"{max(0.0, each.outcome.at_least()):.3f}",
            f"{each.allowed:.3f}",
            _words(each),
        )
        for each in found
    ]
    numbers = ("reached", "right", "advantage", "at least", "allowed")
    columns = ("attack", "works against", "measured", *numbers, "our room")
    print_table(f"attacks on labels; our room: {title}", columns, rows, numbers=numbers)


def _words(each: AttackResult) -> str:
    if not each.works:
        return "the attack does not work"
    return "withstands" if each.withstood else "GIVES AWAY TOO MUCH"
