"""How a round ends: both parties check the set and the batch, pay, and let one noisy sum out, once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tacit.entropy import Simulation
from tacit.errors import BudgetExceeded, NotYet, SelfCheckFailed, TooFew
from tacit.gather.protocol.credentials import PartyRole
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.groups import Group
from tacit.gather.protocol.messages import Job, NoisyShare, ReportSet, ShareReceipt
from tacit.gather.protocol.noise import UserNoise
from tacit.gather.protocol.releases import _purpose
from tacit.gather.proxy.store import ProxyPhase
from tacit.gather.server.store import ServerPhase
from tacit.gather.simulate.memory import MemoryProxyStore
from tacit.memory_ledger import MemoryLedger
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.rules import ReservationState
from tacit.privacy.noise.shares import SkellamShares
from tests.support.gather_worlds import (
    AFTER,
    CLOSES,
    DURING,
    LAW,
    PROXY_KEY,
    ROWS,
    World,
    a_round,
    entries,
    expect_exact,
    name,
    noise_of,
    refusal,
    states,
)

SOURCE = Simulation("bent uploads")


@pytest.fixture
def world() -> World:
    return World(a_round())


def test_not_yet_until_the_round_is_over_and_every_report_has_its_verdict(world: World) -> None:
    world.report(ROWS)
    with pytest.raises(NotYet):
        world.proxy.agreement(world.digest, AFTER - 1)
    assert world.drive(AFTER - 1) is ProxyPhase.OPEN
    with pytest.raises(NotYet):
        world.server.result(world.digest, AFTER)
    world.proxy.take([world.upload(8, ROWS[0])], DURING)
    with pytest.raises(NotYet, match="1 reports without a verdict"):
        world.proxy.agreement(world.digest, AFTER)
    assert world.drive() is ProxyPhase.RELEASED
    assert world.server.result(world.digest, AFTER).count == 5


def test_the_server_looks_at_its_own_clock(world: World) -> None:
    world.report(ROWS)
    world.server_now = CLOSES - 1  # further behind than the skew allows
    assert world.drive() is ProxyPhase.CLOSED
    assert world.server.phase(world.digest) is ServerPhase.OPEN
    world.server_now = CLOSES  # behind by all of the skew
    assert world.drive() is ProxyPhase.RELEASED
    world.server_now = DURING  # set back: what was agreed on stays so
    assert world.agree(world.proxy.accepted_set(world.digest).to_bytes())


def test_a_round_that_a_wrong_clock_closed_is_opened_again_by_a_right_one(world: World) -> None:
    world.report(ROWS[:3])
    world.drive(DURING)
    world.server_now = DURING
    assert world.drive(AFTER) is ProxyPhase.CLOSED  # by the proxy's clock, which is ahead
    assert world.proxy.take([world.upload(8, ROWS[0])], DURING) == [MessageVerdict.TOO_LATE]
    assert world.drive(DURING) is ProxyPhase.OPEN
    assert world.proxy.take([world.upload(8, ROWS[0])], DURING) == [MessageVerdict.ACCEPTED]
    world.server_now = None
    assert world.drive(AFTER) is ProxyPhase.RELEASED
    assert world.server.result(world.digest, AFTER).count == 4
    assert len(set(world.proxy_key.drawn)) == len(set(world.server_key.drawn)) == 1
    assert world.drive(DURING) is ProxyPhase.RELEASED


def test_what_the_server_agreed_to_is_not_opened_again(world: World) -> None:
    """Also where the proxy never heard of it, and its clock says that the round is open."""
    world.report(ROWS)
    world.drive(DURING)
    world.server.agree(world.proxy.agreement(world.digest, AFTER).to_bytes(), AFTER)
    assert world.proxy.phase(world.digest) is ProxyPhase.CLOSED
    assert world.drive(DURING) is ProxyPhase.RELEASED
    assert world.proxy.take([world.upload(9, ROWS[0])], DURING) == [MessageVerdict.TOO_LATE]


def test_a_share_is_not_given_for_a_round_that_is_still_open(world: World) -> None:
    world.report(ROWS)
    world.drive(DURING)
    with pytest.raises(NotYet):
        world.proxy.noisy_share(world.digest, world.proxy.accepted_set(world.digest))
    assert world.proxy_key.drawn == []


def test_too_few_is_final_and_not_the_same_as_not_yet(world: World) -> None:
    world.report(ROWS[:2])
    with pytest.raises(NotYet):
        world.server.result(world.digest, AFTER)
    assert world.drive() is ProxyPhase.TOO_FEW
    for _ in range(2):
        with pytest.raises(TooFew) as few:
            world.server.result(world.digest, AFTER)
        assert (few.value.count, few.value.smallest) == (2, 3)
        with pytest.raises(TooFew):
            world.proxy.noisy_share(world.digest, world.proxy.agreement(world.digest, AFTER))
        world.restart()
    assert world.proxy.take([world.upload(8, ROWS[0])], DURING) == [MessageVerdict.TOO_LATE]
    assert refusal(world.job, Job(world.digest, 5, entries(world, 8)).to_bytes()) is MessageVerdict.CLOSED
    assert world.drive() is ProxyPhase.TOO_FEW
    assert states(world) == (None, None)
    assert not world.proxy_key.drawn
    assert not world.server_key.drawn


def test_the_smallest_batch_counts_aggregated_reports(world: World) -> None:
    world.report(ROWS[:2])
    bad = [
        world.upload(5, ROWS[0], server_key=PROXY_KEY.public),
        world.upload(6, ROWS[0], proxy_key=bytes(31) + b"\t"),
    ]
    assert world.proxy.take(bad, DURING) == [MessageVerdict.ACCEPTED] * 2
    assert world.drive() is ProxyPhase.TOO_FEW
    with pytest.raises(TooFew) as few:
        world.server.result(world.digest, AFTER)
    assert few.value.count == 2


def test_too_few_is_not_final_before_the_server_knows(world: World) -> None:
    world.report(ROWS[:2])
    world.server_now = CLOSES - 1
    assert world.drive() is ProxyPhase.CLOSED
    world.server_now = None
    assert world.drive() is ProxyPhase.TOO_FEW
    assert world.server.phase(world.digest) is ServerPhase.TOO_FEW


def test_each_party_checks_the_batch_itself(world: World) -> None:
    world.report(ROWS[:2])
    world.drive(DURING)
    small = world.proxy.accepted_set(world.digest)
    # A proxy that would go on.
    assert ReportSet.from_bytes(world.server.agree(small.to_bytes(), AFTER)) == small
    share = NoisyShare(world.digest, small.ids_hash, bytes(24))
    with pytest.raises(TooFew):
        world.server.share(share.to_bytes(), AFTER)
    # A server that would go on.
    world.proxy_store.set_phase(world.digest, ProxyPhase.CLOSED, only_from=frozenset({ProxyPhase.OPEN}))
    with pytest.raises(TooFew):
        world.proxy.noisy_share(world.digest, small)
    assert states(world) == (None, None)


def test_each_party_checks_that_the_sets_are_the_same(world: World) -> None:
    world.report(ROWS)
    world.drive(DURING)
    mine = world.proxy.agreement(world.digest, AFTER)
    for other in (replace(mine, count=5), replace(mine, ids_hash=bytes(32))):
        assert refusal(world.server.agree, other.to_bytes(), AFTER) is MessageVerdict.CONFLICT
        assert refusal(world.proxy.noisy_share, world.digest, other) is MessageVerdict.CONFLICT
    assert world.server.phase(world.digest) is ServerPhase.OPEN
    assert states(world) == (None, None)


def test_overlapping_sets_are_not_released(world: World) -> None:
    """The server was handed a report that is in no job of the proxy's own."""
    world.report(ROWS)
    world.job(Job(world.digest, 50, entries(world, 30)).to_bytes())
    assert refusal(world.drive) is MessageVerdict.CONFLICT
    assert world.proxy.phase(world.digest) is ProxyPhase.CLOSED
    assert states(world) == (None, None)
    with pytest.raises(NotYet):
        world.server.result(world.digest, AFTER)


