"""`tacit evaluate`: how good a model is, each figure with its interval, and what measuring it tells."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import expect
from tacit.commands.output import Subparsers, add_json_flag, print_json, print_table
from tacit.errors import BadInput
from tacit.files import check_writable

if TYPE_CHECKING:
    from tacit.train.config import LedgerSettings
    from tacit.train.job.model_evaluation import FlipSettings, ModelEvaluation, PlannedEvaluation

ABOUT = """\
Measure a model on a part of a prepared log: AUC loss, log loss and calibration, each with its 95% interval (by
user, where the log has users), and against a baseline on the same rows. For a model that
predicts counts or amounts: mean squared error, variance explained and calibration, with the true labels.

With the true labels the figures are exact. On private labels an exact figure is itself a release: keep it to
those who may see the labels. Of a model that reads sensitive features it is a release about these as well, also
where labels are public: keep it to those who may see the features. --labels noisy flips the labels once within
a budget of their own, measures on the flips, and costs nothing more however often it is repeated. That holds
for models of public features. Figures of a model that reads sensitive ones are exact about these, flips or not:
a scope whose ledger protects features (a line of another relation than replace-label) refuses them."""

EXAMPLES = """\
examples:
  tacit evaluate model display
  tacit evaluate model display --baseline plain-model --calibration
  tacit evaluate model clicks --labels noisy --epsilon 2 --ledger tacit-ledger.sqlite --scope clicks \\
      --secret flips.secret

The log must have been prepared with the model's own encoder (tacit data prepare --encoder MODEL)."""

NOISY_HINT = "--labels noisy measures within a budget"
PUBLIC_HINT = "--labels-are-public says that none is needed"
NOISY_OPTIONS = ("epsilon", "unit", "cap", "ledger", "witness", "scope", "relation", "secret", "version")


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="measure a model: AUC loss, log loss, calibration, with intervals",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="the folder that `tacit train` wrote")
    parser.add_argument("data", type=Path, metavar="DATA", help="the folder that `tacit data prepare` wrote")
    parser.add_argument(
        "--part", default="test", help="part of the log's split to measure on (default: %(default)s)"
    )
    parser.add_argument("--baseline", type=Path, metavar="MODEL", help="compare with this one on the same rows")
    parser.add_argument(
        "--labels",
        choices=("true", "noisy"),
        default="true",
        help="the labels to measure on (default: %(default)s)",
    )
    parser.add_argument(
        "--labels-are-public", action="store_true", help="these labels are public, or agreed for measuring"
    )
    parser.add_argument(
        "--calibration", action="store_true", help="also print predicted against observed, by deciles"
    )
    noisy = parser.add_argument_group("noisy labels")
    noisy.add_argument("--epsilon", help="epsilon of all labels of one unit together")
    noisy.add_argument("--unit", help="impression (default), user, user-publisher or user-advertiser")
    noisy.add_argument("--cap", type=int, metavar="K", help="most rows kept of one unit (default: 1)")
    noisy.add_argument(
        "--version", type=int, metavar="N", help="version of the labels; raise it when they have changed"
    )
    noisy.add_argument("--ledger", metavar="PATH_OR_URL", help="the ledger that pays; made-up data needs none")
    noisy.add_argument("--witness", metavar="PATH", help="the ledger's witness, if it is not beside it")
    noisy.add_argument("--scope", help="the ledger's name for these people's data")
    noisy.add_argument(
        "--relation",
        choices=("replace-label", "replace-one"),
        help="the line that pays: of labels (default), or one that protects features too: public ones only",
    )
    noisy.add_argument("--secret", type=Path, metavar="PATH", help="the file that keys flips; made if absent")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tacit.train.job.model_evaluation import ModelsOnRows

    _check_options(args)
    models = ModelsOnRows.open(args.model, args.data, part=args.part, baseline=args.baseline)
    flips, ledger = None, None
    if args.labels == "noisy":
        models.expect_probabilities("--labels noisy")
        flips, ledger = _flip_settings(args, synthetic=models.examples.synthetic)
    if args.calibration:
        models.expect_probabilities("--calibration")
    planned = models.plan(
        flips=flips,
        labels_are_public=args.labels_are_public,
        now=int(time.time()),
        reliability=args.calibration,
    )
    found = planned.measure() if ledger is None else _pay_and_measure(planned, ledger)
    if args.json:
        print_json(_record(args, found))
    else:
        _print(args, found)
    return 0


