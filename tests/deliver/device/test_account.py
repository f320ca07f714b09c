"""What a device's choices have told: exactly, on both counts, and never less than was drawn."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.deliver.device.account import MICRO, DeviceAccount, DeviceLimits, PaidChoice, Settlement
from tacit.errors import BadInput, BillRefused, BudgetExceeded
from tacit.privacy.shuffling.central import central_epsilon
from tacit.privacy.units import Relation, Window

DAY = 86_400
LIMITS = DeviceLimits(local=Fraction(6), central=Fraction(5), per_choice=Fraction(2))
TWO = 2 * MICRO
BATCH, OTHER = b"a" * 16, b"b" * 16


def settled(cohort: int, batch: bytes = BATCH, window: int = 0, epsilon: int = TWO) -> Settlement:
    return Settlement(epsilon, window, cohort, batch)


def central(*choices: tuple[int, int | None]) -> int:
    """In whole millionths, rounded up."""
    return math.ceil(Fraction(central_epsilon(choices, LIMITS.delta)) * MICRO)


def test_every_choice_counts_in_full_on_both_counts() -> None:
    account = DeviceAccount(LIMITS)
    assert (account.local_micros, account.central_micros, account.turn) == (0, 0, 0)
    account = account.reserve(TWO, 5).reserve(500_000, 6)
    assert (account.local_micros, account.central_micros, account.turn) == (2_500_000, 2_500_000, 2)
    assert account.choices == (PaidChoice(TWO), PaidChoice(500_000))
    assert account.reserve(0, 7) is account, "nothing was spent"


def test_the_local_limit_holds_to_the_millionth() -> None:
    account = DeviceAccount(replace(LIMITS, central=Fraction(6)))
    for _ in range(3):
        account = account.reserve(TWO, 5)
    assert not account.affords(1, 5)
    assert account.affords(0, 5)
    with pytest.raises(BudgetExceeded, match="device wallet"):
        account.reserve(1, 5)
    assert account.local_micros == 6 * MICRO


def test_one_choice_has_a_limit_of_its_own() -> None:
    account = DeviceAccount(LIMITS)
    assert not account.affords(TWO + 1, 0)
    with pytest.raises(BadInput, match="expected epsilon <= 2, the most for one, got more"):
        account.reserve(TWO + 1, 0)


def test_the_central_limit_holds_and_a_signed_size_frees_it() -> None:
    account = DeviceAccount(LIMITS).reserve(TWO, 5).reserve(TWO, 6)
    assert not account.affords(TWO, 7), "4 + 2 > 5, counted in full"
    assert account.affords(MICRO, 7)
    with pytest.raises(BudgetExceeded, match="what the ad server learns alone"):
        account.reserve(TWO, 7)
    account = account.settle([settled(5_000)])
    assert account.local_micros == 2 * TWO, "to both parties together it is what it was"
    assert account.central_micros == central((TWO, 5_000), (TWO, None)) < 3 * MICRO
    assert account.affords(TWO, 7)
    account = account.reserve(TWO, 7)
    assert account.local_micros == 3 * TWO
    assert not account.affords(MICRO, 8), "the local limit"


def test_two_reports_in_one_batch_share_its_cohort() -> None:
    account = DeviceAccount(LIMITS).reserve(TWO, 5).reserve(TWO, 6)
    apart = account.settle([settled(4_000), settled(4_000, OTHER)])
    together = account.settle([settled(4_000), settled(4_000)])
    assert apart.central_micros == central((TWO, 4_000), (TWO, 4_000))
    assert together.central_micros == central((TWO, 2_000), (TWO, 2_000)) > apart.central_micros
    one_by_one = account.settle([settled(3_999)]).settle([settled(4_000)])
    assert one_by_one.central_micros == central((TWO, 1_999), (TWO, 1_999))


def test_a_batch_smaller_than_its_own_reports_hides_nothing() -> None:
    account = DeviceAccount(LIMITS).reserve(TWO, 5).reserve(TWO, 6).settle([settled(1), settled(1)])
    assert account.central_micros == 2 * TWO


def test_windows_begin_anew_and_never_go_back() -> None:
    account = DeviceAccount(LIMITS).reserve(TWO, DAY - 1).reserve(TWO, DAY - 1)
    assert not account.affords(TWO, DAY - 1)
    tomorrow = account.reserve(TWO, DAY)
    assert (tomorrow.local_micros, tomorrow.in_window) == (TWO, 1)
    with pytest.raises(BadInput, match="expected now in the wallet's window or a later one"):
        tomorrow.reserve(TWO, DAY - 1)
    assert not tomorrow.affords(TWO, DAY - 1), "by a clock that was set back the public lane is taken"
    late = tomorrow.settle([settled(5_000, window=0)])
    assert late is tomorrow, "yesterday's cohorts free nothing of today"


def test_what_was_not_reserved_cannot_be_settled() -> None:
    account = DeviceAccount(LIMITS).reserve(TWO, 5)
    with pytest.raises(BadInput, match="expected a choice that was reserved and not settled yet"):
        account.settle([settled(100), settled(100)])
    with pytest.raises(BadInput, match="expected a choice that was reserved"):
        account.settle([settled(100, epsilon=MICRO)])
    with pytest.raises(BadInput, match="expected cohort to be a whole number >= 1, got 0"):
        account.settle([settled(0)])
    assert account.settle([settled(100, epsilon=0)]) is account


def test_lower_limits_leave_what_was_spent_and_let_nothing_more_be() -> None:
    account = DeviceAccount(LIMITS).reserve(TWO, 5).reserve(TWO, 5)
    stricter = account.under(replace(LIMITS, local=Fraction(3), central=Fraction(3)))
    assert stricter.local_micros == 2 * TWO
    assert not stricter.affords(1, 5)
    tomorrow = stricter.reserve(TWO, DAY)
    assert tomorrow.affords(MICRO, DAY)
    assert not tomorrow.affords(MICRO + 1, DAY), "the new limit, not the old one"
    with pytest.raises(BadInput, match="expected limits for each 1 day, as this account was begun, got others"):
        account.under(replace(LIMITS, window=Window.days(7)))


AMOUNTS = st.tuples(st.integers(0, TWO), st.integers(0, 3 * DAY), st.integers(0, 3), st.integers(1, 10_000))


@given(st.lists(AMOUNTS, max_size=12))
def test_no_account_passes_its_limits_and_central_never_passes_local(
    turns: list[tuple[int, int, int, int]],
) -> None:
    account, drawn = DeviceAccount(LIMITS), Fraction(0)
    window = None
    for epsilon, second, batch, cohort in sorted(turns, key=lambda turn: turn[1]):
        fits = account.affords(epsilon, second)
        try:
            account = account.reserve(epsilon, second)
        except (BudgetExceeded, BadInput):
            assert not fits
            continue
        assert fits
        if epsilon and LIMITS.window.index(second) != window:
            drawn, window = Fraction(0), LIMITS.window.index(second)
        drawn += epsilon
        assert account.local_micros == drawn <= LIMITS.local_micros
        assert account.wallet.spent * MICRO == drawn
        assert account.central_micros <= min(account.local_micros, LIMITS.central_micros)
        if batch and epsilon:
            lower = account.settle(
                [Settlement(epsilon, LIMITS.window.index(second), cohort, bytes([batch]) * 16)]
            )
            assert lower.local_micros == account.local_micros
            account = lower
        assert DeviceAccount.from_bytes(account.to_bytes(), LIMITS) == account


def test_bytes_of_an_account_that_is_none_are_refused() -> None:
    account = DeviceAccount(replace(LIMITS, ad_tech="exchange")).reserve(TWO, 5).settle([settled(50)])
    data = account.to_bytes()
    assert DeviceAccount.from_bytes(data, account.limits) == account
    with pytest.raises(BadInput, match="expected limits for each 1 day"):
        DeviceAccount.from_bytes(data, LIMITS)
    for wrong in (data[:-1], data + b"\0", b"\2" + data[1:], b""):
        with pytest.raises(BillRefused):
            DeviceAccount.from_bytes(wrong, account.limits)


def test_limits_that_are_none_are_refused() -> None:
    for wrong, said in (
        ({"local": 1}, "expected per_choice <= local = 1, got 2"),
        ({"local": "2.0000001"}, "expected local in whole millionths of epsilon"),
        ({"central": 0}, "expected central > 0, got 0"),
        ({"delta": 1}, r"expected delta in \(0, 1\), got 1"),
        ({"window": 7}, "expected window to be a Window, got 7"),
        ({"ad_tech": ""}, "expected"),
    ):
        with pytest.raises(BadInput, match=said):
            DeviceLimits(**wrong)
    assert DeviceLimits(local=7, per_choice="0.5").central == 7  # type: ignore[arg-type]


def test_the_statements_say_both_counts() -> None:
    local, central_one = LIMITS.local_statement(), LIMITS.central_statement()
    assert 6 <= local.epsilon < 6.0001, "rounded up"
    assert (local.delta, local.relation) == (0.0, Relation.REPLACE_ONE)
    assert (central_one.epsilon, central_one.delta) == (5.0, 1e-6)
    assert str(local.unit) == str(central_one.unit) == "device per 1 day"
    assert any("proxy and ad server together: ε = 6" in words for words in central_one.not_protected)
    assert any("devices of its own" in words for words in central_one.not_protected)
    assert central_one.headline.startswith("(5, 1e-06)-DP per device per 1 day")
    assert "shuffled by the proxy" in central_one.as_text()


def test_an_account_shows_no_choices() -> None:
    assert repr(DeviceAccount(LIMITS).reserve(TWO, 5)) == "DeviceAccount(local=2.0, limit=6.0, choices=1)"
