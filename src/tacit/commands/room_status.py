"""`tacit room status`: the terms, the promise, what is left of the budget, and whether the audit log holds."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tacit.commands.output import print_json, print_table
from tacit.commands.room_agree import shown_term
from tacit.commands.room_keys import extra_installed
from tacit.errors import AuditBroken

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.cleanroom.wire.agreement import Terms
    from tacit.cleanroom.wire.answers import Remaining

HOLDS, BROKEN = 0, 1


def run(args: argparse.Namespace) -> int:
    from tacit.cleanroom.wire.modes import Role
    from tacit.cleanroom.wire.statements import UNDER_THESE, standing
    from tacit.services.room import settings

    role = settings.role_of(args.settings)
    terms, remaining, audit = (_of_platform if role is Role.PLATFORM else _of_room)(args.settings)
    statement, now = terms.statement(), int(time.time())
    record = {
        "role": str(role),
        "terms": terms.as_json(),
        "digest": terms.digest,
        "open": terms.is_open(now),
        "closed": terms.why_closed(now),
        "remaining": None if remaining is None else remaining.as_json(),
        "audit": audit,
        "statement": statement.as_json(),
    }
    if args.json:
        print_json(record)
    else:
        so_far = "" if remaining is None else f"{standing(terms, remaining)}\n\n"
        _show(record, f"{so_far}{statement.as_text(UNDER_THESE)}")
    return HOLDS if audit["holds"] else BROKEN


def _of_platform(path: Path) -> tuple[Terms, Remaining | None, dict[str, Any]]:
    from tacit.services.room import settings

    with extra_installed():
        from tacit.services.room import link_checks

    found = settings.load_platform(path)
    terms = link_checks.terms_of(found)
    with link_checks.link_to(found, terms, _said_once(), patience=found.patience.at_first) as link:
        remaining = link_checks.described(link, terms).remaining
        try:
            audit = link_checks.audited(link, found)
        except AuditBroken as broken:
            audit = {"holds": False, "broken": str(broken)}
    return terms, remaining, audit


def _said_once() -> Callable[[str], None]:
    said: list[str] = []

    def say(line: str) -> None:
        if not said:
            said.append(line)
            print(line, file=sys.stderr, flush=True)

    return say


def _of_room(path: Path) -> tuple[Terms, Remaining | None, dict[str, Any]]:
    from tacit.services.room import settings
    from tacit.services.room.looking import look

    return look(settings.load_room(path))


def _show(record: dict[str, Any], page: str) -> None:
    terms, remaining, audit = record["terms"], record["remaining"], record["audit"]
    rows = [(key, shown_term(key, value)) for key, value in terms.items()]
    closed = "" if record["closed"] is None else f" ({record['closed']})"
    print_table(f"Agreement {terms['name']}{closed}", ("term", "value"), rows)
    print(page)
    print()
    if remaining is not None:
        print(
            f"Budget: epsilon {remaining['epsilon_spent']} spent, {remaining['epsilon_left']} left; delta "
            f"{remaining['delta_spent']} spent, {remaining['delta_left']} left; "
            f"{remaining['releases_per_record']} releases a record."
        )
    else:
        print("Budget: nothing was ever granted here; the room grants it when it first opens.")
    if audit["holds"]:
        print(f"Audit log: {audit['entries']} entries, all in place; {audit['receipts']} receipts checked.")
    else:
        print(f"Audit log: DOES NOT HOLD. {audit['broken']}")
