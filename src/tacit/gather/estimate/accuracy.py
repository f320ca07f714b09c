"""How far a rate may be off for the noise in its counts: (alpha, beta), predicted.

With n = clicks + no-clicks, an estimate is (alpha, beta)-accurate if with probability at least beta

    (clicks - alpha) / (n + 2 alpha)  <=  estimate  <=  (clicks + alpha) / (n - 2 alpha).

It is where both counts carry noise of at most alpha, if n > 2 alpha and rates are cut to [0, 1]. (Uncut they
need clicks >= alpha too: a negative numerator grows with its denominator.)

Source: Hardt and Nath, CCS 2012, appendix A.2.
"""

from __future__ import annotations

import math

import numpy as np

from tacit import expect
from tacit.errors import BadInput
from tacit.gather.estimate.published import PublishedNoise
from tacit.schema.statistics import Floats, Integers


def both_within(noise: PublishedNoise, alpha: float) -> float:
    """The beta of all cells with n > 2 alpha: the chance that neither count is off by more, by the law."""
    return (1 - noise.outside(float(expect.at_least_zero("alpha", alpha)))) ** 2


def alpha_at(noise: PublishedNoise, beta: float) -> int:
    """The least alpha that `both_within` gives this beta."""
    each = 1 - math.sqrt(float(expect.probability("beta", beta)))
    return noise.threshold(each / 2)


def beta_of_cell(noise: PublishedNoise, alpha: float, clicks: int, no_clicks: int) -> float:
    """The chance that the estimate of a cell with these true counts keeps both bounds, to rounding.

    More than `both_within`: noise beyond alpha may cancel, in one of the counts or between them. An estimate
    whose noisy n is not positive counts as off.
    """
    alpha = float(expect.positive("alpha", alpha))
    shown = expect.whole("clicks", clicks, at_least=0) + expect.whole("no_clicks", no_clicks, at_least=0)
    if shown <= 2 * alpha:
        raise BadInput(f"expected more than 2 alpha = {2 * alpha:g} impressions, got {shown}")
    reach = len(noise.masses) - 1
    mass = noise.pmf(reach)
    most = np.r_[0.0, np.cumsum(mass)]  # P(Y < y), from y = -reach on
    low = (clicks - alpha) / (shown + 2 * alpha)
    high = (clicks + alpha) / (shown - 2 * alpha)
    numerator = clicks + np.arange(-reach, reach + 1, dtype=np.float64)  # noisy clicks
    # numerator / d <= high and >= low, for the noisy n = d > 0; a rate below 0 is 0, and one above 1 is 1.
    least_d = np.where((numerator > 0) & (high < 1), numerator / high, 0.0)
    most_d = np.where(numerator > 0, numerator / low if low > 0 else np.inf, np.inf if low <= 0 else -np.inf)
    offset = numerator + no_clicks  # d = offset + y
    first = np.maximum(np.ceil(least_d - 1e-9), 1.0) - offset
    last = np.floor(most_d + 1e-9) - offset
    inside = most[_place(last + 1, reach)] - most[_place(first, reach)]
    return float(mass @ np.maximum(inside, 0.0))


def gaussian_bound(noise_sd: float, alpha: float) -> float:
    """A beta by the Gaussian tail bound for each of two counts; below 0 it says nothing.

    1 - 2 sqrt(2 / pi) (s / alpha) e^(-alpha^2 / 2 s^2), with s the published noise's standard deviation.
    """
    ratio = float(expect.positive("alpha", alpha)) / float(expect.positive("noise_sd", noise_sd))
    return 1 - 2 * math.sqrt(2 / math.pi) / ratio * math.exp(-(ratio**2) / 2)


def paper_bound(*, noise_sd: float, alpha: float, parties: int, away: float) -> float:
    """The appendix's beta as printed, for comparison: it promises too much.

    1 - 3 / (2 pi alpha) s' e^(-alpha^2 / 2s'^2), with s' = noise_sd sqrt(N / ((1 - t) N - 1)), t the fraction
    `away` that was planned for, and all N answering. A Gaussian tail bound has sqrt(2 / pi) = .80 for each of
    two counts, so 1.60 where this has .48. The two bounds themselves fail less often than either count strays,
    but still with .80 in large cells of a low rate (see `beta_of_cell`).
    """
    expect.whole("parties", parties, at_least=1)
    planned = (1 - float(expect.probability("away", away, zero=True))) * parties - 1
    if planned <= 0:
        raise BadInput(f"expected (1 - away) parties > 1, got {planned + 1:g}")
    sd = float(expect.positive("noise_sd", noise_sd)) * math.sqrt(parties / planned)
    ratio = float(expect.positive("alpha", alpha)) / sd
    return 1 - 3 / (2 * math.pi) / ratio * math.exp(-(ratio**2) / 2)


def _place(y: Floats, reach: int) -> Integers:
    place: Integers = np.clip(y + reach, 0, 2 * reach + 1).astype(np.int64)
    return place
