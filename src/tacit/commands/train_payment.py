"""Who pays for a configured training, from which ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tacit.train.job.payment import Payment, TrainingLedger, charge_as_asked, label_payment, release_payment

if TYPE_CHECKING:
    from tacit.commands.train_plan import PlannedTraining
    from tacit.privacy.ledger.guarantee import Guarantee


def training_cost(planned: PlannedTraining) -> Guarantee | None:
    """What the ledger is asked for; None where nothing is."""
    charge, privacy = planned.plan.charge, planned.config.privacy
    if charge is None or (privacy.method != "label-dp" and planned.examples.selection is not None):
        return charge
    return charge_as_asked(charge, privacy)


def payment_for(planned: PlannedTraining, ledger: TrainingLedger | None) -> Payment | None:
    """What the plan costs, and on which lines; None where nobody has to pay."""
    config, cost = planned.config, training_cost(planned)
    if ledger is None or cost is None:
        return None
    who = config.ledger
    assert who.scope is not None, "checked when the configuration was read"
    if config.privacy.method == "label-dp":
        assert planned.plan.charge is not None
        return label_payment(
            ledger, planned.label_flips, planned.plan.charge, planned.examples, relation=who.relation
        )
    paid = release_payment(
        ledger, cost, planned.examples,
        scope=who.scope, key=str(who.key), purpose=f"train by {config.privacy.method}", relation=who.relation,
    )  # fmt: skip
    return paid if planned.secret is None else replace(paid, labels=planned.label_flips)
