"""What the server asks of a store of its evidence: each batch of reports counts once, and priors are published.

`store/prior_evidence.py` keeps it on SQLite or PostgreSQL. A process that learns for itself alone needs none: a
`PriorEvidence` is a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tacit.deliver.protocol.priors import ScorePrior
from tacit.deliver.server.prior_evidence import ALL, PriorEvidence, ReportedRanks


class LearntBatch(NamedTuple):
    """The evidence as it is after a batch, and whether this call added it: False where it was known before."""

    evidence: PriorEvidence
    added: bool


@dataclass(frozen=True)
class PublishedPrior:
    """The prior of a group's menus from an epoch on, and what it was made of.

    version  of the laws that were compared
    reports  that it rests on, older ones counted less
    batches  that had been learnt when it was published, of all groups
    """

    prior: ScorePrior
    group: str
    epoch: int
    version: int
    reports: float
    batches: int


class EvidenceStore(Protocol):
    """Evidence that outlives its process. Durable when a call returns; any number of processes may share it."""

    def learn(self, batch: str, reported: Iterable[ReportedRanks]) -> LearntBatch:
        """Add a batch of reports, under a name that no other has; one that was added before changes nothing."""

    def has_learnt(self, batch: str) -> bool:
        """Whether a batch of this name was added."""

    def evidence(self) -> PriorEvidence:
        """What all batches so far say."""

    def publish(self, epoch: int, group: str = ALL) -> PublishedPrior:
        """Fix the prior of a group's menus from this epoch on; again: the same one, whatever was learnt since.

        Epochs only rise: what earlier menus had is not written anew.
        """

    def in_force(self, epoch: int, group: str = ALL) -> PublishedPrior | None:
        """The prior of a group's menus in this epoch: the last that was published for it or an earlier one.
        None where there is none, and the default is assumed."""
