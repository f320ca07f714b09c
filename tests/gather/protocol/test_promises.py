"""What a run promises its devices is kept by its noise and paid for by its first round, or nothing begins."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tacit.errors import BadInput, Refused
from tacit.gather.protocol import promises
from tacit.gather.protocol.credentials import PartyRole
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.noise import RoundNoise, ServerNoise, UserNoise
from tacit.gather.protocol.promises import Promise, expect_kept, promise_from_plain, promise_shortfall
from tacit.gather.protocol.releases import content_hash, draw_party_noise, noise_words
from tacit.gather.protocol.rounds import Round
from tacit.gather.proxy.party import Proxy
from tacit.gather.proxy.store import ProxyPhase
from tacit.memory_ledger import MemoryLedger
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.rules import Reservation, ReservationState
from tacit.privacy.noise.distributions import DiscreteGaussian, DiscreteLaplace, Skellam
from tacit.privacy.noise.shares import PolyaShares, SkellamShares
from tests.support.exact_tests import assert_matches_pmf
from tests.support.gather_worlds import (
    AFTER,
    CHECK,
    DURING,
    ENROLMENT,
    LAW,
    PROMISE,
    PROXY_KEY,
    ROWS,
    World,
    a_round,
    refusal,
    states,
)

# Of one device, 2 * 4 counts of 2 levels by 1, at epsilon 1 and delta 1e-6; from the accountant, rounded up.
ONCE = Promise(events=4, each=1, levels=2, epsilon=Fraction(1), delta=Fraction(1, 10**6))
PURE = replace(ONCE, delta=Fraction(0))
SPARE = Fraction(1, 100)
ENOUGH: list[tuple[Promise, RoundNoise, RoundNoise]] = [
    (ONCE, ServerNoise(DiscreteGaussian(Fraction(287))), ServerNoise(DiscreteGaussian(Fraction(284)))),
    (ONCE, ServerNoise(Skellam(Fraction(286))), ServerNoise(Skellam(Fraction(283)))),
    (
        ONCE,
        UserNoise(SkellamShares(Fraction(286), 100, SPARE)),
        UserNoise(SkellamShares(Fraction(283), 100, SPARE)),
    ),
    (PURE, ServerNoise(DiscreteLaplace(Fraction(16))), ServerNoise(DiscreteLaplace(Fraction(1599, 100)))),
    (PURE, UserNoise(PolyaShares(Fraction(16), 100, SPARE)), UserNoise(PolyaShares(Fraction(15), 100, SPARE))),
]


@pytest.mark.parametrize(("promise", "enough", "less"), ENOUGH, ids=lambda each: type(each).__name__)
def test_noise_keeps_a_promise_or_does_not(promise: Promise, enough: RoundNoise, less: RoundNoise) -> None:
    expect_kept(promise, enough)
    for other, noise in (
        (promise, less),
        (replace(promise, epsilon=Fraction(9, 10)), enough),
        (replace(promise, levels=3), enough),
        (replace(promise, events=5), enough),
        (replace(promise, each=4), enough) if promise.delta else (promise, less),  # as many events, in one cell
    ):
        with pytest.raises(BadInput, match="expected noise that keeps epsilon="):
            expect_kept(other, noise)


def test_noise_that_keeps_nothing_at_all() -> None:
    gauss = ServerNoise(DiscreteGaussian(Fraction(10**6)))
    with pytest.raises(BadInput, match="keeps none: expected discrete Laplace noise at delta=0"):
        expect_kept(PURE, gauss)
    whole = replace(ONCE, events=100, each=100, epsilon=Fraction(10**6))
    with pytest.raises(BadInput, match="keeps none: expected a finite epsilon"):
        expect_kept(whole, ServerNoise(DiscreteGaussian(Fraction(1, 100))))


def test_exposed_exchanges_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    many = replace(ONCE, each=4, epsilon=Fraction(4))
    noise = ServerNoise(DiscreteGaussian(Fraction(92)))
    expect_kept(many, noise)
    promise_shortfall.cache_clear()
    monkeypatch.setattr(promises, "undominated_exchanges", lambda *_: [(2, 1)])
    with pytest.raises(BadInput, match=r"concentrated contributions .* \(2, 1\)"):
        expect_kept(many, noise)
    promise_shortfall.cache_clear()


def test_an_answer_is_computed_once_whether_yes_or_no(monkeypatch: pytest.MonkeyPatch) -> None:
    promise_shortfall.cache_clear()
    rounds = [a_round(), a_round(noise=ServerNoise(Skellam(Fraction(1))))]
    for round in rounds:
        promise_shortfall(round.promise, round.noise)
    monkeypatch.setattr(promises, "_kept_epsilon", None)
    for _ in range(3):
        kept, broken = (Round.from_bytes(each.to_bytes()) for each in rounds)
        kept.expect_promise_kept()
        assert refusal(broken.expect_promise_kept) is MessageVerdict.PROMISE_NOT_KEPT


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"events": 0}, "events"),
        ({"each": 5}, "each <= events"),
        ({"events": 2**20 + 1}, "at most 1048576 events"),
        ({"events": 2**20}, "change at most"),
        ({"levels": 101}, "at most 100 levels"),
        ({"levels": True}, "levels"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": Fraction(2, 10**9)}, "a ledger can count"),
        ({"epsilon": 2 * 10**9}, "a ledger can count"),
        ({"delta": 1}, "delta"),
    ],
)
def test_promises_that_cannot_be_meant(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        replace(ONCE, **changes)


def test_a_promise_is_read_as_it_was_written_and_its_costs_add_up() -> None:
    assert promise_from_plain(ONCE.to_plain()) == ONCE
    deep = replace(ONCE, levels=9)
    assert sum(deep.costs, Budget.NOTHING) == deep.cost == Budget(deep.epsilon, deep.delta)
    assert [a_round(level=level).cost for level in (0, 1)] == list(PROMISE.costs)


# Whoever takes part looks for itself, before anything changes.


@pytest.mark.parametrize(
    "bare",
    [
        a_round(task="bare", noise=ServerNoise(Skellam(Fraction(1, 10**6))), smallest_batch=1),
        a_round(task="cheap", promise=replace(PROMISE, epsilon=Fraction(1, 10**6))),
        a_round(task="deep", promise=replace(PROMISE, levels=3)),
    ],
    ids=lambda each: each.task,
)
def test_no_party_opens_a_round_whose_noise_does_not_keep_its_promise(bare: Round) -> None:
    world = World(a_round())
    for party in (world.proxy, world.server):
        assert refusal(party.open_round, bare) is MessageVerdict.PROMISE_NOT_KEPT
    assert world.proxy_store.round(bare.digest) is world.server_store.round(bare.digest) is None
    assert refusal(world.proxy.phase, bare.digest) is MessageVerdict.UNKNOWN_ROUND


# Later rounds are paid for by the first.


def released(round: Round) -> World:
    world = World(round)
    world.report(ROWS)
    assert world.drive() is ProxyPhase.RELEASED
    return world


def next_level(first: World, **changes: Any) -> World:
    """The second round of the run, or of one that claims to be it, on the same ledgers."""
    world = World(
        a_round(level=1, **changes),
        limit="",
        proxy_ledger=first.proxy_ledger,
        server_ledger=first.server_ledger,
    )
    world.report(ROWS)
    return world


def expect_unpaid(world: World, words: str) -> None:
    with pytest.raises(Refused, match=words) as refused:
        world.drive()
    assert refused.value.reason is MessageVerdict.PROMISE_NOT_KEPT
    assert states(world) == (None, None)
    assert not world.proxy_key.drawn
    assert world.proxy_store.share(world.digest) is None


def test_the_next_level_of_a_run_is_paid_for() -> None:
    world = next_level(released(a_round()))
    assert world.drive() is ProxyPhase.RELEASED
    assert states(world) == (ReservationState.COMMITTED, ReservationState.COMMITTED)
    purposes = [world.proxy_ledger.reservation(f"gather/clicks/{level}/proxy").purpose for level in (0, 1)]
    assert all(each.startswith(f"run {world.round.run_digest.hex()} round ") for each in purposes)
    assert purposes[1].endswith(world.digest.hex())


def test_a_level_alone_is_not_released_for_next_to_nothing() -> None:
    world = World(a_round(level=1), limit="1/1000000")
    world.report(ROWS)
    expect_unpaid(world, "first round was never paid")
    with pytest.raises(BadInput, match="below the 2 levels"):
        a_round(level=50)


OTHERS: dict[str, dict[str, Any]] = {
    "a typo in the name": {"task": "click"},
    "more noise": {"noise": ServerNoise(Skellam(LAW.variance + 1))},
    "another promise": {"promise": replace(PROMISE, epsilon=Fraction(65))},
    "more parties": {"parties": 41},
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_a_level_of_another_run_is_not_paid_for(changes: dict[str, Any]) -> None:
    world = next_level(released(a_round()), **changes)
    expect_unpaid(world, "never paid" if "task" in changes else "another run")


def test_a_level_on_another_line_is_not_paid_for() -> None:
    first = released(a_round())
    other = a_round(level=1, scope="elsewhere")
    for ledger in (first.proxy_ledger, first.server_ledger):
        ledger.grant(other.line, Budget.of(64, "1e-6"))
    expect_unpaid(next_level(first, scope="elsewhere"), "another run")


@pytest.mark.parametrize("state", [ReservationState.ABORTED, ReservationState.RESERVED])
def test_a_first_payment_that_was_or_can_be_taken_back_pays_for_nothing(state: ReservationState) -> None:
    """Reserved only, the first could be aborted afterwards, and the second would have been free."""

    class NotSpent(MemoryLedger):
        def reservation(self, key: str) -> Reservation | None:
            found = super().reservation(key)
            return found and replace(found, state=state) if key.endswith("/0/proxy") else found

    first = World(a_round(), proxy_ledger=NotSpent())
    first.report(ROWS)
    first.drive()
    with pytest.raises(Refused, match="never paid"):
        next_level(first).drive()


def test_the_server_looks_for_itself() -> None:
    first = released(a_round())
    first.server_ledger = MemoryLedger()
    first.server_ledger.grant(first.round.line, Budget.of(64, "1e-6"))
    world = next_level(first)
    with pytest.raises(Refused, match="never paid"):
        world.drive()
    assert not world.server_key.drawn
    assert world.server_store.result(world.digest) is None


def test_rounds_of_one_run_have_one_name_for_it() -> None:
    first = a_round()
    assert a_round(level=1, cells=5, opens=1, closes=2, smallest_batch=1).run_digest == first.run_digest
    for change in (
        {"task": "x"},
        {"scope": "x"},
        *(each for each in OTHERS.values()),
        {"proxy_key": b"x" * 32},
    ):
        assert a_round(**change).run_digest != first.run_digest


# One draw for ever.


def shared(world: World) -> tuple[bytes, World]:
    mine = world.proxy.agreement(world.digest, AFTER)
    return world.proxy.noisy_share(world.digest, mine).share, world


def ready(rows: list[list[int]] = ROWS, **kept: Any) -> World:
    """The same devices with the same uploads, up to the agreement, on new stores."""
    world = World(a_round(), **kept)
    world.report(rows)
    world.drive(DURING)
    return world


def test_noise_drawn_again_for_the_same_set_is_the_same() -> None:
    """All of a proxy's files were put back to before its share left: it sends the same share."""
    first, _ = shared(ready())
    again, world = shared(ready())
    assert first == again
    assert world.noise.any()
    one, other = (released(a_round()) for _ in range(2))
    assert one.server_store.result(one.digest) == other.server_store.result(other.digest)


