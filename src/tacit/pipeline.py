"""READ FIRST: one simulated day of tacit, from what devices count to what advertisers pay.

    day = run_day(Town(), Privacy(), ledger, stores, Simulation(1))  # gather, train, clean room, deliver, bill
    other = run_day(Town(), None, ledger, None, Simulation(1))       # the same without privacy, to compare

`run_day` has one line per stage; each stage is a function below it, a few lines that call the package that does
the work. `tacit quickstart` runs it and draws what came out. The town is made up: nobody's data is here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.bill.charges import Charges, charge
from tacit.billed_day import BilledDay, BilledDevices, BillingStores, expect_same_bill, show_through_parties
from tacit.cleanroom.in_process import room_in_process
from tacit.cleanroom.model.learning import LearnSettings, predict, pretrain, tune_adapter
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.platform.steps import AdapterPlan
from tacit.cleanroom.platform.training import train_adapter
from tacit.cleanroom.protocol.tokens import token_key, tokens
from tacit.cleanroom.room.store import RoomLedger
from tacit.data.generators import town as places
from tacit.data.generators.town import ADS, ADVERTISERS, DISCLOSED, SECRETIVE, Town
from tacit.deliver.auction.devices import Devices, ExactDevices, PlannedDevices, Visits, choose_for_devices
from tacit.deliver.device.choice import planner_for
from tacit.deliver.device.wallet import BudgetPolicy
from tacit.deliver.protocol.menu import BYTES_AN_AD, Menu
from tacit.deliver.protocol.plans import Planner
from tacit.deliver.protocol.prices import BillingEvent, Rules, SecondPrice
from tacit.deliver.protocol.priors import LearntPrior
from tacit.deliver.server.candidates import CandidateServer
from tacit.deliver.server.moment_shrinkage import MomentShrinkage
from tacit.deliver.server.prior_evidence import PriorEvidence, ReportedRanks
from tacit.deliver.server.selection import candidates_for_load
from tacit.deliver.server.values import Bid
from tacit.errors import LedgerConflict
from tacit.gather.client.contributions import Event
from tacit.gather.estimate.plan import plan_run as plan_counts
from tacit.gather.estimate.top_down import public_nodes
from tacit.gather.protocol.promises import RELATION as ZERO_OUT
from tacit.gather.protocol.promises import Contribution
from tacit.gather.simulate.memory import MemoryProxyStore, MemoryServerStore
from tacit.gather.simulate.rounds import PartyStores
from tacit.gather.simulate.runs import count_on_devices
from tacit.memory_ledger import MemoryLedger
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.ledger.lines import Line
from tacit.privacy.randomness import Source
from tacit.privacy.units import Relation, Unit, UnitKind, Window
from tacit.progress import Progress, no_progress
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.counts import Counts
from tacit.town import (
    PURCHASE,
    best_candidates,
    click_examples,
    device_rates,
    disclosed_menus,
    draw_events,
    every_ad_everywhere,
    in_any_order,
    owed_by_advertisers,
    purchase_examples,
)
from tacit.train.estimator import Estimator
from tacit.train.methods import Hybrid, LabelDp, Plain, TrainingMethod
from tacit.train.models.factorization_machine import LogisticRegression
from tacit.train.models.model import Part
from tacit.train.settings import Learning, PrivateLearning, RateByNoise
from tacit.train.sgd.optimizers import Adam, Decay, Sgd

CANDIDATES = 6  # that a device is sent, where the network has room for them
FREE_BYTES_PER_SECOND, CREATIVE_BYTES = 1_000_000, 2_000
VALUE_MICROS = 4_000_000  # of a purchase, to every advertiser
DELTA = "1e-6"
ADAPTER = ADVERTISERS[SECRETIVE].lower()
LEVELS = 3  # exact, disclosed, anywhere

LEARNING = Learning(epochs=6, batch=2048, rate=0.02, decay=Decay.COSINE, optimizer=Adam())
NOISY = PrivateLearning(
    epochs=10, batch=4096, clip_norm=1.0, rate=RateByNoise(), optimizer=Sgd(momentum=0.9), recalibrate=False
)

LOG = Line("click log", Unit(UnitKind.IMPRESSION), Relation.REPLACE_ONE)
DEVICES = Line("clicks on devices", Unit(UnitKind.DEVICE), ZERO_OUT)


@dataclass(frozen=True)
class Privacy:
    """What each stage may tell, as epsilon.

    counts  of a device's events, by statistics
    labels  of an impression's label, by the server's click model
    hybrid  of an impression's label and sensitive features, by the devices' click model
    room    of a purchase that its advertiser does not share
    choice  of what only the device knows, by one choice; `wallet`: by all of its choices in the day

    A device that counts and chooses spends `counts` and `wallet`: the two add up.
    """

    counts: Fraction = Fraction(4)
    labels: Fraction = Fraction(4)
    hybrid: Fraction = Fraction(8)
    room: Fraction = Fraction(3)
    choice: Fraction = Fraction(2)
    wallet: Fraction = Fraction(6)

    @property
    def log(self) -> Budget:
        """Both click models learn from one log: what they tell of an impression adds up."""
        return Budget.of(self.labels + self.hybrid, DELTA)


@dataclass(frozen=True, eq=False)
class Statistics:
    """Clicks and impressions by context and ad, and the contexts by name."""

    nodes: ContextNodes
    counts: Counts


@dataclass(frozen=True, eq=False)
class ServedDay:
    """A day's visits: which ads were shown, what came of them, and what is owed. `click_rate` is the mean true
    rate of what was shown, `worth_micros` what purchases are worth that follow in expectation."""

    menu: Integers
    ad: Integers
    clicked: NDArray[np.bool_]
    charges: Charges
    click_rate: float
    worth_micros: float
    epsilon_spent: Floats  # by visit; on the devices
    billed: BilledDay | None = None  # what crossed between the parties; None where none took part


@dataclass(frozen=True, eq=False)
class Day:
    """All that came of one day. The models may be asked again: for another rule of choosing, say."""

    statistics: Statistics
    server: Estimator
    device: Estimator
    purchases: ConversionModel
    menus: tuple[Menu, ...]
    served: ServedDay
    tomorrow: LearntPrior | None  # what menus may assume next, by the day's reports; None where none is private


def run_day(
    town: Town,
    privacy: Privacy | None,
    ledger: RoomLedger,
    stores: BillingStores | None,
    source: Source,
    progress: Progress = no_progress,
) -> Day:
    """One day, a line per stage. Without `privacy` everything is exact, and ledger and stores are left alone.

    With `stores`, every impression is reported and charged between the parties of billing, message by message;
    without, the same choices are made and charged in bulk.

    Guarantee:  that of each stage, as `privacy` says and `ledger` has it written down; what devices spend on
                choices stays with them.
    Neighbours: by line of the ledger: one device's events set to zero; one impression's label and sensitive
                features replaced; one purchase replaced. By choice: any two states of one device.
    Assumes:    a `source` that is an `Entropy`: with a `Simulation` it is a study, and promises nothing.
                Parties that are apart: here one process plays them all. Purchases of those who share them are
                not covered; clicks stay on devices, which count them tomorrow.
    Source:     the stages' own.
    """
    statistics = count_clicks(town, privacy, ledger, source, progress)
    if privacy is not None:
        ledger.grant(LOG, privacy.log)
    server = train_for_server(town, privacy, ledger, source, progress)
    device = train_for_devices(town, privacy, ledger, source, progress)
    purchases = learn_purchases(town, privacy, ledger, source, progress)
    menus = choose_candidates(town, statistics, server, purchases, progress)
    devices = choosing_devices(town, privacy, stores)
    served = serve(town, menus, device, devices, source, progress)
    tomorrow = None if privacy is None else learn_prior(menus, served, privacy.choice)
    return Day(statistics, server, device, purchases, menus, served, tomorrow)


def count_clicks(
    town: Town, privacy: Privacy | None, ledger: RoomLedger, source: Source, progress: Progress = no_progress
) -> Statistics:
    """Gather: yesterday's impressions and clicks by context and ad, through a proxy and a server."""
    shown = town.yesterday()
    if privacy is None:
        columns = dict(zip(("place", "doing"), zip(*shown.moments.contexts(), strict=True), strict=True))
        nodes = ContextNodes.of(town.hierarchy, columns)
        return Statistics(nodes, Counts.of_rows(nodes, shown.ad, ADS, shown.happened))
    nodes = public_nodes(town.hierarchy, {"place": places.QUARTERS, "doing": places.ACTIVITIES})
    run = plan_counts(
        contribution=Contribution(events=4, each=1), levels=LEVELS, parties=town.people, epsilon=privacy.counts
    )
    events = [[Event(*each) for each in own] for own in shown.by_person(town.people)]
    proxy_ledger = MemoryLedger()  # the proxy is another organisation, and has its own
    for each in (proxy_ledger, ledger):
        each.grant(DEVICES, run.cost)
    books = PartyStores(MemoryProxyStore(), MemoryServerStore(), proxy_ledger, ledger)
    counts = count_on_devices(
        "yesterday", nodes, ADS, run, events, books, source, scope=DEVICES.scope,
        progress=lambda done, total: progress("counting on devices", done, total),
    )  # fmt: skip
    return Statistics(nodes, counts)


