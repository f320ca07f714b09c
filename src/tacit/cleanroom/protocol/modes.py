"""Modes of a clean room: what may leave it, under which noise and join, and the privacy statement of each mode.

The unit of every statement is one record (an impression) with its labels for all tasks. Two neighbours differ
in the labels of one record; features, and which records there are, are the same in both. Statements are made
from what a mode releases, by the accountant.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from tacit import expect
from tacit.expect import Choice
from tacit.privacy.budget import Budget, rounded_up
from tacit.privacy.calibration import least_noise
from tacit.privacy.releases import Composed, GaussianStatistic, NoisyLabels, Release
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Relation, Unit, UnitKind

if TYPE_CHECKING:
    from tacit.cleanroom.protocol.answers import RemainingBudget
    from tacit.cleanroom.protocol.terms import Terms


class Mode(Choice):
    """What leaves the room. One agreement has one mode; `terms_statement` says what each promises."""

    STATISTIC = "statistic"
    RELEASE = "release"
    AGGREGATE = "aggregate"
    NOISED = "noised"

    @property
    def words(self) -> str:
        return _WORDS[self]

    @property
    def flips(self) -> bool:
        """Whether each label is flipped once, and only flipped labels are ever read again."""
        return self in (Mode.RELEASE, Mode.AGGREGATE)


_WORDS = {
    Mode.STATISTIC: "one noisy sum of labels times features, released once",
    Mode.RELEASE: "labels that were flipped once, handed over",
    Mode.AGGREGATE: "sums over labels that were flipped once",
    Mode.NOISED: "sums over true labels, clipped, with noise, a bounded number of times per record",
}


class NoiseLaw(Choice):
    """The law of the noise in mode noised; a statistic's is Gaussian."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"


class Join(Choice):
    """How the room finds the label of a record: by tokens under a shared key, or by private intersection."""

    TOKENS = "tokens"
    PSI = "psi"


class Signer(Choice):
    """The two parties that sign: the platform has features and the model, the room has labels."""

    PLATFORM = "platform"
    ROOM = "room"


UNDER_THESE = "What may leave under these terms"
RECORD = Unit(UnitKind.IMPRESSION)
RELATION = Relation.REPLACE_LABEL


def terms_statement(terms: Terms) -> PrivacyStatement:
    """The promise for one record by all that ever leaves under these terms.

    Guarantee:  (epsilon, delta)-DP as agreed, or a little less, against a platform that sends what it likes,
                adapts to every answer and asks for ever.
    Neighbours: replace label, for one record: its labels of all tasks.
    Assumes:    the room flips each label once and keeps the flip, or clips, adds noise and counts releases of
                a record durably; tokens name records one to one, and its secrets stay with it. Changing the
                window, the label version or any number of the terms starts fresh draws, to be paid again.
    Source:     memoised flips: Erlingsson, Pihur, Korolova 2014 (arXiv 1407.6981), section 3.2; adaptive
                composition: Zhu, Dong, Wang 2022 (arXiv 2106.08567); numbers: `privacy.accounting`.
    """
    return PrivacyStatement.of(
        (terms_release(terms),),
        unit=RECORD,
        relation=RELATION,
        delta=terms.delta,
        also_not_protected=not_protected(terms),
    )


def statement_after(terms: Terms, remaining: RemainingBudget) -> PrivacyStatement:
    """The same for a party that holds what left under these terms, once the room has said what was spent:
    whatever left under earlier terms adds to it, and is named."""
    stated, spent = terms_statement(terms), remaining.spent
    if spent.fits(terms.budget):
        return stated
    earlier = f"what left under earlier terms as well: in all, {spent} was released about one record's labels"
    return replace(stated, not_protected=(*stated.not_protected, earlier))


def budget_summary(terms: Terms, remaining: RemainingBudget) -> str:
    """What was released so far, under all terms that were ever in force, and what may still be; in words."""
    spent, left = remaining.spent, remaining.left
    if spent == Budget.NOTHING:
        said = "Nothing was released so far."
    else:
        said = f"What was released so far is {spent} about one record's labels, under all terms ever in force."
    if terms.budget.fits(left):
        return f"{said} Under the terms in force, {terms.budget} may still be released."
    return f"{said} No more may be: under the terms in force leaves only what is paid for already."


