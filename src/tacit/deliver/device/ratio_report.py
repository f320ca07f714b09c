"""The device's part in counting ratios: in which bin one of its candidates lies (`protocol/ratio_bins`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tacit import expect
from tacit.arrays import Floats
from tacit.deliver.device.choice import device_scores
from tacit.deliver.protocol.forecasts import check_public_scores
from tacit.deliver.protocol.menu import NOTHING, Menu
from tacit.deliver.protocol.ratio_bins import BINS, MIDDLE, WIDTH
from tacit.errors import BadInput
from tacit.privacy.choice.choice import as_numbers
from tacit.privacy.randomness import UniformBelow


def ratio_bin(public: ArrayLike, private: ArrayLike, uniform_below: UniformBelow) -> int:
    """The bin of ln(private / public) for one candidate of a request, drawn uniformly.

    Scores are those of one request, in the same order, the best public one first. A candidate that is worth
    nothing to everybody has no ratio, and is not drawn; one that is worth nothing to this person is in the
    lowest bin. Where all of them are, none is worth less than another: the middle one.

    Guarantee:  none of its own: the bin is private, and leaves the device only inside a round of gathering,
                whose noise covers one bin per device.
    Neighbours: those of the round.
    Assumes:    one bin of a device is counted in a round. Drawing again for the same round would tell of two
                candidates: gathering keeps the first (`gather/client/contributions.py`).
    Source:     ours.
    """
    expect.having("uniform_below", uniform_below, "__call__", "the uniform_below of an Entropy")
    known = check_public_scores(public)
    own = as_numbers("private scores", private)
    if own.shape != known.shape:
        raise BadInput(f"expected a private score for each of {len(known)} candidates, got others")
    if not np.isfinite(own).all() or own.min() < 0:
        raise BadInput("expected finite private scores >= 0, got others")
    ranked = int(np.count_nonzero(known))  # the others come last
    if not ranked:
        raise BadInput("expected a public score above 0, got none")
    return _bin(known[:ranked], own[:ranked], uniform_below(ranked))


def menu_ratio_bin(menu: Menu, rates: Floats, uniform_below: UniformBelow) -> int:
    """The same for a menu and the device's rates (candidates,); showing nothing is worth the same to all.

    Scores beside a menu's floor are a hair off what nothing is worth, which a hostile menu sets: they are
    brought back into range, since a refusal on some devices only would tell which they are.
    """
    expect.kind("menu", menu, Menu)
    ads = np.array([ad != NOTHING for ad in menu.ads])
    scores = device_scores(menu, as_numbers("rates", rates))[ads]
    return ratio_bin(menu.public_scores[ads], np.clip(scores, 0.0, np.finfo(np.float64).max), uniform_below)


def _bin(public: Floats, private: Floats, place: int) -> int:
    if not private.any():
        return MIDDLE
    if not private[place]:
        return 0
    # Of logarithms, since a quotient of the smallest scores and the largest would not be finite.
    shares = np.log([private[place], public[place]]) - np.log([private.max(), public.max()])
    sums = np.log([(private / private.max()).sum(), (public / public.max()).sum()])
    own, everybody = shares - sums
    return int(np.clip(np.rint((own - everybody) / WIDTH), -MIDDLE, BINS - 1 - MIDDLE)) + MIDDLE
