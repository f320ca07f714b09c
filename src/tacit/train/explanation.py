"""The page of `tacit explain`: in plain words, what a model, a training or a log promises, and what not.

The page is put together here. The words of a promise are a statement's (`tacit.privacy.statement`) and those of
its mechanisms (`tacit.privacy.releases`); the words of a training that promises nothing are in
`tacit.train.promise_words`, and what a planned training will do in `tacit.train.job.plan_summary`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import expect
from tacit.data.columns import MANIFEST as LOG_MANIFEST
from tacit.data.columns import Columns
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.files import refuse_bad_record
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import UnitKind
from tacit.train.config import TrainingConfig
from tacit.train.config_file import load_config
from tacit.train.job.plan_summary import phase_words, plan_record
from tacit.train.job.planned_training import PlannedTraining, delta_warning
from tacit.train.job.progress import phase_name
from tacit.train.models.architectures import architecture_settings
from tacit.train.models.model import Part
from tacit.train.models.saving import MANIFEST as MODEL_MANIFEST
from tacit.train.models.saving import STATEMENT, load
from tacit.train.promise_words import (
    ABOUT_LOG,
    ABOUT_NOBODY,
    ADDED_UP,
    AS_IF,
    NO_PROMISE_PAGE,
    NOT_ADDED_UP,
    SIMULATED_PAGE,
    SIMULATED_PLAIN_PAGE,
    TUNING,
)

PREDICTS = {"poisson": ", and predicts a count", "squared": ", and predicts a value"}


@dataclass(frozen=True)
class Explanation:
    """What is promised, as a record for machines and as a page for people."""

    record: Mapping[str, Any]
    page: str

    __repr__ = brief_repr

    def __str__(self) -> str:
        return self.page


def explain(path: str | Path, plan: Callable[[TrainingConfig], PlannedTraining]) -> Explanation:
    """Of whatever lies there: a model, a prepared log, or a training configuration, which is planned first."""
    place = expect.path("path", path)
    if (place / MODEL_MANIFEST).is_file():
        return explain_model(place)
    if (place / LOG_MANIFEST).is_file():
        return explain_log(place)
    if place.is_file():
        return explain_training(plan(load_config(place)))
    raise BadInput(f"{place}: expected a model, a training configuration or a prepared log, got none of them")


def explain_model(folder: str | Path) -> Explanation:
    """What a saved model promises the people whose data it learned from."""
    place = expect.path("folder", folder)
    saved = load(place)
    sizes, settings = saved.model.sizes, saved.settings
    with refuse_bad_record(place / MODEL_MANIFEST, "a model"):
        simulated = saved.simulated
        warning = None if simulated else delta_warning(saved.statement, settings.get("units"))
        examples, log = settings.get("examples"), settings.get("log")
        learned = f", trained on {examples:,} examples of {log}" if examples else ""
        paid = ", ".join(settings["ledger"]["keys"][:3]) if settings.get("ledger") else None
        as_if = _simulation_lines(settings.get("as_if"))
        calibrated = settings["calibrated"]["words"] if settings.get("calibrated") else None
        reports = _report_lines(settings.get("reports"))
        if settings.get("method_chosen"):
            reports += [_fill(f"Chosen: {settings['method_chosen']}.")]
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
        page[-1:] = [_fill(f"Calibration: {calibrated}."), ""]
    if saved.synthetic:
        page += [ABOUT_NOBODY, ""]
    if simulated:
        page += as_if
    elif promised is None:
        page += [_fill(NO_PROMISE_PAGE)]
    else:
        page += [promised, *_warning_lines(warning)]
        if paid is not None:
            page += ["", f"Paid for in the ledger as {paid}."]
        page += ["", _tuning_words(ledger=paid is not None)]
    return Explanation(record, "\n".join(page))


def explain_training(planned: PlannedTraining) -> Explanation:
    """What a training would promise that is planned and not begun. Nothing is spent."""
    expect.kind("planned", planned, PlannedTraining)
    plan, config = planned.plan, planned.config
    record = {"kind": "configuration", **plan_record(planned, None)}
    page = [
        f"{config.place}: a training of {config.model.name} by {config.privacy.method}, not begun. "
        "Nothing is spent.",
        *(f"  {phase_name(phase)}: {phase_words(phase, len(planned.examples))}" for phase in plan.phases),
        "",
    ]
    page[-1:-1] = _report_lines(config.labels.words)
    if plan.statistic is not None:
        page[-1:] = [_fill(f"  {plan.statistic.plan.words}"), ""]
    page[-1:-1] = [_fill(f"Chosen: {each.words}.") for each in plan.defaults if each.key == "privacy.method"]
    if planned.examples.synthetic:
        page += [ABOUT_NOBODY, ""]
    if planned.simulated:
        page += _simulation_lines(None if plan.statement is None else plan.statement.as_json())
    elif plan.statement is None:
        page += [_fill(NO_PROMISE_PAGE)]
    else:
        page += ["What would be promised:", "", plan.statement.as_text("What would be released")]
        page += [*_warning_lines(record["few"]), *_warning_lines(record["warning"])]
        page += ["", _tuning_words(ledger=config.ledger.path is not None)]
    return Explanation(record, "\n".join(page))


def explain_log(folder: str | Path) -> Explanation:
    """What is in a prepared log, and which promises can be made about it."""
    place = expect.path("folder", folder)
    columns = Columns.open(place)
    manifest = columns.manifest
    keys, public = sorted(columns.unit_keys), columns.public_keys
    units = possible_units(columns)
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
        _fill(f"Public: {', '.join(fields['public']) or 'no field'}."),
        _fill(f"Sensitive: {', '.join(fields['sensitive']) or 'no field'}; and the label{waits}."),
        f"Keys: {', '.join(named) or 'none'}.",
        f"Promises can be made per {', '.join(units)}.",
        "",
        ABOUT_NOBODY if columns.synthetic else _fill(ABOUT_LOG),
    ]
    if record["selection"] is not None:
        page += ["", "Its vocabulary of sensitive values was a release: training composes it with its own."]
    return Explanation(record, "\n".join(page))


def possible_units(columns: Columns) -> list[str]:
    """The units whose keys the log has, and anybody may know."""
    return [str(kind) for kind in UnitKind if set(kind.key_columns) <= columns.public_keys]


def _report_lines(words: str | None) -> list[str]:
    """How labels are reported, where it is not one flip of a label of 0 or 1."""
    return [] if words is None else [_fill(f"Reports: {words}.")]


def _simulation_lines(as_if: Mapping[str, Any] | None) -> list[str]:
    """Of a study: that it is one, and what the same training would be as a release."""
    if as_if is None:
        return [_fill(SIMULATED_PLAIN_PAGE)]
    return [_fill(SIMULATED_PAGE), "", _fill(AS_IF.format(PrivacyStatement.from_json(as_if).headline))]


def _warning_lines(warning: str | None) -> list[str]:
    return [] if warning is None else ["", _fill(f"Warning: {warning}.")]


def _tuning_words(*, ledger: bool) -> str:
    return _fill(f"{TUNING} {ADDED_UP if ledger else NOT_ADDED_UP}")


def _fill(text: str) -> str:
    return textwrap.fill(text, 100)