def terms_release(terms: Terms) -> Release:
    """All that one record's labels are ever part of, for an accountant."""
    if terms.mode.flips:
        return Composed((terms.response.release,), len(terms.tasks))
    releases = terms.releases_per_record
    if terms.noise is NoiseLaw.LAPLACE:
        # |d_i|_1 <= C before the factor p - y, so a label moves a sum by at most C in L1.
        manner = f"Laplace noise of scale {terms.noise_multiplier:.6g} times the clipping norm on a sum"
        return Composed((NoisyLabels(terms.epsilon / releases, 1, manner),), releases)
    # |d_i| <= C before the factor p - y, so a label moves a sum by at most C in L2; a statistic by |phi_i|.
    sensitivity = terms.clip_norm if terms.mode is Mode.NOISED else 1.0
    one = GaussianStatistic(terms.noise_multiplier * sensitivity, sensitivity, RELATION)
    return one if releases == 1 else Composed((one,), releases)


def terms_noise_multiplier(terms: Terms) -> float:
    """Noise for one unit of sensitivity; 0 where labels are flipped instead."""
    if terms.mode.flips:
        return 0.0
    if terms.noise is NoiseLaw.LAPLACE:
        return rounded_up(terms.releases_per_record / terms.epsilon)
    return gaussian_multiplier(terms.epsilon, terms.delta, terms.releases_per_record)


@lru_cache(maxsize=256)
def gaussian_multiplier(epsilon: Fraction, delta: Fraction, releases: int) -> float:
    """The least noise multiplier at which `releases` Gaussian sums keep the promise; rounded up, and cached.

    Guarantee:  (epsilon, delta)-DP for `releases` sums together, chosen adaptively.
    Neighbours: replace label, for one record, which moves each sum by at most its sensitivity in L2.
    Assumes:    every sum has fresh noise of multiplier times sensitivity.
    Source:     `privacy.calibration.least_noise`; closed form: Balle, Wang 2018 (arXiv 1805.06530), theorem 8.
    """
    return least_noise(
        lambda noise: Composed((GaussianStatistic(noise, 1.0, RELATION),), releases),
        epsilon=epsilon,
        delta=delta,
        relation=RELATION,
        start=max(math.sqrt(2 * releases * math.log(1 / float(delta))) / float(epsilon), 0.1),
    )


def posterior_of_positive(rate: expect.Number, epsilon: expect.Number) -> float:
    """How likely a label is truly positive once its flip came out positive, where `rate` of all labels are.

    >>> round(posterior_of_positive(0.01, 3), 2)
    0.17
    """
    share = expect.probability("rate", rate)
    odds = float(share / (1 - share)) * math.exp(min(float(expect.positive("epsilon", epsilon)), 700))
    return odds / (1 + odds) if math.isfinite(odds) else 1.0


def best_advantage(epsilon: expect.Number) -> float:
    """The most by which two equally likely labels can be told apart, beyond a coin: tanh(epsilon / 2).

    Guarantee:  no test on an epsilon-DP output has a true-positive rate above its false-positive rate by more.
    Neighbours: as of the output.
    Assumes:    pure epsilon.
    Source:     Kairouz, Oh, Viswanath 2015 (arXiv 1311.0776), theorem 2.1 at delta 0.
    """
    return math.tanh(float(expect.positive("epsilon", epsilon)) / 2)


def not_protected(terms: Terms) -> tuple[str, ...]:
    """What these terms leave open, beyond what any statement of this relation does; a line each."""
    gaps = [
        "which records the platform asks about, in which batches, and how many records there are",
        f"records in small batches by the smallest batch of {terms.smallest_batch}: it makes mistakes harder "
        "and guarantees nothing; the promise holds for a batch of one",
        _SEEN_BY_ROOM[terms.mode],
    ]
    if terms.join is Join.PSI:
        gaps.append("the platform's records from the room: it learns which of its own ids are among them")
    else:
        gaps.append("ids from whoever holds the token key: a token tells whether a guessed id is right")
    return tuple(gaps)


_SEEN_IN_SUMS = (
    "the platform's features from the room: it sees the logit and derivatives of every record sent, from which "
    "features and parts of the model follow; where embeddings are tuned, also which records of a batch share a "
    "value, by numbers that are drawn afresh for each batch"
)
_SEEN_BY_ROOM = {
    Mode.STATISTIC: "the platform's features from the room: it sees the cells and numbers of every record sent",
    Mode.RELEASE: "the platform's records from the room: it sees the tokens of those that are asked for",
    Mode.AGGREGATE: _SEEN_IN_SUMS,
    Mode.NOISED: _SEEN_IN_SUMS,
}
