"""What a run has spent so far, for people who watch it: looked up sparsely, and never less than the truth."""

from __future__ import annotations

from functools import cache

from tacit.privacy.accounting.pld import coarse_epsilon
from tacit.privacy.releases import Composed, Release, SubsampledGaussian
from tacit.train.plan import Plan, PrivatePhase

LOOKS = 20  # in a phase of DP-SGD; each takes some 50 ms
GRIDS_PER_EPSILON = 500


class Spending:
    """Epsilon after so many steps, at the plan's delta: an upper bound that ends at the statement's epsilon.

    `before` is what was released earlier and is used here, such as a vocabulary. Between two looks the later
    one is shown.
    """

    def __init__(self, plan: Plan, before: tuple[Release, ...] = ()) -> None:
        self._plan, self._before = plan, before
        self._look = cache(self._epsilon)

    def after(self, phase: int, steps: int) -> float | None:
        """Once `steps` steps of this phase are done; None where nothing is promised."""
        if self._plan.statement is None:
            return None
        chosen = self._plan.phases[phase]
        if not isinstance(chosen, PrivatePhase):
            return self._look(0)  # labels are noisy from the start, and reading them again is free
        every = max(1, -(-chosen.schedule.steps // LOOKS))
        return self._look(min(-(-steps // every) * every, chosen.schedule.steps))

    def _epsilon(self, steps: int) -> float:
        statement = self._plan.statement
        assert statement is not None
        gaussian = [each for each in self._plan.releases if isinstance(each, SubsampledGaussian)]
        others = [each for each in self._plan.releases if not isinstance(each, SubsampledGaussian)]
        if not gaussian or steps == gaussian[0].steps:
            return statement.epsilon
        parts = (*self._before, *others)
        if steps:
            taken = SubsampledGaussian(gaussian[0].noise_multiplier, gaussian[0].sampling_probability, steps)
            parts = (*parts, taken)
        if not parts:
            return 0.0
        found = coarse_epsilon(
            Composed(parts),
            delta=statement.delta,
            relation=statement.relation,
            grid=statement.epsilon / GRIDS_PER_EPSILON,
        )
        return min(found, statement.epsilon)
