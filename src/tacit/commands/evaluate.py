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
    from tacit.train.evaluation.measures import Outcomes
    from tacit.train.evaluation.report import Evaluation, ValueEvaluation
    from tacit.train.examples import Examples
    from tacit.train.job.noisy_evaluation import LabelFlips, MeasuredFlips
    from tacit.train.models.saving import SavedModel

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

MADE_UP = "the labels are made up: these figures are about nobody"
AGREED = "the labels were said to be public, or agreed for measuring"
EXACT = (
    "exact figures of private labels: to show them to anybody who may not see the labels is a release that "
    "nobody has paid for; --labels noisy measures within a budget, --labels-are-public says that none is needed"
)
EXACT_FEATURES = (
    "the model reads sensitive features of these rows: exact figures are a release about those features too, "
    "public labels or not, and nobody has paid for it"
)
EXACT_VALUES = (
    "exact figures of private values: to show them to anybody who may not see the labels is a release that "
    "nobody has paid for; --labels-are-public says that none is needed"
)
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
    from tacit.train.evaluation.report import evaluate_outcomes
    from tacit.train.job.noisy_evaluation import add_ledger_standing
    from tacit.train.targets import Head

    _check_options(args)
    saved, baseline, examples = _open_models(args)
    models = [saved] if baseline is None else [saved, baseline]
    rows, flips = examples, None
    if args.labels == "noisy":
        flips, ledger = _check_flips(args, models, examples)
        rows = flips.examples
    predicted = saved.predict(rows)  # before labels are paid for: it may fail
    other = None if baseline is None else baseline.predict(rows)
    evaluation: Evaluation | ValueEvaluation
    bins = None
    if saved.head is not Head.LOGISTIC:
        evaluation, about = _measure_values(examples, predicted, other), _about_exact(args, models, examples)
    else:
        if flips is None:
            outcomes, about, standing = _true_outcomes(examples), _about_exact(args, models, examples), ""
        else:
            measured = _measure_flips(flips, ledger)
            outcomes, about, standing = measured.outcomes, measured.notes, measured.standing
        with add_ledger_standing(standing):
            evaluation = evaluate_outcomes(outcomes, predicted, other)
            bins = _bins(outcomes, predicted) if args.calibration else None
    notes = [*about, *_notes(args, saved, examples)]
    if args.json:
        record = {
            "model": str(args.model), "data": str(args.data), "part": args.part, "method": saved.method,
            "baseline": None if args.baseline is None else str(args.baseline), "labels": args.labels,
            "synthetic": examples.synthetic, **evaluation.as_json(), "notes": notes,
        }  # fmt: skip
        print_json(record if bins is None else {**record, "calibration": [each.as_json() for each in bins]})
        return 0
    clusters = "" if evaluation.clusters is None else f" of {evaluation.clusters:,} users"
    kind = " synthetic" if examples.synthetic else ""
    rows_of = f"{evaluation.rows:,}{kind} rows{clusters} of {args.data}, {args.part}"
    numbers = ("value", "from", "to")
    title = f"{args.model} ({saved.method}) on {rows_of}"
    print_table(title, ("figure, with its 95% interval", *numbers), evaluation.table(), numbers=numbers)
    if bins is not None:
        columns = ("predicted from", "to", "rows", "mean predicted", "observed", "interval")
        cells = [
            (f"{b.lowest:.4g}", f"{b.highest:.4g}", f"{b.rows:,}", f"{b.predicted:.4g}",
             f"{b.observed.value:.4g}", f"{b.observed.low:.4g} to {b.observed.high:.4g}")
            for b in bins
        ]  # fmt: skip
        print_table("Predicted against observed", columns, cells, numbers=columns)
    for note in notes:
        print(f"note: {note}")
    return 0


def _check_options(args: argparse.Namespace) -> None:
    if args.labels == "true":
        for option in NOISY_OPTIONS:
            if getattr(args, option) is not None:
                raise BadInput(f"expected --labels noisy with --{option}, got --labels true")
    elif args.labels_are_public:
        raise BadInput("expected --labels true with --labels-are-public, got --labels noisy")


def _open_models(args: argparse.Namespace) -> tuple[SavedModel, SavedModel | None, Examples]:
    """The models and the rows, which must all be of one encoder."""
    from tacit.data.columns import Columns
    from tacit.train.examples import Examples
    from tacit.train.models.saving import load
    from tacit.train.targets import Head

    columns = Columns.open(args.data)
    examples = Examples.of(columns, args.part)
    models = [(args.model, load(args.model))]
    if args.baseline is not None:
        models.append((args.baseline, load(args.baseline)))
    for place, model in models:
        if model.encoder.digest != examples.encoder_digest:
            raise BadInput(
                f"{place}: expected a model of the encoder that {args.data} was prepared with, got another"
            )
        if model.head is Head.LOGISTIC:
            continue
        if args.labels == "noisy" or args.calibration:
            option = "--labels noisy" if args.labels == "noisy" else "--calibration"
            raise BadInput(f"{place}: expected a model of probabilities with {option}, got a {model.head} head")
    if len({model.head for _, model in models}) > 1:
        raise BadInput(
            f"{args.baseline}: expected a {models[0][1].head} head as {args.model} has, got {models[1][1].head}"
        )
    if not len(examples):
        raise BadInput(f"{args.data}: expected rows in part {args.part}, got none")
    return models[0][1], models[1][1] if len(models) > 1 else None, examples


