"""The server's part in counting ratios: from noisy counts by bin to a prior."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tacit import expect
from tacit.deliver.protocol.factor_laws import ObservedRatios
from tacit.deliver.protocol.ratio_bins import BINS, RATIOS
from tacit.errors import BadInput
from tacit.privacy.statement import PrivacyStatement


def ratios_from_counts(counts: ArrayLike, noise_sd: float, statement: PrivacyStatement | str) -> ObservedRatios:
    """The prior that counts of devices by bin speak for, as they were released under `statement`.

    One deviation of the noise is taken off every count, and what is below 0 then is left out: in empty bins
    far from the middle noise alone would look like people who differ much, and a prior that is too wide costs
    more than one that is too narrow.
    """
    given = np.asarray(counts)
    if given.shape != (BINS,) or given.dtype.kind not in "fiu":
        raise BadInput(f"expected a count for each of {BINS} bins, got {given.dtype} of shape {given.shape}")
    if not np.isfinite(given).all():
        raise BadInput("expected finite counts, got others")
    sd = float(expect.at_least_zero("noise_sd", noise_sd))
    left = np.round(np.maximum(given.astype(np.float64) - sd, 0.0), 1)
    seen = np.flatnonzero(left)
    if not len(seen):
        raise BadInput(f"expected a count above its noise of {sd:.1f} in some bin, got none: ask more devices")
    return ObservedRatios(tuple(RATIOS[place] for place in seen), statement, weights=tuple(left[seen].tolist()))
