"""Time for an example as batches and logs grow: it should never rise."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

from tacit.bench.measurement import Measurement
from tacit.bench.training_steps import CLIPPING, Scale, Workload, our_step, repeated
from tacit.bench.training_turns import Contestant, take_turns
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.sgd.descent import NoiseForm

MOST_RISE = 1.05
"""Times of the same work differ by about this much from one run to the next."""

FM = FactorizationMachine()


def growth_with_batch(scale: Scale, folder: Path) -> list[Measurement]:
    """Private steps with lazy noise, on the same log. The larger a batch, the more examples share a row."""
    work = Workload.open(folder)
    contestants = {batch: _private(work, batch, scale.batch) for batch in scale.batches}
    seconds = take_turns(contestants, scale.rounds)
    each = {batch: seconds[batch].processor / batch for batch in scale.batches}
    return [_rise("growth_with_batch", "batch", each, scale)]


def growth_with_log(scale: Scale, folder: Path) -> list[Measurement]:
    """The same batch from logs of different lengths, whose rows are alike: sampling goes by skips."""
    examples, least = Workload.open(folder).examples, min(scale.logs)
    with tempfile.TemporaryDirectory() as place:
        contestants = {}
        for rows in scale.logs:
            work = Workload.of(repeated(examples, least, rows, Path(place)))
            contestants[rows] = _private(work, scale.batch, scale.batch)
        seconds = take_turns(contestants, scale.rounds)
    each = {rows: seconds[rows].processor / scale.batch for rows in scale.logs}
    return [_rise("growth_with_log", "log rows", each, scale)]


def worst_rise(values: Sequence[float]) -> float:
    """The largest ratio of a later value to an earlier one; at most 1 if they never rise."""
    return max(later / earlier for earlier, later in combinations(values, 2))


def _private(work: Workload, batch: int, least_examples: int) -> Contestant:
    steps = max(1, least_examples // batch)  # small batches take several steps a turn, for the clock's sake
    step = our_step(work, FM, batch, clipping=CLIPPING, noise_form=NoiseForm.LAZY)

    def turn() -> None:
        for _ in range(steps):
            step()

    return Contestant(turn, steps)


def _rise(name: str, by: str, each: Mapping[int, float], scale: Scale) -> Measurement:
    table = ", ".join(f"{size:,}: {1e6 * seconds:.2f}" for size, seconds in each.items())
    settings = (
        f"FM of dim {FM.dim} with lazy noise, {scale.table_rows:,} table rows; processor microseconds an "
        f"example by {by}: {table}; medians of {scale.rounds} interleaved turns; the value is the worst ratio "
        "of a larger one's time to a smaller one's"
    )
    return Measurement(name, worst_rise(list(each.values())), "x", MOST_RISE, False, settings)
