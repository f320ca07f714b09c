"""Three days of one town compared: with privacy, without it, and without personalisation.

`compare_days` lives through them and measures each; the rest says what came of it, as a table for people,
records for machines and two sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tacit.arrays import Floats
from tacit.bill.audit.findings import VerificationReport
from tacit.billed_day import BilledDay, BillingStores, audit_bill
from tacit.cleanroom.model.learning import predict
from tacit.data.generators.town import ADS, ADVERTISERS, DISCLOSED, SECRETIVE, Town, disclosed_moments
from tacit.deliver.auction.devices import PublicDevices
from tacit.deliver.device.account import DeviceLimits
from tacit.deliver.device.choice import device_scores, planner_for
from tacit.deliver.protocol.priors import prior_as_json
from tacit.deliver.server.choice_logs import choice_table, debias_choices
from tacit.deliver.server.moment_shrinkage import MomentShrinkage
from tacit.entropy import Simulation
from tacit.pipeline import DEVICES, LOG, Day, Privacy, ServedDay, planned_devices, run_day, serve
from tacit.privacy.choice.choice import private_ranking
from tacit.privacy.ledger.lines import Line
from tacit.privacy.ledger.rules import Account
from tacit.progress import Progress, no_progress
from tacit.store.ledger import LedgerStore
from tacit.town import PURCHASE, click_examples, device_rates, disclosed_menus, purchase_examples
from tacit.train.estimator import Estimator
from tacit.train.evaluation.measures import auc

MEASURED_BY = 50_000  # fresh impressions
EPSILONS = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0)
CENTRAL_DELTA = DeviceLimits().delta


@dataclass(frozen=True)
class LearntQuality:
    """How good what was learnt is: AUC of both click models on fresh impressions, AUC of purchases of the
    advertiser that shares none, and by how much click-through rates are off (root mean square)."""

    server_auc: float
    device_auc: float
    purchase_auc: float
    rates_off: float


@dataclass(frozen=True)
class LedgerSpend:
    """One line of the ledger: who is protected, and what was spent of what was granted."""

    line: Line
    epsilon: float
    delta: float
    granted: float


@dataclass(frozen=True, eq=False)
class DayComparison:
    """All that the report tells."""

    town: Town
    privacy: Privacy
    tacit: Day
    exact: Day
    impersonal: ServedDay
    learnt: LearntQuality
    learnt_exactly: LearntQuality
    frontier: Sequence[tuple[float, ServedDay]]
    again: ServedDay  # the same visits, by menus with the prior that was learnt
    favourites_off: float | None  # how far shares of favourites are off, from choices; None: nobody was asked
    spent: Sequence[LedgerSpend]
    audited: VerificationReport  # what an auditor makes of the day's invoices

    @property
    def clicks_kept(self) -> float | None:
        """Of what personalisation without privacy adds to click-through, the share that is left with it."""
        return _share(*(day.click_rate for day in self._days))

    @property
    def worth_kept(self) -> float | None:
        """The same of what ads are worth to advertisers, which devices choose by."""
        return _share(*(day.worth_micros for day in self._days))

    @property
    def worth_kept_again(self) -> float | None:
        """The same of the same visits, planned by the prior that their reports speak for."""
        return _share(*(day.worth_micros for day in (self.impersonal, self.again, self.exact.served)))

    @property
    def clicks_kept_again(self) -> float | None:
        return _share(*(day.click_rate for day in (self.impersonal, self.again, self.exact.served)))

    @property
    def billed(self) -> BilledDay:
        """What crossed between the parties on tacit's own day."""
        assert self.tacit.served.billed is not None  # it was served through them
        return self.tacit.served.billed

    @property
    def device_delta(self) -> float:
        """Of what one device tells in all: choices have none, counts have theirs."""
        return next(each.delta for each in self.spent if each.line == DEVICES)

    @property
    def _days(self) -> tuple[ServedDay, ServedDay, ServedDay]:
        return self.impersonal, self.tacit.served, self.exact.served