def test_shares_that_were_not_agreed_on(world: World) -> None:
    world.report(ROWS)
    world.drive(DURING)
    mine = world.proxy.agreement(world.digest, AFTER)
    good = NoisyShare(world.digest, mine.ids_hash, bytes(24))
    with pytest.raises(NotYet):
        world.server.share(good.to_bytes(), AFTER)
    world.server.agree(mine.to_bytes(), AFTER)
    short, other = replace(good, share=bytes(16)), replace(good, ids_hash=bytes(32))
    assert refusal(world.server.share, short.to_bytes(), AFTER) is MessageVerdict.MALFORMED
    assert refusal(world.server.share, other.to_bytes(), AFTER) is MessageVerdict.CONFLICT
    assert refusal(world.server.share, good.to_bytes()[:-1], AFTER) is MessageVerdict.MALFORMED
    assert states(world)[1] is None


def test_receipts_for_something_else(world: World) -> None:
    world.report(ROWS)
    world.drive(DURING)
    mine = world.proxy.agreement(world.digest, AFTER)
    receipt = ShareReceipt(world.digest, mine.ids_hash, accepted=True)
    assert refusal(world.proxy.take_receipt, receipt) is MessageVerdict.CONFLICT  # nothing was sent
    world.proxy.noisy_share(world.digest, mine)
    for bent in (replace(receipt, ids_hash=bytes(32)), replace(receipt, accepted=False)):
        assert refusal(world.proxy.take_receipt, bent) is MessageVerdict.CONFLICT
    assert world.proxy.phase(world.digest) is ProxyPhase.AGREED
    world.proxy.take_receipt(receipt)
    world.proxy.take_receipt(receipt)
    assert world.proxy.phase(world.digest) is ProxyPhase.RELEASED