def _record(args: argparse.Namespace, found: ModelEvaluation) -> dict[str, Any]:
    record = {
        "model": str(args.model), "data": str(args.data), "part": args.part, "method": found.method,
        "baseline": None if args.baseline is None else str(args.baseline), "labels": args.labels,
        "synthetic": found.synthetic, **found.evaluation.as_json(), "notes": _notes(found),
    }  # fmt: skip
    bins = found.reliability
    return record if bins is None else {**record, "calibration": [each.as_json() for each in bins]}


def _print(args: argparse.Namespace, found: ModelEvaluation) -> None:
    evaluation, bins = found.evaluation, found.reliability
    clusters = "" if evaluation.clusters is None else f" of {evaluation.clusters:,} users"
    kind = " synthetic" if found.synthetic else ""
    rows_of = f"{evaluation.rows:,}{kind} rows{clusters} of {args.data}, {args.part}"
    numbers = ("value", "from", "to")
    title = f"{args.model} ({found.method}) on {rows_of}"
    print_table(title, ("figure, with its 95% interval", *numbers), evaluation.table(), numbers=numbers)
    if bins is not None:
        columns = ("predicted from", "to", "rows", "mean predicted", "observed", "interval")
        cells = [
            (f"{b.lowest:.4g}", f"{b.highest:.4g}", f"{b.rows:,}", f"{b.predicted:.4g}",
             f"{b.observed.value:.4g}", f"{b.observed.low:.4g} to {b.observed.high:.4g}")
            for b in bins
        ]  # fmt: skip
        print_table("Predicted against observed", columns, cells, numbers=columns)
    for note in _notes(found):
        print(f"note: {note}")


def _notes(found: ModelEvaluation) -> list[str]:
    """With the options that would have it otherwise."""
    from tacit.train.job.model_evaluation import EXACT, EXACT_VALUES

    options = {EXACT: f"; {NOISY_HINT}, {PUBLIC_HINT}", EXACT_VALUES: f"; {PUBLIC_HINT}"}
    return [f"{note}{options.get(note, '')}" for note in found.notes]


def _check_options(args: argparse.Namespace) -> None:
    if args.labels == "true":
        for option in NOISY_OPTIONS:
            if getattr(args, option) is not None:
                raise BadInput(f"expected --labels noisy with --{option}, got --labels true")
    elif args.labels_are_public:
        raise BadInput("expected --labels true with --labels-are-public, got --labels noisy")


def _flip_settings(args: argparse.Namespace, *, synthetic: bool) -> tuple[FlipSettings, LedgerSettings | None]:
    """How labels are flipped, and who pays; each option is refused by its own name."""
    from tacit.config import error_prefix
    from tacit.privacy.units import Cap, Relation, Unit, UnitKind
    from tacit.train.config import LedgerSettings
    from tacit.train.config_file import check_epsilon
    from tacit.train.job.model_evaluation import FlipSettings

    if args.epsilon is None:
        raise BadInput("expected --epsilon for noisy labels, got none")
    given = {name: getattr(args, name) for name in ("ledger", "scope", "secret")}
    unpaid = synthetic and all(value is None for value in (*given.values(), args.relation))
    for name, value in given.items():
        if value is None and not unpaid:
            raise BadInput(f"expected --{name} to pay for noisy labels, got none")
    with error_prefix("--unit"):
        unit = Unit(UnitKind(args.unit or "impression"))
    if unit.kind is UnitKind.IMPRESSION and args.cap is not None:
        raise BadInput("--cap: expected only with a unit of several rows, got unit impression")
    with error_prefix("--cap"):
        cap = Cap(1 if args.cap is None else args.cap)
    version = expect.whole("--version", args.version or 0, at_least=0)
    epsilon = check_epsilon("--epsilon", args.epsilon)
    if args.secret is not None:
        check_writable("--secret", args.secret)
    relation = None if args.relation is None else Relation(args.relation)
    flips = FlipSettings(epsilon, unit, cap, version, args.scope, args.secret, relation)
    ledger = LedgerSettings(args.ledger, args.witness, args.scope, relation, None, args.secret)
    return flips, None if unpaid else ledger


def _pay_and_measure(planned: PlannedEvaluation, ledger: LedgerSettings) -> ModelEvaluation:
    from tacit.commands.ledger import Asker, grant_command, open_paying_ledger, suggest_grant

    assert planned.cost is not None, "flips cost something"
    store = open_paying_ledger(ledger, planned.cost, Asker("--ledger"))
    with suggest_grant(grant_command(ledger, planned.cost)):
        return planned.measure(store)
