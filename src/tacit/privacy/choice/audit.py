"""Choices of one candidate for `tacit audit`, and how each can be weaker than the same claim allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from itertools import accumulate, pairwise, permutations, product

import numpy as np

from tacit.privacy.audit.case import AuditCase, Row, exact_case
from tacit.privacy.budget import exp_rounded_down
from tacit.privacy.choice.choice import ChoiceLaw
from tacit.privacy.choice.noise import Noise
from tacit.privacy.choice.noisy_max import NoisyMax, nominal_rate, worst_case_epsilon
from tacit.privacy.choice.scores import Clipped, Scaled, ScoreRule
from tacit.privacy.choice.top_choice import TopChoice
from tacit.privacy.mechanisms.randomized_response import WHOLE
from tacit.privacy.units import Relation

Scores = tuple[float, ...]

EPSILON = 5
CANDIDATES = 4
PUBLIC, BOUND = (1.0, 0.9, 0.8, 0.4), 0.25
ROUNDING = 1e-7  # of a worst case in doubles, which whole numbers of words come close to


def cases() -> list[AuditCase]:
    """All cases: claims are the epsilon that was asked for, whatever the choice says of itself."""
    return [*_ranked_cases(), *_contests(), *_calibrated_cases()]


def _ranked_cases() -> list[AuditCase]:
    def top(epsilon: int, *shape: int) -> Callable[[Fraction], TopChoice]:
        return lambda share: TopChoice.for_epsilon(epsilon / share, *shape)

    response, subset = top(2, CANDIDATES, CANDIDATES, 1), top(2, 5, 5, 2)
    truncated, uneven = top(2, 5, 3, 1), top(1, 5, 5, 3)
    assert uneven(Fraction(1)).spare  # words that do not divide by 3 go to the public best
    return [
        _case(
            f"randomized response by private rank, {CANDIDATES} candidates, ties included",
            2,
            rows=lambda share: choice_rows(response(share), _levels(CANDIDATES)),
            twin_rows=lambda: _tied_rows(2, _levels(CANDIDATES)),
        ),
        _case(
            "the private best 2 of 5 candidates",
            2,
            rows=lambda share: choice_rows(subset(share), _rankings(5)),
            twin_rows=lambda: _as_many_as_are_good_rows(2, _levels(5)),
        ),
        _case(
            "the private best 1 of the public best 3 of 5",
            2,
            rows=lambda share: choice_rows(truncated(share), _rankings(5)),
        ),
        _case(
            "the private best 3 of 5 candidates, with words left over",
            1,
            rows=lambda share: choice_rows(uneven(share), _rankings(5)),
        ),
    ]


def _contests() -> list[AuditCase]:
    """Nominal rates, which spend less than they say: held to their exact worst case. The twin has the rate
    epsilon / Delta, which is for scores that all move the same way."""
    rules: dict[str, ScoreRule] = {"scaled": Scaled(CANDIDATES), "clipped": Clipped(PUBLIC, BOUND)}
    return [
        _contest_case(
            f"noisy max, {noise}, {name} scores",
            partial(NoisyMax.nominal, noise, rule),
            NoisyMax(noise, rule, 2 * nominal_rate(rule, EPSILON)),
        )
        for name, rule in rules.items()
        for noise in Noise
    ]


def _calibrated_cases() -> list[AuditCase]:
    """The least noise for four candidates. The twin has the rate of two, where less noise is enough."""
    rule = Scaled(CANDIDATES)
    return [
        _contest_case(
            f"noisy max, {noise}, scaled scores, calibrated",
            partial(NoisyMax.calibrated, noise, rule),
            NoisyMax(noise, rule, NoisyMax.calibrated(noise, Scaled(2), EPSILON).rate),
        )
        for noise in Noise
    ]


def _contest_case(name: str, at: Callable[[Fraction], NoisyMax], twin: NoisyMax) -> AuditCase:
    honest = at(Fraction(EPSILON))
    inputs = _corners(honest.rule)
    return _case(
        name,
        EPSILON,
        rows=lambda share: choice_rows(at(EPSILON / share), inputs),
        twin_rows=lambda: choice_rows(twin, inputs),
        stated=worst_case_epsilon(honest.noise, honest.rule, honest.rate) * (1 + ROUNDING),
    )


def _case(
    name: str,
    claimed: float,
    *,
    rows: Callable[[Fraction], Sequence[Row]],
    twin_rows: Callable[[], Sequence[Row]] | None = None,
    stated: float = math.inf,
) -> AuditCase:
    return exact_case(name, Relation.REPLACE_ONE, claimed, rows=rows, twin_rows=twin_rows, stated=stated)


def _rankings(count: int) -> list[Scores]:
    return [tuple(map(float, scores)) for scores in permutations(range(count))]


def _levels(count: int) -> list[Scores]:
    """All rankings with ties between two levels."""
    return list(product((0.0, 1.0), repeat=count))


def _corners(rule: ScoreRule) -> list[Scores]:
    """Every candidate at one end of its range: the worst pair is among these."""
    return list(product(*zip(rule.low.tolist(), rule.high.tolist(), strict=True)))


def choice_rows(choice: ChoiceLaw, inputs: Iterable[Scores]) -> Sequence[Row]:
    """The law for each input, different ones once, read off the sampler: a block's words must decide alike."""
    rows: set[tuple[Fraction, ...]] = set()
    for scores in inputs:
        row = [Fraction(0)] * choice.candidates
        edges = [0, *accumulate(weight for weight in choice.weights(scores) if weight)]
        for low, high in pairwise(edges):
            words = np.array([low, (low + high) // 2, high - 1], dtype=np.uint64)
            for said in set(choice.choose([scores] * 3, lambda _, words=words: words).tolist()):  # type: ignore[misc]
                row[said] += Fraction(high - low, WHOLE)
        rows.add(tuple(row))
    return sorted(rows)


def _tied_rows(epsilon: int, inputs: Iterable[Scores]) -> Sequence[Row]:
    """The twin: whoever shares the best score is favoured, so that the normaliser tells how many do."""
    return _favouring_rows(epsilon, ([s == max(scores) for s in scores] for scores in inputs))


def _as_many_as_are_good_rows(epsilon: int, inputs: Iterable[Scores]) -> Sequence[Row]:
    """The twin: not the best 2, but as many as score above one half."""
    return _favouring_rows(epsilon, ([s > 0.5 for s in scores] for scores in inputs))


def _favouring_rows(epsilon: int, favoured: Iterable[list[bool]]) -> Sequence[Row]:
    odds = exp_rounded_down(Fraction(epsilon))
    weighed = {tuple(odds if best else Fraction(1) for best in row) for row in favoured}
    return sorted({tuple(weight / sum(row) for weight in row) for row in weighed})
