"""What a private model of frames does, whatever it predicts: roles, encoding, plan, training, saving.

`Classifier` and `Regressor` (`tacit.train.classifier`) say what labels are and what a prediction is.
"""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from tacit import expect
from tacit.arrays import Floats32
from tacit.data.frame_roles import FrameRoles, name_columns
from tacit.data.frames import encode_rows, has_names, list_names, read_frame
from tacit.data.logs.definition import load_log
from tacit.data.splits import RowSet
from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput
from tacit.privacy.calibration import ProcessMemory
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.ledger.requests import Request
from tacit.privacy.mechanisms.memoisation import SECRET_BYTES
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Unit, UnitKind
from tacit.progress import patient_bar
from tacit.schema.columns import LogSchema, Role
from tacit.train.examples import Examples, count_units
from tacit.train.frame_examples import frame_encoder, frame_examples, read_rows
from tacit.train.job import progress_line
from tacit.train.job.payment import (
    TrainingLedger,
    charge_as_aimed,
    refuse_reading_protected,
    release_payment,
)
from tacit.train.job.progress_line import shown_progress
from tacit.train.job.training_job import TrainingJob
from tacit.train.methods import IMPRESSION, TrainingMethod
from tacit.train.models.architectures import Mlp, few_threads, make_architecture
from tacit.train.models.model import Architecture
from tacit.train.models.saving import SavedModel, save
from tacit.train.plan import Plan
from tacit.train.promise_words import NO_PROMISE, SEEDED_NOISE
from tacit.train.row_scorer import RowScorer
from tacit.train.settings import Default, Speed
from tacit.train.steps import DEFAULT_SPEED

SMALL_NETWORK = Mlp(dim=8, public_layers=(64,), common_layers=(64, 32))
"""What "mlp" means for a frame: the published widths of `Mlp()` are made for tables of a million rows."""
PREDICTED_AT_ONCE = 2**16  # rows of a frame
ESTIMATOR = "estimator"  # the key of a saved model's settings under which what is asked of a frame stands
SEARCHES = frozenset({"_fit_and_score", "_fit_and_predict"})  # of sklearn.model_selection


class RolesGuessed(UserWarning):
    """Roles of columns were guessed: says which, and how to confirm them."""


class TuningSpends(UserWarning):
    """Fits of a search or a cross-validation are releases, of which a statement counts one."""


