"""Where a run through a room stands: one safetensors file, replaced as a whole after each step.

Going on from it is therefore no second release. What is in it came from answers alone; it holds no label.
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
from tacit.arrays import Floats32
from tacit.cleanroom.platform.steps import AdapterDescent
from tacit.cleanroom.protocol.answers import AuditReceipt
from tacit.errors import BadInput
from tacit.expect import RECORD_FAULTS
from tacit.files import parse_json, refuse_bad_record, write_atomically

CHECKPOINT_FORMAT = "tacit room checkpoint 1"
CHECKPOINT_ARRAYS = ("values", "mean", "square")


@dataclass(frozen=True, eq=False)
class RunState:
    """Steps that are done, and what they sent, received and were given receipts for.

    `steps_an_epoch` is how the run cuts its rows into batches: terms that are tightened later do not change it.
    `begun`: what it needs was set aside for it in the room, before its first step.
    """

    steps_an_epoch: int
    step: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    examples: int = 0
    receipts: tuple[AuditReceipt, ...] = ()
    begun: bool = False


def save_checkpoint(path: Path, training: str, progressed: RunState, descent: AdapterDescent) -> None:
    """Whole or not at all, and for its owner alone."""
    state = asdict(progressed) | {
        "receipts": [[each.sequence, each.hash, each.signature.hex()] for each in progressed.receipts],
        "training": training,
        "moments": descent.steps,
    }
    arrays = {name: getattr(descent, name) for name in CHECKPOINT_ARRAYS}
    data = save(arrays, metadata={"format": CHECKPOINT_FORMAT, "state": json.dumps(state, sort_keys=True)})
    write_atomically(path, data, mode=0o600)


def restore_checkpoint(path: Path, training: str, descent: AdapterDescent) -> RunState | None:
    """Put the descent where the checkpoint left it; None where there is none."""
    if not path.exists():
        return None
    state, arrays = _read_checkpoint(path)
    with refuse_bad_record(path, "a room checkpoint"):
        if state["training"] != training:
            raise BadInput(
                "expected a checkpoint of this run, plan, model, rows and agreement, got one of another; "
                "train with what it was begun with, or remove it"
            )
        moments = expect.whole("moments", state["moments"], at_least=0)
        receipts = tuple(
            AuditReceipt(sequence, digest, bytes.fromhex(sig)) for sequence, digest, sig in state["receipts"]
        )
        told = {
            each.name: expect.whole(each.name, state[each.name], at_least=0)
            for each in fields(RunState)
            if each.name not in ("receipts", "begun")
        }
        begun = bool(state.get("begun", False))  # kept before runs set anything aside: nothing was
    for name in CHECKPOINT_ARRAYS:
        found, expected = arrays[name], getattr(descent, name)
        if found.shape != expected.shape or found.dtype != np.float32:
            raise BadInput(f"{path}: expected {name} of shape {expected.shape}, got {found.shape}")
    for name in CHECKPOINT_ARRAYS:
        setattr(descent, name, arrays[name].copy())
    descent.steps = moments
    return RunState(**told, receipts=receipts, begun=begun)


def _read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Floats32]]:
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != CHECKPOINT_FORMAT:
                raise BadInput(f"{path}: expected a room checkpoint, got another file")
            return parse_json(metadata["state"]), {name: file.get_tensor(name) for name in CHECKPOINT_ARRAYS}
    except (OSError, SafetensorError, *RECORD_FAULTS):
        raise BadInput(f"{path}: expected a whole checkpoint, got a torn one") from None
