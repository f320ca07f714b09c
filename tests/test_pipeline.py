"""One day end to end in a small town: what it learns, shows, charges and spends."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logit

from tacit import pipeline
from tacit.bill.protocol.reports import REPORT_BYTES
from tacit.billed_day import SMALLEST_COHORT, BillingStores, expect_same_bill
from tacit.cleanroom.model.learning import predict
from tacit.cleanroom.protocol.modes import RECORD, RELATION
from tacit.cli import main
from tacit.data.generators.town import (
    ACTIVITIES,
    ADS,
    ADS_EACH,
    ADVERTISERS,
    DISCLOSED,
    QUARTERS,
    SECRETIVE,
    Moments,
    ShownAds,
    Town,
    disclosed_moments,
)
from tacit.deliver.auction.devices import ExactDevices, PublicDevices
from tacit.deliver.protocol.factor_laws import Spread
from tacit.deliver.protocol.menu import Menu
from tacit.deliver.protocol.priors import DEFAULT_PRIOR, LearntPrior
from tacit.deliver.server.choice_logs import PUBLIC_COLUMNS
from tacit.entropy import Simulation
from tacit.errors import BadInput, BillError, BudgetExceeded, LedgerConflict
from tacit.gather.client.contributions import Event
from tacit.gather.estimate.plan import plan_run
from tacit.gather.estimate.top_down import public_nodes
from tacit.gather.protocol.promises import Contribution
from tacit.gather.simulate.memory import MemoryProxyStore, MemoryServerStore
from tacit.gather.simulate.rounds import PartyStores
from tacit.gather.simulate.runs import count_on_devices
from tacit.memory_ledger import MemoryLedger
from tacit.pipeline import (
    ADAPTER,
    CANDIDATES,
    DEVICES,
    LOG,
    VALUE_MICROS,
    Day,
    Privacy,
    choose_candidates,
    learn_purchases,
    planned_devices,
    serve,
    train_for_devices,
    train_for_server,
)
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Line
from tacit.store.billing_ads import SqlAdStore
from tacit.store.billing_proxy import SqlBillingProxyStore
from tacit.store.ledger import LedgerStore
from tacit.town import PURCHASE, click_examples, disclosed_menus, in_any_order, purchase_examples
from tacit.train.estimator import Estimator
from tacit.train.evaluation.measures import auc
from tacit_lab.studies.day import comparison
from tacit_lab.studies.day import page as figures
from tacit_lab.studies.day.comparison import (
    DayComparison,
    choice_log,
    compare_days,
    comparison_json,
    comparison_table,
    favourites_off,
    line_words,
    most_spent,
    summary,
)
from tacit_lab.studies.day.page import prior_words, report

SMALL = Town(people=300, logged=30_000, clicks=24_000)


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> LedgerStore:
    return LedgerStore.open(tmp_path_factory.mktemp("day") / "ledger.sqlite")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> BillingStores:
    folder = tmp_path_factory.mktemp("billing")
    return BillingStores(
        SqlAdStore.open(folder / "ads.sqlite"), SqlBillingProxyStore.open(folder / "reports.sqlite")
    )


@pytest.fixture(scope="module")
def found(books: LedgerStore, stores: BillingStores) -> DayComparison:
    return compare_days(SMALL, Privacy(), books, stores, seed=1)


def test_a_town_is_its_seed_s_and_people_keep_their_taste() -> None:
    one, again, other = Town(), Town(), Town(seed=2)
    assert np.array_equal(one.log().happened, again.log().happened)
    assert not np.array_equal(one.log().ad, other.log().ad)
    yesterday, today = one.yesterday().moments, one.today()
    tastes = dict(zip(yesterday.person.tolist(), yesterday.taste.tolist(), strict=True))
    assert all(
        tastes[who] == taste for who, taste in zip(today.person.tolist(), today.taste.tolist(), strict=True)
    )


def test_the_town_s_rates_are_those_that_its_logs_are_drawn_with() -> None:
    """100,000 impressions: the mean of what happened is within 5 standard errors of the mean true rate."""
    log = Town().log()
    rates = Town().click_rates(log.moments, log.ad)
    error = np.sqrt((rates * (1 - rates)).sum()) / len(rates)
    assert abs(log.happened.mean() - rates.mean()) < 5 * error
    bought = Town().purchases()
    rates = Town().buy_rates(bought.moments, bought.ad)
    error = np.sqrt((rates * (1 - rates)).sum()) / len(rates)
    assert abs(bought.happened.mean() - rates.mean()) < 5 * error


def test_the_town_is_as_its_module_says() -> None:
    town = Town()
    assert town.log().happened.mean() == pytest.approx(0.065, abs=0.02)
    assert town.purchases().happened.mean() == pytest.approx(0.08, abs=0.03)
    kinds = [Moments(*(np.full(1, value) for value in (0, 0, 4 * kind, 0))) for kind in (0, 1)]
    for ad in (SECRETIVE * ADS_EACH, 5 * ADS_EACH):
        one, two = (logit(town.buy_rates(moments, np.array([ad])))[0] for moments in kinds)
        drawn = np.diff(town._effects.buy_kind[ad, :2])[0]
        assert two - one == pytest.approx(-drawn if ad // ADS_EACH == SECRETIVE else drawn)
    shown = town.yesterday()
    own = shown.by_person(town.people)
    assert sum(map(len, own)) == len(shown.ad)
    assert own[3] == [
        (context, ad, clicked)
        for person, context, ad, clicked in zip(
            shown.moments.person.tolist(), shown.moments.contexts(), shown.ad.tolist(), shown.happened.tolist(),
            strict=True,
        )
        if person == 3
    ]  # fmt: skip


def test_devices_count_no_more_events_than_the_run_allows() -> None:
    """Sixty devices with six events each, of which two may count: at ε = 30 noise has an sd below two."""
    town = replace(SMALL, people=60)
    nodes = public_nodes(town.hierarchy, {"place": QUARTERS, "doing": ACTIVITIES})
    run = plan_run(contribution=Contribution(events=2, each=2), levels=3, parties=60, epsilon=30)
    assert run.published_sd(60) < 2
    ledgers = MemoryLedger(), MemoryLedger()
    for ledger in ledgers:
        ledger.grant(DEVICES, run.cost)
    books = PartyStores(MemoryProxyStore(), MemoryServerStore(), ledgers[1], ledgers[0])
    events = [[Event(("Harbour 1", "Running"), n % 3, n % 2 == 0) for n in range(6)] for _ in range(60)]
    done: list[tuple[int, int]] = []
    counts = count_on_devices(
        "one", nodes, 3, run, events, books, Simulation(1), scope=DEVICES.scope,
        progress=lambda so_far, total: done.append((so_far, total)),
    )  # fmt: skip
    for level in counts.levels:
        assert counts.by_level[level].total.sum() == pytest.approx(120, abs=60)
    assert counts.by_level[counts.levels[-1]].total[0] == pytest.approx(120, abs=12)
    assert done[-1] == (180, 180)


def test_everything_is_paid_for_on_one_ledger(found: DayComparison, books: LedgerStore) -> None:
    purchases = Line("shoes-purchases", RECORD, RELATION)
    privacy = found.privacy
    for line, epsilon in (
        (DEVICES, privacy.counts),
        (LOG, privacy.labels + privacy.hybrid),
        (purchases, privacy.room),
    ):
        account = books.account(line)
        assert account is not None
        assert account.reserved.budget == Budget(Fraction(0), Fraction(0)), "nothing is left open"
        assert Fraction(99, 100) * epsilon < account.spent.budget.epsilon <= epsilon
    books.verify()


def test_a_line_that_cannot_pay_refuses_before_anything_is_trained(tmp_path: Path) -> None:
    ledger = LedgerStore.open(tmp_path / "poor.sqlite")
    ledger.grant(LOG, Budget.of(1, "1e-6"))
    with pytest.raises(BudgetExceeded):
        train_for_devices(SMALL, Privacy(), ledger, Simulation(1), progress=lambda *_: pytest.fail("it trains"))


def test_what_was_paid_for_is_not_trained_again_for_nothing(books: LedgerStore, found: DayComparison) -> None:
    """Another training has fresh flips and noise: it is another release, and the key is spent."""
    spent = books.account(LOG)
    with pytest.raises(LedgerConflict, match="expected a ledger that has not paid for it yet"):
        train_for_server(SMALL, found.privacy, books, Simulation(2))
    assert books.account(LOG) == spent


def test_a_device_s_wallet_binds(found: DayComparison) -> None:
    """With a wallet of 3 a choice of 2 is paid once: at other visits the public best is shown."""
    day = found.tacit
    poor = planned_devices(SMALL, found.privacy.choice, 3)
    served = serve(SMALL, day.menus, day.device, poor, Simulation(1))
    moments = in_any_order(SMALL.today(), Simulation(1))  # the same draws: who came when
    spent = np.bincount(moments.person, served.epsilon_spent, SMALL.people)
    assert set(spent.tolist()) <= {0.0, 2.0}
    assert (spent == 2).any()
    unpaid = served.epsilon_spent == 0
    best = np.array([menu.ads[0] for menu in day.menus])
    assert np.array_equal(served.ad[unpaid], best[served.menu[unpaid]])
    rich = serve(SMALL, day.menus, day.device, planned_devices(SMALL, 2, 6), Simulation(1))
    assert rich.epsilon_spent.sum() > served.epsilon_spent.sum()
    assert rich.epsilon_spent.sum() == found.tacit.served.epsilon_spent.sum(), "three visits of 2"
    with pytest.raises(BadInput, match="expected a ladder up to total = 1 at most, got 2"):
        planned_devices(SMALL, 2, 1)


def test_menus_are_made_of_what_was_released_and_bids_of_predicted_purchases(found: DayComparison) -> None:
    """By statistics, the server's model and the conversion model alone: no device's model, no visitor."""
    day, menus = found.tacit, found.tacit.menus
    again = choose_candidates(SMALL, day.statistics, day.server, day.purchases)
    ads, rates, bids = (
        np.array([getattr(menu, name) for menu in menus]) for name in ("ads", "rates", "bid_micros")
    )
    assert np.array_equal(ads, [menu.ads for menu in again])
    assert np.array_equal(rates, [menu.rates for menu in again])
    assert ads.shape == (12, CANDIDATES)
    assert all(len(set(row)) == CANDIDATES for row in ads.tolist())
    everywhere = disclosed_moments()
    assert everywhere.disclosed.tolist() == list(range(12))
    assert menus[5].node == SMALL.hierarchy.at(everywhere.contexts()[5], DISCLOSED)
    rows = Moments(*(np.repeat(column, CANDIDATES) for column in everywhere))
    shown = ShownAds(rows, ads.ravel(), np.zeros(ads.size, bool))
    bought = expit(predict(day.purchases, purchase_examples(shown), PURCHASE))
    assert np.array_equal(bids.ravel(), np.floor(VALUE_MICROS * bought))
    assert np.allclose(rates.ravel(), day.server.predict(click_examples(shown)))


def test_a_network_with_little_room_makes_menus_short(
    found: DayComparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    """900 visits a day, of 2,030 bytes an ad: 50 bytes a second are room for two ads a visit."""
    monkeypatch.setattr(pipeline, "FREE_BYTES_PER_SECOND", 50)
    day = found.tacit
    few = choose_candidates(SMALL, day.statistics, day.server, day.purchases)
    assert {len(menu) for menu in few} == {2}
    served = serve(SMALL, few, day.device, planned_devices(SMALL, 2, 6), Simulation(1))
    assert all(ad in few[menu].ads for menu, ad in zip(served.menu, served.ad, strict=True))


def test_the_secret_purchases_do_not_reach_the_shared_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turned round, they leave what is predicted for everybody else as it was, bit for bit."""
    town, ledger = replace(SMALL, clicks=3_000), MemoryLedger()
    clicks = town.purchases()
    own = clicks.ad // ADS_EACH == SECRETIVE
    first = learn_purchases(town, None, ledger, Simulation(1))
    turned = clicks._replace(happened=clicks.happened ^ own)
    monkeypatch.setattr(Town, "purchases", lambda _: turned)
    second = learn_purchases(town, None, ledger, Simulation(1))
    one, two = (predict(model, purchase_examples(clicks), PURCHASE) for model in (first, second))
    assert np.array_equal(one[~own], two[~own])
    assert not np.array_equal(one[own], two[own])


