"""What the ad server learns from its charges: how far devices' private scores are from its public ones.

A charge says which candidate a device chose, by a law that follows from its menu. Charges of an epoch that is
over are counted by menu and rank, and added to the evidence, each epoch once. The prior that all of it speaks
for stands in the menus of the next epoch that is opened; devices plan by it, and so ask their models where
that is worth it. Nothing more is asked of anybody.

    Guarantee:  none is spent here. What is learnt is post-processing of choices that are epsilon-LDP each, and
                were paid for by their devices.
    Neighbours: those of the choice (`PrivateChoice`).
    Assumes:    a menu's prior is made of charges of earlier epochs alone, as `publish` sees to: no device plans
                by its own report. Devices that lie can bend the prior, and so how well others choose, not what
                others spend: a report costs a token, a share of the scenarios stays with the default, and ranks
                that a menu's law never gives are left out.
    Source:     `deliver/server/prior_evidence.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.menus import Lane, PricedMenu
from tacit.bill.server.store import AdStore
from tacit.deliver.device.menu_book import plan_menu
from tacit.deliver.protocol.priced_menus import candidates_of, entry_index
from tacit.deliver.protocol.priors import ScorePrior, prior_as_json
from tacit.deliver.server.evidence_store import EvidenceStore, PublishedPrior
from tacit.deliver.server.prior_evidence import ReportedRanks
from tacit.errors import BillRefused
from tacit.privacy.choice.top_choice import TopChoice
from tacit.schema.contexts.hierarchy import Node
from tacit.services.background import DAY_SECONDS, BackgroundTask, LookTask
from tacit.services.endpoints import Clock
from tacit.services.epochs import MenuSource
from tacit.services.problems import LOG

LATE_SECONDS = 600
"""After an epoch has expired: batches that come later are charged, and not learnt by."""

EVERY_SECONDS = 60.0
BACK_SECONDS = 7 * DAY_SECONDS  # epochs that expired earlier were learnt, or never will be


def ranks_of_charges(menu: PricedMenu, counts: Mapping[int, int]) -> ReportedRanks | None:
    """How often each public rank of a menu was reported, of charges by index; None where they tell nothing.

    Menus that may show nothing are left out: what nothing is worth is certain, which the laws that are compared
    do not know.
    """
    if menu.lane is not Lane.PERSONAL or not menu.epsilon_micros or menu.nothing_rank is not None:
        return None
    try:
        candidates = candidates_of(menu)
        choice = plan_menu(menu, candidates)
    except BillRefused:  # no device can choose from it either
        return None
    if choice is None:
        return None
    law = choice.plan.law
    kept = law.kept if isinstance(law, TopChoice) else len(candidates)
    ranks = np.zeros(len(candidates), np.int64)
    ranks[:kept] = [counts.get(entry_index(menu, rank), 0) for rank in range(kept)]
    return ReportedRanks(candidates.public_scores, law, ranks) if ranks.any() else None


@dataclass(frozen=True)
class LearntEpoch:
    """What came of one epoch: of how many menus, and by how many reports."""

    epoch: int
    menus: int
    reports: int


class PriorLearner:
    """Looks again and again whether an epoch is over, and adds what its charges say."""

    def __init__(self, store: AdStore, evidence: EvidenceStore, *, clock: Clock) -> None:
        self._store, self._evidence, self._clock = store, evidence, clock
        self._learnt: set[int] = set()

    def prior(self, epoch: int) -> ScorePrior | None:
        """The prior of an epoch's menus, fixed when it is first asked for; None: the default, as nothing was
        learnt. An epoch that was drawn after a later one has what was in force then."""
        last = self.published()
        if last is None or last.epoch < epoch:
            return self._evidence.publish(epoch).prior if self._evidence.evidence().reports else None
        found = self._evidence.in_force(epoch)
        return None if found is None else found.prior

    def published(self) -> PublishedPrior | None:
        """The last prior that was published."""
        return self._evidence.in_force(2**53 - 1)

    def learn_due(self) -> list[LearntEpoch]:
        """Add the charges of all epochs that are over, each once."""
        now, done = self._clock(), []
        for epoch in self._store.epochs(now - BACK_SECONDS):
            if epoch in self._learnt:
                continue
            if self._evidence.has_learnt(_batch(epoch)):
                self._learnt.add(epoch)
            elif (learnt := self._learn(epoch, now)) is not None:
                self._learnt.add(epoch)
                done.append(learnt)
        return done

    def _learn(self, epoch: int, now: int) -> LearntEpoch | None:
        stored = self._store.epoch(epoch)
        assert stored is not None, "it was listed"
        if stored.head is None or EpochHead.from_bytes(stored.head).expires + LATE_SECONDS > now:
            return None
        counts = self._store.reported(epoch)
        found = [
            ranks_of_charges(kept.menu, counts.get(kept.menu.menu_id, {}))
            for kept in stored.menus
            if kept.menu.menu_id in counts
        ]
        told = [each for each in found if each is not None]
        self._evidence.learn(_batch(epoch), told)
        return LearntEpoch(epoch, len(told), sum(int(each.counts.sum()) for each in told))

    def look(self) -> float:
        for learnt in self.learn_due():
            if learnt.reports:
                LOG.info("learnt from %d reports of epoch %d", learnt.reports, learnt.epoch)
        return EVERY_SECONDS

    def task(self) -> BackgroundTask:
        """The task that learns, of one process at a time."""
        return LookTask(self.look, EVERY_SECONDS)


class LearntMenus:
    """A source of menus, with the prior that was learnt in those of the personal lane."""

    def __init__(self, source: MenuSource, learner: PriorLearner) -> None:
        self._source, self._learner = source, learner

    @property
    def epoch_seconds(self) -> int:
        return self._source.epoch_seconds

    @property
    def report_seconds(self) -> int:
        return self._source.report_seconds

    def refresh(self) -> None:
        self._source.refresh()

    def menus(
        self,
        epoch: int,
        opens: int,
        closes: int,
        left_micros: Mapping[int, int],
        without: Mapping[Node, frozenset[int]],
    ) -> list[PricedMenu]:
        menus = self._source.menus(epoch, opens, closes, left_micros, without)
        prior = self._learner.prior(epoch) if menus else None
        if prior is None:
            return menus
        words = json.dumps(prior_as_json(prior))
        return [replace(menu, prior=words) if menu.lane is Lane.PERSONAL else menu for menu in menus]


def _batch(epoch: int) -> str:
    return f"epoch-{epoch}"
