"""What a release is charged as: once for all that one set of draws can ever tell, whatever is asked of it."""

from __future__ import annotations

import hashlib

from tacit.cleanroom.room.store import Ledger
from tacit.cleanroom.wire.agreement import Terms
from tacit.cleanroom.wire.canonical import spell
from tacit.cleanroom.wire.refusals import Refusal
from tacit.cleanroom.wire.statements import RECORD, RELATION
from tacit.errors import BudgetExceeded, RoomRefused
from tacit.privacy.ledger.lines import Line
from tacit.privacy.ledger.rules import State, cost_on


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
    return hashlib.sha256(spell({**draws, **chosen, "name": terms.name})).hexdigest()


def line_of(terms: Terms) -> Line:
    """Where this collaboration's spending adds up: one record's labels, for all time."""
    return Line(terms.name, RECORD, RELATION)


def ledger_key(terms: Terms, store: str) -> str:
    """Under which the ledger knows the release that these terms name, as counted in the store of this id.

    Another store counts from nothing and registers labels anew, so what it releases is paid for again.
    """
    return f"room/{terms.name}/{release_name(terms)}/{store}"


def can_pay(terms: Terms, ledger: Ledger, store: str) -> bool:
    """Whether the release is paid for, or could be now; a look that changes nothing.

    A reservation that was settled as never having left (`tacit ledger settle`) can neither be used nor made
    again under its key.
    """
    reservation = ledger.reservation(ledger_key(terms, store))
    if reservation is not None:
        return reservation.state is not State.ABORTED
    line = line_of(terms)
    account = ledger.account(line)
    return account is not None and (account.used + cost_on(line, terms.budget)).fits(account.limit)


def charge(terms: Terms, ledger: Ledger, store: str) -> None:
    """Pay for the release that these terms name, once however often it is called; BUDGET where it cannot be."""
    key = ledger_key(terms, store)
    try:
        ledger.reserve(key, line_of(terms), terms.budget, f"clean room {terms.name}")
    except BudgetExceeded:
        raise unpaid() from None
    ledger.commit(key)


def unpaid() -> RoomRefused:
    return RoomRefused(
        Refusal.BUDGET,
        "it was spent under other terms or from another store, or settled; agree on a new version",
    )
