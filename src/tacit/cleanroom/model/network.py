"""Conversion model: fields as vectors, a transformer over actions, interactions, towers; and its files.

After Li et al., Privacy Preserving Conversion Modeling in Data Clean Room (RecSys 2024), appendix A. One
network serves all advertisers; those that do not share their labels have adapters, through which only their own
rows pass.

    model = ConversionModel(examples.settings(), seed=1)
    model.add_adapter("shoes", advertiser=8, rank=32, seed=2)
    model.logits(batch, "conversion")                          # (n,)

Weights on disk are one safetensors file with a JSON record, put in its place only when it is whole. Each file
names its kind and carries a digest of its tensors and of the rest of its record, so that a torn or mixed-up one
is refused. An adapter names the digest of the base model that it changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor, nn

from tacit import expect
from tacit.cleanroom.model.adapters import (
    TABLE_PLACES,
    Adapter,
    AdapterGate,
    AdapterRoute,
    GatedLinear,
    Linear,
    ValueRows,
)
from tacit.cleanroom.model.examples import Batch, ConversionExamples, advertiser_key
from tacit.cleanroom.model.layers import FieldVectors, Interaction, Packing, SequenceTransformer, Tower
from tacit.cleanroom.model.settings import ModelSettings
from tacit.cleanroom.protocol.layout import ParameterLayout
from tacit.errors import BadInput
from tacit.files import parse_json, place_file, record_digest

USUAL_RANK = 8  # a third fewer bytes than 32, which gained 1% of AUC more on a real log
WEIGHTS_VERSION = 1
RECORD_KEY = "tacit"

Arrays = dict[str, NDArray[Any]]


def write_weights(path: Path, what: str, record: Mapping[str, Any], arrays: Arrays) -> None:
    """Replace the file by this one, at once and for good."""
    whole = {**record, "what": what, "version": WEIGHTS_VERSION, "weights": weights_digest(arrays)}
    try:
        whole["digest"] = record_digest(json.loads(json.dumps(whole, allow_nan=False)))
        text = json.dumps(whole, allow_nan=False)
    except (TypeError, ValueError):
        raise BadInput(f"expected a record of {what} that JSON can hold, got another value") from None
    place_file(path, save(arrays, {RECORD_KEY: text}), what=what, overwrite=True)


def read_weights(path: Path, what: str) -> tuple[dict[str, Any], Arrays]:
    """The record and the tensors of a file of this kind; anything torn or changed is refused."""
    try:
        with safe_open(path, framework="numpy") as file:
            record = parse_json((file.metadata() or {}).get(RECORD_KEY, "null"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except (OSError, SafetensorError, ValueError):
        raise BadInput(f"{path}: expected {what}, got no such file or a torn one") from None
    if not isinstance(record, dict) or record.get("what") != what:
        raise BadInput(f"{path}: expected {what}, got a file of another kind")
    if record.get("version") != WEIGHTS_VERSION:
        raise BadInput(f"{path}: expected version {WEIGHTS_VERSION} of {what}, got {record.get('version')!r}")
    if record.get("digest") != record_digest(record) or record.get("weights") != weights_digest(arrays):
        raise BadInput(f"{path}: expected {what} that fits its digests, got one that was changed")
    return record, arrays


def weights_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Of names, kinds, shapes and contents."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        found.update(json.dumps([name, str(array.dtype), list(array.shape)]).encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def check_arrays(path: Path, arrays: Arrays, expected: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse tensors of other names, shapes or kinds, and numbers that are none."""
    if arrays.keys() != expected.keys():
        raise BadInput(f"{path}: expected {len(expected)} tensors as the record says, got other names")
    for name, shape in expected.items():
        if arrays[name].shape != shape or arrays[name].dtype != np.float32:
            raise BadInput(
                f"{path}: expected {name} as float32 of shape {shape}, "
                f"got {arrays[name].dtype} of shape {arrays[name].shape}"
            )
        if not np.all(np.isfinite(arrays[name])):
            raise BadInput(f"{path}: expected finite numbers in {name}, got one that is not")


MODEL_FILE, ADAPTER_FILE = "a conversion model", "an adapter"


