"""What the proxy takes from devices, what opens for whom, and everything that is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.entropy import Simulation
from tacit.errors import NotYet
from tacit.gather.protocol.credentials import PartyRole, SealingKey
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.groups import FIELD_PRIME, Group
from tacit.gather.protocol.messages import Job, ReportSet
from tacit.gather.protocol.rounds import Round, report_binding
from tacit.gather.proxy.store import ProxyPhase
from tests.support.gather_worlds import (
    AFTER,
    CLOSES,
    DURING,
    OPENS,
    ROWS,
    SKEW,
    World,
    a_round,
    an_upload,
    entries,
    expect_exact,
    name,
    refusal,
    verdicts,
)

SOURCE = Simulation("bent uploads")


@pytest.fixture
def world() -> World:
    return World(a_round())


# Uploads


def test_a_report_is_taken_and_its_retry_too(world: World) -> None:
    upload = world.upload(0, ROWS[0])
    assert world.proxy.take([upload, upload], DURING) == [MessageVerdict.ACCEPTED] * 2
    world.restart()
    assert world.proxy.take([upload], DURING) == [MessageVerdict.ACCEPTED]
    assert world.proxy_store.waiting_count(world.digest) == 1


def test_a_round_that_another_process_opened_is_found_in_the_store(world: World) -> None:
    other = World(a_round(), proxy_store=world.proxy_store)
    later = a_round(level=1)
    other.proxy.open_round(later)
    upload = an_upload(later, 0, ROWS[0], SOURCE).to_bytes()
    assert world.proxy.take([upload], DURING) == [MessageVerdict.ACCEPTED]


def test_too_long_is_refused_before_it_is_parsed(world: World) -> None:
    upload = world.upload(0, ROWS[0])
    assert (
        world.proxy.take([upload + b".", b"\0" * (len(upload) + 1)], DURING) == [MessageVerdict.OVERSIZED] * 2
    )
    assert world.proxy.take([b"\0" * len(upload)], DURING) == [MessageVerdict.MALFORMED]


def test_too_long_for_its_own_round_though_not_for_another(world: World) -> None:
    world.proxy.open_round(a_round(task="wide", cells=30))
    long = an_upload(world.round, 0, ROWS[0], SOURCE, plains=(bytes(25), bytes(32))).to_bytes()
    assert world.proxy.take([long], DURING) == [MessageVerdict.OVERSIZED]


def test_cut_and_bent_uploads_are_malformed(world: World) -> None:
    upload = world.upload(0, ROWS[0])
    cut = [upload[:length] for length in range(len(upload))]
    assert set(world.proxy.take(cut, DURING)) == {MessageVerdict.MALFORMED}
    # As long as a good one in all, but the parts have other sizes.
    shifted = an_upload(world.round, 0, ROWS[0], SOURCE, plains=(bytes(23), bytes(33))).to_bytes()
    assert len(shifted) == len(upload)
    assert world.proxy.take([shifted], DURING) == [MessageVerdict.MALFORMED]
    assert world.proxy_store.waiting_count(world.digest) == 0


def test_unknown_rounds(world: World) -> None:
    other = an_upload(a_round(level=1), 0, ROWS[0], SOURCE).to_bytes()
    assert world.proxy.take([other], DURING) == [MessageVerdict.UNKNOWN_ROUND]
    for call in (world.proxy.phase, world.proxy.next_job, world.proxy.accepted_set, world.server.phase):
        assert refusal(call, bytes(32)) is MessageVerdict.UNKNOWN_ROUND
    assert refusal(world.proxy.agreement, bytes(32), AFTER) is MessageVerdict.UNKNOWN_ROUND
    assert refusal(world.server.result, bytes(32), AFTER) is MessageVerdict.UNKNOWN_ROUND
    assert refusal(world.agree, ReportSet(bytes(32), 0, bytes(32)).to_bytes()) is MessageVerdict.UNKNOWN_ROUND
    job = Job(bytes(32), 0, entries(world, 0))
    assert refusal(world.job, job.to_bytes()) is MessageVerdict.UNKNOWN_ROUND


@pytest.mark.parametrize(
    ("now", "answer"),
    [
        (OPENS - SKEW - 1, MessageVerdict.TOO_EARLY),
        (OPENS - SKEW, MessageVerdict.ACCEPTED),
        (CLOSES + SKEW - 1, MessageVerdict.ACCEPTED),
        (CLOSES + SKEW, MessageVerdict.TOO_LATE),
    ],
)
def test_clocks_may_differ_by_the_skew_and_no_more(world: World, now: int, answer: MessageVerdict) -> None:
    assert world.proxy.take([world.upload(0, ROWS[0])], now) == [answer]


def test_forged_reports(world: World) -> None:
    other = a_round(level=1)
    world.proxy.open_round(other)
    bent = [
        world.upload(0, ROWS[0], tag=bytes(32)),
        world.upload(0, ROWS[0], signed_as=1),  # one device's key does not speak for another
        world.upload(0, ROWS[0], device=name(7)),
        world.upload(0, ROWS[0], report_id=name(7)),
        world.upload(0, ROWS[0], digest=other.digest),  # replayed in another round
        world.upload(0, ROWS[0], sealed_proxy=bytes(24 + 48)),
        world.upload(0, ROWS[0], sealed_server=bytes(32 + 48)),
    ]
    assert world.proxy.take(bent, DURING) == [MessageVerdict.FORGED] * len(bent)
    assert world.proxy_store.waiting_count(world.digest) == 0


def test_a_device_reports_once_and_an_id_names_one_report(world: World) -> None:
    first, second = world.upload(0, ROWS[0]), world.upload(0, ROWS[1], report=77)
    same_id = world.upload(1, ROWS[1], report=1000)
    answers = [MessageVerdict.ACCEPTED, MessageVerdict.DUPLICATE, MessageVerdict.REPLAYED]
    assert world.proxy.take([first, second, same_id], DURING) == answers
    world.restart()
    assert world.proxy.take([second, same_id], DURING) == answers[1:]
    again = world.upload(0, ROWS[0])  # the same device and id, made anew: not the same bytes
    assert world.proxy.take([again], DURING) == [MessageVerdict.DUPLICATE]


def test_the_cheapest_check_speaks_first(world: World) -> None:
    early_and_forged = world.upload(0, ROWS[0], tag=bytes(32))
    assert world.proxy.take([early_and_forged], OPENS - SKEW - 1) == [MessageVerdict.TOO_EARLY]
    world.report(ROWS[:1])
    assert world.proxy.take([early_and_forged], DURING) == [MessageVerdict.FORGED]  # before it asks the store


def test_a_closed_round_stays_closed_when_the_clock_goes_back(world: World) -> None:
    world.report(ROWS)
    with pytest.raises(NotYet):
        world.proxy.agreement(world.digest, AFTER)
    assert world.proxy.phase(world.digest) is ProxyPhase.CLOSED
    assert world.proxy.take([world.upload(9, ROWS[0])], DURING) == [MessageVerdict.TOO_LATE]


def test_replays_after_collection_change_nothing(world: World) -> None:
    uploads = [world.upload(each, row) for each, row in enumerate(ROWS)]
    world.proxy.take(uploads, DURING)
    assert world.drive() is ProxyPhase.RELEASED
    before = world.server.result(world.digest, AFTER)
    assert world.proxy.take(uploads, AFTER) == [MessageVerdict.TOO_LATE] * 4
    assert world.proxy.take(uploads, DURING) == [MessageVerdict.ACCEPTED] * 4  # known ones; nothing waits
    assert world.drive() is ProxyPhase.RELEASED
    assert world.server.result(world.digest, AFTER).to_bytes() == before.to_bytes()
    assert world.proxy.accepted_set(world.digest).count == 4


# Keys, roles, rounds


def bent_parts(round: Round, party: str) -> list[dict[str, Any]]:
    other_round, other_report = a_round(level=1).digest, name(5)
    wrong_role = PartyRole.SERVER if party == "proxy" else PartyRole.PROXY
    return [
        {f"{party}_key": SealingKey.generate().public},
        {f"{party}_role": wrong_role},
        {f"{party}_bound": report_binding(other_round, name(1000))},
        {f"{party}_bound": report_binding(round.digest, other_report)},
    ]


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("party", ["proxy", "server"])
def test_what_does_not_open_is_refused_by_whom_it_was_for(world: World, party: str, kind: int) -> None:
    bent = bent_parts(world.round, party)[kind]
    good = [world.upload(each, row) for each, row in enumerate(ROWS) if each > 0]
    assert world.proxy.take([world.upload(0, ROWS[0], **bent), *good], DURING) == [MessageVerdict.ACCEPTED] * 4
    job = world.proxy.next_job(world.digest)
    assert job is not None
    sent = [entry.report_id for entry in job.entries]
    assert (name(1000) in sent) == (party == "server")  # the proxy sends nothing that it cannot open
    if party == "server":
        assert verdicts(world, job) == [MessageVerdict.UNOPENABLE] + [MessageVerdict.ACCEPTED] * 3
    assert world.drive() is ProxyPhase.RELEASED
    expect_exact(world, ROWS[1:])


def test_a_part_that_opens_and_cannot_be_read_is_never_sent() -> None:
    world = World(a_round(group=Group.FIELD64))
    beyond = np.array([FIELD_PRIME, 0, 0], "<u8").tobytes()
    world.proxy.take([world.upload(0, ROWS[0], plains=(beyond, bytes(32)))], DURING)
    assert world.proxy.next_job(world.digest) is None  # nothing to send, and nothing waits
    assert world.proxy_store.waiting_count(world.digest) == 0
    world.proxy.take([world.upload(each, ROWS[each]) for each in (1, 2, 3)], DURING)
    assert world.drive() is ProxyPhase.RELEASED
    expect_exact(world, ROWS[1:])


def test_rounds_for_other_keys_or_with_other_terms_are_not_opened(world: World) -> None:
    key = SealingKey.generate().public
    assert refusal(world.proxy.open_round, a_round(task="x", proxy_key=key)) is MessageVerdict.UNOPENABLE
    assert refusal(world.server.open_round, a_round(task="x", server_key=key)) is MessageVerdict.UNOPENABLE
    for party in (world.proxy, world.server):
        party.open_round(world.round)
        assert refusal(party.open_round, a_round(smallest_batch=1)) is MessageVerdict.CONFLICT
