"""Messages of gathering: one spelling each, anything else refused, and golden bytes for other languages."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import BadInput, GatherError, NotYet, Refused, TacitError, TooFew
from tacit.gather.protocol import credentials
from tacit.gather.protocol.credentials import PartyRole, SealingKey
from tacit.gather.protocol.encoding import MessageKind, MessageVerdict, encode_message
from tacit.gather.protocol.groups import Group, mask
from tacit.gather.protocol.messages import (
    MOST_ENTRIES,
    Job,
    JobEntry,
    JobReply,
    ReportSet,
    RoundResult,
    report_set_hash,
)
from tacit.gather.protocol.releases import noise_words
from tacit.gather.protocol.rounds import Question, check_key_hash
from tacit.gather.protocol.uploads import Upload, UploadLayout, upload_digest, upload_size
from tests.support.gather_rounds import SECRET, a_round, messages_of_every_kind, rounds_of_every_kind
from tests.support.repository import VECTORS

MESSAGES = messages_of_every_kind()
GATHER_V1 = json.loads((VECTORS / "gather_v1.json").read_text())


def read_or_refuse(kind: type, data: bytes) -> bool:
    """Whether the bytes were read, into what is written as the same bytes; else they must be MALFORMED."""
    try:
        found = kind.from_bytes(data)  # type: ignore[attr-defined]
    except Refused as refusal:
        reason = refusal.reason
    else:
        assert found.to_bytes() == data
        return True
    assert reason is MessageVerdict.MALFORMED
    return False


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_are_read_back(name: str) -> None:
    message = MESSAGES[name]
    found = type(message).from_bytes(message.to_bytes())
    assert found.to_bytes() == message.to_bytes()
    if type(message) not in (Question, RoundResult):  # these hold arrays
        assert found == message


@pytest.mark.parametrize("name", MESSAGES)
def test_no_message_is_read_as_another(name: str) -> None:
    data = MESSAGES[name].to_bytes()
    for other in {type(each) for each in MESSAGES.values()} - {type(MESSAGES[name])}:
        assert not read_or_refuse(other, data)


@pytest.mark.parametrize("name", MESSAGES)
def test_every_cut_and_every_added_byte_is_refused(name: str) -> None:
    message = MESSAGES[name]
    data = message.to_bytes()
    for end in range(len(data)):
        assert not read_or_refuse(type(message), data[:end])
    for more in (b"\x00", b"\xc0", data):
        assert not read_or_refuse(type(message), data + more)
    assert not read_or_refuse(type(message), bytearray(data))  # type: ignore[arg-type]


@settings(max_examples=30)
@given(data=st.data())
@pytest.mark.parametrize("name", MESSAGES)
def test_changed_bytes_are_refused_or_are_another_good_message(name: str, data: st.DataObject) -> None:
    message = MESSAGES[name]
    changed = bytearray(message.to_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(changed) - 1))
        new = data.draw(
            st.one_of(st.integers(0, 255), st.sampled_from(range(0xC0, 0xE0)))
        )  # msgpack's own marks
        if data.draw(st.booleans()):
            changed[place] = new
        else:
            changed.insert(place, new)
    read_or_refuse(type(message), bytes(changed))


PLAIN = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.binary(max_size=40),
        st.text(max_size=8), st.sampled_from(["1/2", "servers", "users", "skellam", "polya"]),
        st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=8)),
        st.builds(msgpack.Timestamp, st.just(5)),
    ),
    lambda some: st.one_of(st.lists(some, max_size=6), st.dictionaries(st.text(max_size=2), some, max_size=2)),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=25)
@given(values=st.lists(PLAIN, max_size=4), place=st.integers(0, 20))
@pytest.mark.parametrize("name", MESSAGES)
def test_fields_of_other_kinds_are_refused(name: str, values: list[Any], place: int) -> None:
    message = MESSAGES[name]
    plain = msgpack.unpackb(message.to_bytes())
    plain[place : place + len(values)] = values
    read_or_refuse(type(message), msgpack.packb(plain))


@settings(max_examples=100)
@given(data=st.one_of(st.binary(max_size=200), PLAIN.map(msgpack.packb)))
def test_any_bytes_are_refused(data: bytes) -> None:
    for kind in {type(each) for each in MESSAGES.values()}:
        assert not read_or_refuse(kind, data)


def test_what_would_fill_the_memory_is_refused_at_once() -> None:
    hostile = [
        b"\xdd\xff\xff\xff\xff",  # an array of 2^32 - 1
        b"\x91" * 100_000,  # arrays in arrays
        b"\xc6\xff\xff\xff\xff",  # 4 GB of bytes
        b"\xdf\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x05",
        b"\xd6\xff\x00\x00\x00\x00",  # a time stamp
    ]
    for data in hostile:
        for kind in {type(each) for each in MESSAGES.values()}:
            assert not read_or_refuse(kind, data)


@pytest.mark.parametrize("name", GATHER_V1["bad_messages"])
def test_golden_bad_messages_are_refused(name: str) -> None:
    assert not read_or_refuse(ReportSet, bytes.fromhex(GATHER_V1["bad_messages"][name]))


def test_golden_messages() -> None:
    assert {name: each.to_bytes().hex() for name, each in MESSAGES.items()} == GATHER_V1["messages"]
    assert {name: each.digest.hex() for name, each in rounds_of_every_kind().items()} == GATHER_V1["rounds"]


def test_golden_masks_credentials_sets_and_seals() -> None:
    for case in GATHER_V1["masks"]:
        seed, bound = bytes.fromhex(case["seed"]), bytes.fromhex(case["binding"])
        found = mask(seed, bound, case["purpose"].encode(), Group(case["group"]), len(case["elements"]))
        assert found.tolist() == list(map(int, case["elements"]))
    case = {name: bytes.fromhex(each) for name, each in GATHER_V1["credential"].items()}
    assert credentials.issue_device_key(case["secret"], case["device"]) == case["key"]
    assert credentials.report_tag(case["key"], case["signed"]) == case["tag"]
    digest = bytes.fromhex(GATHER_V1["set"]["digest"])
    assert (
        report_set_hash(digest, map(bytes.fromhex, GATHER_V1["set"]["ids"])).hex() == GATHER_V1["set"]["hash"]
    )
    assert report_set_hash(digest, []).hex() == GATHER_V1["set"]["hash_of_none"]
    assert {name: each.run_digest.hex() for name, each in rounds_of_every_kind().items()} == GATHER_V1["runs"]
    assert check_key_hash(bytes.fromhex(GATHER_V1["check"]["key"])).hex() == GATHER_V1["check"]["hash"]
    for case in GATHER_V1["noise"]:
        assert case["digest"] == a_round().digest.hex()
        key, ids_hash = SealingKey.from_bytes(bytes.fromhex(case["private"])), bytes.fromhex(case["ids_hash"])
        words = noise_words(key, PartyRole(case["role"]), a_round(), ids_hash)
        assert [*words(2), *words(3)] == [int(each) for each in case["words"]]
    for case in GATHER_V1["seals"]:
        key = SealingKey.from_bytes(bytes.fromhex(case["private"]))
        assert key.public.hex() == case["public"]
        sealed, bound = bytes.fromhex(case["sealed"]), bytes.fromhex(case["binding"])
        assert key.open(sealed, role=PartyRole(case["role"]), binding=bound).hex() == case["plain"]


def test_an_upload_of_1000_counts_has_the_promised_size() -> None:
    round = a_round(cells=1000)
    assert upload_size(round) <= 8300
    assert upload_size(replace(round, group=Group.RING32)) == upload_size(round) - 4000
    upload = Upload(round.digest, bytes(16), bytes(16), bytes(8000 + 48), bytes(80), bytes(32))
    assert len(upload.to_bytes()) == upload_size(round)


@pytest.mark.parametrize("cells", [1, 30, 1000, 9000])  # lengths of one, two and four bytes
def test_a_layout_reads_what_an_upload_reads(cells: int) -> None:
    round = a_round(cells=cells)
    layout = UploadLayout.of(round)
    draws = np.random.default_rng(cells)
    parts = [draws.bytes(size) for size in (32, 16, 16, 8 * cells + 48, 80, 32)]
    upload = Upload(*parts)
    data = upload.to_bytes()
    assert layout.fits(data)
    assert upload_digest(data) == upload.digest
    names = ("digest", "report_id", "device", "sealed_proxy", "sealed_server", "tag")
    for name in names:
        assert data[getattr(layout, name)] == getattr(upload, name)
    assert data[: layout.tag.start] == upload.signed_bytes
    assert not layout.fits(data[:-1])
    assert not layout.fits(data + b"0")
    fields = {at for name in names for at in range(*getattr(layout, name).indices(len(data)))}
    frame = sorted(set(range(len(data))) - fields)
    for at in frame:  # a byte outside of the fields that is not as it must be
        assert not layout.fits(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(Refused):
        upload_digest(data[:36])


def test_the_tag_covers_everything_before_it() -> None:
    upload = MESSAGES["upload"]
    assert upload.to_bytes() == upload.signed_bytes + upload.tag
    key = credentials.issue_device_key(SECRET, upload.device)
    given = credentials.report_tag(key, upload.signed_bytes)
    assert credentials.check_report_tag(SECRET, upload.device, upload.signed_bytes, given)
    for changed in (
        replace(upload, report_id=b"x" * 16),
        replace(upload, device=b"x" * 16),
        replace(upload, digest=b"x" * 32),
        replace(upload, sealed_proxy=b"x" * 152),
        replace(upload, sealed_server=b"x" * 80),
    ):
        assert not credentials.check_report_tag(SECRET, changed.device, changed.signed_bytes, given)
    assert not credentials.check_report_tag(SECRET + b"x", upload.device, upload.signed_bytes, given)
    assert not credentials.check_report_tag(SECRET, upload.device, upload.signed_bytes, given[:-1])
    with pytest.raises(BadInput, match="at least 32 bytes"):
        credentials.issue_device_key(b"short", upload.device)


def test_jobs_hold_entries_of_one_size() -> None:
    job = MESSAGES["job"]
    assert job.hash == Job.from_bytes(job.to_bytes()).hash != replace(job, number=4).hash
    first = job.entries[0]
    for entries in (
        (),
        (first, JobEntry(b"i" * 16, b"s" * 81, b"proof")),
        (first, JobEntry(b"i" * 16, b"s" * 80, b"")),
        (JobEntry(b"i" * 15, b"s" * 80),),
        (JobEntry(b"i" * 16, b"s" * 48),),
        (first,) * (MOST_ENTRIES + 1),
    ):
        with pytest.raises(BadInput):
            Job(job.digest, 0, entries)
    digest, ids, seals = job.digest, b"i" * 32, b"s" * 160
    assert read_or_refuse(Job, encode_message(MessageKind.JOB, digest, 0, ids, seals, b""))
    assert not read_or_refuse(Job, encode_message(MessageKind.JOB, digest, 0, ids, seals + b"s", b""))
    assert not read_or_refuse(Job, encode_message(MessageKind.JOB, digest, 0, ids + b"i", seals, b""))
    assert not read_or_refuse(Job, encode_message(MessageKind.JOB, digest, 0, b"", b"", b""))


def test_jobs_have_the_sizes_of_their_round() -> None:
    round = a_round()
    good = Job(round.digest, 0, (JobEntry(bytes(16), bytes(80)),))
    good.expect_sizes(round)
    for entry in (JobEntry(bytes(16), bytes(81)), JobEntry(bytes(16), bytes(80), b"m")):
        with pytest.raises(Refused) as refusal:
            Job(round.digest, 0, (entry,)).expect_sizes(round)
        assert refusal.value.reason is MessageVerdict.MALFORMED


def test_parts_of_no_possible_size_are_refused() -> None:
    upload, result = MESSAGES["upload"], MESSAGES["result"]
    for name in ("sealed_proxy", "sealed_server"):
        with pytest.raises(BadInput, match=name):
            replace(upload, **{name: bytes(48)})
    assert not read_or_refuse(RoundResult, encode_message(MessageKind.RESULT, result.digest, 1, bytes(9), 1.0))


def test_a_reply_has_a_known_verdict_for_every_report() -> None:
    reply = MESSAGES["job reply"]
    for changes in (
        {"verdicts": bytes([0, 9, 15])},
        {"verdicts": bytes(2)},
        {"verdicts": b"", "messages": ()},
        {"messages": (b"", b"", b"x")},
        {"job_hash": b""},
        {"number": -1},
    ):
        with pytest.raises(BadInput):
            replace(reply, **changes)
    assert not read_or_refuse(
        JobReply, encode_message(MessageKind.JOB_REPLY, reply.digest, 0, reply.job_hash, b"\x0f", b"")
    )


def test_the_hash_of_a_set_is_of_that_set_only() -> None:
    digest, ids = a_round().digest, [bytes([number]) * 16 for number in range(5)]
    sets = [ids, ids[1:], ids[:-1], [*ids[:4], b"\xff" * 16], []]
    hashes = {report_set_hash(digest, each) for each in sets} | {report_set_hash(bytes(32), ids)}
    assert len(hashes) == len(sets) + 1
    assert report_set_hash(digest, iter(ids)) == report_set_hash(digest, ids)
    for wrong in (ids[::-1], [*ids, ids[-1]], [b"short"], [ids[0], ids[1] + b"x"]):
        with pytest.raises(BadInput):
            report_set_hash(digest, wrong)


def test_a_result_holds_finite_numbers() -> None:
    good = MESSAGES["result"]
    read = RoundResult.from_bytes(good.to_bytes())
    assert read.values.tolist() == good.values.tolist()
    for changes in (
        {"noise_variance": float("nan")},
        {"noise_variance": -1.0},
        {"noise_variance": 3},
        {"values": np.zeros(3)},
        {"values": np.zeros((2, 2), np.int64)},
        {"values": np.zeros(0, np.int64)},
        {"count": -1},
    ):
        with pytest.raises(BadInput):
            replace(good, **changes)


def test_refusals_say_why_and_can_be_sent_home() -> None:
    assert all(refusal.words for refusal in MessageVerdict)
    assert [int(refusal) for refusal in MessageVerdict] == list(range(15))
    refused = Refused(MessageVerdict.FORGED)
    assert str(refused) == MessageVerdict.FORGED.words
    assert str(Refused(MessageVerdict.MALFORMED, "expected X")).endswith(": expected X")
    for error in (refused, TooFew(3, 10), NotYet("the round is open")):
        assert isinstance(error, GatherError)
        assert isinstance(error, TacitError)
        back = pickle.loads(pickle.dumps(error))
        assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))
    assert (TooFew(3, 10).count, TooFew(3, 10).smallest) == (3, 10)
    assert str(TooFew(3, 10)) == "expected at least 10 aggregated reports, got 3; nothing is released"
