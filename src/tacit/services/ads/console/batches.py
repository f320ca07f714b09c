"""The latest batches, as the console shows them: charges by epoch, sizes of cohorts, and what these hide.

A batch never changes, so it is read once and remembered; only one with charges that are held is read again, as
these may have been made meanwhile. There are bounds on how many batches and reports are looked back at.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tacit.bill.protocol.batches import BatchStatement
from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.menus import Lane, PricedMenu
from tacit.display import brief
from tacit.privacy.shuffling.central import central_epsilon
from tacit.schema.contexts.hierarchy import Node
from tacit.store.billing_ads import SqlAdStore
from tacit.store.console_figures import (
    BatchCharge,
    charges_by_batch,
    epoch_heads,
    latest_batches,
    menus_by_id,
)

MOST_BATCHES = 2_000
MOST_REPORTS = 200_000
DELTA = 1e-6
"""What the epsilon among a cohort leaves to chance, as devices count it by default."""


@dataclass(frozen=True)
class SeenBatch:
    """A batch that was redeemed: of which epoch and menu, how many reports, what they were charged."""

    number: int
    epoch: int
    menu_id: bytes
    reports: int
    charges: tuple[BatchCharge, ...] = ()

    @property
    def is_settled(self) -> bool:
        return not any(each.held for each in self.charges)


@dataclass(frozen=True)
class MenuFacts:
    """What is said of a cohort's menu."""

    context: str
    lane: Lane
    epsilon_micros: int
    smallest_cohort: int

    @classmethod
    def of(cls, menu: PricedMenu) -> MenuFacts:
        return cls(context_words(menu.node), menu.lane, menu.epsilon_micros, menu.smallest_cohort)


class RecentBatches:
    """Looks for new batches when it is asked; any thread may."""

    def __init__(
        self, store: SqlAdStore, *, most: int = MOST_BATCHES, most_reports: int = MOST_REPORTS
    ) -> None:
        self._database, self._most, self._most_reports = store.database, most, most_reports
        self._batches: dict[int, SeenBatch] = {}
        self._menus: dict[bytes, MenuFacts] = {}
        self._heads: dict[int, EpochHead] = {}
        self._is_cut = False  # whether older ones were left out
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return brief(self, batches=len(self._batches))

    def look(self) -> list[SeenBatch]:
        """The latest batches, the newest first."""
        with self._lock:
            self._add_new()
            self._read_charges()
            self._look_up()
            return sorted(self._batches.values(), key=lambda each: -each.number)

    def _add_new(self) -> None:
        known = self._batches
        rows = latest_batches(self._database, max(known, default=-1), self._most)
        for row in rows:
            said = BatchStatement.from_bytes(row.statement)
            known[row.number] = SeenBatch(row.number, said.epoch, bytes(row.menu_id), said.reports)
        reports = 0
        for place, number in enumerate(sorted(known, reverse=True)):
            reports += known[number].reports
            if place and (place >= self._most or reports > self._most_reports):
                del known[number]
                self._is_cut = True
        self._is_cut = self._is_cut or (len(rows) == self._most and min(known, default=0) > 1)

    def _read_charges(self) -> None:
        wanted = [each.number for each in self._batches.values() if not (each.charges and each.is_settled)]
        for number, charges in charges_by_batch(self._database, wanted).items():
            before = self._batches[number]
            self._batches[number] = SeenBatch(
                number, before.epoch, before.menu_id, before.reports, tuple(charges)
            )

    def _look_up(self) -> None:
        menus = {each.menu_id for each in self._batches.values()}
        epochs = {each.epoch for each in self._batches.values()}
        self._menus = {menu: self._menus[menu] for menu in menus & self._menus.keys()}
        self._heads = {epoch: self._heads[epoch] for epoch in epochs & self._heads.keys()}
        found = menus_by_id(self._database, sorted(menus - self._menus.keys()))
        self._menus |= {menu_id: MenuFacts.of(menu) for menu_id, menu in found.items()}
        self._heads |= epoch_heads(self._database, sorted(epochs - self._heads.keys()))

    def whole_from(self) -> int | None:
        """The number of the first epoch of which all batches are looked at; None: of all."""
        oldest = min((each.epoch for each in self._batches.values()), default=0)
        return oldest + 1 if self._is_cut else None

    def by_epoch(self, campaigns: Collection[int] | None = None) -> list[dict[str, Any]]:
        """Charges by the epoch of their impressions, in order; those of some campaigns, or of all."""
        found: dict[int, dict[str, Any]] = {}
        for batch in self.look():
            head = self._heads.get(batch.epoch)
            if head is None:
                continue
            row = found.setdefault(
                batch.epoch,
                {"epoch": batch.epoch, "opens": head.opens, "closes": head.closes, "impressions": 0,
                 "micros": 0, "held_micros": 0, "batches": 0, "reports": 0},
            )  # fmt: skip
            row["batches"] += 1
            row["reports"] += batch.reports
            for each in batch.charges:
                if each.campaign is None or (campaigns is not None and each.campaign not in campaigns):
                    continue
                row["held_micros" if each.held else "micros"] += each.micros
                row["impressions"] += 0 if each.held else each.impressions
        rows = [found[epoch] for epoch in sorted(found)]
        if campaigns is not None:  # how many reports others had is not for everybody
            rows = [
                {key: each[key] for key in each if key not in ("batches", "reports")}
                for each in rows
                if each["impressions"] or each["held_micros"]
            ]
        return rows

    def cohorts(self, most: int) -> list[dict[str, Any]]:
        """Reports that left the proxy together, by menu: the newest epochs first. `epsilon` is what one choice
        tells whoever can link its report to the device, `central` what it tells the ad server alone."""
        by_menu: dict[tuple[int, bytes], list[int]] = defaultdict(list)
        for batch in self.look():
            by_menu[batch.epoch, batch.menu_id].append(batch.reports)
        newest = sorted(by_menu, key=lambda key: (-key[0], self._context(key[1])))[:most]
        return [self._cohort(epoch, menu_id, by_menu[epoch, menu_id]) for epoch, menu_id in newest]

    def _context(self, menu_id: bytes) -> tuple[str, str]:
        facts = self._menus.get(menu_id)
        return ("", "") if facts is None else (facts.context, str(facts.lane))

    def _cohort(self, epoch: int, menu_id: bytes, sizes: list[int]) -> dict[str, Any]:
        facts, head = self._menus.get(menu_id), self._heads.get(epoch)
        told = {
            "epoch": epoch,
            "opens": None if head is None else head.opens,
            "menu": menu_id.hex(),
            "sizes": sizes,
            "smallest": min(sizes),
        }
        if facts is None:
            return told
        return told | {
            "context": facts.context,
            "lane": str(facts.lane),
            "wanted": facts.smallest_cohort,
            "epsilon": facts.epsilon_micros / 1e6,
            "central": hidden_epsilon(facts.epsilon_micros, min(sizes)),
            "is_small": facts.lane is Lane.PERSONAL and min(sizes) < facts.smallest_cohort,
        }


def context_words(node: Node) -> str:
    """A context as it is told, without the names of attributes, which do not travel with menus."""
    return str(Node(node.levels, node.values))


@lru_cache(maxsize=4096)
def hidden_epsilon(epsilon_micros: int, cohort: int) -> float:
    """What one choice tells whoever sees it within a shuffled batch of so many reports, and not whose it is."""
    return central_epsilon([(epsilon_micros, cohort)], DELTA) if epsilon_micros else 0.0
