"""`tacit explain`: in plain words, what a model, a configuration or a log promises, and what it does not."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands.output import Subparsers, add_json_flag, print_json
from tacit.errors import BadInput
from tacit.files import refuse_bad_record

if TYPE_CHECKING:
    from tacit.data.columns import Columns

ABOUT = """\
Say in plain words what is promised, to whom, and what is not.

PATH is a model (what was promised to the people it learned from), a training configuration (what would be
promised; nothing is spent), or a prepared log (what is in it, and which promises can be made about it)."""

EXAMPLES = """\
examples:
  tacit explain model
  tacit explain train.toml
  tacit explain display --json"""

TUNING = (
    "Every model that was trained on the same people's data and looked at spends budget of its own, and so do "
    "models that were only tried: this page speaks of this one alone."
)
ADDED_UP = (
    "tacit ledger show adds up what was spent on one line: one scope, unit, relation and window. For a person, "
    "promises on different lines add up too, and the ledger does not do that sum."
)
NOT_ADDED_UP = "For a person, the promises of all of them add up; without a ledger, nobody does that sum."
NO_PROMISE = (
    "No privacy is promised. The model was trained on true labels and all features, and may tell what it "
    "learned about single people. Treat it like the data."
)
SIMULATED = (
    "Simulated, not private. The noise of this training comes from a seed, and whoever knows the seed can take "
    "it away again. It is a study on made-up data, and promises nothing."
)
AS_IF = "As a release, with noise that nobody knows, the same training would be {}."
SIMULATED_PLAIN = (
    "Simulated, not private. This training has no noise at all; its start and its order come from a seed, so "
    "that it can be repeated. It is a study on made-up data, and promises nothing."
)
ABOUT_NOBODY = "The data was made up: there is nobody in it to be protected."
PREDICTS = {"poisson": ", and predicts a count", "squared": ", and predicts a value"}
ABOUT_LOG = (
    "This folder holds people's data, encoded. It is not a release and not private: keep it like the log it "
    "came from. Promises are made when something that was computed from it leaves."
)


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "explain",
        help="what a model, a configuration or a log promises, in plain words",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="a model, a configuration or a prepared log")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tacit.data.columns import MANIFEST as LOG_MANIFEST
    from tacit.train.models.saving import MANIFEST as MODEL_MANIFEST

    place: Path = args.path
    if (place / MODEL_MANIFEST).is_file():
        record, page = _model(place)
    elif (place / LOG_MANIFEST).is_file():
        record, page = _log(place)
    elif place.is_file():
        record, page = _configuration(place)
    else:
        raise BadInput(
            f"{place}: expected a model, a training configuration or a prepared log, got none of them"
        )
    if args.json:
        print_json(record)
    else:
        print("\n".join(page))
    return 0


def _model(place: Path) -> tuple[dict[str, Any], list[str]]:
    from tacit.privacy.statement import PrivacyStatement
    from tacit.train.job.planned_training import delta_warning
    from tacit.train.models.architectures import architecture_settings
    from tacit.train.models.model import Part
    from tacit.train.models.saving import MANIFEST, STATEMENT, load

    saved = load(place)
    sizes, settings = saved.model.sizes, saved.settings
    with refuse_bad_record(place / MANIFEST, "a model"):
        simulated = saved.simulated
        warning = None if simulated else delta_warning(saved.statement, settings.get("units"))
        examples, log = settings.get("examples"), settings.get("log")
        learned = f", trained on {examples:,} examples of {log}" if examples else ""
        paid = ", ".join(settings["ledger"]["keys"][:3]) if settings.get("ledger") else None
        as_if = _simulated(settings.get("as_if"))
        calibrated = settings["calibrated"]["words"] if settings.get("calibrated") else None
        reports = _reports(settings.get("reports"))
    with refuse_bad_record(place / STATEMENT, "a statement"):
        promised = None if saved.statement is None else PrivacyStatement.from_json(saved.statement).as_text()
    parameters = sum(a.size for a in (*saved.model.tables.values(), *saved.model.dense.values()))
    truncated = saved.part is Part.TRUNCATED
    record: dict[str, Any] = {
        "kind": "model",
        "architecture": {
            "name": saved.model.architecture.name,
            **architecture_settings(saved.model.architecture),
        },
        "method": saved.method,
        "synthetic": saved.synthetic,
        "simulated": simulated,
        "part": str(saved.part),
        "parameters": parameters,
        "statement": saved.statement,
        "warning": warning,
        "settings": dict(settings),
    }
    reads = f"{sizes.public_fields} public fields"
    if not truncated:
        reads += f" and {sizes.sensitive_fields} sensitive ones"
    shape = f"{saved.model.architecture.name}, {parameters:,} numbers"
    page = [
        f"{place}: a model ({shape}) by {saved.method}{learned}.",
        f"It reads {reads}{PREDICTS.get(str(saved.head), '')}.",
        *reports,
        "",
    ]
    if calibrated is not None:
        page[-1:] = [_filled(f"Calibration: {calibrated}."), ""]
    if saved.synthetic:
        page += [ABOUT_NOBODY, ""]
    if simulated:
        page += as_if
    elif promised is None:
        page += [_filled(NO_PROMISE)]
    else:
        page += [promised, *_warned(warning)]
        if paid is not None:
            page += ["", f"Paid for in the ledger as {paid}."]
        page += ["", _tuning(ledger=paid is not None)]
    return record, page


def _configuration(place: Path) -> tuple[dict[str, Any], list[str]]:
    from tacit.commands.train_output import phase_words, plan_record, plan_with_spinner
    from tacit.train.config_file import load_config
    from tacit.train.job.progress import phase_name

    chosen = plan_with_spinner(load_config(place))
    plan = chosen.plan
    record = {"kind": "configuration", **plan_record(chosen, None)}
    page = [
        f"{place}: a training of {chosen.config.model.name} by {chosen.config.privacy.method}, not begun. "
        "Nothing is spent.",
        *(f"  {phase_name(phase)}: {phase_words(phase, len(chosen.examples))}" for phase in plan.phases),
        "",
    ]
    page[-1:-1] = _reports(chosen.config.labels.words)
    if plan.statistic is not None:
        page[-1:] = [_filled(f"  {plan.statistic.plan.words}"), ""]
    if chosen.examples.synthetic:
        page += [ABOUT_NOBODY, ""]
    if chosen.simulated:
        page += _simulated(None if plan.statement is None else plan.statement.as_json())
    elif plan.statement is None:
        page += [_filled(NO_PROMISE)]
    else:
        page += ["What would be promised:", "", plan.statement.as_text("What would be released")]
        page += [*_warned(record["few"]), *_warned(record["warning"])]
        page += ["", _tuning(ledger=chosen.config.ledger.path is not None)]
    return record, page


def _reports(words: str | None) -> list[str]:
    """How labels are reported, where it is not one flip of a label of 0 or 1."""
    return [] if words is None else [_filled(f"Reports: {words}.")]


def _simulated(as_if: Mapping[str, Any] | None) -> list[str]:
    """Of a study: that it is one, and what the same training would be as a release."""
    from tacit.privacy.statement import PrivacyStatement

    if as_if is None:
        return [_filled(SIMULATED_PLAIN)]
    return [_filled(SIMULATED), "", _filled(AS_IF.format(PrivacyStatement.from_json(as_if).headline))]


def _tuning(*, ledger: bool) -> str:
    return _filled(f"{TUNING} {ADDED_UP if ledger else NOT_ADDED_UP}")


def _log(place: Path) -> tuple[dict[str, Any], list[str]]:
    from tacit.data.columns import Columns

    columns = Columns.open(place)
    manifest = columns.manifest
    keys, public = sorted(columns.unit_keys), columns.public_keys
    units = _units(columns)
    record: dict[str, Any] = {
        "kind": "log",
        "log": manifest.get("log"),
        "rows": columns.rows,
        "synthetic": columns.synthetic,
        "fields": manifest.get("fields"),
        "unit_keys": {key: "public" if key in public else "sensitive" for key in keys},
        "units": units,
        "parts": columns.part_sizes(),
        "selection": None if columns.encoder.selection is None else columns.encoder.selection.as_json(),
    }
    fields = {"public": [], "sensitive": []} | (record["fields"] or {})
    parts = ", ".join(f"{name} {count:,}" for name, count in record["parts"].items())
    waits = "" if columns.delay is None else ", with seconds to conversion"
    named = [f"{key} ({'public' if key in public else 'sensitive'})" for key in keys]
    page = [
        f"{place}: {columns.rows:,} rows of {record['log']} ({parts}).",
        _filled(f"Public: {', '.join(fields['public']) or 'no field'}."),
        _filled(f"Sensitive: {', '.join(fields['sensitive']) or 'no field'}; and the label{waits}."),
        f"Keys: {', '.join(named) or 'none'}.",
        f"Promises can be made per {', '.join(units)}.",
        "",
        ABOUT_NOBODY if columns.synthetic else _filled(ABOUT_LOG),
    ]
    if record["selection"] is not None:
        page += ["", "Its vocabulary of sensitive values was a release: training composes it with its own."]
    return record, page


def _units(columns: Columns) -> list[str]:
    """The units whose keys the log has, and anybody may know."""
    from tacit.privacy.units import UnitKind

    return [str(kind) for kind in UnitKind if set(kind.key_columns) <= columns.public_keys]


def _warned(warning: str | None) -> list[str]:
    return [] if warning is None else ["", _filled(f"Warning: {warning}.")]


def _filled(text: str) -> str:
    return textwrap.fill(text, 100)