def train_for_server(
    town: Town, privacy: Privacy | None, ledger: RoomLedger, source: Source, progress: Progress = no_progress
) -> Estimator:
    """Train the click model that ranks and prices: public features, labels flipped once."""
    part = Plain(LEARNING, Part.TRUNCATED)
    method = part if privacy is None else LabelDp(privacy.labels, learning=LEARNING)
    return _train("server's click model", method, town, ledger, source, progress)


def train_for_devices(
    town: Town, privacy: Privacy | None, ledger: RoomLedger, source: Source, progress: Progress = no_progress
) -> Estimator:
    """Train the click model that devices choose by: sensitive features too, by the Hybrid."""
    method: TrainingMethod = Plain(LEARNING)
    if privacy is not None:
        method = Hybrid(privacy.hybrid, DELTA, k=0.125, label_learning=LEARNING, learning=NOISY)
    return _train("devices' click model", method, town, ledger, source, progress)


def learn_purchases(
    town: Town, privacy: Privacy | None, ledger: RoomLedger, source: Source, progress: Progress = no_progress
) -> ConversionModel:
    """Clean room: a conversion model of those who share, and an adapter for the one who does not.

    Purchases that are shared are read as they are, by agreement: nothing protects them here.
    """
    clicks = purchase_examples(town.purchases())
    shared = clicks.select(clicks.advertiser != SECRETIVE)
    own = clicks.of_advertiser(SECRETIVE)
    model = ConversionModel(clicks.settings(dim=4, tower=(16,)), seed=town.seed)
    pretrain(model, shared, settings=LearnSettings(epochs=4, batch=512, learning_rate=1e-2, seed=town.seed))
    model.add_adapter(ADAPTER, advertiser=SECRETIVE, rank=4, seed=town.seed)
    learning = AdapterPlan(task=PURCHASE, batch=512, epochs=6, learning_rate=1e-2, seed=town.seed)
    if privacy is None:
        tune_adapter(model, ADAPTER, own, PURCHASE, own.labels(PURCHASE), learning.learning(len(own)))
        return model
    named = tokens(own.records, token_key(source.bytes(32), ADAPTER))
    room = room_in_process(
        named, own.labels(PURCHASE)[:, None], source=source, ledger=ledger,
        name=f"{ADAPTER}-purchases", tasks=(PURCHASE,), epsilon=privacy.room,
    )  # fmt: skip
    train_adapter(
        model, ADAPTER, own, named, room, learning, run="monday",
        progress=lambda at: progress("learning in the clean room", at.step, at.steps),
    )  # fmt: skip
    return model


