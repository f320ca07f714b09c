"""Requests and answers: one spelling each, and whatever else comes is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.cleanroom.protocol import encoding
from tacit.cleanroom.protocol.answers import (
    CHUNK_BYTES,
    AuditReceipt,
    BeginAnswer,
    LabelsAnswer,
    RemainingBudget,
    RoomDescription,
    StatisticAnswer,
    StepAnswer,
)
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.layout import ParameterBlock, ParameterLayout
from tacit.cleanroom.protocol.losses import Loss
from tacit.cleanroom.protocol.requests import (
    BeginRequest,
    LabelsRequest,
    Purpose,
    StatisticRequest,
    StepRequest,
)
from tacit.cleanroom.protocol.signatures import new_key, public_key
from tacit.cleanroom.protocol.terms import Terms
from tacit.entropy import Simulation
from tacit.errors import BadInput, RoomRefused

DIGEST = "0123456789abcdef" * 4
LAYOUT = ParameterLayout((ParameterBlock("a", 300, 1000), ParameterBlock("b", 5, 2, positions=3)))
STEP = StepRequest(DIGEST, "run 1", 7, "conversion", Loss.FORWARD, "int8", 512, LAYOUT)
STATISTIC = StatisticRequest(DIGEST, "run 1", 0, "cart", Purpose.STATISTIC, 512, 40, 3, 0.5, 64)
METRIC = StatisticRequest(DIGEST, "run 1", 1, "cart", Purpose.METRIC, 512, 20, 1, 1.0, 0)
LABELS = LabelsRequest(DIGEST, "run 1", "conversion", 300)
BEGIN = BeginRequest(DIGEST, "run 1", DIGEST[::-1], 3, "conversion", 300)
REQUESTS = [STEP, STATISTIC, METRIC, LABELS, BEGIN]
READERS: list[Callable[[bytes], Any]] = [
    StepRequest.from_bytes, StatisticRequest.from_bytes, LabelsRequest.from_bytes, BeginRequest.from_bytes,
    RoomDescription.from_bytes, BeginAnswer.from_bytes,
]  # fmt: skip
RECEIPT = AuditReceipt(4, DIGEST, bytes(range(64)))


def keys() -> tuple[str, str]:
    entropy = Simulation("keys")
    return public_key(new_key(entropy)), public_key(new_key(entropy))


def description() -> RoomDescription:
    platform_key, room_key = keys()
    terms = Terms("spring", "platform", "shop", platform_key, room_key, begins=0, expires=10**9)
    left = RemainingBudget(Fraction(5, 2), Fraction(0), Fraction(1, 2), Fraction(0), 1)
    return RoomDescription(terms, left, RECEIPT, "0.1.0")


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.KIND)
def test_requests_come_back_with_their_digest(request_: Any) -> None:
    data = request_.to_bytes()
    again = type(request_).from_bytes(memoryview(data))
    assert again == request_
    assert again.digest == request_.digest
    assert len(request_.digest) == 64
    assert data == json.dumps(json.loads(data), sort_keys=True, separators=(",", ":")).encode()


def test_every_part_of_a_request_is_in_its_digest() -> None:
    others = [
        replace(STEP, agreement="f" * 64), replace(STEP, run="run 2"), replace(STEP, number=8),
        replace(STEP, task="cart"), replace(STEP, loss=Loss.RAW), replace(STEP, codec="fp32"),
        replace(STEP, rows=513), replace(STEP, layout=ParameterLayout(LAYOUT.blocks[:1])), STATISTIC, METRIC,
        LABELS,
        replace(STATISTIC, cells=41), replace(STATISTIC, indices=2), replace(STATISTIC, cell_weight=0.25),
        replace(STATISTIC, features=65), replace(LABELS, rows=301), BEGIN, replace(BEGIN, releases=4),
        replace(BEGIN, training=DIGEST),
    ]  # fmt: skip
    assert len({request.digest for request in [STEP, *others]}) == len(others) + 1


def test_a_digest_never_changes() -> None:
    # A room remembers digests: a new spelling would make every request a new one.
    assert LABELS.to_bytes() == (
        b'{"agreement":"' + DIGEST.encode() + b'","kind":"labels","rows":300,"run":"run 1","task":"conversion"}'
    )
    assert b'"layout":[["a",300,1000,1],["b",5,2,3]],"loss":"forward","number":7' in STEP.to_bytes()


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.KIND)
def test_each_reader_takes_its_own_kind_alone(request_: Any) -> None:
    for read in READERS:
        if read == type(request_).from_bytes:
            continue
        with pytest.raises(RoomRefused):
            read(request_.to_bytes())


STRANGE = [
    ("run", ""), ("run", "a" * 129), ("run", "tab\there"), ("run", 3), ("run", " a"), ("run", None),
    ("agreement", "0" * 63), ("agreement", "G" * 64), ("agreement", "A" * 64), ("task", []),
    ("number", -1), ("number", 1.0), ("number", True), ("number", 2**53 + 1), ("number", "1"),
    ("rows", 0), ("rows", 2**31 + 1), ("loss", "hinge"), ("loss", None), ("loss", ["raw"]), ("codec", ""),
    ("layout", []), ("layout", [["a", 0, 1, 1]]), ("layout", {"a": 1}), ("kind", "labels"), ("kind", None),
    ("purpose", "other"), ("purpose", None), ("cells", -1), ("cells", 2**24 + 1), ("indices", 41),
    ("indices", 2.0), ("features", 2**17), ("cell_weight", 1), ("cell_weight", 1.5), ("cell_weight", -0.5),
    ("cell_weight", "1"), ("cell_weight", 0.0), ("cell_weight", 1e-310),
    ("training", "0" * 63), ("training", 1), ("releases", 0), ("releases", 1.0), ("releases", None),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), STRANGE)
def test_strange_values_are_refused(key: str, value: Any) -> None:
    for request in (STEP, STATISTIC, BEGIN):
        told = json.loads(request.to_bytes())
        if key in told:
            with pytest.raises(RoomRefused) as refused:
                type(request).from_bytes(encoding.canonical_json({**told, key: value}))
            assert refused.value.reason is RoomRefusal.MALFORMED


def test_strange_spellings_are_refused() -> None:
    good = LABELS.to_bytes()
    told = json.loads(good)
    strange = [
        b"", b"{}", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"a":' * 50_000, b"1" * 10_000, b"1e999", b"NaN",
        good + b" ", good + b"\n", good[:-1], good.replace(b",", b", ", 1),
        good.replace(b"run 1", b"run\\u00201"),
        good.replace(b'"rows":300', b'"rows":300,"rows":300'), good.replace(b'"rows":300', b'"rows":3e2'),
        good.replace(b'"rows":300', b'"rows":NaN'), good.replace(b'"rows":300', b'"rows":-Infinity'),
        good.replace(b'"rows":300', b'"rows":' + b"9" * 5000), good.replace(b"run 1", "rün".encode()),
        json.dumps(dict(reversed(told.items())), separators=(",", ":")).encode(),
        encoding.canonical_json({**told, "more": 1}),
        encoding.canonical_json({k: v for k, v in told.items() if k != "run"}),
    ]  # fmt: skip
    for data in strange:
        with pytest.raises(RoomRefused) as refused:
            LabelsRequest.from_bytes(data)
        assert refused.value.reason is RoomRefusal.MALFORMED
        with pytest.raises(RoomRefused):
            RoomDescription.from_bytes(data)
    with pytest.raises(RoomRefused) as refused:
        LabelsRequest.from_bytes(b" " * (2**20 + 1))
    assert refused.value.reason is RoomRefusal.OVERSIZED


@settings(max_examples=150)
@given(st.data())
def test_spoiled_and_random_bytes_are_refused_or_read(data: st.DataObject) -> None:
    good = data.draw(st.sampled_from([request.to_bytes() for request in REQUESTS] + [description().to_bytes()]))
    spoiled = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        spoiled[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    for hostile in (
        bytes(spoiled),
        data.draw(st.binary(max_size=100)),
        good[: data.draw(st.integers(0, len(good)))],
    ):
        for read in READERS:
            try:
                found = read(hostile)
            except RoomRefused:
                continue
            assert found.to_bytes() == hostile


def test_requests_that_cannot_be_meant_are_not_made() -> None:
    for wrong in (
        lambda: replace(STEP, rows=0), lambda: replace(STEP, run=""), lambda: replace(STEP, agreement="x"),
        lambda: replace(STATISTIC, cells=0, indices=0, features=0), lambda: replace(STATISTIC, indices=41),
        lambda: replace(METRIC, features=1), lambda: replace(METRIC, cell_weight=0.5),
        lambda: replace(STATISTIC, cell_weight=float("nan")), lambda: replace(METRIC, indices=2),
        lambda: replace(STEP, loss=cast(Loss, "raw")),
        # Statistics that no label has a part in.
        lambda: replace(STATISTIC, indices=0, features=0), lambda: replace(STATISTIC, cell_weight=0.0),
        lambda: replace(STATISTIC, cell_weight=1e-310), lambda: replace(STATISTIC, cell_weight=2.0**-21),
    ):  # fmt: skip
        with pytest.raises(BadInput):
            wrong()


def answers() -> list[tuple[Any, Any]]:
    numbers = np.random.default_rng(1)
    total = numbers.normal(size=LAYOUT.parameters).astype(np.float32)
    labels = numbers.integers(0, 2, 300).astype(np.uint8)
    return [
        (StepAnswer(total, 512, 0.0, RECEIPT), STEP),
        (StatisticAnswer(numbers.normal(size=104), 1.5, RECEIPT), STATISTIC),
        (StatisticAnswer(np.arange(20.0), 0.0, RECEIPT), METRIC),
        (LabelsAnswer(labels, RECEIPT), LABELS),
    ]


@pytest.mark.parametrize(("answer", "request_"), answers(), ids=lambda value: type(value).__name__)
def test_answers_come_back_in_chunks(answer: Any, request_: Any) -> None:
    chunks = list(answer.to_chunks())
    assert max(map(len, chunks)) <= CHUNK_BYTES
    again = type(answer).from_chunks(iter(chunks), request_)
    for name in answer.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(again, name), getattr(answer, name))
    assert [bytes(chunk) for chunk in again.to_chunks()] == chunks


@pytest.mark.parametrize(("answer", "request_"), answers(), ids=lambda value: type(value).__name__)
def test_strange_answers_are_refused(answer: Any, request_: Any) -> None:
    head, *rest = answer.to_chunks()
    values, told = b"".join(rest), json.loads(head)
    read = type(answer).from_chunks

    def refuses(chunks: Iterable[bytes], reason: RoomRefusal) -> None:
        with pytest.raises(RoomRefused) as refused:
            read(chunks, request_)
        assert refused.value.reason is reason

    refuses([], RoomRefusal.MALFORMED)
    refuses([head], RoomRefusal.WRONG_SHAPE)
    refuses([head, values[:-1]], RoomRefusal.WRONG_SHAPE)
    refuses([head, values, b"\x00"], RoomRefusal.WRONG_SHAPE)
    refuses([head + b" ", values], RoomRefusal.MALFORMED)
    refuses([b" " * 5000, values], RoomRefusal.OVERSIZED)

    def spoil(**what: Any) -> bytes:
        return encoding.canonical_json({**told, **what})

    refuses([spoil(kind="other"), values], RoomRefusal.MALFORMED)
    refuses([spoil(more=1), values], RoomRefusal.MALFORMED)
    for receipt in (None, {}, {**told["receipt"], "sequence": -1}, {**told["receipt"], "hash": "x"},
                    {**told["receipt"], "signature": "0" * 127}, {**told["receipt"], "signature": "z" * 128},
                    {**told["receipt"], "signature": "AB" * 64}):  # fmt: skip
        refuses([spoil(receipt=receipt), values], RoomRefusal.MALFORMED)
    if "noise_stddev" in told:
        for noise in (-1.0, "1", None, True):
            refuses([spoil(noise_stddev=noise), values], RoomRefusal.MALFORMED)
        nan = np.full(1, np.nan, "<f4" if isinstance(answer, StepAnswer) else "<f8").tobytes()
        refuses([head, nan + values[len(nan) :]], RoomRefusal.NOT_FINITE)
    else:
        refuses([head, b"\x02" + values[1:]], RoomRefusal.MALFORMED)  # a label that is neither 0 nor 1
    if "rows" in told:
        refuses([spoil(rows=told["rows"] + 1), values], RoomRefusal.WRONG_SHAPE)

    def endless() -> Iterable[bytes]:
        yield head
        while True:
            yield bytes(CHUNK_BYTES)

    refuses(endless(), RoomRefusal.WRONG_SHAPE)


def test_what_a_run_has_set_aside_comes_back() -> None:
    begun = BeginAnswer(3, RECEIPT)
    assert BeginAnswer.from_bytes(begun.to_bytes()) == begun
    told = json.loads(begun.to_bytes())
    for key, value in (("releases", 0), ("releases", "3"), ("kind", "step"), ("receipt", None), ("more", 1)):
        with pytest.raises(RoomRefused):
            BeginAnswer.from_bytes(encoding.canonical_json({**told, key: value}))


def test_answers_that_cannot_be_meant_are_not_made() -> None:
    for wrong in (
        lambda: StepAnswer(np.zeros(3), 5, 0.0, RECEIPT),  # type: ignore[arg-type]
        lambda: StepAnswer(np.full(3, np.inf, np.float32), 5, 0.0, RECEIPT),
        lambda: StatisticAnswer(np.zeros(3), -1.0, RECEIPT),
        lambda: LabelsAnswer(np.full(3, 2, np.uint8), RECEIPT),
        lambda: AuditReceipt(0, DIGEST, b"short"),
    ):
        with pytest.raises(BadInput):
            wrong()


def test_descriptions_come_back() -> None:
    told = description()
    assert RoomDescription.from_bytes(told.to_bytes()) == told
    record = json.loads(told.to_bytes())
    remaining = record["remaining"]
    for amount in ("2.5", "5/0", "-1/2", "10/4", "", "1e400000000", 2.5, None, "9" * 500):
        spoiled = {**record, "remaining": {**remaining, "epsilon_left": amount}}
        with pytest.raises(RoomRefused):
            RoomDescription.from_bytes(encoding.canonical_json(spoiled))
    for key, value in (("terms", {}), ("terms", None), ("head", {}), ("room_version", ""), ("remaining", [])):
        with pytest.raises(RoomRefused):
            RoomDescription.from_bytes(encoding.canonical_json({**record, key: value}))
