"""Whether sums over large batches reveal labels: every attack on the published protocol and on our room; C7.

The figure has the attack that reads one record a parameter, over epsilon: what it reaches in our room, what the
agreement allows, and what the published protocol gives away.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from tacit.studies import report
from tacit.studies.cleanroom.setting import PAPER
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.studies.report import Axes
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study

if TYPE_CHECKING:
    from tacit.cleanroom.attacks.report import Shown
    from tacit.privacy.randomness import Source

NAME = "cleanroom-attacks"
EPSILON = Fraction(3)
EPSILONS = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0)
BATCH = 384  # the fewest rows of a batch that counts as large here
PLAIN = Mechanism.NON_PRIVATE
READER = "a parameter for each record"
SIZES = {Scale.TOY: 0.1, Scale.SMALL: 1.0, Scale.FULL: 4.0}
COLUMNS = ("attack", "works against", "reached there", "right in our room", "advantage", "at least", "allowed")


def run(asked: Asked) -> Outcome:
    from tacit.cleanroom.attacks.suite import attacks

    began = time.monotonic()
    asked.refuse_data("labels are fair coins, so that every guess can be judged")
    every = attacks(time.perf_counter, scale=SIZES[asked.scale])
    found = []
    for done, attack in enumerate(every):
        asked.track(f"{NAME}: {attack.name}", done, len(every))
        found.append(_shown(attack.name, EPSILON, SIZES[asked.scale]))
    reader = [_shown(READER, Fraction(epsilon), SIZES[asked.scale]) for epsilon in EPSILONS]
    return report.outcome(
        NAME,
        asked,
        unit="record",
        relation="replace label",
        began=began,
        data="labels that are fair coins, or sparse",
        parameters={"epsilon": float(EPSILON), "attack of the figure": READER},
        table=[_record(each) for each in found],
        columns=COLUMNS,
        rows=[_row(each) for each in found],
        findings=[_published(found), _ours(found)],
        panels=[
            Panel(
                "Labels told apart beyond a coin",
                [
                    _line(
                        "published protocol", [2 * each.success - 1 for each in reader], Mechanism.NON_PRIVATE
                    ),
                    _line("our room, attacked", [each.outcome.advantage for each in reader], Mechanism.OURS),
                    _line("our room, allowed", [each.allowed for each in reader], Mechanism.RR),
                ],
            )
        ],
        axes=Axes("epsilon", "", ticks=list(EPSILONS)),
    )


def _shown(name: str, epsilon: Fraction, size: float) -> Shown:
    from tacit.cleanroom.attacks.defended import Protection
    from tacit.cleanroom.attacks.report import shown
    from tacit.cleanroom.attacks.suite import attacks
    from tacit.entropy import Simulation

    def source(part: str) -> Source:
        return Simulation(f"{NAME} {float(epsilon)} {part}")

    attack = next(each for each in attacks(time.perf_counter, scale=size) if each.name == name)
    return shown(attack, Protection(epsilon=epsilon), source)


def _line(name: str, heights: Sequence[float], mechanism: Mechanism) -> Series:
    return Series(name, EPSILONS, heights, mechanism=mechanism)


def _record(each: Shown) -> dict[str, object]:
    return {
        "attack": each.attack.name,
        "works_against": each.attack.unsafe,
        "measured": each.attack.measured,
        "reached": each.success,
        "bar": each.attack.bar,
        "right": each.outcome.right,
        "said": each.outcome.said,
        "advantage": each.outcome.advantage,
        "at_least": each.outcome.at_least(),
        "allowed": each.allowed,
    }


def _row(each: Shown) -> tuple[str, ...]:
    right = f"{each.outcome.right} of {each.outcome.said}" if each.outcome.said else "nothing to go by"
    figures = (each.outcome.advantage, max(0.0, each.outcome.at_least()), each.allowed)
    reached = f"{each.success:.3f} {each.attack.measured}"
    return (each.attack.name, each.attack.unsafe, reached, right, *(f"{figure:.3f}" for figure in figures))


def _published(found: Sequence[Shown]) -> Finding:
    from tacit.cleanroom.attacks.suite import PUBLISHED

    worked = [each for each in found if each.attack.unsafe == PUBLISHED and each.works]
    asked = sum(each.attack.unsafe == PUBLISHED for each in found)
    return Finding(
        "C7",
        "aggregates of large batches do not reveal labels",
        f"no attack on noiseless sums over batches of at least {BATCH} records reaches its bar",
        f"{len(worked)} of {asked} attacks reach theirs: {', '.join(each.attack.name for each in worked)}",
        not worked,
    )


def _ours(found: Sequence[Shown]) -> Finding:
    broken = [each.attack.name for each in found if not each.withstood]
    best = max(found, key=lambda each: each.outcome.at_least())
    return Finding(
        "T24",
        "against labels that were flipped once, no attack does better than the agreement allows",
        "for every attack the lower Clopper-Pearson bound of its advantage is at most tanh(epsilon / 2)",
        f"best {best.outcome.advantage:.3f} by {best.attack.name}, allowed {best.allowed:.3f}"
        + (f"; broken by {', '.join(broken)}" if broken else ""),
        not broken,
    )


STUDY = Study(
    NAME, "Whether sums over large batches reveal labels", PAPER, "section 2.1", ("C7", "T24"),
    {Scale.TOY: 0.2, Scale.SMALL: 1.0, Scale.FULL: 5.0}, {Scale.TOY: 1, Scale.SMALL: 1, Scale.FULL: 1}, run,
)  # fmt: skip
