"""Three days of one town: with privacy, without it, without personalisation; and what is measured of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.model.learning import predict
from tacit.data.generators.town import ADS, DISCLOSED, SECRETIVE, Town, disclosed_moments
from tacit.deliver.auction.choices import NonPersonalised
from tacit.deliver.estimates.moments import MomentShrinkage
from tacit.deliver.planning.blocks import planned_rule
from tacit.entropy import Simulation
from tacit.pipeline import (
    DEVICES,
    WORTH_ASKING,
    Day,
    Privacy,
    Served,
    Told,
    run_day,
    serve,
    untold,
)
from tacit.privacy.ledger.lines import Line
from tacit.privacy.ledger.rules import Account
from tacit.privacy.releases import ShuffledChoice
from tacit.privacy.shuffling import amplified
from tacit.store.ledger import LedgerStore
from tacit.town import PURCHASE, click_examples, purchase_examples
from tacit.train.estimator import Estimator
from tacit.train.evaluation.auc import auc

Floats = NDArray[np.float64]

MEASURED_BY = 50_000  # fresh impressions
EPSILONS = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0)
SHUFFLED_DELTA = 1e-6


@dataclass(frozen=True)
class Learnt:
    """How good what was learnt is: AUC of both click models on fresh impressions, AUC of purchases of the
    advertiser that shares none, and by how much click-through rates are off (root mean square)."""

    server_auc: float
    device_auc: float
    purchase_auc: float
    rates_off: float


@dataclass(frozen=True)
class Spent:
    """One line of the ledger: who is protected, and what was spent of what was granted."""

    line: Line
    epsilon: float
    delta: float
    granted: float


@dataclass(frozen=True, eq=False)
class Compared:
    """All that the report tells."""

    town: Town
    privacy: Privacy
    tacit: Day
    exact: Day
    impersonal: Served
    learnt: Learnt
    learnt_exactly: Learnt
    frontier: Sequence[tuple[float, Served]]
    shuffled: Floats  # by visit: epsilon of the choice in its report, among those that look like it
    spent: Sequence[Spent]

    @property
    def clicks_kept(self) -> float | None:
        """Of what personalisation without privacy adds to click-through, the share that is left with it."""
        return _share(*(day.click_rate for day in self._days))

    @property
    def worth_kept(self) -> float | None:
        """The same of what ads are worth to advertisers, which devices choose by."""
        return _share(*(day.worth_micros for day in self._days))

    @property
    def device_delta(self) -> float:
        """Of what one device tells in all: choices have none, counts have theirs."""
        return next(each.delta for each in self.spent if each.line == DEVICES)

    @property
    def _days(self) -> tuple[Served, Served, Served]:
        return self.impersonal, self.tacit.served, self.exact.served


def compare(town: Town, privacy: Privacy, ledger: LedgerStore, seed: int, told: Told = untold) -> Compared:
    """The three days. Draws come from the seed: it is a study, and promises nothing of its own.

    Without personalisation people are sent what tacit sends them; without privacy the server's own choice is
    exact, too. `spent` is all that the ledger knows of.
    """
    day = run_day(town, privacy, ledger, Simulation(seed), told)
    exact = run_day(town, None, ledger, Simulation(seed), told)
    impersonal = serve(town, day.menus, day.device, NonPersonalised(), Simulation(seed), wallet=None)
    frontier = []
    for done, epsilon in enumerate(EPSILONS, start=1):
        rule = planned_rule(WORTH_ASKING, epsilon)
        served = serve(town, day.menus, day.device, rule, Simulation(seed), wallet=None)
        frontier.append((epsilon, served))
        told("choosing at other epsilons", done, len(EPSILONS))
    return Compared(
        town=town,
        privacy=privacy,
        tacit=day,
        exact=exact,
        impersonal=impersonal,
        learnt=_learnt(town, day),
        learnt_exactly=_learnt(town, exact),
        frontier=frontier,
        shuffled=_shuffled(town, day.served, privacy.choice),
        spent=[_spent(account) for account in ledger.verify().ledger.accounts.values()],
    )


def learnt_rates(town: Town, day: Day) -> Floats:
    """(contexts that can be disclosed, ads): click-through rates by the statistics alone."""
    nodes = [town.hierarchy.at(context, DISCLOSED) for context in disclosed_moments().contexts()]
    statistics = day.statistics
    ids = np.array([statistics.nodes.id(node) for node in nodes])
    return MomentShrinkage().rates(statistics.counts, DISCLOSED, ids, np.arange(ADS)).rate


def _learnt(town: Town, day: Day) -> Learnt:
    fresh = town.fresh(MEASURED_BY)
    examples = click_examples(fresh)
    clicks = purchase_examples(fresh._replace(happened=_bought(town, len(fresh.ad))))
    own = clicks.of_advertiser(SECRETIVE)

    def measured(model: Estimator) -> float:
        return auc(examples.labels, model.predict(examples))

    return Learnt(
        measured(day.server),
        measured(day.device),
        auc(own.labels(PURCHASE), predict(day.purchases, own, PURCHASE)),
        float(np.sqrt(np.mean((learnt_rates(town, day) - town.mean_click_rates()) ** 2))),
    )


def _bought(town: Town, clicks: int) -> NDArray[np.bool_]:
    fresh = town.fresh(clicks)
    words = Simulation(f"purchases of {town.seed}").words(clicks)
    return words < (town.buy_rates(fresh.moments, fresh.ad) * 2.0**64).astype(np.uint64)


def _shuffled(town: Town, served: Served, local: Fraction) -> Floats:
    """What the choice in one report tells among those of its day; nothing where nothing private decided it.

    Reports hide each other only if they agree in all that travels with the choice: the menu, and whether it was
    clicked. What the click itself tells is not in this. A person may have several reports there: their own
    others are no crowd, and what all of them tell together is more: up to as many times as there are, at a
    larger delta.
    """
    found = np.zeros(len(served.menu))
    for menu, clicked in product(np.unique(served.menu).tolist(), (False, True)):
        members = (served.menu == menu) & (served.clicked == clicked) & (served.epsilon_spent > 0)
        others = int(members.sum()) - (town.visits_each - 1)
        if members.any():
            release = ShuffledChoice(local, max(1, others))
            found[members] = amplified.epsilon(release, SHUFFLED_DELTA)
    return found


def _share(public: float, private: float, exact: float) -> float | None:
    """None where there was nothing to keep."""
    return (private - public) / (exact - public) if exact > public else None


def _spent(account: Account) -> Spent:
    spent, limit = account.spent.budget, account.limit.budget
    return Spent(account.line, float(spent.epsilon), float(spent.delta), float(limit.epsilon))
