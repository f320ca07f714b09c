"""Weights on disk: one safetensors file with a JSON record, put in its place only when it is whole.

Each file names its kind and carries a digest of its tensors and of the rest of its record, so that a torn or
mixed-up one is refused. An adapter names the digest of the base model that it changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from tacit.errors import BadInput
from tacit.records import parse_record
from tacit.train.digests import record_digest
from tacit.train.models.placing import place_file

VERSION = 1
RECORD = "tacit"

Arrays = dict[str, NDArray[np.float32]]


def write_weights(path: Path, what: str, record: Mapping[str, Any], arrays: Arrays) -> None:
    """Replace the file by this one, at once and for good."""
    whole = {**record, "what": what, "version": VERSION, "weights": digest(arrays)}
    try:
        whole["digest"] = record_digest(json.loads(json.dumps(whole, allow_nan=False)))
        text = json.dumps(whole, allow_nan=False)
    except (TypeError, ValueError):
        raise BadInput(f"expected a record of {what} that JSON can hold, got another value") from None
    place_file(path, save(arrays, {RECORD: text}), what=what, overwrite=True)


def read_weights(path: Path, what: str) -> tuple[dict[str, Any], Arrays]:
    """The record and the tensors of a file of this kind; anything torn or changed is refused."""
    try:
        with safe_open(path, framework="numpy") as file:
            record = parse_record((file.metadata() or {}).get(RECORD, "null"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except (OSError, SafetensorError, ValueError):
        raise BadInput(f"{path}: expected {what}, got no such file or a torn one") from None
    if not isinstance(record, dict) or record.get("what") != what:
        raise BadInput(f"{path}: expected {what}, got a file of another kind")
    if record.get("version") != VERSION:
        raise BadInput(f"{path}: expected version {VERSION} of {what}, got {record.get('version')!r}")
    if record.get("digest") != record_digest(record) or record.get("weights") != digest(arrays):
        raise BadInput(f"{path}: expected {what} that fits its digests, got one that was changed")
    return record, arrays


def digest(arrays: Mapping[str, NDArray[Any]]) -> str:
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
