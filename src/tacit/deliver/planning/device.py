"""One request on a device: look up what it is worth, pay, and only then hold a law to choose by."""

from __future__ import annotations

from numpy.typing import ArrayLike

from tacit.deliver.planning.budget import BudgetPolicy
from tacit.deliver.planning.ladder import forecast_gains
from tacit.deliver.planning.plan import ChoicePlan
from tacit.deliver.planning.planner import Planner
from tacit.deliver.planning.wallet import Wallet
from tacit.errors import BadInput


def plan_request(
    public: ArrayLike,
    planner: Planner,
    policy: BudgetPolicy,
    wallet: Wallet,
    now: int,
    auction: str | None = None,
) -> tuple[ChoicePlan, Wallet]:
    """The plan for a request at second `now`, and the wallet that has paid for one choice by it.

    What is spent follows from public scores and from what earlier public requests of the same ad tech left.
    Where that is too little, a lower step of the ladder is taken, or none: it never asks for more than is left.
    """
    if wallet.ad_tech != policy.ad_tech:
        raise BadInput(f"expected the wallet for ad tech {policy.ad_tech}, got that for {wallet.ad_tech}")
    worth = forecast_gains(public, planner.prior, policy.ladder)
    epsilon = policy.epsilon(worth, min(wallet.left(now), wallet.most_per_request))
    if not epsilon:
        return planner.public_best(public), wallet.spend(0, now, auction)
    plan = planner.plan(public, epsilon)
    return plan, wallet.spend(plan.epsilon_spent, now, auction)
