"""Rounds with proofs: both parties judge every report, and neither can be talked out of it by the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tacit.errors import Refused, Unproven
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.groups import Group
from tacit.gather.protocol.messages import JobReply
from tacit.gather.protocol.promises import CountBounds
from tacit.gather.protocol.rounds import check_key_hash, report_binding
from tacit.gather.protocol.sharing import sharing_scheme
from tacit.gather.proxy.party import drive
from tacit.gather.proxy.store import ProxyPhase
from tests.support.gather_worlds import (
    AFTER,
    CHECK,
    DURING,
    PROXY_KEY,
    ROWS,
    SERVER_KEY,
    World,
    a_round,
    expect_exact,
    name,
    refusal,
    states,
)

ROWS_ARRAY = np.array(ROWS[0], np.int64)
PROVEN = a_round(group=Group.FIELD64, bounds=CountBounds(each=9, total=20))


@pytest.fixture
def world() -> World:
    return World(PROVEN)


def unproven(world: World, device: int) -> bytes:
    """The proxy's part of one honest report with the server's part of another: a sum of anything."""
    bound = report_binding(PROVEN.digest, name(1000 + device))
    scheme = sharing_scheme(PROVEN)
    (proxy_part, _), (_, server_part) = (
        scheme.split(ROWS_ARRAY, bound, world.devices),
        scheme.split(ROWS_ARRAY, bound, world.devices),
    )
    return world.upload(device, ROWS[0], plains=(proxy_part, server_part))


class Liar:
    """A server that accepts everything, and a link to it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def job(self, body: bytes) -> bytes:
        honest = JobReply.from_bytes(self._world.job(body))
        return replace(honest, verdicts=bytes(len(honest.verdicts))).to_bytes()

    def agree(self, body: bytes) -> bytes:
        return body

    def share(self, body: bytes) -> bytes:  # noqa: ARG002
        raise AssertionError("nothing may be sent to it")


def test_proven_reports_are_summed_as_others(world: World) -> None:
    world.report(ROWS)
    assert world.drive(most=3) is ProxyPhase.RELEASED
    expect_exact(world, ROWS)


def test_what_is_not_proven_is_out_of_range_and_the_others_are_summed(world: World) -> None:
    world.report(ROWS)
    unopenable = world.upload(21, ROWS[0], server_key=PROXY_KEY.public)
    assert world.proxy.take([unproven(world, 20), unopenable], DURING) == [MessageVerdict.ACCEPTED] * 2
    job = world.proxy.next_job(world.digest)
    assert job is not None
    reply = JobReply.from_bytes(world.job(job.to_bytes()))
    assert [MessageVerdict(code).name for code in reply.verdicts] == [
        *["ACCEPTED"] * 4,
        "OUT_OF_RANGE",
        "UNOPENABLE",
    ]
    assert world.drive() is ProxyPhase.RELEASED
    expect_exact(world, ROWS)


def test_a_server_that_accepts_what_is_not_proven_gets_nothing(world: World) -> None:
    world.report(ROWS)
    world.proxy.take([unproven(world, 20)], DURING)
    with pytest.raises(Unproven, match="not proven"):
        drive(world.proxy, Liar(world), world.digest, AFTER)
    for _ in range(2):  # for good: a server that is honest from now on gets nothing either
        assert world.drive() is ProxyPhase.STOPPED
        assert world.proxy.next_job(world.digest) is None
        assert world.proxy.take([world.upload(30, ROWS[0])], DURING) == [MessageVerdict.TOO_LATE]
        with pytest.raises(Unproven, match="stopped"):
            world.proxy.agreement(world.digest, AFTER)
        with pytest.raises(Unproven, match="stopped"):
            world.proxy.noisy_share(world.digest, world.proxy.accepted_set(world.digest))
        world.restart()
    assert states(world) == (None, None)
    assert not world.proxy_key.drawn


def test_a_proxy_cannot_vouch_for_a_report(world: World) -> None:
    """Whatever the proxy says of a report that is not proven, the server finds it out of range."""
    world.report(ROWS[:1])
    world.proxy.take([unproven(world, 20)], DURING)
    job = world.proxy.next_job(world.digest)
    assert job is not None
    honest, cheat = job.entries
    vouched = replace(job, entries=(honest, replace(cheat, message=honest.message)))
    reply = JobReply.from_bytes(world.job(vouched.to_bytes()))
    assert [MessageVerdict(code).name for code in reply.verdicts] == ["ACCEPTED", "OUT_OF_RANGE"]
    assert world.server_store.accepted_count(world.digest) == 1


def test_messages_of_another_size_are_refused(world: World) -> None:
    world.report(ROWS)
    job = world.proxy.next_job(world.digest)
    assert job is not None
    reply = JobReply.from_bytes(world.job(job.to_bytes()))
    cut = replace(reply, messages=tuple(each[:-1] for each in reply.messages))
    assert refusal(world.proxy.take_reply, cut.to_bytes()) is MessageVerdict.MALFORMED
    assert world.proxy.accepted_set(world.digest).count == 0


def test_a_round_is_only_opened_with_its_check_key(world: World) -> None:
    other = replace(PROVEN, task="other", check=check_key_hash(bytes(32)))
    for party in (world.proxy, world.server):
        assert refusal(party.open_round, other) is MessageVerdict.CONFLICT
    assert world.proxy_store.round(other.digest) is world.server_store.round(other.digest) is None


def test_a_check_key_that_changed_while_a_job_was_on_its_way_gives_no_second_message(world: World) -> None:
    """Two evaluations of one proof would let the server solve for the counts."""
    world.report(ROWS)
    first = world.proxy.next_job(world.digest)
    assert first is not None
    world.check_key = b"rotated".ljust(32, b".")
    world.restart()
    with pytest.raises(Refused, match="finish or abandon open rounds") as refused:
        world.proxy.next_job(world.digest)
    assert refused.value.reason is MessageVerdict.CONFLICT
    assert refusal(world.job, first.to_bytes()) is MessageVerdict.CONFLICT  # nor does the server judge
    assert world.server_store.job(world.digest, 0) is None
    world.check_key = CHECK
    world.restart()
    assert world.proxy.next_job(world.digest) == first
    assert world.drive() is ProxyPhase.RELEASED
    expect_exact(world, ROWS)


def test_jobs_of_which_nothing_can_be_opened(world: World) -> None:
    world.proxy.take([world.upload(0, ROWS[0], server_key=PROXY_KEY.public)], DURING)
    world.proxy.take([world.upload(1, ROWS[0], proxy_key=SERVER_KEY.public)], DURING)
    assert world.drive(most=1) is ProxyPhase.TOO_FEW
    assert world.server_store.accepted_count(world.digest) == 0
