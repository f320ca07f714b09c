"""How many examples users have: what decides what a cap costs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tacit.studies.label_dp import setting
from tacit.studies.logs import Ready, StudyLog
from tacit.studies.plotting import Bars, bar_figure
from tacit.studies.records import Record
from tacit.studies.results import Settings, write
from tacit.studies.study import Asked, Outcome, Scale, Study
from tacit.studies.tasks import run_all

if TYPE_CHECKING:
    from tacit.privacy.calibration import Memory

NAME = "label-dp-users"
MOST = 12  # examples; users with more are counted together
KINDS = ("user", "user-advertiser", "user-publisher")


@dataclass(frozen=True)
class UnitSizes:
    """Counts the units that have 1, 2, ... training examples. Keys alone are read."""

    log: StudyLog

    def measure(self, ready: Ready, memory: Memory) -> Record:
        from tacit.privacy.allocation import unit_ids
        from tacit.privacy.units import Unit, UnitKind
        from tacit.train.examples import Examples

        del memory
        train = Examples.of(ready.columns, "train")
        columns = {name: train.key(name) for name in train.keys}
        record: Record = {"examples": len(train)}
        for kind in KINDS:
            if not set(UnitKind(kind).key_columns) <= set(columns):
                continue  # the published log has no publisher
            units = unit_ids(Unit(UnitKind(kind)), columns, public=train.public_keys)
            sizes = np.unique(units, return_counts=True)[1]
            counted = np.bincount(np.minimum(sizes, MOST), minlength=MOST + 1)
            record |= {f"{kind} {count}": int(counted[count]) for count in range(1, MOST + 1)}
            record |= {f"{kind} mean": float(sizes.mean()), f"{kind} largest": int(sizes.max())}
        return record


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    (record,) = run_all([UnitSizes(setting.log(asked, 1))], asked.cache, track=asked.track, label="counting")
    kinds = [kind for kind in KINDS if f"{kind} mean" in record]
    labels = [*(str(count) for count in range(1, MOST)), f"{MOST}+"]
    counts = {kind: [record[f"{kind} {count}"] for count in range(1, MOST + 1)] for kind in kinds}
    settings = Settings(
        NAME, setting.data_words(asked), setting.synthetic(asked), (1,), "unit", "counts of public keys",
        asked.command(NAME), {"most": MOST, "scale": str(asked.scale)},
    )  # fmt: skip

    def draw(path: Path) -> object:
        return bar_figure(
            [Bars(kind, labels, counts[kind]) for kind in kinds],  # all counts, so that the axis skips none
            subtitle=f"Units of the training part by their number of examples; {_data(settings)}",
            x_label="examples",
            y_label="units",
            path=path,
            log_y=True,
        )

    table = {"examples": labels, **{kind.replace("-", "_"): counts[kind] for kind in kinds}}
    write(asked.out, settings, table, minutes=(time.monotonic() - began) / 60, draw=draw)
    rows = []
    for kind in kinds:
        units = sum(counts[kind])
        within = [sum(count * min(size, cap) for size, count in _sizes(counts[kind])) for cap in (1, 2, 4, 8)]
        rows.append(
            (
                kind,
                f"{units:,}",
                f"{record[f'{kind} mean']:.2f}",
                f"{record[f'{kind} largest']}",
                f"{100 * counts[kind][0] / units:.1f}",
                *(f"{100 * rows_kept / record['examples']:.1f}" for rows_kept in within),
            )
        )
    kept = [f"kept at K = {cap}, %" for cap in (1, 2, 4, 8)]
    header = ("unit", "units", "mean", "largest", "with one, %", *kept)
    files = [asked.out / f"{NAME}.{ending}" for ending in ("csv", "svg", "png", "json")]
    return Outcome(header, rows, files, _data(settings))


def _sizes(counts: list[int]) -> list[tuple[int, int]]:
    """Sizes up to the largest cap that is asked for are exact."""
    return list(enumerate(counts, start=1))


def _data(settings: Settings) -> str:
    return f"{'synthetic, ' if settings.synthetic else ''}{settings.data}"


STUDY = Study(
    NAME, "Units by their number of examples", setting.PAPER, "Criteo Attribution, statistics", (),
    {Scale.TOY: 0.1, Scale.SMALL: 0.1, Scale.FULL: 4}, dict.fromkeys(Scale, 1), run,
)  # fmt: skip
