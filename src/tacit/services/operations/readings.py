"""Figures of a party's stores for /metrics, by what is looked up: queues, epochs, budgets, rounds, disks.

Ages are by this party's clock, and 0 where nothing waits. A batch carries no time, on purpose: how long one
waits for its receipt is counted from when this process first saw it.
"""

from __future__ import annotations

import os
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from prometheus_client import Counter, Gauge, Histogram

from tacit.bill.protocol.batches import BatchStatement, Receipt
from tacit.bill.protocol.encoding import BillVerdict
from tacit.gather.protocol.rounds import Round
from tacit.privacy.ledger.rules import Ledger
from tacit.services.background import SETTLED, Look, Reading, RetentionStore
from tacit.services.endpoints import Clock
from tacit.services.epochs import EpochKeeper, covered_until
from tacit.services.problems import refusal_name
from tacit.store.database import PartyDatabase
from tacit.store.figures import market_figures, queue_figures

COHORTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000)
EPSILON_NANOS = 1e-9


class BatchMeters:
    """Batches as they pass: how many reports each had, what was judged of them, when one last came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.cohorts = Histogram(
            "tacit_cohort_reports", "Reports of one menu that left the proxy together, per batch.",
            buckets=COHORTS, registry=None,
        )  # fmt: skip
        self.judged = Counter(
            "tacit_reports_judged", "Reports by the verdict on their receipt, again where a batch came again.",
            ["verdict"], registry=None,
        )  # fmt: skip

        self.last = Gauge(
            "tacit_last_batch_timestamp_seconds", "When a batch was last receipted, or this process began.",
            registry=None,
        )  # fmt: skip
        self.last.set(clock())

    def note_statements(self, formed: Sequence[BatchStatement]) -> None:
        for statement in formed:
            self.cohorts.observe(statement.reports)

    def note_receipt(self, receipt: bytes) -> None:
        verdicts = Receipt.from_bytes(receipt).verdicts
        self.last.set(self._clock())
        self.cohorts.observe(len(verdicts))
        for number, count in Tally(verdicts).items():
            self.judged.labels(refusal_name(BillVerdict(number))).inc(count)


def look_at_market(database: PartyDatabase, keeper: EpochKeeper, clock: Clock) -> Look:
    """What an ad server offers now, and what its campaigns have left."""

    def look() -> list[Reading]:
        now, heads, found = clock(), keeper.heads(), market_figures(database)
        offered = keeper.offered()
        return [
            Reading(
                "tacit_epoch_menus", "Menus that are offered now.", 0 if offered is None else offered.menus
            ),
            Reading(
                "tacit_epoch_covered_seconds", "For how long from now some epoch is open without a gap.",
                covered_until(heads, now) - now,
            ),
            Reading("tacit_campaigns", "Campaigns that are known.", found.campaigns),
            Reading("tacit_campaigns_spent", "Campaigns with a limit and nothing left of it.", found.spent),
            Reading(
                "tacit_budget_left_micros", "What campaigns with a limit have left in all.", found.left_micros
            ),
            Reading("tacit_charged_micros", "What all campaigns were charged so far.", found.charged_micros),
            Reading("tacit_held_charges", "Impressions that were shown and cannot be paid now.", found.held),
            Reading("tacit_held_micros", "What those would cost.", found.held_micros),
            Reading("tacit_batches_redeemed", "Batches that have a receipt.", found.batches),
            Reading("tacit_invoices", "Invoices that were closed.", found.invoices),
        ]  # fmt: skip

    return look


def look_at_queue(database: PartyDatabase, clock: Clock, timer: Callable[[], float]) -> Look:
    """What waits at the proxy: reports for their batch, batches for their receipt."""
    first_seen: dict[bytes, float] = {}

    def look() -> list[Reading]:
        now, found, second = clock(), queue_figures(database), timer()
        for batch_id in set(first_seen) - set(found.undelivered):
            del first_seen[batch_id]
        for batch_id in found.undelivered:
            first_seen.setdefault(batch_id, second)
        since = min(first_seen.values(), default=second)
        return [
            Reading("tacit_reports_waiting", "Reports that are in no batch yet.", found.waiting),
            Reading(
                "tacit_reports_waiting_seconds", "How long the first of them has waited.",
                0 if found.since is None else max(0, now - found.since),
            ),
            Reading(
                "tacit_reports_overdue_seconds", "How long ago the epoch of a report that still waits expired.",
                0 if found.due is None else max(0, now - found.due),
            ),
            Reading("tacit_batches_undelivered", "Batches without a receipt.", len(found.undelivered)),
            Reading(
                "tacit_batches_undelivered_seconds", "How long this process knows the oldest of them.",
                second - since,
            ),
        ]  # fmt: skip

    return look


def look_at_rounds(store: RetentionStore, clock: Clock) -> Look:
    """Rounds of gathering by phase, and how late the latest of them is."""

    def look() -> list[Reading]:
        phases, now, late = Tally({"open": 0}), clock(), 0
        for stored in store.rounds():
            phases[stored.phase] += 1
            if stored.phase not in SETTLED:
                late = max(late, now - Round.from_bytes(stored.body).closes)
        words = "Rounds by the phase that they are in."
        return [
            Reading("tacit_round_overdue_seconds", "How long ago a round closed that is not settled.", late),
            *(Reading("tacit_rounds", words, count, {"phase": phase}) for phase, count in phases.items()),
        ]

    return look


class LedgerOverview(Protocol):
    """The part of a ledger that is looked at."""

    def overview(self) -> Ledger: ...


def look_at_ledger(ledger: LedgerOverview) -> Look:
    """What is left of each scope's privacy budget: the least of its lines."""

    def look() -> list[Reading]:
        left: dict[str, int] = {}
        for line, account in ledger.overview().accounts.items():
            nanos = account.remaining.epsilon_nanos
            left[line.scope] = min(nanos, left.get(line.scope, nanos))
        words = "Epsilon that is left on the line of a scope that has the least."
        return [
            Reading("tacit_privacy_epsilon_left", words, nanos * EPSILON_NANOS, {"scope": scope})
            for scope, nanos in sorted(left.items())
        ]

    return look


def look_at_disks(places: Sequence[str]) -> Look:
    """Free bytes where stores in files lie, by the file's name; PostgreSQL's disk is elsewhere."""
    paths = [Path(place) for place in places if "://" not in place]

    def look() -> list[Reading]:
        readings = []
        for path in paths:
            found = os.statvfs(path.parent)
            readings.append(
                Reading(
                    "tacit_disk_free_bytes",
                    "Bytes that are free where a store lies.",
                    found.f_bavail * found.f_frsize,
                    {"store": path.name},
                )
            )
        return readings

    return look
