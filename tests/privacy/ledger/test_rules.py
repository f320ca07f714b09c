"""The ledger's rules against a slow, obvious model, and its chain against everything that could be edited."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import (
    BadInput,
    BudgetExceeded,
    LedgerConflict,
    LedgerCorrupt,
    LedgerError,
    RelationMismatch,
    ReservationTaken,
    UnknownLine,
    UnknownReservation,
)
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.chain import START, ChainEntry, decode_event, encode_event, next_chain_entry, replay
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.ledger.lines import (
    NOTHING,
    Amount,
    HistoryAccepted,
    LedgerEvent,
    Line,
    LineGranted,
    ReleaseMade,
    ReservationClaimed,
    ReservationCommitted,
    Series,
)
from tacit.privacy.ledger.rules import Account, Change, Ledger, Renewal, ReservationState, cost_on
from tacit.privacy.units import Relation, Unit, UnitKind, Window

WEEKLY = Unit(UnitKind.USER, Window.days(7))
ALL_TIME = Line("clicks", Unit(UnitKind.USER), Relation.REPLACE_ONE)
WEEKS = Series("clicks", WEEKLY, Relation.REPLACE_ONE)
LINES = [ALL_TIME, WEEKS.line(3), WEEKS.line(4)]


@dataclass(frozen=True)
class Step:
    """One call of the ledger."""

    what: str
    key: str
    line: Line
    amount: Amount
    attempt: str | None = None
    after: str = "x"

    def on(self, ledger: Ledger) -> Change:
        calls: dict[str, Callable[[], Change]] = {
            "grant": lambda: ledger.grant(self.line, self.amount),
            "renew": lambda: ledger.renew(WEEKS, self.amount),
            "reserve": lambda: ledger.reserve(self.key, self.line, self.amount, "a test"),
            "claim": lambda: ledger.claim(self.key, self.attempt or "w", after=[self.after]),
            "make": lambda: ledger.make(self.key, self.attempt or "w", self.after),
            "hand_over": lambda: ledger.hand_over(self.key),
            "commit": lambda: ledger.commit(self.key, self.attempt),
            "abort": lambda: ledger.abort(self.key, self.attempt),
            "settle": lambda: ledger.commit(self.key, certain=True),
        }
        return calls[self.what]()


KINDS = ["grant", "renew", "reserve", "reserve", "reserve", "claim", "claim", "make", "make", "hand_over",
         "commit", "abort", "settle"]  # fmt: skip
amounts = st.builds(Amount, st.integers(1, 9), st.integers(0, 4))
steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(KINDS),
        st.sampled_from(["a", "b", "c", "d"]),
        st.sampled_from(LINES),
        amounts,
        st.sampled_from([None, "x", "y"]),
        st.sampled_from(["x", "y", "z"]),
    ),
    max_size=30,
)  # fmt: skip


@dataclass
class Model:
    """All that ever happened in plain lists; totals are counted afresh each time."""

    limits: dict[Line, Amount] = field(default_factory=dict)
    weekly: list[Amount] = field(default_factory=list)
    asked: dict[str, tuple[Line, Amount]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    holders: dict[str, str] = field(default_factory=dict)
    releases: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # by whom, and what

    def total(self, line: Line, *states: str) -> Amount:
        total = NOTHING
        for key, (where, amount) in self.asked.items():
            if where == line and self.states[key] in states:
                total += amount
        return total

    def used(self, line: Line) -> Amount:
        return self.total(line, "reserved", "committed")

    def take(self, step: Step) -> type[LedgerError] | None:
        """Do the step, or say how it must be refused."""
        return getattr(self, step.what)(step)  # type: ignore[no-any-return]

    def grant(self, step: Step) -> type[LedgerError] | None:
        if not self.used(step.line).fits(step.amount):
            return LedgerConflict
        self.limits[step.line] = step.amount
        return None

    def renew(self, step: Step) -> None:
        self.weekly.append(step.amount)

    def reserve(self, step: Step) -> type[LedgerError] | None:
        if step.key in self.asked:
            same = self.asked[step.key] == (step.line, step.amount)
            return None if same and self.states[step.key] != "aborted" else LedgerConflict
        limit = self.limits.get(step.line)
        if limit is None and self.weekly and step.line.window is not None:
            limit = self.weekly[-1]
        if limit is None:
            return UnknownLine
        if not (self.used(step.line) + step.amount).fits(limit):
            return BudgetExceeded
        self.limits[step.line] = limit
        self.asked[step.key] = (step.line, step.amount)
        self.states[step.key] = "reserved"
        return None

    def claim(self, step: Step) -> type[LedgerError] | None:
        key, attempt = step.key, step.attempt or "w"
        if key not in self.states or self.states[key] == "aborted":
            return UnknownReservation
        if self.states[key] == "committed" or self.releases.get(key):
            return ReservationTaken
        if self.holders.get(key, attempt) not in (attempt, step.after):
            return ReservationTaken
        self.holders[key] = attempt
        return None

    def make(self, step: Step) -> type[LedgerError] | None:
        key, made = step.key, (step.attempt or "w", step.after)
        if key not in self.states or self.states[key] == "aborted":
            return UnknownReservation
        if self.releases.get(key) == [made]:
            return None
        if self.releases.get(key) or self.states[key] == "committed":
            return ReservationTaken
        if self.holders.get(key, made[0]) != made[0]:
            return ReservationTaken
        self.holders[key] = made[0]
        self.releases.setdefault(key, []).append(made)
        return None

    def hand_over(self, step: Step) -> type[LedgerError] | None:
        if self.states.get(step.key, "aborted") == "aborted":
            return UnknownReservation
        if self.states[step.key] == "committed" or self.releases.get(step.key):
            return ReservationTaken
        self.holders.pop(step.key, None)
        return None

    def commit(self, step: Step) -> type[LedgerError] | None:
        if step.key in self.states:
            if self.holders.get(step.key) != step.attempt:
                return ReservationTaken
            if step.key in self.holders and not self.releases.get(step.key):
                return LedgerConflict
        return self.settled(step.key, "committed")

    def settle(self, step: Step) -> type[LedgerError] | None:
        return self.settled(step.key, "committed")

    def abort(self, step: Step) -> type[LedgerError] | None:
        allowed = self.holders.get(step.key) == step.attempt and not self.releases.get(step.key)
        if self.states.get(step.key, "aborted") != "aborted" and not allowed:
            return ReservationTaken
        return self.settled(step.key, "aborted")

    def settled(self, key: str, state: str) -> type[LedgerError] | None:
        if self.states.get(key) not in ("reserved", state):
            return UnknownReservation
        self.states[key] = state
        return None


def run(sequence: list[Step]) -> tuple[Ledger, list[LedgerEvent]]:
    ledger = Ledger()
    events: list[LedgerEvent] = []
    for step in sequence:
        try:
            change = step.on(ledger)
        except LedgerError:
            continue
        ledger = ledger.apply(change)
        events += change.events
    return ledger, events


def chained(events: list[LedgerEvent]) -> list[ChainEntry]:
    head, entries = START, []
    for event in events:
        entries.append(next_chain_entry(head, event))
        head = entries[-1].head
    return entries


@given(steps)
def test_the_rules_do_what_the_model_does(sequence: list[Step]) -> None:
    ledger, model = Ledger(), Model()
    for step in sequence:
        before = (dict(ledger.accounts), dict(ledger.reservations), dict(ledger.renewals))
        expected = model.take(step)
        if expected is None:
            ledger = ledger.apply(step.on(ledger))
        else:
            with pytest.raises(expected):
                step.on(ledger)
            assert (ledger.accounts, ledger.reservations, ledger.renewals) == before
    assert {line: account.limit for line, account in ledger.accounts.items()} == model.limits
    for line, account in ledger.accounts.items():
        assert account.spent == model.total(line, "committed")
        assert account.reserved == model.total(line, "reserved")
        assert account.used.fits(account.limit)
    assert {key: str(kept.state) for key, kept in ledger.reservations.items()} == model.states
    for key, kept in ledger.reservations.items():
        made = model.releases.get(key, [])
        assert len(made) <= 1, "a reservation leads to one release"
        assert [kept.release] * (kept.release is not None) == [release for _, release in made]
        assert (kept.attempt is None) == (key not in model.holders)


@given(steps)
def test_a_replay_gives_the_same_ledger(sequence: list[Step]) -> None:
    ledger, events = run(sequence)
    history = replay(chained(events))
    assert history.ledger == ledger
    assert history.head.sequence == len(events)
    assert [decode_event(encode_event(event)) for event in events] == events


@given(steps, st.data())
def test_every_edit_of_the_chain_is_caught(sequence: list[Step], data: st.DataObject) -> None:
    _, events = run(
        [Step("grant", "", ALL_TIME, Amount(9, 4)), Step("grant", "", LINES[1], Amount(9, 4)), *sequence]
    )
    entries = chained(events)
    at = data.draw(st.integers(0, len(entries) - 1))
    other = encode_event(LineGranted(ALL_TIME, Amount(80, 3)))  # larger than any step's
    edits = {
        "contents": [*entries[:at], replace(entries[at], contents=other), *entries[at + 1 :]],
        "hash": [*entries[:at], replace(entries[at], hash="f" * 64), *entries[at + 1 :]],
        "doubled": [*entries[: at + 1], *entries[at:]],
        "swapped": [*entries[: at - 1], entries[at], entries[at - 1], *entries[at + 1 :]]
        if at
        else entries[::-1],
        "removed": entries[:at] + entries[at + 1 :] if at + 1 < len(entries) else entries[1:],
    }
    edited = edits[data.draw(st.sampled_from(sorted(edits)))]
    with pytest.raises(LedgerCorrupt):
        replay(edited)


HELD = run([Step("grant", "", ALL_TIME, Amount(9)), Step("reserve", "a", ALL_TIME, Amount(6)),
            Step("claim", "a", ALL_TIME, Amount(1), "x")])[1]  # fmt: skip


@pytest.mark.parametrize(
    "events",
    [
        [LineGranted(ALL_TIME, Amount(5)), LineGranted(ALL_TIME, Amount(5))],
        [ReservationCommitted("never-reserved")],
        [*HELD, ReservationClaimed("a", "f" * 64, None)],
        [*HELD, ReleaseMade("a", "f" * 64, "model")],
        [LineGranted(ALL_TIME, Amount(5)), *run([Step("grant", "", ALL_TIME, Amount(9)),
                                             Step("reserve", "a", ALL_TIME, Amount(6))])[1][1:]],
    ],
    ids=["twice", "out of nothing", "claimed by two", "made by another", "over the limit"],
)  # fmt: skip
def test_a_well_made_chain_of_impossible_events_is_caught(events: list[LedgerEvent]) -> None:
    with pytest.raises(LedgerCorrupt, match=f"entry {len(events)}"):
        replay(chained(events))


@pytest.mark.parametrize(
    "contents",
    ["", "[]", "{}", '{"kind":"commit"}', '"commit"', "7",
     '{"kind": "commit","key":"a"}', '{"kind":"commit","key":"a","more":1}',
     '{"key":"a","kind":"gift"}', encode_event(LineGranted(ALL_TIME, Amount(5))).replace("user", "usher"),
     encode_event(LineGranted(ALL_TIME, Amount(5))).replace(":5", ":-5")],
)  # fmt: skip
def test_contents_that_nobody_wrote_are_refused(contents: str) -> None:
    with pytest.raises(LedgerCorrupt):
        decode_event(contents)


def test_an_acceptance_changes_no_total() -> None:
    assert replay(chained([HistoryAccepted("no witness")])).ledger == Ledger()


def test_a_refusal_names_everything() -> None:
    account = Account(ALL_TIME, Amount.limit(Budget.of(2, "1e-6")), spent=Amount.spending(Budget.of(1)))
    ledger = Ledger({ALL_TIME: account.reserve(Amount.spending(Budget.of("0.5")))})
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.reserve("k", ALL_TIME, Amount.spending(Budget.of("0.6")), "a test")
    assert refusal.value.remaining == Budget.of("0.5", "1e-6")
    for part in (
        "clicks (user, replace-one), all time",
        "asked (ε = 0.6",
        "spent (ε = 1,",
        "reserved (ε = 0.5",
    ):
        assert part in str(refusal.value)


def test_either_part_can_run_out() -> None:
    ledger = Ledger({ALL_TIME: Account(ALL_TIME, Amount.limit(Budget.of(2, "1e-6")))})
    with pytest.raises(BudgetExceeded):
        ledger.reserve("k", ALL_TIME, Amount.spending(Budget.of(1, "2e-6")), "a test")


def test_another_purpose_under_the_same_key_is_another_release() -> None:
    ledger, _ = run([Step("grant", "", ALL_TIME, Amount(9)), Step("reserve", "a", ALL_TIME, Amount(3))])
    assert ledger.reserve("a", ALL_TIME, Amount(3), "a test") == Change(reservation=ledger.reservations["a"])
    with pytest.raises(LedgerConflict, match="purpose"):
        ledger.reserve("a", ALL_TIME, Amount(3), "something else")


def test_an_aborted_key_gives_no_permission() -> None:
    ledger, _ = run([Step("grant", "", ALL_TIME, Amount(9)), Step("reserve", "a", ALL_TIME, Amount(3)),
                     Step("abort", "a", ALL_TIME, Amount(3))])  # fmt: skip
    assert ledger.reservations["a"].state is ReservationState.ABORTED
    with pytest.raises(LedgerConflict, match="new key"):
        ledger.reserve("a", ALL_TIME, Amount(3), "a test")


def test_the_ledger_does_not_show_what_an_attempt_presents() -> None:
    _, events = run([Step("grant", "", ALL_TIME, Amount(9)), Step("reserve", "a", ALL_TIME, Amount(6))])
    ledger = replay(chained(events)).ledger
    for change in (ledger.claim("a", "token-1"), ledger.make("a", "token-1", "model")):
        assert "token-1" not in encode_event(change.events[0])
        assert change.reservation is not None
        with pytest.raises(ReservationTaken):
            ledger.apply(change).make("a", str(change.reservation.attempt), "model")


def test_spending_rounds_up_and_limits_round_down() -> None:
    third = Budget(Fraction(1, 3), Fraction(1, 3))
    assert Amount.spending(third) == Amount(333_333_334, 333_333_333_333_333_334)
    assert Amount.limit(third) == Amount(333_333_333, 333_333_333_333_333_333)
    assert Amount.spending(Budget(Fraction(1, 10**30))) == Amount(1, 0)
    assert third.fits(Amount.spending(third).budget)
    assert Amount.limit(third).budget.fits(third)


@given(st.lists(st.fractions(min_value=Fraction(1, 10**12), max_value=2), min_size=1, max_size=20))
def test_what_the_ledger_counts_is_never_below_the_truth(epsilons: list[Fraction]) -> None:
    limit = Amount.limit(Budget(sum(epsilons, Fraction(0)) + 1))
    account = Account(ALL_TIME, limit)
    for epsilon in epsilons:
        account = account.reserve(Amount.spending(Budget(epsilon)))
    assert account.used.budget.epsilon >= sum(epsilons)


@pytest.mark.parametrize("limit", [Budget(Fraction(0), Fraction(1, 2)), Budget(Fraction(1, 10**10)),
                                   Budget(Fraction(10**10))])  # fmt: skip
def test_limits_that_cannot_be_meant_are_refused(limit: Budget) -> None:
    with pytest.raises(BadInput, match="limit"):
        Amount.limit(limit)


def test_a_release_that_costs_nothing_needs_no_ledger() -> None:
    with pytest.raises(BadInput, match="costs something"):
        cost_on(ALL_TIME, Budget.NOTHING)
    with pytest.raises(BadInput, match="Guarantee or a Budget"):
        cost_on(ALL_TIME, 0.5)  # type: ignore[arg-type]


def test_a_guarantee_must_fit_its_line() -> None:
    labels = Guarantee(Budget.of(1), ALL_TIME.unit, Relation.REPLACE_LABEL, sensitive_features=False)
    assert cost_on(ALL_TIME, labels) == Amount.spending(Budget.of(1))
    for other in (replace(labels, sensitive_features=True), replace(labels, unit=Unit(UnitKind.IMPRESSION))):
        with pytest.raises(RelationMismatch):
            cost_on(ALL_TIME, other)


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", "nul\0", "x" * 201, None, 7])
def test_names_must_be_printable(name: object) -> None:
    with pytest.raises(BadInput, match="scope"):
        Line(name, WEEKLY, Relation.REPLACE_ONE, 1)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="key"):
        Ledger().reserve(name, ALL_TIME, Amount(1), "a test")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="purpose"):
        Ledger().reserve("k", ALL_TIME, Amount(1), name)  # type: ignore[arg-type]


def test_a_line_has_the_window_that_its_unit_speaks_of() -> None:
    for unit, window in ((WEEKLY, None), (ALL_TIME.unit, 3), (WEEKLY, True), (WEEKLY, 1.0)):
        with pytest.raises(BadInput, match="window"):
            Line("clicks", unit, Relation.REPLACE_ONE, window)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="window to renew"):
        Renewal(ALL_TIME.series, Amount(1))
