"""From a configuration's tables to the values that training is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.relations import Relation
from tacit.privacy.units import Cap, CapChoice, Split, Unit, UnitKind, Window
from tacit.train.configuration.keys import OPTIMIZERS, RELEASING
from tacit.train.configuration.table import Table, said_under
from tacit.train.configuration.values import Keeping, Labels, LedgerPlace, Privacy, Watching
from tacit.train.labels.flips import FlipLabels
from tacit.train.labels.laplace import LaplaceWithPrior
from tacit.train.labels.mechanism import Correction
from tacit.train.labels.prior_flips import FlipTowardsPrior
from tacit.train.labels.priors import Prior
from tacit.train.models.architectures import KNOWN, architecture
from tacit.train.models.model import Architecture
from tacit.train.settings import Learning, PrivateLearning, Speed
from tacit.train.sgd import optimizers
from tacit.train.sgd.descent import NoiseForm
from tacit.train.sgd.optimizers import Optimizer
from tacit.train.sgd.schedule import Decay
from tacit.train.statistic import NoisyStatistic
from tacit.train.statistic.field_machine import FieldFactors
from tacit.train.statistic.prior import Prior as StatisticPrior

TYPES = {
    **dict.fromkeys(("epochs", "rate", "penalty", "clip_norm", "start_rate", *OPTIMIZERS), "a number"),
    **dict.fromkeys(("decay", "optimizer"), "a text in quotes"),
    "batch": "a whole number",
}
SHAPES = {
    **dict.fromkeys(("public_layers", "common_layers", "layers", "attention", "history"), "a list"),
    **dict.fromkeys(("dim", "length"), "a whole number"),
    "start": "a number",
}
LEAST_EPSILON, MOST_EPSILON = Fraction(1, 10_000), 1000  # beyond them accounting takes minutes, for no use
RESPONSE, PRIOR, LAPLACE = "randomized-response", "prior", "laplace"


def model(record: Mapping[str, Any]) -> Architecture:
    names = tuple(kind.name for kind in KNOWN if kind is not FieldFactors)  # which is no choice, but a result
    every = {each.name for kind in KNOWN for each in fields(kind)}
    name = Table(record, "model", ("name", *sorted(every))).one_of("name", names)
    kind = next(kind for kind in KNOWN if kind.name == name)
    table = Table(record, "model", ("name", *(each.name for each in fields(kind))))
    table.checked_types(SHAPES)
    with said_under("model"):
        return architecture(name, table.some(*(each.name for each in fields(kind))))


def privacy(table: Table, method: str) -> Privacy:
    unit = _unit(table)
    if unit.kind is UnitKind.IMPRESSION:
        for key in ("cap", "cap_choice", "split"):
            if key in table:
                raise BadInput(f"privacy.{key}: expected only with a unit of several rows, got unit impression")
    cap = Cap(
        table.whole("cap", 1, at_least=1) or 1,
        CapChoice(table.one_of("cap_choice", tuple(CapChoice), "first")),
        Split(table.one_of("split", tuple(Split), "epsilon/K")),
    )
    if method not in RELEASING:
        return Privacy(method, unit, cap)
    table.needed("epsilon", "the epsilon to keep, in all")
    epsilon = epsilon_within("privacy.epsilon", table.number("epsilon") or 0)
    delta = None
    if method != "label-dp":
        table.needed("delta", "a delta, such as one over the number of examples")
        delta = expect.probability("privacy.delta", table.number("delta") or 0)
    k: float | Literal["auto"] = {"label-dp": 1.0, "dp-sgd": 0.0}.get(method, _share(table))
    frozen = table.one_of("public_tower", ("fine-tuned", "frozen"), "fine-tuned") == "frozen"
    if frozen and k in (0, 1):
        raise BadInput(f"privacy.public_tower: expected fine-tuned where k is {k:g}, got frozen")
    return Privacy(method, unit, cap, epsilon, delta, k, frozen)


def epsilon_within(name: str, said: expect.Number) -> Fraction:
    """An epsilon that means something, whoever asks for it."""
    epsilon = expect.positive(name, said)
    if not LEAST_EPSILON <= epsilon <= MOST_EPSILON:
        why = "nothing would be learned" if epsilon < 1 else "nothing would be promised"
        raise BadInput(
            f"{name}: expected {float(LEAST_EPSILON):g} to {MOST_EPSILON}, got {_short(epsilon)}: {why}"
        )
    return epsilon


def labels(table: Table) -> Labels:
    table.checked_types(TYPES)
    way = table.one_of("mechanism", (RESPONSE, PRIOR, LAPLACE), RESPONSE)
    version = table.whole("version", 0, at_least=0) or 0
    learning = _learning(table)
    rate = None
    if way == RESPONSE:
        if "prior_rate" in table:
            raise BadInput(f"labels.prior_rate: expected only with mechanism {PRIOR} or {LAPLACE}, got {way}")
    else:
        table.needed("prior_rate", f"a public guess of how many labels are 1, for mechanism {way}")
        rate = float(expect.probability("labels.prior_rate", table.number("prior_rate") or 0))
    allowed = {RESPONSE: ("forward", "unbiased", "raw"), PRIOR: ("posterior", "raw"), LAPLACE: ("posterior",)}
    correction = Correction(table.one_of("correction", allowed[way], allowed[way][0]))
    if rate is None:
        return Labels(FlipLabels(correction=correction), way, learning, version)
    prior = Prior.of_rate(rate)
    if way == LAPLACE:  # the prior only reads the report, so the draws do not depend on it
        return Labels(LaplaceWithPrior(prior), way, learning, version)
    spelled = f"{way}, {float(prior.table[0, 1])!r}"
    return Labels(FlipTowardsPrior(prior, correction=correction), spelled, learning, version)


def plain(table: Table) -> Learning:
    return _learning(table)


def descent(table: Table) -> PrivateLearning:
    table.checked_types(TYPES)
    keys = ("epochs", "batch", "clip_norm", "rate", "penalty", "start_rate", "recalibrate")
    # With a momentum and no name it is SGD, which alone has one.
    decay, optimizer = _decay(table), _optimizer(table, "sgd" if "momentum" in table else "adam")
    with said_under("descent"):
        return PrivateLearning(**table.some(*keys), decay=decay, optimizer=optimizer)


def statistic(table: Table) -> NoisyStatistic:
    table.checked_types({"rank": "a whole number", "clip_norm": "a number", "most_pairs": "a whole number"})
    said = table.number("rate")
    prior = {} if said is None else {"rate": float(expect.probability("statistic.rate", said))}
    with said_under("statistic"):
        return NoisyStatistic(**table.some("rank", "clip_norm", "most_pairs"), prior=StatisticPrior(**prior))


def speed(table: Table) -> Speed:
    usual = Speed()
    form = table.one_of("noise", tuple(NoiseForm), usual.noise_form)
    return Speed(table.whole("microbatch", usual.microbatch, at_least=1) or usual.microbatch, NoiseForm(form))


def ledger(table: Table, folder: Path) -> LedgerPlace:
    path, witness, secret = (table.text(key) for key in ("path", "witness", "secret"))
    for key in ("witness", "scope", "relation", "key"):
        if key in table and path is None:
            raise BadInput(f"ledger.path: expected the ledger that ledger.{key} belongs to, got no such key")
    relation = None
    if "relation" in table:
        relation = Relation(table.one_of("relation", ("replace-label", "replace-one")))
    if path is not None:
        table.needed("scope", "the ledger's name for these people's data")
    return LedgerPlace(
        path=path if path is None or "://" in path else str(folder / path),
        witness=None if witness is None else str(folder / witness),
        scope=table.text("scope"),
        relation=relation,
        key=table.text("key"),
        secret=None if secret is None else folder / secret,
    )


def keeping(table: Table) -> Keeping:
    steps, minutes = table.whole("every_steps", at_least=1), table.number("every_minutes")
    if minutes is not None:
        expect.positive("checkpoint.every_minutes", minutes)
    if steps is not None and minutes is None:
        return Keeping(steps, None)
    return Keeping(steps, Keeping.every_minutes if minutes is None else float(expect.exact("", minutes)))


def watching(table: Table, folder: Path) -> Watching:
    if isinstance(table.some("simulated").get("simulated"), bool):
        raise BadInput("run.simulated: expected a seed, such as 1, got true or false")
    seed = table.whole("simulated", at_least=0)
    board, mlflow = table.text("tensorboard"), table.text("mlflow")
    return Watching(seed, None if board is None else folder / board, mlflow)


def _short(number: Fraction) -> str:
    """For people, however large it is."""
    return f"{float(number):g}" if number < 10**300 else "a number of more than 300 digits"


def _unit(table: Table) -> Unit:
    kind = UnitKind(table.one_of("unit", tuple(UnitKind), "impression"))
    days = table.whole("window_days", at_least=1)
    if days is None:
        if "window_origin" in table:
            raise BadInput("privacy.window_origin: expected only with window_days, got it alone")
        return Unit(kind, ad_tech=table.text("ad_tech"))
    origin = expect.integer("privacy.window_origin", table.some("window_origin").get("window_origin", 0))
    return Unit(kind, Window.days(days, origin=origin), table.text("ad_tech"))


def _share(table: Table) -> float | Literal["auto"]:
    said = table.some("k").get("k", "auto")
    if said == "auto":
        return "auto"
    if isinstance(said, str):
        raise BadInput(f'privacy.k: expected a number from 0 to 1, or "auto", got {said!r}')
    return float(expect.probability("privacy.k", said, zero=True, one=True))


def _learning(table: Table) -> Learning:
    table.checked_types(TYPES)
    decay, optimizer = _decay(table), _optimizer(table, "adam")
    with said_under(table.path):
        return Learning(**table.some("epochs", "batch", "rate", "penalty"), decay=decay, optimizer=optimizer)


def _decay(table: Table) -> Decay | None:
    return Decay(table.one_of("decay", tuple(Decay))) if "decay" in table else None


def _optimizer(table: Table, usual: str) -> Optimizer | None:
    """By name, with the settings that it knows; None where neither is said, and it is chosen for the data."""
    given = table.some(*OPTIMIZERS)
    if "optimizer" not in table and not given:
        return None
    name = table.one_of("optimizer", tuple(optimizers.OPTIMIZERS), usual)
    known = tuple(each.name for each in fields(optimizers.OPTIMIZERS[name]))
    settings: dict[str, Any] = {}
    for key, value in given.items():
        of_optimizer = key.removeprefix("optimizer_")
        if of_optimizer not in known:
            raise BadInput(f"{table.name(key)}: expected none with optimizer {name}, got {value!r}")
        settings[of_optimizer] = value
    with said_under(table.path):
        return optimizers.optimizer(name, settings)
