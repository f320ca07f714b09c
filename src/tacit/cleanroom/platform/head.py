"""A head: what one noisy statistic taught, added to the logits of one advertiser's rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.platform.features import Directions, FieldCells, fields_of
from tacit.cleanroom.platform.fitting import Phi
from tacit.cleanroom.platform.sending import Examples
from tacit.cleanroom.wire.blocks import Block
from tacit.data.placing import place_whole
from tacit.errors import BadInput
from tacit.records import FAULTS, parse_record

FORMAT = "tacit room statistic head 1"
ARRAYS = ("adapter", "matrix", "centre", "effects")

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class StatisticHead:
    """For rows of `advertiser` alone. `adapter` are the values, with B = 0, that it was made at."""

    base: str  # the digest of the model that it was made for
    advertiser: int
    rank: int
    task: str
    adapter: Floats  # (parameters,)
    directions: Directions
    cells: FieldCells
    cell_weight: float
    effects: NDArray[np.float64]  # (cells + directions,)
    statement: Mapping[str, Any]  # what the room promised for the statistic, as JSON

    def phi(self, model: ConversionModel, name: str, examples: Examples) -> tuple[NDArray[np.float64], Phi]:
        """Pre-trained logits (n,), and what the head reads."""
        logits, features = self.directions.of(model, name, self.task, examples)
        fields = fields_of(examples)
        phi = Phi(self.cells.cells(fields), self.cells.count, self.cell_weight, features)
        return logits.astype(np.float64), phi

    def logits(self, model: ConversionModel, examples: Examples) -> NDArray[np.float64]:
        """Of rows of its advertiser, which may have no adapter in the model; that stays as it is."""
        if model.digest != self.base:
            raise BadInput("expected the model that the head was made for, got one with other weights")
        name = f"statistic head of {self.advertiser}"
        added = model.add_adapter(name, self.advertiser, self.rank, seed=0, tasks=(self.task,))
        try:
            added.set_values(self.adapter)
            before, phi = self.phi(model, name, examples)
        finally:
            model.remove_adapter(name)
        return before + phi.scores(self.effects)

    def save(self, path: Path) -> None:
        """One safetensors file, whole or not at all."""
        told = {
            "base": self.base,
            "advertiser": self.advertiser,
            "rank": self.rank,
            "task": self.task,
            "blocks": [
                [block.name, block.rows, block.cols, block.positions] for block in self.directions.blocks
            ],
            "scale": self.directions.scale,
            "cell_weight": self.cell_weight,
            "fields": len(self.cells.values),
            "statement": dict(self.statement),
        }
        arrays: dict[str, NDArray[Any]] = {
            "adapter": self.adapter,
            "matrix": self.directions.matrix,
            "centre": self.directions.centre,
            "effects": self.effects,
            **{f"values.{field}": values for field, values in enumerate(self.cells.values)},
        }
        data = save(arrays, metadata={"format": FORMAT, "head": json.dumps(told, sort_keys=True)})
        place_whole(path, data)

    @classmethod
    def load(cls, path: Path) -> StatisticHead:
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != FORMAT:
                    raise BadInput(f"{path}: expected a statistic head, got another file")
                told = parse_record(metadata["head"])
                if not 0 <= told["fields"] <= len(file.keys()):  # before so many names are made up
                    raise BadInput(f"{path}: expected as many fields as there are values of, got others")
                names = [*ARRAYS, *(f"values.{field}" for field in range(told["fields"]))]
                arrays = {name: file.get_tensor(name) for name in names}
                blocks = tuple(Block(*line) for line in told["blocks"])
                values = tuple(arrays[f"values.{field}"] for field in range(told["fields"]))
                return cls(
                    told["base"],
                    told["advertiser"],
                    told["rank"],
                    told["task"],
                    arrays["adapter"],
                    Directions(blocks, arrays["matrix"], arrays["centre"], told["scale"]),
                    FieldCells(values),
                    told["cell_weight"],
                    arrays["effects"],
                    told["statement"],
                )
        except (OSError, SafetensorError, *FAULTS) as wrong:
            if isinstance(wrong, BadInput):
                raise
            raise BadInput(f"{path}: expected a whole statistic head, got a torn one") from None
