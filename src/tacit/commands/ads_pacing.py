"""`tacit ads pacing`: what each campaign has spent, what is out of its budget, and how far over it can go."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.commands.ads_campaigns import add_place, http_desk_of
from tacit.commands.bill import open_ad_store
from tacit.commands.output import print_json, print_table

ABOUT = """\
What each campaign may cost, was charged, has held and has out: tokens of its menus that may still be reported,
each at its price. If all of them are reported for it, it is over its budget by the bound, and by no more. The
pacer keeps the bound below the share of the table [pacing]; a budget that was lowered meanwhile may be exceeded
by more, which is marked, until what is out has come in or lapsed.

Amounts are in currency units, to the micro; in --json in whole micros. With SETTINGS it reads the store,
whether the service runs or not; without, it asks the ad server (GET /ads/pacing), where an advertiser's key
sees its own campaigns."""

COLUMNS = (
    "campaign", "advertiser", "budget", "charged", "held", "out", "bound", "of budget", "today", "of a day"
)  # fmt: skip
NUMBERS = tuple(each for each in COLUMNS if each != "advertiser")


def add_pacing(action: Callable[[str, str, str], argparse.ArgumentParser]) -> None:
    """The action of `tacit ads`."""
    parser = action("pacing", "budgets, what is out of them, and how far over each can go", ABOUT)
    add_place(parser)
    parser.set_defaults(run=run_pacing)


def run_pacing(args: argparse.Namespace) -> int:
    with http_desk_of(args) as desk:
        found = _from_store(args.settings) if desk is None else desk.pacing()
    if args.json:
        print_json(found)
        return 0
    share = f"{found['share']:.0%}" if found["on"] else "off"
    print_table(f"Pacing, {share} of a budget at most", COLUMNS, map(_row, found["campaigns"]), numbers=NUMBERS)
    offered = "no epoch is open" if found["epoch"] is None else f"epoch {found['epoch']} is offered"
    print(f"{offered}: {found['ran_out']} of {found['menus']} menus sign no more tokens")
    return 0


def _from_store(path: Path) -> dict[str, Any]:
    from tacit.services.ads.pacer import Pacer
    from tacit.services.ads.pacing_part import pacing_record
    from tacit.services.billing_settings import AdServerSettings
    from tacit.services.settings import load_settings
    from tacit.services.signatures import Party
    from tacit.store.pacing import SqlPacingStore

    store, now = open_ad_store(path), int(time.time())
    billing = load_settings(path, Party.SERVER).billing
    assert isinstance(billing, AdServerSettings), "its store was opened"
    return pacing_record(Pacer(SqlPacingStore(store.database), billing.pacing, lambda: now), now)


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    from tacit.bill.accounts import show_micros

    def money(key: str, absent: str = "-") -> str:
        return absent if each[key] is None else show_micros(each[key])

    share = "-" if not each["budget_micros"] else f"{each['bound_share'] or 0:.2%}"
    return (
        str(each["campaign"]),
        each["advertiser"],
        money("budget_micros", "no limit"),
        money("charged_micros"),
        money("held_micros"),
        money("out_micros"),
        money("bound_micros"),
        share + (" !" if each["within"] is False else ""),
        money("day_spent_micros"),
        money("daily_micros"),
    )
