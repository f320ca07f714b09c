"""One request on a device: look up what it is worth, pay, and only then hold a law to choose by."""

from __future__ import annotations

from numpy.typing import ArrayLike

from tacit.deliver.planning.budget import BudgetPolicy
from tacit.deliver.planning.ladder import forecast_gains
from tacit.deliver.planning.plan import ChoicePlan
from tacit.deliver.planning.planner import Planner
from tacit.deliver.planning.wallet import Wallet


def plan_request(
    public: ArrayLike,
    planner: Planner,
    policy: BudgetPolicy,
    wallet: Wallet,
    now: int,
    auction: str | None = None,
) -> tuple[ChoicePlan, Wallet]:
    """The plan for a request at second `now`, and the wallet that has paid for one choice by it.

    What is spent follows from public scores and from what earlier public requests left.
    """
    worth = forecast_gains(public, planner.prior, policy.ladder)
    epsilon = policy.epsilon(worth, wallet.left(now))
    if not epsilon:
        return planner.public_best(public), wallet.spend(0, now, auction)
    plan = planner.plan(public, epsilon)
    return plan, wallet.spend(plan.epsilon_spent, now, auction)
