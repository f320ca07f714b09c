"""How much of a budget labels get before DP-SGD begins, from public quantities alone: the Hybrid's first phase.

Flipped labels get a share of epsilon, for a warm start. A noisy statistic is Gaussian as the steps are, and
composes with them cheaply: it gets a share of the squared distance that a budget allows between neighbours, and
its model's logit stays beside the one that DP-SGD trains.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.calibration import epsilon as epsilon_of
from tacit.privacy.releases import GaussianStatistic
from tacit.privacy.units import Relation, Unit
from tacit.train.examples import Examples
from tacit.train.recalibration import allowed_distance
from tacit.train.settings import Default, Defaults
from tacit.train.statistic.method import NoisyStatistic, PlannedStatistic, statistic_noise

ENOUGH = 3.0
"""True labels' worth that each public value needs before flipped labels are worth a share of the budget."""
OUTWEIGHS = 4.0
"""A statistic is told where this many times the records of a mean public value come to its noise."""
PARTS = 3
"""Noisy labels are worth a share of epsilon if they leave DP-SGD two thirds of it."""
CAUTIOUS_RATE = 0.05
"""Of positives, where no public rate is given. To look at the labels would be a release; a rate that is too low
asks for more epsilon, and so leaves noisy labels out sooner."""
STATISTIC_SHARE = 0.06
"""Of the squared distance between neighbours that a budget allows: about 3% more noise in DP-SGD's steps."""


def flips_share(epsilon: float, examples: Examples, public_rate: float | None) -> tuple[float, Defaults]:
    """The share of epsilon for flipped labels, with the reason.

    A label flipped at epsilon e has noise of variance 1 / (4 sinh(e / 2)^2), which is that of the label
    itself, rate (1 - rate), at e = 2 asinh(1 / (2 sqrt(rate (1 - rate)))): less epsilon tells little, and
    more is better spent on DP-SGD. Where it would take more than a third of all, labels get nothing.
    """
    rate = public_rate or CAUTIOUS_RATE
    candidate = 2 * math.asinh(1 / (2 * math.sqrt(rate * (1 - rate))))
    # n labels flipped at epsilon tell about as much on a mean as n tanh^2(epsilon / 2) true ones.
    worth = len(examples) * math.tanh(candidate / 2) ** 2
    if epsilon < PARTS * candidate:
        why = f"labels of which {rate:.3g} are 1 take ε = {candidate:.2f}, more than a third of {epsilon:g}"
        return 0.0, (Default("privacy.k", 0.0, why),)
    if worth < ENOUGH * examples.public_values:
        why = f"{len(examples):,} labels are too few for {examples.public_values:,} public values"
        return 0.0, (Default("privacy.k", 0.0, why),)
    why = f"at ε = {candidate:.2f} a flip adds as much noise as there is in a label of which {rate:.3g} are 1"
    return candidate / epsilon, (Default("privacy.k", candidate / epsilon, why),)


def statistic_share(
    examples: Examples, records: int, *, epsilon: Fraction, delta: Fraction, k: float | Literal["auto"]
) -> tuple[float | None, float, Defaults]:
    """The noise of a statistic that is told before DP-SGD, as a multiple of its sensitivity, None for no
    statistic; the share of epsilon that it would take alone; and with "auto" the reason."""
    if k != "auto":
        asked = expect.exact("k", k)
        return (statistic_noise(epsilon * asked, delta) if asked else None), float(asked), ()
    if not examples.sizes.public_fields:
        return None, 0.0, (Default("privacy.k", 0.0, "there is no public feature to tell labels by"),)
    noise = 1 / (allowed_distance(float(epsilon), float(delta)) * math.sqrt(STATISTIC_SHARE))
    rows = records / max(1, examples.public_values)
    if OUTWEIGHS * rows < noise:
        why = (
            f"{records:,} records are {rows:.2g} for each public value, and a statistic with noise of "
            f"{noise:.3g} would tell too little: it wants {noise / OUTWEIGHS:.2g}"
        )
        return None, 0.0, (Default("privacy.k", 0.0, why),)
    alone = GaussianStatistic(noise, 1.0, Relation.REPLACE_ONE)
    share = epsilon_of(alone, delta=delta, relation=Relation.REPLACE_ONE) / float(epsilon)
    why = (
        "alone it would take as much: a statistic of labels is told first, for "
        f"{STATISTIC_SHARE:.0%} of the squared distance that the budget allows, and DP-SGD learns what is left"
    )
    return noise, share, (Default("privacy.k", share, why),)


def plan_offset(
    method: NoisyStatistic,
    examples: Examples,
    unit: Unit,
    *,
    epsilon: Fraction,
    delta: Fraction,
    noise: float,
    now: int | None,
) -> PlannedStatistic:
    """The statistic that is told before DP-SGD, with this noise.

    Guarantee:  whoever composes `plan.release` with the steps accounts for it; none is given here.
    Neighbours: replace-one: public features and unit keys stay, so only labels can move the statistic, and by
                no more than under replace-label (`tables.unit_norms`).
    Assumes:    it is released once, and before the steps, which may depend on it.
    Source:     adaptive composition: Dwork, Roth 2014, section 3.5; by PLD: `accounting.composition`.
    """
    if not examples.sizes.public_fields:
        raise BadInput("expected public features to learn from a statistic, got a log without any")
    plan = method.plan(
        examples.public_ids,
        {name: examples.key(name) for name in examples.keys},
        public=examples.public_keys,
        unit=unit,
        epsilon=epsilon,
        delta=delta,
        now=now,
        relation=Relation.REPLACE_ONE,
        noise=noise,
    )
    return PlannedStatistic(method, plan)
