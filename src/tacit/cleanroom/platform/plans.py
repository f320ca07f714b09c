"""Plan of a training run: its settings, the defaults that suit each mode, and the rows of every step."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.cleanroom.model.learning import LearnSettings
from tacit.cleanroom.platform.optimizer import Optimizer
from tacit.cleanroom.protocol.losses import Loss
from tacit.cleanroom.protocol.modes import Mode
from tacit.cleanroom.protocol.terms import Terms
from tacit.entropy import Simulation
from tacit.errors import BadInput

NOISED_RATE = 1.0  # of plain descent on mean gradients


@dataclass(frozen=True)
class AdapterPlan:
    """`seed` orders the rows; `loss_every` counts steps, 0 asking for no loss. `project` is for noised sums, of
    batches that are smaller than the adapter: those of others span everything."""

    task: str = "conversion"
    loss: Loss = Loss.FORWARD
    codec: str = "int8"
    batch: int = 1024
    epochs: int = 2
    learning_rate: float = 1e-3
    one_cycle: bool = True
    optimizer: Optimizer = Optimizer.ADAM
    seed: int = 0
    project: bool = False
    loss_every: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", Loss(self.loss))
        object.__setattr__(self, "optimizer", Optimizer(self.optimizer))
        object.__setattr__(self, "learning_rate", float(expect.positive("learning_rate", self.learning_rate)))
        for name in ("batch", "epochs"):
            expect.whole(name, getattr(self, name), at_least=1)
        for name in ("seed", "loss_every"):
            expect.whole(name, getattr(self, name), at_least=0)
        for name in ("project", "one_cycle"):
            if not isinstance(getattr(self, name), bool):
                raise BadInput(f"expected {name} to be true or false, got {getattr(self, name)!r}")

    @property
    def learning(self) -> LearnSettings:
        """The same, for learning at home; its rate of a step is the run's, too."""
        return LearnSettings(self.epochs, self.batch, self.learning_rate, self.one_cycle, seed=self.seed)

    @classmethod
    def for_terms(cls, terms: Terms, **given: Any) -> AdapterPlan:
        """Defaults that suit the mode.

        With noise: true labels, each record as often as agreed, projected, and plain descent: Adam divides by
        the size of what it sees, and so takes steps of full length where all it sees is noise.
        """
        suited: dict[str, Any] = {"codec": terms.codecs[0], "task": terms.tasks[0]}
        if terms.mode is Mode.NOISED:
            epochs = min(cls.epochs, terms.releases_per_record)
            suited |= {"loss": Loss.RAW, "epochs": epochs, "project": True, "optimizer": Optimizer.SGD}
            if given.get("optimizer", Optimizer.SGD) == Optimizer.SGD:
                suited |= {"learning_rate": NOISED_RATE, "one_cycle": False}
        return cls(**(suited | given))

    def as_json(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def refuse_unless_agreed(self, terms: Terms, rows: int) -> None:
        """What the room would refuse in the middle of a run is better known before it."""
        if terms.mode not in (Mode.AGGREGATE, Mode.NOISED):
            raise BadInput(f"expected an agreement that lets sums out, got one of mode {terms.mode}")
        for name, value, agreed in (("task", self.task, terms.tasks), ("codec", self.codec, terms.codecs)):
            if value not in agreed:
                raise BadInput(f"expected {name} among the agreed {', '.join(agreed)}, got {value!r}")
        if (smallest := min(rows, self.batch)) < terms.smallest_batch:
            raise BadInput(
                f"expected batches of the agreed {terms.smallest_batch} rows or more, got {smallest}"
            )
        if terms.mode is Mode.NOISED and self.loss is not Loss.RAW:
            raise BadInput(f"expected loss raw for noised sums, whose labels are true, got {self.loss}")
        if terms.mode is Mode.NOISED and self.epochs > terms.releases_per_record:
            raise BadInput(
                f"expected epochs <= {terms.releases_per_record}, the agreed releases, got {self.epochs}"
            )
        if terms.mode is Mode.NOISED and self.loss_every:
            raise BadInput("expected no loss to be asked for in mode noised: each would be a further release")
        if self.loss_every and not terms.metrics:
            raise BadInput("expected no loss to be asked for: the agreement lets no metrics out")


def steps_per_epoch(rows: int, batch: int, smallest: int) -> int:
    """As many batches of about the same size as come closest below `batch`, none below `smallest`."""
    steps = math.ceil(rows / batch)
    return max(1, steps if rows // steps >= smallest else rows // batch)


def step_rows(plan: AdapterPlan, rows: int, steps: int, number: int) -> NDArray[np.int64]:
    """The rows of one step. Each epoch has every row once, in an order of its own, by seed and epoch alone."""
    epoch, step = divmod(number, steps)
    return np.array_split(_order(plan.seed, epoch, rows), steps)[step]


@lru_cache(maxsize=1)
def _order(seed: int, epoch: int, rows: int) -> NDArray[np.int64]:
    return np.argsort(Simulation(f"order {seed} {epoch}").words(rows), kind="stable")
