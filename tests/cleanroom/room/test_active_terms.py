"""What a room opens with, which terms it takes up, and what each release costs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tacit.cleanroom.protocol.agreement import Agreement, AgreementStep
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.modes import Mode, Signer, budget_summary, statement_after
from tacit.cleanroom.room.party import Room
from tacit.cleanroom.room.payment import budget_line, release_name
from tacit.cleanroom.room.store import MemoryRoomStore
from tacit.errors import BadInput, RoomError
from tacit.memory_ledger import MemoryLedger
from tacit.privacy.budget import Budget
from tests.support.cleanroom_rooms import (
    NOW,
    PLATFORM,
    PLATFORM_KEY,
    ROOM_KEY,
    a_room,
    both,
    for_labels,
    honest_step,
    noised_terms,
    refused,
    signed,
    some_parts,
    some_table,
    some_tokens,
    state_but_for_the_log,
    step,
    terms,
)

# --- opening


def test_a_room_opens_only_with_terms_that_both_signed() -> None:
    one = Agreement.propose(terms()).sign(Signer.PLATFORM, PLATFORM_KEY)
    parts = some_parts()
    del parts["signing_key"]
    with refused(RoomRefusal.NOT_SIGNED):
        Room(one, some_table(), signing_key=ROOM_KEY, **parts)
    with pytest.raises(BadInput, match="signing key"):
        Room(signed(terms()), some_table(), signing_key=PLATFORM_KEY, **parts)
    with pytest.raises(BadInput, match="secret"):
        Room(signed(terms()), some_table(), signing_key=ROOM_KEY, **{**parts, "secret": b"short"})
    with pytest.raises(BadInput, match="cart"):
        Room(signed(terms(tasks=("cart",))), some_table(), signing_key=ROOM_KEY, **parts)


def test_an_older_agreement_than_the_one_kept_is_refused() -> None:
    parts = some_parts()
    first = signed(terms())
    tightened = first.amend(terms(smallest_batch=100), Signer.ROOM, ROOM_KEY)
    Room(tightened, some_table(), **parts)
    with refused(RoomRefusal.CONFLICT):
        Room(first, some_table(), **parts)
    assert Room(tightened, some_table(), **parts).terms.smallest_batch == 100


def test_a_stripped_signature_does_not_undo_a_tightening() -> None:
    parts = some_parts()
    first = signed(terms())
    tightened = first.amend(terms(epsilon=1), Signer.ROOM, ROOM_KEY)
    room = Room(tightened, some_table(), **parts)
    stripped = Agreement((*tightened.steps[:-1], replace(tightened.steps[-1], signatures={})))
    for other in (stripped, stripped.amend(terms(smallest_batch=5), Signer.PLATFORM, PLATFORM_KEY)):
        with refused(RoomRefusal.CONFLICT):
            room.amend(other, now=NOW)
        with refused(RoomRefusal.CONFLICT):
            Room(Agreement.from_bytes(other.to_bytes()), some_table(), **parts)
    assert room.terms.epsilon == 1


def test_another_name_is_another_agreement() -> None:
    """Budgets are kept by name: one history under two of them would have what was agreed twice."""
    first = signed(terms())
    with pytest.raises(BadInput, match="expected name to stay spring"):
        both(first, terms(name="autumn", smallest_batch=100))
    step = AgreementStep(1, first.steps[0].digest, terms(name="autumn"))
    forced = Agreement((*first.steps, step)).sign(Signer.PLATFORM, PLATFORM_KEY).sign(Signer.ROOM, ROOM_KEY)
    with refused(RoomRefusal.NOT_SIGNED):
        Room(forced, some_table(), **some_parts())


def test_a_repeat_that_overtakes_the_first_call_gets_the_same_answer() -> None:
    """A platform that lost patience asks again while the room is still at work on the first call."""
    room = a_room(noised_terms())
    request, slabs = honest_step(room.terms, 32)
    overtaken = []

    def meanwhile() -> Iterator[bytes]:
        overtaken.append(room.step(request, slabs, peer=PLATFORM, now=NOW))
        yield from slabs

    answer = room.step(request, meanwhile(), peer=PLATFORM, now=NOW)
    assert np.array_equal(answer.sum, overtaken[0].sum)


def test_another_store_pays_again() -> None:
    """It counts from nothing: K releases from each of two stores are two payments, or one refusal."""
    ledger, stores = MemoryLedger(), [MemoryRoomStore(), MemoryRoomStore()]
    rooms = [a_room(noised_terms(), ledger=ledger, store=store) for store in stores]
    step(rooms[0])
    with refused(RoomRefusal.BUDGET):
        step(rooms[1])
    with refused(RoomRefusal.BUDGET):
        step(a_room(noised_terms(), ledger=ledger))  # the store was lost
    step(a_room(noised_terms(), ledger=ledger, store=stores[0]), first=32, number=1)  # a restart pays nothing
    ledger.grant(budget_line(noised_terms()), noised_terms().budget + noised_terms().budget)
    step(rooms[1])
    account = ledger.account(budget_line(noised_terms()))
    assert account is not None
    assert account.used.budget.epsilon == 2 * noised_terms().epsilon


def test_a_store_that_was_put_back_before_what_it_paid_for_is_refused() -> None:
    ledger, store, agreement = MemoryLedger(), MemoryRoomStore(), signed(noised_terms())
    room = a_room(noised_terms(), ledger=ledger, store=store)
    old = copy.deepcopy(store._state)
    renewed = both(agreement, noised_terms(label_version=1))
    room.amend(renewed, now=NOW)
    step(room)
    store._state = old
    with pytest.raises(RoomError, match="counts were lost"):
        Room(renewed, some_table(), **some_parts(ledger=ledger, store=store))


# --- paying


def test_the_first_release_is_charged_once_and_no_refusal_is() -> None:
    ledger = MemoryLedger()
    room = a_room(ledger=ledger)
    line = budget_line(room.terms)

    def spent() -> Fraction:
        account = ledger.account(line)
        assert account is not None
        return account.used.budget.epsilon

    with refused(RoomRefusal.TOO_SMALL_BATCH):
        step(room, rows=3)
    assert spent() == 0
    assert room.describe(peer=PLATFORM, now=NOW).remaining.epsilon_left == 3
    for number in range(3):
        step(room, number=number)
    assert spent() == 3
    remaining = room.describe(peer=PLATFORM, now=NOW).remaining
    assert remaining.epsilon_left == 0
    assert remaining.epsilon_spent == 3
    charged = [entry.event["charged"] for entry in room.audit(0, peer=PLATFORM) if "charged" in entry.event]
    assert charged == [str(Budget.of(3)), "nothing", "nothing"]


def test_what_decides_the_draws_names_the_release_and_nothing_else_does() -> None:
    flips, sums = terms(), noised_terms(releases_per_record=2)
    same_flips = [
        terms(mode=Mode.RELEASE),
        terms(
            smallest_batch=9, codecs=("fp32",), expires=NOW, metrics=False, clip_norm=2, dense_sequences=True
        ),
    ]
    same_sums = [noised_terms(releases_per_record=2, clip_norm=3, tasks=("conversion", "cart"))]
    assert {release_name(each) for each in same_flips} == {release_name(flips)}
    assert {release_name(each) for each in same_sums} == {release_name(sums)}
    others = [
        flips,
        sums,
        terms(epsilon=2),
        terms(window=1),
        terms(label_version=1),
        terms(name="autumn"),
        terms(join="psi", most_ids=99),
        terms(join="psi", most_ids=98),
        terms(tasks=("cart",)),
        noised_terms(),
        noised_terms(delta="1e-7", releases_per_record=2),
        noised_terms(noise="laplace", delta=0, releases_per_record=2),
        terms(mode=Mode.STATISTIC, delta="1e-6"),
    ]
    assert len({release_name(each) for each in others}) == len(others)


def test_flips_that_were_summed_can_be_handed_over_without_paying_again() -> None:
    room = a_room(terms())
    step(room)
    room.amend(both(signed(terms()), terms(mode=Mode.RELEASE)), now=NOW)
    room.labels(*for_labels(room.terms, some_tokens(8)), peer=PLATFORM, now=NOW)
    assert room.describe(peer=PLATFORM, now=NOW).remaining.epsilon_spent == 3


def test_tightened_terms_after_a_release_are_not_paid_until_both_renew() -> None:
    store = MemoryRoomStore()
    room = a_room(terms(epsilon=3), store=store)
    agreement = signed(terms(epsilon=3))
    step(room)
    room.amend(agreement.amend(terms(epsilon=2), Signer.ROOM, ROOM_KEY), now=NOW)
    before = state_but_for_the_log(store)
    with refused(RoomRefusal.BUDGET):
        step(room)
    assert state_but_for_the_log(store) == before
    again = both(agreement.amend(terms(epsilon=2), Signer.ROOM, ROOM_KEY), terms(epsilon=2, label_version=1))
    room.amend(again, now=NOW)
    step(room)
    assert room.describe(peer=PLATFORM, now=NOW).remaining.epsilon_spent == 5


def test_statements_say_what_was_released_under_earlier_terms_and_what_may_still_be() -> None:
    room, agreement = a_room(terms(epsilon=3)), signed(terms(epsilon=3))

    def said() -> tuple[str, tuple[str, ...]]:
        remaining = room.describe(peer=PLATFORM, now=NOW).remaining
        return budget_summary(room.terms, remaining), statement_after(room.terms, remaining).not_protected

    assert said()[0].startswith(
        "Nothing was released so far. Under the terms in force, (ε = 3, δ = 0) may still"
    )
    step(room)
    so_far = "What was released so far is {} about one record's labels, under all terms ever in force."
    three = so_far.format("(ε = 3, δ = 0)")
    only = " No more may be: under the terms in force leaves only what is paid for already."
    assert said() == (three + only, room.terms.statement().not_protected)
    tightened = agreement.amend(terms(epsilon="0.5"), Signer.ROOM, ROOM_KEY)
    room.amend(tightened, now=NOW)  # its own statement speaks of (0.5, 0), and nothing of it ever leaves
    assert said()[0] == three + only
    assert "earlier terms as well: in all, (ε = 3, δ = 0) was released" in said()[1][-1]
    room.amend(both(tightened, terms(epsilon="0.5", label_version=1)), now=NOW)
    assert said()[0] == f"{three} Under the terms in force, (ε = 0.5, δ = 0) may still be released."
    step(room)
    assert said()[0].startswith(so_far.format("(ε = 3.5, δ = 0)"))
    assert "in all, (ε = 3.5, δ = 0) was released" in said()[1][-1]


def test_terms_that_are_no_longer_in_force_are_refused() -> None:
    room = a_room()
    request, slabs = honest_step(room.terms)
    room.amend(signed(terms()).amend(terms(smallest_batch=5), Signer.ROOM, ROOM_KEY), now=NOW)
    with refused(RoomRefusal.UNKNOWN_AGREEMENT):
        room.step(request, slabs, peer=PLATFORM, now=NOW)
    with refused(RoomRefusal.CONFLICT):
        room.amend(signed(terms(smallest_batch=6)), now=NOW)


def test_a_call_under_way_when_other_terms_come_into_force_is_refused() -> None:
    for agreed in (terms(), noised_terms()):
        store = MemoryRoomStore()
        room = a_room(agreed, store=store)
        tightened = signed(agreed).amend(replace(agreed, smallest_batch=5), Signer.ROOM, ROOM_KEY)
        request, slabs = honest_step(agreed)

        def amending(room: Room, tightened: Agreement, slabs: list[bytes]) -> Iterator[bytes]:
            yield from slabs[:-1]
            room.amend(tightened, now=NOW)
            yield slabs[-1]

        with refused(RoomRefusal.UNKNOWN_AGREEMENT):
            room.step(request, amending(room, tightened, slabs), peer=PLATFORM, now=NOW)
        assert {"counts": {}, "answered": {}}.items() <= state_but_for_the_log(store).items()
        assert room.describe(peer=PLATFORM, now=NOW).remaining.epsilon_spent == 0
        step(room)


def test_taking_up_the_same_terms_again_ends_no_call() -> None:
    room = a_room()
    request, slabs = honest_step(room.terms)

    def amending() -> Iterator[bytes]:
        room.amend(signed(terms()).amend(terms(epsilon=9), Signer.PLATFORM, PLATFORM_KEY), now=NOW)  # it waits
        yield from slabs

    room.step(request, amending(), peer=PLATFORM, now=NOW)
