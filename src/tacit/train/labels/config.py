"""Reads from [labels] of a training how labels are reported: in bins, by the ends of a range, or several times.

mechanism = "bins"             # a count or an amount, rounded to public bins, and the bin flipped
values = [0, 5, 20, 80]
edges = [1, 10, 50]            # or prior = [...], how likely each value is: then the best bins are found

mechanism = "ends"             # or rounded at random to one end of its range, and the end flipped
low = 0
high = 80

report_days = [1, 30]          # labels of 0 or 1, flipped as they stood one day after the row, and thirty
shares = ["1/4", "3/4"]        # of epsilon
arrived = [0.6, 1]             # of the conversions within 30 days, the share that is there by each day
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from tacit import expect
from tacit.config import ConfigTable, error_prefix
from tacit.errors import BadInput
from tacit.train.labels.mechanism import Bins, Correction, LabelMechanism, LabelPrior
from tacit.train.labels.randomizers import FlipLabels, FlipTowardsPrior, LaplaceWithPrior
from tacit.train.labels.values import FlipEnds, best_bins
from tacit.train.labels.windows import ReportingWindows
from tacit.train.targets import Head

RESPONSE, PRIOR, LAPLACE, BINS, ENDS = "randomized-response", "prior", "laplace", "bins", "ends"
STATISTIC = "statistic"  # of all labels: none is reported
VALUE_KEYS = {
    **dict.fromkeys(("values", "edges", "prior"), (BINS,)),
    **dict.fromkeys(("low", "high"), (ENDS,)),
    "head": (BINS, ENDS),
    "report_days": (RESPONSE,),
}
REPORT_KEYS = ("shares", "arrived", "as_of")
DAY = 86_400
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
    windows: ReportingWindows | None = None
    words: str | None = None  # for people, where it is not one flip of a label of 0 or 1


def read_reporting(
    table: ConfigTable, epsilon: Fraction | None, *, label_dp: bool, tells: bool = False
) -> Reporting:
    """`epsilon` is that of one label, which the best bins depend on; None where labels are not reported at all.
    Values are for label DP alone."""
    if tells:  # a statistic of them: none is reported
        return Reporting(FlipLabels(), RESPONSE)
    way = table.one_of("mechanism", tuple(CORRECTIONS), RESPONSE)
    for key, readers in VALUE_KEYS.items():
        if key in table and way not in readers:
            raise BadInput(f"labels.{key}: expected only with mechanism {' or '.join(readers)}, got {way}")
    for key in REPORT_KEYS:
        if key in table and "report_days" not in table:
            raise BadInput(f"labels.{key}: expected only with report_days, got it alone")
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
            f"each label is put into one of {len(bins.values)} bins, which begin at {_join(bins.edges)} and "
            f"stand for {_join(bins.values)}; its bin is reported by randomized response"
        )
        return Reporting(FlipLabels(bins, correction), f"{RESPONSE} in bins at {bins.edges}", words=words)
    if way == ENDS:
        low, high = (_number(table, key, f"the {key} end of the range") for key in ("low", "high"))
        with error_prefix(table.path):
            ends = FlipEnds(low, high, head)
        words = (
            f"each label is rounded at random to {ends.low:g} or {ends.high:g}, the ends of its range, and the "
            "end is reported by randomized response"
        )
        return Reporting(ends, f"{way}, {ends.low!r} and {ends.high!r}", words=words)
    if way == RESPONSE and "report_days" in table:
        return _windows(table, correction, rate)
    if way == RESPONSE:
        return Reporting(FlipLabels(correction=correction), way)
    assert rate is not None
    prior = LabelPrior.of_rate(rate)
    if way == LAPLACE:  # the prior only reads the report, so the draws do not depend on it
        return Reporting(LaplaceWithPrior(prior), way)
    spelled = f"{way}, {float(prior.table[0, 1])!r}"
    return Reporting(FlipTowardsPrior(prior, correction=correction), spelled)


def _windows(table: ConfigTable, correction: Correction, rate: float | None) -> Reporting:
    days = _numbers(table, "report_days", "how many days after its row a label is reported")
    shares = _exact_numbers(table, "shares", "the share of epsilon that each report may spend")
    arrived = _exact_numbers(table, "arrived", "the share of conversions that are there by each report")
    delays = [DAY * each for each in _exact_numbers(table, "report_days", "")]
    if any(each.denominator != 1 for each in delays):
        raise BadInput(f"labels.report_days: expected days of whole seconds, got {_join(days)}")
    with error_prefix(table.path):
        windows = ReportingWindows(tuple(map(int, delays)), tuple(shares), tuple(arrived))
        windows = windows if rate is None else replace(windows, base_rate=expect.exact("prior_rate", rate))
    parts = _join([str(each) for each in windows.shares])
    words = (
        f"each label is reported {len(days)} times by randomized response, as it stood {_join(days)} days "
        f"after its row, with {parts} of epsilon"
    )
    spelled = f"{RESPONSE} after {_join(windows.delays)} seconds with {parts} of epsilon"
    return Reporting(FlipLabels(correction=correction), spelled, windows, words)


def _prior_rate(table: ConfigTable, way: str) -> float | None:
    if way not in (PRIOR, LAPLACE) and "prior_rate" not in table:
        return None
    if way not in (PRIOR, LAPLACE) and "report_days" not in table:
        raise BadInput(f"labels.prior_rate: expected only with mechanism {PRIOR} or {LAPLACE}, got {way}")
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


def _join(numbers: Sequence[float | str]) -> str:
    said = [f"{each:g}" if isinstance(each, float) else str(each) for each in numbers]
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"


def _number(table: ConfigTable, key: str, why: str) -> float:
    return _within(table.name(key), expect.exact(table.name(key), table.needed(key, why)))


def _numbers(table: ConfigTable, key: str, why: str) -> list[float]:
    return [_within(f"labels.{key}", each) for each in _exact_numbers(table, key, why)]


def _exact_numbers(table: ConfigTable, key: str, why: str) -> list[Fraction]:
    said = table.needed(key, why)
    if not isinstance(said, list) or not said:
        raise BadInput(f"{table.name(key)}: expected a list of numbers, got {said!r}")
    return [expect.exact(f"{table.name(key)}[{place}]", each) for place, each in enumerate(said)]


def _within(name: str, exact: Fraction) -> float:
    if abs(exact) > MOST_VALUE:
        raise BadInput(f"expected {name} within {MOST_VALUE:g}, got a number beyond it")
    return float(exact)
