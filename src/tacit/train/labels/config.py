"""Reads from [labels] of a training how labels are reported: flipped, in bins, or by the ends of a range.

mechanism = "bins"             # a count or an amount, rounded to public bins, and the bin flipped
values = [0, 5, 20, 80]
edges = [1, 10, 50]            # or prior = [...], how likely each value is: then the best bins are found

mechanism = "ends"             # or rounded at random to one end of its range, and the end flipped
low = 0
high = 80
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tacit import expect
from tacit.config import ConfigTable, error_prefix
from tacit.errors import BadInput
from tacit.train.labels.mechanism import Bins, Correction, LabelMechanism, LabelPrior
from tacit.train.labels.randomizers import FlipLabels, FlipTowardsPrior, LaplaceWithPrior
from tacit.train.labels.values import FlipEnds, best_bins
from tacit.train.targets import Head

RESPONSE, PRIOR, LAPLACE, BINS, ENDS = "randomized-response", "prior", "laplace", "bins", "ends"
VALUE_KEYS = {
    **dict.fromkeys(("values", "edges", "prior"), (BINS,)),
    **dict.fromkeys(("low", "high"), (ENDS,)),
    "head": (BINS, ENDS),
}
MOST_VALUE = 1e30  # models are of single precision
CORRECTIONS = {
    RESPONSE: ("forward", "unbiased", "raw"),
    PRIOR: ("posterior", "raw"),
    LAPLACE: ("posterior",),
    BINS: ("unbiased", "raw"),
    ENDS: ("unbiased",),
}


@dataclass(frozen=True)
class Reporting:
    """How labels are reported; `spelled` is all that decides the law of a report, apart from epsilon."""

    mechanism: LabelMechanism
    spelled: str
    words: str | None = None  # for people, where it is not one flip of a label of 0 or 1


def read_reporting(table: ConfigTable, epsilon: Fraction | None, *, label_dp: bool) -> Reporting:
    """`epsilon` is that of one label, which the best bins depend on; None where labels are not reported at all.
    Values are for label DP alone."""
    way = table.one_of("mechanism", tuple(CORRECTIONS), RESPONSE)
    for key, readers in VALUE_KEYS.items():
        if key in table and way not in readers:
            raise BadInput(f"labels.{key}: expected only with mechanism {' or '.join(readers)}, got {way}")
    if way in (BINS, ENDS) and not label_dp:
        raise BadInput(
            f"labels.mechanism: expected one for labels of 0 or 1, as DP-SGD takes them, got {way}: it fits "
            "method label-dp"
        )
    rate = _prior_rate(table, way)
    head = Head(table.one_of("head", (Head.SQUARED, Head.POISSON), Head.SQUARED))
    correction = Correction(table.one_of("correction", CORRECTIONS[way], CORRECTIONS[way][0]))
    if way == BINS:
        bins = _bins(table, epsilon or Fraction(1), correction, head)
        words = (
            f"each label is put into one of {len(bins.values)} bins, which begin at {_listed(bins.edges)} and "
            f"stand for {_listed(bins.values)}; its bin is reported by randomized response"
        )
        return Reporting(FlipLabels(bins, correction), f"{RESPONSE} in bins at {bins.edges}", words)
    if way == ENDS:
        low, high = (_number(table, key, f"the {key} end of the range") for key in ("low", "high"))
        with error_prefix(table.path):
            ends = FlipEnds(low, high, head)
        words = (
            f"each label is rounded at random to {ends.low:g} or {ends.high:g}, the ends of its range, and the "
            "end is reported by randomized response"
        )
        return Reporting(ends, f"{way}, {ends.low!r} and {ends.high!r}", words)
    if rate is None:
        return Reporting(FlipLabels(correction=correction), way)
    prior = LabelPrior.of_rate(rate)
    if way == LAPLACE:  # the prior only reads the report, so the draws do not depend on it
        return Reporting(LaplaceWithPrior(prior), way)
    spelled = f"{way}, {float(prior.table[0, 1])!r}"
    return Reporting(FlipTowardsPrior(prior, correction=correction), spelled)


def _prior_rate(table: ConfigTable, way: str) -> float | None:
    if way not in (PRIOR, LAPLACE):
        if "prior_rate" in table:
            raise BadInput(f"labels.prior_rate: expected only with mechanism {PRIOR} or {LAPLACE}, got {way}")
        return None
    table.needed("prior_rate", f"a public guess of how many labels are 1, for mechanism {way}")
    return float(expect.probability("labels.prior_rate", table.number("prior_rate") or 0))


def _bins(table: ConfigTable, epsilon: Fraction, correction: Correction, head: Head) -> Bins:
    values = _numbers(table, "values", "what each bin stands for, or with a prior all that a label may be")
    if ("edges" in table) == ("prior" in table):
        got = "both" if "edges" in table else "neither"
        raise BadInput(
            f"labels.edges: expected where bins begin, or labels.prior to find the best bins, got {got}"
        )
    given = _numbers(table, "edges" if "edges" in table else "prior", "where bins begin")
    with error_prefix(table.path):
        if "edges" in table:
            return Bins(tuple(given), tuple(values), head)
        return best_bins(values, given, epsilon, correction=correction, head=head)


def _listed(numbers: Sequence[float]) -> str:
    said = [f"{each:g}" for each in numbers]
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"


def _number(table: ConfigTable, key: str, why: str) -> float:
    return _float(table.name(key), table.needed(key, why))


def _numbers(table: ConfigTable, key: str, why: str) -> list[float]:
    said = table.needed(key, why)
    if not isinstance(said, list) or not said:
        raise BadInput(f"{table.name(key)}: expected a list of numbers, got {said!r}")
    return [_float(f"{table.name(key)}[{place}]", each) for place, each in enumerate(said)]


def _float(name: str, said: expect.Number) -> float:
    exact = expect.exact(name, said)
    if abs(exact) > MOST_VALUE:
        raise BadInput(f"expected {name} within {MOST_VALUE:g}, got a number beyond it")
    return float(exact)