def compare_days(
    town: Town,
    privacy: Privacy,
    ledger: LedgerStore,
    stores: BillingStores,
    seed: int,
    progress: Progress = no_progress,
) -> DayComparison:
    """The three days. Draws come from the seed: it is a study, and promises nothing of its own.

    tacit's own is billed between the parties; the others, which are there to compare with, in bulk.

    Without personalisation people are sent what tacit sends them; without privacy the server's own choice is
    exact, too. `spent` is all that the ledger knows of.
    """
    day = run_day(town, privacy, ledger, stores, Simulation(seed), progress)
    exact = run_day(town, None, ledger, None, Simulation(seed), progress)
    impersonal = serve(town, day.menus, day.device, PublicDevices(), Simulation(seed))
    frontier = []
    for done, epsilon in enumerate(EPSILONS, start=1):
        devices = planned_devices(town, epsilon, epsilon * town.visits_each)  # enough for every visit
        served = serve(town, day.menus, day.device, devices, Simulation(seed))
        frontier.append((epsilon, served))
        progress("choosing at other epsilons", done, len(EPSILONS))
    return DayComparison(
        town=town,
        privacy=privacy,
        tacit=day,
        exact=exact,
        impersonal=impersonal,
        learnt=_learnt(town, day),
        learnt_exactly=_learnt(town, exact),
        frontier=frontier,
        again=_serve_again(town, day, privacy, seed),
        favourites_off=favourites_off(town, day, choice_log(town, day, privacy)),
        spent=[_ledger_spend(account) for account in ledger.verify().ledger.accounts.values()],
        audited=_audit(stores, day),
    )


def _audit(stores: BillingStores, day: Day) -> VerificationReport:
    assert day.served.billed is not None  # it was served through the parties
    with TemporaryDirectory() as folder:
        return audit_bill(stores, day.served.billed, Path(folder) / "charges")


def _serve_again(town: Town, day: Day, privacy: Privacy, seed: int) -> ServedDay:
    """The day's visits by menus with the prior that was learnt from them: what tomorrow may hope for."""
    assert day.tomorrow is not None  # a day with privacy has it
    menus = tuple(replace(menu, prior=day.tomorrow) for menu in day.menus)
    devices = planned_devices(town, privacy.choice, privacy.wallet)
    return serve(town, menus, day.device, devices, Simulation(seed))


def learnt_rates(town: Town, day: Day) -> Floats:
    """(contexts that can be disclosed, ads): click-through rates by the statistics alone."""
    nodes = [town.hierarchy.at(context, DISCLOSED) for context in disclosed_moments().contexts()]
    statistics = day.statistics
    ids = np.array([statistics.nodes.id(node) for node in nodes])
    return MomentShrinkage().rates(statistics.counts, DISCLOSED, ids, np.arange(ADS)).rate


def choice_log(town: Town, day: Day, privacy: Privacy) -> pa.Table:
    """What the ad server may keep of the day's choices, a row per visit: menu, public law, and rank."""
    served, planner = day.served, planned_devices(town, privacy.choice, privacy.wallet).planner
    plans = [planner_for(menu, planner).plan(menu.public_scores, privacy.choice) for menu in day.menus]
    asked = served.epsilon_spent > 0
    rank = [day.menus[at].place[ad] for at, ad in zip(served.menu.tolist(), served.ad.tolist(), strict=True)]
    return choice_table(
        {
            "auction": served.menu,
            "chosen": rank,
            "kept": np.where(asked, np.array([plan.kept for plan in plans])[served.menu], 1),
            "top": np.where(asked, np.array([plan.top for plan in plans], np.int64)[served.menu], 1),
            "epsilon": served.epsilon_spent,
        }
    )


def favourites_off(town: Town, day: Day, log: pa.Table) -> float | None:
    """How far off it is, from a log of choices alone, how often each ad of a menu is a device's favourite: root
    mean square over menus and their kept ads, as a share of visits. None where nobody was asked."""
    menus, moments = day.menus, town.today()
    which = disclosed_menus(town, moments, menus)
    rates = device_rates(day.device, moments, menus, which)
    logged = {name: log[name].to_numpy() for name in log.column_names}
    errors = []
    for at, menu in enumerate(menus):
        rows = np.flatnonzero((logged["auction"] == at) & (logged["epsilon"] > 0))
        if not len(rows):
            continue
        law = {name: logged[name][rows] for name in ("kept", "top", "epsilon")}
        kept, top, size = int(law["kept"][0]), int(law["top"][0]), len(menu)
        places = np.arange(len(rows) + 1) * size, np.tile(np.arange(size), len(rows))
        found = debias_choices(*places, logged["chosen"][rows], **law, count=size)
        scores = device_scores(menu, rates[which == at][:, :size])[:, :kept]
        favourite = np.bincount(private_ranking(scores)[:, :top].ravel(), minlength=kept) / len(scores)
        errors.append(found.estimate[:kept] / len(rows) - favourite)
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2))) if errors else None