def _check_flips(
    args: argparse.Namespace, models: list[SavedModel], examples: Examples
) -> tuple[LabelFlips, LedgerSettings]:
    """Which labels would be flipped, how and for whom; and who pays. What can be refused is refused here."""
    from tacit.config import error_prefix
    from tacit.data.columns import Columns
    from tacit.entropy import Entropy
    from tacit.privacy.mechanisms.memoisation import SECRET_BYTES
    from tacit.privacy.units import Cap, Unit, UnitKind
    from tacit.train.config import PrivacySettings
    from tacit.train.config_file import check_epsilon
    from tacit.train.job.label_flips import LabelFlipRelease, read_secret
    from tacit.train.job.noisy_evaluation import RESPONSE, plan_flips
    from tacit.train.job.planned_training import flip_key

    if args.epsilon is None:
        raise BadInput("expected --epsilon for noisy labels, got none")
    ledger = _ledger_settings(args, examples)
    with error_prefix("--unit"):
        unit = Unit(UnitKind(args.unit or "impression"))
    if unit.kind is UnitKind.IMPRESSION and args.cap is not None:
        raise BadInput("--cap: expected only with a unit of several rows, got unit impression")
    with error_prefix("--cap"):
        cap = Cap(1 if args.cap is None else args.cap)
    version = expect.whole("--version", args.version or 0, at_least=0)
    privacy = PrivacySettings("label-dp", unit, cap, check_epsilon("--epsilon", args.epsilon))
    columns = Columns.open(args.data)
    scope = ledger.scope or str(columns.manifest.get("log"))
    flips = flip_key(scope, columns, args.part, version=version)
    kept = None
    if ledger.secret is not None:
        check_writable("--secret", ledger.secret)
        kept = read_secret(ledger.secret)
    secret = kept or Entropy().bytes(SECRET_BYTES)
    noisy = LabelFlipRelease(privacy, RESPONSE, flips, secret, scope, ledger.secret)
    places = [args.model, *([] if args.baseline is None else [args.baseline])]
    reads = {str(place): _sensitive_columns_read(model) for place, model in zip(places, models, strict=True)}
    return plan_flips(examples, noisy, reads, now=int(time.time()), relation=ledger.relation), ledger


def _measure_flips(flips: LabelFlips, ledger: LedgerSettings) -> MeasuredFlips:
    """Paid for by this ledger; on made-up data, by none."""
    from tacit.commands.ledger import Asker, grant_command, open_paying_ledger, suggest_grant

    if ledger.path is None:
        return flips.measured(None)
    cost = flips.cost
    store = open_paying_ledger(ledger, cost, Asker("--ledger"))
    with suggest_grant(grant_command(ledger, cost)):
        return flips.measured(store)


def _ledger_settings(args: argparse.Namespace, examples: Examples) -> LedgerSettings:
    """All of it, or on made-up data nothing."""
    from tacit.privacy.units import Relation
    from tacit.train.config import LedgerSettings

    given = {name: getattr(args, name) for name in ("ledger", "scope", "secret")}
    if examples.synthetic and all(value is None for value in (*given.values(), args.relation)):
        return LedgerSettings()
    for name, value in given.items():
        if value is None:
            raise BadInput(f"expected --{name} to pay for noisy labels, got none")
    relation = None if args.relation is None else Relation(args.relation)
    return LedgerSettings(args.ledger, args.witness, args.scope, relation, None, args.secret)


def _true_outcomes(examples: Examples) -> Outcomes:
    from tacit.train.evaluation.measures import Outcomes

    users = examples.key("user") if "user" in examples.keys else None
    return Outcomes.of_labels(examples.labels, clusters=users)


def _measure_values(examples: Examples, predicted: Any, other: Any) -> ValueEvaluation:
    """The figures of a model that predicts counts or amounts, beside those of a baseline."""
    from tacit.train.evaluation.report import evaluate_values

    assert examples.label is not None
    users = examples.key("user") if "user" in examples.keys else None
    return evaluate_values(examples.at.of(examples.label), predicted, baseline=other, clusters=users)


def _about_exact(args: argparse.Namespace, models: list[SavedModel], examples: Examples) -> tuple[str, ...]:
    """What exact figures of these rows give away."""
    from tacit.train.targets import Head

    if examples.synthetic:
        return (MADE_UP,)
    exact = EXACT if models[0].head is Head.LOGISTIC else EXACT_VALUES
    labels = AGREED if args.labels_are_public else exact
    return (labels, EXACT_FEATURES) if any(map(_sensitive_columns_read, models)) else (labels,)


def _sensitive_columns_read(model: SavedModel) -> tuple[str, ...]:
    """The sensitive columns that its predictions depend on."""
    from tacit.train.models.architectures import sensitive_columns

    return sensitive_columns(model.model.architecture, model.part, model.encoder)


def _bins(outcomes: Outcomes, predicted: Any) -> Any:
    from tacit.train.evaluation.report import reliability_table

    return reliability_table(outcomes, predicted)


def _notes(args: argparse.Namespace, saved: SavedModel, examples: Examples) -> list[str]:
    notes = []
    if saved.simulated:
        noise = "the model's noise was simulated" if saved.settings.get("as_if") else "the model is a study"
        notes.append(f"{noise}: it is not private")
    if args.part in (saved.settings.get("part"), "everything"):
        notes.append(f"the model may have been trained on {args.part}: expect worse on rows it has not seen")
    if saved.synthetic != examples.synthetic:
        notes.append("the model was trained on made-up data" if saved.synthetic else "these rows are made up")
    return notes
