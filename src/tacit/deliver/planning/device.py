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

    Where too little is left, a lower step of the ladder is taken, or none: it never asks for more than is left.

    Guarantee:  one choice by the plan is epsilon-LDP with the epsilon that the wallet has paid, and all that it
                pays in a window are together what `policy.statement()` says; a looser wallet is refused.
    Neighbours: all private data of one device in that window, replaced.
    Assumes:    what `BudgetPolicy` and `ChoicePlan` assume; the wallet that is returned is stored before the
                choice is made; the plan is used once. What is spent follows from public scores and from what
                earlier public requests of the same ad tech left, so it tells nothing more.
    Source:     `Wallet`, `ChoicePlan`.
    """
    policy.expect_own(wallet)
    worth = forecast_gains(public, planner.prior, policy.ladder)
    epsilon = policy.epsilon(worth, min(wallet.left(now), wallet.most_per_request))
    if not epsilon:
        return planner.public_best(public), wallet.spend(0, now, auction)
    plan = planner.plan(public, epsilon)
    return plan, wallet.spend(plan.epsilon_spent, now, auction)
