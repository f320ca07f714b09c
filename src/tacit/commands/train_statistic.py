"""Training by one noisy statistic: planned like any other method, released once, fitted to convergence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tacit.entropy import Entropy, Simulation
from tacit.train.job.memory import FLOAT, ID, WORD, MemoryEstimate
from tacit.train.plan import Plan
from tacit.train.statistic.model import FieldFactors
from tacit.train.statistic.release import StatisticPlan

if TYPE_CHECKING:
    from tacit.commands.train_plan import PlannedTraining
    from tacit.train.config import TrainingConfig
    from tacit.train.examples import Examples
    from tacit.train.models.model import Model

COPIES = 3  # of the rows' cells and values, at the largest: as read, sparse, and turned


def statistic_plan(config: TrainingConfig, examples: Examples, now: int) -> tuple[Plan, StatisticPlan]:
    """What will be released, from public ids and keys alone; and the same as any training's plan."""
    privacy = config.privacy
    assert privacy.epsilon is not None, "checked when the configuration was read"
    assert privacy.delta is not None, "checked when the configuration was read"
    chosen = config.statistic.plan(
        _ids(examples),
        {name: examples.key(name) for name in examples.keys},
        public=examples.public_keys,
        unit=privacy.unit,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        now=now,
    )
    statement = chosen.statement
    charge = statement.guarantee(sensitive_features=False)
    return Plan((), (chosen.release,), statement, charge, examples), chosen


def statistic_memory(config: TrainingConfig, examples: Examples, plan: StatisticPlan) -> MemoryEstimate:
    sizes, rows = examples.sizes, len(examples)
    weights = sizes.public_fields * sizes.public_rows * (1 + config.statistic.rank) * FLOAT
    each = len(plan.shares) * WORD + sizes.public_fields * (ID + FLOAT) + (1 + config.statistic.rank) * FLOAT
    batch = rows * each * COPIES
    return MemoryEstimate(
        weights=weights, accumulators=0, moments=0, bookkeeping=0, batch=batch, labels=rows * WORD
    )


def fit_released_statistic(chosen: PlannedTraining) -> Model:
    """Release the statistic and fit a model to it. A run that goes on after a crash draws it afresh: nobody has
    seen the one before."""
    config, examples, seed = chosen.config, chosen.examples, chosen.config.run.simulated
    assert chosen.statistic is not None
    assert isinstance(config.model, FieldFactors)
    source: Entropy | Simulation = Entropy() if seed is None else Simulation(f"run {seed}")
    start: Entropy | Simulation = source if seed is None else Simulation(f"start {seed}")
    released = config.statistic.release(chosen.statistic, examples.labels, source, simulated=seed is not None)
    return config.model.filled(examples.sizes, config.statistic.fit(released, _ids(examples), start))


def _ids(examples: Examples) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    return np.asarray(examples.at.of(examples.public))
