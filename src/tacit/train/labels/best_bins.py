"""Which bins to round a value to before its bin is flipped, by what is publicly expected of it."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from tacit import expect
from tacit.errors import BadInput
from tacit.train.labels.classes import Bins
from tacit.train.labels.mechanism import Correction
from tacit.train.targets import Head

MOST_VALUES = 512  # the search takes their number cubed


def best_bins(
    values: ArrayLike,
    prior: ArrayLike,
    epsilon: expect.Number,
    *,
    correction: Correction,
    head: Head = Head.SQUARED,
) -> Bins:
    """The bins whose reports, read as they are, have the least expected squared error under a public prior.

    `values` ascend, `prior` is the probability of each. For RAW targets the bins' values allow for lies, and no
    other epsilon-DP report of such a label has a smaller expected squared error. For UNBIASED targets the bins
    are the same, and each stands for the mean of what it holds: levels come out right on average, where RAW
    pulls them together.
    Source: Ghazi, Kamath, Kumar, Leeman, Manurangsi, Varadarajan, Zhang, ICLR 2023 (arXiv 2212.06074).
    """
    correction = Correction(correction)
    if correction not in (Correction.RAW, Correction.UNBIASED):
        raise BadInput(f"expected raw or unbiased correction of bins, got {correction}")
    points, masses = np.asarray(values, np.float64), np.asarray(prior, np.float64)
    if points.ndim != 1 or len(points) < 2 or len(points) > MOST_VALUES or not np.all(np.diff(points) > 0):
        raise BadInput(f"expected 2..{MOST_VALUES} values, each above the last, got shape {points.shape}")
    if masses.shape != points.shape or np.any(masses < 0) or not math.isclose(masses.sum(), 1, abs_tol=1e-6):
        raise BadInput(f"expected {len(points)} probabilities >= 0 that sum to 1 as prior, got others")
    lie = math.exp(
        -min(float(expect.positive("epsilon", epsilon)), 700.0)
    )  # the weight of a lie beside a truth
    moments = np.cumsum([masses, masses * points, masses * points**2], axis=1)
    moments = np.concatenate([np.zeros((3, 1)), moments], axis=1)
    # A bin [low, high) is reported for all its values with weight 1 and for all others with weight `lie`.
    inside = moments[:, None, :] - moments[:, :, None]  # (3, low, high)
    weight, first, second = lie * moments[:, -1, None, None] + (1 - lie) * inside
    held = np.triu(np.ones(weight.shape, bool), k=1)
    spread = np.where(held, second - first**2 / np.where(held, weight, 1), math.inf)

    least, choices = np.full(len(points) + 1, math.inf), []
    least[0], best, bins = 0.0, math.inf, 0
    for count in range(1, len(points) + 1):
        options = least[:, None] + spread  # (low, high)
        choices.append(np.argmin(options, axis=0))
        least = options.min(axis=0)
        error = least[-1] / (1 + (count - 1) * lie)
        if error < best:
            best, bins = error, count
    if bins < 2:  # one bin tells nothing, and says so most cheaply: two are the least that a response needs
        bins = 2
    stops = [len(points)]
    for count in range(bins, 0, -1):
        stops.append(int(choices[count - 1][stops[-1]]))
    spans = list(pairwise(reversed(stops)))
    edges = tuple(float(points[low - 1] + points[low]) / 2 for low, _ in spans[1:])
    if correction is Correction.RAW:
        return Bins(edges, tuple(float(first[span] / weight[span]) for span in spans), head)
    mass, total, _ = inside
    # A bin that nothing falls into, by the prior, stands for its middle.
    middles = {(low, high): float(points[low:high].mean()) for low, high in spans}
    means = tuple(float(total[span] / mass[span]) if mass[span] > 0 else middles[span] for span in spans)
    return Bins(edges, means, head)
