"""The label mechanisms of this package, and how each can be weaker than the same claim allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from math import prod

import numpy as np

from tacit.privacy.audit.case import (
    AuditCase,
    AuditDraws,
    Draws,
    Row,
    claimed_epsilon,
    discrete_law,
    empirical_case,
    exact_case,
)
from tacit.privacy.mechanisms.memoisation import SECRET_BYTES, FlipKey, keyed_words
from tacit.privacy.mechanisms.one_hot_laplace import OneHotLaplace
from tacit.privacy.mechanisms.randomized_response import WHOLE, RandomizedResponse, TopResponse
from tacit.privacy.randomness import Source
from tacit.privacy.releases import Composed, NoisyLabels
from tacit.privacy.units import Relation
from tacit.train.labels.values import STEPS, FlipEnds

LABEL = Relation.REPLACE_LABEL


def cases() -> list[AuditCase]:
    """All cases. Claims come from the accountant, never from here, so that it is audited too."""
    return [*_tops(), *_reports(), *_ends(), *_laplace()]


def _tops() -> list[AuditCase]:
    claimed = claimed_epsilon(NoisyLabels(Fraction(1), 1, "top response"), LABEL, 0)
    return [
        exact_case(
            f"response among the likeliest {top} of 5 classes",
            LABEL,
            claimed,
            rows=lambda share, top=top: _top_rows(TopResponse.for_epsilon(1 / share, top, 5)),  # type: ignore[misc]
        )
        for top in (2, 3, 5)
    ]


def _top_rows(response: TopResponse) -> list[Row]:
    """The law of the report for every rank, read off the sampler: all words of a stretch must decide alike."""
    assert response.among is not None
    widths = (response.among.lie_weight, response.even_weight)
    edges = sorted({0, WHOLE, *(place * width for width in widths for place in range(1, response.top))})
    rows: list[Row] = []
    for rank in range(response.classes):
        row = [Fraction(0)] * response.top
        for low, high in pairwise(edges):
            words = np.array([low, (low + high) // 2, high - 1], dtype=np.uint64)
            for said in set(response.report(np.full(3, rank), words).tolist()):
                row[said] += Fraction(high - low, WHOLE)
        rows.append(row)
    return rows


def _reports() -> list[AuditCase]:
    def early(share: Fraction) -> RandomizedResponse:
        return RandomizedResponse.for_epsilon(Fraction(1, 4) / share)

    def final(share: Fraction) -> RandomizedResponse:
        return RandomizedResponse.for_epsilon(Fraction(3, 4) / share)

    whole, paid = RandomizedResponse.for_epsilon(1), Fraction(1)
    return [
        exact_case(
            "a label reported early and again when final",
            LABEL,
            claimed_epsilon(Composed((early(paid).release, final(paid).release)), LABEL, 0),
            rows=lambda share: _report_rows((early(share), final(share))),
            # The final report was not made to pay for the early one.
            twin_rows=lambda: _report_rows((early(paid), whole)),
        )
    ]


def _report_rows(responses: Sequence[RandomizedResponse]) -> list[Row]:
    """The law of all reports together, for a label that was there at once, came later, or never did."""
    count = len(responses)
    outputs = list(product((0, 1), repeat=count))
    labels = [tuple(int(place >= since) for place in range(count)) for since in range(count + 1)]
    return [
        [
            prod(
                (r.pmf(y)[said] for r, y, said in zip(responses, truth, output, strict=True)), start=Fraction(1)
            )
            for output in outputs
        ]
        for truth in labels
    ]


def _ends() -> list[AuditCase]:
    claimed = claimed_epsilon(RandomizedResponse.for_epsilon(1).release, LABEL, 0)
    return [
        exact_case(
            "a value rounded to an end of its range, and flipped",
            LABEL,
            claimed,
            rows=lambda share: _end_rows(RandomizedResponse.for_epsilon(1 / share)),
        )
    ]


def _end_rows(response: RandomizedResponse) -> list[Row]:
    """The law of the reported end, for values from the low end to the high one, read off the sampler."""
    rows: list[Row] = []
    for step in (0, 1, STEPS // 3, STEPS - 1, STEPS):
        row = [Fraction(0), Fraction(0)]
        stretches = [sorted({0, step << 32, WHOLE}), sorted({0, response.lie_weight, WHOLE})]
        for rounding, flip in product(*(pairwise(each) for each in stretches)):
            share = prod((Fraction(high - low, WHOLE) for low, high in (rounding, flip)), start=Fraction(1))
            for word in product(*((low, high - 1) for low, high in (rounding, flip))):
                said = FlipEnds.report(np.array([step]), np.array([word], np.uint64), response)
                row[int(said[0])] += share / 4
        rows.append(row)
    return rows


def _laplace() -> list[AuditCase]:
    noise = OneHotLaplace.for_epsilon(1, 3)

    def at(share: Fraction) -> OneHotLaplace:
        return replace(noise, epsilon=noise.epsilon / share)

    def one_sided(share: Fraction) -> OneHotLaplace:
        """As if one place changed, not two."""
        return at(share / 2)

    return [
        empirical_case(
            "Laplace noise on one-hot labels, memoised",
            LABEL,
            claimed_epsilon(NoisyLabels(noise.epsilon, 1, "Laplace noise"), LABEL, 0),
            draws=_told_apart(at),
            law=discrete_law(lambda share: at(share).law, lambda share: float(at(share).epsilon)),
            twin_draws=_told_apart(one_sided),
        )
    ]


def _told_apart(at: Callable[[Fraction], OneHotLaplace]) -> Draws:
    """A label of 1 against one of 0; the event: place 1 is at its step or above, and place 0 at 0 or below."""

    def draws(share: Fraction, neighbour: bool, trials: int, source: Source) -> AuditDraws:
        noise, labels = at(share), np.full(trials, 0 if neighbour else 1)
        words = keyed_words(
            np.arange(trials), labels, FlipKey("audit", 0),
            mechanism=(str(noise.scale),), count=noise.classes, secret=source.bytes(SECRET_BYTES),
        )  # fmt: skip
        reports = noise.report(labels, words, lambda _: lambda: source.uniform_below(WHOLE))
        told = (reports[:, 1] >= noise.steps) & (reports[:, 0] <= 0)
        reports[np.arange(trials), labels] -= noise.steps
        return AuditDraws(told, reports)

    return draws
