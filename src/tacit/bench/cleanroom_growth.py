"""Bytes and the room's time as a batch doubles, and the room's memory over a stream four times as long."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from tacit.bench.cleanroom_held import held_room
from tacit.bench.cleanroom_workload import Scale, Work, make_model, make_tokens
from tacit.bench.measurement import Measurement
from tacit.bench.training_turns import Contestant, take_turns
from tacit.cleanroom.wire.codec import codec_named
from tacit.cleanroom.wire.slabs import encode_slab
from tacit.entropy import Simulation

CODEC = "int8"
TIMES = 4
MOST_RISE = 1.1
"""Of the peak, from some rows to four times as many: 1 is none."""


def growth(scale: Scale) -> list[Measurement]:
    """A whole step of a room, from the request to the receipt, with its state in memory."""
    model, sent, contestants = make_model(scale.model, scale.rank), {}, {}
    for rows in scale.growing_rows:
        work = Work.made(model, rows, "short")
        held = held_room(work.slab.tokens, np.zeros(rows, np.uint8), smallest_batch=1)
        messages, request = work.messages(CODEC), replace(work.request(CODEC), agreement=held.room.terms.digest)
        sent[rows] = sum(map(len, messages))
        contestants[rows] = Contestant(partial(held.step, request, messages))
    taken = take_turns(contestants, scale.rounds)
    each = ", ".join(
        f"{rows} rows {sent[rows] / 1e6:.2f} MB {1000 * one.processor:.1f} ms ({1000 * one.wall:.1f})"
        for rows, one in taken.items()
    )
    settings = (
        f"{scale.described}; rank {scale.rank}, {CODEC}, all layers; whole steps of a room in this process: "
        f"bytes in, processor milliseconds (wall): {each}"
    )
    by_bytes, by_time = (
        mean(of[many] / of[few] for few, many in pairwise(scale.growing_rows))
        for of in (sent, {rows: one.processor for rows, one in taken.items()})
    )
    return [
        Measurement("growth_bytes_a_doubling", by_bytes, "x", settings=settings),
        Measurement("growth_room_time_a_doubling", by_time, "x", settings=settings),
    ]


def memory(scale: Scale) -> list[Measurement]:
    """The most that a room held at once over one step, beyond what it had before it."""
    work, rows = Work.made(make_model(scale.model, scale.rank), scale.sized_rows, "short"), scale.streamed_rows
    few, many = (peak(work, times * rows) for times in (1, TIMES))
    settings = (
        f"{scale.described}; rank {scale.rank}, {CODEC}; most memory held at once over one step of a room, "
        f"beyond its labels: {rows:,} rows {few / 1e6:.2f} MB, {TIMES * rows:,} rows {many / 1e6:.2f} MB, in "
        f"slabs of {scale.sized_rows} rows, which are encoded in the same process; the sum alone is "
        f"{8 * work.layout.parameters / 1e6:.2f} MB; traced allocations of Python and NumPy"
    )
    return [Measurement(f"room_memory_at_{TIMES}_times_the_rows", many / few, "x", MOST_RISE, False, settings)]


def peak(work: Work, rows: int) -> int:
    """In bytes, over a stream of so many rows."""
    tokens = make_tokens(rows)
    held = held_room(tokens, np.zeros(rows, np.uint8), smallest_batch=1)
    request = replace(work.request(CODEC), agreement=held.room.terms.digest, rows=rows)
    tracemalloc.start()
    try:
        held.step(request, _stream(work, tokens))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _stream(work: Work, tokens: NDArray[np.uint8]) -> Iterator[bytes]:
    """The same derivatives over and over, under one record after another, never two slabs at once."""
    codec, words = codec_named(CODEC), Simulation("stream").words
    for first in range(0, len(tokens), len(work)):
        slab = replace(work.slab, first=first, tokens=tokens[first : first + len(work)])
        yield encode_slab(slab, work.layout, codec, words)
