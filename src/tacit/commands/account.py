"""`tacit account`: epsilon from noise, or noise from epsilon, by both accountants side by side."""

from __future__ import annotations

import argparse
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import expect
from tacit.commands.output import Subparsers, add_json_flag, print_json, print_table, spinner
from tacit.errors import BadInput, TacitError
from tacit.privacy.budget import format_rounded_up
from tacit.privacy.units import Relation, UnitKind

if TYPE_CHECKING:
    from tacit.privacy.calibration import CalibrationMemory
    from tacit.privacy.releases import Release

ABOUT = """\
Account for DP-SGD, alone or together with flipped labels (the Hybrid).
Give --noise to learn epsilon, or --epsilon to learn the noise it takes."""

EXAMPLES = """\
examples:
  # what does noise 0.621 promise on 32 million rows, 50 epochs?
  tacit account --noise 0.621 --rows 32000000 --batch 16384 --epochs 50 --relation add-remove --unit impression

  # how much noise for epsilon 8 when labels are flipped at epsilon 4 beside it?
  tacit account --epsilon 8 --labels-epsilon 4 --rows 32000000 --batch 16384 --epochs 50 \\
      --relation replace-one --unit impression

  # the same by sampling probability and steps, for users with at most 5 records each
  tacit account --noise 1.0 --sampling-probability 0.001 --steps 1000 --delta 1e-6 \\
      --relation add-remove --unit user --records-per-unit 5

Batches are Poisson samples: every record joins each one independently. Delta defaults to 1/rows.
Answers are remembered in ~/.cache/tacit (--no-cache to compute afresh)."""


MOST_STEPS = 10**8


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "account",
        help="epsilon from noise, or noise from epsilon, by two accountants (PLD and RDP)",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    question = parser.add_mutually_exclusive_group(required=True)
    question.add_argument(
        "--noise", type=float, help="noise multiplier: standard deviation over the norm bound"
    )
    question.add_argument("--epsilon", type=float, help="the epsilon to reach, of everything together")
    parser.add_argument(
        "--relation",
        required=True,
        choices=[r.value for r in Relation],
        help="what two neighbouring datasets differ in",
    )
    parser.add_argument("--unit", required=True, choices=[k.value for k in UnitKind], help="who is protected")
    parser.add_argument(
        "--records-per-unit", type=int, default=1, metavar="K", help="most records of one unit (default: 1)"
    )
    parser.add_argument("--delta", help="such as 1e-7 or 1/32000000; default 1/rows")
    parser.add_argument("--rows", type=int, help="records in the dataset")
    parser.add_argument("--batch", type=int, help="expected batch size")
    parser.add_argument("--epochs", type=float, help="passes over the data; steps = epochs * rows / batch")
    parser.add_argument("--sampling-probability", type=float, help="instead of --batch and --rows")
    parser.add_argument("--steps", type=int, help="instead of --epochs")
    parser.add_argument(
        "--labels-epsilon", type=float, help="labels flipped once at this epsilon, beside DP-SGD"
    )
    parser.add_argument("--no-cache", action="store_true", help="neither read nor write remembered answers")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tacit.privacy import calibration
    from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
    from tacit.privacy.releases import Composed, Grouped, SubsampledGaussian

    for name in ("noise", "epsilon", "labels_epsilon"):
        if getattr(args, name) is not None:
            expect.positive(f"--{name.replace('_', '-')}", getattr(args, name))
    sampling_probability, steps = _sampling(args)
    delta = _delta(args)
    relation = Relation(args.relation)
    group = expect.whole("--records-per-unit", args.records_per_unit, at_least=1)
    if args.unit == UnitKind.IMPRESSION and group > 1:
        raise BadInput(f"expected --records-per-unit 1 for unit impression, got {group}")
    if args.unit != UnitKind.IMPRESSION and args.records_per_unit == 1:
        note = f"each {args.unit} is taken to have one record or to be clipped as a whole"
    else:
        note = ""
    beside: list[Release] = []
    if args.labels_epsilon is not None:
        beside.append(RandomizedResponse.for_epsilon(args.labels_epsilon).release)
    memory = None if args.no_cache else _memory()

    noise = args.noise
    with spinner("accounting"):
        if noise is None:
            noise = calibration.noise_multiplier(
                epsilon=args.epsilon, delta=delta, relation=relation, sampling_probability=sampling_probability,
                steps=steps, beside=beside, unit=args.unit, records=group, memory=memory,
            )  # fmt: skip
        release = Grouped(Composed((SubsampledGaussian(noise, sampling_probability, steps), *beside)), group)
        epsilon = calibration.epsilon(release, delta=delta, relation=relation, memory=memory)
        rdp, why_not = _rdp(release, delta, relation)

    record: dict[str, Any] = {
        "unit": args.unit,
        "relation": relation.value,
        "records_per_unit": group,
        "noise_multiplier": noise,
        "sampling_probability": sampling_probability,
        "steps": steps,
        "sampler": "poisson",
        "labels_epsilon": args.labels_epsilon,
        "delta": float(delta),
        "epsilon_pld": epsilon,
        "epsilon_rdp": rdp,
        "notes": [remark for remark in (note, why_not) if remark],
    }
    if args.json:
        print_json(record)
        return 0
    title = f"per {args.unit}, {relation} neighbours, Poisson sampling"
    rows = [
        ("noise multiplier", f"{noise:.6g}"),
        ("sampling probability", f"{sampling_probability:.6g}"),
        ("steps", f"{steps:,}"),
        *([("epsilon of the flipped labels", f"{args.labels_epsilon:g}")] if beside else []),
        ("delta", f"{float(delta):.4g}"),
        ("epsilon by PLD (the answer)", format_rounded_up(epsilon, 5)),
        ("epsilon by RDP (for comparison)", format_rounded_up(rdp, 5) if rdp is not None else "none"),
    ]
    print_table(title, ("quantity", "value"), rows, numbers=("value",))
    for remark in (note, why_not):
        if remark:
            print(f"note: {remark}")
    return 0


