"""The counts of a run as trees for `consistency`: node totals, and the clicks or no-clicks of each ad.

Children add up to their parent only where nothing was cut, so a contribution bound on single cells below that
on events is refused here. It also takes that a node's children hold all that the node does: of a public
universe that misses values that devices have, they do not.

Rounds may have been answered by different devices. Counts are scaled to the largest number of them, which is
right in the mean if devices stay away whatever they hold; the variances are those of the noise alone.
"""

from __future__ import annotations

import numpy as np

from tacit import expect
from tacit.errors import BadInput
from tacit.gather.estimate.consistency import NO_PARENT, Tier
from tacit.gather.estimate.top_down import AskedLevel, Descent
from tacit.schema.statistics import Floats, Integers


class Part(expect.Choice):
    """Which of an entry's counts."""

    CLICKS = "clicks"
    NO_CLICKS = "no-clicks"


def total_tiers(run: Descent) -> tuple[Tier, ...]:
    """The totals of the nodes that were asked about, each tier in the order of its question's nodes."""
    _expect_additive(run)
    return tuple(
        Tier(*_scaled(run, round, round.totals), _parents_asked(run, at)) for at, round in enumerate(run.rounds)
    )


def entry_tiers(run: Descent, part: Part) -> tuple[Tier, ...]:
    """The clicks or no-clicks of all (node, ad) entries, each tier in the order of its question's entries.

    An entry is below that of the same ad at the node's parent if *all* the parent's children were asked about
    the ad. Otherwise their sum is not the parent's count, and each stands alone.
    """
    _expect_additive(run)
    tiers = []
    for at, round in enumerate(run.rounds):
        cells = round.question.clicks if Part(part) is Part.CLICKS else round.question.no_clicks
        counts = round.result.values[cells].astype(np.float64)
        tiers.append(Tier(*_scaled(run, round, counts), _parent_entries(run, at)))
    return tuple(tiers)


def _expect_additive(run: Descent) -> None:
    bound = run.plan.contribution
    if not run.rounds:
        raise BadInput("expected counts of at least one round, got none")
    if not bound.adds_up:
        raise BadInput(
            f"expected counts that add up, got cells cut to {bound.most} of a device's {bound.events} events"
        )


def _scaled(run: Descent, round: AskedLevel, counts: Floats) -> tuple[Floats, Floats]:
    scale = max(each.result.count for each in run.rounds) / round.result.count
    return counts * scale, np.full(len(counts), round.result.noise_variance * scale**2)


def _parents_asked(run: Descent, at: int) -> Integers:
    """(nodes asked,) places among those asked before; all children of a node are asked, or none."""
    question = run.rounds[at].question
    if at == 0:
        return np.full(len(question.nodes), NO_PARENT, np.int64)
    above = run.rounds[at - 1].question
    parent = run.nodes.parent(question.levels, above.levels)[question.nodes]
    return np.searchsorted(above.nodes, parent).astype(np.int64)


def _parent_entries(run: Descent, at: int) -> Integers:
    question = run.rounds[at].question
    if at == 0:
        return np.full(question.entries, NO_PARENT, np.int64)
    above = run.rounds[at - 1].question
    parent_node = _parents_asked(run, at)
    family = np.bincount(parent_node, minlength=len(above.nodes))  # children of each node above
    keys = above.entry_node * run.ads + above.ad
    wanted = parent_node[question.entry_node] * run.ads + question.ad
    place = np.searchsorted(keys, wanted)
    found = np.zeros(len(wanted), np.bool_)
    if len(keys):
        found = keys[np.minimum(place, len(keys) - 1)] == wanted
    listed = np.bincount(place[found], minlength=above.entries)
    whole = np.zeros(len(wanted), np.bool_)
    whole[found] = listed[place[found]] == family[above.entry_node[place[found]]]
    return np.where(whole, place, NO_PARENT).astype(np.int64)
