"""Bins of ln(private / public), by which devices count how far their scores are from the public ones.

`BINS` bins of one width, the middle one around 0; what lies beyond the outermost centres counts there. A ratio
is that of one candidate, divided by the ratio of all candidates of its request together: what they share (a
person who clicks a lot) moves no ranking, and would overstate how far scores are apart.

How far a lie can reach follows from the ends: a device that always says the last bin says a factor of e^2, and
one such device in twenty moves a prior by little. With ends at e^5 it would move it by much.
"""

from __future__ import annotations

import math

WIDTH = 0.25  # in ln(private / public)
FURTHEST = 2.0  # the centre of the last bin; that of the first is -FURTHEST
MIDDLE = round(FURTHEST / WIDTH)
BINS = 2 * MIDDLE + 1
RATIOS = tuple(math.exp(WIDTH * (place - MIDDLE)) for place in range(BINS))
"""The ratio in the middle of each bin."""
