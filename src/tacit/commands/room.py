"""`tacit room`: conversion models across two organisations, the room that keeps labels, and attacks on it."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.commands import room_operation, room_setup
from tacit.commands.output import Subparsers, add_action, add_json_flag, print_json, print_table, track_progress

if TYPE_CHECKING:
    from tacit.cleanroom.attacks.defended_room import Protection
    from tacit.cleanroom.attacks.report import AttackReport
    from tacit.cleanroom.attacks.suite import AttackResult

ABOUT = """\
A clean room: the platform has features and a model, the advertiser has conversions. The room, run for the
advertiser, joins them by keyed tokens and lets out only what both signed, with the noise that was promised.

  keys     certificates, signing keys and secrets of both parties, sorted by who holds them
  agree    propose, sign or amend the agreement; says in plain words what it promises
  serve    the room: takes derivatives, gives back sums
  train    the platform: trains an adapter, weights for one advertiser beside the model's, through the room
  runs     which runs have set releases aside in the room, and handing back what one did not use
  status   terms, what remains of the budget, and whether the room's audit log holds
  attack   what a malicious platform can learn: from the protocol without noise, and from ours
  trial    everything for a trial on one machine, on made-up data"""

EXAMPLES = """\
examples, a trial on one machine:
  tacit room trial --out trial
  tacit room serve trial/room/room.toml                  in one terminal
  tacit room train trial/platform/platform.toml          in another
  tacit room status trial/platform/platform.toml

Either process can be stopped or killed at any moment and started again: a run goes on where it was, and nothing
is released twice. Needs the extra: pip install 'tacit[room]' (and 'tacit[train]' for trial and train)."""

KEYS = """\
Make the keys of a collaboration, sorted into a folder for each party: what is in it is that party's alone, but
for what is public. In production each party makes its own keys on its own machine. This makes both, for a
trial.

  authority/   signs certificates: put it away, or destroy it
  room/        goes to the room.     room.secret must never leave it: it can undo every flip and every noise
  platform/    goes to the platform. platform.key and platform.signing must never leave it
  token.key    is in both, and belongs to nobody else: it makes tokens of record ids

Files are readable by their owner only, where they must be. Nothing is ever written over."""

AGREE = """\
Propose, sign or amend an agreement, and say what it promises. FILE is the agreement (JSON), which both hold.

  no FILE yet, with --terms:   first terms, proposed and signed by this party; the other signs them next
  FILE, without --terms:       sign what waits for this party's signature
  FILE, with --terms:          amend. What only tightens is in force at once; what allows more in any field
                               waits for the other party
  FILE alone, without --key:   only show it

Terms are written in TOML; names and public keys that they lack are taken from parties.toml beside the key:

  name = "spring"
  mode = "aggregate"          # statistic, release, aggregate or noised
  epsilon = 3                 # for all labels of one record together
  tasks = ["conversion"]
  smallest_batch = 256
  begins = 2026-01-01         # midnight UTC; or a second: 2026-01-01T12:00:00Z
  expires = 2026-07-01"""

SERVE = """\
Run the room: says in one line where it listens, then answers its platform until it is asked to end (SIGTERM,
Ctrl-C; calls under way are answered first). Whoever calls must show the certificate of the agreed platform.

Every release is paid for in the room's ledger, counted for each record and written to the audit log before it
leaves. Killed at any moment and started again, it goes on; an answer that got lost is asked for again and given
again, and counts once. One process serves a store: a second one is refused. So is, at the start, an agreement
that has expired, and an audit log that does not hold."""

TRAIN = """\
Train one advertiser's adapter through its room. Shows bytes, examples per second, what remains of the
budget, and a loss only where the agreement's mode allows it. Stopped or killed, the same command goes on where
it was: a step that was answered is not asked for again, and one whose answer was lost counts once.

  --dry-run   only estimates: bytes both ways, seconds, releases per record

At the end it saves the adapter (safetensors), prints what came of it, and checks the room's audit log against
the receipts that it was given."""

RUNS = """\
List the runs that set releases aside in this room, for its operator. In mode noised a run names its records
when it begins, and has the room set aside what it needs of each: another run that would need the same is
refused at once, and costs nothing.

  --hand-back RUN   free what RUN has set aside and not used, because it was given up. If it goes on after all,
                    it takes what it still needs again, as long as it is there; what it has used stays used.

The room may be running."""

STATUS = """\
Terms, the promise in plain words, what remains of the budget, and whether the audit log holds.

With platform.toml it asks the room, and checks that the log it shows is whole and has every receipt that this
platform was given. With room.toml it reads the room's own store; the room need not be running.

