"""Bytes an example: whole messages of a step as they are sent, by layer kind and codec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tacit.bench.cleanroom_workload import LENGTHS, Scale, Work, make_model
from tacit.bench.measurement import Measurement

FACTORED_BAR, DENSE_BAR, QSGD_BAR = 30.0, 40.0, 10.0
BARRED_LENGTHS = "short"  # those of the log that our studies tune on; the others are reported beside
OURS, LOSSLESS, DENSE, QSGD = "int8", "fp32", "fp32-dense", "qsgd-8"
COMPARED = (LOSSLESS, OURS, DENSE, QSGD)
REPORTED = ("bf16", "int8-dense", "qsgd-8-whole", "top-10", "powersgd-1")  # beside them, at the main rank


@dataclass(frozen=True)
class Sizes:
    """Bytes an example by codec: of all layers, and of messages that had one kind of them only."""

    whole: Mapping[str, float]
    sequence: Mapping[str, float]
    other: Mapping[str, float]

    @classmethod
    def of(cls, work: Work, codecs: Iterable[str]) -> Sizes:
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


def sizes(scale: Scale) -> list[Measurement]:
    measured: list[Measurement] = []
    for rank in (scale.rank, *scale.other_ranks):
        model = make_model(scale.model, rank)
        for lengths in LENGTHS:
            codecs = COMPARED + REPORTED if rank == scale.rank else COMPARED
            found = Sizes.of(Work.made(model, scale.sized_rows, lengths), codecs)
            measured += _ratios(scale, rank, lengths, found)
    return measured


def bytes_an_example(work: Work, codec: str) -> float:
    """Of all that a step sends: its request, and slabs with their headers, tokens and logits."""
    return (len(work.request(codec).to_bytes()) + sum(map(len, work.messages(codec)))) / len(work)


def _ratios(scale: Scale, rank: int, lengths: str, found: Sizes) -> list[Measurement]:
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
        ratio("bytes_dense_fp32_vs_int8", found.whole[DENSE], found.whole[OURS], DENSE_BAR),
        ratio("bytes_dense_qsgd8_vs_int8", found.whole[QSGD], found.whole[OURS], QSGD_BAR),
        Measurement(f"bytes_int8{ending}", found.whole[OURS], "bytes an example", settings=settings),
    ]
    if lengths == BARRED_LENGTHS:  # sequences make no difference to these
        plain = ratio(
            "bytes_not_sequence_dense_fp32_vs_fp32", found.other[DENSE], found.other[LOSSLESS], FACTORED_BAR
        )
        measured.insert(0, plain)
    return measured


def _beside_bars(found: Sizes) -> str:
    """What the bars would say of full sequences, whose layers are smallest written out."""
    pairs = ((DENSE, DENSE_BAR), (QSGD, QSGD_BAR))
    each = (
        f"{'above' if found.whole[codec] >= bar * found.whole[OURS] else 'BELOW'} {bar:g}x against {codec}"
        for codec, bar in pairs
    )
    return "not held to a bar; it would be " + " and ".join(each)
