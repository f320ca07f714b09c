"""Whether sums over large batches reveal labels: every attack on the published protocol and on our room;
C7.

The figure has the attack that reads one record per parameter, over epsilon: what it reaches in our room,
what the agreement allows, and what the published protocol gives away.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from tacit_lab.studies import report
from tacit_lab.studies.cleanroom.setting import PAPER
from tacit_lab.studies.plotting import Mechanism, Panel, Series
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import Cell, ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import every

if TYPE_CHECKING:
    from tacit.cleanroom.attacks.suite import AttackResult
    from tacit.privacy.randomness import Source

NAME = "cleanroom-attacks"
C7 = Claim("C7", "section 2.1", "sums over large batches do not reveal labels", "claim")
T24 = Claim(
    "T24", "tanh(epsilon / 2)", "against labels that were flipped once, no attack beats what the terms allow"
)
EPSILON = Fraction(3)
EPSILONS = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0)
LARGE = 384  # the fewest rows of a batch that counts as large here
PLAIN = Mechanism.NON_PRIVATE
READER = "a parameter for each record"
SIZES = {StudyScale.TOY: 0.1, StudyScale.SMALL: 1.0, StudyScale.FULL: 4.0}
COLUMNS = ("attack", "works against", "reached there", "right in our room", "advantage", "at least", "allowed")


def run(asked: StudyRequest) -> StudyOutcome:
    from tacit.cleanroom.attacks.suite import attacks

    began = time.monotonic()
    asked.refuse_data("labels are fair coins, so that every guess can be judged")
    suite = attacks(time.perf_counter, scale=SIZES[asked.scale])
    found = []
    for done, attack in enumerate(suite):
        asked.progress(f"{NAME}: {attack.name}", done, len(suite))
        found.append(_attack_result(attack.name, EPSILON, SIZES[asked.scale]))
    reader = [_attack_result(READER, Fraction(epsilon), SIZES[asked.scale]) for epsilon in EPSILONS]
    over_epsilon = [
        _record(each, epsilon) for each, epsilon in zip(reader, EPSILONS, strict=True) if epsilon != EPSILON
    ]
    return report.write_outcome(
        NAME,
        asked,
        unit="record",
        relation="replace label",
        began=began,
        seeds=report.ONE_SEED,
        data="labels that are fair coins, or sparse",
        parameters={"epsilon": float(EPSILON), "attack of the figure": READER},
        table=[*(_record(each, float(EPSILON)) for each in found), *over_epsilon],
        columns=COLUMNS,
        rows=[_row(each) for each in found],
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


def _attack_result(name: str, epsilon: Fraction, size: float) -> AttackResult:
    from tacit.cleanroom.attacks.defended_room import Protection
    from tacit.cleanroom.attacks.suite import attacks, run_attack
    from tacit.entropy import Simulation

    def source(part: str) -> Source:
        return Simulation(f"{NAME} {float(epsilon)} {part}")

    attack = next(each for each in attacks(time.perf_counter, scale=size) if each.name == name)
    return run_attack(attack, Protection(epsilon=epsilon), source)


def _line(name: str, heights: Sequence[float], mechanism: Mechanism) -> Series:
    return Series(name, EPSILONS, heights, mechanism=mechanism)


def _record(each: AttackResult, epsilon: float) -> dict[str, object]:
    return {
        "attack": each.attack.name,
        "epsilon": epsilon,
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


def _row(each: AttackResult) -> tuple[str, ...]:
    right = f"{each.outcome.right} of {each.outcome.said}" if each.outcome.said else "nothing to go by"
    figures = (each.outcome.advantage, max(0.0, each.outcome.at_least()), each.allowed)
    reached = f"{each.success:.3f} {each.attack.measured}"
    return (each.attack.name, each.attack.unsafe, reached, right, *(f"{figure:.3f}" for figure in figures))


def judge(kept: ResultFiles) -> Sequence[Finding]:
    """By all attacks at the one epsilon; the reader's at others are for the figure."""
    rows = [row for row in kept.rows if row["epsilon"] == float(EPSILON)]
    return [_judge_published(rows, SIZES[StudyScale(kept.scale)]), _ours(rows)]