def choose_candidates(
    town: Town,
    statistics: Statistics,
    server: Estimator,
    purchases: ConversionModel,
    progress: Progress = no_progress,
) -> tuple[Menu, ...]:
    """Deliver, the server's part: a few ads for each context that can be disclosed, ranked and priced.

    Made of what was released above, and of shared purchases, which bids follow: of nothing else.
    """
    everywhere, shown = every_ad_everywhere()
    rates = server.predict(click_examples(shown)).astype(np.float64).reshape(-1, ADS)
    bought = predict(purchases, purchase_examples(shown), PURCHASE)
    bids = np.floor(VALUE_MICROS * expit(bought)).astype(np.int64).reshape(-1, ADS)
    nodes = [town.hierarchy.at(context, DISCLOSED) for context in everywhere.contexts()]
    listed = [Bid(ad, node, int(bids[at, ad])) for at, node in enumerate(nodes) for ad in range(ADS)]
    rules = Rules(SecondPrice(BillingEvent.IMPRESSION))
    answering = CandidateServer(statistics.nodes, statistics.counts, MomentShrinkage(), listed, rules=rules)
    load = Fraction(town.people * town.visits_each, Window.days(1).seconds)
    k = candidates_for_load(FREE_BYTES_PER_SECOND, load, BYTES_AN_AD + CREATIVE_BYTES, most=CANDIDATES)
    menus = []
    for at, node in enumerate(nodes):
        menus.append(answering.send(node, best_candidates(answering, node, k), 0, public_rates=rates[at]))
        progress("choosing candidates", at + 1, len(nodes))
    return tuple(menus)


