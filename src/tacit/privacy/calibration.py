"""Calibration: the least noise whose accounted epsilon is at most the one asked for.

Coarse to fine: the way there is found on a coarse grid, where one evaluation takes milliseconds, and only
the last few are refined. Answers can be remembered across runs through a `CalibrationMemory` (`tacit.store`
has one).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from tacit import expect
from tacit.errors import BadInput, NoFiniteGuarantee
from tacit.privacy.accounting import accountant
from tacit.privacy.releases import Composed, Grouped, Release, SubsampledGaussian
from tacit.privacy.units import Relation, Unit, UnitKind

CLOSE = 2e-3  # how far below the asked epsilon an answer may stay, relative
MOST_EPSILON = 1000
_LEAST_NOISE, _MOST_NOISE = 1e-3, 1e9


class CalibrationMemory(Protocol):
    """A cache of calibrations: numbers that this very code computed before, by the text of the question."""

    def recall(self, question: str) -> float | None: ...
    def keep(self, question: str, answer: float) -> None: ...


class ProcessMemory:
    """Calibrations that are forgotten with the process."""

    def __init__(self) -> None:
        self._known: dict[str, float] = {}

    def recall(self, question: str) -> float | None:
        return self._known.get(question)

    def keep(self, question: str, answer: float) -> None:
        self._known[question] = answer


def epsilon(
    release: Release, *, delta: expect.Number, relation: Relation, memory: CalibrationMemory | None = None
) -> float:
    """`accounting.epsilon`, remembered."""
    question = f"epsilon {release!r} delta={expect.exact('delta', delta)} {Relation(relation)}"
    return _recall_or_compute(
        memory, question, lambda: accountant.epsilon(release, delta=delta, relation=Relation(relation))
    )


def noise_multiplier(
    *,
    epsilon: expect.Number,
    delta: expect.Number,
    relation: Relation | str = Relation.REPLACE_ONE,
    sampling_probability: float = 1,
    steps: int = 1,
    unit: Unit | str = UnitKind.IMPRESSION,
    records: int | None = None,
    beside: Sequence[Release] = (),
    memory: CalibrationMemory | None = None,
) -> float:
    """The noise multiplier (standard deviation over clip norm) that makes DP-SGD (epsilon, delta)-DP, jointly
    with what is released `beside` it. A unit of several records needs `records`, as in `epsilon`.

    >>> from tacit import noise_multiplier
    >>> noise_multiplier(epsilon=2, delta=1e-6, sampling_probability=0.01, steps=1000)
    1.43852

    Guarantee:  with the returned noise, (epsilon, delta)-DP for everything together; within .2% of the least
                such noise's epsilon.
    Neighbours: `relation`, for units of at most `records` records, in what is released beside it too.
    Assumes:    Poisson sampling with fresh randomness in every step, a norm bound per record, and a secret
                realised batch size (see `releases.SubsampledGaussian`).
    Source:     `accounting.accountant`.
    """
    beside = expect.several("beside", beside, Release)
    expect.not_text("epsilon", epsilon)
    if expect.positive("epsilon", epsilon) > MOST_EPSILON:
        raise BadInput(f"expected epsilon <= {MOST_EPSILON}, got {float(epsilon):g}: that promises nothing")
    relation, group = Relation.named("relation", relation), Unit.of(unit).records(records)
    SubsampledGaussian(1.0, sampling_probability, steps)  # refused before anything is computed

    def release_with(noise: float) -> Release:
        together = Composed((SubsampledGaussian(noise, sampling_probability, steps), *beside))
        return Grouped(together, group)

    question = (
        f"noise {release_with(1.0)!r} epsilon={expect.exact('epsilon', epsilon)} "
        f"delta={expect.exact('delta', delta)} {Relation(relation)}"
    )
    return _recall_or_compute(
        memory,
        question,
        lambda: least_noise(
            release_with,
            epsilon=epsilon,
            delta=delta,
            relation=Relation(relation),
            start=_rule_of_thumb(epsilon, delta, sampling_probability * group, steps),
        ),
    )


def least_noise(
    release_with: Callable[[float], Release],
    *,
    epsilon: expect.Number,
    delta: expect.Number,
    relation: Relation,
    start: float = 1.0,
) -> float:
    """The least noise for any family of releases whose epsilon falls as its noise grows; rounded up."""
    target = float(expect.positive("epsilon", epsilon))
    chance = float(expect.probability("delta", delta))

    def coarse(log_noise: float) -> float:
        found = accountant.coarse_epsilon(
            release_with(math.exp(log_noise)), delta=chance, relation=relation, grid=target / 500
        )
        return math.log(found / target) if found > 0 else -math.inf

    def fine(
        log_noise: float, first_grid: float = target / accountant.GRIDS_PER_EPSILON
    ) -> tuple[float, float]:
        noise = _rounded_up(math.exp(log_noise))
        found = accountant.epsilon(release_with(noise), delta=chance, relation=relation, first_grid=first_grid)
        return math.log(noise), math.log(max(found, target * 1e-6) / target)

    # Both in logs: `short` has too little noise, `safe` enough; the curve between them is nearly a line.
    safe: tuple[float, float] | None = None
    short: tuple[float, float] | None = None
    guess = _crossing(coarse, target, math.log(start))
    for _ in range(40):
        found = fine(guess)
        if found[1] > 0:
            short = found
        else:
            safe = found
            if found[1] >= math.log1p(-CLOSE):
                break
        guess = _next_guess(safe, short, found)
        if safe and short and safe[0] - short[0] < 1e-6:
            break
    if safe is None:
        raise NoFiniteGuarantee(f"expected noise that reaches epsilon={target:g} at delta={chance:g}, got none")
    # The epsilon of this noise, asked for later, starts on another grid: that answer must keep the target too.
    answer, above = fine(safe[0], accountant.FIRST_GRID)
    while above > 0:
        answer, above = fine(answer + 1.5 * above + 1e-5, accountant.FIRST_GRID)
    return _rounded_up(math.exp(answer))


def _next_guess(
    safe: tuple[float, float] | None, short: tuple[float, float] | None, last: tuple[float, float]
) -> float:
    """A little on the safe side of where the line through both ends crosses; outwards while one is missing."""
    aim = math.log1p(-CLOSE / 2)
    if safe is None or short is None:
        step = (last[1] - aim) / 1.0  # as if epsilon fell with the first power of noise, but not too boldly
        return last[0] + min(max(step, -1.0), 1.0)
    share = (short[1] - aim) / (short[1] - safe[1])
    # Never hug an end: a curve that bends would creep along it.
    return short[0] + min(max(share, 0.1), 0.9) * (safe[0] - short[0])


def _rule_of_thumb(
    epsilon: expect.Number, delta: expect.Number, sampling_probability: float, steps: int
) -> float:
    """About how much noise it will be, so that the search need not pass where losses are huge."""
    target, chance = float(expect.positive("epsilon", epsilon)), float(expect.probability("delta", delta))
    many_small_losses = sampling_probability * math.sqrt(2 * steps * math.log(1 / chance)) / target
    return min(max(many_small_losses, 0.3), _MOST_NOISE / 10)


def _crossing(coarse: Callable[[float], float], target: float, start: float) -> float:
    """Where the coarse curve meets the target, to a percent: doubling out, then halving in."""
    low = high = start
    while coarse(high) > 0:
        low, high = high, high + 1.5
        if high > math.log(_MOST_NOISE):
            raise NoFiniteGuarantee(
                f"expected some noise to reach epsilon={target:g}, got none: what is released beside it "
                "already spends that much, or delta is too small for it"
            )
    while low == high or coarse(low) <= 0:
        low, high = low - 0.7, low
        if low < math.log(_LEAST_NOISE):
            raise BadInput(f"expected an epsilon that needs noise, got epsilon={target:g}: any noise does")
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (middle, high) if coarse(middle) > 0 else (low, middle)
    return (low + high) / 2


def _rounded_up(noise: float) -> float:
    """Six significant digits, upwards: more noise, and a number that can be read aloud."""
    unit = 10.0 ** (math.floor(math.log10(noise)) - 5)
    return round(math.ceil(noise / unit - 1e-9) * unit, 12)


def _recall_or_compute(memory: CalibrationMemory | None, question: str, compute: Callable[[], float]) -> float:
    if memory is None:
        return compute()
    expect.having("memory", memory, "recall", "a CalibrationMemory")
    known = memory.recall(question)
    if known is None:
        known = compute()
        memory.keep(question, known)
    return known
