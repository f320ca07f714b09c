"""The winner of a contest with Gumbel noise: softmax, which is the exponential mechanism."""

from __future__ import annotations

from scipy.special import log_softmax

from tacit.privacy.choice.choice import Floats


def log_pmf(signals: Floats) -> Floats:
    """ln of each candidate's chance when independent standard Gumbel noise is added to signals (n, a).

    Source: McSherry, Talwar 2007; Laro et al. 2023, eq. 5.
    """
    law: Floats = log_softmax(signals, axis=1)
    return law
