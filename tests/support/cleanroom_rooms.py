"""Rooms, agreements and batches for the tests of the clean room: small, and the same in every run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.cleanroom.protocol.agreement import Agreement
from tacit.cleanroom.protocol.answers import BeginAnswer
from tacit.cleanroom.protocol.codecs import codec_named
from tacit.cleanroom.protocol.derivatives import BlockDerivatives, Factors
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.layout import ParameterBlock, ParameterLayout
from tacit.cleanroom.protocol.losses import Loss
from tacit.cleanroom.protocol.modes import Mode, Signer
from tacit.cleanroom.protocol.requests import (
    BeginRequest,
    LabelsRequest,
    Purpose,
    StatisticRequest,
    StepRequest,
)
from tacit.cleanroom.protocol.signatures import private_key, public_key
from tacit.cleanroom.protocol.slabs import (
    Slab,
    StatisticSlab,
    TokenSlab,
    encode_slab,
    encode_statistic_slab,
    encode_token_slab,
)
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.room.labels import LabelTable
from tacit.cleanroom.room.party import Room
from tacit.cleanroom.room.store import MemoryRoomStore
from tacit.entropy import Entropy, Simulation
from tacit.errors import RoomRefused
from tacit.memory_ledger import MemoryLedger

PLATFORM, ROOM = "ads.example", "shop.example"
PLATFORM_KEY, ROOM_KEY = private_key(bytes([1]) * 32), private_key(bytes([2]) * 32)
SECRET = bytes(range(32))
NOW = 1_000_000
LAYOUT = ParameterLayout(
    (
        ParameterBlock("plain.A", 3, 4),
        ParameterBlock("plain.B", 5, 2),
        ParameterBlock("sequence.A", 2, 3, positions=4),
    )
)


def terms(**changes: Any) -> Terms:
    known = {
        "name": "spring",
        "platform": PLATFORM,
        "room": ROOM,
        "platform_key": public_key(PLATFORM_KEY),
        "room_key": public_key(ROOM_KEY),
        "begins": 0,
        "expires": 2 * NOW,
        "smallest_batch": 4,
        "codecs": ("int8", "bf16", "fp32", "fp32-dense"),
    }
    return Terms(**{**known, **changes})


def noised_terms(**changes: Any) -> Terms:
    return terms(**{"mode": Mode.NOISED, "delta": "1e-6", **changes})


def signed(agreed: Terms) -> Agreement:
    return Agreement.propose(agreed).sign(Signer.PLATFORM, PLATFORM_KEY).sign(Signer.ROOM, ROOM_KEY)


def some_tokens(count: int, seed: str = "tokens") -> NDArray[np.uint8]:
    return np.frombuffer(Simulation(seed).bytes(16 * count), np.uint8).reshape(-1, 16)


def some_table(count: int = 64, seed: str = "labels", tasks: tuple[str, ...] = ("conversion",)) -> LabelTable:
    labels = (Simulation(seed).words(count * len(tasks)) % np.uint64(2)).astype(np.uint8)
    return LabelTable.of(some_tokens(count), labels.reshape(count, len(tasks)), tasks)


def a_room(agreed: Terms | None = None, table: LabelTable | None = None, **parts: Any) -> Room:
    known = {
        "store": MemoryRoomStore(),
        "ledger": MemoryLedger(),
        "secret": SECRET,
        "signing_key": ROOM_KEY,
        "entropy": Entropy(),
        "now": NOW,
    }
    return Room(signed(agreed or terms()), table or some_table(), **{**known, **parts})


def some_derivatives(
    count: int, layout: ParameterLayout = LAYOUT, seed: str = "derivatives", size: float = 1.0
) -> dict[str, BlockDerivatives]:
    source = Simulation(seed)
    made = {}
    for block in layout.blocks:
        counts = np.ones(count, np.int32)
        if block.positions > 1:
            counts = (1 + source.words(count) % np.uint64(block.positions)).astype(np.int32)
        pairs = int(counts.sum())
        left = (size * source.normal((pairs, block.rows))).astype(np.float32)
        made[block.name] = BlockDerivatives.of_factors(
            block, Factors(left, source.normal((pairs, block.cols)).astype(np.float32), counts)
        )
    return made


def some_logits(count: int, seed: str = "logits") -> NDArray[np.float32]:
    return Simulation(seed).normal(count).astype(np.float32)


def step_request(agreed: Terms, rows: int, **changes: Any) -> StepRequest:
    known: dict[str, Any] = {
        "agreement": agreed.digest,
        "run": "run",
        "number": 0,
        "task": agreed.tasks[0],
        "loss": Loss.RAW,
        "codec": "fp32",
        "rows": rows,
        "layout": LAYOUT,
    }
    return StepRequest(**{**known, **changes})


def step_slabs(
    request: StepRequest,
    tokens: NDArray[np.uint8],
    derivatives: dict[str, BlockDerivatives],
    logits: NDArray[np.float32],
    *,
    each: int = 7,
) -> list[bytes]:
    codec, words = codec_named(request.codec), Simulation("rounding").words
    made = []
    for start in range(0, len(tokens), each):
        part = slice(start, start + each)
        blocks = {name: found.rows(start, start + each) for name, found in derivatives.items()}
        made.append(encode_slab(Slab(start, tokens[part], logits[part], blocks), request.layout, codec, words))
    return made


Sent = tuple[StepRequest, list[bytes]]


def honest_step(agreed: Terms, rows: int = 32, *, first: int = 0, **changes: Any) -> Sent:
    """A request over the table's tokens from `first` on, and its slabs."""
    request = step_request(agreed, rows, **changes)
    tokens = some_tokens(first + rows)[first:]
    return request, step_slabs(request, tokens, some_derivatives(rows, request.layout), some_logits(rows))


