"""DP-SGD as it is really run, and the statistic that puts its predictions right, against their claims.

One training holds as many worlds as there are trials: each world is a record (or a user) with table rows that
nobody else reads, so that every world is a trial of its own, and one run of the real trainer is many runs of
the mechanism. The auditor sees what the claim is for, every step: how far a world's weights moved in the
direction that its gradient can move them in, and how far they moved otherwise, which is noise alone. The
auditor knows who was sampled, too, and so what noise alone did in the gradient's own direction.

The statistic is a sum over everybody, so a world is a log of its own: the sums of the real code, and as many
draws of its noise as there are trials.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard, helmert
from scipy.stats import norm

from tacit.arrays import Floats
from tacit.data.splits import RowSet
from tacit.privacy.audit.case import (
    AuditCase,
    AuditDraws,
    Draws,
    Hits,
    best_threshold,
    claimed_epsilon,
    empirical_case,
    gaussian_law,
)
from tacit.privacy.randomness import Source
from tacit.privacy.releases import Composed, GaussianStatistic, SubsampledGaussian
from tacit.privacy.units import Relation, UnitKind
from tacit.train.examples import Examples, Sizes
from tacit.train.models.factorization_machine import LogisticRegression
from tacit.train.models.model import Part
from tacit.train.recalibration import (
    KNOTS,
    SENSITIVITY,
    Recalibration,
    calibration_statistic,
    noisy_sums,
    record_weights,
)
from tacit.train.sgd.descent import Clipping, DescentSettings, GradientDescent, NoiseForm
from tacit.train.sgd.draws import poisson_sample
from tacit.train.sgd.optimizers import Adam, Sgd
from tacit.train.statistic.audit import StatisticTrial
from tacit.train.statistic.model import FactorModel
from tacit.train.statistic.offset import BesideStatistic, put_beside
from tacit.train.statistic.release import release_statistic
from tacit.train.targets import Targets

Moves = NDArray[np.float32]

DELTA = 0.05
FIELDS = 16
"""Rows of a record, a power of two. The bias is common to all, and takes 1 of 1 + FIELDS parts of a squared
gradient norm away."""

STEPS, SAMPLING, NOISE = 3, 0.3, 1.0
PLAIN, MOMENTUM = Sgd(), Sgd(momentum=0.9)
CLIP_NORM = 0.05  # beside a statistic: so small that every gradient is clipped, whatever the offset is
RATE = 1e-6  # so small that the common bias stays where it is, and every gradient is clipped in every step


def cases() -> list[AuditCase]:
    return [
        # The twins' samplers read a third more records than they say.
        _case(
            f"DP-SGD, {STEPS} steps, lazy noise",
            DpSgdTrial(NoiseForm.LAZY),
            DpSgdTrial(NoiseForm.LAZY, sampling=1.3 * SAMPLING),
        ),
        _case(
            f"DP-SGD, {STEPS} steps, dense noise",
            DpSgdTrial(NoiseForm.DENSE),
            DpSgdTrial(NoiseForm.DENSE, sampling=1.3 * SAMPLING),
        ),
        _case(
            f"DP-SGD, {STEPS} steps, a user of 2 clipped as one",
            DpSgdTrial(NoiseForm.LAZY, records=2, together=True),
            DpSgdTrial(NoiseForm.LAZY, records=2, together=False),
        ),
        _case(
            f"DP-SGD, {STEPS} steps, with momentum",
            DpSgdTrial(NoiseForm.LAZY, optimizer=MOMENTUM),
            DpSgdTrial(NoiseForm.LAZY, optimizer=MOMENTUM, sampling=1.3 * SAMPLING),
        ),
        _case(
            f"DP-SGD, {STEPS} steps, by Adam",
            DpSgdTrial(NoiseForm.DENSE, optimizer=Adam()),
            DpSgdTrial(NoiseForm.DENSE, optimizer=Adam(), sampling=1.3 * SAMPLING),
        ),
        # The twin's run goes on from where it was, and tells the statistic once more.
        _offset_case(f"a statistic, and {STEPS} steps of DP-SGD beside it", OffsetTrial(1), OffsetTrial(2)),
        _recalibration_case("recalibration, a record", RecalibrationTrial(1)),
        # The twin takes a user's records for as many people: none counts less.
        _recalibration_case(
            "recalibration, a user of 3 as one", RecalibrationTrial(3), RecalibrationTrial(3, together=False)
        ),
    ]


@dataclass(frozen=True)
class DpSgdTrial:
    """How the trainer is run: the claim is of `NOISE` and `SAMPLING`, whatever it really does."""

    form: NoiseForm
    sampling: float = SAMPLING
    records: int = 1
    together: bool = False
    optimizer: Sgd | Adam = PLAIN

    def moves(self, share: Fraction, label: int, trials: int, source: Source) -> Iterator[tuple[Moves, Hits]]:
        """What each step's noisy sum moved each world's rows by, in units of the clip norm: (trials, rows); and
        which worlds were sampled.

        What earlier steps still move, by momentum, is known and taken away. Adam's moves are read off its first
        moment, which a checkpoint keeps: its weights tell less.
        """
        reads = self.records * FIELDS
        count = trials * self.records
        examples = Examples(
            public=np.empty((count, 0), np.int32),
            sensitive=np.arange(count * FIELDS, dtype=np.int32).reshape(count, FIELDS),
            sizes=Sizes(0, FIELDS, 0, count * FIELDS),
            at=RowSet(slice(0, count)),
        )
        model = LogisticRegression().build(examples.sizes, source.normal)
        settings = DescentSettings(
            Part.WHOLE, self.optimizer, 1.0, Clipping(1.0, NOISE * float(share)), self.form
        )
        descent, targets = GradientDescent(model, settings, source), Targets(np.full(count, label, np.float32))
        (update,) = descent.tables.values()
        if isinstance(self.optimizer, Sgd):
            kept, gain = self.optimizer.momentum, 1.0
        else:
            kept, gain = self.optimizer.beta1, 1 - self.optimizer.beta1
        now: Moves = np.zeros_like(model.table)
        for _ in range(STEPS):
            before, last = model.table.copy(), now
            world = poisson_sample(trials, self.sampling, source.words)
            places = (world[:, None] * self.records + np.arange(self.records)).ravel()
            groups = np.repeat(np.arange(len(world)), self.records) if self.together else None
            descent.step(examples, targets, places, RATE, groups)
            descent.settle()
            if isinstance(self.optimizer, Adam):
                now = -update.memory["first"]
            else:
                now = (model.table - before) / np.float32(RATE)
            sampled: Hits = np.zeros(trials, np.bool_)
            sampled[world] = True
            moved: Moves = ((now - kept * last) / gain).astype(np.float32, copy=False)
            yield moved.reshape(trials, reads), sampled

    def draws(self, share: Fraction, neighbour: bool, trials: int, source: Source) -> AuditDraws:
        """The event: all steps together are more likely by the claim's odds with the one label than the other.

        Noise: a step's moves, turned so that the first is along the gradient and all others across it, less the
        gradient itself. It is looked at across; along, in those who were sampled and in those who were not;
        and, along and across, in sums of all steps with signs and weights at right angles (Helmert's). Noise
        that a later step takes back, or repeats, is missing in one of these.
        """
        rows = self.records * FIELDS
        reach = (-1 if neighbour else 1) * math.sqrt(rows / (rows + self.records**2))
        turn = (hadamard(rows) / math.sqrt(rows)).astype(np.float32)
        losses, noise, ins, outs = np.zeros(trials), [], [], []
        for moved, sampled in self.moves(share, 0 if neighbour else 1, trials, source):
            turned = moved @ turn
            losses += log_odds(turned[:, 0].astype(np.float64))
            turned[sampled, 0] -= np.float32(reach)
            noise.append(turned)
            ins.append(turned[sampled, 0])
            outs.append(turned[~sampled, 0])
        steps = np.stack(noise)
        sums = np.tensordot(helmert(STEPS, full=True).astype(np.float32), steps, axes=1)
        over_steps = [look for each in sums for look in (each[:, 0], each[:, 1:])]
        others = (np.concatenate(ins), np.concatenate(outs), *over_steps)
        return AuditDraws(losses > _claim(Fraction(1)), steps[:, :, 1:], others)


def log_odds(moved: NDArray[np.float64], fields: int = FIELDS) -> NDArray[np.float64]:
    """How much more likely one step's move is with a label of 1 than with 0: it goes up or down by about 1 if
    the world was sampled, and not at all if not."""
    reach = math.sqrt(fields / (fields + 1))

    def likelihood(sign: int) -> NDArray[np.float64]:
        sampled, left_out = norm.pdf(moved, sign * reach, NOISE), norm.pdf(moved, 0, NOISE)
        density: NDArray[np.float64] = SAMPLING * sampled + (1 - SAMPLING) * left_out
        return density

    odds: NDArray[np.float64] = np.log(likelihood(1) / likelihood(-1))
    return odds


@cache
def _claim(share: Fraction) -> float:
    return claimed_epsilon(
        SubsampledGaussian(NOISE * float(share), SAMPLING, STEPS), Relation.REPLACE_ONE, DELTA
    )


def _case(name: str, honest: DpSgdTrial, twin: DpSgdTrial) -> AuditCase:
    return empirical_case(
        name,
        Relation.REPLACE_ONE,
        _claim(Fraction(1)),
        delta=DELTA,
        draws=honest.draws,
        law=gaussian_law(NOISE, _claim),
        twin_draws=twin.draws,
    )


@dataclass(frozen=True)
class OffsetTrial:
    """The Hybrid beside a statistic: it is told `tellings` times, what is made of it stands beside the model,
    and DP-SGD's steps follow, whose gradients depend on it. A world is a record with a public value that is
    its own."""

    tellings: int

    def draws(self, share: Fraction, neighbour: bool, trials: int, source: Source) -> AuditDraws:
        """The event: all that was told is more likely by the claim's odds with the one label than the other."""
        fields, label = 1 + FIELDS, 0 if neighbour else 1
        reads = np.arange(trials * FIELDS, dtype=np.int32).reshape(trials, FIELDS)
        examples = Examples(
            public=np.arange(trials, dtype=np.int32)[:, None],
            sensitive=reads,
            sizes=Sizes(1, FIELDS, trials, trials * FIELDS),
            at=RowSet(slice(0, trials)),
        )
        plan, labels = (
            StatisticTrial((0,), UnitKind.IMPRESSION).plan(trials, NOISE * float(share)),
            [label] * trials,
        )
        simulated = not source.fit_for_release
        told = [release_statistic(plan, labels, source, simulated=simulated) for _ in range(self.tellings)]
        model = BesideStatistic(LogisticRegression(), 0).build(examples.sizes, source.normal)
        sums = [each.sums / plan.release.sensitivity for each in told]
        fitted = np.tanh(sums[-1])[:, None].astype(np.float32)  # of a statistic: any function of it will do
        put_beside(model, FactorModel((np.arange(trials),), 0.0, fitted, simulated))
        losses = np.sum([(each - 0.5) / NOISE**2 for each in sums], axis=0)
        clipping = Clipping(CLIP_NORM, NOISE * float(share))
        descent = GradientDescent(
            model, DescentSettings(Part.WHOLE, PLAIN, 1.0, clipping, NoiseForm.DENSE), source
        )
        targets, noise = Targets(np.full(trials, label, np.float32)), []
        own = np.concatenate([np.arange(trials)[:, None], trials + reads], axis=1)
        (table,) = model.own.tables.values()
        for _ in range(STEPS):
            before = table.copy()
            world = poisson_sample(trials, SAMPLING, source.words)
            descent.step(examples, targets, world, RATE)
            descent.settle()
            moved = ((table - before) / np.float32(RATE * CLIP_NORM))[:, 0][own]  # (trials, fields)
            along = moved.astype(np.float64).sum(axis=1) / math.sqrt(fields)
            losses += log_odds(along, fields)
            noise.append(moved)
        across = np.stack(noise) @ helmert(fields).T  # all directions but the gradient's
        hits = losses > _offset_claim(Fraction(1))
        return AuditDraws(hits, across.ravel(), tuple(each - label for each in sums))


@dataclass(frozen=True)
class RecalibrationTrial:
    """A unit of `records` records among others. Its neighbour has negatives of the lowest score where it has
    positives of the highest: no two vectors are further apart. `together` weighs them as one person's."""

    records: int
    together: bool = True
    others: int = 4

    def sums(self, plan: Recalibration, neighbour: bool) -> Floats:
        count = self.records + self.others
        value, label = np.arange(count) % 2, np.arange(count) % 2
        value[: self.records] = label[: self.records] = 0 if neighbour else 1
        examples = Examples(
            public=np.empty((count, 0), np.int32),
            sensitive=value.astype(np.int32)[:, None],
            sizes=Sizes(0, 1, 0, 2),
            at=RowSet(slice(0, count)),
            label=label.astype(np.uint8),
        )
        model = LogisticRegression().build(examples.sizes, _nothing)
        model.table[:, 0] = KNOTS[0], KNOTS[-1]
        return calibration_statistic(model, examples, plan.weights)

    def plan(self, noise: float) -> Recalibration:
        groups = np.r_[np.zeros(self.records, np.int64), 1 + np.arange(self.others)]
        release = GaussianStatistic(noise, SENSITIVITY, Relation.REPLACE_ONE)
        return Recalibration(release, record_weights(groups) if self.together else None)

    def draws(self, above: float) -> Draws:
        def draw(share: Fraction, neighbour: bool, trials: int, source: Source) -> AuditDraws:
            plan = self.plan(NOISE * SENSITIVITY * float(share))
            here, there = self.sums(plan, False), self.sums(plan, True)
            sums = there if neighbour else here
            told = noisy_sums(plan, np.tile(sums, (trials, 1)), source)
            moved = (told - there) @ (here - there) / np.linalg.norm(here - there)
            return AuditDraws(moved > above * SENSITIVITY, ((told - sums) / SENSITIVITY).ravel())

        return draw


def _nothing(*_: object, **__: object) -> NoReturn:
    raise AssertionError("logistic regression draws nothing")


@cache
def _offset_claim(share: Fraction) -> float:
    noise = NOISE * float(share)
    parts = (GaussianStatistic(noise, 1.0, Relation.REPLACE_ONE), SubsampledGaussian(noise, SAMPLING, STEPS))
    return claimed_epsilon(Composed(parts), Relation.REPLACE_ONE, DELTA)


def _offset_case(name: str, honest: OffsetTrial, twin: OffsetTrial) -> AuditCase:
    law = gaussian_law(NOISE, _offset_claim)
    claim, draws = _offset_claim(Fraction(1)), honest.draws
    return empirical_case(
        name, Relation.REPLACE_ONE, claim, delta=DELTA, draws=draws, law=law, twin_draws=twin.draws
    )


@cache
def _recalibration_claimed(share: Fraction) -> float:
    noise = NOISE * SENSITIVITY * float(share)
    release = GaussianStatistic(noise, SENSITIVITY, Relation.REPLACE_ONE)
    return claimed_epsilon(release, Relation.REPLACE_ONE, DELTA)


def _recalibration_case(
    name: str, honest: RecalibrationTrial, twin: RecalibrationTrial | None = None
) -> AuditCase:
    """The event is the threshold that tells the most, at the claim, about a move by the whole sensitivity."""
    claimed = _recalibration_claimed(Fraction(1))

    above = best_threshold(claimed, lambda at: norm.sf((at - 1) / NOISE), lambda at: norm.sf(at / NOISE))
    return empirical_case(
        name,
        Relation.REPLACE_ONE,
        claimed,
        delta=DELTA,
        draws=honest.draws(above),
        law=gaussian_law(NOISE, _recalibration_claimed),
        twin_draws=None if twin is None else twin.draws(above),
    )
