"""What a sweep leaves for people: tables as CSV, and the frontier as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.studies.plotting import Mechanism, Panel, Series, line_figure
from tacit.studies.results import Settings, write
from tacit.studies.sweeping.frontier import Best, Tried, frontier
from tacit.studies.sweeping.grid import Sweep, shown

RUNS, FRONTIER = "sweep-runs", "sweep-frontier"
COLOURS = {
    "label-dp": Mechanism.RR,
    "dp-sgd": Mechanism.DP_SGD,
    "hybrid": Mechanism.HYBRID,
    "statistic": Mechanism.OURS,
}


def leave(
    out: Path,
    sweep: Sweep,
    tried: Sequence[Tried],
    *,
    data: str,
    synthetic: bool,
    command: str,
    minutes: float,
) -> list[Path]:
    """Write both tables and the figure; the files that are there afterwards."""
    units = dict.fromkeys(each.place[0] for each in tried if each.place[0])
    parameters = {"axes": {axis.name: [shown(value) for value in axis.values] for axis in sweep.axes}}
    seeds = tuple(range(1, sweep.seeds + 1))
    about: dict[str, Any] = {
        "data": data,
        "synthetic": synthetic,
        "seeds": seeds,
        "unit": " or ".join(units) or "nobody",
        "relation": "as each method promises" if units else "no privacy",
        "command": command,
        "parameters": parameters,
    }
    write(out, Settings(RUNS, **about), _runs(sweep, tried), minutes=minutes)
    private = [each for each in tried if each.place[0]]
    settings = Settings(FRONTIER, **about)
    subtitle = settings.words if private and private[0].has_interval else f"{settings.words}: no interval"
    draw = (lambda path: _draw(path, tried, subtitle)) if private else None
    write(out, settings, _frontier(frontier(tried)), minutes=minutes, draw=draw)
    endings = ("csv", "json", *(("svg", "png") if private else ()))
    return [out / f"{RUNS}.csv", *(out / f"{FRONTIER}.{ending}" for ending in endings)]


def _runs(sweep: Sweep, tried: Sequence[Tried]) -> dict[str, list[Any]]:
    rows = [
        {
            **{axis.name: _cell(each.point[axis.name]) for axis in sweep.axes},
            "seed": seed,
            **{name: record[name] for name in ("auc_loss", "log_loss", "calibration_ratio", "seconds")},
        }
        for each in tried
        for seed, record in enumerate(each.records, start=1)
    ]
    return {name: [row[name] for row in rows] for name in rows[0]}


def _frontier(best: Sequence[Best]) -> dict[str, list[Any]]:
    rows = []
    for each in best:
        loss = each.tried.figure("auc_loss")
        method, model = each.tried.line
        unit, epsilon = each.tried.place
        rows.append(
            {
                "unit": unit or None,
                "epsilon": epsilon or None,
                "method": method,
                "model": model,
                "settings": each.tried.other_settings or None,
                "among": each.among,
                "auc_loss": loss.value,
                "low": loss.low if each.tried.has_interval else None,
                "high": loss.high if each.tried.has_interval else None,
                "log_loss": each.tried.figure("log_loss").value,
                "calibration_ratio": each.tried.figure("calibration_ratio").value,
            }
        )
    return {name: [row[name] for row in rows] for name in rows[0]}


def _draw(path: Path, tried: Sequence[Tried], subtitle: str) -> object:
    best = [each.tried for each in frontier(tried, by_line=True)]
    several = len({each.line[1] for each in best}) > 1
    epsilons = sorted({each.place[1] for each in best if each.place[0]})
    panels = []
    for unit in dict.fromkeys(each.place[0] for each in best if each.place[0]):
        lines = dict.fromkeys(each.line for each in best if each.place[0] == unit)
        series = [
            _line(line, several, [each for each in best if each.place[0] == unit and each.line == line])
            for line in lines
        ]
        for each in best:
            if not each.place[0]:
                flat = [each.figure("auc_loss").value] * 2
                name = f"non-private, {each.line[1]}" if several else "non-private"
                ends = [epsilons[0], epsilons[-1]]
                series.append(Series(name, ends, flat, mechanism=Mechanism.NON_PRIVATE))
        panels.append(Panel(unit, series))
    return line_figure(
        panels, subtitle=subtitle, x_label="epsilon", y_label="AUC loss", path=path, log_x_ticks=epsilons
    )


def _line(line: tuple[str, str], several: bool, points: Sequence[Tried]) -> Series:
    method, model = line
    losses = [each.figure("auc_loss") for each in points]
    band = all(each.has_interval for each in points)
    return Series(
        f"{method}, {model}" if several else method,
        [each.place[1] for each in points],
        [loss.value for loss in losses],
        [loss.low for loss in losses] if band else None,
        [loss.high for loss in losses] if band else None,
        COLOURS[method],
    )


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, int | float | str) else shown(value)