class PayingLedger(TrainingLedger, Protocol):
    """A ledger that lets one release be made, once; `LedgerStore` is one."""

    def once(self, *requests: Request) -> AbstractContextManager[Any]: ...


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A trained model, and what its use needs: no row, no label, no source of randomness."""

    saved: SavedModel
    statement: PrivacyStatement | None
    schema: LogSchema
    sources: tuple[str, ...]  # the frame's columns that predictions read, in the frame's order
    defaults: tuple[Default, ...] = ()  # what was left to us, and why it was chosen so


class FrameModel(ABC, BaseEstimator):  # type: ignore[misc]
    """A private model of frames. `fit` plans, trains, and keeps the model with its statement."""

    model: str | Architecture
    method: str | TrainingMethod
    epsilon: int | float | Fraction | Decimal
    public: Any
    sensitive: Any
    unit: str | Unit | None
    categories: Any
    schema: str | Path | LogSchema | None
    bins: int | None
    speed: Speed | None
    random_state: int | None
    _scorer: RowScorer | None = None

    def fit(
        self,
        X: Any,  # noqa: N803 (scikit-learn's name)
        y: Any = None,
        *,
        ledger: PayingLedger | None = None,
        scope: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Train on a frame and the name of its label column, or on features and labels.

        With a `ledger` (`tacit.open_ledger`) the fit is paid for before anything is drawn: from the line of
        `scope`, the name of the data, under a `name` that no other release has.

        Guarantee:  what `statement_` says, for this one fit: (epsilon, delta)-DP of the fitted model.
        Neighbours: the private part of one unit (a row, or all rows with one value of the column `unit`)
                    replaced: labels alone under label-dp and statistic, sensitive features and labels under
                    dp-sgd and hybrid. Public columns and which rows exist stay.
        Assumes:    no public column was made from labels; types of columns, the unit's column, and the classes
                    or the range of values are public. Whatever else was fitted to the same rows is another
                    release, and so is a score on them.
        Source:     the methods `LabelDp`, `DpSgd`, `Hybrid` and `StatisticMethod` of `tacit.train`.
        """
        table, label, labels = read_rows(X, y)
        schema = self._find_schema(table, label)
        target, own = self._read_targets(labels)
        encoder = frame_encoder(schema, table, self.bins)
        examples = frame_examples(table, schema, encoder, target)
        seed = None if self.random_state is None else expect.integer("random_state", self.random_state)
        secret = (Entropy() if seed is None else Simulation(f"secret {seed}")).bytes(SECRET_BYTES)
        shape, method = self._make_shape(), self._make_method(examples)
        speed = DEFAULT_SPEED if self.speed is None else self.speed
        _expect_parts(shape, method, speed, self.model, self.method)
        _warn_of_search()
        plan = method.plan(examples, secret=secret, memory=_MEMORY)
        plan.check(shape)
        job = TrainingJob(plan, shape, secret, seed, speed)
        shown = shown_progress(plan, after_seconds=progress_line.PATIENCE_SECONDS)
        charge = self._find_charge(plan)
        paid = _pay_for(plan, charge, ledger, scope, name, simulated=seed is not None)
        with paid, few_threads(shape), shown as watch:
            model, calibration = job.train(watch)
        statement = plan.statement if seed is None else None
        read = {column.source for column in encoder.columns}
        sources = tuple(name for name in table.column_names if name in read)
        record: dict[str, Any] = {"kind": type(self).__name__, "sources": sources}
        record |= {
            "columns": [each.as_json() for each in schema.columns],
            "parameters": _plain_only(self.get_params()),
        }
        saved = SavedModel(
            model=model,
            head=plan.head,
            encoder=encoder,
            statement=None if statement is None else statement.as_json(),
            method=self._method_name + (" (simulated, not private)" if seed is not None else ""),
            settings={
                ESTIMATOR: record | {key: value.tolist() for key, value in own.items()},
                "log": "a frame",
                "examples": len(examples),
                "units": None if plan.statement is None else count_units(examples, plan.statement.unit),
                "steps": plan.steps,
                "calibrated": None if calibration is None else calibration.as_json(),
                "simulated": seed,
                "as_if": None if seed is None or plan.statement is None else plan.statement.as_json(),
                "ledger": None if name is None else {"keys": [name], "scope": scope},
            },
            part=plan.part,
        )
        self._keep(FittedModel(saved, statement, schema, sources, plan.defaults))
        self.calibration_ = calibration
        for key, value in own.items():
            setattr(self, f"{key}_", value)
        if not has_names(X):
            del self.feature_names_in_
        return self

    def explain(self) -> str:
        """What is promised, to whom, and what is not, as a page that people can read."""
        check_is_fitted(self, "fitted_")
        words = SEEDED_NOISE if self.fitted_.saved.simulated else NO_PROMISE
        if self.statement_ is not None:
            words = self.statement_.as_text("This model")
        return f"{words}\n\nColumns of the {self.fitted_.schema}"

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the model, its encoder and its statement into a folder that `tacit.load` reads."""
        check_is_fitted(self, "fitted_")
        save(folder, self.fitted_.saved, overwrite=overwrite)

    def score_row(self, row: Mapping[str, Any]) -> float:
        """What is expected of one row, a dictionary by column: for a server, in some tens of microseconds."""
        if not isinstance(row, Mapping):
            raise BadInput(f"expected a row as a dictionary by column, got {type(row).__name__}")
        if self._scorer is None:
            check_is_fitted(self, "fitted_")
            self._scorer = RowScorer(self.fitted_.saved)
        return self._scorer.score(row)

    def __getstate__(self) -> Any:
        """Without the scorer, which remembers values that it met."""
        state = super().__getstate__()
        return {key: value for key, value in state.items() if key != "_scorer"}

    def _keep(self, fitted: FittedModel) -> None:
        self.fitted_, self.statement_ = fitted, fitted.statement
        self.n_features_in_ = len(fitted.sources)
        self.feature_names_in_ = np.array(fitted.sources, dtype=object)
        self._scorer = None

    def _expected_labels(self, X: Any) -> Floats32:  # noqa: N803
        check_is_fitted(self, "fitted_")
        saved = self.fitted_.saved
        table = self._check_features(read_frame(X), named=has_names(X))
        found = [np.zeros(0, np.float32)]
        with patient_bar("predict", len(table), "rows") as count:
            for start in range(0, max(1, len(table)), PREDICTED_AT_ONCE):
                count(start)
                sides = encode_rows(saved.encoder, table.slice(start, PREDICTED_AT_ONCE))
                rows = RowSet(slice(0, len(sides[0])))
                found.append(
                    saved.predict(
                        Examples(*sides, saved.model.sizes, rows, encoder_digest=saved.encoder.digest)
                    )
                )
        return np.concatenate(found)

    def _check_features(self, table: pa.Table, *, named: bool) -> pa.Table:
        """The columns that the model reads; others are refused."""
        own, sources = type(self).__name__, [*self.fitted_.sources]
        fitted_named = hasattr(self, "feature_names_in_")
        if named != fitted_named:
            have, had = ("has", "without") if named else ("does not have valid", "with")
            warnings.warn(f"X {have} feature names, but {own} was fitted {had} feature names", stacklevel=5)
        if not (named and fitted_named):
            if table.num_columns != len(sources):
                expected = f"{own} is expecting {len(sources)} features as input"
                raise BadInput(f"X has {table.num_columns} features, but {expected}")
            return table.rename_columns(sources)
        known = {column.source for column in self.fitted_.schema.columns}
        unseen = [name for name in table.column_names if name not in known]
        names = {*table.column_names}
        missing = [name for name in sources if name not in names]
        if unseen or missing:
            parts = [f"unseen at fit: {list_names(unseen)}"] if unseen else []
            parts += [f"missing: {list_names(missing)}"] if missing else []
            raise BadInput(
                f"expected the columns of fit, {list_names(sources)}, got others; {'; '.join(parts)}"
            )
        if table.column_names != sources and names == {*sources}:
            raise BadInput(f"expected columns in the order of fit, {list_names(sources)}, got another order")
        return table

    def _find_schema(self, table: pa.Table, label: str) -> LogSchema:
        names = table.column_names
        if self.schema is not None:
            given = {"public": self.public, "sensitive": self.sensitive, "categories": self.categories}
            beside = [key for key, value in given.items() if value is not None]
            if beside:
                raise BadInput(f"{beside[0]}: expected roles from the schema alone, got a list beside it")
            return self._given_schema(label, named=label in names)
        roles = FrameRoles(
            name_columns("public", self.public, names),
            name_columns("sensitive", self.sensitive, names),
            self._unit_column,
            name_columns("categories", self.categories, names) or (),
        )
        schema = roles.schema(table, label)
        guessed = roles.guess(names, label, unit_said=self.unit is not None)
        if guessed:
            warnings.warn(guessed, RolesGuessed, stacklevel=3)
        return schema

    def _given_schema(self, label: str, *, named: bool) -> LogSchema:
        schema = self.schema
        if not isinstance(schema, str | Path | LogSchema):
            raise BadInput(f"schema: expected the path of a log's TOML file or a LogSchema, got {schema!r}")
        if not isinstance(schema, LogSchema):
            schema = load_log(Path(schema)).schema
        if named and schema.label.source != label:
            raise BadInput(f"y: expected {schema.label.source!r}, the label of the schema, got {label!r}")
        people = schema.only_column_with(Role.USER)
        if self._unit_column is not None and (people is None or people.source != self._unit_column):
            known = "without one" if people is None else f"of {people.source!r}"
            raise BadInput(f"unit: expected the schema's users, got {self.unit!r} and a schema {known}")
        return schema

    def _find_charge(self, plan: Plan) -> Guarantee | None:
        """What a ledger is asked for: the epsilon that was aimed for, where no more was needed."""
        if plan.charge is None or not isinstance(self.method, str):
            return plan.charge
        return charge_as_aimed(plan.charge, self.epsilon)

    @property
    def _method_name(self) -> str:
        return self.method if isinstance(self.method, str) else type(self.method).__name__

    @property
    def _unit_column(self) -> str | None:
        named = isinstance(self.unit, str) and self.unit != str(UnitKind.IMPRESSION)
        return self.unit if named else None  # type: ignore[return-value]

    def _find_unit(self) -> Unit:
        if not isinstance(self.unit, str | Unit | None):
            raise BadInput(f"unit: expected a column's name, a Unit or None, got {self.unit!r}")
        if isinstance(self.unit, Unit):
            return self.unit
        return IMPRESSION if self._unit_column is None else Unit(UnitKind.USER)

    def _find_epsilon(self) -> Fraction:
        expect.not_text("epsilon", self.epsilon)
        return expect.positive("epsilon", self.epsilon)

    def _make_shape(self) -> Architecture:
        if self.model == Mlp.name:
            return SMALL_NETWORK
        return make_architecture(self.model, {}) if isinstance(self.model, str) else self.model

    @abstractmethod
    def _make_method(self, examples: Examples) -> TrainingMethod:
        """How the examples are learned from, and what that promises."""

    @abstractmethod
    def _read_targets(self, labels: NDArray[Any]) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """What is learned, and what is known after it, by the names of attributes without their underscore."""


@contextmanager
def _pay_for(
    plan: Plan,
    charge: Guarantee | None,
    ledger: PayingLedger | None,
    scope: str | None,
    name: str | None,
    *,
    simulated: bool,
) -> Iterator[None]:
    """A training within its payment: reserved before, made and spent afterwards."""
    if ledger is None:
        if scope is not None or name is not None:
            raise BadInput("expected a ledger to pay from, got a scope or a name without one")
        yield
        return
    if not hasattr(ledger, "once"):
        raise BadInput(f"ledger: expected one, as tacit.open_ledger gives, got {type(ledger).__name__}")
    if simulated or charge is None:
        raise BadInput("expected a private fit to pay for, got a simulation (random_state) or method plain")
    if not scope or not name:
        raise BadInput("expected a scope, the data's name, and a name of the release, got a ledger alone")
    refuse_reading_protected(ledger, scope, charge)
    payment = release_payment(ledger, charge, plan.examples, scope=scope, key=name, purpose="fit a model")
    with ledger.once(*payment.requests):
        yield


def _expect_parts(shape: object, method: object, speed: object, *given: object) -> None:
    """Of the right kinds, before anything is paid for."""
    if not hasattr(shape, "build"):
        raise BadInput(f"model: expected a word or an architecture of tacit.train, got {given[0]!r}")
    if not hasattr(method, "plan"):
        raise BadInput(f"method: expected a word or a method of tacit.train, got {given[1]!r}")
    if not isinstance(speed, Speed):
        raise BadInput(f"speed: expected a Speed or None, got {speed!r}")


def _plain_only(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that JSON holds as they are."""
    plain = (str, int, float, type(None))
    lists = {key: each if isinstance(each, list) else [each] for key, each in values.items()}
    return {key: values[key] for key, each in lists.items() if all(isinstance(one, plain) for one in each)}


_MEMORY = ProcessMemory()  # a search asks for the same calibration again and again


def _warn_of_search() -> None:
    """Say, once in a process, that a search spends: its frames are above ours."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name in SEARCHES and frame.f_globals["__name__"].startswith(
            "sklearn.model_selection"
        ):
            warnings.warn(
                "each fit of a search or a cross-validation is a release of its own: on the same rows their "
                "epsilons add up, and statement_ speaks of one fit alone. Tune on public or made-up rows",
                TuningSpends,
                stacklevel=3,
            )
            return
        frame = frame.f_back  # type: ignore[assignment]
