"""Many devices at once: the choice that each makes by itself (`device/choice.py`), for thousands of visits.

Visits to the same menu at the same epsilon share one plan, and wallets pay turn by turn. What is shown, spent
and billed is what a loop over visits would give, word for word: a test holds this form to the single one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.device.choice import PrivateChoice, device_scores, planner_for
from tacit.deliver.device.wallet import BudgetPolicy, Wallets
from tacit.deliver.protocol.forecasts import forecast_gains
from tacit.deliver.protocol.menu import Menu
from tacit.deliver.protocol.plans import ChoicePlan, Planner
from tacit.errors import BadInput, EntropyMisuse
from tacit.privacy.randomness import Source
from tacit.schema.impressions import WHOLES, Impressions


@dataclass(frozen=True, eq=False)
class Visits:
    """Requests in the order in which they arrive, one row each: public, all of it.

    menu    which of the menus answers what was disclosed
    device  whose request it is, by number: whose wallet pays
    now     the second, by the device's clock
    """

    menu: Integers
    device: Integers
    now: Integers

    def __post_init__(self) -> None:
        for name in ("menu", "device", "now"):
            column = getattr(self, name)
            if column.dtype != np.int64 or column.shape != (len(self),) or not len(self):
                raise BadInput(f"expected {name} as a whole number for each visit, got others")

    def __len__(self) -> int:
        return len(self.menu)


@dataclass(frozen=True, eq=False)
class PlannedDevices:
    """Each plans from public scores, pays from its wallet and chooses privately, as `choose_privately` does."""

    planner: Planner
    policy: BudgetPolicy
    wallets: Wallets


@dataclass(frozen=True)
class PublicDevices:
    """Each shows the public best, and nothing private is read."""


@dataclass(frozen=True)
class ExactDevices:
    """Each shows what is best by all that it knows. Not private at all: the end that others are measured by."""


Devices = PlannedDevices | PublicDevices | ExactDevices


@dataclass(frozen=True, eq=False)
class DeviceChoices:
    """What was shown at each visit, and what may be reported of it.

    rank           in its menu; what is there may be NOTHING
    epsilon_spent  by visit; infinite where the choice is exact
    impressions    of the visits that show an ad, in their order
    wallets        that take the place of those that paid; None where nothing is paid
    """

    rank: Integers
    epsilon_spent: Floats
    impressions: Impressions = field(repr=False)
    wallets: Wallets | None = field(repr=False)


def choose_for_devices(
    menus: Sequence[Menu],
    visits: Visits,
    rates: Floats,
    devices: Devices,
    source: Source,
    *,
    store: Callable[[Wallets], None],
    simulated: bool = False,
) -> DeviceChoices:
    """Choose among each visit's menu, by the device's own rates (visits, candidates of the longest menu).

    Guarantee:  with `PlannedDevices` each choice is pure LDP with the epsilon that its wallet has paid, and all
                that one wallet pays in a window are together what `policy.statement()` says. With
                `PublicDevices` nothing private is read. With `ExactDevices` nothing is promised.
    Neighbours: all private data of one device in that window, replaced.
    Assumes:    what `choose_privately` assumes of each visit: `store` has the wallets in place before a word is
                drawn, and one choice is drawn per visit. Menus, visits and prior are public.
    Source:     `choose_privately`, visit by visit; one word per visit, drawn whether it is read or not.
    """
    expect.having("source", source, "fit_for_release", "an Entropy")
    if not simulated and not source.fit_for_release:
        raise EntropyMisuse(
            "expected the cryptographic stream for choices, got a simulation; say simulated=True for a study"
        )
    _expect_fitting(menus, visits, rates)
    spent, wallets = np.zeros(len(visits)), None
    match devices:
        case PublicDevices():
            rank = np.zeros(len(visits), np.int64)
        case ExactDevices():
            rank = np.zeros(len(visits), np.int64)
            for at, rows in _groups(visits.menu):
                menu = menus[at]
                rank[rows] = np.argmax(device_scores(menu, rates[rows, : len(menu)]), axis=1)
                spent[rows] = np.inf if len(menu) > 1 else 0.0
        case PlannedDevices():
            plans = {at: _plans(menus[at], devices) for at in np.unique(visits.menu).tolist()}
            steps, wallets = _pay(menus, visits, devices, plans)
            store(wallets)
            words = source.words(len(visits))
            rank = np.zeros(len(visits), np.int64)
            ladder = 1 + len(devices.policy.ladder)
            for group, rows in _groups(visits.menu * ladder + steps):
                at, step = divmod(group, ladder)
                choice, own = PrivateChoice(menus[at], plans[at][step]), words[rows]
                rank[rows] = choice.choose(rates[rows, : len(menus[at])], lambda _, own=own: own)  # type: ignore[misc]
                spent[rows] = choice.epsilon_spent
    return DeviceChoices(rank, spent, _impressions(menus, visits.menu, rank), wallets)


def choices_of_ranks(
    menus: Sequence[Menu], menu: Integers, rank: Integers, epsilon_spent: Floats
) -> DeviceChoices:
    """What devices that chose by themselves showed: the rank at each visit, and what it spent."""
    return DeviceChoices(rank, epsilon_spent, _impressions(menus, menu, rank), None)


def _plans(menu: Menu, devices: PlannedDevices) -> tuple[ChoicePlan, ...]:
    """The plan of each step of the ladder; the first spends nothing."""
    planner, public = planner_for(menu, devices.planner), menu.public_scores
    return planner.public_best(public), *(planner.plan(public, step) for step in devices.policy.ladder)


def _pay(
    menus: Sequence[Menu], visits: Visits, devices: PlannedDevices, plans: dict[int, tuple[ChoicePlan, ...]]
) -> tuple[Integers, Wallets]:
    """The step of the ladder that each visit takes, and the wallets that have paid; from public data alone."""
    policy = devices.policy
    gains = np.zeros((len(menus), len(policy.ladder)))
    pays = np.zeros((len(menus), 1 + len(policy.ladder)), np.bool_)
    for at, by_step in plans.items():
        prior = planner_for(menus[at], devices.planner).prior
        gains[at] = forecast_gains(menus[at].public_scores, prior, policy.ladder)
        pays[at] = [not plan.skipped for plan in by_step]
    columns = devices.wallets, visits.device, visits.now
    return policy.spend_by_turns(gains[visits.menu], *columns, pays[visits.menu])


def _groups(key: Integers) -> list[tuple[int, Integers]]:
    """Each value of a key, and its rows."""
    order = np.argsort(key, kind="stable")
    values, starts = np.unique(key[order], return_index=True)
    return list(zip(values.tolist(), np.split(order, starts[1:]), strict=True))


def _impressions(menus: Sequence[Menu], menu: Integers, rank: Integers) -> Impressions:
    """What every menu tells the bill of its visits, in the order of the visits."""
    parts, rows = [], []
    for at, own in _groups(menu):
        nothing = menus[at].nothing_rank
        shown = own if nothing is None else own[rank[own] != nothing]
        parts.append(menus[at].impressions(rank[shown]))
        rows.append(shown)
    order = np.argsort(np.concatenate(rows), kind="stable")
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])[order]
        for name in (*WHOLES, "due_on", "auction")
    }
    return Impressions(**columns, rule=parts[0].rule)


def _expect_fitting(menus: Sequence[Menu], visits: Visits, rates: Floats) -> None:
    if not 0 <= visits.menu.min() <= visits.menu.max() < len(menus):
        raise BadInput(f"expected visits to menus in 0..{len(menus) - 1}, got another")
    if len({menu.price for menu in menus}) > 1:
        raise BadInput("expected one price rule for all menus, which the bill names, got several")
    shape = (len(visits), max(len(menu) for menu in menus))
    if rates.shape != shape:
        raise BadInput(f"expected rates of shape {shape}, a visit a row, got {rates.shape}")
