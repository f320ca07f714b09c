"""Synthetic worlds that logs are generated from: interface, seeded random streams, and a registry by name.

A world yields the rows as they would be published and, apart from them, the truth behind each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from typing import Protocol

import numpy as np
import pyarrow as pa

from tacit import expect
from tacit.errors import BadInput

ROWS_PER_BATCH = 2**16


@dataclass(frozen=True)
class GeneratedRows:
    """A batch of a generated log. `truth` has the same rows: for studies, never for training."""

    batch: pa.RecordBatch
    truth: pa.RecordBatch


class LogWorld(Protocol):
    """A synthetic world that a log of any size can be drawn from.

    The same world gives the same rows, and a longer log begins with the rows of a shorter one.
    """

    @property
    def name(self) -> str: ...

    def batches(self, rows: int) -> Iterator[GeneratedRows]:
        """Exactly `rows` rows, a batch of about ROWS_PER_BATCH at a time."""
        ...

    def side_tables(self) -> Mapping[str, pa.Table]:
        """Tables that the log's rows point into, by their published name; most logs have none."""
        ...


def first_rows(rows: int, blocks: Iterable[GeneratedRows]) -> Iterator[GeneratedRows]:
    """The first rows of an endless series of blocks.

    A block is always drawn whole, so that its first rows do not depend on how many are wanted.
    """
    return _cut_to_rows(expect.whole("rows", rows, at_least=0), blocks)


def _cut_to_rows(left: int, blocks: Iterable[GeneratedRows]) -> Iterator[GeneratedRows]:
    if not left:
        return
    for block in blocks:
        yield GeneratedRows(block.batch.slice(0, left), block.truth.slice(0, left))
        left -= block.batch.num_rows
        if left <= 0:
            return


def seeded_generator(seed: int, *where: int) -> np.random.Generator:
    """A random stream for each (seed, place): the same place draws the same whatever came before it."""
    # NumPy fills up with zeros, so without the depth (1,) and (1, 0) would be one place.
    entropy = [expect.whole("seed", seed, at_least=0), len(where), *where]
    return np.random.Generator(np.random.PCG64DXSM(entropy))


MAKERS = {  # module and maker; imported when asked for
    "criteo-attribution": ("criteo_attribution", "AttributionWorld"),
    "criteo-display": ("criteo_display", "DisplayWorld"),
    "criteo-search": ("criteo_search", "SearchWorld"),
    "taobao": ("taobao", "TaobaoWorld"),
    "visits": ("visits", "VisitsWorld"),
    "conversions": ("conversions", "ConversionsWorld"),
    "display-small": ("criteo_display", "DisplayWorld.small"),
}
# Taobao's published users per row; one in eight is never shown an ad here.
PEOPLE_PER_ROW = 1.14 * 1_141_729 / 26_557_961
FEWEST_PEOPLE = 1_000
WITH_RARE_SIGNAL = frozenset({"criteo-attribution", "criteo-display", "criteo-search", "display-small"})


def world(name: str, seed: int, *, rows: int | None = None, rare_signal: float | None = None) -> LogWorld:
    """The synthetic world that the log of this name is generated from.

    `rare_signal` says how much of the signal is in rare values, where a world has that parameter. `rows` tells
    how many will be drawn, for two logs whose figures depend on it: attribution fills its 30.9 days with them,
    and Taobao has as many people as make the published 23 rows each. Without it both run on as they are.
    """
    expect.kind("name", name, str)
    if name not in MAKERS:
        raise BadInput(f"expected a log named {', '.join(MAKERS)}, got {name!r}")
    if rare_signal is not None and name not in WITH_RARE_SIGNAL:
        raise BadInput(
            f"expected rare_signal for {', '.join(sorted(WITH_RARE_SIGNAL))} only, got it for {name}"
        )
    module, maker = MAKERS[name]
    dials: dict[str, float] = {} if rare_signal is None else {"rare_signal": rare_signal}
    if rows is not None and name == "criteo-attribution":
        dials["span_rows"] = rows
    if rows is not None and name == "taobao":
        dials["people"] = max(FEWEST_PEOPLE, round(rows * PEOPLE_PER_ROW))
    made: LogWorld = attrgetter(maker)(import_module(f"tacit.data.generators.{module}"))(seed, **dials)
    return made