def choosing_devices(
    town: Town, privacy: Privacy | None, stores: BillingStores | None
) -> Devices | BilledDevices:
    """Everybody's device: private and billed between parties, private in bulk, or exact."""
    if privacy is None:
        return ExactDevices()
    if stores is None:
        return planned_devices(town, privacy.choice, privacy.wallet)
    return BilledDevices(privacy.choice, privacy.wallet, stores)


def planned_devices(town: Town, epsilon: expect.Number, wallet: expect.Number) -> PlannedDevices:
    """Everybody's device: asks its model where that should be worth `epsilon`, by the prior that stands in the
    menu, up to `wallet` in the day."""
    policy = BudgetPolicy(float(wallet), (float(epsilon),), threshold=0.0, window=Window.days(1))
    return PlannedDevices(Planner(), policy, policy.wallets(town.people))


def serve(
    town: Town,
    menus: tuple[Menu, ...],
    device: Estimator,
    devices: Devices | BilledDevices,
    source: Source,
    progress: Progress = no_progress,
) -> ServedDay:
    """Deliver, the devices' part, and bill: each discloses, plans, pays and chooses by what only it knows; what
    was shown is shuffled, and charged exactly, at its menu's price, whatever a device knows.

    Who has nothing left shows the public best. Whether somebody clicks stays on the device.
    """
    moments = in_any_order(town.today(), source)
    menu = disclosed_menus(town, moments, menus)
    own, billed = device_rates(device, moments, menus, menu), None
    if isinstance(devices, BilledDevices):
        chosen, billed = show_through_parties(town, menus, moments, own, devices, source, progress)
    else:
        visits = Visits(menu, moments.person, now=np.zeros_like(menu))  # the day is one window
        chosen = choose_for_devices(
            menus, visits, own, devices, source,
            store=lambda _: None, simulated=not source.fit_for_release,  # made-up devices forget with the day
        )  # fmt: skip
    charges, ad = charge(owed_by_advertisers(chosen.impressions)), chosen.impressions.campaign
    if billed is not None:
        expect_same_bill(billed, charges.by_campaign)
    rates = town.click_rates(moments, ad)
    return ServedDay(
        menu=menu,
        ad=ad,
        clicked=draw_events(rates, source),
        charges=charges,
        click_rate=float(rates.mean()),
        worth_micros=VALUE_MICROS * float((rates * town.buy_rates(moments, ad)).sum()),
        epsilon_spent=chosen.epsilon_spent,
        billed=billed,
    )


def learn_prior(menus: tuple[Menu, ...], served: ServedDay, epsilon: expect.Number) -> LearntPrior:
    """Deliver, in the evening: how far devices' scores are from public ones, by the server's reports.

    Every report was paid for when it was made, and its law follows from its menu: this releases nothing more.
    """
    reported = []
    for at, menu in enumerate(menus):
        asked = (served.menu == at) & (served.epsilon_spent > 0)
        if asked.any():
            plan = planner_for(menu, Planner()).plan(menu.public_scores, epsilon)
            ranks = [menu.place[ad] for ad in served.ad[asked].tolist()]
            counts = np.bincount(ranks, minlength=len(menu))
            reported.append(ReportedRanks(menu.public_scores, plan.law, counts))
    return PriorEvidence().learn(reported).prior()


def _train(
    what: str, method: TrainingMethod, town: Town, ledger: RoomLedger, source: Source, progress: Progress
) -> Estimator:
    """Plan, pay, and only then train."""
    examples = click_examples(town.log())
    estimator = Estimator(LogisticRegression(), method, source=source, simulated=not source.fit_for_release)
    plan = estimator.plan(examples)
    steps = sum(phase.schedule.steps for phase in plan.phases)
    before = np.cumsum([0, *(phase.schedule.steps for phase in plan.phases)])
    with _pay_for(ledger, what, plan.charge):
        estimator.fit(
            examples, plan, lambda at: progress(f"training the {what}", int(before[at.phase]) + at.step, steps)
        )
    return estimator


@contextmanager
def _pay_for(ledger: RoomLedger, key: str, cost: Guarantee | None) -> Iterator[None]:
    """Reserve before, commit after; without a cost nothing is promised, and nothing is paid.

    A release that the ledger knows already is refused: made again, with fresh noise, it would be another.
    """
    if cost is None:
        yield
        return
    if ledger.reserve(key, LOG, cost, f"train the {key}").resumed:
        raise LedgerConflict(f"{key}: expected a ledger that has not paid for it yet, got one that has")
    yield
    ledger.commit(key)
