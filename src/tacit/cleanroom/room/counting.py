"""What a release is charged as: once for all that one set of draws can ever tell, whatever is asked of it."""

from __future__ import annotations

import hashlib
import json

from tacit.cleanroom.room.store import Kept, Ledger, Looked, RoomStore
from tacit.cleanroom.wire.agreement import Terms
from tacit.cleanroom.wire.canonical import spell
from tacit.cleanroom.wire.refusals import Refusal
from tacit.cleanroom.wire.statements import RECORD, RELATION
from tacit.entropy import Entropy
from tacit.errors import BudgetExceeded, ReservationTaken, RoomError, RoomRefused
from tacit.privacy.ledger.lines import Line
from tacit.privacy.ledger.rules import Reservation, State, cost_on

TOKEN_BYTES = 16
HELD = ": held as long as it is open, not to be settled"  # ends the purpose of sums that are counted
MOST_TOKENS = 64
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


def charge(terms: Terms, ledger: Ledger, store: str, drawn_from: str) -> None:
    """Pay for the release that these terms name, once however often it is called; BUDGET where it cannot be.

    `drawn_from` is a digest of what flips are drawn from. Flips are the same whenever they are drawn from the
    same, and then they were made once: a copy of the store with other labels, or other points exchanged, would
    make others, and is refused. Sums that are counted stay reserved instead: see `confirm`.
    """
    key = ledger_key(terms, store)
    known = ledger.reservation(key)
    held = "" if terms.mode.flips else HELD
    purpose = f"clean room {terms.name}{held}" if known is None else known.purpose
    try:
        reservation = ledger.reserve(key, line_of(terms), terms.budget, purpose)
    except BudgetExceeded:
        raise unpaid() from None
    if not terms.mode.flips or _is_of_old(reservation):
        return
    try:
        ledger.make(key, f"store {store}", drawn_from)
    except ReservationTaken:
        said = "a copy of this store flipped others, or it was settled by hand; agree on a new version"
        raise RoomRefused(Refusal.LABELS_CHANGED, said) from None
    ledger.commit(key, f"store {store}")


def renew(kept: Kept, release: str) -> None:
    """Another token for a store that has counted a release: kept with the count, confirmed before that leaves.

    It decides nothing that leaves. Copies of a store must not draw the same one, so it is not drawn from what
    the room was handed.
    """
    tokens = [*_tokens(kept, release), Entropy().bytes(TOKEN_BYTES).hex()][-MOST_TOKENS:]
    kept.keep(f"holder/{release}", spell(tokens))


def confirm(terms: Terms, store: RoomStore, ledger: Ledger, store_id: str) -> None:
    """Refuse to go on where another copy of this store has counted a release meanwhile.

    Guarantee:  of copies of one store, whoever made them and when, one at most counts and answers on from where
                they part: every count takes a token that the ledger swaps for the one before, and an answer
                leaves after that. What copies answer alike was counted before they parted.
    Neighbours: as of the releases that are counted.
    Assumes:    the ledger is one, and is not put back to an older state together with its witness.
    Source:     compare and swap: `privacy.ledger.rules.Ledger.claim`.
    """
    release, key = release_name(terms), ledger_key(terms, store_id)
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


def _took(ledger: Ledger, key: str, tokens: list[str]) -> bool:
    try:
        ledger.claim(key, tokens[-1], after=tokens[:-1])
    except ReservationTaken:
        return False
    return True


def _refuse_unless_of_old(ledger: Ledger, key: str) -> None:
    known = ledger.reservation(key)
    if known is not None and _is_of_old(known):
        return
    if known is not None and known.state is State.COMMITTED:
        raise RoomError(
            f"what this room's sums cost, {key} in the ledger, was settled by hand: nobody can tell "
            "copies of its store apart any more, so agree on a new version"
        )
    raise RoomError(
        "another copy of this store has counted releases that it knows nothing of: that one alone goes on; "
        f"if it is lost for good, see `tacit ledger hand-over --help`, for {key}"
    )


def _tokens_now(store: RoomStore, release: str) -> list[str]:
    with store.reading() as looked:
        return _tokens(looked, release)


def _tokens(looked: Looked, release: str) -> list[str]:
    found = looked.find(f"holder/{release}")
    return [] if found is None else [str(each) for each in json.loads(found)]


def _is_of_old(reservation: Reservation) -> bool:
    """Whether it was paid for when rooms did not say yet who they are: then nobody can tell copies apart.

    What says that it is held was reserved by a room that does, however it was settled.
    """
    return reservation.predates_attempts and not reservation.purpose.endswith(HELD)


def unpaid() -> RoomRefused:
    return RoomRefused(
        Refusal.BUDGET,
        "it was spent under other terms or from another store, or settled; agree on a new version",
    )