def _learnt(town: Town, day: Day) -> LearntQuality:
    fresh = town.fresh(MEASURED_BY)
    examples = click_examples(fresh)
    clicks = purchase_examples(fresh._replace(happened=_bought(town, len(fresh.ad))))
    own = clicks.of_advertiser(SECRETIVE)

    def measure_auc(model: Estimator) -> float:
        return auc(examples.labels, model.predict(examples))

    return LearntQuality(
        measure_auc(day.server),
        measure_auc(day.device),
        auc(own.labels(PURCHASE), predict(day.purchases, own, PURCHASE)),
        float(np.sqrt(np.mean((learnt_rates(town, day) - town.mean_click_rates()) ** 2))),
    )


def _bought(town: Town, clicks: int) -> NDArray[np.bool_]:
    fresh = town.fresh(clicks)
    words = Simulation(f"purchases of {town.seed}").words(clicks)
    return words < (town.buy_rates(fresh.moments, fresh.ad) * 2.0**64).astype(np.uint64)


def _share(public: float, private: float, exact: float) -> float | None:
    """None where there was nothing to keep."""
    return (private - public) / (exact - public) if exact > public else None


def _ledger_spend(account: Account) -> LedgerSpend:
    spent, limit = account.spent.budget, account.limit.budget
    return LedgerSpend(account.line, float(spent.epsilon), float(spent.delta), float(limit.epsilon))


COLUMNS = ("", "tacit", "without privacy", "without personalisation")
SHY = ADVERTISERS[SECRETIVE]


def comparison_table(found: DayComparison) -> list[tuple[str, ...]]:
    """What was learnt, shown, charged and spent, beside both other days."""
    tacit, exact, public = found.tacit.served, found.exact.served, found.impersonal
    learnt, exactly, days = found.learnt, found.learnt_exactly, (tacit, exact, public)
    off = 100 * learnt.rates_off, 100 * exactly.rates_off
    return [
        ("learnt: server's click model, AUC", *_three(learnt.server_auc, exactly.server_auc)),
        ("learnt: devices' click model, AUC", *_three(learnt.device_auc, exactly.device_auc)[:2], "not needed"),
        (f"learnt: purchases of {SHY}, AUC", *_three(learnt.purchase_auc, exactly.purchase_auc)),
        (
            "learnt: rates by context, off by (points)",
            *_three(*off, 1),
        ),
        ("learnt: favourites, from choices (points off)", _points(found.favourites_off), "known", "nothing"),
        ("shown: impressions", *(f"{len(day.ad):,}" for day in days)),
        ("shown: true click-through rate", *(f"{day.click_rate:.1%}" for day in days)),
        ("shown: true worth to advertisers, €", *(f"{day.worth_micros / 1e6:,.0f}" for day in days)),
        ("charged: impressions", *(f"{len(day.charges.impressions):,}" for day in days)),
        ("charged: €, exactly", *(f"{day.charges.total_micros / 1e6:,.6f}" for day in days)),
        ("charged: in batches of at least", f"{found.billed.smallest_batch:,}", "not shuffled", "not shuffled"),
        *(
            (
                f"spent: {line_words(each)}",
                _spent_words(each.epsilon, each.delta),
                "everything",
                _spent_words(*_impersonally(found, each)),
            )
            for each in found.spent
        ),
        ("spent: a device's choices, a day", f"ε ≤ {most_spent(found):g}", "everything", "nothing"),
        ("spent: the same, to the ad server alone", _central_words(found), "everything", "nothing"),
        (
            "spent: one device, counted and choosing",
            f"ε ≤ {device_total(found):g}, δ = {found.device_delta:.0e}",
            "everything",
            _spent_words(float(found.privacy.counts), found.device_delta),
        ),
    ]


def line_words(spent: LedgerSpend) -> str:
    """Whose promise a line of the ledger keeps."""
    return f"{spent.line.scope} ({spent.line.unit}, {spent.line.relation})"


