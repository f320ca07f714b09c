"""What the console shows of privacy: cohorts, ledger lines, rounds, and versions of what rates are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit.deliver.campaigns.versions import StoredVersion
from tacit.gather.protocol.credentials import PartyRole
from tacit.gather.protocol.rounds import Round
from tacit.services.ads.console.batches import DELTA, RecentBatches
from tacit.services.ads.versions import KINDS
from tacit.services.background import SETTLED
from tacit.services.problems import NotGranted
from tacit.services.rounds import expect_granted

if TYPE_CHECKING:
    from tacit.services.ads.parts import RunningAds

MOST_ROWS = 200  # of a list; who wants others narrows it down
MOST_EPOCHS = 288  # of a series


class PrivacyReader:
    """Looks it up, for operators and viewers alone; every method may be called from any thread."""

    def __init__(self, running: RunningAds, batches: RecentBatches) -> None:
        self._running, self._batches = running, batches

    def show_cohorts(self, now: int) -> dict[str, Any]:
        return {
            "now": now,
            "delta": DELTA,
            "cohorts": self._batches.cohorts(MOST_ROWS),
            "series": self._batches.by_epoch()[-MOST_EPOCHS:],
        }

    def show_ledger(self, now: int) -> dict[str, Any]:
        return {"now": now, "lines": self.lines()}

    def lines(self) -> list[dict[str, Any]]:
        if self._running.gathering is None:
            return []
        accounts = self._running.gathering.ledger.overview().accounts
        rows: list[dict[str, Any]] = [
            {
                "scope": line.scope,
                "unit": str(line.unit),
                "relation": str(line.relation),
                "window": line.window,
                "limit_nanos": account.limit.epsilon_nanos,
                "spent_nanos": account.spent.epsilon_nanos,
                "reserved_nanos": account.reserved.epsilon_nanos,
                "left_nanos": account.remaining.epsilon_nanos,
                "limit_delta": account.limit.delta_attos / 1e18,
                "left_delta": account.remaining.delta_attos / 1e18,
            }
            for line, account in accounts.items()
        ]
        rows.sort(key=lambda each: (each["scope"], each["unit"], each["relation"], -(each["window"] or 0)))
        return rows[:MOST_ROWS]

    def show_rounds(self, now: int) -> dict[str, Any]:
        return {"now": now, "rounds": self.rounds()}

    def rounds(self) -> list[dict[str, Any]]:
        """Rounds of gathering as this party has them, the latest first."""
        gathering = self._running.gathering
        if gathering is None:
            return []
        stored = [(Round.from_bytes(each.body), str(each.phase)) for each in gathering.rounds.rounds()]
        stored.sort(key=lambda each: -each[0].closes)
        return [
            {
                "task": round.task,
                "level": round.level,
                "phase": phase,
                "is_settled": phase in SETTLED,
                "opens": round.opens,
                "closes": round.closes,
                "accepted": gathering.rounds.accepted_count(round.digest),
                "smallest_batch": round.smallest_batch,
                "parties": round.parties,
                "cells": round.cells,
                "scope": round.scope,
                "epsilon": float(round.promise.epsilon),
                "delta": float(round.promise.delta),
                "needs": None if phase in SETTLED else self._needs(round),
                "digest": round.digest.hex(),
            }
            for round, phase in stored[:MOST_ROWS]
        ]

    def _needs(self, round: Round) -> str | None:
        assert self._running.gathering is not None, "there is a round"
        try:
            expect_granted(self._running.gathering.ledger, round, PartyRole.SERVER)
        except NotGranted as missing:
            return f"a grant of epsilon {missing.epsilon}, delta {missing.delta} in all"
        return None

    def show_versions(self, now: int) -> dict[str, Any]:
        """Statistics and models, those in use first: what each was made of, and what it promises."""
        found = [each for kind in KINDS for each in self._running.versions.versions(kind)]
        found.sort(key=lambda each: (not each.in_use, -each.number))
        return {"now": now, "versions": [_version(each) for each in found[:MOST_ROWS]]}


def _version(stored: StoredVersion) -> dict[str, Any]:
    said, names = stored.body, ("number", "made", "in_use", "digest", "size")
    statement = said.get("statement") or {}
    return {
        "kind": str(stored.kind),
        **{name: getattr(stored, name) for name in names},
        "name": said.get("name") or said.get("task") or stored.source,
        "reports": said.get("reports"),
        "method": said.get("method"),
        **{name: statement.get(name) for name in ("epsilon", "delta", "unit")},
    }