def _sampling(args: argparse.Namespace) -> tuple[float, int]:
    for one, other in (("sampling_probability", "batch"), ("steps", "epochs")):
        if getattr(args, one) is not None and getattr(args, other) is not None:
            raise BadInput(f"expected --{one.replace('_', '-')} or --{other}, got both")
    if args.sampling_probability is not None:
        share = float(expect.probability("--sampling-probability", args.sampling_probability, one=True))
    elif args.batch is not None and args.rows is not None:
        rows = expect.whole("--rows", args.rows, at_least=1)
        share = expect.whole("--batch", args.batch, at_least=1) / rows
        if share > 1:
            raise BadInput(f"expected --batch <= --rows, got {args.batch} > {args.rows}")
    else:
        raise BadInput("expected --sampling-probability, or --batch with --rows, got neither")
    if args.steps is not None:
        steps = expect.whole("--steps", args.steps, at_least=1)
    elif args.epochs is not None:
        steps = max(1, round(float(expect.positive("--epochs", args.epochs)) / share))
    else:
        raise BadInput("expected --steps or --epochs, got neither")
    if steps > MOST_STEPS:
        raise BadInput(f"expected at most {MOST_STEPS:,} steps, got {steps:,}")
    return share, steps


def _delta(args: argparse.Namespace) -> Fraction:
    if args.delta is not None:
        return expect.probability("--delta", args.delta)
    if args.rows is None:
        raise BadInput("expected --delta, or --rows for delta = 1/rows, got neither")
    return Fraction(1, expect.whole("--rows", args.rows, at_least=2))


def _rdp(release: Release, delta: Fraction, relation: Relation) -> tuple[float | None, str]:
    from tacit.privacy.accounting import rdp_epsilon

    try:
        return rdp_epsilon(release, delta=delta, relation=relation), ""
    except TacitError as reason:
        return None, f"no epsilon by RDP: {reason}"


def _memory() -> CalibrationMemory:
    from tacit.store.calibration_cache import CalibrationCache, default_cache_path

    return CalibrationCache(Path(default_cache_path()))
