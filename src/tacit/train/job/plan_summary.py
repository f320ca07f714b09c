"""What a planned training will do and promise, before it begins: a record, and the lines of `tacit train`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tacit.privacy.budget import format_rounded_up
from tacit.train.job.payment import Payment
from tacit.train.job.planned_training import (
    PlannedTraining,
    calibration_warning,
    delta_warning,
    few_warning,
)
from tacit.train.job.progress import phase_name
from tacit.train.labels.windows import RepeatedFlips
from tacit.train.plan import LabelPhase, Phase, Plan
from tacit.train.promise_words import NO_PROMISE_LINE, SIMULATED_LINE, SIMULATED_PLAIN_LINE
from tacit.train.sgd.optimizers import optimizer_name


def plan_record(planned: PlannedTraining, payment: Payment | None) -> dict[str, Any]:
    """What is known before anything happens, for machines."""
    config, plan = planned.config, planned.plan
    statement = None if plan.statement is None or planned.simulated else plan.statement.as_json()
    return {
        "out": str(config.out),
        "data": str(config.data),
        "part": config.part,
        "examples": len(planned.examples),
        "synthetic": planned.examples.synthetic,
        "simulated": config.run.simulated,
        "model": config.model.name,
        "method": config.privacy.method,
        "steps": plan.steps,
        "phases": [_phase_record(phase) for phase in plan.phases],
        "reports": config.labels.words,
        "statistic": None if plan.statistic is None else plan.statistic.plan.words,
        "memory_bytes": planned.memory.as_json(),
        "statement": statement,
        "units": planned.units,
        "warning": delta_warning(statement, planned.units),
        "few": few_warning(planned),
        "calibration": calibration_warning(plan),
        "defaults": [asdict(default) for default in planned.plan.defaults],
        "ledger": None if payment is None else payment.as_json(),
    }


def plan_lines(planned: PlannedTraining, payment: Payment | None) -> list[str]:
    """The same for people, as `tacit train` prints it: what it reads, each phase, the promise, who pays."""
    config, plan = planned.config, planned.plan
    kind = "synthetic examples" if planned.examples.synthetic else "examples"
    memory = planned.memory
    parts = ", ".join(
        f"{name} {_megabytes(size)}" for name, size in memory.as_json().items() if name != "total" and size
    )
    lines = [
        f"{config.model.name} by {config.privacy.method}: {len(planned.examples):,} {kind} of {config.data} "
        f"({config.part})",
        f"  memory    about {_megabytes(memory.total)} MB: {parts}",
    ]
    if config.privacy.method == "hybrid" and len(plan.phases) == 1:
        left_out = "noisy labels" if phase_name(plan.phases[0]) == "dp-sgd" else "DP-SGD"
        lines.append(f"  note      k leaves nothing to {left_out}")
    lines += [f"  {phase_name(phase):<9} {phase_words(phase, len(planned.examples))}" for phase in plan.phases]
    if config.labels.words is not None:
        lines.append(f"  reports   {config.labels.words}")
    if plan.statistic is not None:
        lines.append(f"  statistic {plan.statistic.plan.words}")
    lines += [f"  default   {default.words}" for default in plan.defaults]
    lines.append(f"  promise   {promise_line(plan, simulated=planned.simulated)}")
    lines += [f"  warning   {warning}" for warning in planned.warnings]
    if payment is not None:
        request = payment.requests[0]
        more = "" if len(payment.requests) == 1 else f" and {len(payment.requests) - 1} more windows"
        lines.append(f"  ledger    {request.line}{more}, as {request.key}")
    return lines


def promise_line(plan: Plan, *, simulated: bool) -> str:
    """The statement's headline; of a simulation, also what it would have been."""
    statement = plan.statement
    if simulated:
        return SIMULATED_PLAIN_LINE if statement is None else f"{SIMULATED_LINE}. As if {statement.headline}"
    return NO_PROMISE_LINE if statement is None else statement.headline


def phase_words(phase: Phase, examples: int) -> str:
    """What a phase does, in one line; `examples` is how many there are in all."""
    learning, schedule = phase.learning, phase.schedule
    how = f"{optimizer_name(learning.optimizer)}, rate {schedule.rate:.4g} {schedule.decay}"
    steps = f"{schedule.steps:,} step{'' if schedule.steps == 1 else 's'}"
    if isinstance(phase, LabelPhase):
        kept, count = "", examples
        if phase.labelling is not None:
            epsilon, count = format_rounded_up(float(phase.labelling.epsilon)), phase.labelling.count
            kept = f"; {count:,} labels, made noisy once at ε = {epsilon} per unit"
            if isinstance(phase.labelling.mechanism, RepeatedFlips):
                kept = f"; {count:,} labels with a report by then, all reports at ε = {epsilon} per unit"
        return f"{steps} of {_batch_words(learning.batch, count, 'examples')}, {how}{kept}"
    of, count = ("examples", examples) if phase.groups is None else ("units", int(phase.groups.max()) + 1)
    clipping, average = phase.clipping, "" if learning.batch >= count else " on average"
    return (
        f"{steps} of {_batch_words(learning.batch, count, of)}{average}, {how}; noise multiplier "
        f"{clipping.noise_multiplier:.6g}, clip norm {clipping.clip_norm:g}, "
        f"sampling probability {phase.sampling_probability:.4g}"
    )


def _batch_words(batch: int, count: int, what: str) -> str:
    """What a step reads, which is never more than there is."""
    if batch <= count:
        return f"{batch:,} {what}"
    return f"all {count:,} {what} (batch {batch:,} is more than there are)"


def _phase_record(phase: Phase) -> dict[str, Any]:
    record: dict[str, Any] = {"name": phase_name(phase), "part": str(phase.part), "steps": phase.schedule.steps}
    if isinstance(phase, LabelPhase):
        noisy = phase.labelling
        labels = None if noisy is None else {"labels": noisy.count, "epsilon": float(noisy.epsilon)}
        return {**record, "noisy_labels": labels}
    return {
        **record,
        "noise_multiplier": phase.clipping.noise_multiplier,
        "clip_norm": phase.clipping.clip_norm,
        "sampling_probability": phase.sampling_probability,
    }


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f}" if size < 1e8 else f"{size / 1e6:,.0f}"
