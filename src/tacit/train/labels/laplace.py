"""Labels by Laplace noise on one-hot vectors, read by Bayes' rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from tacit import expect
from tacit.privacy.allocation import Allocation
from tacit.privacy.mechanisms.memoised import FlipKey, words_for
from tacit.privacy.mechanisms.one_hot_laplace import OneHotLaplace
from tacit.privacy.releases import Release
from tacit.train.labels.classes import BINARY, Classes
from tacit.train.labels.mechanism import pure_release, shares
from tacit.train.labels.priors import Prior
from tacit.train.targets import Targets

MANNER = "Laplace noise on one-hot labels"
_FURTHER = 64  # words after which an undecided draw is beyond belief: each settles 64 more digits


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

    prior: Prior
    classes: Classes = BINARY

    def __post_init__(self) -> None:
        self.prior.check_classes(len(self.classes.values))

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
            noise = OneHotLaplace.for_epsilon(each, len(self.classes.values))
            reports = _reports(truth[rows], ids[rows], noise, key, secret)
            values[rows] = self._means(noise.log_likelihoods(reports), group[rows])
        return Targets(values, None, allocation.kept.astype(np.int64), self.classes.head)

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
    draw = partial(words_for, key=key, mechanism=spelled, secret=secret)

    def more(row: int) -> Callable[[], int]:
        rest = iter(draw(ids[row : row + 1], truth[row : row + 1], count=noise.classes + _FURTHER)[0].tolist())
        for _ in range(noise.classes):  # which the draw began with
            next(rest)
        return lambda: int(next(rest))

    return noise.report(truth, draw(ids, truth, count=noise.classes), more)