def test_other_sets_rounds_and_parties_have_other_noise() -> None:
    def drawn(round: Round, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        world = World(round)
        world.report(np.zeros((count, round.cells), np.int64))
        world.drive()
        proxy = round.group.from_bytes(world.proxy_store.share(round.digest), round.cells)
        totals = [round.group.from_bytes(each, round.cells) for each in world.server_store.totals(round.digest)]
        noise = round.group.lift(round.group.add(round.group.total(np.array(totals)), proxy))
        return tuple(noise.tolist()), tuple((world.server.result(round.digest, AFTER).values - noise).tolist())

    wide = a_round(cells=64)
    noises = {*drawn(wide, 3), *drawn(wide, 4), *drawn(replace(wide, task="other"), 3)}
    assert len(noises) == 6  # of 64 counts each: alike by chance with probability far below 1e-30


def test_other_sums_of_the_same_ids_get_other_noise() -> None:
    """A restored service may be given other reports under known ids: equal noise would show the difference."""
    round, ids_hash = a_round(), bytes(32)
    sums = [round.group.residues(np.array(each)) for each in ([1, 2, 3], [1, 2, 4], [0, 0, 0])]
    contents = {content_hash(round, ids_hash, each) for each in sums}
    contents |= {
        content_hash(round, b"1" * 32, sums[0]),
        content_hash(replace(round, level=1), ids_hash, sums[0]),
    }
    assert len(contents) == 5
    words = {noise_words(PROXY_KEY, PartyRole.PROXY, round, each)(4).tobytes() for each in contents}
    assert len(words) == 5
    assert content_hash(round, ids_hash, sums[0].copy()) in contents


@pytest.mark.parametrize("role", PartyRole)
def test_the_noise_that_a_key_makes_has_its_law(role: PartyRole) -> None:
    """A draw of many counts, and the same count drawn for many sets."""
    pmf = {x: LAW.pmf(x) for x in range(-5, 6)}
    pmf[9] = 1 - sum(pmf.values())
    wide, one = a_round(cells=4000), a_round(cells=1)
    sets = [number.to_bytes(32, "big") for number in range(2000)]
    for drawn in (
        draw_party_noise(wide, 3, noise_words(PROXY_KEY, role, wide, sets[0])),
        np.concatenate([draw_party_noise(one, 3, noise_words(PROXY_KEY, role, one, each)) for each in sets]),
    ):
        found = [x if abs(x) <= 5 else 9 for x in wide.group.lift(drawn).tolist()]
        assert_matches_pmf(Counter(found), pmf)
        with pytest.raises(AssertionError):  # the twin adds half of it
            assert_matches_pmf(Counter(x // 2 for x in found), pmf)


def test_what_a_ledger_still_has_as_reserved_has_not_left() -> None:
    """The share is kept, and the process dies before its payment is final: nobody gets it before that."""

    class Dying(MemoryLedger):
        def commit(self, key: str, attempt: str | None = None) -> Reservation:
            raise OSError(key, attempt)

    ledger = Dying()
    world = ready(proxy_ledger=ledger)
    mine = world.proxy.agreement(world.digest, AFTER)
    for _ in range(2):
        with pytest.raises(OSError, match="proxy"):
            world.proxy.noisy_share(world.digest, mine)
        assert world.proxy_store.share(world.digest) is not None
        assert states(world)[0] is ReservationState.RESERVED
    whole = MemoryLedger()
    whole.now = ledger.now
    revived = Proxy(world.proxy_key, world.proxy_store, whole, enrolment_secret=ENROLMENT, check_key=CHECK)
    assert revived.noisy_share(world.digest, mine).share == world.proxy_store.share(world.digest)
    found = whole.reservation(f"{world.round.key}/proxy")
    assert found is not None
    assert found.state is ReservationState.COMMITTED


def test_a_round_that_would_take_long_to_check_is_refused() -> None:
    promise = Promise(100, 7, 2, Fraction(1), Fraction(1, 10**6))
    with pytest.raises(BadInput, match="too many ways"):
        expect_kept(promise, ServerNoise(DiscreteGaussian(Fraction(10**8))))