@pytest.mark.parametrize("group", Group)
def test_the_sum_is_exact_but_for_the_noise_of_both(group: Group) -> None:
    world = World(a_round(group=group))
    world.report(ROWS)
    assert world.drive(most=3) is ProxyPhase.RELEASED
    expect_exact(world, ROWS)
    assert world.server.result(world.digest, AFTER).noise_variance == 8.0


def test_a_release_happens_once(world: World) -> None:
    world.report(ROWS)
    world.drive()
    result, share = world.server_store.result(world.digest), world.proxy_store.share(world.digest)
    mine = world.proxy.accepted_set(world.digest)
    for _ in range(2):
        world.restart()
        assert world.drive() is ProxyPhase.RELEASED
        again = world.proxy.noisy_share(world.digest, mine)
        assert again.share == share
        assert (
            world.share(again.to_bytes()) == ShareReceipt(world.digest, mine.ids_hash, accepted=True).to_bytes()
        )
        another = replace(again, share=bytes(24))  # a second share of one round changes nothing
        world.share(another.to_bytes())
        assert world.server_store.result(world.digest) == result
    expect_exact(world, ROWS)


def test_of_two_shares_drawn_at_the_same_time_only_the_kept_one_leaves() -> None:
    class Late(MemoryProxyStore):
        """Another thread keeps its share between this one's look and its own keeping."""

        def keep_share(self, digest: bytes, ids_hash: bytes, share: bytes) -> bytes:
            super().keep_share(digest, ids_hash, b"first".ljust(24))
            return super().keep_share(digest, ids_hash, share)

    world = World(a_round(), proxy_store=Late())
    world.report(ROWS)
    world.drive(DURING)
    mine = world.proxy.agreement(world.digest, AFTER)
    assert world.proxy.noisy_share(world.digest, mine).share == b"first".ljust(24)


def test_what_the_server_knows_has_the_proxys_noise_in_it(world: World) -> None:
    world.report(ROWS)
    world.drive()
    group = world.round.group
    known = [*world.server_store.totals(world.digest), world.proxy_store.share(world.digest)]
    parts = np.array([group.from_bytes(each, 3) for each in known])
    noise = noise_of(world.round, world.proxy.accepted_set(world.digest), PartyRole.PROXY, world.proxy_store)
    assert noise.any()
    np.testing.assert_array_equal(group.lift(group.total(parts)), np.sum(ROWS, axis=0) + noise)


def test_each_server_makes_up_for_missing_user_noise() -> None:
    shares = SkellamShares(Fraction(8), 5, Fraction(1, 5))
    world = World(a_round(parties=5, noise=UserNoise(shares)))
    world.report(ROWS[:3])  # rows stand for counts with the devices' own noise in them
    assert world.drive() is ProxyPhase.RELEASED
    missing = shares.missing_law(3)
    assert missing is not None
    result = world.server.result(world.digest, AFTER)
    assert world.noise.any()
    np.testing.assert_array_equal(result.values - world.noise, np.sum(ROWS[:3], axis=0))
    assert result.noise_variance == shares.total_variance(3)


def test_no_top_up_where_every_user_answered() -> None:
    world = World(a_round(parties=4, noise=UserNoise(SkellamShares(Fraction(8), 4, Fraction(1, 4)))))
    world.report(ROWS)
    assert world.drive() is ProxyPhase.RELEASED
    np.testing.assert_array_equal(world.server.result(world.digest, AFTER).values, np.sum(ROWS, axis=0))
    assert states(world) == (
        ReservationState.COMMITTED,
        ReservationState.COMMITTED,
    )  # paid all the same: devices added the noise


