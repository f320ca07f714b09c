"""What an example costs the room: decoding and adding up by codec, and clipping before it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import DTypeLike

from tacit.bench.cleanroom_turns import Contestant, Turns, take_turns
from tacit.bench.cleanroom_workload import Scale, Work, make_model
from tacit.bench.deliver import processor
from tacit.bench.measurement import Measurement
from tacit.cleanroom.room.clipping import kept_shares
from tacit.cleanroom.wire.codec import codec_named
from tacit.cleanroom.wire.framing import MOST_MESSAGE_BYTES
from tacit.cleanroom.wire.modes import Noise
from tacit.cleanroom.wire.slabs import decode_slab
from tacit.cleanroom.wire.tokens import TOKEN_BYTES

DENSE_BAR, CLIPPING_BAR = 2.0, 1.3
OURS, FACTORED, WRITTEN_OUT = "int8", ("int8", "fp32"), ("fp32-dense", "int8-dense", "qsgd-8")
CLIP_NORM = 1.0
FEWER = 8  # times fewer examples where they are written out, each thirty times as large


def room_work(scale: Scale) -> list[Measurement]:
    """One adapter's layers that are not applied to sequences; all codecs have the same examples."""
    work = Work.made(make_model(scale.model, scale.rank), scale.timed_rows, "short").only(sequences=False)
    few = work.first(max(scale.timed_rows // FEWER, 1))
    # A slab's sum is added to the total once: dense examples do so least in the largest slabs that may be sent.
    most = max(MOST_MESSAGE_BYTES // (4 * work.layout.parameters + 1024), 1)
    messages = {codec: work.messages(codec) for codec in FACTORED}
    contestants = {
        codec: Contestant(partial(add_up, work, messages[codec], codec), len(work)) for codec in FACTORED
    }
    for codec in WRITTEN_OUT:
        contestants[codec] = Contestant(partial(add_up, few, few.messages(codec, most), codec), len(few))
    for name, dtype, clip_norm in (
        ("int8 clipped", np.float32, CLIP_NORM),
        ("int8 in float64", np.float64, None),
        ("int8 in float64 clipped", np.float64, CLIP_NORM),
    ):
        added = partial(add_up, work, messages[OURS], OURS, dtype=dtype, clip_norm=clip_norm)
        contestants[name] = Contestant(added, len(work))
    return _measured(scale, take_turns(contestants, scale.room_rounds))


def add_up(
    work: Work,
    messages: Sequence[bytes],
    codec: str,
    *,
    dtype: DTypeLike = np.float32,
    clip_norm: float | None = None,
) -> None:
    """As a room does between joining and answering; logits stand for slopes, which costs the same."""
    chosen = codec_named(codec)
    parts = work.layout.split(np.zeros(work.layout.parameters))
    for data in messages:
        slab = decode_slab(data, work.layout, chosen, TOKEN_BYTES)
        weights = slab.logits.astype(np.float64)
        if clip_norm is not None:
            weights *= kept_shares(slab.blocks, clip_norm, Noise.GAUSSIAN)
        for name, each in slab.blocks.items():
            parts[name] += each.weighted_sum(weights, dtype=dtype)


def _measured(scale: Scale, turns: Turns) -> list[Measurement]:
    settings = (
        f"{scale.described}; rank {scale.rank}, all layers but the sequence's; slabs decoded and added up, in "
        f"float32 unless said; {turns.described}; {scale.timed_rows} examples in slabs of 4 MB; written "
        f"out, an eighth of them in the largest slabs that may be sent, which costs least; medians of "
        f"{scale.room_rounds} interleaved turns on {processor()}"
    )

    def ratio(name: str, one: str, other: str, bar: float | None = None, *, least: bool = True) -> Measurement:
        return Measurement(name, turns.ratio(one, other), "x", bar, least, settings)

    return [
        ratio("room_dense_fp32_vs_int8", "fp32-dense", OURS, DENSE_BAR),
        ratio("room_dense_fp32_vs_fp32", "fp32-dense", "fp32", DENSE_BAR),
        ratio("room_dense_int8_vs_int8", "int8-dense", OURS),
        ratio("room_dense_qsgd8_vs_int8", "qsgd-8", OURS, DENSE_BAR),
        ratio("room_clipped_in_float32", "int8 clipped", OURS, CLIPPING_BAR, least=False),
        ratio(
            "room_clipped_in_float64", "int8 in float64 clipped", "int8 in float64", CLIPPING_BAR, least=False
        ),
        ratio("room_clipped_float64_vs_plain_float32", "int8 in float64 clipped", OURS, least=False),
    ]