exit code 0: all holds; 1: the audit log does not."""

TRIAL = """\
Make everything for a trial on one machine: a made-up log of conversions (synthetic, and marked so), a model
that was trained on the advertisers who share their labels, the labels of one who does not (for the room only:
the platform's log has zeros in their place), keys and certificates, an agreement that both signed, and the
settings of both parties. Then it prints the two commands to run."""


def add_parser(commands: Subparsers) -> None:
    top = commands.add_parser(
        "room",
        help="train conversion models with an advertiser's labels, which stay in a clean room",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = top.add_subparsers(dest="action", metavar="ACTION", required=True)
    action = partial(add_action, actions, EXAMPLES)

    keys = action("keys", "make the keys and certificates of both parties", KEYS)
    keys.add_argument("--out", required=True, type=Path, metavar="DIR", help="the folder to write to")
    _add_names(keys)
    keys.add_argument(
        "--days", type=int, default=365, help="days for which certificates are valid (default: %(default)s)"
    )
    add_json_flag(keys)
    keys.set_defaults(run=room_setup.run_keys)

    agree = action("agree", "propose, sign, amend or show an agreement", AGREE)
    agree.add_argument("file", type=Path, metavar="FILE", help="the agreement")
    agree.add_argument("--role", choices=("platform", "room"), help="who signs")
    agree.add_argument(
        "--key", type=Path, metavar="KEY", help="the signing key (platform.signing, room.signing)"
    )
    agree.add_argument("--terms", type=Path, metavar="TOML", help="terms to propose, or to amend to")
    agree.add_argument(
        "--parties", type=Path, metavar="FILE", help="names and public keys (default: parties.toml beside KEY)"
    )
    agree.add_argument("--dry-run", action="store_true", help="only say what would be signed")
    add_json_flag(agree)
    agree.set_defaults(run=room_setup.run_agree)

    serve = action("serve", "run the room", SERVE)
    serve.add_argument("settings", type=Path, metavar="FILE", help="room.toml")
    serve.set_defaults(run=room_operation.run_serve)

    train = action("train", "train an adapter through the room", TRAIN)
    train.add_argument("settings", type=Path, metavar="FILE", help="platform.toml")
    train.add_argument("--dry-run", action="store_true", help="only estimate what it would cost")
    add_json_flag(train)
    train.set_defaults(run=room_operation.run_train)

    runs = action("runs", "runs that set releases aside, and handing back", RUNS)
    runs.add_argument("settings", type=Path, metavar="FILE", help="room.toml")
    runs.add_argument("--hand-back", metavar="RUN", help="free what this run has set aside and not used")
    add_json_flag(runs)
    runs.set_defaults(run=room_operation.run_runs)

    status = action("status", "terms, remaining budget, audit log", STATUS)
    status.add_argument("settings", type=Path, metavar="FILE", help="platform.toml or room.toml")
    add_json_flag(status)
    status.set_defaults(run=room_operation.run_status)

    add_attack(actions)

    trial = action("trial", "make everything for a trial on one machine", TRIAL)
    trial.add_argument("--out", required=True, type=Path, metavar="DIR", help="the folder to write to")
    trial.add_argument(
        "--rows", type=int, default=60_000, metavar="N", help="rows of the log (default: %(default)s)"
    )
    trial.add_argument(
        "--mode", default="aggregate", metavar="MODE", help="what leaves the room (default: %(default)s)"
    )
    trial.add_argument(
        "--epsilon", default="3", metavar="E", help="epsilon of one record (default: %(default)s)"
    )
    trial.add_argument(
        "--join", default="tokens", help="tokens, or psi: private set intersection (default: tokens)"
    )
    trial.add_argument("--port", type=int, default=8481, help="where the room listens (default: %(default)s)")
    trial.add_argument("--seed", type=int, default=1, help="seed of log and model (default: %(default)s)")
    add_json_flag(trial)
    trial.set_defaults(run=room_setup.run_trial)


def _add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--platform",
        default="platform",
        metavar="NAME",
        help="the name on its certificate (default: %(default)s)",
    )
    parser.add_argument(
        "--room", default="room", metavar="NAME", help="the name on its certificate (default: %(default)s)"
    )


ATTACK = """\
Try to learn labels from a clean room. Every attack is run twice: against a protocol without protection (split
learning; the published one, whose sums are noiseless; or a careless room that is one step short of ours), where
it must work, and against our own room, in process, with the default terms.

Labels to be guessed are fair coins. No attack on an epsilon-private room can tell them apart by more than
tanh(epsilon/2), beyond a coin; what an attack reached is bounded from below (Clopper-Pearson). It takes about
fifteen seconds on a quiet core."""

ATTACK_EPILOG = """\
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
        description=ATTACK,
        epilog=ATTACK_EPILOG,
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
    parser.set_defaults(run=run_attack)


def run_attack(args: argparse.Namespace) -> int:
    import time

    from tacit import expect
    from tacit.cleanroom.attacks.report import attack_room
    from tacit.cleanroom.attacks.suite import attacks
    from tacit.entropy import Entropy, Simulation
    from tacit.privacy.randomness import Source

    if args.seed is not None:
        expect.whole("--seed", args.seed, at_least=0)

    def source(name: str) -> Source:
        return Entropy() if args.seed is None else Simulation(f"{args.seed} {name}")

    report = attack_room(track_progress(attacks(time.thread_time), "attacking"), _protection(args), source)
    if args.json:
        print_json(report.checks)
    else:
        _print_attacks(report, args.epsilon)
    return 1 if report.failed else 0


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


def _print_attacks(report: AttackReport, epsilon: str) -> None:
    found, failed, power = report.results, report.failed, report.checks[-1]
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
            _verdict(each),
        )
        for each in found
    ]
    numbers = ("reached", "right", "advantage", "at least", "allowed")
    columns = ("attack", "works against", "measured", *numbers, "our room")
    title = f"attacks on labels; our room: mode {report.terms.mode}, epsilon {epsilon}"
    print_table(title, columns, rows, numbers=numbers)
    print(
        f"these terms allow an advantage of at most {found[0].allowed:.3f}, and give {power['bar']:.3f} "
        f"to whoever reads them best; the best attack ({power['attack']}) came to {power['advantage']:.3f}"
    )
    print("an advantage is a point estimate; its lower bound (at least) is what is held to what is allowed")
    if failed:
        print(f"{len(failed)} of {len(report.checks)} do not hold: {', '.join(failed)}")
    else:
        print(f"all {len(found)} attacks work where nothing protects; none gets more here than the terms allow")


def _verdict(each: AttackResult) -> str:
    if not each.works:
        return "the attack does not work"
    return "withstands" if each.withstood else "GIVES AWAY TOO MUCH"