@pytest.mark.parametrize("party", ["proxy", "server"])
def test_a_ledger_that_cannot_pay_stops_the_round_until_it_can(party: str) -> None:
    world = World(a_round(), limit="")
    ledgers = {"proxy": world.proxy_ledger, "server": world.server_ledger}
    for each, ledger in ledgers.items():
        ledger.grant(world.round.line, Budget.of(32 if each == party else 64, "1e-6"))
    world.report(ROWS)
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            world.drive()
        world.restart()
    assert world.proxy.phase(world.digest) is (ProxyPhase.CLOSED if party == "proxy" else ProxyPhase.AGREED)
    assert not (world.proxy_key if party == "proxy" else world.server_key).drawn  # nothing was drawn
    with pytest.raises(NotYet):
        world.server.result(world.digest, AFTER)
    ledgers[party].grant(world.round.line, Budget.of(64, "1e-6"))
    assert world.drive() is ProxyPhase.RELEASED
    expect_exact(world, ROWS)


@pytest.mark.parametrize("died", [False, True])
@pytest.mark.parametrize("party", ["proxy", "server"])
def test_a_party_that_was_copied_makes_the_same_release_or_none(party: str, died: bool) -> None:
    """Its store was put back to before the round, or a copy of it was started; its ledger is one. `died`: the
    first had paid, and died before its payment was final."""
    first = World(a_round())
    ledger: Any = first.proxy_ledger if party == "proxy" else first.server_ledger
    commit = ledger.commit
    if died:
        ledger.commit = None
    first.report(ROWS)
    with suppress(TypeError):
        first.drive()
    ledger.commit = commit
    assert states(first)[party == "server"] is (
        ReservationState.RESERVED if died else ReservationState.COMMITTED
    )

    kept = {f"{party}_ledger": ledger}
    others = World(a_round(), **kept)
    others.report([*ROWS, [0, 0, 1]])
    with pytest.raises(SelfCheckFailed, match="released before, of other reports"):
        others.drive()
    assert not (others.proxy_key if party == "proxy" else others.server_key).drawn
    same = World(a_round(), **kept)
    same.report(ROWS)
    assert same.drive() is ProxyPhase.RELEASED
    if not died:
        assert same.server_store.result(same.digest) == first.server_store.result(first.digest)


def test_a_party_whose_round_was_paid_for_without_a_name_does_not_draw_again() -> None:
    """As ledgers were before they knew what a payment was used for."""
    ledger, round = MemoryLedger(), a_round()
    ledger.grant(round.line, Budget.of(64, "1e-6"))
    ledger.reserve(f"{round.key}/proxy", round.line, round.cost, _purpose(round))
    ledger.commit(f"{round.key}/proxy")
    world = World(round, proxy_ledger=ledger)
    world.report(ROWS)
    with pytest.raises(SelfCheckFailed, match="kept nothing of it"):
        world.drive()
    assert not world.proxy_key.drawn


def test_the_result_is_settled_before_it_is_given_out(world: World) -> None:
    """The server died after it kept the result and before it settled the payment; nobody asked again."""
    commit, world.server_ledger.commit = world.server_ledger.commit, None
    world.report(ROWS)
    with pytest.raises(TypeError):
        world.drive()
    world.server_ledger.commit = commit
    assert states(world)[1] is ReservationState.RESERVED
    world.server.result(world.digest, AFTER)
    assert states(world)[1] is ReservationState.COMMITTED


def test_memory_does_not_grow_with_the_number_of_reports() -> None:
    class Many(MemoryProxyStore):
        """As if a hundred thousand reports in ten thousand jobs had been kept elsewhere."""

        def accepted_ids(self, digest: bytes) -> Iterator[bytes]:  # noqa: ARG002
            return (name(each + 1) for each in range(100_000))

        def accepted_count(self, digest: bytes) -> int:  # noqa: ARG002
            return 100_000

        def totals(self, digest: bytes) -> Iterator[bytes]:  # noqa: ARG002
            return (bytes(24) for _ in range(10_000))

    world = World(a_round(parties=100_000), proxy_store=Many())
    world.proxy_store.set_phase(world.digest, ProxyPhase.CLOSED, only_from=frozenset({ProxyPhase.OPEN}))
    LAW.sample_array(3, SOURCE.words)  # its table is made once
    assert world.round.run_digest  # and so is this; msgpack takes a large buffer for it
    tracemalloc.start()
    share = world.proxy.noisy_share(world.digest, world.proxy.accepted_set(world.digest))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(share.share) == 24
    assert peak < 100_000  # bytes; the ids alone would be 1.6 million
