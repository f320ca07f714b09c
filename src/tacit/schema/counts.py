"""Counts of clicks and impressions along a hierarchy of contexts: what gathering fills and estimates read.

Counts are sparse by (node, ad), a level at a time, and exact or noisy. An entry that is not listed is a
zero where counts are exact; where they are noisy it was not released, and nothing is known of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Levels, is_coarser
from tacit.schema.contexts.nodes import ContextNodes


class NodeNames(Protocol):
    """What can say how a node is called; `ContextNodes` can."""

    def name(self, levels: Levels, id: int) -> object: ...


@dataclass(frozen=True, eq=False)
class LevelCounts:
    """The counts at one level, sorted by node and then ad.

    Every count that was released carries independent noise of standard deviation `noise_sd`. Where `shown` is
    given those counts are an ad's clicks and its impressions without one, so `shown`, their sum, carries both;
    where it is None they are the clicks and the node's total.
    """

    levels: Levels
    nodes: int
    ads: int
    total: Floats  # (nodes,) requests (or impressions) at each node
    offsets: Integers  # (nodes + 1,) where each node's entries start
    ad: Integers  # (entries,)
    clicks: Floats  # (entries,) noisy ones may be negative
    shown: Floats | None = None  # (entries,) impressions of the ad; None: each request was one for every ad
    noise_sd: float = 0.0  # 0: exact

    def __post_init__(self) -> None:
        expect.at_least_zero("noise_sd", self.noise_sd)
        entries = len(self.ad)
        for name, size in (
            ("total", self.nodes),
            ("offsets", self.nodes + 1),
            ("clicks", entries),
            ("shown", entries),
        ):
            column = getattr(self, name)
            if column is not None and column.shape != (size,):
                raise BadInput(f"level {self.levels}: expected {name} of shape ({size},), got {column.shape}")
            if column is not None and not np.isfinite(column).all():
                raise BadInput(f"level {self.levels}: expected finite {name}, got others")
        steps = np.diff(self.offsets)
        if self.offsets[0] != 0 or self.offsets[-1] != entries or (steps < 0).any():
            raise BadInput(f"level {self.levels}: expected offsets that rise from 0 to {entries}, got others")
        if entries and not 0 <= self.ad.min() <= self.ad.max() < self.ads:
            raise BadInput(f"level {self.levels}: expected ads from 0 to {self.ads - 1}, got others")
        if (np.diff(self.entry_key) <= 0).any():
            raise BadInput(f"level {self.levels}: expected each node's ads in rising order, got others")
        if not self.noise_sd:
            self._check_exact()

    def _check_exact(self) -> None:
        if (self.total < 0).any() or (self.clicks < 0).any():
            raise BadInput(f"level {self.levels}: expected exact counts >= 0, got a negative one")
        most = self.total[self.entry_node] if self.shown is None else self.shown
        if (self.clicks > most).any():
            raise BadInput(f"level {self.levels}: expected at most one click per impression, got more")

    @cached_property
    def entry_node(self) -> Integers:
        """(entries,) the node of each entry."""
        return np.repeat(np.arange(self.nodes, dtype=np.int64), np.diff(self.offsets))

    @cached_property
    def entry_key(self) -> Integers:
        """(entries,) node * ads + ad, rising."""
        key: Integers = self.entry_node * self.ads + self.ad
        return key

    @property
    def opportunity_variance(self) -> float:
        """The variance of the noise in what clicks are divided by: `shown`, or the total."""
        return self.noise_sd**2 * (1.0 if self.shown is None else 2.0)


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts at several levels, each before those that are coarser, and the parents between them.

    `parent[(levels, coarser)]` (nodes,) has the node above each; a level has as many parents as pairs here.
    """

    levels: tuple[Levels, ...]
    by_level: Mapping[Levels, LevelCounts]
    parent: Mapping[tuple[Levels, Levels], Integers]
    names: NodeNames | None = None

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        expect.several("levels", self.levels)
        expect.kind("by_level", self.by_level, Mapping)
        if not self.levels or set(self.levels) != set(self.by_level):
            raise BadInput(f"expected counts for the levels {self.levels}, got {tuple(self.by_level)}")
        place = {levels: i for i, levels in enumerate(self.levels)}
        for levels, level in self.by_level.items():
            if level.levels != levels:
                raise BadInput(f"level {levels}: expected its own counts, got those of {level.levels}")
        if len({self.by_level[levels].ads for levels in self.levels}) > 1:
            raise BadInput("expected as many ads at every level, got different numbers")
        for (finer, coarser), above in self.parent.items():
            if place.get(finer, 0) >= place.get(coarser, -1):
                raise BadInput(f"expected parents of levels at later ones, got {finer} below {coarser}")
            nodes, most = self.by_level[finer].nodes, self.by_level[coarser].nodes
            if above.shape != (nodes,) or (nodes and not 0 <= above.min() <= above.max() < most):
                raise BadInput(
                    f"level {finer}: expected for each of {nodes} nodes one of {most} parents at {coarser}"
                )
        for levels in self.levels[:-1]:
            if not self.parents(levels):
                raise BadInput(f"level {levels}: expected its parents at a coarser level, got none")

    @property
    def ads(self) -> int:
        return self.by_level[self.levels[0]].ads

    def parents(self, levels: Levels) -> tuple[Levels, ...]:
        return tuple(coarser for coarser in self.levels if (levels, coarser) in self.parent)

    def at(self, levels: Levels) -> LevelCounts:
        if levels not in self.by_level:
            raise BadInput(f"expected a level with counts, one of {self.levels}, got {levels}")
        return self.by_level[levels]

    def name(self, levels: Levels, node: int) -> str:
        """What to call a node in a refusal."""
        return f"{node} at {levels}" if self.names is None else str(self.names.name(levels, node))

    @classmethod
    def of_rows(
        cls,
        nodes: ContextNodes,
        ad: ArrayLike,
        ads: int,
        clicked: ArrayLike | None = None,
        levels: Iterable[Levels] | None = None,
        rows: ArrayLike | None = None,
    ) -> Counts:
        """Exact counts of a log, or of some of its `rows` (a flag each). With `clicked`, a row is an impression
        of its ad; without, a row is a click, and a request in which any ad could have been clicked.

        Where some levels are left out, a level's parents are the next coarser ones that are there.
        """
        expect.kind("nodes", nodes, ContextNodes)
        ads = expect.whole("ads", ads, at_least=1)
        ad_of_row = _column("ads as whole numbers", ad, "iu").astype(np.int64)
        asked = nodes.levels if levels is None else tuple(levels)
        kept = tuple(each for each in nodes.hierarchy.levels() if each in asked)
        if len(kept) != len(asked):
            raise BadInput(f"expected levels of the hierarchy, each once, got {asked}")
        if ad_of_row.shape != (nodes.rows,):
            raise BadInput(f"expected the ads of {nodes.rows} rows, got shape {ad_of_row.shape}")
        if len(ad_of_row) and not 0 <= ad_of_row.min() <= ad_of_row.max() < ads:
            raise BadInput(f"expected ads from 0 to {ads - 1}, got others")
        click = None if clicked is None else _column("clicked as 0 or 1", clicked, "biuf").astype(np.float64)
        if click is not None and (click.shape != ad_of_row.shape or not np.isin(click, (0.0, 1.0)).all()):
            raise BadInput("expected clicked to be 0 or 1 for every row, got others")
        counted = np.ones(nodes.rows, bool) if rows is None else np.asarray(rows)
        if counted.shape != (nodes.rows,) or counted.dtype != np.bool_:
            raise BadInput(f"expected a flag for each of {nodes.rows} rows, got others")
        ad_of_row, click = ad_of_row[counted], None if click is None else click[counted]
        by_level = {
            each: _count(
                each, nodes.of_row(each)[counted].astype(np.int64), nodes.count(each), ad_of_row, ads, click
            )
            for each in kept
        }
        parent = {
            (each, above): nodes.parent(each, above).astype(np.int64)
            for each in kept
            for above in next_coarser(each, kept)
        }
        return cls(kept, by_level, parent, nodes)