Row = Mapping[str, Cell]


def _figure(row: Row, name: str) -> float:
    found = row[name]
    assert isinstance(found, int | float)
    return float(found)


def batch_sizes(size: float) -> dict[str, int]:
    """How many rows the sums have that each attack on the published protocol asks for, at this size of worlds.

    An infinite derivative is tried on 64 records, which nobody's fill up.
    """
    from tacit.cleanroom.attacks import probes, published_attacks
    from tacit.cleanroom.attacks.probes import PADDED

    def whole(records: int, most: int | None = None) -> int:
        rows = max(PADDED, round(records * size))
        return rows if most is None else min(rows, most)

    return {
        "solve 576 equations for 384 labels": published_attacks.LINEAR_SOLVE_BATCH,
        "solve 96 equations for 384 labels": published_attacks.FEWER_EQUATIONS_BATCH,
        READER: whole(16_384, probes.PROBE_BATCH),
        "the surest hundredth of readings": whole(16_384, probes.PROBE_BATCH),
        "a metric's cell for each record": whole(2_048, probes.PROBE_BATCH),
        "twenty labels in one number": whole(1_000),
        "replay with one row zeroed": whole(20_000),
        "gradient matching": published_attacks.MATCHING_BATCH,
        "a value that one record alone has": published_attacks.VALUE_BATCH,
        "an infinite derivative": PADDED,
        "forty labels in one loss": published_attacks.LOSS_BITS,
    }


def _judge_published(rows: Sequence[Row], size: float) -> Finding:
    from tacit.cleanroom.attacks.suite import PUBLISHED

    many = batch_sizes(size)
    asked = [row for row in rows if row["works_against"] == PUBLISHED]
    large = [row for row in asked if many[str(row["attack"])] >= LARGE]
    small = [row for row in asked if many[str(row["attack"])] < LARGE]
    holds = every(not _works(row) for row in large)
    return Finding(
        C7,
        f"no attack on noiseless sums over batches of at least {LARGE} records reaches its bar",
        "; ".join(_count_working(each, many) for each in (large, small) if each) or "no attack was made",
        holds,
        why="no attack of ours does" if holds else "",
    )


def _works(row: Row) -> bool:
    return _figure(row, "reached") >= _figure(row, "bar")


def _count_working(rows: Sequence[Row], many: Mapping[str, int]) -> str:
    """How many of them work, on batches of which sizes."""
    sizes = sorted({many[str(row["attack"])] for row in rows})
    words = ", ".join(f"{each:,}" for each in sizes)
    return f"{sum(map(_works, rows))} of {len(rows)} attacks on batches of {words} reach theirs"


def _ours(rows: Sequence[Row]) -> Finding:
    rule = "for every attack the lower Clopper-Pearson bound of its advantage is at most tanh(epsilon / 2)"
    where = f"epsilon {float(EPSILON):g}"
    if not rows:
        return Finding(T24, rule, "no attack was made", None, where)
    broken = [str(row["attack"]) for row in rows if _figure(row, "at_least") > _figure(row, "allowed")]
    best = max(rows, key=lambda row: _figure(row, "at_least"))
    advantage, at_least, allowed = (_figure(best, name) for name in ("advantage", "at_least", "allowed"))
    return Finding(
        T24,
        rule,
        f"best {advantage:.3f}, surely {at_least:.3f}, allowed {allowed:.3f} ({best['attack']})"
        + (f"; broken by {', '.join(broken)}" if broken else ""),
        not broken,
        where,
        "a theorem: only a bug could fail it",
    )


STUDY = Study(
    NAME, "Whether sums over large batches reveal labels", PAPER, "section 2.1", (C7, T24),
    {StudyScale.TOY: 0.2, StudyScale.SMALL: 0.3, StudyScale.FULL: 5.0}, dict.fromkeys(StudyScale, 1),
    run, judge,
)  # fmt: skip