def a_metric(
    agreed: Terms, tokens: NDArray[np.uint8], cells: NDArray[np.int32], *, count: int = 4, **changes: Any
) -> tuple[StatisticRequest, list[bytes]]:
    """Positives by cell: one cell a row."""
    sizes: dict[str, Any] = {"cells": count, "indices": 1, "cell_weight": 1.0, "features": 0}
    return a_statistic(
        agreed, tokens, cells.reshape(-1, 1), None, **{"purpose": Purpose.METRIC, **sizes, **changes}
    )


def a_statistic(
    agreed: Terms,
    tokens: NDArray[np.uint8],
    cells: NDArray[np.int32],
    features: NDArray[np.float32] | None,
    /,
    *,
    each: int = 9,
    **changes: Any,
) -> tuple[StatisticRequest, list[bytes]]:
    given = np.empty((len(tokens), 0), np.float32) if features is None else features
    known: dict[str, Any] = {
        "agreement": agreed.digest,
        "run": "run",
        "number": 0,
        "task": agreed.tasks[0],
        "purpose": Purpose.STATISTIC,
        "rows": len(tokens),
        "cells": int(cells.max(initial=0)) + 1,
        "indices": cells.shape[1],
        "cell_weight": 0.5,
        "features": given.shape[1],
    }
    request = StatisticRequest(**{**known, **changes})
    made = []
    for start in range(0, len(tokens), each):
        part = slice(start, start + each)
        made.append(encode_statistic_slab(StatisticSlab(start, tokens[part], cells[part], given[part])))
    return request, made


def for_labels(
    agreed: Terms, tokens: NDArray[np.uint8], *, each: int = 9, **changes: Any
) -> tuple[LabelsRequest, list[bytes]]:
    known: dict[str, Any] = {
        "agreement": agreed.digest,
        "run": "run",
        "task": agreed.tasks[0],
        "rows": len(tokens),
    }
    slabs = [
        encode_token_slab(TokenSlab(start, tokens[start : start + each]))
        for start in range(0, len(tokens), each)
    ]
    return LabelsRequest(**{**known, **changes}), slabs


def refused(reason: RoomRefusal) -> Any:
    return pytest.raises(RoomRefused, match=reason.words)


def step(room: Room, **changes: Any) -> Any:
    first, rows = changes.pop("first", 0), changes.pop("rows", 32)
    request, slabs = honest_step(room.terms, rows, first=first, **changes)
    return room.step(request, slabs, peer=PLATFORM, now=NOW)


def begin(
    room: Room,
    run: str,
    *,
    releases: int,
    tokens: NDArray[np.uint8] | None = None,
    peer: str = PLATFORM,
    **changes: Any,
) -> BeginAnswer:
    """A run that sets releases of the table's first 32 records aside, or of these."""
    named = some_tokens(32) if tokens is None else tokens
    _, slabs = for_labels(room.terms, named)
    known: dict[str, Any] = {"training": "00" * 32, "task": room.terms.tasks[0], "rows": len(named)}
    request = BeginRequest(room.terms.digest, run, releases=releases, **{**known, **changes})
    return room.begin(request, slabs, peer=peer, now=NOW)


def some_parts(**given: Any) -> Any:
    known = {"store": MemoryRoomStore(), "ledger": MemoryLedger(), "secret": SECRET, "signing_key": ROOM_KEY}
    return {**known, "entropy": Entropy(), "now": NOW, **given}


def both(agreement: Agreement, changed: Terms) -> Agreement:
    return agreement.amend(changed, Signer.PLATFORM, PLATFORM_KEY).sign(Signer.ROOM, ROOM_KEY)


def state_but_for_the_log(store: MemoryRoomStore) -> Any:
    everything: Any = store.everything()
    return {key: value for key, value in everything.items() if key != "entries"}
