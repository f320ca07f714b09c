"""Damage to files, from a seed: what disks, editors, other programs and mischief do to a file that is read.

    for broken in mutations(whole, seed=1, count=2000):
        ...

Every count gives the beginning of the same sequence, so that what a long run finds can be repeated shortly.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

ODD = (
    b"-1", b"0", b"1e999", b"-1e-999", b"nan", b"NaN", b"inf", b"null", b"true", b"[]", b"{}", b'""', b'"x"',
    b"[[1]]", b"9" * 25, b"9" * 5000, b"0x7fffffffffffffff", b"2e9", b"1979-05-27", b'"\\u0000"', b"'a\tb'",
    b"1.5", b"[1, [2, [3]]]", b'{"a": 1}', b"9223372036854775808", b'["a", 1]',
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 2**31, 2**63, 10**25, 10**12, float("nan"), float("inf"), "", "x", "\0", "9" * 400,
    [], [[]], [1, "a"], {}, {"a": 1}, [None] * 3, "../../x", "é" * 200, "|O", "|V0",
)  # fmt: skip
INSERTED = (
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3\x28", b"\n", b"\r", b'"', b"'", b"[" * 3000, b"{" * 3000,
    b'{"a":' * 3000, b"(" * 200, b"\t", b",", b"=", b"#", b"\xed\xa0\x80", b"A" * 70_000, b"9" * 5000,
    b"\n\n\n", b"}", b"]", b"PAR1",
)  # fmt: skip
LENGTHS = (2**31 - 1, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 10**12)
_VALUE = re.compile(rb"(?<=[=:\t,])[^=:\n,\t]+")
_NUMBER = re.compile(rb"\d+")


def mutations(whole: bytes, *, seed: int, count: int) -> Iterator[bytes]:
    """So many damaged copies, each by one to three faults. One that happens to be whole is drawn again."""
    draw = random.Random(f"bytes {seed}")
    for _ in range(count):
        broken = whole
        while broken == whole:
            for _ in range(draw.choice((1, 1, 1, 2, 3))):
                broken = draw.choice(FAULTS)(broken, draw)
        yield broken


def edits(record: Any, *, seed: int, count: int) -> Iterator[Any]:
    """So many copies of a JSON record that somebody edited: values changed, keys gone, doubled or renamed."""
    draw = random.Random(f"edits {seed}")
    for _ in range(count):
        copy = json.loads(json.dumps(record))
        for _ in range(draw.choice((1, 1, 2))):
            _edit(copy, draw)
        yield copy


def _edit(record: Any, draw: random.Random) -> None:
    places = list(_places(record))
    if not places:  # all of it went already
        return
    at, key = draw.choice(places)
    way = draw.randrange(5)
    if way == 0:
        del at[key]
    elif way == 1 and isinstance(at, dict):
        at[f"{key}x"] = at.pop(key)
    elif way == 2 and isinstance(at, list):
        at.extend([at[key]] * draw.choice((1, 1000)))
    elif way == 3:
        at[key] = [at[key]]
    else:
        at[key] = deepcopy(draw.choice(ODD_VALUES))  # a second edit may change it


def _places(record: Any) -> Iterator[tuple[Any, Any]]:
    inside = (
        record.items() if isinstance(record, dict) else enumerate(record) if isinstance(record, list) else ()
    )
    for key, value in inside:
        yield record, key
        yield from _places(value)


def _flip(whole: bytes, draw: random.Random) -> bytes:
    if not whole:
        return b"\0"
    at = _place(whole, draw)
    return whole[:at] + bytes([whole[at] ^ (1 << draw.randrange(8))]) + whole[at + 1 :]


def _another_byte(whole: bytes, draw: random.Random) -> bytes:
    if not whole:
        return b"\0"
    at = _place(whole, draw)
    return whole[:at] + bytes([draw.randrange(256)]) + whole[at + 1 :]


def _delete(whole: bytes, draw: random.Random) -> bytes:
    at = _place(whole, draw)
    return whole[:at] + whole[at + draw.choice((1, 2, 10, 100)) :]


def _double(whole: bytes, draw: random.Random) -> bytes:
    at = _place(whole, draw)
    past = at + draw.choice((1, 4, 40, 400))
    return whole[:past] + whole[at:past] * draw.choice((1, 1, 50)) + whole[past:]


def _cut_short(whole: bytes, draw: random.Random) -> bytes:
    return whole[: _place(whole, draw)]


def _insert(whole: bytes, draw: random.Random) -> bytes:
    at = draw.choice((0, _place(whole, draw), len(whole)))
    return whole[:at] + draw.choice(INSERTED) + whole[at:]


def _swap_lines(whole: bytes, draw: random.Random) -> bytes:
    lines = whole.split(b"\n")
    one, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def _double_line(whole: bytes, draw: random.Random) -> bytes:
    lines = whole.split(b"\n")
    lines.insert(draw.randrange(len(lines)), draw.choice(lines))
    return b"\n".join(lines)


def _odd_value(whole: bytes, draw: random.Random) -> bytes:
    return _instead(_VALUE, whole, draw.choice(ODD), draw)


def _huge_number(whole: bytes, draw: random.Random) -> bytes:
    return _instead(_NUMBER, whole, draw.choice((b"9" * 30, b"9" * 5000, b"1" + b"0" * 12, b"-7")), draw)


def _huge_length(whole: bytes, draw: random.Random) -> bytes:
    """Eight or four bytes that a binary header could hold a length in."""
    at, length = _place(whole, draw), draw.choice(LENGTHS)
    spelled = length.to_bytes(8, "little")[: draw.choice((4, 8))]
    return whole[:at] + spelled + whole[at + len(spelled) :]


def _place(whole: bytes, draw: random.Random) -> int:
    """Anywhere, but as often in the first or the last hundred bytes, where headers and footers are."""
    size = max(1, len(whole))
    near = min(size, 100)
    return draw.choice((draw.randrange(size), draw.randrange(near), size - 1 - draw.randrange(near)))


def _instead(found: re.Pattern[bytes], whole: bytes, instead: bytes, draw: random.Random) -> bytes:
    places = list(found.finditer(whole[:100_000]))
    if not places:
        return whole + instead
    place = draw.choice(places)
    return whole[: place.start()] + instead + whole[place.end() :]


Fault = Callable[[bytes, random.Random], bytes]
FAULTS: tuple[Fault, ...] = (
    _flip, _flip, _another_byte, _delete, _double, _cut_short, _insert, _insert, _swap_lines, _double_line,
    _odd_value, _odd_value, _odd_value, _huge_number, _huge_length,
)  # fmt: skip
