"""A device's epsilon wallet, and the policy that decides where in a period to spend it.

The wallet is the device's own record of what it has spent in a window, and stays on the device. The policy
spends on requests whose public forecast is worth it, and states what that promises.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.protocol.forecasts import check_ladder
from tacit.errors import BadInput, BudgetExceeded
from tacit.privacy.budget import Budget, format_rounded_up
from tacit.privacy.releases import LocalChoice
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Relation, Unit, UnitKind, Window


@dataclass(frozen=True)
class Wallet:
    """At most `total` epsilon in each window of time, at most `most_per_request` of it at once.

    Windows are fixed stretches: around the end of one, twice the total may be spent within a second.

    Guarantee:  all choices that were paid for in one window are together total-LDP; each is
                most_per_request-LDP. Amounts may depend on what was chosen before: pure epsilons add up.
    Neighbours: all private data of one device in that window, replaced. A person with two devices has two
                wallets, and may spend twice.
    Assumes:    every choice is paid for before it is made, and the wallet that `spend` returns takes the place
                of this one; `now` is an honest clock, for one set forward opens later windows early; one
                wallet per server (ad tech). What is left follows from earlier requests, which their server
                knows: a refusal tells it nothing. It would tell another server that the device was there.
    Source:     basic composition, with amounts chosen on the way: Rogers, Roth, Ullman, Vadhan 2016
                (arXiv 1605.08294), with delta = 0.
    """

    total: Fraction
    most_per_request: Fraction
    window: Window
    spent: Fraction = Fraction(0)
    in_window: int | None = None
    ad_tech: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", expect.positive("total", self.total))
        object.__setattr__(self, "most_per_request", expect.positive("most_per_request", self.most_per_request))
        object.__setattr__(self, "spent", expect.at_least_zero("spent", self.spent))
        if not isinstance(self.window, Window):
            raise BadInput(f"expected window to be a Window, got {self.window!r}")
        if self.most_per_request > self.total:
            raise BadInput(f"expected most_per_request <= total = {float(self.total):g}, got more")
        if self.spent > self.total:
            raise BadInput(f"expected spent <= total = {float(self.total):g}, got more")
        if self.in_window is not None:
            object.__setattr__(self, "in_window", expect.integer("in_window", self.in_window))
        elif self.spent:
            raise BadInput("expected in_window beside what was spent, got None: it would be forgotten")

    def left(self, now: int) -> Fraction:
        """What can still be spent in the window that second `now` lies in; a clock set back is refused."""
        index = self.window.index(expect.integer("now", now))
        if self.in_window is None or index > self.in_window:
            return self.total
        if index < self.in_window:
            raise BadInput("expected now in the wallet's window or a later one, got an earlier second")
        return self.total - self.spent

    def spend(self, epsilon: expect.Number, now: int, auction: str | None = None) -> Wallet:
        """The wallet after one more choice; raises before anything changes, and says for which auction."""
        asked, left = expect.at_least_zero("epsilon", epsilon), self.left(now)
        asker = "this request" if auction is None else f"auction {auction}"
        if asked > self.most_per_request:
            raise BadInput(
                f"{asker}: expected epsilon <= {float(self.most_per_request):g}, the most for one, got more"
            )
        if asked > left:
            raise BudgetExceeded(
                f"device wallet, {asker}",
                asked=Budget(asked),
                spent=Budget(self.total - left),
                reserved=Budget.NOTHING,
                limit=Budget(self.total),
            )
        return replace(self, spent=self.total - left + asked, in_window=self.window.index(now))


NEVER: int = np.iinfo(np.int64).min
"""The window of a device that has not paid yet, in a column of windows."""

MOST_SECONDS = 2**62  # in a column, of either sign: 64 bits hold the difference of two


@dataclass(frozen=True, eq=False)
class Wallets:
    """The wallets of many devices, as columns; `wallet(i)` is device i's own.

    total, most_per_request, window, ad_tech   as in each `Wallet`
    unit        what was spent is written in whole multiples of 1 / unit
    spent       by device, in the window `in_window`; NEVER where nothing was paid yet

    Guarantee:  of each device, that of its `Wallet`: this one refuses, and leaves behind, what that would.
    Neighbours: all private data of one device in a window, replaced.
    Assumes:    what `Wallet` assumes. Where many devices are simulated together, each still sees its own only.
    Source:     `Wallet`.
    """

    total: Fraction
    most_per_request: Fraction
    window: Window
    ad_tech: str | None
    unit: int
    spent: NDArray[Any] = field(repr=False)
    in_window: Integers = field(repr=False)

    def __post_init__(self) -> None:
        if max(abs(self.window.origin), self.window.seconds) >= MOST_SECONDS:
            raise BadInput("expected a window with origin and seconds below 2^62, got a larger one")

    def __len__(self) -> int:
        return len(self.spent)

    def wallet(self, device: int) -> Wallet:
        """One device's own."""
        seen, spent = int(self.in_window[device]), Fraction(int(self.spent[device]), self.unit)
        own = None if seen == NEVER else seen
        return Wallet(self.total, self.most_per_request, self.window, spent, own, self.ad_tech)

    def left(self, device: Integers, now: Integers) -> NDArray[Any]:
        """What each of these devices can still spend at its second, in units; a clock set back is refused."""
        index, last = self._windows(now), self.in_window[device]
        if (index < last).any():
            raise BadInput("expected now in the wallet's window or a later one, got an earlier second")
        return self._whole(self.total) - np.where(index > last, 0, self.spent[device])

    def spend(self, device: Integers, amounts: NDArray[Any], now: Integers) -> Wallets:
        """The wallets after one more choice on each of these devices; all are refused before one changes."""
        if len(np.unique(device)) < len(device):
            raise BadInput("expected each device once in a turn, got one twice")
        if amounts.dtype.kind not in "iO":
            raise BadInput(f"expected whole amounts of the wallets' unit, got {amounts.dtype}")
        left = self.left(device, now)
        if (amounts < 0).any() or (amounts > self._whole(self.most_per_request)).any():
            raise BadInput(
                f"expected epsilons in 0..{float(self.most_per_request):g}, the most for one, got others"
            )
        if (amounts > left).any():
            at = int(np.argmax(amounts > left))
            spent, asked = (
                Fraction(int(one), self.unit) for one in (self._whole(self.total) - left[at], amounts[at])
            )
            raise BudgetExceeded(
                f"wallet of device {int(device[at])}", asked=Budget(asked), spent=Budget(spent),
                reserved=Budget.NOTHING, limit=Budget(self.total),
            )  # fmt: skip
        after, windows = self.spent.copy(), self.in_window.copy()
        after[device], windows[device] = self._whole(self.total) - left + amounts, self._windows(now)
        return replace(self, spent=after, in_window=windows)

    def _windows(self, now: Integers) -> Integers:
        """The window of each second."""
        if now.dtype.kind not in "iu" or ((now <= -MOST_SECONDS) | (now >= MOST_SECONDS)).any():
            raise BadInput("expected now in whole seconds between -2^62 and 2^62, got others")
        return (now.astype(np.int64) - self.window.origin) // self.window.seconds

    def _whole(self, epsilon: Fraction) -> int:
        return math.floor(epsilon * self.unit)


