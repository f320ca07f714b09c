"""What advertisers owe, in words: items, accounts and budgets add up to the micro."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tacit.bill.accounts import (
    invoice_as_json,
    itemise_invoice,
    items_as_csv,
    read_accounts,
    set_budget,
    show_micros,
)
from tacit.bill.server.store import Invoice, InvoiceLine
from tacit.errors import BadInput, BillError
from tests.support.billing_audits import COFFEE, SHOES, AdWorld, play_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> AdWorld:
    return play_world(tmp_path_factory.mktemp("accounts") / "ads.sqlite")


@pytest.mark.parametrize(
    ("micros", "shown"),
    [
        (0, "0.000000"), (1, "0.000001"), (999_999, "0.999999"), (10**6, "1.000000"),
        (2**63 - 1, "9,223,372,036,854.775807"), (-1_500_000, "-1.500000"),
    ],
)  # fmt: skip
def test_no_micro_is_lost_in_showing(micros: int, shown: str) -> None:
    assert show_micros(micros) == shown
    assert int(shown.replace(",", "").replace(".", "")) == micros


def test_items_are_all_lines_in_words_the_dearest_first(world: AdWorld) -> None:
    invoice = world.store.invoices()[2]
    items = itemise_invoice(invoice, world.store)
    assert [(each.context, each.shown, each.epoch, each.impressions, each.total_micros) for each in items] == [
        ("Tea", "1 of 3", 2, 2, 4_200), ("Coffee", "2 of 3", 1, 1, 1_200), ("Tea", "2 of 3", 2, 1, 1_200),
    ]  # fmt: skip
    assert items[0].reason == "second price per impression, public rank 1, price set by campaign 2"
    told = invoice_as_json(invoice, items)
    assert told["total_micros"] == sum(each["total_micros"] for each in told["items"]) == 6_600
    rows = list(csv.DictReader(items_as_csv([(invoice, items)]).decode().splitlines()))
    assert [int(row["total_micros"]) for row in rows] == [4_200, 1_200, 1_200]
    assert {row["advertiser"] for row in rows} == {"Bean & Leaf"}


def test_a_line_whose_menu_is_gone_is_refused(world: AdWorld) -> None:
    invoice = Invoice(9, "Bean & Leaf", 1, (InvoiceLine(1, b"?" * 32, 1, 1_500, 1),))
    with pytest.raises(BillError, match="invoice 9: expected the menu 3f3f3f3f3f3f3f3f of a line, got none"):
        itemise_invoice(invoice, world.store)


def test_accounts_are_the_sums_of_charges(world: AdWorld) -> None:
    accounts = read_accounts(world.store)
    invoiced = sum(each.total_micros for each in world.store.invoices())
    assert accounts.charged_micros == invoiced + accounts.uninvoiced_micros == 16_000
    assert accounts.held_micros == 1_000
    assert (accounts.impressions, accounts.nothing_shown, accounts.invoices) == (11, 1, 4)
    assert accounts.as_json()["campaigns"][0]["uninvoiced_micros"] == 2_100


def test_a_budget_is_changed_for_campaigns_that_are_known(tmp_path: Path) -> None:
    world = play_world(tmp_path / "ads.sqlite")
    assert set_budget(world.store, SHOES, 1_500).charged_micros == 1_500
    assert read_accounts(world.store).held_micros == 500
    menu = world.open_epoch(3)[COFFEE]
    world.redeem(menu, world.reports(menu, 3))
    assert read_accounts(world.store).held_micros == 1_000
    assert set_budget(world.store, SHOES, None).charged_micros == 2_500
    assert read_accounts(world.store).held_micros == 0
    with pytest.raises(BadInput, match="expected a campaign that the ad server knows, got 77"):
        set_budget(world.store, 77, None)
    with pytest.raises(BadInput, match="budget_micros"):
        set_budget(world.store, SHOES, -1)
