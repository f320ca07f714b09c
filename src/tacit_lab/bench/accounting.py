"""Accounting: how long epsilon from noise and noise from epsilon take, and what a second library takes.

Twenty configurations are drawn at random (with a fixed seed, so that runs compare): training lengths from
one epoch to a hundred, epsilon log-uniform between .01 and 50, both relations.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass
from statistics import median

from tacit.privacy.accounting import epsilon
from tacit.privacy.accounting.accountant import coarse_epsilon
from tacit.privacy.calibration import noise_multiplier
from tacit.privacy.releases import SubsampledGaussian
from tacit.privacy.units import Relation
from tacit_lab.bench.measurement import Measurement, SuiteProgress

CONFIGURATIONS = 20


@dataclass(frozen=True)
class Configuration:
    epsilon: float
    delta: float
    sampling_probability: float
    steps: int
    relation: Relation


@dataclass(frozen=True)
class AccountingTimes:
    to_noise_seconds: float
    to_epsilon_seconds: float
    one_grid_seconds: float
    library_seconds: float
    shortfall: float  # of the epsilon that was asked for, relative


def configurations() -> list[Configuration]:
    draw = random.Random(20)
    found = []
    for _ in range(CONFIGURATIONS):
        rows = 10 ** draw.uniform(5, 8)
        share = 10 ** draw.uniform(-4, -1.5)
        epochs = 10 ** draw.uniform(0, 2)
        found.append(
            Configuration(
                epsilon=math.exp(draw.uniform(math.log(0.01), math.log(50))),
                delta=1 / rows,
                sampling_probability=share,
                steps=max(1, round(epochs / share)),
                relation=draw.choice([Relation.ADD_REMOVE, Relation.REPLACE_ONE]),
            )
        )
    return found


def run(progress: SuiteProgress) -> list[Measurement]:
    outcomes = [_measure_times(configuration) for configuration in progress(configurations(), "accounting")]
    to_noise = [outcome.to_noise_seconds for outcome in outcomes]
    to_epsilon = [outcome.to_epsilon_seconds for outcome in outcomes]
    ratios = [outcome.library_seconds / outcome.one_grid_seconds for outcome in outcomes]
    settings = f"{CONFIGURATIONS} random configurations, epsilon .01 to 50, no cache"
    return [
        Measurement("epsilon_from_noise_median", median(to_epsilon), "s", 1.0, False, settings),
        Measurement("epsilon_from_noise_slowest", max(to_epsilon), "s", settings=settings),
        Measurement("noise_from_epsilon_median", median(to_noise), "s", 10.0, False, settings),
        Measurement("noise_from_epsilon_slowest", max(to_noise), "s", 10.0, False, settings),
        Measurement(
            "epsilon_from_noise_vs_dp_accounting",
            median(ratios),
            "x",
            settings=f"{settings}; both on one grid of epsilon/10,000",
        ),
        Measurement(
            "calibration_shortfall_worst",
            100 * max(outcome.shortfall for outcome in outcomes),
            "% of epsilon",
            1.0,
            False,
            f"{settings}; the epsilon of the noise that was found, against the one asked for",
        ),
    ]


def _measure_times(configuration: Configuration) -> AccountingTimes:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution

    c = configuration
    start = time.perf_counter()
    noise = noise_multiplier(
        epsilon=c.epsilon,
        delta=c.delta,
        relation=c.relation,
        sampling_probability=c.sampling_probability,
        steps=c.steps,
    )
    calibrated = time.perf_counter()
    release = SubsampledGaussian(noise, c.sampling_probability, c.steps)
    found = epsilon(release, delta=c.delta, relation=c.relation)
    accounted = time.perf_counter()
    coarse_epsilon(release, delta=c.delta, relation=c.relation, grid=c.epsilon / 10_000)
    on_one_grid = time.perf_counter()
    add = c.relation is Relation.ADD_REMOVE
    privacy_loss_distribution.from_gaussian_mechanism(
        noise,
        sampling_prob=c.sampling_probability,
        value_discretization_interval=c.epsilon / 10_000,
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE if add else NeighboringRelation.REPLACE_ONE,
    ).self_compose(c.steps).get_epsilon_for_delta(c.delta)
    library = time.perf_counter()
    return AccountingTimes(
        to_noise_seconds=calibrated - start,
        to_epsilon_seconds=accounted - calibrated,
        one_grid_seconds=on_one_grid - accounted,
        library_seconds=library - on_one_grid,
        shortfall=1 - found / c.epsilon,
    )
