"""What a room's ledger may pay for: what both signed, less what a tightening gave up before anything left."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from tacit.cleanroom.room.counting import ledger_key, line_of, release_name
from tacit.cleanroom.room.store import Kept, Ledger
from tacit.cleanroom.wire.agreement import Terms
from tacit.cleanroom.wire.amending import Agreement, Step, loosened
from tacit.cleanroom.wire.canonical import spell
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.rules import State

Paid = Callable[[Terms], bool]
"""Whether the release that these terms name was paid for, by the room that asks."""


@dataclass(frozen=True)
class Found:
    """What others (a store that was lost, say) had spent on the line when this one first took the agreement up.

    Any of the `steps` that were there may have been what they paid for; none, where nothing was spent.
    """

    spent: Budget
    steps: int


NOTHING_FOUND = Found(Budget.NOTHING, 0)


def agreed_budget(agreement: Agreement, paid: Paid, found: Found = NOTHING_FOUND) -> Budget:
    """All that may ever be spent under this agreement, if it stays as it is: what was, and what is still due.

    Guarantee:  whoever lets a ledger of this limit pay, once for each `release_name`, and asks for the limit
                again with every step, pays at most once for each time that both signed for fresh draws (the
                first terms, and those that loosen something and change the draws), and then for the terms
                in force at that moment. So what leaves from a step on is at most that step's budget until
                both sign again, however often one of them tightens.
    Neighbours: as of what is paid for.
    Assumes:    what is paid stays paid; nothing is paid under terms that are no longer in force.
    Source:     basic composition, `privacy.ledger.rules.Ledger`.

    A tightening takes the place of a release that nothing has left of, and gives up the rest of its budget.
    Once something has left, a tightening draws afresh and nobody signed for that: nothing is due under it, and
    neither is under a loosening (a later end, say) that leaves such draws as they are.
    """
    agreement.verify(proposal=True)
    steps = agreement.settled
    spent = _spent(steps, paid)
    gone = spent.keys() | {release_name(each.terms) for each in steps[: found.steps]}
    total = sum(spent.values(), found.spent)
    return total + steps[-1].terms.budget if _is_due(steps, gone) else total


def possible_budgets(steps: Sequence[Step]) -> tuple[Budget, Budget]:
    """The agreed budget after these steps, without a look at any ledger: if nothing has left, and at most.

    Of each chain, terms that needed both and the tightenings after them, at most one release is ever paid: the
    first is the dearest. Where both come back to the same first one, it is paid once in all, and the earlier
    chains paid at most for what came second.
    """
    most, second = Budget.NOTHING, dict[str, Budget]()  # by the name of a chain's first release
    first = last = ""
    for place, step in enumerate(steps):
        name = release_name(step.terms)
        if not place or (name != last and loosened(steps[place - 1].terms, step.terms)):
            most += second.get(name, step.terms.budget)
            first, second[name] = name, Budget.NOTHING
        elif name != last and second[first] == Budget.NOTHING:
            second[first] = step.terms.budget
        last = name
    return (steps[-1].terms.budget if steps else Budget.NOTHING), most


def grant(agreement: Agreement, kept: Kept, ledger: Ledger, store: str) -> None:
    """Let the ledger pay for what is agreed, in the transaction in which the agreement is taken up.

    What was paid under earlier terms was paid in such a transaction too, after a look at which are in force. So
    whether it was does not change under this one. A limit is never below what was spent: then nothing is left.
    """
    line = line_of(agreement.in_force)
    account = ledger.account(line)
    used = Budget.NOTHING if account is None else account.used.budget

    def paid(terms: Terms) -> bool:
        reservation = ledger.reservation(ledger_key(terms, store))
        return reservation is not None and reservation.state is not State.ABORTED  # as in `counting.can_pay`

    agreed = agreed_budget(agreement, paid, _found(agreement, kept, used, paid))
    ledger.grant(line, agreed if used.fits(agreed) else used)


def _is_due(steps: Sequence[Step], gone: Set[str]) -> bool:
    """Whether the release of the last step may still be paid; `gone` names those that may have left."""
    due = bool(steps)
    for before, step in pairwise(steps):
        left = release_name(before.terms)
        if left != release_name(step.terms):
            due = bool(loosened(before.terms, step.terms)) or (due and left not in gone)
    return due and release_name(steps[-1].terms) not in gone


def _spent(steps: Sequence[Step], paid: Paid) -> dict[str, Budget]:
    """By release: its name decides the draws, and so the budget."""
    return {release_name(each.terms): each.terms.budget for each in steps if paid(each.terms)}


def _found(agreement: Agreement, kept: Kept, used: Budget, paid: Paid) -> Found:
    """As this store kept it; kept now, where it has not yet."""
    key = f"found/{agreement.in_force.name}"
    known = kept.find(key)
    if known is None:
        spent = _others(agreement, used, paid)
        steps = len(agreement.settled) if spent != Budget.NOTHING else 0
        known = spell({"epsilon": str(spent.epsilon), "delta": str(spent.delta), "steps": steps})
        kept.keep(key, known)
    record = json.loads(known)
    found = Budget(Fraction(record["epsilon"]), Fraction(record["delta"]))
    # Less is there now if a reservation of theirs was settled as never having left, or the ledger was lost.
    # What this store spent itself is not theirs: counted as such, it would be a budget nobody signed for.
    return Found(_least(found, _others(agreement, used, paid)), record["steps"])


def _others(agreement: Agreement, used: Budget, paid: Paid) -> Budget:
    """What was spent on the line by others than this store."""
    return used.less(sum(_spent(agreement.settled, paid).values(), Budget.NOTHING))


def _least(one: Budget, other: Budget) -> Budget:
    return Budget(min(one.epsilon, other.epsilon), min(one.delta, other.delta))
