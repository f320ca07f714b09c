"""One level of moment shrinkage: cells drawn towards their parents as far as a given spread of rates says."""

from __future__ import annotations

import numpy as np

from tacit.deliver.estimates.climbing import State
from tacit.deliver.estimates.frames import Frame
from tacit.deliver.estimates.noise import Opportunities, after_clipping, plain_residual, residual
from tacit.schema.statistics import Floats, Integers, LevelCounts


def moment_step(
    level: LevelCounts, keys: Integers, prior: State, frame: Frame, spread: float, excess: Floats
) -> State:
    """The cells of one level, given their parents; `spread` is the variance of rates around the parents'.

    The error of a cell is that of its parent and of its own deviation, as far as shrinkage leaves them; the
    clicks' own variance and the noise, as far as it lets them in; and what ties them, since the parent's count
    holds the same clicks (with noise of its own, which makes it a second look at them).
    """
    cells = frame.cells(level, keys)
    n = np.maximum(cells.opportunities(level), 0.0)
    bernoulli = prior.rate * (1 - prior.rate)
    noise_in_clicks = plain_residual(level, prior.rate)
    against = spread * n**2 + n * bernoulli + noise_in_clicks
    weight = np.where(against > 0, spread * n / np.where(against > 0, against, 1.0), 0.0)  # w / n
    rate = np.clip(prior.rate + weight * (cells.take(level.clicks) - prior.rate * n), 0.0, 1.0)

    true = Opportunities.behind(n, level.opportunity_variance)
    possible = np.minimum(spread, bernoulli)  # no rate in [0, 1] varies more around its mean
    left = 1 - 2 * weight * true.mean + weight**2 * true.square
    more = np.minimum(cells.spread(level, excess), bernoulli * true.square)
    own = weight**2 * (true.mean * (bernoulli - possible) + more)
    noise = weight**2 * residual(level, prior.rate, true.error)
    tied = 2 * (1 - weight * true.mean) * prior.influence * weight * (more - noise_in_clicks)
    variance = np.maximum(left * (possible + prior.variance) + own + noise + tied, 0.0)
    if level.noise_sd:
        variance = after_clipping(variance, prior.rate)
    none = np.zeros((1, 1))
    return State(
        rate=rate,
        variance=np.minimum(variance, np.maximum(rate, 1 - rate) ** 2),  # no error is larger
        unit=none,
        noise=variance,  # parents are weighed by the whole of it
        influence=weight + (1 - weight * n) * prior.influence,
        pull=none,
    )
