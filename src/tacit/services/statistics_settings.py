"""The table [statistics] of an ad server's settings: with it, rounds are opened by schedule.

They count clicks and, where campaigns bid per conversion, conversions.

    [statistics]
    every_hours = 24             # a round in each such period, from midnight UTC on where it divides a day
    open_hours = 12              # for which devices can answer it; at most every_hours
    devices = 100_000            # that are enrolled, at most
    smallest_batch = 1_000       # answers below which nothing is released
    epsilon = 0.5                # the promise of one round to each device; rounds add up on the ledger's line
    events = 10                  # most impressions of a device that a round counts
    # delta = 1e-8, each = 10, noise = "servers", silent = 0.1, law = "discrete-laplace", proof = false:
    #                            # as in the file of a round (`round_file`)
    conversions_epsilon = 0.5    # of a round that counts conversions, and conversions_delta; by default as for
    #                            # clicks. Opened where campaigns bid per conversion; 0: never
    scope = "menu rates"         # of the ledger's line that pays, at both parties
    cells_most = 20_000          # counts that a round asks for; beyond, what ranks lowest is left out
    levels = [1, 1]              # of the contexts that are counted; by default the finest that menus have
    parties = "parties.toml"     # both parties' public keys; by default beside these settings
    contexts = "contexts.toml"   # how contexts generalise, as devices have it; likewise
    strength = 500               # impressions that a model's word is worth beside counts

A round costs both ledgers its epsilon and delta: grant scope, unit device, relation zero-out as much as a year
of them takes, say. Rounds of both kinds are paid from that one line. Without a grant nothing is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import expect
from tacit.config import ConfigTable
from tacit.deliver.device.shown_log import RoundFamily
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Levels

TABLE = "statistics"
OF_ROUND = ("smallest_batch", "epsilon", "delta", "events", "each", "noise", "silent", "law", "proof", "skew")
OWN = (
    "every_hours", "open_hours", "devices", "scope", "cells_most", "levels", "parties", "contexts", "strength",
    "conversions_epsilon", "conversions_delta",
)  # fmt: skip
NEEDED = ("every_hours", "open_hours", "devices", "smallest_batch", "epsilon", "events")
SCOPE, CELLS_MOST = "menu rates", 20_000
MOST_CELLS = 2**20
MOST_HOURS = 24 * 366
STRENGTH = 500.0


@dataclass(frozen=True)
class StatisticsSettings:
    """When rounds are opened, and what they ask and promise.

    asked              what a round's file would say of one that counts clicks
    asked_conversions  and of one that counts conversions; None: there are none
    """

    every_seconds: int
    open_seconds: int
    asked: Mapping[str, Any]
    parties: Path
    contexts: Path
    cells_most: int = CELLS_MOST
    levels: Levels | None = None
    strength: float = STRENGTH
    asked_conversions: Mapping[str, Any] | None = None

    def families(self) -> dict[RoundFamily, Mapping[str, Any]]:
        """What is asked of each family of rounds that there is, in the order in which they are paid for."""
        asked = {RoundFamily.CLICKS: self.asked, RoundFamily.CONVERSIONS: self.asked_conversions}
        return {family: each for family, each in asked.items() if each is not None}


def read_statistics(record: Mapping[str, Any], folder: Path) -> StatisticsSettings | None:
    """The table, if there is one."""
    if TABLE not in record:
        return None
    if "billing" not in record:
        raise BadInput("statistics: expected a table [billing] beside it, whose menus are counted, got none")
    table = ConfigTable.under(record, TABLE, (*OWN, *OF_ROUND), folder)
    given = table.everything()
    for key in NEEDED:
        if key not in given:
            raise BadInput(f"statistics.{key}: expected a value, got no such key")
    every, opened = (_hours(table, key) for key in ("every_hours", "open_hours"))
    if opened > every:
        raise BadInput(f"statistics.open_hours: expected at most every_hours, got {given['open_hours']}")
    asked = {key: given[key] for key in OF_ROUND if key in given}
    asked |= {"parties": given["devices"], "scope": table.text("scope", SCOPE), "levels": 1, "level": 0}
    asked["hours"] = opened / 3_600
    return StatisticsSettings(
        every,
        opened,
        asked,
        table.file("parties") if "parties" in table else folder / "parties.toml",
        table.file("contexts") if "contexts" in table else folder / "contexts.toml",
        table.whole("cells_most", CELLS_MOST, at_least=1, at_most=MOST_CELLS),
        _levels(table),
        float(expect.positive("statistics.strength", table.number("strength", STRENGTH) or 0)),
        _of_conversions(table, asked),
    )


def _of_conversions(table: ConfigTable, asked: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The same round as for clicks, at its own cost."""
    given = table.everything()
    own = {key: given[f"conversions_{key}"] for key in ("epsilon", "delta") if f"conversions_{key}" in given}
    is_off = "epsilon" in own and not expect.at_least_zero(table.name("conversions_epsilon"), own["epsilon"])
    return None if is_off else {**asked, **own}


def _hours(table: ConfigTable, key: str) -> int:
    """In seconds."""
    hours = expect.positive(table.name(key), table.number(key) or 0)
    if not 1 / 3_600 <= hours <= MOST_HOURS:
        raise BadInput(f"{table.name(key)}: expected a second to {MOST_HOURS} hours, got {float(hours):g}")
    return int(hours * 3_600)


def _levels(table: ConfigTable) -> Levels | None:
    if "levels" not in table:
        return None
    found = table.needed("levels", "a list of whole numbers")
    whole = isinstance(found, list) and all(type(each) is int and 0 <= each < 256 for each in found)
    if not whole or not found:
        raise BadInput(f"{table.name('levels')}: expected a list of small whole numbers, got {found!r}")
    return tuple(found)