def comparison_json(found: DayComparison) -> list[dict[str, Any]]:
    """The same for machines: one record per day, then the ledger's lines."""
    days = {"tacit": found.tacit.served, "without privacy": found.exact.served}
    days["without personalisation"] = found.impersonal
    learnt = {"tacit": found.learnt, "without privacy": found.learnt_exactly}
    records: list[dict[str, Any]] = [
        {"name": name, "synthetic": True, **_measures(day), **vars(learnt.get(name, found.learnt))}
        for name, day in days.items()
    ]
    records[0]["favourites_off"] = found.favourites_off
    records[0]["billed"] = {
        "invoices": {each.advertiser: each.total_micros for each in found.billed.invoices},
        "batches": [each.reports for each in found.billed.statements],
        "messages": dict(found.billed.messages),
        "bytes": dict(found.billed.sizes),
        "central_epsilon": float(found.billed.central.max()),
        "audit_holds": found.audited.holds,
    }
    records[0]["assumed_prior"] = prior_as_json(found.tacit.menus[0].prior)
    if found.tacit.tomorrow is not None:
        records[0]["learnt_prior"] = prior_as_json(found.tacit.tomorrow)
    lines = [
        {
            "name": f"spent: {each.line.scope}",
            "line": str(each.line),
            "epsilon": each.epsilon,
            "delta": each.delta,
        }
        for each in found.spent
    ]
    device = [
        {"name": "spent: a device's choices", "epsilon": most_spent(found), "delta": 0.0},
        {"name": "spent: one device in all", "epsilon": device_total(found), "delta": found.device_delta},
    ]
    return [*records, *lines, *device]


def most_spent(found: DayComparison) -> float:
    """The most that one device may have spent on its choices in the day: epsilon."""
    return float(found.privacy.wallet)


def device_total(found: DayComparison) -> float:
    """The same people count and choose: what one device spends on both adds up. Of its events nothing is left
    in a neighbour (zero-out), of what it chooses by anything may be other. Were events replaced by others, the
    counts would cost twice as much."""
    return float(found.privacy.counts + found.privacy.wallet)


def summary(found: DayComparison) -> str:
    """What privacy cost, in two sentences."""
    rate, public, exact = (day.click_rate for day in (found.tacit.served, found.impersonal, found.exact.served))
    return (
        f"Of every hundred ads {100 * rate:.1f} are clicked on average: {100 * public:.1f} without "
        f"personalisation, {100 * exact:.1f} without privacy. Of what personalisation adds in this town, "
        f"privacy keeps {share_words(found.clicks_kept)} of the clicks and {share_words(found.worth_kept)} of "
        "the worth to advertisers."
    )


def share_words(kept: float | None) -> str:
    """A share in words; there may have been nothing to keep."""
    return "nothing, as there was nothing," if kept is None else f"{kept:.0%}"


def _three(tacit: float, exact: float, digits: int = 3) -> tuple[str, str, str]:
    return f"{tacit:.{digits}f}", f"{exact:.{digits}f}", f"{tacit:.{digits}f}"


def _points(share: float | None) -> str:
    return "nobody asked" if share is None else f"{100 * share:.1f}"


def _spent_words(epsilon: float, delta: float) -> str:
    return f"ε = {epsilon:.4g}, δ = {delta:.0e}" if delta else f"ε = {epsilon:.4g}"


def _central_words(found: DayComparison) -> str:
    return f"ε ≤ {found.billed.central.max():.3g}, δ = {float(CENTRAL_DELTA):.0e}"


def _impersonally(found: DayComparison, spent: LedgerSpend) -> tuple[float, float]:
    """What the same line would have spent if devices chose nothing: their model would not be needed."""
    return (float(found.privacy.labels), 0.0) if spent.line == LOG else (spent.epsilon, spent.delta)


def _measures(day: ServedDay) -> dict[str, Any]:
    return {
        "impressions": len(day.ad),
        "click_rate": day.click_rate,
        "clicks": int(day.clicked.sum()),
        "worth_micros": day.worth_micros,
        "charged_micros": day.charges.total_micros,
        "charged_micros_by_advertiser": {
            ADVERTISERS[advertiser]: owed for advertiser, owed in day.charges.by_campaign.items()
        },
    }
