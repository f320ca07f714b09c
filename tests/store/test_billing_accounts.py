"""Budgets, charges that are held, and invoices that add up, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import MOST_PRICE_MICROS, PricedMenu
from tacit.bill.server.store import Campaign, Invoice, InvoiceLine
from tacit.errors import BadInput, BillError, BillRefused
from tacit.store import SqlAdStore
from tacit.store.billing_accounts import MOST_CHARGED
from tests.support.billing_worlds import EPOCH, a_menu, a_stored_epoch, charged, redeemed, sign_receipt
from tests.support.ledger_places import Place

LISBON = a_menu(prices=(100, 30, 0), campaigns=(1, 2, 3))
PORTO = a_menu("Porto", prices=(70, 10), campaigns=(1, 4))
ACCEPTED, DUPLICATE, OVER_BUDGET = BillVerdict.ACCEPTED, BillVerdict.DUPLICATE, BillVerdict.OVER_BUDGET


@pytest.fixture
def store(place: Place) -> Iterator[SqlAdStore]:
    opened = SqlAdStore.open(place.where)
    opened.put_campaigns([Campaign(1, "Acme"), Campaign(2, "Acme"), Campaign(4, "Bolt")])
    opened.keep_epoch(EPOCH, a_stored_epoch(LISBON, PORTO))
    yield opened
    opened.close()


class Redeemer:
    """Redeems batches of new tokens, and tells what the store decided before it was signed."""

    def __init__(self, store: SqlAdStore) -> None:
        self.store, self.batches = store, 0

    def __call__(
        self, *indices: int, menu: PricedMenu = LISBON, names: Sequence[object] | None = None
    ) -> list[BillVerdict]:
        self.batches += 1
        named = names or [(self.batches, place) for place in range(len(indices))]
        reports = [charged(menu, name, index) for name, index in zip(named, indices, strict=True)]
        batch = redeemed(menu, reports, self.batches)
        decided: list[BillVerdict] = []

        def sign(verdicts: bytes) -> bytes:
            decided.extend(BillVerdict(each) for each in verdicts)
            return sign_receipt(batch)(verdicts)

        self.store.redeem(batch, sign)
        return decided


@pytest.fixture
def redeem(store: SqlAdStore) -> Redeemer:
    return Redeemer(store)


def money(store: SqlAdStore) -> dict[int, int]:
    return {each.campaign: each.charged_micros for each in store.campaigns()}


def test_a_budget_is_spent_in_the_order_of_the_batch(store: SqlAdStore, redeem: Redeemer) -> None:
    store.put_campaigns([Campaign(2, "Acme", 70)])
    assert redeem(1, 2, 2, 2, 0, 3) == [ACCEPTED] * 3 + [OVER_BUDGET] + [ACCEPTED] * 2
    assert money(store) == {1: 100, 2: 60, 3: 0, 4: 0}
    assert store.held_micros() == {2: 30}
    assert store.totals() == [
        InvoiceLine(-1, LISBON.menu_id, 0, 0, 1), InvoiceLine(1, LISBON.menu_id, 1, 100, 1),
        InvoiceLine(2, LISBON.menu_id, 2, 30, 2), InvoiceLine(3, LISBON.menu_id, 3, 0, 1),
    ]  # fmt: skip


def test_what_fits_is_charged_behind_what_does_not(store: SqlAdStore, redeem: Redeemer) -> None:
    store.put_campaigns([Campaign(1, "Acme", 75)])
    assert redeem(1) == [OVER_BUDGET]
    assert redeem(1, menu=PORTO) == [ACCEPTED]
    assert (money(store)[1], store.held_micros()) == (70, {1: 100})


def test_a_held_token_is_spent(store: SqlAdStore, redeem: Redeemer) -> None:
    store.put_campaigns([Campaign(1, "Acme", 0)])
    assert redeem(1, names=["a"]) == [OVER_BUDGET]
    assert redeem(1, 2, names=["a", "a"]) == [DUPLICATE, DUPLICATE]
    assert (money(store)[1], store.held_micros()) == (0, {1: 100})


def test_a_duplicate_takes_nothing_from_the_budget(store: SqlAdStore, redeem: Redeemer) -> None:
    store.put_campaigns([Campaign(2, "Acme", 60)])
    assert redeem(2, 2, 2, 2, names=["a", "a", "b", "c"]) == [ACCEPTED, DUPLICATE, ACCEPTED, OVER_BUDGET]
    assert money(store)[2] == 60


def test_a_raised_budget_pays_for_what_was_held_the_oldest_first(store: SqlAdStore, redeem: Redeemer) -> None:
    store.put_campaigns([Campaign(1, "Acme", 0)])
    first, second = redeem(1, 1), redeem(1, menu=PORTO)
    assert set(first + second) == {OVER_BUDGET}
    store.put_campaigns([Campaign(1, "Acme", 99)])  # the two oldest cost 100 each, the newest 70
    assert (money(store)[1], store.held_micros()) == (70, {1: 200})
    store.put_campaigns([Campaign(1, "Acme", 170)])
    assert (money(store)[1], store.held_micros()) == (170, {1: 100})
    batches = [each.batch_id for each in store.batches()]
    assert [each.held for each in store.charges_of(batches[0])] == [False, True]
    store.put_campaigns([Campaign(1, "Acme")])
    assert (money(store)[1], store.held_micros()) == (270, {})


def test_a_lowered_budget_takes_nothing_back(store: SqlAdStore, redeem: Redeemer) -> None:
    redeem(1, 1, 3)
    store.put_campaigns([Campaign(1, "Acme", 150), Campaign(3, "campaign 3", 0)])
    assert money(store)[1] == 200
    assert redeem(1, 3) == [OVER_BUDGET, ACCEPTED]  # what is free needs no money
    assert store.held_micros() == {1: 100}


def test_who_pays_never_changes(store: SqlAdStore, redeem: Redeemer) -> None:
    redeem(1)
    before = store.campaigns()
    for wrong in (Campaign(1, "Bolt", 5), Campaign(3, "Acme")):
        with pytest.raises(
            BillRefused, match=r"campaign \d: expected advertiser '[\w ]+', got '\w+'"
        ) as refused:
            store.put_campaigns([Campaign(2, "Acme", 7), wrong])
        assert refused.value.reason is BillVerdict.CONFLICT
        assert store.campaigns() == before  # also of those that stood before it
    with pytest.raises(BillRefused):
        store.put_campaigns([Campaign(8, "Acme"), Campaign(8, "Bolt")])
    assert store.campaigns() == before


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Campaign(-1, "Acme"), "expected a campaign in 0..2"),
        (Campaign(2**63, "Acme"), "expected a campaign in 0..2"),
        (Campaign(True, "Acme"), "campaign"),
        (Campaign(1, " "), "expected the name of its advertiser"),
        (Campaign(1, "a\nb"), "expected the name of its advertiser"),
        (Campaign(1, 5), "advertiser"),  # type: ignore[arg-type]
        (Campaign(1, "Acme", -1), "expected budget_micros in 0..2"),
        (Campaign(1, "Acme", 2**63), "expected budget_micros in 0..2"),
        (Campaign(1, "Acme", 0.5), "budget_micros"),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_bad_campaigns_are_refused(store: SqlAdStore, wrong: Campaign, words: str) -> None:
    before = store.campaigns()
    with pytest.raises(BadInput, match=words):
        store.put_campaigns([Campaign(77, "Acme"), wrong])
    assert store.campaigns() == before


def test_the_largest_numbers_fit(store: SqlAdStore, redeem: Redeemer, place: Place) -> None:
    """What would not fit its column is held, like what is over a budget."""
    store.put_campaigns([Campaign(2**63 - 1, "Croesus")])
    store.keep_epoch(2**32 - 1, a_stored_epoch(dear := a_dear_menu()))
    assert redeem(1, menu=dear) == [ACCEPTED]
    place.sql(f"UPDATE bill_ads_campaigns SET charged = {MOST_CHARGED - 1} WHERE campaign = {2**63 - 1}")
    assert redeem(1, menu=dear) == [OVER_BUDGET]
    assert store.held_micros() == {2**63 - 1: MOST_PRICE_MICROS}
    (invoice,) = store.close_invoices(2**40)
    assert invoice.total_micros == MOST_PRICE_MICROS


def a_dear_menu() -> PricedMenu:
    return a_menu("Monaco", epoch=2**32 - 1, prices=(MOST_PRICE_MICROS,), campaigns=(2**63 - 1,))


def test_invoices_have_every_charge_once_and_add_up(store: SqlAdStore, redeem: Redeemer) -> None:
    assert (store.close_invoices(5), store.invoices()) == ([], [])
    redeem(1, 1, 2, 0, 3)
    redeem(1, 2, menu=PORTO)
    closed = store.close_invoices(6)
    assert closed == [
        Invoice(1, "Acme", 6, (
            InvoiceLine(1, LISBON.menu_id, 1, 100, 2), InvoiceLine(1, PORTO.menu_id, 1, 70, 1),
            InvoiceLine(2, LISBON.menu_id, 2, 30, 1),
        )),
        Invoice(2, "Bolt", 6, (InvoiceLine(4, PORTO.menu_id, 2, 10, 1),)),
        Invoice(3, "campaign 3", 6, (InvoiceLine(3, LISBON.menu_id, 3, 0, 1),)),
    ]  # fmt: skip
    assert [(each.total_micros, each.impressions) for each in closed] == [(300, 4), (10, 1), (0, 1)]
    assert store.close_invoices(7) == []
    assert store.invoices() == closed


def test_late_charges_are_on_the_next_invoice(store: SqlAdStore, redeem: Redeemer) -> None:
    store.put_campaigns([Campaign(2, "Acme", 30)])
    redeem(1, 2, 2)
    first = store.close_invoices(6)
    assert [(each.advertiser, each.total_micros) for each in first] == [("Acme", 130)]
    assert store.close_invoices(7) == []  # what is held is on none
    redeem(1)
    store.put_campaigns([Campaign(2, "Acme", 60)])
    second = store.close_invoices(8)
    assert [(each.number, each.total_micros) for each in second] == [(2, 130)]
    assert store.invoices() == [*first, *second]
    invoiced = Counter(each.invoice for batch in store.batches() for each in store.charges_of(batch.batch_id))
    assert invoiced == {1: 2, 2: 2}


def test_invoices_are_what_was_charged(store: SqlAdStore, redeem: Redeemer) -> None:
    for day in range(3):
        redeem(0, 1, 2, 3, 1)
        redeem(2, 1, menu=PORTO)
        store.close_invoices(day)
    lines: Counter[tuple[int, bytes, int, int]] = Counter()
    for each in (line for invoice in store.invoices() for line in invoice.lines):
        lines[each.campaign, each.menu_id, each.index, each.price_micros] += each.impressions
    totals = {
        (each.campaign, each.menu_id, each.index, each.price_micros): each.impressions
        for each in store.totals()
        if each.index
    }
    assert lines == totals
    owed = sum(each.total_micros for each in store.invoices())
    assert owed == sum(money(store).values()) == 3 * (100 + 30 + 0 + 100 + 10 + 70)


def test_an_invoice_that_does_not_add_up_is_not_shown(
    store: SqlAdStore, redeem: Redeemer, place: Place
) -> None:
    redeem(1, 1)
    store.close_invoices(5)
    place.sql("UPDATE bill_ads_lines SET impressions = 3")
    with pytest.raises(BillError, match="invoice 1: expected lines that add up to 200 micros of 2 impressions"):
        store.invoices()


def test_where_counts_do_not_agree_no_invoice_is_closed(
    store: SqlAdStore, redeem: Redeemer, place: Place
) -> None:
    """A trigger stands for a writer that got past the lock: the count does not fit, and nothing is closed."""
    redeem(1, 1)
    if place.where.startswith("sqlite"):
        place.sql(
            "CREATE TRIGGER other AFTER INSERT ON bill_ads_invoices BEGIN "
            "UPDATE bill_ads_charges SET held = TRUE WHERE place = 0; END"
        )
    else:
        place.sql(
            "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN UPDATE bill_ads_charges SET held = TRUE WHERE place = 0; RETURN NEW; END $$"
        )
        place.sql("CREATE TRIGGER other AFTER INSERT ON bill_ads_invoices EXECUTE FUNCTION hold()")
    with pytest.raises(BillError, match="expected 2 charges on the new invoices, got 1: none was closed"):
        store.close_invoices(5)
    assert store.invoices() == []
    assert store.held_micros() == {}