def _column(expected: str, values: ArrayLike, kinds: str) -> NDArray[Any]:
    """An array of one of these kinds (NumPy's letters); an empty one has none of its own."""
    try:
        found = np.asarray(values)
    except ValueError:
        raise BadInput(f"expected {expected}, one per row, got lists of different lengths") from None
    if found.dtype.kind not in kinds and found.size:
        got = "text" if found.dtype.kind in "US" else found.dtype
        raise BadInput(f"expected {expected}, got {got}")
    return found


def _count(
    levels: Levels, node: Integers, nodes: int, ad: Integers, ads: int, clicked: Floats | None
) -> LevelCounts:
    key, entry = np.unique(node * ads + ad, return_inverse=True)
    rows = np.bincount(entry, minlength=len(key)).astype(np.float64)
    offsets = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(key // ads, minlength=nodes), out=offsets[1:])
    return LevelCounts(
        levels,
        nodes,
        ads,
        total=np.bincount(node, minlength=nodes).astype(np.float64),
        offsets=offsets,
        ad=key % ads,
        clicks=rows if clicked is None else np.bincount(entry, clicked, minlength=len(key)).astype(np.float64),
        shown=None if clicked is None else rows,
    )


def next_coarser(levels: Levels, kept: Sequence[Levels]) -> tuple[Levels, ...]:
    """Those of the kept levels that are coarser than this one, with none of them between."""
    above = [each for each in kept if each != levels and is_coarser(each, levels)]
    return tuple(
        each for each in above if not any(other != each and is_coarser(each, other) for other in above)
    )
