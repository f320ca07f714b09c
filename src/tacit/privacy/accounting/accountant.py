"""The accountant: epsilon and delta of a release.

By privacy loss distributions (PLD), which is the answer that tacit gives; and by Renyi differential privacy
(RDP), which is looser and shown beside it because others state it.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from tacit import expect
from tacit.errors import BadInput, NoFiniteGuarantee, UnknownRelease
from tacit.privacy.accounting.composition import delta_at, epsilon_at
from tacit.privacy.accounting.dominating_pairs import LossPair
from tacit.privacy.accounting.loss_distributions import LARGEST_LOSS, GridTooFine
from tacit.privacy.accounting.renyi import ORDERS
from tacit.privacy.accounting.rules import RULES, loss_terms, readable_leaves
from tacit.privacy.budget import rounded_up
from tacit.privacy.releases import Grouped, Release, SubsampledGaussian
from tacit.privacy.units import Relation, Unit, UnitKind

LEAST_DELTA = 1e-200
FIRST_GRID = 1e-3
GRIDS_PER_EPSILON = 10_000
STILL = 1e-3
FINEST_GRID = 1e-9
GIVEN_UP = 1e-6  # of delta: tails of single losses that are not followed
MOST_BINS = 2**21


def epsilon(
    release: Release | None = None,
    *,
    delta: expect.Number,
    relation: Relation | str = Relation.REPLACE_ONE,
    noise_multiplier: float | None = None,
    sampling_probability: float = 1,
    steps: int = 1,
    unit: Unit | str = UnitKind.IMPRESSION,
    records: int | None = None,
    first_grid: float = FIRST_GRID,
) -> float:
    """The least epsilon, rounded up, at which a release, or a schedule of noisy sums, is (epsilon, delta)-DP.

    A schedule is `steps` sums over Poisson samples of the records (DP-SGD), each with Gaussian noise of
    `noise_multiplier` clip norms. A unit of several records, such as "user", needs `records`: how many of them
    one unit has at most, or 1 where a unit's records are clipped together.

    Guarantee:  never below the true epsilon; mostly within .1% of it. Very sparse samples over very many steps
                come out looser, on the safe side.
    Neighbours: `relation`, for the unit that the release speaks of; for units of at most `records` records, by
                group privacy, where they are stated.
    Assumes:    what each release says of itself. Grid rounding is pessimistic; tails, wrap-around and FFT
                rounding are bounded and added to delta.
    Source:     Sommer, Meiser, Mohammadi 2019; Koskela, Jälkö, Honkela 2020; each pair: see
                `dominating_pairs`.

    >>> from tacit.privacy import Relation, SubsampledGaussian, epsilon
    >>> step = SubsampledGaussian(noise_multiplier=1.1, sampling_probability=0.01, steps=1000)
    >>> f"{epsilon(step, delta=1e-5, relation=Relation.ADD_REMOVE):.2f}"
    '1.52'
    >>> f"{epsilon(noise_multiplier=1.1, sampling_probability=0.01, steps=1000, delta=1e-5):.2f}"
    '2.48'
    """
    if (release is None) == (noise_multiplier is None):
        raise BadInput("expected a release or the noise_multiplier of a schedule, got both or neither")
    if release is None:
        assert noise_multiplier is not None
        expect.not_text("noise_multiplier", noise_multiplier)
        release = SubsampledGaussian(noise_multiplier, sampling_probability, steps)
    elif (sampling_probability, steps) != (1, 1):
        raise BadInput(
            "expected sampling_probability and steps beside noise_multiplier, got them with a release"
        )
    size = Unit.of(unit).records(records)
    if size > 1:
        release = Grouped(release, size)
    chance = float(expect.probability("delta", delta))
    if chance < LEAST_DELTA:
        raise BadInput(f"expected delta >= {LEAST_DELTA:g}, got {delta!r}")
    relation = Relation.named("relation", relation)
    parts = readable_leaves(release, relation)
    grid, best, cut = first_grid, math.inf, math.log(GIVEN_UP * chance)
    while True:
        try:
            sides = loss_terms(parts, relation, grid, cut)
        except GridTooFine:
            if math.isfinite(best):
                break
            grid *= 8  # nothing known yet: coarser, and looser
            continue
        found = max(epsilon_at(sides.there, chance), epsilon_at(sides.back, chance))
        moved, best = best - found, min(best, found)
        if best == 0:
            return 0.0
        at_rest = grid <= best / GRIDS_PER_EPSILON and moved < STILL * best
        finer = grid / 4 if math.isinf(best) else min(grid / 2, best / GRIDS_PER_EPSILON)
        # Every value so far is an upper bound: where finer would not fit into memory, the best of them stands.
        if at_rest or finer < FINEST_GRID or _bins(sides) * grid / finer > MOST_BINS:
            break
        grid = finer
    if math.isinf(best):
        raise NoFiniteGuarantee(f"expected a finite epsilon at delta={chance:g}, got none under {relation}")
    return best


def coarse_epsilon(release: Release, *, delta: float, relation: Relation, grid: float) -> float:
    """Epsilon on one given grid: an upper bound too, quick and loose, for finding one's way."""
    parts = readable_leaves(release, relation)
    while True:
        try:
            sides = loss_terms(parts, relation, grid, math.log(GIVEN_UP * delta))
        except GridTooFine:
            grid *= 8
            continue
        return max(epsilon_at(sides.there, delta), epsilon_at(sides.back, delta))


