"""Writes consent strings from their public specifications, bit by bit as text: nothing of what reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def number(value: int, size: int) -> str:
    return format(value, f"0{size}b")


def characters(bits: str) -> str:
    bits += "0" * (-len(bits) % 6)
    return "".join(ALPHABET[int(bits[at : at + 6], 2)] for at in range(0, len(bits), 6))


def bit_field(ids: Iterable[int], size: int) -> str:
    chosen = set(ids)
    return "".join("1" if place in chosen else "0" for place in range(1, size + 1))


def vendor_bits(ids: Sequence[int], *, ranges: bool = False) -> str:
    most = max(ids, default=0)
    if not ranges:
        return number(most, 16) + "0" + bit_field(ids, most)
    return number(most, 16) + "1" + range_bits(ids)


def range_bits(ids: Sequence[int]) -> str:
    """Runs of ids: the count of entries, then each as one id or as first and last."""
    runs: list[list[int]] = []
    for each in sorted(ids):
        if runs and runs[-1][1] == each - 1:
            runs[-1][1] = each
        else:
            runs.append([each, each])
    entries = (
        "0" + number(first, 16) if first == last else "1" + number(first, 16) + number(last, 16)
        for first, last in runs
    )
    return number(len(runs), 12) + "".join(entries)


def tc_string(
    *,
    purposes: Iterable[int] = range(1, 11),
    interests: Iterable[int] = (),
    vendors: Sequence[int] = (755,),
    vendor_interests: Sequence[int] = (),
    restrictions: Sequence[tuple[int, int, Sequence[int]]] = (),
    disclosed: Sequence[int] | None = (755,),
    purpose_one_treatment: bool = False,
    version: int = 2,
    ranges: bool = False,
    created: int = 17_000_000_000,
    updated: int = 17_000_000_500,
) -> str:
    core = number(version, 6) + number(created, 36) + number(updated, 36)
    core += number(10, 12) + number(3, 12) + number(1, 6) + number(4, 6) + number(13, 6)  # CMP, screen, "EN"
    core += number(180, 12) + number(5, 6) + "1" + "0" + number(0, 12)
    core += bit_field(purposes, 24) + bit_field(interests, 24)
    core += ("1" if purpose_one_treatment else "0") + number(3, 6) + number(4, 6)  # "DE"
    core += vendor_bits(vendors, ranges=ranges) + vendor_bits(vendor_interests, ranges=ranges)
    core += number(len(restrictions), 12)
    for purpose, kind, ids in restrictions:
        core += number(purpose, 6) + number(kind, 2) + range_bits(ids)
    parts = [characters(core)]
    if disclosed is not None:
        parts.append(characters(number(1, 3) + vendor_bits(disclosed, ranges=ranges)))
    return ".".join(parts)


def fibonacci(value: int) -> str:
    numbers = [1, 2]
    while numbers[-1] <= value:
        numbers.append(numbers[-1] + numbers[-2])
    places = ["0"] * len(numbers)
    for place in range(len(numbers) - 1, -1, -1):
        if numbers[place] <= value:
            value -= numbers[place]
            places[place] = "1"
    return "".join(places).rstrip("0") + "1"


def gpp_string(sections: dict[int, str]) -> str:
    ids = sorted(sections)
    bits = number(3, 6) + number(1, 6) + number(len(ids), 12)
    for before, each in zip([0, *ids], ids, strict=False):
        bits += "0" + fibonacci(each - before)
    return "~".join([characters(bits), *(sections[each] for each in ids)])


def us_national(
    *,
    version: int = 1,
    notices: tuple[int, int, int, int] = (1, 1, 1, 1),
    opt_outs: tuple[int, int, int] = (2, 2, 2),
    children: Sequence[int] = (),
    personal_data: int = 0,
    mspa: tuple[int, int, int] = (2, 0, 0),
    gpc: bool | None = None,
) -> str:
    sensitive, ages = {1: (12, 2), 2: (16, 3)}.get(version, (12, 2))
    fields = [*notices, 0, 0, *opt_outs, *[0] * sensitive, *(list(children) + [0] * ages)[:ages]]
    bits = number(version, 6) + "".join(number(each, 2) for each in [*fields, personal_data, *mspa])
    signal = "" if gpc is None else "." + characters(number(1, 2) + ("1" if gpc else "0"))
    return characters(bits) + signal
