"""Privacy against use over epsilon: training by labels and features, training by labels alone, choice, and
statistics. Four charts, from the tables of five studies."""

from __future__ import annotations

from typing import Any

from tacit.privacy.units import UnitKind
from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies.choice import frontier
from tacit_lab.studies.contexts.bootstrap import read_figure
from tacit_lab.studies.gather import private_rates
from tacit_lab.studies.gather.setting import OurNoise, PaperNoise
from tacit_lab.studies.label_dp import loss_over_epsilon as label_dp
from tacit_lab.studies.label_dp import methods
from tacit_lab.studies.label_dp.setting import PERCENT, LabelDpMeasurements
from tacit_lab.studies.page.charts import Chart, epsilons_of, plain_number, read_recorded
from tacit_lab.studies.plotting import Mechanism
from tacit_lab.studies.runs import Runs, mean
from tacit_lab.studies.semi_sensitive import loss_over_epsilon as semi_sensitive
from tacit_lab.studies.semi_sensitive.recipe import DP_SGD, HYBRID, NON_PRIVATE, RR, TRUNCATED

PUBLISHED_EPSILON = 4  # of L1 and L2


def frontier_data() -> dict[str, Any]:
    return {"charts": [_training(), _labels(), _choice(), _statistics()]}


def _training() -> dict[str, Any]:
    kept = read_recorded(semi_sensitive.DISPLAY_NAME)
    runs, world = Runs(kept.rows), semi_sensitive.RARE
    epsilons = epsilons_of(row for row in kept.rows if row["world"] == world)
    chart = Chart(
        "training", "Training on what people did", "AUC loss above that of the model without privacy, %",
        "A model of clicks whose labels and sensitive features are both kept private. Lower is better.",
        [kept], epsilons,
    )  # fmt: skip
    for method in (RR, DP_SGD, HYBRID):
        losses = [
            (
                epsilon,
                mean(semi_sensitive.increase(runs, "auc_loss", world=world, method=method, epsilon=epsilon)),
            )
            for epsilon in epsilons
        ]
        chart.add_line(method, semi_sensitive.MECHANISMS[method], losses)
    for method in (TRUNCATED, NON_PRIVATE):
        found = mean(semi_sensitive.increase(runs, "auc_loss", world=world, method=method))
        chart.add_level(method, found.value)
    for each in semi_sensitive.DISPLAY_PUBLISHED:
        chart.add_published(each.method, semi_sensitive.MECHANISMS[each.method], each.epsilon, each.percent)
    return chart.as_json()


def _labels() -> dict[str, Any]:
    flipped, beside = read_recorded(label_dp.UNITS_NAME), read_recorded(methods.NAME)
    measured = LabelDpMeasurements.read(flipped.rows)
    statistic = [row for row in beside.rows if row["method"] == "noisy statistic"]
    epsilons = epsilons_of(flipped.rows)
    chart = Chart(
        "labels", "Training on outcomes", "AUC loss above that of the model without privacy, %",
        "A model of purchases where only the outcome is private, once for each click and once for all that "
        "somebody did. Lower is better.",
        [flipped, beside], sorted({*epsilons, *epsilons_of(statistic)}),
    )  # fmt: skip
    by_unit = {UnitKind.IMPRESSION: "RR, per click", UnitKind.USER: "RR, per person"}
    for variant, (unit, name) in enumerate(by_unit.items()):
        best = [
            measured.best(arm for arm in measured.arms if (arm.unit, arm.epsilon) == (unit, epsilon))
            for epsilon in epsilons
        ]
        points = [(plain_number(arm.epsilon), mean(measured.percent(arm))) for arm in best]
        chart.add_line(name, Mechanism.RR, points, variant)
    seeds = Runs(statistic)
    chart.add_line(
        "noisy sums, per person", Mechanism.OURS,
        [(each, mean(seeds.figures(PERCENT, epsilon=each))) for each in epsilons_of(statistic)],
    )  # fmt: skip
    for name, claim in zip(by_unit.values(), label_dp.PUBLISHED, strict=True):
        chart.add_published(name, Mechanism.RR, PUBLISHED_EPSILON, label_dp.PUBLISHED[claim])
    return chart.as_json()


CHOICES = {
    frontier.BOUND: "most that is possible",
    frontier.CUT: "RR, cut in hindsight",
    frontier.DEFAULT: "tacit",
    frontier.LEARNT: "tacit, learnt from reports",
    frontier.RR: "RR",
    frontier.CLIPPED: "noisy maximum",
}
VARIANTS = (frontier.CUT, frontier.LEARNT)  # of a mechanism that has a line already


def _choice() -> dict[str, Any]:
    kept = read_recorded(frontier.NAME)
    setting = list(frontier.SETTINGS)[-1]
    rows: list[dict[str, Any]] = [row for row in kept.rows if row["setting"] == setting and not row["over"]]
    epsilons = kept.settings["parameters"]["epsilons"]
    chart = Chart(
        "choice", "Choosing an ad", "share of the gain that choosing freely would have",
        "What a device's private choice adds over showing everybody the same, in requests like those of a "
        "display market. Higher is better; 1 is a choice without privacy.",
        [kept], epsilons, least=kept.settings["parameters"]["not_drawn_below"],
    )  # fmt: skip
    for mechanism, name in CHOICES.items():
        points = [
            (row["epsilon"], MeasuredValue(row["share_of_gain"], row["low"], row["high"], 0.0))
            for row in rows
            if row["mechanism"] == mechanism
        ]
        chart.add_line(name, frontier.LOOKS[mechanism], points, variant=int(mechanism in VARIANTS))
    return chart.as_json()


def _statistics() -> dict[str, Any]:
    kept = read_recorded(private_rates.EPSILON_NAME)
    precision = private_rates.PRECISE

    def coverage(arm: str) -> MeasuredValue:
        return read_figure(kept, statistics=arm, requests="all", precision=precision)

    names = {
        "noise as published": (private_rates.PAPER_HALF, private_rates.PAPER_1),
        "tacit, delta .01": (private_rates.OURS_HALF, private_rates.OURS_1),
        "tacit, smaller delta": (private_rates.OURS_SMALL,),
    }
    lines = {name: [(_arm_epsilon(arm), coverage(arm)) for arm in arms] for name, arms in names.items()}
    chart = Chart(
        "statistics", "Counting what works", f"share of visits with an ad, at precision {precision:g}",
        f"Visits by place, counted on devices. An ad is shown only where {precision:.0%} of ads would be of "
        "the place that is visited: the better the counts, the more often one is. Higher is better.",
        [kept], sorted({epsilon for points in lines.values() for epsilon, _ in points}),
    )  # fmt: skip
    for variant, (name, points) in enumerate(lines.items()):
        chart.add_line(name, private_rates.LOOKS[names[name][0]], points, variant=int(variant == 2))
    chart.add_level("exact counts", coverage(private_rates.EXACT).value)
    printed = kept.settings["parameters"]["published"]
    chart.add_published("exact counts", Mechanism.NON_PRIVATE, None, printed["exact"])
    chart.add_published(
        "noise as published", Mechanism.COUNT, _arm_epsilon(private_rates.PAPER_1), printed["paper"]
    )
    return chart.as_json()


def _arm_epsilon(arm: str) -> float:
    noise = private_rates.EPSILON_ARMS[arm].noise
    assert isinstance(noise, PaperNoise | OurNoise)
    return plain_number(noise.epsilon)
