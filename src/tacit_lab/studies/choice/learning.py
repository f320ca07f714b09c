"""What a private choice is worth by the prior that it is planned with, beside the paper's mechanisms: a prior
that is assumed, learnt from reports, counted, or true.

Without files: regret against the true prior's plans under eighteen truths, shares of the greedy gain over
requests served, and what fake reports cost. With `--data`, check-ins of real cities, served in the order of
their logs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies.choice.checkins import CITIES, city_gains, read_city
from tacit_lab.studies.choice.lifts import interval_series
from tacit_lab.studies.choice.markets import OURS, RELATION, UNIT
from tacit_lab.studies.choice.prior_trials import (
    FAKES,
    LEARNT_AT,
    REGRET,
    SERVED,
    PriorTrial,
    Row,
    measure_trial,
)
from tacit_lab.studies.choice.prior_verdicts import (
    CITY,
    EPSILONS,
    OVERALL,
    T29,
    T30,
    T31,
    T32,
    judge,
    shares_of,
)
from tacit_lab.studies.choice.reports import (
    COUNTED,
    DEFAULT,
    EXPONENTIAL,
    FLIP,
    OLD,
    PUBLISHED,
    REPORTS,
    RESPONSE,
    TRUE,
)
from tacit_lab.studies.choice.truths import COUNTED_EPSILON, DISPLAY, EIGHT, MARKETS, SEARCH, TRUTHS
from tacit_lab.studies.plotting import Mechanism, Panel, Series
from tacit_lab.studies.processes import map_in_processes
from tacit_lab.studies.published import has_file
from tacit_lab.studies.report import ONE_SEED, Axes, mean_line, seeds_of, write_outcome
from tacit_lab.studies.runs import mean, words
from tacit_lab.studies.study import Study, StudyInputs, StudyOutcome, StudyRequest, StudyScale

NAME = "choice-learning"
FAKE_EPSILONS = (2, 5)
LOWEST_DRAWN = -0.5
LOOKS = {
    REPORTS: Mechanism.OURS,
    DEFAULT: Mechanism.OURS,
    OLD: Mechanism.OURS,
    TRUE: Mechanism.NON_PRIVATE,
    COUNTED: Mechanism.COUNT,
    RESPONSE: Mechanism.RR,
    PUBLISHED: Mechanism.RR,
    EXPONENTIAL: Mechanism.SNM,
    FLIP: Mechanism.SNM,
}
ARMS = tuple(LOOKS)
SEEDS = {StudyScale.TOY: 1, StudyScale.SMALL: 6, StudyScale.FULL: 10}
MENUS = {StudyScale.TOY: 2, StudyScale.SMALL: 24, StudyScale.FULL: 200}
PEOPLE = {StudyScale.TOY: 1_024, StudyScale.SMALL: 2_048, StudyScale.FULL: 8_192}
REQUESTS = {
    StudyScale.TOY: (100, 300),
    StudyScale.SMALL: (100, 300, 1_000, 3_000, 10_000),
    StudyScale.FULL: (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000),
}
FEWER_TRUTHS = 3  # every third for fakes, which are served once for each farm
MORE_MENUS = 4  # times as many where scores are in money, and a few requests weigh much
TOY_TRUTHS = tuple(TRUTHS)[3::8]
TOY_ROWS = 20_000  # of a city's log


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    if asked.data is not None:
        return _run_cities(asked, began)
    trials, rows = list(_trials(asked)), []
    found = map_in_processes(measure_trial, trials, asked.processes)
    asked.progress(f"{NAME}: trials", 0, len(trials))
    for done, (_, measured) in enumerate(found, start=1):
        rows += measured
        asked.progress(f"{NAME}: trials", done, len(trials))
    table = summarise(rows)
    menus, people = MENUS[asked.scale], PEOPLE[asked.scale]
    return write_outcome(
        NAME,
        asked,
        unit=UNIT,
        relation=RELATION,
        began=began,
        data=f"{menus} menus of each market ({MORE_MENUS * menus} in money), {people:,} people for each",
        parameters={
            "epsilons": list(EPSILONS),
            "truths": len({row["truth"] for row in rows if row.get("truth")}),
            "learnt_after": list(LEARNT_AT),
            "served": list(REQUESTS[asked.scale]),
            "counted_epsilon": COUNTED_EPSILON,
            "not_drawn_below": LOWEST_DRAWN,
        },
        table=table,
        columns=_COLUMNS,
        rows=_shown(table),
        panels=[
            Panel(f"{market}, ε = {epsilon}", _curves(table, market, epsilon))
            for market in (DISPLAY, SEARCH)
            for epsilon in EPSILONS
        ],
        axes=Axes(
            "requests served", f"share of the greedy gain (from {LOWEST_DRAWN:g} on)", REQUESTS[asked.scale]
        ),
    )


def _trials(asked: StudyRequest) -> Iterable[PriorTrial]:
    scale = asked.scale
    truths = TOY_TRUTHS if scale is StudyScale.TOY else tuple(TRUTHS)
    settings = [
        *((REGRET, market, epsilon, LEARNT_AT) for market in MARKETS for epsilon in EPSILONS),
        *((SERVED, market, epsilon, REQUESTS[scale]) for market in (DISPLAY, SEARCH) for epsilon in EPSILONS),
        *((FAKES, EIGHT, epsilon, LEARNT_AT) for epsilon in FAKE_EPSILONS),
    ]
    for part, market, epsilon, served in settings:
        for seed in seeds_of(asked):
            menus = MENUS[scale] * (MORE_MENUS if part == SERVED else 1)
            few = truths[::FEWER_TRUTHS] if part == FAKES else truths
            yield PriorTrial(part, market, epsilon, seed, menus, PEOPLE[scale], few, served)


def summarise(rows: Sequence[Row]) -> list[Row]:
    """The table: cells over seeds, regrets of all cells seed by seed, shares as they are."""
    table: list[Row] = []
    for part, figures in ((REGRET, ("gain_percent", "regret_percent")), (FAKES, ("loss_percent",))):
        cells = _grouped([row for row in rows if row["part"] == part], "setting", "truth", "arm", "epsilon")
        for key, several in cells.items():
            means = {figure: float(np.mean([row[figure] for row in several])) for figure in figures}
            table.append({"part": part, **dict(zip(_CELL, key, strict=True)), **means})
    cells = _grouped([row for row in rows if row["part"] == REGRET], "arm", "seed")
    for (arm, seed), several in cells.items():
        regret, gain = (
            np.array([row[figure] for row in several]) for figure in ("regret_percent", "gain_percent")
        )
        worst = {"worst_regret": float(regret.max()), "worst_gain": float(gain.min())}
        means = {"regret_percent": float(regret.mean()), "gain_percent": float(gain.mean())}
        table.append({"part": OVERALL, "arm": arm, "seed": seed, **means, **worst})
    return table + sorted(
        (row for row in rows if row["part"] == SERVED),
        key=lambda row: (
            row["setting"],
            row["epsilon"],
            ARMS.index(row["arm"]),
            row["requests"] or 0,
            row["seed"],
        ),
    )


_CELL = ("setting", "truth", "arm", "epsilon")


def _grouped(rows: Iterable[Row], *columns: str) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in sorted(rows, key=_place):
        found.setdefault(tuple(row[column] for column in columns), []).append(row)
    return found


def _place(row: Row) -> tuple[Any, ...]:
    """Processes finish in any order, tables have one."""
    arm = ARMS.index(row["arm"]) if row["arm"] in ARMS else len(ARMS)
    truth = list(TRUTHS).index(row["truth"])
    return MARKETS.index(row["setting"]), truth, arm, row["arm"], row["epsilon"], row["seed"]


def _curves(table: Sequence[Row], market: str, epsilon: float) -> list[Series]:
    served = sorted({row["requests"] for row in table if row.get("requests")})
    lines = []
    for arm, look in LOOKS.items():
        if arm == REPORTS:
            figures = [shares_of(table, market, epsilon, arm, requests) for requests in served]
            lines.append(mean_line(arm, served, figures, look))
        else:
            value = float(shares_of(table, market, epsilon, arm, None).mean())
            if value >= LOWEST_DRAWN:
                lines.append(Series(arm, [served[0], served[-1]], [value] * 2, mechanism=look))
    return lines


_COLUMNS = ("figure", "planned with, or mechanism", *(f"epsilon {epsilon}" for epsilon in EPSILONS))


def _shown(table: Sequence[Row]) -> list[tuple[str, ...]]:
    rows = []
    for title, figure, pick in (
        ("mean regret, %", "regret_percent", np.mean),
        ("worst regret, %", "regret_percent", np.max),
        ("worst gain, %", "gain_percent", np.min),
    ):
        for arm in ARMS:
            found = [_cells(table, REGRET, arm, epsilon, figure) for epsilon in EPSILONS]
            rows.append((title, arm, *(f"{pick(each):.2f}" for each in found)))
    for market in (DISPLAY, SEARCH):
        last = max(row["requests"] for row in table if row.get("requests"))
        for arm in ARMS:
            found = [shares_of(table, market, e, arm, last if arm == REPORTS else None) for e in EPSILONS]
            after = f", {last:,} served" if arm == REPORTS else ""
            rows.append((f"share, {market}", arm + after, *(words(mean(each), 3) for each in found)))
    farms = dict.fromkeys(row["arm"] for row in table if row["part"] == FAKES)
    for title, pick in (("mean loss to fakes, %", np.mean), ("worst loss to fakes, %", np.max)):
        for farm in farms:
            found = [_cells(table, FAKES, farm, epsilon, "loss_percent") for epsilon in EPSILONS]
            rows.append((title, farm, *(f"{pick(each):.2f}" if len(each) else "" for each in found)))
    return rows


def _cells(table: Iterable[Mapping[str, Any]], part: str, arm: str, epsilon: float, figure: str) -> Floats:
    labels = {"part": part, "arm": arm, "epsilon": epsilon}
    return np.array([row[figure] for row in table if all(row.get(k) == v for k, v in labels.items())])


def _run_cities(asked: StudyRequest, began: float) -> StudyOutcome:
    """Arms over the requests of each city whose log is there."""
    assert asked.data is not None
    table, rows, panels, used, told = [], [], [], [], []
    for city, (name, _) in CITIES.items():
        if not has_file(asked.data, name):
            continue
        requests, place = read_city(asked.data, city, TOY_ROWS if asked.scale is StudyScale.TOY else None)
        used.append(place)
        told.append(f"{city} ({len(requests.root):,} requests of {requests.people:,} people, {name})")
        found: dict[str, list[MeasuredValue]] = {}
        for at, epsilon in enumerate(EPSILONS):
            asked.progress(f"{NAME}: {city}", at, len(EPSILONS))
            for arm, gain in city_gains(requests, epsilon).items():
                share = requests.share(gain)
                found.setdefault(arm, []).append(share)
                figures = {"share": share.value, "low": share.low, "high": share.high}
                labels = {"part": CITY, "setting": city, "arm": arm, "epsilon": epsilon}
                table.append({**labels, "requests": len(requests.root), **figures})
        arms = sorted(found, key=ARMS.index)
        rows += [(f"share, {city}", arm, *(words(share, 3) for share in found[arm])) for arm in arms]
        panels.append(Panel(city, [interval_series(arm, EPSILONS, found[arm], LOOKS[arm]) for arm in arms]))
    if not used:
        files = " or ".join(name for name, _ in CITIES.values())
        raise BadInput(f"expected a city's log, {files} with .csv or .csv.gz, in {asked.data}, got none")
    return write_outcome(
        NAME,
        asked,
        unit=UNIT,
        relation=RELATION,
        began=began,
        data=" and ".join(told),
        parameters={"epsilons": list(EPSILONS), "counted_epsilon": COUNTED_EPSILON},
        table=table,
        columns=_COLUMNS,
        rows=rows,
        panels=panels,
        axes=Axes("epsilon", "share of the greedy gain", EPSILONS, share_y=True),
        used=used,
        seeds=ONE_SEED,
    )


OF_CITIES = StudyInputs(
    tuple(name for name, _ in CITIES.values()),
    minutes={StudyScale.TOY: 0.5, StudyScale.SMALL: 2.0, StudyScale.FULL: 2.0},
)
STUDY = Study(
    NAME,
    "What a private choice is worth by its prior: assumed, learnt, counted, true",
    OURS,
    "beyond section 4.3",
    (T29, T30, T31, T32),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 6.0, StudyScale.FULL: 240.0},
    SEEDS,
    run,
    judge,
    inputs=OF_CITIES,
)
