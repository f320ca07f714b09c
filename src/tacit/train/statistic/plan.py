"""Everything about a release that is public: tables, shares, weights, sensitivity and noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.privacy.budget import shown_up
from tacit.privacy.relations import Relation
from tacit.privacy.releases import GaussianStatistic
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Unit, UnitKind, Window
from tacit.train.statistic.cells import Cells, Reals
from tacit.train.statistic.prior import Prior
from tacit.train.statistic.tables import Tables

DIVISION = 1 + 2.0**-50  # more than what rounding takes from a quotient and a root


@dataclass(frozen=True, eq=False)
class Plan:
    """What will be released, for whom and with how much noise: known, and paid for, before a label is read.

    `release` speaks of the statistic in the scale of the shares: cell c of table t times the root of share t.
    """

    tables: Tables
    cells: Cells
    shares: Reals  # (tables,)
    weights: Reals  # (rows,): of each row, equal within a unit
    unit: Unit
    release: GaussianStatistic
    delta: float
    prior: Prior
    rank: int

    @property
    def noise_by_table(self) -> Reals:
        """The standard deviation of the noise in every cell of each table, in positives."""
        noise: Reals = self.release.noise_stddev / np.sqrt(self.shares) * DIVISION
        return noise

    @property
    def statement(self) -> PrivacyStatement:
        return PrivacyStatement.of(
            [self.release], unit=self.unit, relation=Relation.REPLACE_LABEL, delta=self.delta
        )

    @property
    def words(self) -> str:
        """For people, before anything is released."""
        epsilon = shown_up(self.statement.epsilon)
        pairs = sum(len(fields) == 2 for fields in self.tables.crossed)
        return (
            f"one statistic of {self.cells.count:,} cells in {len(self.shares)} tables, {pairs} of them of "
            f"pairs, over {self.cells.rows:,} rows; label DP for one {self.unit}: ε = {epsilon} at "
            f"δ = {self.delta:g}; sensitivity {self.release.sensitivity:.6g}, noise "
            f"{self.release.noise_stddev:.6g}; a row counts {self.weights.mean():.1%} in the mean"
        )

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {"shares": self.shares, "weights": self.weights}
        arrays |= {f"values-{field}": values for field, values in enumerate(self.tables.values)}
        return arrays | {f"keys-{table}": keys for table, keys in enumerate(self.tables.keys)}

    def as_json(self) -> dict[str, Any]:
        window = self.unit.window
        return {
            "crossed": [list(fields) for fields in self.tables.crossed],
            "fields": len(self.tables.values),
            "unit": str(self.unit.kind),
            "window": None if window is None else [window.seconds, window.origin],
            "ad_tech": self.unit.ad_tech,
            "noise_stddev": self.release.noise_stddev,
            "sensitivity": self.release.sensitivity,
            "delta": self.delta,
            "rank": self.rank,
            "rate": self.prior.rate,
            "value_variance": self.prior.value_variance,
            "pair_variance": self.prior.pair_variance,
        }

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], settings: Mapping[str, Any], ids: NDArray[np.integer]
    ) -> Plan:
        """A plan that was stored, over the same public ids as before."""
        crossed = tuple(tuple(fields) for fields in settings["crossed"])
        tables = Tables(
            tuple(arrays[f"values-{field}"] for field in range(settings["fields"])),
            crossed,
            tuple(arrays[f"keys-{table}"] for table in range(len(crossed))),
        )
        if len(ids) != len(arrays["weights"]):
            raise BadInput(f"expected the {len(arrays['weights'])} rows of the plan, got {len(ids)}")
        window = None if settings["window"] is None else Window(*settings["window"])
        return cls(
            tables,
            tables.rows(ids),
            arrays["shares"],
            arrays["weights"],
            Unit(UnitKind(settings["unit"]), window, settings["ad_tech"]),
            GaussianStatistic(settings["noise_stddev"], settings["sensitivity"], Relation.REPLACE_LABEL),
            settings["delta"],
            Prior(settings["rate"], settings["value_variance"], settings["pair_variance"]),
            settings["rank"],
        )