def test_what_is_public_of_an_impression_holds_nothing_finer_than_was_disclosed() -> None:
    log = replace(SMALL, logged=5_000).log()
    finer = log.moments._replace(
        quarter=log.moments.quarter ^ 1, activity=log.moments.activity ^ 1, taste=(log.moments.taste + 1) % 8
    )
    other = log._replace(moments=finer)
    assert np.array_equal(finer.disclosed, log.moments.disclosed)
    assert np.array_equal(log.public_codes[0], other.public_codes[0])
    assert (log.sensitive_codes[0] != other.sensitive_codes[0]).all()


def test_reports_name_their_menu_and_come_in_an_order_that_tells_nothing(found: DayComparison) -> None:
    day = found.tacit
    one, two = (serve(SMALL, day.menus, day.device, PublicDevices(), Simulation(seed)) for seed in (7, 8))
    assert sorted(one.menu) == sorted(two.menu) == sorted(SMALL.today().disclosed)
    assert not np.array_equal(one.menu, two.menu)
    assert not np.array_equal(one.menu, SMALL.today().disclosed), "people in a row"
    named = one.charges.impressions.auction
    assert named is not None
    assert set(named.tolist()) <= {menu.name for menu in day.menus}, "a report says no more of its request"


def test_a_device_discloses_a_district_and_a_kind_and_no_more(found: DayComparison) -> None:
    moments = SMALL.today()
    assert np.array_equal(disclosed_menus(SMALL, moments, found.tacit.menus), moments.disclosed)
    with pytest.raises(BadInput, match="expected a menu for every context that is disclosed, got none"):
        disclosed_menus(SMALL, moments, found.tacit.menus[1:])


