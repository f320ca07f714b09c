"""Carries out a plan: phase by phase, step by step, with checkpoints in between if a keeper is given."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats32
from tacit.errors import BadInput, EntropyMisuse, SelfCheckFailed
from tacit.privacy.randomness import Source
from tacit.privacy.releases import GaussianStatistic, SubsampledGaussian, leaves
from tacit.train.examples import Examples, Places
from tacit.train.labels.noisy_targets import LEAST_RATE, base_rate
from tacit.train.models.model import Model
from tacit.train.plan import LabelPhase, Phase, Plan, PrivatePhase
from tacit.train.recalibration import CalibrationResult, recalibrate
from tacit.train.settings import FEWEST_EPOCHS, PATIENCE, Speed
from tacit.train.sgd.descent import DescentSettings, GradientDescent
from tacit.train.sgd.draws import poisson_sample, shuffled_epochs
from tacit.train.sgd.monitor import ReleaseMonitor, SamplingMonitor
from tacit.train.sgd.self_checks import FALSE_ALARM
from tacit.train.statistic.offset import OffsetModel, own_model, set_aside
from tacit.train.targets import Head, Targets

Losses = NDArray[np.float64]

DEFAULT_SPEED = Speed()
LOSS_EXAMPLES = 4096  # of noisy labels at once, and for the loss that progress shows
HELD_OUT_SEED = 1
COOLING = 2  # last epochs of a training on all, over which the rate falls to 0: one epoch's worth of steps


@dataclass(frozen=True)
class RunProgress:
    """How far a run is. `examples` is what the steps so far read in expectation, never what they read.

    `loss` is on noisy labels, which are released anyway; DP-SGD shows none, since its examples are private.
    """

    phase: int
    phase_name: str
    step: int
    steps: int
    examples: float
    loss: float | None


@dataclass(frozen=True)
class Mark:
    """Where in a plan a run stands: `step` steps of this phase are done."""

    phase: int
    step: int


class CheckpointKeeper(Protocol):
    """What keeps checkpoints: it says when one is due, writes it, and puts a run back to the last one."""

    def due(self, mark: Mark) -> bool: ...
    def keep(self, mark: Mark, model: Model, descent: GradientDescent) -> None: ...
    def stop_if_asked(self) -> None: ...
    def restore(
        self, model: Model, start: Callable[[int], GradientDescent]
    ) -> tuple[Mark, GradientDescent | None]: ...


class Run:
    """Carries out a plan on a model: phase by phase, step by step, checked against the releases paid for.

    `secret` keys the flips of noisy labels: with the same one they come out the same again.
    For a release the source must be an `Entropy`; a study says so with `simulated` and may use a seed. Where
    the plan recalibrates, `calibrated` says what came of it: a part of the release, told with the model only.
    """

    def __init__(
        self,
        plan: Plan,
        model: Model,
        examples: Examples,
        source: Source,
        secret: bytes | None = None,
        *,
        speed: Speed = DEFAULT_SPEED,
        simulated: bool = False,
    ) -> None:
        expect.kind("plan", plan, Plan)
        expect.having("source", source, "fit_for_release", "an Entropy")
        if not simulated and not source.fit_for_release:
            raise EntropyMisuse(
                "expected the cryptographic stream for a training that may leave, got a simulation; "
                "say simulated=True for a study"
            )
        if plan.only_fits:
            raise BadInput("expected a plan of steps, got one noisy statistic: run_training fits a model to it")
        if plan.needs_secret and secret is None:
            raise BadInput("expected a secret of 32 bytes to key the flips of labels, got none")
        if plan.examples is not examples:
            raise BadInput("expected the examples that the plan was made for, got others: units may differ")
        plan.check(own_model(model).architecture)
        if (plan.statistic is not None) != isinstance(model, OffsetModel):
            beside = "beside a statistic" if plan.statistic is not None else "with nothing beside it"
            raise BadInput(f"expected a model {beside}, as Plan.trained_shape says, got {model.architecture}")
        if model.sizes != examples.sizes:
            raise BadInput(f"expected examples of the model's sizes {model.sizes}, got {examples.sizes}")
        self.plan, self.model, self.examples, self.source = plan, model, examples, source
        self.secret, self.speed = secret, speed
        self.calibrated: CalibrationResult | None = None
        private = [each for each in plan.phases if isinstance(each, PrivatePhase)]
        self._groups = {id(each): int(each.groups.max()) + 1 for each in private if each.groups is not None}

    def __repr__(self) -> str:
        return f"Run({self.plan!r})"

    def go(
        self, watch: Callable[[RunProgress], None] | None = None, keeper: CheckpointKeeper | None = None
    ) -> Model:
        """Train, from the last checkpoint if there is one. Afterwards the weights may be looked at.

        Losses are computed only where there is a `watch` to show them to.
        """
        mark, descent = Mark(0, 0), None
        if self.plan.recalibration is not None:
            self._expect_paid(self.plan.recalibration.release, "a recalibration")
        if self.plan.statistic is not None:
            self._expect_paid(self.plan.statistic.plan.release, "a statistic")
        if keeper is not None:
            mark, descent = keeper.restore(self.model, self._descent)
        if self.plan.statistic is not None and descent is None:
            if watch is not None:  # on millions of examples it takes half a minute
                watch(self._progress(0, self.plan.phases[0], 0, Targets(np.empty(0, np.float32))))
            set_aside(self.plan.statistic, self.model, self.examples, self.source, alpha=self._alarm)
        for index, phase in enumerate(self.plan.phases[mark.phase :], start=mark.phase):
            done = mark.step if index == mark.phase else 0
            descent = self._descent(index) if descent is None else descent
            targets = self._targets(phase)
            if index == 0 and done == 0:
                self._start(phase, targets)
            held = _HeldOut(self, phase, targets, done) if phase.learning.held_out else None
            reached = Mark(index, done)
            for step, places, groups in self._batches(phase, targets, done, held):
                descent.step(self.examples, targets, places, phase.schedule.at(step), groups)
                if watch is not None:
                    watch(self._progress(index, phase, step + 1, targets))
                reached = Mark(index, step + 1)
                if keeper is not None and keeper.due(reached):
                    descent.settle()
                    keeper.keep(reached, self.model, descent)
                if held is not None and held.is_due(step + 1):
                    descent.settle()  # rows may wait for momentum
                    if held.is_enough(step + 1):
                        break
            descent.settle()
            if held is not None and not phase.learning.refit:
                held.take_best()
            elif held is not None:
                self._refit(reached, targets, held.best_epochs, watch, keeper)
            descent = None
            if isinstance(phase, LabelPhase) and phase.span != 1:
                self.model.rescale(phase.span, 0.0)
        if self.plan.recalibration is not None:
            self.calibrated = recalibrate(
                self.plan.recalibration, self.model, self.examples, self.source, alpha=self._alarm
            )
        return self.model

    def _refit(
        self,
        reached: Mark,
        targets: Targets,
        epochs: int,
        watch: Callable[[RunProgress], None] | None,
        keeper: CheckpointKeeper | None,
    ) -> None:
        """Train the phase anew, on all examples and for `epochs` epochs. No checkpoints: a run that ends in
        here goes on from one before, and comes here again. Steps are counted on from those that were done."""
        phase, done = self.plan.phases[reached.phase], reached.step
        fresh = self.model.architecture.build(self.model.sizes, self.source.normal)
        for name, array in _weights(self.model, phase).items():
            array[...] = _weights(fresh, phase)[name]
        del fresh
        self._start(phase, targets)
        if epochs:
            epochs += COOLING // 2
        each = max(1, -(-len(targets) // phase.learning.batch))
        schedule = replace(phase.schedule, steps=each * (round(phase.learning.epochs) + COOLING))
        whole = replace(phase, learning=replace(phase.learning, epochs=epochs, held_out=0), schedule=schedule)
        shown = replace(whole, schedule=replace(schedule, steps=done + max(1, each * epochs)))
        descent = self._descent_of(whole)
        for step, places, _ in self._batches(whole, targets, 0, None):
            cooled = min(1.0, (each * epochs - step) / (each * COOLING))
            descent.step(self.examples, targets, places, cooled * schedule.at(step))
            if watch is not None:
                watch(self._progress(reached.phase, shown, done + step + 1, targets))
            if keeper is not None:
                keeper.stop_if_asked()
        descent.settle()

    def _descent(self, index: int) -> GradientDescent:
        return self._descent_of(self.plan.phases[index])

    def _descent_of(self, phase: Phase) -> GradientDescent:
        learning = phase.learning
        settings = DescentSettings(
            part=phase.part,
            optimizer=learning.optimizer,
            expected_batch=self._expected_batch(phase),
            clipping=phase.clipping if isinstance(phase, PrivatePhase) else None,
            noise_form=self.speed.noise_form,
            penalty=learning.penalty,
            microbatch=self.speed.microbatch,
        )
        return GradientDescent(self.model, settings, self.source, self._monitor(phase))

    def _paid(self, phase: PrivatePhase) -> SubsampledGaussian:
        """The release that was paid for this phase: what it is held to, whatever the phase itself says."""
        private = [each for each in self.plan.phases if isinstance(each, PrivatePhase)]
        paid = [
            leaf.release
            for release in self.plan.releases
            for leaf in leaves(release)
            if isinstance(leaf.release, SubsampledGaussian)
        ]
        if len(paid) != len(private):
            raise SelfCheckFailed(
                f"plan: expected a release for each of {len(private)} private phases, got {len(paid)}"
            )
        return paid[next(place for place, each in enumerate(private) if each is phase)]

    def _monitor(self, phase: Phase) -> ReleaseMonitor | None:
        if not isinstance(phase, PrivatePhase):
            return None
        paid = self._paid(phase)
        expected = self._records(phase) * paid.sampling_probability
        clip_norm = phase.learning.clip_norm
        assert clip_norm is not None, "chosen when the plan was made"
        return ReleaseMonitor(paid.noise_multiplier, clip_norm, expected, alpha=self._alarm)

    def _expect_paid(self, release: GaussianStatistic, what: str) -> None:
        """Stop unless this is one of the releases that were paid for."""
        if release not in [leaf.release for each in self.plan.releases for leaf in leaves(each)]:
            raise SelfCheckFailed(f"plan: expected {what} that was paid for, got another; nothing was trained")

    @property
    def _alarm(self) -> float:
        """The chance of a false alarm, in equal parts: each private phase's noise and samples, and the
        statistics before and after them."""
        private = sum(isinstance(phase, PrivatePhase) for phase in self.plan.phases)
        told = (self.plan.recalibration is not None) + (self.plan.statistic is not None)
        return FALSE_ALARM / (2 * private + told)

    def _targets(self, phase: Phase) -> Targets:
        if isinstance(phase, LabelPhase) and phase.labelling is not None:
            assert self.secret is not None, "checked when the run was made"
            targets = phase.labelling.targets(self.examples, self.secret)
            return targets if phase.span == 1 else replace(targets, values=targets.values / phase.span)
        return Targets(self.examples.labels.astype(np.float32))

    def _start(self, phase: Phase, targets: Targets) -> None:
        """The first phase's bias: the mean of its noisy labels, or a rate that is public."""
        if isinstance(phase, LabelPhase):
            rate = base_rate(targets) if targets.head is Head.LOGISTIC else targets.mean
            if targets.head is Head.POISSON:
                rate = max(rate, LEAST_RATE)
            self.model.start_at(targets.head.score(rate))
        elif phase.learning.start_rate is not None and self.plan.statistic is None:
            self.model.start_at(targets.head.score(phase.learning.start_rate))

    def _batches(
        self, phase: Phase, targets: Targets, done: int, held: _HeldOut | None
    ) -> Iterator[tuple[int, Places, Places | None]]:
        steps = phase.schedule.steps
        if isinstance(phase, LabelPhase):
            count = len(targets) if held is None else len(held.trained)
            batch, epochs = phase.learning.batch, round(phase.learning.epochs)
            batches = shuffled_epochs(count, batch, epochs, self.source.words)
            for step, places in zip(range(done, steps), batches, strict=False):
                yield step, places if held is None else held.trained[places], None
            return
        members = None if phase.groups is None else _Members(phase.groups)
        paid, records = self._paid(phase), self._records(phase)
        below, share = self.source.uniform_below, paid.sampling_probability
        monitor = SamplingMonitor(records, share, paid.steps, below=below, alpha=self._alarm)
        monitor.begin(done)
        for step in range(done, steps):
            sample = poisson_sample(records, phase.sampling_probability, self.source.words)
            monitor.check_sample(sample)
            if members is None:
                yield step, sample, None
            else:
                yield step, *members.of(sample)
        monitor.close()

    def _records(self, phase: Phase) -> int:
        if isinstance(phase, PrivatePhase):
            return self._groups.get(id(phase), len(self.examples))
        return len(self.examples) if phase.labelling is None else phase.labelling.count

    def _expected_batch(self, phase: Phase) -> float:
        """In records: examples, or groups of them."""
        if isinstance(phase, PrivatePhase):
            return self._records(phase) * phase.sampling_probability
        return float(min(phase.learning.batch, self._records(phase) - phase.learning.held_out))

    def _progress(self, index: int, phase: Phase, step: int, targets: Targets) -> RunProgress:
        steps = phase.schedule.steps
        loss = None
        if isinstance(phase, LabelPhase) and (step == steps or step % max(1, steps // 20) == 0):
            loss = self._loss(phase, targets)
        return RunProgress(index, phase.name, step, steps, step * self._expected_batch(phase), loss)

    def _loss(self, phase: Phase, targets: Targets) -> float:
        places = np.linspace(0, len(targets) - 1, min(len(targets), LOSS_EXAMPLES)).astype(np.int64)
        return float(self.losses_at(phase, targets, places).mean())

    def losses_at(self, phase: Phase, targets: Targets, places: Places) -> Losses:
        """The loss at each of these places of the targets."""
        rows = self.examples.rows(places if targets.rows is None else targets.rows[places])
        ids = self.model.ids(self.examples, rows, phase.part)
        return targets.losses(self.model.forward(ids, phase.part).scores, places)


class _HeldOut:
    """Examples that a phase on labels does not train on, and that say when it has trained enough.

    Which ones is the same in every run, so that a run that goes on holds out the same. Of noisy labels nothing
    more is told by it: they are released anyway. A run that goes on compares with the epochs since.
    """

    def __init__(self, run: Run, phase: Phase, targets: Targets, done: int) -> None:
        order = np.random.default_rng(HELD_OUT_SEED).permutation(len(targets))
        held = phase.learning.held_out
        self._held, self.trained = np.sort(order[:held]), np.sort(order[held:])
        self._run, self._phase, self._targets = run, phase, targets
        self._epoch = max(1, -(-len(self.trained) // phase.learning.batch))
        self._best, self._worse = self._losses(), 0
        self.best_epochs = -(-done // self._epoch)
        self._kept: dict[str, Floats32] = {}
        self._keep()

    def is_due(self, steps: int) -> bool:
        return steps % self._epoch == 0

    def is_enough(self, steps: int) -> bool:
        """Whether the loss has risen often enough since it was best, looked at after every epoch. Each example
        is compared with itself, and a rise counts where it is more than chance, by one standard error."""
        losses, epochs = self._losses(), steps // self._epoch
        rises = losses - self._best
        rise, chance = float(rises.mean()), float(rises.std()) / math.sqrt(len(rises))
        if rise < 0 or (epochs <= FEWEST_EPOCHS and rise <= chance):
            self._best, self._worse, self.best_epochs = losses, 0, epochs
            self._keep()
        elif not rise <= chance:  # a loss that is not a number has risen
            self._worse += 1
        return self._worse >= PATIENCE

    def take_best(self) -> None:
        for name, array in _weights(self._run.model, self._phase).items():
            array[...] = self._kept[name]

    def _keep(self) -> None:
        """The best weights, unless they are trained anew in any case."""
        if self._phase.learning.refit:
            return
        for name, array in _weights(self._run.model, self._phase).items():
            if name in self._kept:
                self._kept[name][...] = array
            else:
                self._kept[name] = array.copy()

    def _losses(self) -> Losses:
        chunks = range(0, len(self._held), LOSS_EXAMPLES)
        parts = [self._held[first : first + LOSS_EXAMPLES] for first in chunks]
        return np.concatenate([self._run.losses_at(self._phase, self._targets, part) for part in parts])


def _weights(model: Model, phase: Phase) -> Mapping[str, Floats32]:
    """What the phase trains: views, to be copied from and into."""
    rows = model.trained_rows(phase.part)
    dense = {name: model.dense[name] for name in model.trained_dense(phase.part)}
    return {**{name: model.tables[name][span] for name, span in rows.items()}, **dense}


class _Members:
    """The places of each group, so that a sample of groups becomes a batch of their records."""

    def __init__(self, groups: Places) -> None:
        self._order = np.argsort(groups, kind="stable").astype(np.int64)
        self._starts = np.r_[0, np.cumsum(np.bincount(groups))].astype(np.int64)

    def of(self, sample: Places) -> tuple[Places, Places]:
        sizes = self._starts[sample + 1] - self._starts[sample]
        ranks = np.repeat(np.arange(len(sample)), sizes)
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self._order[self._starts[sample][ranks] + within], ranks
