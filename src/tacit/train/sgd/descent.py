"""The step: draw, read, clip, add up, add noise, move. The same code trains privately and not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats32, Ids
from tacit.errors import BadInput, SelfCheckFailed
from tacit.expect import Choice
from tacit.privacy.randomness import Source
from tacit.privacy.releases import SubsampledGaussian
from tacit.train.examples import Examples, Places
from tacit.train.models.factorization_machine import FmModel
from tacit.train.models.model import ForwardPass, GradientSums, Model, Part, TableIds
from tacit.train.sgd.draws import SparseTable, TrainingNoise
from tacit.train.sgd.monitor import NoiseMonitor, ReleaseMonitor
from tacit.train.sgd.optimizers import DenseTable, Optimizer, Sgd, optimizer_name
from tacit.train.sgd.self_checks import RowProbe, check_clipping
from tacit.train.statistic.offset import own_model
from tacit.train.targets import Targets

MICROBATCH = 16384
GROUPED_AT_ONCE = 1024
"""A network's norms of groups take a few arrays of (examples, fields, dim) in double precision: smaller pieces
keep them to tens of megabytes, and in cache."""
CLIP_MARGIN = np.float32(1 - 2e-5)
"""Norms are sums of float32, right to about 1e-6: clip a little below the bound rather than a little above
it."""


class NoiseForm(Choice):
    """When a table row gets the noise of the steps in which nobody read it. The law is the same."""

    AUTO = "auto"
    DENSE = "dense"  # in the step itself
    LAZY = "lazy"  # when the row is next read, or before anybody looks: SGD only


@dataclass(frozen=True)
class Clipping:
    """Each record's gradient is scaled to a norm of at most `clip_norm`, and the sum gets Gaussian noise.

    Guarantee:  each step is one Gaussian sum of `releases.SubsampledGaussian` if the batch is its Poisson
                sample.
    Neighbours: one record's private part, or one group's if records are clipped in groups.
    Assumes:    no other use of the examples; the noise is drawn from a cryptographic source and stays secret,
                and so does the number of records in the batch.
    Source:     Abadi et al. 2016 (arXiv 1607.00133), algorithm 1, with the expected batch size as divisor.
    """

    clip_norm: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        expect.positive("clip_norm", self.clip_norm)
        SubsampledGaussian(self.noise_multiplier, 1.0, 1)

    @property
    def noise_stddev(self) -> float:
        return SubsampledGaussian(self.noise_multiplier, 1.0, 1).noise_stddev(self.clip_norm)


@dataclass(frozen=True)
class DescentSettings:
    """What a run needs to know besides its data. `microbatch` bounds memory and changes nothing else."""

    part: Part
    optimizer: Optimizer
    expected_batch: float
    clipping: Clipping | None = None
    noise_form: NoiseForm = NoiseForm.AUTO
    penalty: float = 0.0
    microbatch: int = MICROBATCH

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_form", NoiseForm(self.noise_form))
        expect.positive("expected batch", self.expected_batch)
        expect.at_least_zero("penalty", self.penalty)
        expect.whole("microbatch", self.microbatch, at_least=1)
        linear = isinstance(self.optimizer, Sgd) and not self.penalty
        if self.noise_form is NoiseForm.LAZY and not linear:
            what = "a penalty" if self.penalty else optimizer_name(self.optimizer)
            raise BadInput(f"expected dense noise with {what}, got lazy: it is exact for SGD alone")


class TableUpdate(Protocol):
    """How a step changes one table (rows, width), or a dense parameter as a table of width 1.

    It owns the accumulator that the model adds its (already clipped and averaged) gradients to, and everything
    an optimizer remembers. A step is: `prepare` the rows that a microbatch reads, let the model accumulate,
    `finish`.
    """

    accumulator: Floats32
    pulls: Floats32 | None  # the second part of a gradient, where it may come in two (`model.GradientSums`)

    def prepare(self, ids: Ids) -> None:
        """Bring the rows that these ids read up to date, before the model looks at them."""
        ...

    def finish(self, rate: float) -> None:
        """Take the step: what was accumulated, plus noise."""
        ...

    def settle(self) -> None:
        """Pay all noise that rows are still owed. Nothing may look at the weights from outside before this."""
        ...

    @property
    def memory(self) -> dict[str, Floats32]:
        """What a checkpoint must keep besides the weights, once settled."""
        ...


class GradientDescent:
    """Steps over one model's trained part. Between `settle` and the next step its weights may be looked at.

    A private one is held to its `monitor`: to the numbers that were paid for, or else to those of the settings.
    """

    def __init__(
        self, model: Model, settings: DescentSettings, source: Source, monitor: ReleaseMonitor | None = None
    ) -> None:
        self.model, self.settings, self.taken = model, settings, 0
        self._source, self._monitor = source, None
        noise, part, clipping = None, settings.part, settings.clipping
        if clipping is not None:
            noise = TrainingNoise(source, clipping.noise_stddev / settings.expected_batch)
            self._monitor = monitor or ReleaseMonitor(
                clipping.noise_multiplier, clipping.clip_norm, settings.expected_batch
            )
        trained, dense = model.trained_rows(part), model.trained_dense(part)
        parameters = len(trained) + len(dense)

        self._noise_monitors: list[NoiseMonitor] = []

        def noise_monitor(name: str) -> NoiseMonitor | None:
            momentum = settings.optimizer.momentum if isinstance(settings.optimizer, Sgd) else 0.0
            if self._monitor is None:
                return None
            below = source.uniform_below
            self._noise_monitors.append(self._monitor.noise_of(name, parameters, momentum, below=below))
            return self._noise_monitors[-1]

        self.tables = {
            name: table_update(
                model.tables[name], rows, settings, noise, noise_monitor(name), model.penalised_from
            )
            for name, rows in trained.items()
        }
        self.dense: dict[str, TableUpdate] = {}
        for name in dense:
            column = model.dense[name].reshape(-1, 1)
            self.dense[name] = DenseTable(
                column, slice(0, len(column)), settings.optimizer, noise, noise_monitor(name)
            )
        self._sums = GradientSums(
            {name: update.accumulator for name, update in self.tables.items()},
            {name: u.accumulator.reshape(model.dense[name].shape) for name, u in self.dense.items()},
            {name: update.pulls for name, update in self.tables.items() if update.pulls is not None},
        )

    def step(
        self, examples: Examples, targets: Targets, places: Places, rate: float, groups: Places | None = None
    ) -> None:
        """One step over the targets at these places; an empty batch is a step like any other.

        With `groups` (one for each place, rising), gradients are added up within each group before clipping.
        """
        most = most_at_once(self.model, self.settings.microbatch, grouped=groups is not None)
        looks = None
        if self._monitor is not None and len(places):  # any record of the batch, whatever microbatch it is in
            looks = self._source.uniform_below(len(places)), self._source.uniform_below(len(places))
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused, in one line
            for some in _microbatches(len(places), most, groups):
                own = None if groups is None else groups[some]
                here = [look - some.start if some.start <= look < some.stop else None for look in looks or ()]
                self._accumulate(examples, targets, places[some], own, *here)
        for update in (*self.tables.values(), *self.dense.values()):
            update.finish(rate)
        self.taken += 1

    def settle(self) -> None:
        """Pay all noise that is still owed, and test what was seen of it since the last tests."""
        for update in self.tables.values():
            update.settle()
        for monitor in self._noise_monitors:
            monitor.close()

    def _accumulate(
        self,
        examples: Examples,
        targets: Targets,
        at: Places,
        groups: Places | None,
        normed: int | None = None,
        summed: int | None = None,
    ) -> None:
        """Of two records among these, if any, the norm and the sum are looked at."""
        model, part = self.model, self.settings.part
        ids = model.ids(examples, examples.rows(at if targets.rows is None else targets.rows[at]), part)
        for name, read in model.trained_ids(ids, part).items():
            self.tables[name].prepare(read)
        passed = model.forward(ids, part)
        residual = targets.residual(passed.scores, at)
        if self._monitor is not None:
            clipped, norms = self._clipped(passed, residual, ids, groups, self._monitor, look=normed)
        elif not np.isfinite(residual).all():
            raise BadInput(
                "expected finite scores, got others: the training diverged; try a lower learning rate"
            )
        else:
            clipped = residual
        coefficients = clipped / np.float32(self.settings.expected_batch)
        probe = None
        if self._monitor is not None:
            self._monitor.check_clipped(residual, norms, coefficients)
        if summed is not None:
            probe = RowProbe.on(model, ids, part, summed, coefficients[summed], self._sums)
        passed.accumulate(coefficients, self._sums)
        if probe is not None:
            probe.check(model, self._sums)

    def _clipped(
        self,
        passed: ForwardPass,
        residual: Floats32,
        ids: TableIds,
        groups: Places | None,
        monitor: ReleaseMonitor,
        *,
        look: int | None,
    ) -> tuple[Floats32, Floats32]:
        """The residuals, scaled so that each record's (or group's) gradient keeps within the bound; and those
        gradients' norms before, by example."""
        assert self.settings.clipping is not None
        clip_norm = np.float32(self.settings.clipping.clip_norm)
        own = None
        if groups is None:
            squares = passed.squared_norms(residual)
        else:
            own = groups - groups[0] if len(groups) else groups
            squares = passed.squared_norms_grouped(residual, own)
        if not np.isfinite(squares).all():
            raise SelfCheckFailed("clipping: expected finite gradient norms, got others; nothing leaves")
        norms = np.sqrt(squares)
        scale = (CLIP_MARGIN * clip_norm / np.maximum(norms, clip_norm)).astype(np.float32)
        if look is not None:
            chosen, bound = look if own is None else int(own[look]), np.float32(monitor.clip_norm)
            check_clipping(self.model, ids, self.settings.part, residual, norms, scale, bound, own, chosen)
        return (residual * scale, norms) if own is None else (residual * scale[own], norms[own])