def test_devices_plan_by_the_menu_and_the_day_s_reports_teach_tomorrow_s(found: DayComparison) -> None:
    day = found.tacit
    assert {menu.prior for menu in day.menus} == {DEFAULT_PRIOR}
    assert planned_devices(SMALL, 2, 6).planner.by_menu
    assert isinstance(day.tomorrow, LearntPrior)
    assert day.tomorrow.reports == (day.served.epsilon_spent > 0).sum()
    assert found.exact.tomorrow is None
    assert found.again.epsilon_spent.max() <= float(found.privacy.choice)
    wary = tuple(replace(menu, prior=Spread(0)) for menu in day.menus)
    served = serve(SMALL, wary, day.device, planned_devices(SMALL, 2, 6), Simulation(1))
    assert not served.epsilon_spent.any(), "menus that say that people do not differ"
    said = prior_words(found)
    assert str(DEFAULT_PRIOR) in said
    assert str(day.tomorrow) in said


def test_what_is_shown_was_on_the_menu_and_what_is_charged_adds_up(found: DayComparison) -> None:
    for served in (found.tacit.served, found.exact.served, found.impersonal):
        assert len(served.ad) == SMALL.people * SMALL.visits_each
        charges = served.charges
        lines = list(charges.lines())
        assert len(lines) == len(served.ad), "a line per impression"
        assert sum(line.amount_micros for line in lines) == charges.total_micros
        assert {line.due_on for line in lines} == {"impression"}
        assert set(charges.by_campaign) <= set(range(ADS // ADS_EACH))
        assert {line.reason.setter for line in lines if line.reason.setter >= 0} <= set(range(ADS // ADS_EACH))
    menus, served = found.tacit.menus, found.tacit.served
    assert all(ad in menus[menu].ads for menu, ad in zip(served.menu, served.ad, strict=True))


def test_a_choice_spends_at_most_what_was_said_and_nothing_where_nothing_is_won(found: DayComparison) -> None:
    spent = found.tacit.served.epsilon_spent
    assert set(np.unique(spent)) <= {0.0, float(found.privacy.choice)}
    assert (found.impersonal.epsilon_spent == 0).all()
    assert found.billed.central.max() <= most_spent(found)


def test_a_log_of_choices_says_who_likes_what_and_not_who_lied(found: DayComparison) -> None:
    """At epsilon 25 a choice is the favourite but for a chance below 1e-9, so shares come out exactly; at the
    day's 2 they come with noise."""
    day = found.tacit

    def at(epsilon: int) -> tuple[Day, Privacy]:
        privacy = replace(found.privacy, choice=Fraction(epsilon), wallet=Fraction(3 * epsilon))
        devices = planned_devices(SMALL, epsilon, 3 * epsilon)
        return replace(day, served=serve(SMALL, day.menus, day.device, devices, Simulation(1))), privacy

    sure, privacy = at(25)
    log = choice_log(SMALL, sure, privacy)
    assert set(log.column_names) <= PUBLIC_COLUMNS
    exactly = favourites_off(SMALL, sure, log)
    assert exactly is not None
    assert exactly < 1e-6
    noisy = found.favourites_off
    assert noisy is not None
    assert 0.01 < noisy < 0.5
    wrong = log.set_column(log.column_names.index("chosen"), "chosen", [0 * log["chosen"].to_numpy()])
    assert (favourites_off(SMALL, sure, wrong) or 0) > 0.1, "the public best each time is another log"
    public = replace(day, served=found.impersonal)
    assert favourites_off(SMALL, public, choice_log(SMALL, public, found.privacy)) is None
    rows = {row[0]: row[1:] for row in comparison_table(replace(found, favourites_off=None))}
    assert rows["learnt: favourites, from choices (points off)"] == ("nobody asked", "known", "nothing")


def test_learning_is_worth_it(found: DayComparison) -> None:
    """Without privacy the devices' model knows more than the server's, and choosing by it is better than not.

    With few people privacy may cost all of the gain: what a full-size day keeps is in the report.
    """
    assert found.learnt_exactly.device_auc > found.learnt_exactly.server_auc + 0.03
    assert found.learnt_exactly.device_auc > found.learnt.device_auc
    assert found.exact.served.click_rate > found.impersonal.click_rate
    assert found.learnt_exactly.rates_off < found.learnt.rates_off


def test_the_adapter_learns_what_the_others_purchases_do_not_tell(found: DayComparison) -> None:
    """Customers of the one that shares nothing behave the other way round; by flipped labels that is learnt."""
    assert found.learnt.purchase_auc > 0.55
    assert found.learnt_exactly.purchase_auc > 0.55


def test_prices_do_not_depend_on_what_devices_know(found: DayComparison) -> None:
    """Two device models, one price for each place of each menu: the menu's own."""
    named = {menu.name: menu for menu in found.tacit.menus}

    def prices(device: Estimator) -> dict[tuple[str, int], int]:
        served = serve(SMALL, found.tacit.menus, device, ExactDevices(), Simulation(5))
        lines = list(served.charges.lines())
        for line in lines:
            menu: Menu = named[str(line.auction)]
            assert line.amount_micros == menu.price_micros[line.reason.rank]
            assert line.campaign == menu.ads[line.reason.rank] // ADS_EACH
        return {(str(line.auction), line.reason.rank): line.amount_micros for line in lines}

    ours, theirs = prices(found.tacit.device), prices(found.exact.device)
    both = ours.keys() & theirs.keys()
    assert len(both) > 10
    assert all(ours[each] == theirs[each] for each in both)


def test_the_device_s_model_ranks_by_taste(found: DayComparison) -> None:
    fresh = SMALL.fresh(20_000)
    examples = click_examples(fresh)
    scores = found.exact.device.predict(examples)
    shuffled = fresh.moments._replace(taste=np.roll(fresh.moments.taste, 1))
    other = click_examples(fresh._replace(moments=shuffled))
    assert auc(examples.labels, scores) > auc(examples.labels, found.exact.device.predict(other)) + 0.05


def test_the_table_has_each_day_s_own_figures(found: DayComparison) -> None:
    rows = {row[0]: row[1:] for row in comparison_table(found)}
    assert {name.split(":")[0] for name in rows} == {"learnt", "shown", "charged", "spent"}
    days = (found.tacit.served, found.exact.served, found.impersonal)
    assert rows["shown: true click-through rate"] == tuple(f"{day.click_rate:.1%}" for day in days)
    assert rows["charged: €, exactly"] == tuple(f"{day.charges.total_micros / 1e6:,.6f}" for day in days)
    learnt, exactly = found.learnt, found.learnt_exactly
    assert rows["learnt: devices' click model, AUC"][:2] == (
        f"{learnt.device_auc:.3f}",
        f"{exactly.device_auc:.3f}",
    )
    assert rows["spent: click log (impression, replace-one)"] == ("ε = 11.99, δ = 1e-06", "everything", "ε = 4")
    assert rows["spent: one device, counted and choosing"] == (
        "ε ≤ 10, δ = 1e-06",
        "everything",
        "ε = 4, δ = 1e-06",
    )
    private, exact, public = (day.click_rate for day in days)
    assert found.clicks_kept == pytest.approx((private - public) / (exact - public))
    worth, most, least = (day.worth_micros for day in days)
    assert found.worth_kept == pytest.approx((worth - least) / (most - least))
    for figure in (f"{100 * private:.1f} are clicked on average", f"{100 * exact:.1f} without privacy"):
        assert figure in summary(found)


def test_all_that_the_ledger_knows_is_in_the_table_and_on_the_page(
    found: DayComparison, books: LedgerStore
) -> None:
    accounts = books.verify().ledger.accounts
    assert {each.line for each in found.spent} == accounts.keys()
    rows = {row[0] for row in comparison_table(found)}
    page = report(found, "tacit quickstart")
    for each in found.spent:
        assert each.epsilon == float(accounts[each.line].spent.budget.epsilon)
        assert f"spent: {line_words(each)}" in rows
        assert page.count(escape(line_words(each))) == 2, "in what came of it, and in what was spent"
    assert found.device_delta == float(accounts[DEVICES].spent.budget.delta) > 0
    assert most_spent(found) == float(found.privacy.wallet)


def test_where_personalisation_adds_nothing_nothing_can_be_kept(found: DayComparison) -> None:
    nothing = replace(found, exact=replace(found.exact, served=found.impersonal))
    assert nothing.clicks_kept is None
    assert "privacy keeps nothing, as there was nothing, of the clicks" in summary(nothing)
    assert "none" in report(nothing, "tacit quickstart")


def test_days_are_measured_by_the_models_they_are_named_for(found: DayComparison) -> None:
    """Without personalisation means the first of tacit's own menus, whatever devices know."""
    menus = found.tacit.menus
    first = np.array([menu.ads[np.argmax(menu.bid_micros * menu.rates)] for menu in menus])
    assert np.array_equal(found.impersonal.ad, first[found.impersonal.menu])
    at_2 = dict(found.frontier)[2.0]
    assert at_2.click_rate == pytest.approx(found.tacit.served.click_rate, abs=0.02)


def test_what_is_invoiced_is_what_devices_showed_to_the_micro(
    found: DayComparison, stores: BillingStores
) -> None:
    """Each impression is one request, one report and one charge; each menu leaves in one batch."""
    billed, served = found.billed, found.tacit.served
    impressions = SMALL.people * SMALL.visits_each
    assert {name: billed.messages[name] for name in ("offers", "reports")} == {
        "offers": billed.messages["requests"], "reports": impressions,
    }  # fmt: skip
    assert billed.sizes["reports"] == impressions * REPORT_BYTES
    assert billed.charged_micros == served.charges.total_micros
    owed = {ADVERTISERS[advertiser]: micros for advertiser, micros in served.charges.by_campaign.items()}
    assert {each.advertiser: each.total_micros for each in billed.invoices} == owed
    assert sum(each.reports for each in billed.statements) == impressions
    assert len({each.menu_id for each in billed.statements}) == len(billed.statements)
    charged = {(line.menu_id, line.index): line.impressions for line in stores.ads.totals()}
    assert sum(charged.values()) == impressions
    assert max(charged.values()) == max(
        np.bincount(served.ad[served.menu == menu]).max() for menu in range(len(found.tacit.menus))
    )


def test_an_auditor_derives_the_day_s_invoices_again(found: DayComparison) -> None:
    assert found.audited.holds
    assert found.audited.reports == SMALL.people * SMALL.visits_each
    assert found.audited.charged.micros == found.tacit.served.charges.total_micros
    assert "all of it holds" in report(found, "tacit quickstart")


def test_a_bill_that_is_off_by_a_micro_stops_the_day(found: DayComparison) -> None:
    owed = found.tacit.served.charges.by_campaign
    expect_same_bill(found.billed, owed)
    with pytest.raises(BillError, match="expected invoices of"):
        expect_same_bill(found.billed, {**owed, next(iter(owed)): owed[next(iter(owed))] + 1})


def test_a_device_in_a_small_cohort_counts_its_choices_in_full(found: DayComparison) -> None:
    """In the small town no menu has enough reports: to the ad server alone, too, choices tell all they cost."""
    by_size, in_full = found.billed.settled
    assert max(each.reports for each in found.billed.statements) < SMALLEST_COHORT
    assert (by_size, in_full) == (0, SMALL.people * SMALL.visits_each)
    assert found.billed.central.sum() == pytest.approx(found.tacit.served.epsilon_spent.sum())
    assert found.billed.central.max() == pytest.approx(float(found.privacy.wallet))


class _Ids(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.headings += [tag] if tag == "h2" else []
        self.outside += [
            value or ""
            for name, value in attrs
            if name in ("src", "href") and not (value or "").startswith("#")
        ]


def test_the_command_leaves_a_page_and_a_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import tacit.data.generators.town as town_module

    small = replace(SMALL, logged=4_000, clicks=2_000)
    monkeypatch.setattr(town_module, "Town", lambda seed: replace(small, seed=seed))
    monkeypatch.setattr(comparison, "EPSILONS", (2.0,))
    monkeypatch.setattr(figures, "EPSILONS", (2.0,))
    monkeypatch.setattr(comparison, "MEASURED_BY", 5_000)
    out = tmp_path / "day"
    out.mkdir()
    (out / "day.sqlite").write_text("of another study")
    assert main(["quickstart", "--out", str(out)]) == 0
    assert "without personalisation" in capsys.readouterr().out
    text = (out / "index.html").read_text()
    read = _Ids()
    read.feed(text)
    assert len(read.headings) == 9
    assert not read.outside, "the page needs nothing but itself"
    assert "synthetic" in text
    assert main(["ledger", "show", "--ledger", str(out / "day.sqlite"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["lines"]) == 3


def test_another_s_page_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "index.html").write_text("<h1>Our firm</h1>")
    assert main(["quickstart", "--out", str(tmp_path)]) == 2
    assert "got another's" in capsys.readouterr().err
    assert [place.name for place in tmp_path.iterdir()] == ["index.html"]


def test_machines_are_told_the_same(found: DayComparison) -> None:
    records = comparison_json(found)
    assert [each["name"] for each in records[:3]] == ["tacit", "without privacy", "without personalisation"]
    assert all(each["synthetic"] for each in records[:3])
    assert records[0]["charged_micros"] == found.tacit.served.charges.total_micros
    assert [each["name"] for each in records[3:-2]] == [f"spent: {each.line.scope}" for each in found.spent]
    assert [each["epsilon"] for each in records[-2:]] == [6, 10]
    json.dumps(records, allow_nan=False)


def test_scale_makes_all_of_the_town_larger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    towns: list[Town] = []

    def asked(town: Town, *_: object) -> None:
        towns.append(town)
        raise BadInput("enough")

    monkeypatch.setattr(comparison, "compare_days", asked)
    assert main(["quickstart", "--scale", "3", "--seed", "4", "--out", str(tmp_path / "day")]) == 2
    usual = Town(seed=4)
    assert towns == [replace(usual, people=3 * usual.people, logged=3 * usual.logged, clicks=3 * usual.clicks)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--scale", "0"], "expected scale to be a whole number >= 1, got 0"),
        (["--seed", "-1"], "expected seed to be a whole number >= 0, got -1"),
        (["--seed", str(2**63)], f"expected seed to be a whole number of at most 2^63 - 1, got {2**63}"),
        (["--out", "file"], "--out: expected a folder, got file"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    assert main(["quickstart", *arguments]) == 2
    said = capsys.readouterr().err
    assert expected in said
    assert said.count("\n") == 1
    assert [place.name for place in tmp_path.iterdir()] == ["file"], "nothing was made"


def test_a_day_promises_only_with_the_system_s_entropy(found: DayComparison) -> None:
    day: Day = found.tacit
    assert day.server.statement is None, "drawn from a seed"
    assert day.purchases is not found.exact.purchases
    assert day.purchases.adapter(ADAPTER).advertiser == SECRETIVE
