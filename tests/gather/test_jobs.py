"""Jobs from the proxy to the server: each report judged once, each job answered once, whatever is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tacit.entropy import Simulation
from tacit.errors import GatherError, NotYet
from tacit.gather.protocol.credentials import SealingKey
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.messages import MOST_ENTRIES, Job, JobReply
from tacit.gather.protocol.sharing import open_parts
from tacit.gather.proxy.party import drive
from tacit.gather.proxy.store import ProxyPhase
from tacit.gather.server.store import ServerPhase
from tacit.gather.simulate.memory import MemoryProxyStore, MemoryServerStore
from tests.support.gather_worlds import (
    AFTER,
    DURING,
    OPENS,
    ROWS,
    SKEW,
    World,
    a_round,
    entries,
    expect_exact,
    name,
    refusal,
    states,
    verdicts,
)

SOURCE = Simulation("bent uploads")


@pytest.fixture
def world() -> World:
    return World(a_round())


def test_a_job_again_has_the_same_answer_and_other_content_is_a_conflict(world: World) -> None:
    job = Job(world.digest, 0, entries(world, 0, 1))
    reply = world.job(job.to_bytes())
    world.restart()
    assert world.job(job.to_bytes()) == reply
    assert refusal(world.job, Job(world.digest, 0, entries(world, 2)).to_bytes()) is MessageVerdict.CONFLICT
    assert world.server_store.accepted_count(world.digest) == 2


def test_ids_are_judged_once_within_and_across_jobs(world: World) -> None:
    first = entries(world, 0, 1)
    bad = entries(world, 2, server_key=SealingKey.generate().public)
    good_again = entries(world, 2)
    twice = Job(world.digest, 0, (first[0], first[0], first[1], *bad))
    assert [each.name for each in verdicts(world, twice)] == ["ACCEPTED", "REPLAYED", "ACCEPTED", "UNOPENABLE"]
    later = Job(world.digest, 1, (*good_again, first[1], *entries(world, 3)))  # a refused id stays refused
    assert [each.name for each in verdicts(world, later)] == ["REPLAYED", "REPLAYED", "ACCEPTED"]
    only_old = Job(world.digest, 2, first)
    assert [each.name for each in verdicts(world, only_old)] == ["REPLAYED", "REPLAYED"]
    assert world.server_store.accepted_count(world.digest) == 3


def test_an_id_that_another_job_decided_meanwhile_is_not_counted_twice(world: World) -> None:
    class Late(MemoryServerStore):
        """Another job with the same reports is kept just before this one."""

        def keep_job(self, digest: bytes, number: int, *rest: Any) -> Any:
            if number == 1:
                super().keep_job(digest, 0, *rest)
            return super().keep_job(digest, number, *rest)

    world = World(a_round(), server_store=Late())
    job = Job(world.digest, 1, entries(world, 0, 1))
    assert refusal(world.job, job.to_bytes()) is MessageVerdict.REPLAYED
    assert verdicts(world, job) == [MessageVerdict.REPLAYED] * 2  # the retry
    assert world.server_store.accepted_count(world.digest) == 2


def test_jobs_too_early_and_jobs_of_the_wrong_sizes(world: World) -> None:
    job = Job(world.digest, 0, entries(world, 0))
    assert refusal(world.server.job, job.to_bytes(), OPENS - SKEW - 1) is MessageVerdict.TOO_EARLY
    assert verdicts(world, job, OPENS - SKEW) == [MessageVerdict.ACCEPTED]
    long = tuple(replace(each, sealed=each.sealed + b".") for each in entries(world, 1))
    told = tuple(replace(each, message=b"proof") for each in entries(world, 1))
    for bent in (long, told):
        assert refusal(world.job, Job(world.digest, 1, bent).to_bytes()) is MessageVerdict.MALFORMED
    assert refusal(world.job, job.to_bytes()[:-1]) is MessageVerdict.MALFORMED


def test_after_the_agreement_no_new_job_and_old_ones_as_before(world: World) -> None:
    world.report(ROWS)
    job = world.proxy.next_job(world.digest)
    assert job is not None
    reply = world.job(job.to_bytes())
    world.proxy.take_reply(reply)
    world.now = AFTER
    world.agree(world.proxy.agreement(world.digest, AFTER).to_bytes())
    world.server._opening = None  # type: ignore[assignment]  # neither answer takes any opening
    assert refusal(world.job, Job(world.digest, 1, entries(world, 8)).to_bytes()) is MessageVerdict.CLOSED
    assert world.job(job.to_bytes()) == reply


def test_a_job_kept_while_the_parties_agree_stops_the_release() -> None:
    class Late(MemoryServerStore):
        """A job is kept after the server has counted and before the phase is set."""

        def set_phase(self, digest: bytes, phase: ServerPhase, *, only_from: frozenset[ServerPhase]) -> None:
            if phase is ServerPhase.AGREED:
                raced.server.job(Job(digest, 9, entries(raced, 9)).to_bytes(), AFTER)
            super().set_phase(digest, phase, only_from=only_from)

    raced = World(a_round(), server_store=Late())
    raced.report(ROWS)
    assert refusal(raced.drive) is MessageVerdict.CONFLICT
    with pytest.raises(NotYet):
        raced.server.result(raced.digest, AFTER)
    assert states(raced)[1] is None


def test_answers_to_other_jobs(world: World) -> None:
    world.report(ROWS)
    job = world.proxy.next_job(world.digest, most=2)
    assert job is not None
    good = JobReply.from_bytes(world.job(job.to_bytes()))
    for bent in (replace(good, job_hash=bytes(32)), replace(good, verdicts=b"\0" * 3, messages=(b"",) * 3)):
        assert refusal(world.proxy.take_reply, bent.to_bytes()) is MessageVerdict.CONFLICT
    world.proxy.take_reply(replace(good, number=5).to_bytes())  # of a job that is not waiting
    assert world.proxy.accepted_set(world.digest).count == 0
    world.proxy.take_reply(good.to_bytes())
    world.proxy.take_reply(good.to_bytes())
    assert world.proxy.accepted_set(world.digest).count == 2


def test_a_link_that_answers_another_job_does_not_keep_the_driver_busy(world: World) -> None:
    class Stale:
        def job(self, body: bytes) -> bytes:
            return replace(JobReply.from_bytes(world.job(body)), number=99).to_bytes()

        agree = share = job

    world.report(ROWS)
    with pytest.raises(GatherError, match="of another job"):
        drive(world.proxy, Stale(), world.digest, DURING)
    assert world.drive() is ProxyPhase.RELEASED


def test_a_job_is_the_same_after_a_restart(world: World) -> None:
    world.report(ROWS)
    before = world.proxy.next_job(world.digest, most=3)
    world.restart()
    after = world.proxy.next_job(world.digest)
    assert before is not None
    assert after is not None
    assert before.to_bytes() == after.to_bytes()


def test_no_more_reports_than_parties() -> None:
    world = World(a_round(parties=5))
    world.report([*ROWS, *ROWS])
    assert world.drive(DURING, most=3) is ProxyPhase.OPEN
    assert world.proxy.accepted_set(world.digest).count == 5
    assert verdicts(world, Job(world.digest, 7, entries(world, 20, 21))) == [MessageVerdict.CLOSED] * 2
    assert world.drive() is ProxyPhase.RELEASED
    expect_exact(world, [*ROWS, ROWS[0]])


def test_each_party_refuses_a_set_of_more_reports_than_parties() -> None:
    """As two jobs that the server judged at the same moment would leave it."""
    world = World(a_round(parties=5))
    world.report(ROWS)
    world.drive(DURING)
    extra = [name(each) for each in range(5000, 5003)]
    world.server_store.keep_job(world.digest, 9, bytes(32), b"", extra, bytes(3), bytes(24))
    world.proxy_store._rounds[world.digest].accepted += extra
    crowded = world.proxy.accepted_set(world.digest)
    assert crowded.count == 7
    assert refusal(world.server.agree, crowded.to_bytes(), AFTER) is MessageVerdict.CONFLICT
    assert world.server.phase(world.digest) is ServerPhase.OPEN
    assert refusal(world.proxy.agreement, world.digest, AFTER) is MessageVerdict.CONFLICT
    assert refusal(world.proxy.noisy_share, world.digest, crowded) is MessageVerdict.CONFLICT


def test_a_job_that_another_process_finished_is_not_sent_again(world: World) -> None:
    world.report(ROWS)
    other = World(a_round(), proxy_store=world.proxy_store, server_store=world.server_store)
    assert world.proxy.next_job(world.digest, most=2) is not None
    first = other.proxy.next_job(world.digest)
    assert first is not None
    other.proxy.take_reply(world.job(first.to_bytes()))
    second = world.proxy.next_job(world.digest)
    assert second is not None
    assert (first.number, second.number) == (0, 1)
    assert {each.report_id for each in first.entries}.isdisjoint(each.report_id for each in second.entries)


def test_each_part_is_opened_once_and_its_draft_dropped_with_the_answer(world: World) -> None:
    opened = []

    def counting(*arguments: Any) -> Any:
        opened.append(len(arguments[3]))
        return open_parts(*arguments)

    world.proxy._opening = counting
    world.report(ROWS)
    world.drive(DURING)
    assert opened == [4]
    assert world.proxy._drafts == {}


def test_a_job_has_no_more_entries_than_a_message_may_have() -> None:
    class Asked(MemoryProxyStore):
        def begin_job(self, digest: bytes, most: int) -> None:  # noqa: ARG002
            assert most == MOST_ENTRIES

    world = World(a_round(), proxy_store=Asked())
    assert world.proxy.next_job(world.digest, most=10**6) is None
