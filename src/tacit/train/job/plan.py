"""From a configuration to a training method, and to the names under which its releases are known.

The names of flips and of a checkpoint's training are digests: they change with everything that a release
depends on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.columns import Columns
from tacit.privacy.mechanisms.memoisation import FlipKey
from tacit.train.config import TrainingConfig
from tacit.train.examples import Examples, group_by_unit
from tacit.train.methods import DpSgd, Hybrid, LabelDp, Plain, StatisticMethod, TrainingMethod
from tacit.train.models.architectures import only_part
from tacit.train.models.model import Part
from tacit.train.plan import Plan, PrivatePhase

FACTS = ("log", "rows", "rows_read", "rows_passed_over", "split", "columns")
"""What a manifest says of which rows a log has. All of it is public; the rate of positives would not be."""


def method_from_config(config: TrainingConfig, key: FlipKey, now: int) -> TrainingMethod:
    """`now`, in seconds, refuses time windows that are still open."""
    privacy, labels = config.privacy, config.labels
    part = only_part(config.model)
    if privacy.method == "plain":
        return Plain(config.plain, part or Part.WHOLE)
    assert privacy.epsilon is not None, "checked when the configuration was read"
    if privacy.method == "label-dp":
        return LabelDp(
            privacy.epsilon, privacy.unit, privacy.cap, labels.mechanism, labels.learning, key, now,
            part=part or Part.TRUNCATED,
        )  # fmt: skip
    assert privacy.delta is not None, "checked when the configuration was read"
    if privacy.method == "dp-sgd":
        return DpSgd(privacy.epsilon, privacy.delta, privacy.unit, config.descent, now)
    if privacy.method == "statistic":
        return StatisticMethod(privacy.epsilon, privacy.delta, privacy.unit, config.statistic, now)
    return Hybrid(
        privacy.epsilon,
        privacy.delta,
        k=privacy.k,
        unit=privacy.unit,
        frozen=privacy.frozen,
        cap=privacy.cap,
        mechanism=labels.mechanism,
        label_learning=labels.learning,
        learning=config.descent,
        key=key,
        now=now,
    )


def flip_key(
    scope: str, columns: Columns, part: str, *, version: int = 0, release: str | None = None
) -> FlipKey:
    """The key of a log's flips: the scope, which rows they are of, and the version of their labels.

    Label DP's flips are drawn once and read by every training, so they carry no `release`. The Hybrid pays for
    its labels each time: named by its release they are fresh each time too, and may be of labels that have
    changed meanwhile.
    """
    task = f"{scope}: label of {rows_identity(columns, part)}"
    return FlipKey(task if release is None else f"{task}, for {release}", 0, version)


def rows_identity(columns: Columns, part: str) -> str:
    """A name for these rows of this log, from public facts alone."""
    facts: Mapping[str, Any] = {name: columns.manifest.get(name) for name in FACTS}
    spelled = json.dumps({**facts, "part": part}, sort_keys=True)
    return f"{columns.manifest.get('log')}/{part}/{hashlib.sha256(spelled.encode()).hexdigest()[:16]}"


def training_digest(
    config: TrainingConfig, plan: Plan, examples: Examples, identified: str, secret: str
) -> str:
    """Of everything that a checkpoint depends on. It covers the labels, so it never leaves the checkpoint.

    Whose rows are whose is in it too: a log with other keys has other units, caps and shares.
    """
    spelled = hashlib.sha256()
    for part in (config.digest, identified, examples.encoder_digest, secret, repr(plan.releases)):
        spelled.update(f"{part}\n".encode())
    for phase in plan.phases:
        learning = (phase.name, str(phase.part), repr(phase.learning), repr(phase.schedule))
        spelled.update(repr(learning).encode())
        if isinstance(phase, PrivatePhase):
            spelled.update(repr((phase.clipping, phase.sampling_probability)).encode())
            _add(spelled, phase.groups)
        elif phase.labelling is not None:
            _add(spelled, phase.labelling.allocation.kept)
            _add(spelled, phase.labelling.allocation.divisor)
    if config.privacy.is_private:
        _add(spelled, group_by_unit(examples, config.privacy.unit))
    if examples.label is not None:
        spelled.update(np.ascontiguousarray(examples.at.of(examples.label)).tobytes())
    return spelled.hexdigest()


def _add(spelled: hashlib._Hash, numbers: NDArray[Any] | None) -> None:
    """With how many there are, so that no two lists of arrays look alike."""
    spelled.update(f"{None if numbers is None else len(numbers)}\n".encode())
    if numbers is not None:
        spelled.update(np.ascontiguousarray(numbers, dtype="<i8").tobytes())
