"""The noises that a contest can be decided by, by name."""

from __future__ import annotations

import numpy as np

from tacit.expect import Choice
from tacit.privacy.choice import gumbel, laplace, permute_and_flip
from tacit.privacy.choice.choice import Floats


class Noise(Choice):
    """Independent noise of scale 1, added to each candidate's signal; the largest sum wins.

    Every noise here has P(noise > t + s) >= e^-s P(noise > t) for all t and s >= 0: a hazard rate of at most 1.
    `nominal_rate` rests on it. With all other noise held fixed, a candidate wins where its own is above some t.
    Where each signal moves by d at most, that t moves by 2 d, and so the chance by a factor of e^2d at most. A
    normal law's tail falls ever faster: with it the nominal rate would spend more than it says.
    """

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
