"""A device's answer to a question: its own events, counted in the cells that were asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.gather.client.contributions import Contributions
from tacit.gather.wire.questions import Question
from tacit.schema.contexts.hierarchy import Levels

NodeOf = Callable[[Levels, tuple[Any, ...]], int]
"""The id of the node that a context is in at these levels; negative where it is in none that is known."""


def answer(question: Question, contributions: Contributions, node_of: NodeOf, each: int) -> NDArray[np.int64]:
    """(cells,) the device's counts, none above `each`.

    Guarantee:  against all zeros, the answer is at most 2 m in L1 and 2 m r in squared L2, for m =
                `contributions.most` events and r = `each`; exactly 2 (q r^2 + s^2) at most, with
                q, s = divmod(m, r). Half of that where the question is for totals alone. Over h rounds of
                one run, h times that.
    Neighbours: the contribution of one device set to zero (zero-out).
    Assumes:    the contributions were chosen once and are the same in every round; the device runs this code.
                A device that does not is bounded only by what its reports prove.
    Source:     an event counts in one total and in one of clicks and no-clicks. The counts of either kind add
                up to at most m, none above r; a sum of squares is greatest where counts are most unequal.
    """
    most = expect.whole("each", each, at_least=1)
    counts = np.zeros(question.cells, np.int64)
    totals, clicks, no_clicks = counts[question.totals], counts[question.clicks], counts[question.no_clicks]
    for event in contributions.events:
        node = node_of(question.levels, event.context)
        place = int(np.searchsorted(question.nodes, node))
        if place == len(question.nodes) or question.nodes[place] != node:
            continue
        totals[place] += 1
        start, end = question.offsets[place : place + 2]
        entry = int(start + np.searchsorted(question.ad[start:end], event.ad))
        if entry < end and question.ad[entry] == event.ad:
            (clicks if event.clicked else no_clicks)[entry] += 1
    return np.minimum(counts, most)
