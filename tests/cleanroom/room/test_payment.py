"""What a room's ledger may pay for as an agreement is amended: what one gives up, the other cannot spend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.cleanroom.protocol.agreement import Agreement, loosened_fields
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.modes import Mode, Signer
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.room.active_terms import activate_terms, adopt_agreement, store_identity
from tacit.cleanroom.room.labels import LabelTable
from tacit.cleanroom.room.party import Room
from tacit.cleanroom.room.payment import (
    agreed_budget,
    budget_line,
    can_pay,
    charge_release,
    possible_budgets,
    release_ledger_key,
    release_name,
)
from tacit.cleanroom.room.store import MemoryRoomStore
from tacit.entropy import Simulation
from tacit.errors import RoomRefused
from tacit.memory_ledger import MemoryLedger
from tacit.privacy.budget import Budget
from tacit.store.ledger import LedgerStore
from tests.support.cleanroom_rooms import (
    NOW,
    PLATFORM,
    PLATFORM_KEY,
    ROOM_KEY,
    a_room,
    both,
    for_labels,
    honest_step,
    refused,
    signed,
    some_parts,
    some_table,
    some_tokens,
    step,
    terms,
)

KEYS = {Signer.PLATFORM: PLATFORM_KEY, Signer.ROOM: ROOM_KEY}
HAIR = Fraction(1, 10**9)


def of(epsilon: Any, **changes: Any) -> Terms:
    return terms(epsilon=epsilon, **changes)


def by(role: Signer, agreement: Agreement, changed: Terms) -> Agreement:
    """One tightens alone."""
    amended = agreement.amend(changed, role, KEYS[role])
    assert amended.in_force == changed
    return amended


def paid(*some: Terms) -> Callable[[Terms], bool]:
    names = {release_name(each) for each in some}
    return lambda each: release_name(each) in names


def labels(room: Room, count: int = 64) -> np.ndarray:
    request, slabs = for_labels(room.terms, some_tokens(count))
    return room.labels(request, slabs, peer=PLATFORM, now=NOW).labels


# --- the rule


def test_only_what_needed_both_signatures_is_granted() -> None:
    first = signed(of(3))
    assert agreed_budget(first, paid()) == agreed_budget(first, paid(of(3))) == Budget.of(3)
    longer = both(first, of(3, expires=3 * NOW))
    assert agreed_budget(longer, paid(of(3))) == Budget.of(3)  # the draws stay the same
    waiting = first.amend(of(5), Signer.PLATFORM, PLATFORM_KEY)
    assert agreed_budget(waiting, paid()) == agreed_budget(waiting, paid(of(3))) == Budget.of(3)
    assert agreed_budget(waiting.sign(Signer.ROOM, ROOM_KEY), paid(of(3))) == Budget.of(8)
    assert agreed_budget(waiting.sign(Signer.ROOM, ROOM_KEY), paid()) == Budget.of(5)
    renewed = both(longer, of(3, label_version=1))
    assert agreed_budget(renewed, paid(of(3))) == Budget.of(6)
    assert agreed_budget(both(longer, of(3, window=1)), paid(of(3))) == Budget.of(6)


def test_a_tightening_before_anything_left_gives_the_rest_up() -> None:
    tightened = by(Signer.ROOM, signed(of(3)), of("0.5"))
    assert agreed_budget(tightened, paid()) == Budget.of("0.5")
    assert agreed_budget(tightened.sign(Signer.PLATFORM, PLATFORM_KEY), paid()) == Budget.of("0.5")
    again = by(Signer.PLATFORM, tightened, of("0.4999"))
    assert agreed_budget(again, paid()) == Budget.of("0.4999")
    assert agreed_budget(again, paid(of("0.5"))) == Budget.of("0.5")
    assert agreed_budget(by(Signer.PLATFORM, again, of("0.4")), paid(of("0.5"))) == Budget.of("0.5")


def test_a_tightening_after_something_left_adds_nothing() -> None:
    tightened = by(Signer.ROOM, signed(of(3)), of("0.5"))
    assert agreed_budget(tightened, paid(of(3))) == Budget.of(3)
    fewer = by(Signer.ROOM, signed(of(3, tasks=("cart", "conversion"))), of("1.5", tasks=("cart",)))
    assert agreed_budget(fewer, paid(of(3, tasks=("cart", "conversion")))) == Budget.of(3)
    assert agreed_budget(fewer, paid()) == Budget.of("1.5")


def test_what_both_renewed_can_be_tightened_too() -> None:
    renewed = both(signed(of(3)), of(5))
    tightened = by(Signer.ROOM, renewed, of(1))
    assert agreed_budget(tightened, paid(of(3))) == Budget.of(4)
    assert agreed_budget(tightened, paid(of(3), of(5))) == Budget.of(8)
    assert agreed_budget(by(Signer.PLATFORM, tightened, of("0.9")), paid(of(3), of(1))) == Budget.of(4)


def test_both_can_bring_back_what_one_gave_up() -> None:
    back = both(by(Signer.ROOM, signed(of(3)), of("0.5")), of(3))
    assert agreed_budget(back, paid()) == Budget.of(3)
    assert agreed_budget(back, paid(of("0.5"))) == Budget.of("3.5")
    assert agreed_budget(back, paid(of(3))) == Budget.of(3)  # back to draws that are paid for
    assert agreed_budget(by(Signer.PLATFORM, back, of("0.5")), paid()) == Budget.of("0.5")
    assert agreed_budget(by(Signer.PLATFORM, back, of("0.4")), paid(of("0.5"))) == Budget.of("0.9")


def test_a_later_end_does_not_pay_for_draws_that_a_tightening_made_fresh() -> None:
    """Else the platform tightens by a hair, asks for "only a later end", and has every label flipped again."""
    hair = by(Signer.PLATFORM, signed(of(3)), of("2.999"))
    longer = both(hair, of("2.999", expires=3 * NOW))
    assert agreed_budget(longer, paid(of(3))) == Budget.of(3)
    room = a_room(of(3))
    step(room)
    room.amend(longer, now=NOW)
    with refused(RoomRefusal.BUDGET):
        step(room)
    assert agreed_budget(both(longer, of(3)), paid(of(3))) == Budget.of(3)
    renewed = both(longer, of("2.999", expires=3 * NOW, label_version=1))
    assert agreed_budget(renewed, paid(of(3))) == Budget.of("5.999")


def test_what_is_possible_without_a_look_at_the_ledger() -> None:
    first = signed(of(3))
    assert possible_budgets(()) == (Budget.NOTHING, Budget.NOTHING)
    assert possible_budgets(first.steps) == (Budget.of(3), Budget.of(3))
    waiting = first.amend(of(5), Signer.PLATFORM, PLATFORM_KEY)
    assert possible_budgets(waiting.steps) == (Budget.of(5), Budget.of(8))
    tightened = by(Signer.ROOM, first, of("0.5"))
    assert possible_budgets(tightened.steps) == (Budget.of("0.5"), Budget.of(3))
    assert possible_budgets(both(tightened, of(3)).steps) == (Budget.of(3), Budget.of("3.5"))


# --- every history, against every way to pay

Move = tuple[str, int, bool]
MOVES = st.lists(
    st.tuples(st.sampled_from(["both", "room", "platform"]), st.integers(1, 6), st.booleans()), max_size=9
)


@settings(max_examples=60, deadline=None)
@given(MOVES, st.booleans())
def test_whoever_signs_what_and_asks_when_nothing_leaves_that_nobody_signed_for(
    moves: list[Move], early: bool
) -> None:
    """A slow truth: at each step the platform asks or does not. Since both last signed for fresh draws, at most
    one release was paid, for no more than the terms in force when it was."""
    agreement, ledger, store = signed(of(6)), MemoryLedger(), MemoryRoomStore()
    since, passed, bought = Budget.NOTHING, set[str](), set[str]()
    for place, (who, epsilon, asks) in enumerate([("both", 6, early), *moves]):
        before, changed = agreement.in_force, of(epsilon)
        if place and changed != before:
            if who != "both" and loosened_fields(before, changed):
                continue
            agreement = both(agreement, changed) if who == "both" else by(Signer(who), agreement, changed)
            if loosened_fields(before, changed):
                since, passed = Budget.NOTHING, set()
        with store.transaction() as transaction:
            adopt_agreement(activate_terms(agreement, some_table(), bytes(32)), transaction, ledger, "store")
        now, spent = agreement.in_force, _used(ledger)
        passed.add(release_name(now))
        if asks:
            try:
                charge_release(now, ledger, "store", "labels")
            except RoomRefused:
                assert passed & bought, "only what took the place of a paid release is refused"
        new = _used(ledger).less(spent)
        assert new in (Budget.NOTHING, now.budget)
        assert Budget.NOTHING in (since, new)
        since, bought = since + new, bought | ({release_name(now)} if new != Budget.NOTHING else set())
        least, most = possible_budgets(agreement.steps)
        account = ledger.account(budget_line(now))
        assert account is not None
        assert account.limit.budget.fits(most)
        if not bought:
            assert account.limit.budget == least


def _used(ledger: MemoryLedger) -> Budget:
    account = ledger.account(budget_line(of(1)))
    return Budget.NOTHING if account is None else account.used.budget


# --- rooms


@pytest.fixture(params=["memory", "file"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryLedger() if request.param == "memory" else LedgerStore.open(tmp_path / "ledger.sqlite")


def test_the_platform_cannot_spend_what_the_room_gave_up(ledger: Any) -> None:
    """Both signed 3, the room wants .5; a platform that tightens by a hair after each gets one."""
    agreement = signed(of(3, mode=Mode.RELEASE))
    room = a_room(of(3, mode=Mode.RELEASE), ledger=ledger)
    epsilon = Fraction(1, 2)
    agreement = by(Signer.ROOM, agreement, of(epsilon, mode=Mode.RELEASE))
    room.amend(agreement, now=NOW)
    assert room.describe(peer=PLATFORM, now=NOW).remaining.epsilon_left == epsilon
    labels(room)
    for _ in range(3):
        epsilon -= HAIR
        agreement = by(Signer.PLATFORM, agreement, of(epsilon, mode=Mode.RELEASE))
        room.amend(agreement, now=NOW)
        with refused(RoomRefusal.BUDGET):
            labels(room)
    remaining = room.describe(peer=PLATFORM, now=NOW).remaining
    assert (remaining.epsilon_spent, remaining.epsilon_left) == (Fraction(1, 2), Fraction(0))
    if isinstance(ledger, LedgerStore):
        ledger.verify()  # a limit that sinks is a history like any other


def test_a_restart_grants_the_same(ledger: Any) -> None:
    parts = some_parts(ledger=ledger)
    agreement = by(Signer.ROOM, signed(of(3)), of(1))
    for asks in (False, True, False):
        room = Room(agreement, some_table(), **parts)
        if asks:
            step(room)
        account = ledger.account(budget_line(room.terms))
        assert account.limit.budget == Budget.of(1)
    step(Room(agreement, some_table(), **parts), number=1)  # paid before


def test_a_limit_below_what_was_used_pays_for_nothing_and_stops_nobody(ledger: Any) -> None:
    """Another store, or an older version, has spent more than this agreement knows of."""
    charged = of(3, label_version=7)
    ledger.grant(budget_line(charged), Budget.of(9))
    charge_release(charged, ledger, "another", "labels")
    store = MemoryRoomStore()
    room = a_room(of(2), ledger=ledger, store=store)
    with refused(RoomRefusal.BUDGET):
        step(room)
    assert ledger.account(budget_line(charged)).remaining.budget == Budget.NOTHING
    room.amend(by(Signer.ROOM, signed(of(2)), of(1)), now=NOW)
    with refused(RoomRefusal.BUDGET):
        step(room)
    assert ledger.account(budget_line(charged)).limit.budget == Budget.of(3)


def test_a_new_store_pays_for_nothing_until_both_agree_on_more(ledger: Any) -> None:
    agreement = by(Signer.ROOM, signed(of(3)), of(1))
    first, second = some_parts(ledger=ledger), some_parts(ledger=ledger)
    step(Room(agreement, some_table(), **first))
    room = Room(agreement, some_table(), **second)  # the first one's store was lost
    with refused(RoomRefusal.BUDGET):
        step(room)
    agreement = both(agreement, of(1, expires=3 * NOW))  # a later end: no fresh draws
    room.amend(agreement, now=NOW)
    with refused(RoomRefusal.BUDGET):
        step(room)
    room.amend(by(Signer.PLATFORM, agreement, of(1 - HAIR, expires=3 * NOW)), now=NOW)
    with refused(RoomRefusal.BUDGET):
        step(room)
    agreement = both(by(Signer.PLATFORM, agreement, of(1 - HAIR, expires=3 * NOW)), of(2, label_version=1))
    Room(agreement, some_table(), **second)
    step(Room(agreement, some_table(), **second))
    assert ledger.account(budget_line(of(2))).limit.budget == Budget.of(3)
    assert ledger.account(budget_line(of(2))).remaining.budget == Budget.NOTHING


def test_a_release_that_was_reserved_and_never_left_is_no_budget_for_others(tmp_path: Path) -> None:
    ledger, store = LedgerStore.open(tmp_path / "ledger.sqlite"), MemoryRoomStore()
    room = a_room(of(3), ledger=ledger, store=store)
    ledger.reserve(
        release_ledger_key(of(3), room._store_id), budget_line(of(3)), Budget.of(3), "clean room spring"
    )
    ledger.abort(release_ledger_key(of(3), room._store_id))
    agreement = by(Signer.ROOM, signed(of(3)), of("0.5"))
    room.amend(agreement, now=NOW)
    step(room)
    room.amend(by(Signer.PLATFORM, agreement, of("0.4")), now=NOW)
    with refused(RoomRefusal.BUDGET):
        step(room)


def taken_up(agreement: Agreement, store: MemoryRoomStore, name: str, ledger: Any) -> None:
    with store.transaction() as transaction:
        adopt_agreement(activate_terms(agreement, some_table(), bytes(32)), transaction, ledger, name)


def test_what_others_reserved_and_never_spent_is_no_budget_for_one(tmp_path: Path) -> None:
    """A store dies with a reservation, its successor finds 3 spent, and the operator then settles that 3 as
    never having left. What both sign for next is all there is: the 3 do not come back as slack."""
    ledger = LedgerStore.open(tmp_path / "ledger.sqlite")
    first, old, new = signed(of(3)), MemoryRoomStore(), MemoryRoomStore()
    taken_up(first, old, "old", ledger)
    ledger.reserve(release_ledger_key(of(3), "old"), budget_line(of(3)), of(3).budget, "died before it left")
    taken_up(first, new, "new", ledger)
    ledger.abort(release_ledger_key(of(3), "old"), certain=True)
    more = both(first, of(5))
    taken_up(more, new, "new", ledger)
    charge_release(of(5), ledger, "new", "labels")
    taken_up(by(Signer.PLATFORM, more, of("2.9")), new, "new", ledger)
    account = ledger.account(budget_line(of(3)))
    assert account is not None
    assert account.limit.budget == account.used.budget == Budget.of(5)
    assert not can_pay(of("2.9"), ledger, "new")


def test_a_settled_reservation_is_refused_before_a_label_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, store = LedgerStore.open(tmp_path / "ledger.sqlite"), MemoryRoomStore()
    room = a_room(terms(), store=store, ledger=ledger)
    with store.transaction() as transaction:
        name = store_identity(transaction, Simulation("not needed"))
    ledger.reserve(release_ledger_key(terms(), name), budget_line(terms()), terms().budget, "a crash")
    ledger.abort(release_ledger_key(terms(), name), certain=True)
    monkeypatch.setattr(LabelTable, "look_up", lambda *_: pytest.fail("a label was read"))
    with refused(RoomRefusal.BUDGET):
        step(room)


def test_a_call_under_way_while_its_release_is_replaced_is_not_paid() -> None:
    room, agreed = a_room(of(3)), of(3)
    request, slabs = honest_step(agreed)
    tightened = by(Signer.ROOM, signed(agreed), of("0.5"))

    def amending() -> Iterator[bytes]:
        yield from slabs[:-1]
        room.amend(tightened, now=NOW)
        yield slabs[-1]

    with refused(RoomRefusal.UNKNOWN_AGREEMENT):
        room.step(request, amending(), peer=PLATFORM, now=NOW)
    step(room)
    remaining = room.describe(peer=PLATFORM, now=NOW).remaining
    assert (remaining.epsilon_spent, remaining.epsilon_left) == (Fraction(1, 2), Fraction(0))


def test_points_that_left_before_a_release_was_replaced_pay_for_nothing() -> None:
    """An offer says nothing of labels, and costs nothing; labels under its points are paid like any others."""
    agreed = of(3, join="psi", most_ids=70)
    room, agreement = a_room(agreed), signed(agreed)
    offers = [room.exchange(None, peer=PLATFORM, now=NOW)]
    for epsilon in ("0.5", "0.4"):
        agreement = by(Signer.PLATFORM, agreement, of(epsilon, join="psi", most_ids=70))
        room.amend(agreement, now=NOW)
        offers.append(room.exchange(None, peer=PLATFORM, now=NOW))
    every = [offer[at : at + 32] for offer in offers for at in range(0, len(offer), 32)]
    assert len(set(every)) == len(every) == 3 * 70  # no point comes back: offers cannot be linked
    remaining = room.describe(peer=PLATFORM, now=NOW).remaining
    assert (remaining.epsilon_spent, remaining.epsilon_left) == (Fraction(0), Fraction(2, 5))
