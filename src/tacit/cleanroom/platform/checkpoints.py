"""Where a run stands: one safetensors file, replaced as a whole after a step.

Why going on is no second release. Everything that a step sends is a function of the run's name, the step's
number and the values here, so the step that was lost is sent again as the very same bytes, and the room answers
it as it did before without counting it again. What is here came from answers alone; it holds no label.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from tacit import expect
from tacit.cleanroom.platform.descending import Descent, Floats
from tacit.cleanroom.wire.answers import Receipt
from tacit.data.placing import place_whole
from tacit.errors import BadInput
from tacit.records import FAULTS, parse_record, taken_apart

FORMAT = "tacit room checkpoint 1"
ARRAYS = ("values", "mean", "square")


@dataclass(frozen=True, eq=False)
class Progressed:
    """Steps that are done, and what they sent, received and were given receipts for.

    `steps_an_epoch` is how the run cuts its rows into batches: terms that are tightened later do not change it.
    `begun`: what it needs was set aside for it in the room, before its first step.
    """

    steps_an_epoch: int
    step: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    examples: int = 0
    receipts: tuple[Receipt, ...] = ()
    begun: bool = False


def keep(path: Path, training: str, progressed: Progressed, descent: Descent) -> None:
    """Whole or not at all, and for its owner alone."""
    state = asdict(progressed) | {
        "receipts": [[each.sequence, each.hash, each.signature.hex()] for each in progressed.receipts],
        "training": training,
        "moments": descent.steps,
    }
    arrays = {name: getattr(descent, name) for name in ARRAYS}
    data = save(arrays, metadata={"format": FORMAT, "state": json.dumps(state, sort_keys=True)})
    place_whole(path, data, mode=0o600)


def restore(path: Path, training: str, descent: Descent) -> Progressed | None:
    """Put the descent where the checkpoint left it; None where there is none."""
    if not path.exists():
        return None
    state, arrays = _read(path)
    with taken_apart(path, "a room checkpoint"):
        if state["training"] != training:
            raise BadInput(
                "expected a checkpoint of this run, plan, model, rows and agreement, got one of another; "
                "train with what it was begun with, or remove it"
            )
        moments = expect.whole("moments", state["moments"], at_least=0)
        receipts = tuple(
            Receipt(sequence, digest, bytes.fromhex(sig)) for sequence, digest, sig in state["receipts"]
        )
        told = {
            each.name: expect.whole(each.name, state[each.name], at_least=0)
            for each in fields(Progressed)
            if each.name not in ("receipts", "begun")
        }
        begun = bool(state.get("begun", False))  # kept before runs set anything aside: nothing was
    for name in ARRAYS:
        found, expected = arrays[name], getattr(descent, name)
        if found.shape != expected.shape or found.dtype != np.float32:
            raise BadInput(f"{path}: expected {name} of shape {expected.shape}, got {found.shape}")
    for name in ARRAYS:
        setattr(descent, name, arrays[name].copy())
    descent.steps = moments
    return Progressed(**told, receipts=receipts, begun=begun)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Floats]]:
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise BadInput(f"{path}: expected a room checkpoint, got another file")
            return parse_record(metadata["state"]), {name: file.get_tensor(name) for name in ARRAYS}
    except (OSError, SafetensorError, *FAULTS):
        raise BadInput(f"{path}: expected a whole checkpoint, got a torn one") from None
