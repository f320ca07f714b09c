"""What a device's choices have told, on two counts: to proxy and ad server together, and to the server alone.

Local epsilon is what one choice tells whoever can link it to the device: proxy and server, if they work
together. All choices of a window add up. Central epsilon is what the server learns alone, of shuffled batches:
less, the more reports a batch has. It is not known before the batch has left, so every choice is first counted
in full, and again when the proxy has signed how many reports it left among.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

from tacit import expect
from tacit.bill.protocol.batches import BATCH_ID_BYTES
from tacit.bill.protocol.encoding import Reader, begin_message, expect_size, read_message
from tacit.deliver.device.wallet import BudgetPolicy, Wallet
from tacit.display import brief
from tacit.errors import BadInput, BudgetExceeded
from tacit.privacy.budget import Budget, format_rounded_up, rounded_up
from tacit.privacy.shuffling.central import central_epsilon
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Window

MICRO = 1_000_000
_CHOICE = struct.Struct(f">II{BATCH_ID_BYTES}s")


class PaidChoice(NamedTuple):
    """What a choice cost, in millionths of epsilon; the batch that it left in, among how many reports, once
    that is known."""

    epsilon_micros: int
    cohort: int | None = None
    batch: bytes = b""


class Settlement(NamedTuple):
    """What became known of a choice: what it cost, in which window of the account, and in which batch it left.

    `cohort` has the batch's reports without those of this device that may be in it and still count in full.
    """

    epsilon_micros: int
    window: int
    cohort: int
    batch: bytes


@dataclass(frozen=True)
class DeviceLimits:
    """How much a device's choices may tell: each, and all of a window together.

    local       epsilon of a window's choices, to proxy and ad server together
    central     epsilon of a window's choices, to the ad server alone; None: as `local`
    per_choice  the most that one choice may spend; a menu that asks for more is refused
    delta       what the central count leaves to chance
    window      the time after which counting begins anew
    ad_tech     whose ad server it is: one account for each
    """

    local: Fraction = Fraction(6)
    central: Fraction | None = None
    per_choice: Fraction = Fraction(2)
    delta: Fraction = Fraction(1, 10**6)
    window: Window = field(default_factory=lambda: Window.days(1))
    ad_tech: str | None = None

    def __post_init__(self) -> None:
        central = self.local if self.central is None else self.central
        for name, value in (("local", self.local), ("central", central), ("per_choice", self.per_choice)):
            exact = expect.positive(name, value)
            if (exact * MICRO).denominator != 1:
                raise BadInput(f"expected {name} in whole millionths of epsilon, got {float(exact):g}")
            object.__setattr__(self, name, exact)
        object.__setattr__(self, "delta", expect.probability("delta", self.delta))
        expect.kind("window", self.window, Window)
        if self.per_choice > self.local:
            raise BadInput(
                f"expected per_choice <= local = {float(self.local):g}, got {float(self.per_choice):g}"
            )
        _ = self._policy  # refuses an empty name

    @cached_property
    def local_micros(self) -> int:
        return int(self.local * MICRO)

    @cached_property
    def central_micros(self) -> int:
        assert self.central is not None, "filled in"
        return int(self.central * MICRO)

    @cached_property
    def per_choice_micros(self) -> int:
        return int(self.per_choice * MICRO)

    def local_statement(self) -> PrivacyStatement:
        """What a window's choices promise against proxy and ad server together."""
        return self._policy.statement()

    def central_statement(self) -> PrivacyStatement:
        """What a window's choices promise against the ad server alone."""
        assert self.central is not None, "filled in"
        stated = self._policy.statement()
        epsilon, most = format_rounded_up(float(self.central)), format_rounded_up(float(self.per_choice))
        words = (
            f"choices made on one device and shuffled by the proxy among reports of one menu, ε = {epsilon} "
            f"together in a window; each ε = {most} at most before it is shuffled"
        )
        return replace(
            stated,
            epsilon=rounded_up(self.central),
            delta=float(self.delta),
            mechanisms=(words,),
            accountant="shuffled choices by the sizes that the proxy signed, all others in full",
            not_protected=(
                f"against proxy and ad server together: ε = {format_rounded_up(float(self.local))} in a window",
                "where the ad server runs devices of its own: they count as reports, and hide nobody",
                *stated.not_protected,
            ),
        )

    @cached_property
    def _policy(self) -> BudgetPolicy:
        return BudgetPolicy(float(self.local), (float(self.per_choice),), 0.0, self.window, self.ad_tech)


