"""A prior of private scores for a little: devices count how far their scores are from the public ones.

    run = plan_ratios(devices=5_000, epsilon=0.25)
    for ledger in (books.proxy_ledger, books.server_ledger):
        ledger.grant(LINE, run.cost)
    prior = count_ratios("ratios in June", bins, run, books, source)   # bins: by device, of its requests
    menu = replace(menu, prior=prior)

One round of gathering, as any other: each device adds one to one bin (`deliver/device/ratio_report`), a proxy
and a server add noise, and what is released becomes a prior (`deliver/server/ratio_counts`). It is paid from a
line of its own, beside what the device counts and chooses. Over services it is the same: `TopDownRun(NODES, 0,
run)` asks, each device uploads what `answer_ratios` says, and `ratios_of` reads what was released.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tacit import expect
from tacit.arrays import Integers
from tacit.deliver.protocol.factor_laws import ObservedRatios
from tacit.deliver.protocol.ratio_bins import BINS
from tacit.deliver.server.ratio_counts import ratios_from_counts
from tacit.errors import BadInput
from tacit.gather.client.contributions import ChosenEvents, Contributions, Event, answer_question
from tacit.gather.estimate.plan import NoiseBy, RunPlan, plan_run
from tacit.gather.estimate.top_down import public_nodes
from tacit.gather.protocol.promises import RELATION, Contribution
from tacit.gather.protocol.rounds import Question
from tacit.gather.simulate.rounds import PartyStores
from tacit.gather.simulate.runs import count_on_devices
from tacit.privacy.ledger.lines import Line
from tacit.privacy.randomness import Source
from tacit.privacy.units import Unit, UnitKind
from tacit.progress import Progress, no_progress
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.contexts.hierarchy import Sequence as LevelSequence
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import Tree
from tacit.schema.counts import Counts

LINE = Line("ratios on devices", Unit(UnitKind.DEVICE), RELATION)
"""What pays."""

CONTRIBUTION = Contribution(events=1, each=1, totals_only=True)
"""One device, one bin, once."""

SIMULATED = "simulated: the noise came from a seed, and nothing is promised"
_NAMES = tuple(f"bin {place:02d}" for place in range(BINS))
_LEVEL = (0,)


def _nodes() -> ContextNodes:
    bins = Tree.of({"any": None} | dict.fromkeys(_NAMES, "any"))
    return public_nodes(LevelSequence((Steps("ratio", bins),), (_LEVEL,)), {"ratio": _NAMES}).only([_LEVEL])


NODES = _nodes()
"""What is asked: how many devices are in each bin. Public: it follows from the number of bins."""


def plan_ratios(devices: int, epsilon: expect.Number, delta: expect.Number | None = None) -> RunPlan:
    """The least noise for one round of so many devices; `run.cost` is what `LINE` must be granted."""
    return plan_run(contribution=CONTRIBUTION, levels=1, parties=devices, epsilon=epsilon, delta=delta)


def ratio_event(place: int) -> Event:
    """A bin as gathering counts it."""
    if expect.whole("bin", place, at_least=0) >= BINS:
        raise BadInput(f"expected a bin below {BINS}, got {place}")
    return Event((_NAMES[place],), ad=0, clicked=False)


def answer_ratios(
    task: str, question: Question, bins: Sequence[int], source: Source, memory: ChosenEvents
) -> Integers:
    """(cells,) what a device uploads: one in the cell of one of its requests' bins, and 0 elsewhere.

    Which one is drawn at the first call for this task, and remembered: whatever is handed in later, the answer
    is the same.
    """
    events = [ratio_event(place) for place in expect.several("bins of a device", bins)]
    chosen = Contributions.once(task, events, CONTRIBUTION.events, source, memory)
    return answer_question(question, chosen, _node_of, CONTRIBUTION.most)


def _node_of(levels: Levels, context: tuple[Any, ...]) -> int:
    return int(NODES.locate(levels, {"ratio": list(context)})[0])


def count_ratios(
    name: str,
    bins: Sequence[Sequence[int]],
    run: RunPlan,
    books: PartyStores,
    source: Source,
    *,
    progress: Progress = no_progress,
) -> ObservedRatios:
    """The prior from one round over all devices: `bins[n]` are those of device n's requests, one of which
    counts. Ledgers must have been granted; a name that was counted before is refused.

    Guarantee:  that of `run`, which the prior states: all that is released of a device's scores is one bin,
                under the noise of both parties. What is made of the counts afterwards releases nothing more.
    Neighbours: the contribution of one device set to zero.
    Assumes:    what `RunPlan` does, and a `source` that is an `Entropy`: with a seed it is a study, and none.
    Source:     `count_on_devices`; post-processing (Dwork, Roth 2014, proposition 2.1).
    """
    expect.kind("run", run, RunPlan)
    if run.contribution != CONTRIBUTION or run.levels != 1:
        raise BadInput("expected a run of one round and one bin per device (plan_ratios), got another")
    events = [[ratio_event(place) for place in expect.several("bins of a device", own)] for own in bins]
    counts = count_on_devices(
        name, NODES, 0, run, events, books, source, scope=LINE.scope,
        progress=lambda done, total: progress("counting ratios on devices", done, total),
    )  # fmt: skip
    found = ratios_of(counts, run)
    return found if source.fit_for_release else replace(found, statement=SIMULATED)


def ratios_of(counts: Counts, run: RunPlan) -> ObservedRatios:
    """The prior from what a round of this run released, wherever it ran; counts of other noise are refused."""
    level = counts.at(_LEVEL)
    noise = run.published_sd(1)  # the servers' own, however many devices answered
    if run.by is NoiseBy.SERVERS and not math.isclose(level.noise_sd, noise, rel_tol=1e-6):
        raise BadInput(
            f"expected counts with this run's noise, deviation {noise:.3g}, got {level.noise_sd:.3g}"
        )
    places = [_NAMES.index(NODES.name(_LEVEL, node).values[0]) for node in range(NODES.count(_LEVEL))]
    by_bin = [0.0] * BINS
    for place, total in zip(places, level.total.tolist(), strict=True):
        by_bin[place] = total
    return ratios_from_counts(by_bin, level.noise_sd, run.statement)
