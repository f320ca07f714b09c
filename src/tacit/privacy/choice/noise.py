"""The noises that a contest can be decided by, by name."""

from __future__ import annotations

import numpy as np

from tacit.expect import Choice
from tacit.privacy.choice import gumbel, laplace, permute_and_flip
from tacit.privacy.choice.choice import Floats


class Noise(Choice):
    """Independent noise of scale 1, added to each candidate's signal; the largest sum wins."""

    GUMBEL = "gumbel"
    EXPONENTIAL = "exponential"
    LAPLACE = "laplace"

    def log_pmf(self, signals: Floats) -> Floats:
        """ln of each candidate's chance to win, for signals (n, a): scores times the rate of the noise.

        No chance underflows, however far behind a candidate is.
        """
        return _LAWS[self](signals)

    def pmf(self, signals: Floats) -> Floats:
        law: Floats = np.exp(self.log_pmf(signals))
        return law


_LAWS = {
    Noise.GUMBEL: gumbel.log_pmf,
    Noise.EXPONENTIAL: permute_and_flip.log_pmf,
    Noise.LAPLACE: laplace.log_pmf,
}
