"""The loss over epsilon, for each unit and cap: findings L1, L2 and L3."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tacit.privacy.units import Split, UnitKind
from tacit.studies.label_dp import setting
from tacit.studies.label_dp.arms import Arm, Measurements
from tacit.studies.label_dp.report import line, outcome, published
from tacit.studies.plotting import Panel
from tacit.studies.runs import mean
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import FEWEST_SEEDS, below, every

NAME = "label-dp-epsilon"
TITLES = {
    (UnitKind.USER, Split.BY_CAP): "User, epsilon/K",
    (UnitKind.USER, Split.BY_COUNT): "User, epsilon/K_i",
    (UnitKind.USER_PUBLISHER, Split.BY_COUNT): "User x publisher, epsilon/K_i",
    (UnitKind.USER_ADVERTISER, Split.BY_COUNT): "User x advertiser, epsilon/K_i",
}
PUBLISHED = {UnitKind.IMPRESSION: 0.79, UnitKind.USER: 8.51}  # at epsilon 4, percent; users with the best cap
FACTOR = 2.0


def arms(unit: UnitKind, split: Split, caps: Sequence[int], epsilons: Sequence[float]) -> list[Arm]:
    return [Arm(unit, epsilon, cap, split) for cap in caps for epsilon in epsilons]


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    caps, epsilons = setting.CAPS[asked.scale], setting.EPSILONS[asked.scale]
    titles = {
        key: title
        for key, title in TITLES.items()
        if asked.data is None or key[0] is not UnitKind.USER_PUBLISHER  # the published log has no publisher
    }
    impression = [Arm(epsilon=epsilon) for epsilon in epsilons]
    # Hardly anybody has more than four examples of one publisher or advertiser.
    caps_of = {key: caps if key[0] is UnitKind.USER else caps[:3] for key in titles}
    by_panel = {key: [arms(*key, [cap], epsilons) for cap in caps_of[key]] for key in titles}
    wanted = [*impression, *(arm for panel in by_panel.values() for each in panel for arm in each)]
    measured = Measurements.of(asked, wanted)
    panels = []
    for key, title in titles.items():
        series = [
            line(f"K = {cap}", measured, each) for cap, each in zip(caps_of[key], by_panel[key], strict=True)
        ]
        series.append(line("impression", measured, impression))
        if key[0] is UnitKind.USER:
            series.append(published(4, *PUBLISHED.values()))
        panels.append(Panel(title, series))
    best = [
        measured.best([arm for each in by_panel[key] for arm in each if arm.epsilon == epsilon])
        for key in titles
        for epsilon in epsilons
    ]
    user = {split: by_panel[UnitKind.USER, split] for split in (Split.BY_CAP, Split.BY_COUNT)}
    return outcome(
        NAME,
        asked,
        measured,
        began=began,
        unit="unit as named",
        panels=panels,
        findings=findings(measured, user, epsilons),
        rows=[*impression, *best],
        share_y=False,
    )


def findings(
    measured: Measurements, user: dict[Split, list[list[Arm]]], epsilons: Sequence[float]
) -> list[Finding]:
    at_4 = [arm for caps in user.values() for each in caps for arm in each if arm.epsilon == 4]
    best = measured.best(at_4)
    chosen = {
        split: [
            measured.best(arm for each in caps for arm in each if arm.epsilon == epsilon).cap
            for epsilon in epsilons
        ]
        for split, caps in user.items()
    }
    listed = "; ".join(f"{split}: {', '.join(map(str, caps))}" for split, caps in chosen.items())
    grows = every(_grows(measured, split, caps, epsilons) for split, caps in chosen.items())
    return [
        _figure("L1", "impression unit at epsilon 4 loses .79%", measured, Arm(epsilon=4), UnitKind.IMPRESSION),
        _figure("L2", "user unit at epsilon 4, best cap, loses 8.51%", measured, best, UnitKind.USER),
        Finding(
            "L3",
            "the best cap grows with epsilon",
            "for both splits the best cap, by the mean over seeds, never falls as epsilon rises, and rises; "
            "undecided where it falls or stays by no more than the intervals of paired seeds allow",
            f"best K at epsilon {', '.join(f'{epsilon:g}' for epsilon in epsilons)}: {listed}",
            grows if len(measured.seeds) >= FEWEST_SEEDS else None,
        ),
    ]


def _grows(measured: Measurements, split: Split, caps: Sequence[int], epsilons: Sequence[float]) -> bool | None:
    """Whether these best caps, one for each epsilon, grow; None where they do not but might."""
    if list(caps) == sorted(caps) and caps[-1] > caps[0]:
        return True

    def better(epsilon: float, one: int, other: int) -> bool:
        """Whether one cap beats the other there beyond chance."""
        losses = [measured.percent(Arm(UnitKind.USER, epsilon, cap, split)) for cap in (one, other)]
        return below(losses[0], losses[1]) is True

    pairs = [(low, high) for high in range(len(caps)) for low in range(high) if caps[low] > caps[high]]
    falls = any(
        better(epsilons[low], caps[low], caps[high]) and better(epsilons[high], caps[high], caps[low])
        for low, high in pairs
    )
    larger = {arm.cap for arm in measured.arms if arm.unit is UnitKind.USER and arm.cap > caps[-1]}
    stays = caps[-1] <= caps[0] and all(better(epsilons[-1], caps[-1], cap) for cap in larger)
    return False if falls or stays else None


def _figure(id: str, words: str, measured: Measurements, arm: Arm, unit: UnitKind) -> Finding:
    loss, bar = mean(measured.percent(arm)), PUBLISHED[unit]
    detail = "" if unit is UnitKind.IMPRESSION else f" with K = {arm.cap}, {arm.split}"
    return Finding(
        id,
        words,
        f"the mean over seeds is within a factor of {FACTOR:g} of {bar}%",
        f"{loss.value:.2f}% [{loss.low:.2f}, {loss.high:.2f}]{detail}",
        bar / FACTOR <= loss.value <= bar * FACTOR if len(measured.seeds) >= FEWEST_SEEDS else None,
    )


STUDY = Study(
    NAME, "Loss over epsilon by unit and cap", setting.PAPER, "Criteo Attribution, evaluation results",
    ("L1", "L2", "L3"), {Scale.TOY: 0.2, Scale.SMALL: 25, Scale.FULL: 150}, setting.SEEDS, run,
)  # fmt: skip
