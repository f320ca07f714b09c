"""What a step costs: bytes per example, the room's and the platform's time, and growth with rows.

Bytes are those of whole messages as they are sent, by layer kind and codec. The room decodes, adds up and
clips; the platform finds derivatives and encodes them, beside a plain pass forward and back. Growth is that
of bytes and the room's time as a batch doubles, and of its memory over a stream four times as long.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import mean

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from tacit.cleanroom.model.derivatives import adapter_derivatives
from tacit.cleanroom.protocol.codecs import codec_named
from tacit.cleanroom.protocol.encoding import MOST_MESSAGE_BYTES
from tacit.cleanroom.protocol.modes import NoiseLaw
from tacit.cleanroom.protocol.slabs import decode_slab, encode_slab
from tacit.cleanroom.protocol.tokens import TOKEN_BYTES
from tacit.cleanroom.room.mechanism import clip_factors
from tacit.entropy import Simulation
from tacit_lab.bench.cleanroom_workload import (
    ADAPTER,
    LENGTHS,
    TASK,
    CleanroomScale,
    StepWork,
    held_room,
    make_batch,
    make_model,
    make_tokens,
)
from tacit_lab.bench.measurement import (
    Contestant,
    Measurement,
    PairedContestant,
    TurnCosts,
    processor_model,
    take_paired_turns,
    take_turns,
)

FACTORED_BAR, DENSE_BYTES_BAR, QSGD_BAR = 30.0, 40.0, 10.0
BARRED_LENGTHS = "short"  # those of the log that our studies tune on; the others are reported beside
OUR_CODEC, LOSSLESS, DENSE, QSGD = "int8", "fp32", "fp32-dense", "qsgd-8"
COMPARED = (LOSSLESS, OUR_CODEC, DENSE, QSGD)
REPORTED = ("bf16", "int8-dense", "qsgd-8-whole", "top-10", "powersgd-1")  # beside them, at the main rank


@dataclass(frozen=True)
class CodecSizes:
    """Bytes per example by codec: of all layers, and of messages that had one kind of them only."""

    whole: Mapping[str, float]
    sequence: Mapping[str, float]
    other: Mapping[str, float]

    @classmethod
    def of(cls, work: StepWork, codecs: Iterable[str]) -> CodecSizes:
        chosen = tuple(codecs)
        kinds = (work, work.only(sequences=True), work.only(sequences=False))
        return cls(*({codec: bytes_an_example(each, codec) for codec in chosen} for each in kinds))

    @property
    def described(self) -> str:
        each = (
            f"{codec} {self.whole[codec] / 1000:.1f} ({self.sequence[codec] / 1000:.1f}, "
            f"{self.other[codec] / 1000:.1f})"
            for codec in self.whole
        )
        return "kB an example (sequence layers alone, the others alone): " + ", ".join(each)


def sizes(scale: CleanroomScale) -> list[Measurement]:
    measured: list[Measurement] = []
    for rank in (scale.rank, *scale.other_ranks):
        model = make_model(scale.model, rank)
        for lengths in LENGTHS:
            codecs = COMPARED + REPORTED if rank == scale.rank else COMPARED
            found = CodecSizes.of(StepWork.make(model, scale.sized_rows, lengths), codecs)
            measured += _ratios(scale, rank, lengths, found)
    return measured


def bytes_an_example(work: StepWork, codec: str) -> float:
    """Of all that a step sends: its request, and slabs with their headers, tokens and logits."""
    return (len(work.request(codec).to_bytes()) + sum(map(len, work.messages(codec)))) / len(work)


def _ratios(scale: CleanroomScale, rank: int, lengths: str, found: CodecSizes) -> list[Measurement]:
    barred = rank == scale.rank and lengths == BARRED_LENGTHS
    between = LENGTHS[lengths]
    told = (
        f"{between[0]}..{between[1]} actions a row, as in the conversions log"
        if between
        else (f"sequences of full length, {scale.model.positions} actions and the ad")
    )
    settings = (
        f"{scale.described}; adapter of rank {rank} on QKV, interactions and tower; {told}; encoded messages "
        f"of {scale.sized_rows} rows, request, headers, tokens and logits included; {found.described}"
    )
    if rank == scale.rank and lengths != BARRED_LENGTHS:
        settings += "; " + _beside_bars(found)
    ending = f"_{lengths}_rank{rank}"

    def ratio(name: str, many: float, few: float, bar: float) -> Measurement:
        return Measurement(name + ending, many / few, "x", bar if barred else None, settings=settings)

    measured = [
        ratio("bytes_dense_fp32_vs_int8", found.whole[DENSE], found.whole[OUR_CODEC], DENSE_BYTES_BAR),
        ratio("bytes_dense_qsgd8_vs_int8", found.whole[QSGD], found.whole[OUR_CODEC], QSGD_BAR),
        Measurement(f"bytes_int8{ending}", found.whole[OUR_CODEC], "bytes an example", settings=settings),
    ]
    if lengths == BARRED_LENGTHS:  # sequences make no difference to these
        plain = ratio(
            "bytes_not_sequence_dense_fp32_vs_fp32", found.other[DENSE], found.other[LOSSLESS], FACTORED_BAR
        )
        measured.insert(0, plain)
    return measured


def _beside_bars(found: CodecSizes) -> str:
    """What the bars would say of full sequences, whose layers are smallest written out."""
    pairs = ((DENSE, DENSE_BYTES_BAR), (QSGD, QSGD_BAR))
    each = (
        f"{'above' if found.whole[codec] >= bar * found.whole[OUR_CODEC] else 'BELOW'} {bar:g}x against {codec}"
        for codec, bar in pairs
    )
    return "not held to a bar; it would be " + " and ".join(each)


DENSE_TIME_BAR, CLIPPING_BAR = 2.0, 1.3
OURS, FACTORED, WRITTEN_OUT = "int8", ("int8", "fp32"), ("fp32-dense", "int8-dense", "qsgd-8")
CLIP_NORM = 1.0
FEWER = 8  # times fewer examples where they are written out, each thirty times as large


def room_work(scale: CleanroomScale) -> list[Measurement]:
    """One adapter's layers that are not applied to sequences; all codecs have the same examples."""
    work = StepWork.make(make_model(scale.model, scale.rank), scale.timed_rows, "short").only(sequences=False)
    few = work.first(max(scale.timed_rows // FEWER, 1))
    # A slab's sum is added to the total once: dense examples do so least in the largest slabs that may be sent.
    most = max(MOST_MESSAGE_BYTES // (4 * work.layout.parameters + 1024), 1)
    messages = {codec: work.messages(codec) for codec in FACTORED}
    contestants = {
        codec: PairedContestant(partial(add_up, work, messages[codec], codec), len(work)) for codec in FACTORED
    }
    for codec in WRITTEN_OUT:
        contestants[codec] = PairedContestant(partial(add_up, few, few.messages(codec, most), codec), len(few))
    for name, dtype, clip_norm in (
        ("int8 clipped", np.float32, CLIP_NORM),
        ("int8 in float64", np.float64, None),
        ("int8 in float64 clipped", np.float64, CLIP_NORM),
    ):
        added = partial(add_up, work, messages[OURS], OURS, dtype=dtype, clip_norm=clip_norm)
        contestants[name] = PairedContestant(added, len(work))
    return _make_measurements(scale, take_paired_turns(contestants, scale.room_rounds))


def add_up(
    work: StepWork,
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
            weights *= clip_factors(slab.blocks, clip_norm, NoiseLaw.GAUSSIAN)
        for name, each in slab.blocks.items():
            parts[name] += each.weighted_sum(weights, dtype=dtype)


def _make_measurements(scale: CleanroomScale, turns: TurnCosts) -> list[Measurement]:
    settings = (
        f"{scale.described}; rank {scale.rank}, all layers but the sequence's; slabs decoded and added up, in "
        f"float32 unless said; {turns.described}; {scale.timed_rows} examples in slabs of 4 MB; written "
        f"out, an eighth of them in the largest slabs that may be sent, which costs least; medians of "
        f"{scale.room_rounds} interleaved turns on {processor_model()}"
    )

    def ratio(name: str, one: str, other: str, bar: float | None = None, *, least: bool = True) -> Measurement:
        return Measurement(name, turns.ratio(one, other), "x", bar, least, settings)

    return [
        ratio("room_dense_fp32_vs_int8", "fp32-dense", OURS, DENSE_TIME_BAR),
        ratio("room_dense_fp32_vs_fp32", "fp32-dense", "fp32", DENSE_TIME_BAR),
        ratio("room_dense_int8_vs_int8", "int8-dense", OURS),
        ratio("room_dense_qsgd8_vs_int8", "qsgd-8", OURS, DENSE_TIME_BAR),
        ratio("room_clipped_in_float32", "int8 clipped", OURS, CLIPPING_BAR, least=False),
        ratio(
            "room_clipped_in_float64", "int8 in float64 clipped", "int8 in float64", CLIPPING_BAR, least=False
        ),
        ratio("room_clipped_float64_vs_plain_float32", "int8 in float64 clipped", OURS, least=False),
    ]


CODECS = ("int8", "fp32")


def platform_work(scale: CleanroomScale) -> list[Measurement]:
    """Reported: which of the two dominates says where a platform's time goes."""
    model = make_model(scale.model, scale.rank)
    work, batch = (
        StepWork.make(model, scale.timed_rows, "short"),
        make_batch(scale.model, scale.timed_rows, "short"),
    )
    parameters = model.adapter(ADAPTER).parameters

    def plain() -> None:
        torch.autograd.grad(model.logits(batch, TASK).sum(), parameters)

    def encoding_contestant(codec: str) -> PairedContestant:
        return PairedContestant(lambda: work.messages(codec), scale.timed_rows)

    turns = take_paired_turns(
        {
            "forward and back": PairedContestant(plain, scale.timed_rows),
            "derivatives": PairedContestant(
                lambda: adapter_derivatives(model, batch, TASK, ADAPTER), scale.timed_rows
            ),
            **{codec: encoding_contestant(codec) for codec in CODECS},
        },
        scale.rounds,
    )
    settings = (
        f"{scale.described}; rank {scale.rank}, batch {scale.timed_rows}, 4 to 16 actions a row; a plain pass, "
        f"derivatives, and encoding them as int8 or fp32: {turns.described}; medians of {scale.rounds} "
        f"interleaved turns on {processor_model()}"
    )
    found, encoding = (turns.ratio(name, "forward and back") for name in ("derivatives", CODECS[0]))
    return [
        Measurement("platform_derivatives_vs_backward", found, "x", settings=settings),
        Measurement("platform_step_vs_backward", found + encoding, "x", settings=settings),
    ]


CODEC = "int8"
TIMES = 4
MOST_RISE = 1.1
"""Of the peak, from some rows to four times as many: 1 is none."""


def step_growth(scale: CleanroomScale) -> list[Measurement]:
    """A whole step of a room, from the request to the receipt, with its state in memory."""
    model, sent, contestants = make_model(scale.model, scale.rank), {}, {}
    for rows in scale.growing_rows:
        work = StepWork.make(model, rows, "short")
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


def room_memory(scale: CleanroomScale) -> list[Measurement]:
    """The most that a room held at once over one step, beyond what it had before it."""
    work, rows = (
        StepWork.make(make_model(scale.model, scale.rank), scale.sized_rows, "short"),
        scale.streamed_rows,
    )
    few, many = (step_peak(work, times * rows) for times in (1, TIMES))
    settings = (
        f"{scale.described}; rank {scale.rank}, {CODEC}; most memory held at once over one step of a room, "
        f"beyond its labels: {rows:,} rows {few / 1e6:.2f} MB, {TIMES * rows:,} rows {many / 1e6:.2f} MB, in "
        f"slabs of {scale.sized_rows} rows, which are encoded in the same process; the sum alone is "
        f"{8 * work.layout.parameters / 1e6:.2f} MB; traced allocations of Python and NumPy"
    )
    return [Measurement(f"room_memory_at_{TIMES}_times_the_rows", many / few, "x", MOST_RISE, False, settings)]


def step_peak(work: StepWork, rows: int) -> int:
    """In bytes, over a stream of `rows` rows."""
    tokens = make_tokens(rows)
    held = held_room(tokens, np.zeros(rows, np.uint8), smallest_batch=1)
    request = replace(work.request(CODEC), agreement=held.room.terms.digest, rows=rows)
    tracemalloc.start()
    try:
        held.step(request, _stream(work, tokens))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _stream(work: StepWork, tokens: NDArray[np.uint8]) -> Iterator[bytes]:
    """The same derivatives over and over, under one record after another, never two slabs at once."""
    codec, words = codec_named(CODEC), Simulation("stream").words
    for first in range(0, len(tokens), len(work)):
        slab = replace(work.slab, first=first, tokens=tokens[first : first + len(work)])
        yield encode_slab(slab, work.layout, codec, words)
