"""Saves and loads a model: a folder with its weights, its encoder, and its privacy statement.

    weights.safetensors   the tables and the dense parameters
    model.json            the architecture, sizes, head, part, how it was trained, and the digests of the rest
    encoder.json, ...     the encoder: a model refuses examples of another one
    statement.json        the privacy statement, or that none was promised

A folder or file appears in its place only when it is whole and on the disk.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tacit import expect
from tacit.arrays import Floats32
from tacit.data.encoding.encoder import Encoder
from tacit.data.folders import read_manifest
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.files import file_digest, place_folder, read_json, record_digest, refuse_bad_record
from tacit.schema.columns import Role
from tacit.train.examples import Examples, Sizes
from tacit.train.models.architectures import architecture_settings, make_architecture, sensitive_columns
from tacit.train.models.model import Model, Part, named_weights, predict
from tacit.train.promise_words import NO_PROMISE
from tacit.train.targets import Head

VERSION = 1
MANIFEST, WEIGHTS, STATEMENT = "model.json", "weights.safetensors", "statement.json"


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A trained model as it is saved: with its encoder, its privacy statement, and how it was trained.

    `statement` is what `PrivacyStatement.as_json` gives, or None where nothing was promised.
    `part` is what predicts: a model that was only trained truncated knows nothing of sensitive features.
    `method` and `settings` say how it was trained, in words and values that JSON can hold.
    """

    model: Model
    head: Head
    encoder: Encoder
    statement: Mapping[str, Any] | None
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    part: Part = Part.WHOLE
    synthetic: bool = False

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        sizes = encoded_sizes(self.encoder)
        if sizes != self.model.sizes:
            raise BadInput(f"expected an encoder of {self.model.sizes}, got one of {sizes}")

    @property
    def simulated(self) -> bool:
        """Whether its noise came from a seed: then nothing is promised, whatever the method."""
        return self.settings.get("simulated") is not None

    @property
    def sensitive_columns(self) -> tuple[str, ...]:
        """The sensitive columns that its predictions depend on."""
        return sensitive_columns(self.model.architecture, self.part, self.encoder)

    def predict(self, examples: Examples) -> Floats32:
        """Predictions for examples that the same encoder made."""
        if examples.encoder_digest != self.encoder.digest:
            raise BadInput("expected examples of the model's encoder, got those of another one")
        return predict(self.model, examples, self.part, self.head)


def encoded_sizes(encoder: Encoder) -> Sizes:
    """The sizes of a model that reads what this encoder gives."""
    expect.kind("encoder", encoder, Encoder)
    return Sizes(
        public_fields=len(encoder.fields(Role.PUBLIC)),
        sensitive_fields=len(encoder.fields(Role.SENSITIVE)),
        public_rows=encoder.public.size,
        sensitive_rows=encoder.sensitive.size,
    )


def save(folder: str | Path, saved: SavedModel, overwrite: bool = False) -> None:
    """Write the model into a new folder, or in place of another model."""
    folder = expect.path("folder", folder)
    expect.kind("saved", saved, SavedModel)
    from safetensors.numpy import save_file

    statement = _plain("a statement", _statement_json(saved.statement))
    record = _plain("settings", _as_json(saved))
    with place_folder(Path(folder), MANIFEST, what="a saved model", overwrite=overwrite) as building:
        save_file(named_weights(saved.model), building / WEIGHTS)
        saved.encoder.save(building)
        (building / STATEMENT).write_text(json.dumps(statement, indent=2) + "\n")
        record["files"] = {name: file_digest(building / name) for name in (WEIGHTS, STATEMENT)}
        record["digest"] = record_digest(record)
        (building / MANIFEST).write_text(json.dumps(record, indent=2) + "\n")


def load(folder: str | Path) -> SavedModel:
    """The model as it was saved; anything torn or changed is refused."""
    folder = expect.path("folder", folder)
    place = Path(folder)
    record = read_manifest(place, MANIFEST, what="a saved model", version=VERSION)
    if record.get("digest") != record_digest(record):
        raise BadInput(f"{place / MANIFEST}: expected a record that fits its digest, got one that was changed")
    with refuse_bad_record(place / MANIFEST, "a model"):
        shape = make_architecture(record["architecture"]["name"], record["architecture"]["settings"])
        sizes = Sizes(**record["sizes"])
        head, part = Head(record["head"]), Part(record["part"])
        method, settings, synthetic = str(record["method"]), dict(record["settings"]), bool(record["synthetic"])
        files, encoder_digest = dict(record["files"]), record["encoder_digest"]
    for name in (WEIGHTS, STATEMENT):
        if not (place / name).is_file() or file_digest(place / name) != files.get(name):
            raise BadInput(f"{place / name}: expected the file that was saved, got none or a changed one")
    encoder = Encoder.load(place)
    if encoder.digest != encoder_digest:
        raise BadInput(f"{place}: expected the encoder that the model was saved with, got another one")
    if encoded_sizes(encoder) != sizes:
        raise BadInput(f"{place / MANIFEST}: expected {encoded_sizes(encoder)} as its encoder has, got {sizes}")
    with refuse_bad_record(place / MANIFEST, "a model"):
        model = shape.build(sizes, _nothing)
    _fill(model, place / WEIGHTS)
    promise = read_json(place / STATEMENT)
    with refuse_bad_record(place / STATEMENT, "a statement"):
        statement = None if promise["statement"] is None else dict(promise["statement"])
    return SavedModel(model, head, encoder, statement, method, settings, part, synthetic)


def _as_json(saved: SavedModel) -> dict[str, Any]:
    shape = saved.model.architecture
    return {
        "version": VERSION,
        "architecture": {"name": shape.name, "settings": architecture_settings(shape)},
        "sizes": asdict(saved.model.sizes),
        "head": str(saved.head),
        "part": str(saved.part),
        "method": saved.method,
        "settings": dict(saved.settings),
        "synthetic": saved.synthetic,
        "encoder_digest": saved.encoder.digest,
    }


def _statement_json(statement: Mapping[str, Any] | None) -> dict[str, Any]:
    if statement is None:
        return {"promised": False, "words": NO_PROMISE, "statement": None}
    return {"promised": True, "statement": dict(statement)}


def _plain(what: str, record: dict[str, Any]) -> dict[str, Any]:
    """The record as it will be read again: lists for tuples, texts for keys."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(record, allow_nan=False))
    except (TypeError, ValueError):
        raise BadInput(f"expected {what} that JSON can hold, got another value") from None
    return plain


def _nothing(shape: Any = None, *, scale: float = 1.0) -> Floats32:  # noqa: ARG001 (overwritten at once)
    return np.zeros(shape, np.float32)


def _fill(model: Model, path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        found = load_file(path)
    except SafetensorError:
        raise BadInput(f"{path}: expected weights, got something else") from None
    arrays = named_weights(model)
    if found.keys() != arrays.keys():
        raise BadInput(
            f"{path}: expected {', '.join(sorted(arrays))}, got {', '.join(sorted(found)) or 'none'}"
        )
    for name, array in arrays.items():
        if found[name].shape != array.shape or found[name].dtype != array.dtype:
            raise BadInput(
                f"{path}: expected {name} as {array.dtype} of shape {array.shape}, "
                f"got {found[name].dtype} of shape {found[name].shape}"
            )
        array[...] = found[name]