def delta(release: Release, *, epsilon: expect.Number, relation: Relation) -> float:
    """The delta, rounded up, at which the release is (epsilon, delta)-DP.

    Guarantee:  never below the true delta.
    Neighbours: `relation`, for the unit that the release speaks of.
    Assumes:    as for `epsilon`.
    Source:     as for `epsilon`.
    """
    # Delta falls as epsilon grows, so looking no further than where e^epsilon is still a number is a bound too.
    threshold = float(min(expect.at_least_zero("epsilon", epsilon), Fraction(LARGEST_LOSS)))
    relation = Relation.named("relation", relation)
    parts = readable_leaves(release, relation)
    grid, best = FIRST_GRID, math.inf
    while True:
        try:
            sides = loss_terms(parts, relation, grid)
        except GridTooFine:
            grid *= 8
            continue
        found = max(delta_at(sides.there, threshold), delta_at(sides.back, threshold))
        if found == 0 or found > best * (1 - STILL) or _bins(sides) * 4 > MOST_BINS:
            return min(found, best)
        best, grid = found, grid / 4


def pure_epsilon(release: Release, *, relation: Relation) -> float:
    """Epsilon at delta = 0, by adding up, for releases that all have one; rounded up.

    Guarantee:  the release is epsilon-DP.
    Neighbours: `relation`, for the unit that the release speaks of.
    Assumes:    what each release says of itself.
    Source:     basic composition: Dwork, Roth 2014, theorem 3.16.
    """
    total = Fraction(0)
    for leaf in readable_leaves(release, Relation.named("relation", relation)):
        rule = RULES[type(leaf.release)]
        if rule.pure is None:
            raise NoFiniteGuarantee(
                f"expected releases that are pure epsilon-DP at delta=0, got {type(leaf.release).__name__}: "
                "state a delta > 0"
            )
        total += leaf.count * leaf.group * rule.pure(leaf.release)
    return rounded_up(total * (1 + Fraction(1, 2**50)))


def _bins(sides: LossPair) -> int:
    return max(len(term.pmf.probs) for term in sides.there + sides.back)


def rdp_epsilon(release: Release, *, delta: expect.Number, relation: Relation) -> float:
    """An upper bound on epsilon through Rényi divergences.

    Guarantee:  the release is (epsilon, delta)-DP; usually 2-15% above `epsilon`.
    Neighbours: `relation`, for the unit that the release speaks of.
    Assumes:    what each release says of itself.
    Source:     Mironov 2017 (arXiv 1702.07476); conversion: Canonne, Kamath, Steinke 2020 (arXiv 2004.00010).
    """
    relation = Relation.named("relation", relation)
    leaves = readable_leaves(release, relation)
    chance = float(expect.probability("delta", delta))
    total = np.zeros(len(ORDERS))
    for leaf in leaves:
        divergences = RULES[type(leaf.release)].renyi
        if divergences is None:
            kind = type(leaf.release).__name__
            raise UnknownRelease(f"expected a release with a Rényi bound, got {kind}: use PLD")
        total = total + leaf.count * divergences(leaf.release, relation, leaf.group)
    from dp_accounting.rdp import rdp_privacy_accountant as library  # here: heavy, few need it

    found, _ = library.compute_epsilon(ORDERS, total, chance)
    return float(found)