THRESHOLDS = 64
"""How many thresholds are tried when one is learnt."""


@dataclass(frozen=True)
class BudgetPolicy:
    """Spend on a request the epsilon of the ladder with the largest forecast gain - threshold x epsilon.

    `threshold` is a price: the gain, in the unit of scores, that an epsilon must bring.

    Guarantee:  all choices that it lets one wallet pay for in one window are together total-LDP, and each is
                LDP with the ladder's last step. Sums are exact: nothing is spent beyond the total.
    Neighbours: all private data of one device in that window, replaced; a person with two devices has two
                wallets, and may spend twice.
    Assumes:    ladder, threshold and forecasts come from public data; what `Wallet` assumes, above all an
                honest clock and one wallet per server (`ad_tech`, which says whose it is); one policy a
                window: what another let the device spend in it comes on top.
    Source:     `Wallet`.
    """

    total: float
    ladder: tuple[float, ...]
    threshold: float
    window: Window
    ad_tech: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "ladder", check_ladder(self.ladder))
        object.__setattr__(self, "threshold", float(expect.at_least_zero("threshold", self.threshold)))
        object.__setattr__(self, "total", float(expect.positive("total", self.total)))
        if self.most_per_request > self.total:
            raise BadInput(
                f"expected a ladder up to total = {self.total:g} at most, got {self.most_per_request:g}"
            )
        Unit(UnitKind.DEVICE, self.window, self.ad_tech)  # refuses a name that is empty

    @classmethod
    def learn(
        cls,
        forecasts: ArrayLike,
        *,
        total: float,
        ladder: Sequence[float],
        requests: int,
        window: Window,
        ad_tech: str | None = None,
    ) -> BudgetPolicy:
        """The threshold that would have gained most on these public forecasts (requests seen, ladder).

        They are cut into periods of `requests` requests, in the order given, each with a budget of its own.
        """
        steps = check_ladder(ladder)
        gains = _checked_forecasts(forecasts, steps, expect.whole("requests", requests, at_least=1))
        prices = (gains / np.array(steps)).max(axis=1)
        tried = np.unique(np.r_[0.0, np.quantile(prices, np.linspace(0.0, 1.0, THRESHOLDS))])[::-1]
        policies = [cls(total, steps, price, window, ad_tech) for price in tried.tolist()]
        # Among equals the first, which spends least.
        return max(policies, key=lambda policy: policy.forecast(gains, requests))

    @property
    def most_per_request(self) -> float:
        return self.ladder[-1]

    def wallet(self) -> Wallet:
        """A device's own book, with nothing spent."""
        return Wallet(self._exact_total, self._amounts[-1], self.window, ad_tech=self.ad_tech)

    def wallets(self, devices: int) -> Wallets:
        """The books of many devices, with nothing spent."""
        own, count = self.wallet(), expect.whole("devices", devices, at_least=1)
        unit = math.lcm(*(number.denominator for number in (*self._amounts, own.total)))
        # Python's whole numbers, which are slow, only where 64 bits are too few.
        spent = np.zeros(count, np.int64 if own.total * unit < 2**63 else object)
        never = np.full(count, NEVER, np.int64)
        return Wallets(own.total, own.most_per_request, own.window, own.ad_tech, unit, spent, never)

    def expect_own(self, wallet: Wallet | Wallets) -> None:
        """Refuse a wallet by which more could be spent than is promised here; a stricter one will do."""
        own = self.wallet()
        if wallet.ad_tech != own.ad_tech:
            raise BadInput(f"expected the wallet for ad tech {own.ad_tech}, got that for {wallet.ad_tech}")
        if wallet.window != own.window:
            raise BadInput(
                f"expected a wallet for each {own.window} from second {own.window.origin} on, got one for each "
                f"{wallet.window} from second {wallet.window.origin} on"
            )
        if wallet.total > own.total:
            raise BadInput(
                f"expected a wallet of total <= {float(own.total):g}, the policy's, got {float(wallet.total):g}"
            )
        if wallet.most_per_request > own.most_per_request:
            raise BadInput(
                f"expected a wallet of most_per_request <= {float(own.most_per_request):g}, the policy's, got "
                f"{float(wallet.most_per_request):g}"
            )

    def epsilon(self, forecast: ArrayLike, left: expect.Number) -> float:
        """What to spend on a request with these forecast gains (ladder,), given what is left; or 0."""
        gains = _checked_forecasts(np.asarray(forecast)[None], self.ladder, 1)
        purse = expect.at_least_zero("left", left)
        step = self._steps(gains, np.array([[amount <= purse for amount in self._amounts]]))[0]
        return float(self._amounts[step])

    def spend(self, forecasts: ArrayLike, requests: int) -> Floats:
        """What is spent on each of many requests, periods of `requests` rows one after another: (rows,).

        Rows beyond the last whole period are not dealt with, and have NaN.
        """
        gains = _checked_forecasts(forecasts, self.ladder, expect.whole("requests", requests, at_least=1))
        whole = len(gains) // requests * requests
        device = np.arange(whole) // requests
        now = np.full(whole, self.window.origin)
        steps, _ = self.spend_by_turns(gains[:whole], self.wallets(whole // requests), device, now)
        spent = np.full(len(gains), np.nan)
        spent[:whole] = np.array([float(amount) for amount in self._amounts])[steps]
        return spent

    def spend_by_turns(
        self,
        forecasts: Floats,
        wallets: Wallets,
        device: Integers,
        now: Integers,
        pays: NDArray[np.bool_] | None = None,
    ) -> tuple[Integers, Wallets]:
        """Which step of the ladder each of many requests takes (0: none), and the wallets that have paid.

        Requests have forecast gains (requests, ladder), a device and a second each, in the order in which they
        arrive at a device. The first of every device are dealt with at once, then the second, as `epsilon` and
        `Wallet.spend` would one by one. `pays` (requests, 1 + ladder) is False where a step spends nothing.
        """
        self.expect_own(wallets)
        if len(device) and not 0 <= device.min() <= device.max() < len(wallets.spent):
            raise BadInput(f"expected devices in 0..{len(wallets.spent) - 1}, got others")
        scaled = [amount * wallets.unit for amount in self._amounts]
        if any(amount.denominator > 1 for amount in scaled):
            raise BadInput("expected wallets in which every step of the ladder is whole, got others")
        amounts: NDArray[Any] = np.array([int(amount) for amount in scaled], wallets.spent.dtype)
        charged = amounts[None] if pays is None else np.where(pays, amounts, 0)
        most = min(wallets.most_per_request, wallets.total) * wallets.unit
        steps = np.zeros(len(forecasts), np.int64)
        for rows in _turns(device):
            purse = np.minimum(wallets.left(device[rows], now[rows]), math.floor(most))
            steps[rows] = self._steps(forecasts[rows], amounts <= purse[:, None])
            due = charged[0 if pays is None else rows, steps[rows]]
            wallets = wallets.spend(device[rows], due, now[rows])
        return steps, wallets

    def forecast(self, forecasts: ArrayLike, requests: int) -> float:
        """The forecast gain per request over those periods."""
        gains = np.c_[
            np.zeros(len(np.asarray(forecasts))), _checked_forecasts(forecasts, self.ladder, requests)
        ]
        spent = self.spend(forecasts, requests)
        done = np.isfinite(spent)
        step = np.searchsorted(np.r_[0.0, self.ladder], spent[done])
        return float(gains[done][np.arange(len(step)), step].mean())

    def statement(self) -> PrivacyStatement:
        """The promise for one device's wallet and window: everything that this policy spends, together."""
        total, most = format_rounded_up(self.total), format_rounded_up(self.most_per_request)
        stated = PrivacyStatement.of(
            [LocalChoice(self._exact_total)],
            unit=Unit(UnitKind.DEVICE, self.window, self.ad_tech),
            relation=Relation.REPLACE_ONE,
            also_not_protected=(
                f"one impression beyond ε = {most}: the policy may spend so much of the window's total on it",
                "that a device was at one server, from another that shares its wallet: what is left tells it",
                "against a device whose clock is set forward: it opens later windows early",
                "what a request itself says (the context that was disclosed, its time and address), and clicks",
            ),
        )
        # The one release stands for all choices of the window.
        words = f"choices made on one device, ε = {total} together in a window, {most} each at most"
        return replace(stated, mechanisms=(words,))

    @cached_property
    def _amounts(self) -> tuple[Fraction, ...]:
        """What a step costs, exactly as it was written: nothing, then the ladder."""
        return (Fraction(0), *(expect.positive("every epsilon of the ladder", one) for one in self.ladder))

    @cached_property
    def _exact_total(self) -> Fraction:
        return expect.positive("total", self.total)

    def _steps(self, gains: Floats, payable: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Which amount to spend, by its place; gains (rows, ladder), payable (rows, 1 + ladder)."""
        worth = np.c_[np.zeros(len(gains)), gains] - self.threshold * np.r_[0.0, self.ladder]
        worth[~payable.astype(np.bool_)] = -np.inf
        steps: NDArray[np.int64] = np.argmax(worth, axis=1).astype(np.int64)
        return steps


def _turns(device: Integers) -> Iterator[Integers]:
    """The first request of every device, then the second, and so on: rows, in each turn a device once."""
    order = np.argsort(device, kind="stable")
    ordered, place = device[order], np.arange(len(device))
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(device)])
    turn = np.empty(len(device), np.int64)
    turn[order] = place - np.repeat(first, np.diff(np.r_[first, len(device)]))
    by_turn = np.argsort(turn, kind="stable")
    yield from np.split(by_turn, np.cumsum(np.bincount(turn))[:-1])


def _checked_forecasts(forecasts: ArrayLike, ladder: tuple[float, ...], requests: int) -> Floats:
    given = np.asarray(forecasts)
    if given.ndim != 2 or given.shape[1] != len(ladder) or given.dtype.kind not in "fiu":
        raise BadInput(
            f"expected forecasts of shape (requests, {len(ladder)}), got {given.dtype} {given.shape}"
        )
    if len(given) < requests:
        raise BadInput(f"expected forecasts of at least {requests} requests, got {len(given)}")
    gains = given.astype(np.float64)
    if not np.isfinite(gains).all():
        raise BadInput("expected finite forecasts, got one that is NaN or infinite")
    return gains
