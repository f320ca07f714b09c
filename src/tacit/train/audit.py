"""DP-SGD as it is really run, against its claim.

One training holds as many worlds as there are trials: each world is a record (or a user) with table rows that
nobody else reads, so that every world is a trial of its own, and one run of the real trainer is many runs of
the mechanism. What the auditor looks at is the sum of a world's weights in the direction that its gradient can
move them in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

from tacit.data.splits import Rows
from tacit.privacy.audit.case import Case, Draws, Hits, claim, empirical
from tacit.privacy.randomness import Source
from tacit.privacy.relations import Relation
from tacit.privacy.releases import SubsampledGaussian
from tacit.train.examples import Examples, Sizes
from tacit.train.models.factorization_machine import LogisticRegression
from tacit.train.models.model import Part
from tacit.train.sgd.descent import Clipping, Descent, NoiseForm, Settings
from tacit.train.sgd.optimizers import Sgd
from tacit.train.sgd.sampling import poisson_sample
from tacit.train.targets import Targets

DELTA = 0.05
FIELDS = 16
"""Rows of a world. The bias is common to all, and takes 1 of 1 + FIELDS parts of a squared gradient norm
away."""

STEPS, SHARE, NOISE = 3, 0.3, 1.0
RATE = 1e-6  # so small that the common bias stays where it is, and every gradient is clipped in every step


def cases() -> list[Case]:
    lazy, dense = World(NoiseForm.LAZY), World(NoiseForm.DENSE)
    return [
        _case(
            f"DP-SGD, {STEPS} steps, lazy noise",
            lazy,
            World(NoiseForm.LAZY, noise=0.85 * NOISE, share=1.15 * SHARE),
        ),
        _case(f"DP-SGD, {STEPS} steps, dense noise", dense, World(NoiseForm.DENSE, share=1.3 * SHARE)),
        _case(
            f"DP-SGD, {STEPS} steps, a user of 2 clipped as one",
            World(NoiseForm.LAZY, records=2, together=True),
            World(NoiseForm.LAZY, records=2, together=False),
        ),
    ]


@dataclass(frozen=True)
class World:
    """How the trainer is run: the claim is of `NOISE` and `SHARE`, whatever a twin really does."""

    form: NoiseForm
    noise: float = NOISE
    share: float = SHARE
    records: int = 1
    together: bool = False

    def weights(self, label: int, trials: int, source: Source) -> NDArray[np.float64]:
        """How far each world's rows have moved in the end, in units of the clip norm."""
        reads = self.records * FIELDS
        count = trials * self.records
        examples = Examples(
            public=np.empty((count, 0), np.int32),
            sensitive=np.arange(count * FIELDS, dtype=np.int32).reshape(count, FIELDS),
            sizes=Sizes(0, FIELDS, 0, count * FIELDS),
            at=Rows(slice(0, count)),
        )
        model = LogisticRegression().build(examples.sizes, source.normal)
        settings = Settings(Part.WHOLE, Sgd(), 1.0, Clipping(1.0, self.noise), self.form)
        descent, targets = Descent(model, settings, source), Targets(np.full(count, label, np.float32))
        for _ in range(STEPS):
            world = poisson_sample(trials, self.share, source.words)
            places = (world[:, None] * self.records + np.arange(self.records)).ravel()
            groups = np.repeat(np.arange(len(world)), self.records) if self.together else None
            descent.step(examples, targets, places, RATE, groups)
        descent.settle()
        moved: NDArray[np.float64] = model.table.reshape(trials, reads).sum(axis=1, dtype=np.float64)
        return moved / (RATE * math.sqrt(reads))


def _case(name: str, honest: World, twin: World) -> Case:
    release = SubsampledGaussian(NOISE, SHARE, STEPS)
    claimed = claim(release, Relation.REPLACE_ONE, DELTA)
    above = _most_telling_threshold(claimed)
    return empirical(
        name,
        Relation.REPLACE_ONE,
        claimed,
        delta=DELTA,
        draws=_draws(honest, above),
        twin_draws=_draws(twin, above),
    )


def _draws(world: World, above: float) -> Draws:
    def draw(neighbour: bool, trials: int, source: Source) -> Hits:
        hits: Hits = world.weights(0 if neighbour else 1, trials, source) > above
        return hits

    return draw


def _most_telling_threshold(claimed: float) -> float:
    """Of the sum of an honest world: it moves by up to 1 each time that it is sampled, up or down by its
    label."""
    joined = np.arange(STEPS + 1)
    chances = binom.pmf(joined, STEPS, SHARE)
    reach = math.sqrt(FIELDS / (FIELDS + 1))

    def tail(above: float, sign: int) -> float:
        return float(chances @ norm.sf((above - sign * reach * joined) / (NOISE * math.sqrt(STEPS))))

    thresholds = np.arange(-2.0, 6.0, 0.02)
    return float(max(thresholds, key=lambda above: tail(above, 1) - math.exp(claimed) * tail(above, -1)))