def table_update(
    weights: Floats32,
    rows: slice,
    settings: DescentSettings,
    noise: TrainingNoise | None,
    monitor: NoiseMonitor | None,
    penalised_from: int = 0,
) -> TableUpdate:
    """The cheapest update that does what was asked for."""
    optimizer = settings.optimizer
    penalty = settings.penalty if weights.shape[1] > penalised_from else 0.0  # none without embeddings
    if not isinstance(optimizer, Sgd) or penalty:
        return DenseTable(
            weights, rows, optimizer, noise, monitor, penalty=penalty, penalised_from=penalised_from
        )
    form = settings.noise_form
    if form is NoiseForm.AUTO:
        # A row costs one draw each time that it is read, or one per step: waiting pays while few rows are read.
        large = (rows.stop - rows.start) * 0.25 > settings.expected_batch
        form = NoiseForm.LAZY if large else NoiseForm.DENSE
    if noise is not None and form is NoiseForm.DENSE and optimizer.momentum:
        return DenseTable(weights, rows, optimizer, noise, monitor)
    return SparseTable(weights, rows, optimizer.momentum, noise, monitor, lazy=form is NoiseForm.LAZY)


def most_at_once(model: Model, microbatch: int, *, grouped: bool) -> int:
    """The examples that a microbatch of this model has at most, but for larger groups."""
    bounded = grouped and not isinstance(own_model(model), FmModel)  # whose norms of groups need no such arrays
    return min(microbatch, GROUPED_AT_ONCE) if bounded else microbatch


def _microbatches(count: int, most: int, groups: NDArray[np.int64] | None) -> Iterator[slice]:
    """Stretches of at most `most` places; a group is never cut, however large."""
    first = 0
    while first < count:
        past = min(first + most, count)
        if groups is not None and past < count:
            past_group = int(np.searchsorted(groups, groups[past], side="left"))
            past = (
                past_group if past_group > first else int(np.searchsorted(groups, groups[first], side="right"))
            )
        yield slice(first, past)
        first = past
