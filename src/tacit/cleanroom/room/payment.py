"""Payment for releases: what a release is charged as, and how much a room's ledger may pay for.

A release is charged once for all that one set of draws can ever tell, whatever is asked of it. The ledger's
limit is what both parties signed, less what a tightening gave up before anything left.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from tacit.cleanroom.protocol.agreement import Agreement, AgreementStep, loosened_fields
from tacit.cleanroom.protocol.encoding import RoomRefusal, canonical_json
from tacit.cleanroom.protocol.modes import RECORD, RELATION
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.room.store import ReadTransaction, RoomLedger, RoomStore, WriteTransaction
from tacit.entropy import draw_token
from tacit.errors import BudgetExceeded, ReservationTaken, RoomError, RoomRefused
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Line
from tacit.privacy.ledger.rules import Reservation, ReservationState, cost_on

HELD = ": held as long as it is open, not to be settled"  # ends the purpose of sums that are counted
MOST_STORE_TOKENS = 64
"""That a store keeps: more calls are never between their count and its confirmation."""


def release_name(terms: Terms) -> str:
    """A digest of what decides the draws: terms with another one are a fresh release, to be paid again.

    Flipped labels are the same in the modes that sum them and hand them over. Noised sums count releases of a
    record over all tasks, so tasks do not decide anything there; neither does the clipping norm, to which the
    noise is scaled. Batches, codecs and dates decide nothing anywhere. Under a private intersection, records
    are named by masked points, and another `most_ids` needs an exchange of its own: other names, other draws.
    """
    draws = {"window": terms.window, "label_version": terms.label_version, "join": str(terms.join)}
    if terms.most_ids is not None:
        draws["most_ids"] = terms.most_ids
    if terms.mode.flips:
        flips = {"flips": str(terms.response.lie_weight), "epsilon": str(terms.epsilon)}
        chosen = {**flips, "tasks": " ".join(sorted(terms.tasks))}
    else:
        chosen = {
            "sums": str(terms.mode),
            "epsilon": str(terms.epsilon),
            "delta": str(terms.delta),
            "noise": str(terms.noise),
            "releases": str(terms.releases_per_record),
        }
    return hashlib.sha256(canonical_json({**draws, **chosen, "name": terms.name})).hexdigest()


def budget_line(terms: Terms) -> Line:
    """Where this collaboration's spending adds up: one record's labels, for all time."""
    return Line(terms.name, RECORD, RELATION)


def release_ledger_key(terms: Terms, store: str) -> str:
    """Under which the ledger knows the release that these terms name, as counted in the store of this id.

    Another store counts from nothing and registers labels anew, so what it releases is paid for again.
    """
    return f"room/{terms.name}/{release_name(terms)}/{store}"


def can_pay(terms: Terms, ledger: RoomLedger, store: str) -> bool:
    """Whether the release is paid for, or could be now; a look that changes nothing.

    A reservation that was settled as never having left (`tacit ledger settle`) can neither be used nor made
    again under its key.
    """
    line = budget_line(terms)
    account = ledger.account(line)  # first: what another thread reserves after it is seen below
    reservation = ledger.reservation(release_ledger_key(terms, store))
    if reservation is not None:
        return reservation.state is not ReservationState.ABORTED
    return account is not None and (account.used + cost_on(line, terms.budget)).fits(account.limit)


def charge_release(terms: Terms, ledger: RoomLedger, store: str, drawn_from: str) -> None:
    """Pay for the release that these terms name, once however often it is called; BUDGET where it cannot be.

    `drawn_from` is a digest of what flips are drawn from. Flips are the same whenever they are drawn from the
    same, and then they were made once: a copy of the store with other labels, or other points exchanged, would
    make others, and is refused. Sums that are counted stay reserved instead: see `confirm_sole_copy`.
    """
    key = release_ledger_key(terms, store)
    known = ledger.reservation(key)
    held = "" if terms.mode.flips else HELD
    purpose = f"clean room {terms.name}{held}" if known is None else known.purpose
    try:
        reservation = ledger.reserve(key, budget_line(terms), terms.budget, purpose)
    except BudgetExceeded:
        raise budget_refusal() from None
    if not terms.mode.flips or _is_of_old(reservation):
        return
    try:
        ledger.make(key, f"store {store}", drawn_from)
    except ReservationTaken:
        said = "a copy of this store flipped others, or it was settled by hand; agree on a new version"
        raise RoomRefused(RoomRefusal.LABELS_CHANGED, said) from None
    ledger.commit(key, f"store {store}")


def renew_store_token(transaction: WriteTransaction, release: str) -> None:
    """Another token for a store that has counted a release: kept with the count, confirmed before that leaves.

    It decides nothing that leaves. Copies of a store must not draw the same one, so it is not drawn from what
    the room was handed.
    """
    tokens = [*_tokens(transaction, release), draw_token()][-MOST_STORE_TOKENS:]
    transaction.put(f"holder/{release}", canonical_json(tokens))


def confirm_sole_copy(terms: Terms, store: RoomStore, ledger: RoomLedger, store_id: str) -> None:
    """Refuse to go on where another copy of this store has counted a release meanwhile.

    Guarantee:  of copies of one store, whoever made them and when, one at most counts and answers on from where
                they part: every count takes a token that the ledger swaps for the one before, and an answer
                leaves after that. What copies answer alike was counted before they parted.
    Neighbours: as of the releases that are counted.
    Assumes:    the ledger is one, and is not put back to an older state together with its witness.
    Source:     compare and swap: `privacy.ledger.rules.Ledger.claim`.
    """
    release, key = release_name(terms), release_ledger_key(terms, store_id)
    tokens = _tokens_now(store, release)
    if terms.mode.flips or not tokens:
        return
    while not _took(ledger, key, tokens):
        # A call that overlaps with this one keeps its token here before it claims; no copy ever does.
        newer = _tokens_now(store, release)
        if newer == tokens:
            _refuse_unless_of_old(ledger, key)
            return
        tokens = newer


def _took(ledger: RoomLedger, key: str, tokens: list[str]) -> bool:
    try:
        ledger.claim(key, tokens[-1], after=tokens[:-1])
    except ReservationTaken:
        return False
    return True


def _refuse_unless_of_old(ledger: RoomLedger, key: str) -> None:
    known = ledger.reservation(key)
    if known is not None and _is_of_old(known):
        return
    if known is not None and known.state is ReservationState.COMMITTED:
        raise RoomError(
            f"what this room's sums cost, {key} in the ledger, was settled by hand: nobody can tell "
            "copies of its store apart any more, so agree on a new version"
        )
    raise RoomError(
        "another copy of this store has counted releases that it knows nothing of: that one alone goes on; "
        f"if it is lost for good, see `tacit ledger hand-over --help`, for {key}"
    )


def _tokens_now(store: RoomStore, release: str) -> list[str]:
    with store.reading() as view:
        return _tokens(view, release)


def _tokens(view: ReadTransaction, release: str) -> list[str]:
    found = view.get(f"holder/{release}")
    return [] if found is None else [str(each) for each in json.loads(found)]


def _is_of_old(reservation: Reservation) -> bool:
    """Whether it was paid for when rooms did not name themselves yet: then nobody can tell copies apart.

    What says that it is held was reserved by a room that does, however it was settled.
    """
    return reservation.predates_attempts and not reservation.purpose.endswith(HELD)


def budget_refusal() -> RoomRefused:
    return RoomRefused(
        RoomRefusal.BUDGET,
        "it was spent under other terms or from another store, or settled; agree on a new version",
    )


IsPaid = Callable[[Terms], bool]
"""Whether the release that these terms name was paid for, by the room that asks."""


@dataclass(frozen=True)
class EarlierSpending:
    """What others (a store that was lost, say) had spent on the line when this one first took the agreement up.

    Any of the `steps` that were there may have been what they paid for; none, where nothing was spent.
    """

    spent: Budget
    steps: int


NO_EARLIER_SPENDING = EarlierSpending(Budget.NOTHING, 0)


def agreed_budget(agreement: Agreement, paid: IsPaid, found: EarlierSpending = NO_EARLIER_SPENDING) -> Budget:
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
    steps = agreement.settled_steps
    spent = _spent_budgets(steps, paid)
    gone = spent.keys() | {release_name(each.terms) for each in steps[: found.steps]}
    total = sum(spent.values(), found.spent)
    return total + steps[-1].terms.budget if _is_due(steps, gone) else total


def possible_budgets(steps: Sequence[AgreementStep]) -> tuple[Budget, Budget]:
    """The agreed budget after these steps, without a look at any ledger: if nothing has left, and at most.

    Of each chain, terms that needed both and the tightenings after them, at most one release is ever paid: the
    first is the dearest. Where both come back to the same first one, it is paid once in all, and the earlier
    chains paid at most for what came second.
    """
    most, second = Budget.NOTHING, dict[str, Budget]()  # by the name of a chain's first release
    first = last = ""
    for place, step in enumerate(steps):
        name = release_name(step.terms)
        if not place or (name != last and loosened_fields(steps[place - 1].terms, step.terms)):
            most += second.get(name, step.terms.budget)
            first, second[name] = name, Budget.NOTHING
        elif name != last and second[first] == Budget.NOTHING:
            second[first] = step.terms.budget
        last = name
    return (steps[-1].terms.budget if steps else Budget.NOTHING), most


def grant_agreed_budget(
    agreement: Agreement, transaction: WriteTransaction, ledger: RoomLedger, store: str
) -> None:
    """Let the ledger pay for what is agreed, in the transaction in which the agreement is taken up.

    What was paid under earlier terms was paid in such a transaction too, after a look at which are in force. So
    whether it was does not change under this one. A limit is never below what was spent: then nothing is left.
    """
    line = budget_line(agreement.in_force)
    account = ledger.account(line)
    used = Budget.NOTHING if account is None else account.used.budget

    def paid(terms: Terms) -> bool:
        reservation = ledger.reservation(release_ledger_key(terms, store))
        return reservation is not None and reservation.state is not ReservationState.ABORTED  # as in `can_pay`

    agreed = agreed_budget(agreement, paid, _find_earlier_spending(agreement, transaction, used, paid))
    ledger.grant(line, agreed if used.fits(agreed) else used)


def _is_due(steps: Sequence[AgreementStep], gone: Set[str]) -> bool:
    """Whether the release of the last step may still be paid; `gone` names those that may have left."""
    due = bool(steps)
    for before, step in pairwise(steps):
        left = release_name(before.terms)
        if left != release_name(step.terms):
            due = bool(loosened_fields(before.terms, step.terms)) or (due and left not in gone)
    return due and release_name(steps[-1].terms) not in gone


def _spent_budgets(steps: Sequence[AgreementStep], paid: IsPaid) -> dict[str, Budget]:
    """By release: its name decides the draws, and so the budget."""
    return {release_name(each.terms): each.terms.budget for each in steps if paid(each.terms)}


def _find_earlier_spending(
    agreement: Agreement, transaction: WriteTransaction, used: Budget, paid: IsPaid
) -> EarlierSpending:
    """As this store kept it; kept now, where it has not yet."""
    key = f"found/{agreement.in_force.name}"
    known = transaction.get(key)
    if known is None:
        spent = _others(agreement, used, paid)
        steps = len(agreement.settled_steps) if spent != Budget.NOTHING else 0
        known = canonical_json({"epsilon": str(spent.epsilon), "delta": str(spent.delta), "steps": steps})
        transaction.put(key, known)
    record = json.loads(known)
    found = Budget(Fraction(record["epsilon"]), Fraction(record["delta"]))
    # Less is there now if a reservation of theirs was settled as never having left, or the ledger was lost.
    # What this store spent itself is not theirs: counted as such, it would be a budget nobody signed for.
    return EarlierSpending(_least(found, _others(agreement, used, paid)), record["steps"])


def _others(agreement: Agreement, used: Budget, paid: IsPaid) -> Budget:
    """What was spent on the line by others than this store."""
    return used.less(sum(_spent_budgets(agreement.settled_steps, paid).values(), Budget.NOTHING))


def _least(one: Budget, other: Budget) -> Budget:
    return Budget(min(one.epsilon, other.epsilon), min(one.delta, other.delta))
