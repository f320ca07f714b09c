"""Label mechanisms: randomized response, randomized response among the likeliest classes, and Laplace noise.

Each draws once per record and key: the same call gives the same reports again, at no further cost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.allocation import Allocation
from tacit.privacy.mechanisms.memoisation import FlipKey, keyed_words
from tacit.privacy.mechanisms.one_hot_laplace import OneHotLaplace
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse, TopResponse, most_informative_tops
from tacit.privacy.releases import Release
from tacit.train.labels.mechanism import (
    BINARY,
    Classes,
    Correction,
    LabelPrior,
    key_of_classes,
    pure_release,
    shares,
)
from tacit.train.targets import Targets

TOP_RESPONSE = "randomized response among the likeliest classes"
ONE_HOT_LAPLACE = "Laplace noise on one-hot labels"
_FURTHER = 64  # words after which an undecided draw is beyond belief: each settles 64 more digits


@dataclass(frozen=True)
class FlipLabels:
    """Randomized response on each kept label, drawn once per record and key.

    `correction` None is FORWARD for labels of 0 or 1, and UNBIASED for bins.

    Guarantee:  the labels of one unit and window are released with at most epsilon in total, however often the
                targets are made again with the same key.
    Neighbours: replace label, for one unit and window.
    Assumes:    what `allocation.allocate` and `memoisation.flip_labels` assume; the classes are public.
    Source:     Warner 1965; Kairouz, Bonawitz, Ramage 2016 (arXiv 1602.07387); forward and unbiased correction:
                Natarajan, Dhillon, Ravikumar, Tewari, NeurIPS 2013; Patrini et al., CVPR 2017 (arXiv
                1609.03683).
    """

    classes: Classes = BINARY
    correction: Correction | None = None

    def __post_init__(self) -> None:
        two = self.classes == BINARY
        chosen = self.correction or (Correction.FORWARD if two else Correction.UNBIASED)
        object.__setattr__(self, "correction", Correction(chosen))
        if self.correction is Correction.FORWARD and not two:
            raise BadInput("expected labels of 0 or 1 for forward correction, got bins: use unbiased or raw")
        if self.correction is Correction.POSTERIOR:
            raise BadInput(
                "expected raw, unbiased or forward correction of flips, got posterior: it needs a prior"
            )

    def release(self, allocation: Allocation, epsilon: expect.Number) -> Release:
        return allocation.release(epsilon, len(self.classes.values))

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
        truth, count = self.classes.of(labels), len(self.classes.values)
        values = np.empty(len(allocation), np.float32)
        keep = np.empty(len(allocation), np.float32)
        budgets, key = shares(allocation, epsilon), key_of_classes(self.classes, key)
        flipped = allocation.flip(truth, records, epsilon, key=key, secret=secret, classes=count)
        for each, rows in budgets:
            response = RandomizedResponse.for_epsilon(each, count)
            table = self.classes.values
            if self.correction is Correction.UNBIASED:
                table = tuple(float(target) for target in unbiased(response, table))
            values[rows] = np.array(table)[flipped[rows]]
            keep[rows] = float(response.truth)
        forward = self.correction is Correction.FORWARD
        return Targets(values, keep if forward else None, allocation.kept.astype(np.int64), self.classes.head)


def unbiased(response: RandomizedResponse, values: Sequence[float]) -> tuple[Fraction, ...]:
    """The target for each report, such that its mean over reports is the true class's value, exactly.

    A report has the mean lie * sum(values) + (truth - lie) * value, which is linear in the value.
    """
    exact = [Fraction(value) for value in values]
    gain = response.truth - response.lie
    if gain == 0:
        raise BadInput("expected truth > lie, got a response that carries no information")
    return tuple((value - response.lie * sum(exact)) / gain for value in exact)


ToldByRow = Callable[[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Fraction], NDArray[np.float64]]
"""From the classes, ids and prior's groups of some rows, and the epsilon of each, to their targets."""


def _check_prior(prior: LabelPrior, classes: Classes) -> None:
    if not isinstance(prior, LabelPrior):
        raise BadInput(f"expected prior to be a LabelPrior, got {prior!r}")
    prior.check_classes(len(classes.values))