class ConversionModel(nn.Module):
    """A conversion model of several tasks: embeddings, a transformer over actions, a tower per task.

    `parameters()` and `state_dict()` are the base model's; adapters keep theirs apart.
    """

    def __init__(self, settings: ModelSettings, *, seed: int = 0) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(expect.whole("seed", seed, at_least=0))
        self.settings = settings
        self.fields = FieldVectors(settings, draw)
        self.sequence = SequenceTransformer(settings, draw) if settings.has_sequence else None
        self.mixing = Linear(settings.projected_vectors, settings.vectors, draw) if settings.vectors else None
        self.norm = nn.LayerNorm(settings.mixed_width)
        self.interactions = nn.ModuleList(Interaction(settings, draw) for _ in range(settings.interactions))
        self.towers = nn.ModuleDict({task: Tower(settings, draw) for task in settings.tasks})
        self._adapters: dict[str, Adapter] = {}
        for path, module in self.named_modules():
            if isinstance(module, GatedLinear):
                module.name = path

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The logits (n,) of every task."""
        packing = self.packing(batch)
        gate = self.gate(batch, packing)
        x = self.trunk(batch, packing, gate)
        return {task: tower(x, gate) for task, tower in self.towers.items()}

    def logits(self, batch: Batch, task: str) -> Tensor:
        """The logits (n,) of one task."""
        packing = self.packing(batch)
        gate = self.gate(batch, packing)
        return self.task_logits(batch, task, packing, gate)

    def task_logits(self, batch: Batch, task: str, packing: Packing | None, gate: AdapterGate) -> Tensor:
        logits: Tensor = self.tower(task)(self.trunk(batch, packing, gate), gate)
        return logits

    def tower(self, task: str) -> Tower:
        tower = self.towers[self.known_task(task)]
        assert isinstance(tower, Tower)
        return tower

    def trunk(self, batch: Batch, packing: Packing | None, gate: AdapterGate) -> Tensor:
        """What all towers read: (n, mixed)."""
        vectors: Tensor = self.fields(batch.fields, batch.numbers, gate)  # (n, fields + numbers, dim)
        if self.sequence is not None and packing is not None:
            past = self.sequence(vectors[:, 0], batch.sequences, packing, gate)
            vectors = torch.cat([vectors, past], dim=1)
        if self.mixing is not None:
            vectors = self.mixing(vectors.transpose(1, 2)).transpose(1, 2)  # (n, vectors, dim)
        first: Tensor = self.norm(vectors.flatten(1))
        x = first
        for layer in self.interactions:
            x = layer(x, first, gate)
        return x

    def packing(self, batch: Batch) -> Packing | None:
        if self.sequence is None:
            return None
        return Packing.of(batch.lengths, self.settings.positions)

    def gate(self, batch: Batch, packing: Packing | None) -> AdapterGate:
        """Which rows pass through which adapters."""
        routes = (_route(adapter, batch, packing) for adapter in self._adapters.values())
        return AdapterGate(tuple(route for route in routes if route is not None))

    def known_task(self, task: str) -> str:
        if task not in self.towers:
            raise BadInput(f"expected a task among {', '.join(self.settings.tasks)}, got {task!r}")
        return task

    def gated_layers(self, tasks: Iterable[str]) -> dict[str, GatedLinear]:
        """By path: the layers that all tasks read, then those of the towers of `tasks`."""
        chosen = tuple(tasks)
        others = tuple(f"towers.{task}." for task in self.settings.tasks if task not in chosen)
        return {
            path: module
            for path, module in self.named_modules()
            if isinstance(module, GatedLinear) and not path.startswith(others)
        }

    def adapter(self, name: str) -> Adapter:
        if name not in self._adapters:
            known = ", ".join(self._adapters) or "none"
            raise BadInput(f"expected an adapter among {known}, got {name!r}")
        return self._adapters[name]

    def add_adapter(
        self, name: str, advertiser: int | str, rank: int | None = None, *, seed: int,
        tasks: tuple[str, ...] | None = None, values: ConversionExamples | None = None,
    ) -> Adapter:  # fmt: skip
        """A new adapter, which changes nothing before it learns; for the first task unless `tasks` says so.

        Without `values` it changes layers, by pairs of this rank. With them it changes the embeddings of the
        values that these examples have, and layers too if a rank is said. The advertiser is its number in the
        examples; a text is its name in the log or frame that they are of.
        """
        if isinstance(advertiser, str):
            if not self.settings.encoder:
                raise BadInput(f"adapter {name}: expected advertiser as a number, as examples by hand have it")
            advertiser = advertiser_key(advertiser)
        chosen = tuple(self.known_task(task) for task in tasks or self.settings.tasks[:1])
        if rank is None:
            rank = USUAL_RANK if values is None else 0
        rows = None if values is None else self._value_rows(values)
        self.put_adapter(self._fresh(name, advertiser, rank, chosen, rows, seed=seed))
        return self._adapters[name]

    def add_adapter_of(
        self, name: str, advertiser: int, rank: int, tasks: tuple[str, ...], places: NDArray[np.int64] | None
    ) -> Adapter:
        """A fresh adapter that changes these rows of the fields' table, if any, as a file says."""
        rows = None
        if places is not None:
            if places.dtype != np.int64:
                raise BadInput(f"expected {TABLE_PLACES} as int64, got {places.dtype}")
            rows = ValueRows.fresh(places, self.settings.table_rows, self.settings.dim)
        chosen = tuple(self.known_task(task) for task in tasks)
        self.put_adapter(self._fresh(name, advertiser, rank, chosen, rows, seed=0))
        return self._adapters[name]

    def _fresh(
        self,
        name: str,
        advertiser: int,
        rank: int,
        tasks: tuple[str, ...],
        rows: ValueRows | None,
        *,
        seed: int,
    ) -> Adapter:
        layers, fields = self.gated_layers(tasks), len(self.settings.fields)
        return Adapter.fresh(name, advertiser, rank, tasks, layers, seed=seed, value_rows=rows, fields=fields)

    def _value_rows(self, examples: ConversionExamples) -> ValueRows:
        """Of every value that these examples have in a field."""
        examples.check_fit(self.settings)
        begins = self.fields.begins.numpy()
        touched = [
            np.unique(column.astype(np.int64)) + at
            for column, at in zip(examples.fields.T, begins, strict=True)
        ]
        return ValueRows.fresh(np.unique(np.concatenate(touched)), self.settings.table_rows, self.settings.dim)

    def put_adapter(self, adapter: Adapter) -> None:
        if not adapter.name:
            raise BadInput("expected a name for the adapter, got none")
        if adapter.name in self._adapters:
            raise BadInput(f"expected a new name for the adapter, got {adapter.name!r}, which the model has")
        for other in self._adapters.values():
            if other.advertiser == adapter.advertiser:
                raise BadInput(
                    f"adapter {adapter.name}: expected an advertiser without one, got that of {other.name!r}"
                )
        self._adapters[adapter.name] = adapter

    def remove_adapter(self, name: str) -> Adapter:
        return self._adapters.pop(self.adapter(name).name)

    @property
    def digest(self) -> str:
        """What the base model computes, in 64 hex digits: an adapter fits one base only."""
        spelled = json.dumps(self.settings.as_json(), sort_keys=True) + weights_digest(_arrays(self))
        return hashlib.sha256(spelled.encode()).hexdigest()

    def save(self, path: str | Path) -> None:
        """The base model, without adapters."""
        write_weights(Path(path), MODEL_FILE, {"settings": self.settings.as_json()}, _arrays(self))

    @classmethod
    def load(cls, path: str | Path) -> ConversionModel:
        place = Path(path)
        record, arrays = read_weights(place, MODEL_FILE)
        try:
            settings = ModelSettings.from_json(record.get("settings", {}))
        except (BadInput, TypeError) as wrong:
            raise BadInput(f"{place}: {wrong}") from None
        model = cls(settings)
        check_arrays(place, arrays, {name: tuple(each.shape) for name, each in model.state_dict().items()})
        model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
        return model

    def save_adapter(self, name: str, path: str | Path, *, statement: Mapping[str, Any] | None = None) -> None:
        """The adapter, the digest of its base, and what was promised to those whose labels it learned from."""
        adapter = self.adapter(name)
        arrays: dict[str, NDArray[Any]] = dict(adapter.arrays)
        if adapter.value_rows is not None:
            arrays[TABLE_PLACES] = adapter.value_rows.places
        write_weights(Path(path), ADAPTER_FILE, adapter.record(self.digest, statement), arrays)

    def load_adapter(self, path: str | Path) -> Adapter:
        """The adapter of a file, added to the model that it was made for; another model refuses it."""
        place = Path(path)
        record, arrays = read_weights(place, ADAPTER_FILE)
        if record.get("base") != self.digest:
            raise BadInput(f"{place}: expected an adapter of this model, got one of another")
        try:
            name, advertiser, rank = str(record["name"]), record["advertiser"], record["rank"]
            places = arrays.pop(TABLE_PLACES, None)
            adapter = self.add_adapter_of(name, advertiser, rank, tuple(record["tasks"]), places)
        except (KeyError, TypeError, BadInput) as wrong:
            raise BadInput(f"{place}: expected a whole record, got a fault at {wrong}") from None
        try:
            check_arrays(place, arrays, {name: each.shape for name, each in adapter.arrays.items()})
            adapter.set_values(adapter.layout.join(arrays))
        except BadInput:
            self.remove_adapter(name)
            raise
        return adapter

    def adapter_layout(self, name: str) -> ParameterLayout:
        return self.adapter(name).layout

    def adapter_values(self, name: str) -> NDArray[np.float32]:
        return self.adapter(name).values

    def set_adapter_values(self, name: str, flat: NDArray[np.float32]) -> None:
        self.adapter(name).set_values(flat)


def _arrays(model: nn.Module) -> dict[str, NDArray[np.float32]]:
    return {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}


def _route(adapter: Adapter, batch: Batch, packing: Packing | None) -> AdapterRoute | None:
    here = batch.advertiser == adapter.advertiser
    rows = here.nonzero().squeeze(1)
    if not len(rows):
        return None
    tokens = None if packing is None else here[packing.rows].nonzero().squeeze(1)
    return AdapterRoute(adapter.pairs, adapter.value_rows, rows, tokens)
