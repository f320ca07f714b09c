"""`tacit train`: one configuration file, one model, one payment."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands.output import Subparsers, add_json_flag, print_json
from tacit.errors import BadInput
from tacit.train.config_examples import EXAMPLES

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tacit.train.config import TrainingConfig
    from tacit.train.job.payment import Payment
    from tacit.train.job.planned_training import PlannedTraining
    from tacit.train.job.training_job import TrainingOutcome, Watch

ABOUT = """\
Train a model on a prepared log as one TOML file says: the model, what is promised to whom, who pays.

First it says how much memory it takes, what it will do and what that promises. Then it reserves the cost in the
ledger; a ledger without room refuses, and nothing is spent. Then it trains, saves the model with its privacy
statement, and commits. --dry-run stops before the ledger is touched.

A run that is interrupted (Ctrl-C, SIGTERM, a crash) goes on from its last checkpoint with --resume: with fresh
noise, and under the same payment. Training by label DP pays for its noisy labels once; every later training on
them is free."""

EPILOG = f"""\
from nothing, on made-up data:

  tacit data generate display-small --rows 20000 --out log.parquet
  tacit data prepare display-small log.parquet --out display
  tacit train --example dp-sgd > train.toml
  tacit train train.toml --dry-run      # says what is missing: a ledger, or [run] simulated = 1 for a trial

a configuration (more with --example METHOD):

{EXAMPLES["hybrid-short"]}
Paths are relative to the file. Unknown keys are refused, and so are keys that the method would ignore.
exit codes: 0 the model is there, 2 refused or failed, 130 interrupted and kept."""

INTERRUPTED = 130


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "train",
        help="train a model, privately if asked to, from one TOML file",
        description=ABOUT,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a TOML file; see below")
    parser.add_argument(
        "--example",
        choices=("plain", "label-dp", "dp-sgd", "hybrid", "statistic", "auto"),
        help="print a complete configuration for this method, with comments, and do nothing",
    )
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint, if there is one")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done and promised, and stop")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the model that is there, once the new one is whole"
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.example is not None:
        print(EXAMPLES[args.example], end="")
        return 0
    if args.config is None:
        raise BadInput("expected a configuration file, got none; --example dp-sgd prints one")
    from tacit.commands.ledger import suggest_grant
    from tacit.train.config_file import load_config
    from tacit.train.job.plan_summary import plan_lines, plan_record
    from tacit.train.job.run import TrainingInterrupted

    config = load_config(args.config)
    _check_places(config, resume=args.resume, overwrite=args.overwrite)
    planned, payment, how_to_grant = plan_and_find_payment(config)
    record = plan_record(planned, payment)
    if not args.json:
        print("\n".join(plan_lines(planned, payment)), flush=True)
    if args.dry_run:
        with suggest_grant(how_to_grant):
            room = None if payment is None else payment.check()
        if args.json:
            print_json({**record, "dry_run": True, "room": room})
        else:
            print(f"dry run: nothing was spent or written{'' if room is None else f'; ledger: {room}'}")
        return 0
    try:
        with suggest_grant(how_to_grant):
            done = train_planned(planned, payment, resume=args.resume, overwrite=args.overwrite)
    except TrainingInterrupted as ended:
        print(f"tacit train: interrupted; {ended}", file=sys.stderr)
        return INTERRUPTED
    if done.calibrated is not None:  # it is part of the release, so it is told once the model is there
        print(f"  calibrated  {done.calibrated['words']}", file=sys.stderr)
    record |= {"seconds": done.seconds, "paid": done.paid, "calibrated": done.calibrated}
    record |= {key: str(path) if path else None for key, path in config.exports.items()}
    if args.json:
        print_json(record)
    else:
        _print_trained(record, done.paid)
    return 0


def plan_and_find_payment(config: TrainingConfig) -> tuple[PlannedTraining, Payment | None, str]:
    """What is planned, who pays for it, and how to grant that; nothing is paid yet."""
    from tacit.commands.ledger import Asker, grant_command, open_paying_ledger
    from tacit.train.job.payment import payment_for, training_cost
    from tacit.train.job.planned_training import NO_PAYMENT

    planned = plan_with_spinner(config)
    cost, ledger, how_to_grant = training_cost(planned), None, ""
    if cost is not None and config.ledger.path is not None:
        asker = Asker("[ledger] path", NO_PAYMENT if planned.examples.synthetic else None)
        ledger = open_paying_ledger(config.ledger, cost, asker)
        how_to_grant = grant_command(config.ledger, cost)
    return planned, payment_for(planned, ledger), how_to_grant


def plan_with_spinner(config: TrainingConfig) -> PlannedTraining:
    """Planned as of now, with calibrations that were computed before on this machine."""
    from tacit.commands.output import spinner
    from tacit.store.calibration_cache import CalibrationCache, default_cache_path
    from tacit.train.job.planned_training import plan_training

    what = "tables" if config.privacy.method == "statistic" else "allocation"
    with spinner(f"planning: {what} and noise"):
        memory = CalibrationCache(Path(default_cache_path()))
        return plan_training(config, now=int(time.time()), memory=memory)


def _check_places(config: TrainingConfig, *, resume: bool, overwrite: bool) -> None:
    """Before anything is planned, unless the model that is there may be this very run's."""
    from tacit.files import check_folder
    from tacit.train.job.checkpoints import checkpoint_folder
    from tacit.train.job.training_job import check_destination

    if resume and checkpoint_folder(config.out).exists():
        return
    check_destination(config.out, secret_path=config.ledger.secret, exports=config.exports, overwrite=overwrite)
    if config.run.tensorboard is not None:
        check_folder("run.tensorboard", config.run.tensorboard)


def train_planned(
    planned: PlannedTraining, payment: Payment | None, *, resume: bool, overwrite: bool
) -> TrainingOutcome:
    """With a line on stderr while it goes."""
    from tacit.commands.output import spinner
    from tacit.train.job import progress
    from tacit.train.job.progress_line import shown_progress
    from tacit.train.job.run import run_training

    config, plan = planned.config, planned.plan
    shown: AbstractContextManager[Watch | None] = shown_progress(plan)
    if plan.statistic is not None:
        shown = spinner("fitting to one noisy statistic")
    with progress.open_sinks(config.run) as sinks, shown as watch:
        return run_training(
            plan,
            config.model,
            secret=planned.secret,
            seed=config.run.simulated,
            payment=payment,
            destination=planned.destination(resume=resume, overwrite=overwrite),
            speed=config.speed,
            sinks=sinks,
            watch=watch,
            handle_signals=True,
        )


def _print_trained(record: dict[str, Any], paid: str | None) -> None:
    steps = f", {record['steps']:,} steps" if record["steps"] else ""
    print(f"{record['out']}: trained in {record['seconds']:.1f} s{steps}")
    if paid is not None:
        print(f"  ledger    {paid}, and committed: {', '.join(record['ledger']['keys'][:3])}")
    for key in ("onnx", "device"):
        if record[key]:
            print(f"  {key:<8}  {record[key]}")
    print(f"  tacit explain {record['out']} says what is promised; tacit evaluate measures it")