def _targets_by_share(
    prior: LabelPrior,
    classes: Classes,
    labels: ArrayLike,
    records: ArrayLike,
    allocation: Allocation,
    epsilon: expect.Number,
    told: ToldByRow,
) -> Targets:
    """The targets of the rows that the cap keeps, each told at its own share of epsilon."""
    truth, ids = classes.of(labels)[allocation.kept], np.asarray(records)[allocation.kept]
    group = prior.groups_of(allocation.kept, examples=len(np.asarray(records)))
    values = np.empty(len(allocation), np.float32)
    for each, rows in shares(allocation, epsilon):
        values[rows] = told(truth[rows], ids[rows], group[rows], each)
    return Targets(values, None, allocation.kept.astype(np.int64), classes.head)


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
    Assumes:    what `allocation.allocate`, `randomized_response.TopResponse` and `mechanism.LabelPrior` assume;
                `secret` is 32 uniform bytes that never leave; record ids are distinct.
    Source:     Ghazi, Golowich, Kumar, Manurangsi, Zhang, NeurIPS 2021 (arXiv 2102.06062): RRWithPrior.
    """

    prior: LabelPrior
    classes: Classes = BINARY
    correction: Correction = Correction.POSTERIOR

    def __post_init__(self) -> None:
        _check_prior(self.prior, self.classes)
        object.__setattr__(self, "correction", Correction(self.correction))
        if self.correction not in (Correction.RAW, Correction.POSTERIOR):
            raise BadInput(f"expected raw or posterior correction of flips by a prior, got {self.correction}")

    def release(self, allocation: Allocation, epsilon: expect.Number) -> Release:
        return pure_release(allocation, epsilon, TOP_RESPONSE)

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
        told = partial(self._row_targets, key=key_of_classes(self.classes, key), secret=secret)
        return _targets_by_share(self.prior, self.classes, labels, records, allocation, epsilon, told)

    def _row_targets(
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
        tops = most_informative_tops(np.take_along_axis(self.prior.table, order, axis=1), epsilon)
        # The whole decision is part of the key: a draw must not serve two laws.
        decision = hashlib.sha256(order.astype("<i8").tobytes() + tops.astype("<i8").tobytes()).hexdigest()
        told = np.empty(len(truth), np.float64)
        for top in np.unique(tops[group]).tolist():
            rows = np.flatnonzero(tops[group] == top)
            response = TopResponse.for_epsilon(epsilon, top, count)
            at, label = group[rows], truth[rows]
            spelled = ("top response", decision, str(top), str(response.among and response.among.lie_weight))
            words = keyed_words(
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


@dataclass(frozen=True)
class LaplaceWithPrior:
    """Laplace noise on each one-hot label; the target is the expected value given the noisy vector and a prior.

    The prior is used only to read the report: with another one, the same draws are read again, free of charge.

    Guarantee:  the labels of one unit and window are released with at most epsilon in total, however often the
                targets are made again with the same key, and whatever priors they are read with.
    Neighbours: replace label, for one unit and window.
    Assumes:    what `allocation.allocate` and `one_hot_laplace.OneHotLaplace` assume; `secret` is 32 uniform
                bytes that never leave; record ids are distinct.
    Source:     ALIBI: Malek, Mironov, Prasad, Shilov, Tramèr, NeurIPS 2021 (arXiv 2106.03408).
    """

    prior: LabelPrior
    classes: Classes = BINARY

    def __post_init__(self) -> None:
        _check_prior(self.prior, self.classes)

    def release(self, allocation: Allocation, epsilon: expect.Number) -> Release:
        return pure_release(allocation, epsilon, ONE_HOT_LAPLACE)

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
        told = partial(self._row_targets, key=key_of_classes(self.classes, key), secret=secret)
        return _targets_by_share(self.prior, self.classes, labels, records, allocation, epsilon, told)

    def _row_targets(
        self,
        truth: NDArray[np.int64],
        ids: NDArray[np.int64],
        group: NDArray[np.int64],
        epsilon: Fraction,
        key: FlipKey,
        secret: bytes,
    ) -> NDArray[np.float64]:
        """The target of each row, where every label has this epsilon."""
        noise = OneHotLaplace.for_epsilon(epsilon, len(self.classes.values))
        reports = _reports(truth, ids, noise, key, secret)
        return self._means(noise.log_likelihoods(reports), group)

    def _means(self, log_likelihoods: NDArray[np.float64], group: NDArray[np.int64]) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):  # what cannot be has no chance afterwards either
            log_prior = np.log(self.prior.table)
        posterior = softmax(log_likelihoods + log_prior[group], axis=1)  # (rows, classes)
        means: NDArray[np.float64] = posterior @ np.array(self.classes.values)
        return means


def _reports(
    truth: NDArray[np.int64], ids: NDArray[np.int64], noise: OneHotLaplace, key: FlipKey, secret: bytes
) -> NDArray[np.int64]:
    spelled = ("one-hot laplace", str(noise.scale), str(noise.steps), str(noise.classes))
    draw = partial(keyed_words, key=key, mechanism=spelled, secret=secret)

    def more(row: int) -> Callable[[], int]:
        rest = iter(draw(ids[row : row + 1], truth[row : row + 1], count=noise.classes + _FURTHER)[0].tolist())
        for _ in range(noise.classes):  # which the draw began with
            next(rest)
        return lambda: int(next(rest))

    return noise.report(truth, draw(ids, truth, count=noise.classes), more)
