"""A run of `tacit.torch` as it is really made, against its claim: every step, in worlds of their own.

Every record reads rows of an embedding that nobody else reads, so one run is as many trials as there are
records. What is looked at, and how, is as in `train.audit`: a step's noisy sum as it moves a world's rows,
along its gradient and across it. A common bias, which a private step trains too, takes 1 of 1 + FIELDS parts
of a squared gradient norm away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from tacit.privacy.audit.case import AuditCase, Hits, claimed_epsilon, empirical_case, gaussian_law
from tacit.privacy.randomness import Source
from tacit.privacy.releases import SubsampledGaussian
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit.train.audit import DELTA, FIELDS, NOISE, SAMPLING, STEPS, DpSgdTrial, Moves
from tacit.train.sgd.descent import NoiseForm

if TYPE_CHECKING:
    from torch import nn

RATE = 1e-3
STEEP = 10.0  # the slope of every loss: no gradient is shorter than the clip norm


def cases() -> list[AuditCase]:
    """None where torch is not installed: then there is nothing to audit."""
    if find_spec("torch") is None:
        return []
    # The twin's sampler reads a third more records than it says.
    honest, twin = TorchTrial(), TorchTrial(sampling=1.3 * SAMPLING)
    return [
        empirical_case(
            f"DP-SGD of one's own module, {STEPS} steps",
            Relation.REPLACE_ONE,
            _claimed(Fraction(1)),
            delta=DELTA,
            draws=honest.draws,
            law=gaussian_law(NOISE, _claimed),
            twin_draws=twin.draws,
        )
    ]


@cache
def _claimed(share: Fraction) -> float:
    release = SubsampledGaussian(NOISE * float(share), SAMPLING, STEPS)
    return claimed_epsilon(release, Relation.REPLACE_ONE, DELTA)


@dataclass(frozen=True)
class TorchTrial(DpSgdTrial):
    """How a run is made: the claim is of `NOISE` and `SAMPLING`, whatever it really does."""

    form: NoiseForm = NoiseForm.DENSE

    def moves(self, share: Fraction, label: int, trials: int, source: Source) -> Iterator[tuple[Moves, Hits]]:
        """What each step's noisy sum moved each world's rows by, in units of the clip norm; and who was
        sampled."""
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        from tacit.torch.plan import ModulePlan
        from tacit.torch.run import PrivateRun

        batch = round(self.sampling * trials)
        plan = ModulePlan(
            trials,
            batch,
            STEPS,
            1.0,
            NOISE * float(share),
            DELTA,
            Unit(UnitKind.IMPRESSION),
            Relation.REPLACE_ONE,
        )
        module = worlds(trials)
        table: Moves = module.get_parameter("rows.weight").detach().numpy()  # a view
        run = PrivateRun(
            module,
            torch.optim.SGD(module.parameters(), lr=RATE),
            DataLoader(TensorDataset(torch.arange(trials)), batch_size=batch),
            plan,
            lambda _: source,
            simulated=True,
        )
        before, slope = table.copy(), STEEP if label == 0 else -STEEP
        sampled: Hits = np.zeros(trials, np.bool_)
        for (places,) in run.batches():
            sampled[places.numpy()] = True
            if not run.step(slope * module(places)):
                continue  # more of the sample comes
            moved: Moves = (table - before) * np.float32(batch / RATE)
            before = table.copy()
            yield moved.reshape(trials, FIELDS), sampled
            sampled = np.zeros(trials, np.bool_)


def worlds(count: int) -> nn.Module:
    """A score per record: the sum of its own `FIELDS` rows, and a bias that is everybody's."""
    import torch
    from torch import Tensor, nn

    class Worlds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows, self.shift = nn.Embedding(count * FIELDS, 1), nn.Linear(1, 1)
            nn.init.zeros_(self.rows.weight)
            self.shift.weight.requires_grad_(False)

        def forward(self, places: Tensor) -> Tensor:
            read = self.rows(places[:, None] * FIELDS + torch.arange(FIELDS)).sum(dim=1)  # (batch, 1)
            score: Tensor = read + self.shift(torch.zeros_like(read))
            return score[:, 0]

    return Worlds()
