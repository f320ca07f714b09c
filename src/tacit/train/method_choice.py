"""Which way of label DP is best for a log, an epsilon and a unit: from public quantities alone.

Flips are exact about few labels or rough about many. What a label flipped at epsilon e is worth, beside a
true one, is v / (v + 1 / (4 sinh(e / 2)^2)), with v the variance of a label: the flip adds the second term to
it. The cost of a noisy statistic falls with 1/N, but its model is one of values and pairs, and gets no better
than that. So the statistic is taken where flips leave little of what labels tell, and flips where they leave
much.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tacit import expect
from tacit.privacy.units import Cap, Split, Unit, UnitKind
from tacit.train.config import TrainingConfig
from tacit.train.examples import Examples
from tacit.train.label_share import CAUTIOUS_RATE
from tacit.train.labels.noisy_targets import allocate_labels
from tacit.train.methods import LABEL
from tacit.train.settings import Default
from tacit.train.statistic.model import FieldFactors

CAPS = (1, 2, 4, 8)
HALF = 0.5
"""Of what true labels tell: flips are taken from here on."""


def label_worth(
    examples: Examples, unit: Unit, cap: Cap, epsilon: expect.Number, *, rate: float, now: int | None = None
) -> float:
    """What flips under this cap tell, as a part of what all true labels would."""
    allocation = allocate_labels(examples, unit, cap, key=LABEL, secret=b"", now=now)
    variance, of_all = rate * (1 - rate), max(1, len(examples))
    each = float(expect.exact("epsilon", epsilon))
    divisors: dict[int, int] = {}
    for divisor in allocation.divisor.tolist():
        divisors[divisor] = divisors.get(divisor, 0) + 1
    told = sum(count * _worth(each / divisor, variance) for divisor, count in divisors.items())
    return told / of_all


def best_way(
    examples: Examples, unit: Unit, epsilon: expect.Number, *, rate: float | None = None, now: int | None = None
) -> tuple[str, Cap, Default]:
    """`label-dp` or `statistic`, the cap under which flips tell most, and why. No label is read.

    Unit keys have to be public, as for both; `rate` is a public guess of how many labels are 1.
    """
    expect.kind("examples", examples, Examples)
    guess = rate or CAUTIOUS_RATE
    caps = [Cap(1)]
    if unit.kind is not UnitKind.IMPRESSION:
        caps += [Cap(most, split=Split.BY_COUNT) for most in CAPS[1:]]
    worth = {cap: label_worth(examples, unit, cap, epsilon, rate=guess, now=now) for cap in caps}
    cap = max(worth, key=lambda each: worth[each])
    many = "one label" if cap.impressions == 1 else f"up to {cap.impressions} labels"
    of_whom = "" if unit.kind is UnitKind.IMPRESSION else f" of {many} per unit"
    said = (
        f"flips{of_whom} at ε = {float(expect.exact('epsilon', epsilon)):g} tell {worth[cap]:.0%} of what true "
        f"labels tell where {guess:.3g} of them are 1"
    )
    if worth[cap] >= HALF:
        why = f"{said}: half or more, and what learns from flips is not bound to values and pairs"
        return "label-dp", cap, Default("privacy.method", "label-dp", why)
    why = f"{said}: less than half, and a statistic's noise does not grow with the log"
    return "statistic", cap, Default("privacy.method", "statistic", why)


def settle_method(
    config: TrainingConfig, examples: Examples, now: int | None
) -> tuple[TrainingConfig, tuple[Default, ...]]:
    """The configuration with its method named, where it was left to us; and why."""
    privacy = config.privacy
    if privacy.method != "auto":
        return config, ()
    assert privacy.epsilon is not None, "checked when the configuration was read"
    rate = config.statistic.prior.rate
    method, cap, why = best_way(examples, privacy.unit, privacy.epsilon, rate=rate, now=now)
    if method == "statistic":
        shape = FieldFactors(config.statistic.rank)
        return replace(config, privacy=replace(privacy, method=method), model=shape), (why,)
    flips = replace(privacy, method=method, cap=cap, delta=None, k=1.0)
    return replace(config, privacy=flips), (why,)


def _worth(epsilon: float, variance: float) -> float:
    added = 1 / (4 * math.sinh(min(epsilon, 50.0) / 2) ** 2)
    return variance / (variance + added)