@dataclass(frozen=True)
class DeviceAccount:
    """What the choices of the current window have spent, locally and centrally, in millionths of epsilon.

    in_window     the window that the rest is about; None before the first choice
    local_micros  the sum of what was spent
    choices       each choice that spent anything
    turn          how often it has changed: a journal takes one change after another, and none twice

    Guarantee:  all choices that were reserved in one window are together `limits.local`-LDP, and, of what the
                ad server sees of them in batches whose sizes the proxy signed, (`limits.central`,
                `limits.delta`)-DP. A choice counts in full from before it is drawn, and on the central count
                for less only once a signed size is known; where none comes, for ever in full.
    Neighbours: all private data of one device in that window, replaced. A person with two devices has two
                accounts, and may spend twice.
    Assumes:    what `Wallet` assumes: an honest clock, one account per ad server, and an account that is stored
                before a choice is used. Centrally also what `BillingProxy` assumes: a proxy that does not work
                with the ad server, and members of a batch that are not its own devices. Amounts and sizes
                follow from public data, so that what is left tells nothing more.
    Source:     locally `Wallet`, pure epsilons add up; centrally `privacy.shuffling.central`.
    """

    limits: DeviceLimits
    in_window: int | None = None
    local_micros: int = 0
    choices: tuple[PaidChoice, ...] = field(default=(), repr=False)
    turn: int = 0

    def __post_init__(self) -> None:
        expect.kind("limits", self.limits, DeviceLimits)
        for name in ("local_micros", "turn"):
            expect.whole(name, getattr(self, name), at_least=0)
        if sum(each.epsilon_micros for each in self.choices) != self.local_micros:
            raise BadInput("expected choices that add up to what was spent, got others")
        if self.in_window is None and self.choices:
            raise BadInput("expected in_window beside what was spent, got None: it would be forgotten")

    def __repr__(self) -> str:
        spent, limit = self.local_micros / MICRO, float(self.limits.local)
        return brief(self, local=spent, limit=limit, choices=len(self.choices))

    @property
    def central_micros(self) -> int:
        """What the window's choices tell the ad server alone, as far as signed sizes are known."""
        return _composed(_as_shuffled(self.choices), self.limits.delta)

    @property
    def wallet(self) -> Wallet:
        """The local account as a wallet."""
        limits = self.limits
        # Where a limit was lowered below what is spent, nothing is left.
        spent = Fraction(min(self.local_micros, limits.local_micros), MICRO)
        return Wallet(limits.local, limits.per_choice, limits.window, spent, self.in_window, limits.ad_tech)

    def affords(self, epsilon_micros: int, now: int) -> bool:
        """Whether one more choice of this epsilon keeps within both limits, counted in full."""
        if epsilon_micros == 0:
            return True
        if self.in_window is not None and self.limits.window.index(now) < self.in_window:
            return False  # by a clock that was set back: what was spent later is not known to be over
        limits, spent = self.limits, sum(each.epsilon_micros for each in self._choices_at(now))
        return (
            epsilon_micros <= min(limits.local_micros - spent, limits.per_choice_micros)
            and self._central_with(epsilon_micros, now) <= limits.central_micros
        )

    def reserve(self, epsilon_micros: int, now: int) -> DeviceAccount:
        """The account after one more choice, counted in full; BudgetExceeded before anything changes."""
        micros = expect.whole("epsilon_micros", epsilon_micros, at_least=0)
        self.wallet.spend(Fraction(micros, MICRO), now)
        central = self._central_with(micros, now) if micros else 0
        if central > self.limits.central_micros:
            raise BudgetExceeded(
                "device account, what the ad server learns alone",
                asked=Budget(Fraction(micros, MICRO)),
                spent=Budget(Fraction(central - micros, MICRO)),
                reserved=Budget.NOTHING,
                limit=Budget(Fraction(self.limits.central_micros, MICRO)),
            )
        if not micros:
            return self
        choices = (*self._choices_at(now), PaidChoice(micros))
        spent = sum(each.epsilon_micros for each in choices)
        return DeviceAccount(self.limits, self.limits.window.index(now), spent, choices, self.turn + 1)

    def settle(self, settlements: Iterable[Settlement]) -> DeviceAccount:
        """The account once it is known in which batches choices have left, and among how many reports."""
        choices = list(self.choices)
        for each in settlements:
            expect.whole("cohort", each.cohort, at_least=1)
            expect_size("a batch's id", each.batch, BATCH_ID_BYTES)
            if each.window != self.in_window or not each.epsilon_micros:
                continue  # another window's: counting has begun anew since
            try:
                at = choices.index(PaidChoice(each.epsilon_micros))
            except ValueError:
                raise BadInput("expected a choice that was reserved and not settled yet, got another") from None
            choices[at] = PaidChoice(each.epsilon_micros, each.cohort, each.batch)
        if choices == list(self.choices):
            return self
        return replace(self, choices=tuple(choices), turn=self.turn + 1)

    def under(self, limits: DeviceLimits) -> DeviceAccount:
        """The same account under other limits, which take hold at the next choice. What was spent stays."""
        if (limits.window, limits.ad_tech) != (self.limits.window, self.limits.ad_tech):
            raise BadInput(
                f"expected limits for each {self.limits.window}, as this account was begun, got others"
            )
        return replace(self, limits=limits)

    def to_bytes(self) -> bytes:
        window = self.limits.window
        writer = begin_message().number("Q", self.turn).number("Q", window.seconds).number("q", window.origin)
        writer.text(self.limits.ad_tech or "").number("B", self.in_window is not None)
        writer.number("q", self.in_window or 0).number("I", len(self.choices))
        kept = (_CHOICE.pack(each.epsilon_micros, each.cohort or 0, each.batch) for each in self.choices)
        return writer.to_bytes() + b"".join(kept)

    @classmethod
    def from_bytes(cls, data: bytes, limits: DeviceLimits) -> DeviceAccount:
        """The account that was kept, under these limits; those of another window or ad server are refused."""

        def parse(reader: Reader) -> DeviceAccount:
            turn, seconds, origin = reader.number("Q"), reader.number("Q"), reader.number("q")
            ad_tech, begun, index = reader.text() or None, reader.number("B"), reader.number("q")
            kept = _CHOICE.iter_unpack(reader.raw(reader.number("I") * _CHOICE.size))
            choices = tuple(
                PaidChoice(micros, cohort, batch) if cohort else PaidChoice(micros)
                for micros, cohort, batch in kept
            )
            own = replace(limits, window=Window(seconds, origin), ad_tech=ad_tech)
            spent = sum(each.epsilon_micros for each in choices)
            return cls(own, index if begun else None, spent, choices, turn)

        return read_message(data, "device account", parse).under(limits)

    def _choices_at(self, now: int) -> tuple[PaidChoice, ...]:
        """Those of the window that second `now` lies in; a clock set back is refused, as `Wallet` does."""
        window = self.limits.window.index(now)
        if self.in_window is not None and window < self.in_window:
            raise BadInput("expected now in the account's window or a later one, got an earlier second")
        return self.choices if window == self.in_window else ()

    def _central_with(self, epsilon_micros: int, now: int) -> int:
        choices = (*self._choices_at(now), PaidChoice(epsilon_micros))
        plain = sum(each.epsilon_micros for each in choices)
        if plain <= self.limits.central_micros:
            return plain  # composed it is at most that
        return _composed(_as_shuffled(choices), self.limits.delta)


def _as_shuffled(choices: Iterable[PaidChoice]) -> tuple[tuple[int, int | None], ...]:
    """Each choice and the cohort that it counts with: where a device has k reports in a batch, each with a k-th
    of the others."""
    settled = [each for each in choices if each.cohort is not None]
    own = Counter(each.batch for each in settled)
    size = {batch: min(each.cohort or 0 for each in settled if each.batch == batch) for batch in own}
    pairs = [
        (each.epsilon_micros, None if each.cohort is None else size[each.batch] // own[each.batch] or None)
        for each in choices
    ]
    return tuple(sorted(pairs, key=lambda pair: (pair[0], pair[1] or 0)))


@lru_cache(maxsize=4096)
def _composed(choices: tuple[tuple[int, int | None], ...], delta: Fraction) -> int:
    """In whole millionths, rounded up."""
    plain = sum(micros for micros, _ in choices)
    return min(plain, math.ceil(Fraction(central_epsilon(choices, delta)) * MICRO))
