"""Labels by randomized response among the classes that a public prior finds likeliest."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.allocation import Allocation
from tacit.privacy.mechanisms.memoised import FlipKey, words_for
from tacit.privacy.mechanisms.top_response import TopResponse, most_telling_tops
from tacit.privacy.releases import Release
from tacit.train.labels.classes import BINARY, Classes
from tacit.train.labels.mechanism import Correction, pure_release, shares
from tacit.train.labels.priors import Prior
from tacit.train.targets import Targets

MANNER = "randomized response among the likeliest classes"


@dataclass(frozen=True)
class FlipTowardsPrior:
    """Randomized response among the k likeliest classes of each row's prior, with the most telling k.

    Helps with several classes and a prior that rules most of them out. With two classes it is plain randomized
    response (k = 2), or says the likelier class whatever the label is (k = 1). RAW is how its authors train;
    POSTERIOR reads a report together with the prior that it was made for.

    Guarantee:  the labels of one unit and window are released with at most epsilon in total, however often the
                targets are made again with the same key and prior. Another prior means fresh draws, to be paid
                for again.
    Neighbours: replace label, for one unit and window. The prior is the same in both datasets.
    Assumes:    what `allocation.allocate`, `top_response.TopResponse` and `priors.Prior` assume; `secret` is 32
                uniform bytes that never leave; record ids are distinct.
    Source:     Ghazi, Golowich, Kumar, Manurangsi, Zhang, NeurIPS 2021 (arXiv 2102.06062): RRWithPrior.
    """

    prior: Prior
    classes: Classes = BINARY
    correction: Correction = Correction.POSTERIOR

    def __post_init__(self) -> None:
        self.prior.check_classes(len(self.classes.values))
        object.__setattr__(self, "correction", Correction(self.correction))
        if self.correction not in (Correction.RAW, Correction.POSTERIOR):
            raise BadInput(f"expected raw or posterior correction of flips by a prior, got {self.correction}")

    def release(self, allocation: Allocation, epsilon: expect.Number) -> Release:
        return pure_release(allocation, epsilon, MANNER)

    def targets(
        self,
        labels: ArrayLike,
        records: ArrayLike,
        allocation: Allocation,
        epsilon: expect.Number,
        *,
        key: FlipKey,
        secret: bytes,
    ) -> Targets:
        truth, ids = self.classes.of(labels)[allocation.kept], np.asarray(records)[allocation.kept]
        group = self.prior.groups_of(allocation.kept, examples=len(np.asarray(records)))
        values = np.empty(len(allocation), np.float32)
        for each, rows in shares(allocation, epsilon):
            values[rows] = self._told(truth[rows], ids[rows], group[rows], each, key, secret)
        return Targets(values, None, allocation.kept.astype(np.int64), self.classes.head)

    def _told(
        self,
        truth: NDArray[np.int64],
        ids: NDArray[np.int64],
        group: NDArray[np.int64],
        epsilon: Fraction,
        key: FlipKey,
        secret: bytes,
    ) -> NDArray[np.float64]:
        """The target of each row, where every label has this epsilon."""
        count = len(self.classes.values)
        order = np.argsort(-self.prior.table, axis=1, kind="stable")  # (groups, classes): rank -> class
        rank = np.argsort(order, axis=1)  # (groups, classes): class -> rank
        tops = most_telling_tops(np.take_along_axis(self.prior.table, order, axis=1), epsilon)
        # The whole decision is part of the key: a draw must not serve two laws.
        decision = hashlib.sha256(order.astype("<i8").tobytes() + tops.astype("<i8").tobytes()).hexdigest()
        told = np.empty(len(truth), np.float64)
        for top in np.unique(tops[group]).tolist():
            rows = np.flatnonzero(tops[group] == top)
            response = TopResponse.for_epsilon(epsilon, top, count)
            at, label = group[rows], truth[rows]
            spelled = ("top response", decision, str(top), str(response.among and response.among.lie_weight))
            words = words_for(
                ids[rows], at * count + label, key, mechanism=spelled, count=1, secret=secret
            )  # (rows, 1)
            said = response.report(rank[at, label], words[:, 0])
            told[rows] = self._table(response, order)[at, said]
        return told

    def _table(self, response: TopResponse, order: NDArray[np.intp]) -> NDArray[np.float64]:
        """What a report stands for: (groups, top)."""
        value = np.array(self.classes.values)[order]  # (groups, classes), by rank
        if self.correction is Correction.RAW:
            return value[:, : response.top]
        chance = np.take_along_axis(self.prior.table, order, axis=1)
        laws = np.array([[float(p) for p in response.pmf(rank)] for rank in range(order.shape[1])])
        joint = chance @ laws  # (groups, top): the chance of each report
        mean = (chance * value) @ laws
        prior_mean = (chance * value).sum(axis=1, keepdims=True)
        told: NDArray[np.float64] = np.where(joint > 0, mean / np.where(joint > 0, joint, 1), prior_mean)
        return told
